/* SPDX-License-Identifier: Apache-2.0 */
/* `nsbox image`: import, list, inspect, rm, gc. */
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "daemon/common/image_object.h"
#include "nsbox/cli/cli.h"
#include "nsbox/util.h"
#include "overlay/image/import.h"
#include "policy/quantity.h"
#include "policy/skill/text.h"

/* ------------------------------------------------------------------ options */

struct image_options {
	const char *platform, *ref;
	bool plain, json, quiet;
	struct layer_limits limits;
};

static int set_platform(void *ctx, const char *v)
{
	((struct image_options *)ctx)->platform = v;
	return 0;
}

static int set_ref(void *ctx, const char *v)
{
	((struct image_options *)ctx)->ref = v;
	return 0;
}

static int set_plain(void *ctx, const char *v)
{
	((struct image_options *)ctx)->plain = true;
	return 0;
}

static int set_json(void *ctx, const char *v)
{
	((struct image_options *)ctx)->json = true;
	return 0;
}

static int set_quiet(void *ctx, const char *v)
{
	((struct image_options *)ctx)->quiet = true;
	return 0;
}

static int set_max_bytes(void *ctx, const char *v)
{
	struct image_options *o = ctx;
	const char *why;

	if (!quantity_bytes(v, &o->limits.bytes, &why))
		return cli_usage("--max-bytes takes an amount as 64Gi, not '%s'", v);
	return 0;
}

static int set_max_files(void *ctx, const char *v)
{
	struct image_options *o = ctx;
	uint64_t n;

	if (!parse_u64(v, &n) || !n || n > UINT32_MAX)
		return cli_usage("--max-files takes a number, not '%s'", v);
	o->limits.entries = (uint32_t)n;
	return 0;
}

static const struct option_row import_rows[] = {
	{ "platform", 0, "OS/ARCH", "of several, this one (as linux/arm64)", set_platform },
	{ "ref", 0, "TAG", "of several images in the source, this one", set_ref },
	{ "plain", 0, NULL, "SOURCE is a root file system, whatever it looks like", set_plain },
	{ "max-bytes", 0, "SIZE", "of all files together (32Gi)", set_max_bytes },
	{ "max-files", 0, "N", "files and directories (2000000)", set_max_files },
	{ "quiet", 'q', NULL, "no progress", set_quiet },
	{ "json", 'j', NULL, "as JSON", set_json },
	{ 0 },
};
static const struct option_row json_rows[] = { { "json", 'j', NULL, "as JSON", set_json }, { 0 } };

static int print_json(struct json_object *o)
{
	printf("%s\n", json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
								 JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
	return 0;
}

/* ------------------------------------------------------------------ import */

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	interrupted = sig;
}

struct meter {
	bool shown;
	uint64_t last_us;
};

static int show_progress(void *ctx, const char *what, uint64_t done, uint64_t total)
{
	struct meter *m = ctx;
	uint64_t now = monotonic_us();

	if (interrupted)
		return -1;
	if (!m->shown || now - m->last_us < 100000)
		return 0;
	m->last_us = now;
	if (total)
		fprintf(stderr, "\r\033[K%s: %llu of %llu MiB", what,
			(unsigned long long)done >> 20, (unsigned long long)total >> 20);
	else
		fprintf(stderr, "\r\033[K%s: %llu MiB", what, (unsigned long long)done >> 20);
	return 0;
}

static struct json_object *named(const char *name, const char *key, struct json_object *value)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "name", json_object_new_string(name));
	json_object_object_add(o, key, value);
	return o;
}

static int import(const struct image_options *o, const char *name, const char *source)
{
	struct meter meter = { .shown = !o->quiet && isatty(STDERR_FILENO) };
	struct sigaction stop = { .sa_handler = on_signal };
	char path[4096], id[DIGEST_TEXT], called[IMAGE_NAME_MAX];
	struct nsbox_error err = { 0 };
	struct image_import in = {
		.name = name,
		.source = source,
		.reader = cli_libexec("nsbox-import", path, sizeof(path)),
		.platform = o->platform,
		.ref = o->ref,
		.plain = o->plain,
		.limits = o->limits,
		.progress = show_progress,
		.ctx = &meter,
		.ret_name = called,
	};
	int r;

	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGTERM, &stop, NULL);
	sigaction(SIGHUP, &stop, NULL);
	r = image_import(NULL, &in, id, &err);
	if (meter.last_us)
		fprintf(stderr, "\r\033[K");
	if (r < 0)
		return cli_error(&err);
	if (o->json)
		return print_json(named(called, "id", json_object_new_string(id)));
	printf("%s %.12s\n", called, id);
	return 0;
}

static int image_import_verb(int argc, char **argv)
{
	struct image_options o = { .limits = LAYER_LIMITS_DEFAULT };
	int r = cli_options(argc, argv, "nsbox image import [OPTION...] [NAME] SOURCE|-",
			    import_rows, &o);

	if (r >= 0)
		return r;
	if (argc - optind != 2 && argc - optind != 1)
		return cli_usage(
			"image import takes a name and a source ('-': standard input); try "
			"`nsbox image import --help`");
	return import(&o, argc - optind == 2 ? argv[optind] : NULL, argv[argc - 1]);
}

/* ------------------------------------------------------------------ list, inspect */

static int load(const struct store *s, const char *id, struct image_index *x,
		struct nsbox_error *err)
{
	auto_close int fd = -1;
	int r = index_open(s, id, 0, &fd, err);

	return r < 0 ? r : index_read(fd, x, err);
}

struct listing {
	const struct store *s;
	struct json_object *all; /* --json */
	struct nsbox_error *err;
};

static int list_one(void *ctx, const char *name, const char *id)
{
	struct listing *l = ctx;
	struct image_index x = { 0 };
	int r = load(l->s, id, &x, l->err);

	if (r < 0)
		return r;
	if (l->all)
		json_object_array_add(l->all, image_object(name, id, &x, false));
	else
		printf("%-32s %.12s  %-9s %4zu %8llu MiB\n", name, id, x.source, x.layers,
		       (unsigned long long)(x.bytes + (1u << 20) - 1) >> 20);
	index_done(&x);
	return 0;
}

static int image_list(int argc, char **argv)
{
	struct image_options o = { 0 };
	struct nsbox_error err = { 0 };
	struct listing l = { .err = &err };
	struct store s;
	int r = cli_options(argc, argv, "nsbox image list [OPTION...]", json_rows, &o);

	if (r >= 0)
		return r;
	if (store_open(NULL, &s, &err) < 0)
		return cli_error(&err);
	l.s = &s;
	l.all = o.json ? json_object_new_array() : NULL;
	if (!o.json)
		printf("%-32s %-12s  %-9s %s %12s\n", "NAME", "ID", "SOURCE", "LAYERS", "SIZE");
	r = store_names(&s, list_one, &l, &err);
	store_done(&s);
	if (r < 0) {
		json_object_put(l.all);
		return cli_error(&err);
	}
	return o.json ? print_json(l.all) : 0;
}

static int inspect(const struct store *s, const char *name, struct nsbox_error *err)
{
	struct image_index x = { 0 };
	char id[DIGEST_TEXT];
	int r = store_find(s, name, id, err);

	if (r == 0)
		r = load(s, id, &x, err);
	if (r == 0)
		r = print_json(image_object(name, id, &x, true));
	index_done(&x);
	return r;
}

static int image_inspect(int argc, char **argv)
{
	struct image_options o = { 0 };
	struct nsbox_error err = { 0 };
	struct store s;
	/* It is JSON in any case. */
	int r = cli_options(argc, argv, "nsbox image inspect [OPTION...] NAME", json_rows, &o);

	if (r >= 0)
		return r;
	if (argc - optind != 1)
		return cli_usage("image inspect takes one name");
	r = store_open(NULL, &s, &err);
	if (r == 0) {
		r = inspect(&s, argv[optind], &err);
		store_done(&s);
	}
	return r < 0 ? cli_error(&err) : 0;
}

/* ------------------------------------------------------------------ rm, gc */

/* all: NULL, or where each name is listed. */
static int remove_all(const struct store *s, char **names, struct json_object *all,
		      struct nsbox_error *err)
{
	for (; *names; names++) {
		bool kept = false;
		int r = store_remove(s, *names, &kept, err);

		if (r < 0)
			return r;
		if (all)
			json_object_array_add(
				all, named(*names, "files_in_use", json_object_new_boolean(kept)));
		else if (kept)
			fprintf(stderr,
				"nsbox: the files of '%s' are in use: `nsbox image gc` removes "
				"them when they are not\n",
				*names);
	}
	return 0;
}

static int image_rm(int argc, char **argv)
{
	struct image_options o = { 0 };
	struct nsbox_error err = { 0 };
	struct json_object *all;
	struct store s;
	int r = cli_options(argc, argv, "nsbox image rm [OPTION...] NAME...", json_rows, &o);

	if (r >= 0)
		return r;
	if (argc == optind)
		return cli_usage("image rm takes names of images");
	all = o.json ? json_object_new_array() : NULL;
	r = store_open(NULL, &s, &err);
	if (r == 0) {
		r = remove_all(&s, argv + optind, all, &err);
		store_done(&s);
	}
	if (all)
		print_json(all); /* what was removed before an error, too */
	return r < 0 ? cli_error(&err) : 0;
}

static int print_freed(const struct gc_result *freed)
{
	const struct {
		const char *key;
		unsigned n;
	} rows[] = { { "images", freed->images },
		     { "layers", freed->layers },
		     { "unfinished", freed->unfinished } };
	struct json_object *o = json_object_new_object();

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		json_object_object_add(o, rows[i].key, json_object_new_int64(rows[i].n));
	json_object_object_add(o, "importing", json_object_new_boolean(freed->busy));
	return print_json(o);
}

static int image_gc(int argc, char **argv)
{
	struct image_options o = { 0 };
	struct nsbox_error err = { 0 };
	struct gc_result freed;
	struct store s;
	int r = cli_options(argc, argv, "nsbox image gc [OPTION...]", json_rows, &o);

	if (r >= 0)
		return r;
	r = store_open(NULL, &s, &err);
	if (r == 0) {
		r = store_gc(&s, &freed, &err);
		store_done(&s);
	}
	if (r < 0)
		return cli_error(&err);
	if (o.json)
		return print_freed(&freed);
	printf("removed: %u images, %u layers, %u unfinished\n", freed.images, freed.layers,
	       freed.unfinished);
	if (freed.busy)
		fprintf(stderr, "nsbox: an import is under way: layers were left alone\n");
	return 0;
}

static const struct command verbs[] = {
	{ "import", image_import_verb,
	  "a directory, root tar, OCI layout or `docker save` archive" },
	{ "list", image_list, "what there is" },
	{ "inspect", image_inspect, "layers and configuration of an image, as JSON" },
	{ "rm", image_rm, "take names away, and what has none left" },
	{ "gc", image_gc, "remove what nothing refers to" },
	{ 0 },
};

int cmd_image(int argc, char **argv)
{
	return cli_verbs(argc, argv, "image", verbs,
			 "\nThe image 'host', this machine itself, is always there.\n");
}
