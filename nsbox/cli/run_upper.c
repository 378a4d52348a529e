/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run changed in its root: listed (--changes), made a layer of an image (--commit), or kept
 * in a file (--save) that another run goes on from (--restore).
 *
 * Such a file is a header, which says in what image it was made, and a layer stream.
 */
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "daemon/common/text.h"
#include "nsbox/cli/cli.h"
#include "nsbox/cli/run.h"
#include "nsbox/util.h"
#include "overlay/image/import.h"

#define SAVE_MAGIC "nsbox-files 1\n"
#define LIST_MAX   (64u << 20)

struct save_header {
	char magic[16];
	char image[112]; /* its digest */
};

/* ------------------------------------------------------------------ asking */

static int wait_upper(struct run *c, struct nsbox_error *err)
{
	struct nsbox_event ev;

	for (;;) {
		int r = nsbox_sandbox_next(c->sb, 600000, &ev, err);

		if (r < 0)
			return r;
		if (ev.kind == NSBOX_EVENT_FILES && ev.error.code) {
			*err = ev.error;
			return -EIO;
		}
		if (ev.kind == NSBOX_EVENT_FILES)
			return 0;
		if (ev.kind == NSBOX_EVENT_NONE || ev.kind == NSBOX_EVENT_GONE)
			return nsbox_fail_at(err, NSBOX_STAGE_COLLECT, NSBOX_E_PROTOCOL, 0,
					     "the sandbox did not hand out its changes");
	}
}

static int ask(struct run *c, enum nsbox_upper form, int fd, struct nsbox_error *err)
{
	int r = nsbox_sandbox_upper(c->sb, form, 1, fd, err);

	return r < 0 ? r : wait_upper(c, err);
}

/* ------------------------------------------------------------------ --changes */

static int add_change(void *ctx, const char *key, const char *value, struct nsbox_error *err)
{
	struct json_object *o = json_object_new_object();
	const char *path = strchr(value, '/');
	uint64_t size = 0;
	char number[24];

	nsbox_format(number, sizeof(number), "%.*s", path ? (int)(path - value) : 0, value);
	if (!path || !parse_u64(number, &size)) {
		json_object_put(o);
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EBADMSG, "malformed list of changes");
	}
	json_object_object_add(o, "path", json_text_new(path, strlen(path)));
	if (!utf8_valid(path, strlen(path))) {
		auto_free char *exact = base64_encode(path, strlen(path));

		json_object_object_add(o, "path_base64",
				       json_object_new_string(exact ? exact : ""));
	}
	json_object_object_add(o, "kind", json_object_new_string(key));
	json_object_object_add(o, "size", json_object_new_int64((int64_t)size));
	json_object_array_add(ctx, o);
	return 0;
}

static int list_changes(struct run *c, struct nsbox_error *err)
{
	auto_close int fd = memfd_create("nsbox-changes", MFD_CLOEXEC);
	auto_free char *text = NULL;
	struct stat st;
	int r;

	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make a memfd for the changes");
	r = ask(c, NSBOX_UPPER_LIST, fd, err);
	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0 || st.st_size > LIST_MAX || lseek(fd, 0, SEEK_SET) < 0)
		return nsbox_fail(err, NSBOX_E_LIMIT, EFBIG, "the list of changes is too long");
	text = malloc((size_t)st.st_size + 1);
	if (!text || read_full(fd, text, (size_t)st.st_size) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read the list of changes");
	c->changes = json_object_new_array();
	r = records_parse(text, (size_t)st.st_size, add_change, c->changes, err);
	for (size_t i = 0; r == 0 && !c->opt->result && i < json_object_array_length(c->changes);
	     i++) {
		struct json_object *o = json_object_array_get_idx(c->changes, i), *kind, *path;

		json_object_object_get_ex(o, "kind", &kind);
		json_object_object_get_ex(o, "path", &path);
		fprintf(stderr, "%-8s %s\n", json_object_get_string(kind),
			json_object_to_json_string_ext(path, JSON_C_TO_STRING_NOSLASHESCAPE));
	}
	return r;
}

/* ------------------------------------------------------------------ --commit, --save */

/* The stream in a file without a name: the sandbox must not wait for the store, nor it for us. */
static int keep_stream(struct run *c, enum nsbox_upper form, int *ret_fd, struct nsbox_error *err)
{
	const char *dir = secure_getenv("TMPDIR");
	auto_close int fd = open(dir && *dir == '/' ? dir : "/tmp",
				 O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "make a temporary file for the changes");
	r = ask(c, form, fd, err);
	if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
		r = nsbox_fail(err, NSBOX_E_IO, errno, "rewind the changes");
	if (r == 0)
		*ret_fd = take_fd(&fd);
	return r;
}

static int commit(struct run *c, struct nsbox_error *err)
{
	auto_close int fd = -1;
	char id[DIGEST_TEXT];
	int r = keep_stream(c, NSBOX_UPPER_LAYER, &fd, err);

	if (r == 0)
		r = image_commit(NULL, run_image(c), nsbox_root_digest(c->root), c->opt->commit, fd,
				 id, err);
	if (r == 0)
		fprintf(stderr, "nsbox: image '%s' is %.12s\n", c->opt->commit, id);
	return r;
}

/* Complete, or not there: the name comes last. */
static int save(struct run *c, struct nsbox_error *err)
{
	struct save_header h = { .magic = SAVE_MAGIC };
	auto_close int fd = -1;
	char tmp[4096];
	int r = 0;

	nsbox_format(h.image, sizeof(h.image), "%s", nsbox_root_digest(c->root));
	nsbox_format(tmp, sizeof(tmp), "%s.part.%d", c->opt->save, (int)getpid());
	fd = open(tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "create '%s'", tmp);
	r = write_full(fd, &h, sizeof(h));
	if (r < 0)
		nsbox_fail(err, NSBOX_E_IO, r, "write '%s'", tmp);
	if (r == 0)
		r = ask(c, NSBOX_UPPER_WHOLE, fd, err);
	if (r == 0 && (fsync(fd) < 0 || rename(tmp, c->opt->save) < 0))
		r = nsbox_fail(err, NSBOX_E_IO, errno, "write '%s'", c->opt->save);
	if (r < 0)
		unlink(tmp);
	return r;
}

int run_upper(struct run *c, struct nsbox_error *err)
{
	const struct run_options *o = c->opt;
	int r = 0;

	if (c->result.cause == NSBOX_CAUSE_SANDBOX || c->result.cause == NSBOX_CAUSE_INTERRUPTED)
		return 0;
	if (o->changes)
		r = list_changes(c, err);
	if (r == 0 && o->save)
		r = save(c, err);
	if (r == 0 && o->commit)
		r = commit(c, err);
	if (r < 0)
		nsbox_error_prefix(err, "changes of the run");
	return r;
}

/* ------------------------------------------------------------------ --restore */

static bool may_commit(const struct run *c)
{
	return run_image(c) && strcmp(run_image(c), "host") != 0;
}

int run_open_restore(struct run *c, struct nsbox_error *err)
{
	struct save_header h;
	auto_close int fd = -1;

	/* Before the run, which may be a long one. */
	if (c->opt->commit && !may_commit(c))
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "--commit needs an imported image (--image): the image 'host' is "
				  "this machine itself");
	if (c->opt->commit && image_name_check(c->opt->commit, err) < 0)
		return -EINVAL;
	if (!c->opt->restore)
		return 0;
	fd = open(c->opt->restore, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_INVALID, errno, "open '%s'", c->opt->restore);
	if (read_full(fd, &h, sizeof(h)) < 0 ||
	    memcmp(h.magic, SAVE_MAGIC, sizeof(SAVE_MAGIC)) != 0)
		return nsbox_fail(err, NSBOX_E_INVALID, EBADMSG,
				  "'%s' is none of what --save writes", c->opt->restore);
	h.image[sizeof(h.image) - 1] = '\0';
	/* The host's digest changes with every update of it, and its files are bound, not layered. */
	if (strcmp(h.image, nsbox_root_digest(c->root)) != 0 &&
	    (strncmp(h.image, "host:", 5) != 0 || may_commit(c)))
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "'%s' was saved in another image (%.20s) than this (%.20s)",
				  c->opt->restore, h.image, nsbox_root_digest(c->root));
	c->restore = take_fd(&fd);
	return 0;
}
