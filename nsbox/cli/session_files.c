/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `nsbox session ls`, `get`, `put` and so on: the files of a session, over the daemon. What comes out
 * is hostile: names are shown without acting on a terminal, and a file is written where the caller
 * says and nowhere else.
 */
#include "nsbox/cli/session_files.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/client.h"
#include "daemon/common/text.h"
#include "nsbox/cli/ask.h"
#include "nsbox/cli/cli.h"
#include "nsbox/util.h"
#include "policy/skill/text.h"

#define BODY_MAX (64u << 20)

struct files_options {
	const char *socket, *workspace;
	bool recursive, parents, json;
};

static int set_socket(void *ctx, const char *v)
{
	((struct files_options *)ctx)->socket = v;
	return 0;
}

static int set_workspace(void *ctx, const char *v)
{
	((struct files_options *)ctx)->workspace = v;
	return 0;
}

static int set_recursive(void *ctx, const char *v)
{
	((struct files_options *)ctx)->recursive = true;
	return 0;
}

static int set_parents(void *ctx, const char *v)
{
	((struct files_options *)ctx)->parents = true;
	return 0;
}

static int set_json(void *ctx, const char *v)
{
	((struct files_options *)ctx)->json = true;
	return 0;
}

#define COMMON_ROWS                                                                                \
	{ "socket", 'S', "PATH",                                                                   \
	  "the daemon's socket (default: $NSBOX_SOCKET, else /run/nsbox/nsbox.sock)",              \
	  set_socket },                                                                            \
	{                                                                                          \
		"workspace", 'w', "ID", "the session's workspace, where two have the name",        \
			set_workspace                                                              \
	}
#define JSON_ROW                                                                                   \
	{                                                                                          \
		"json", 'j', NULL, "print the daemon's answer as it is", set_json                  \
	}

static const struct option_row plain_rows[] = { COMMON_ROWS, { NULL, 0, NULL, NULL, NULL } };
static const struct option_row ls_rows[] = {
	COMMON_ROWS,
	JSON_ROW,
	{ "recursive", 'r', NULL, "with all below it", set_recursive },
	{ NULL, 0, NULL, NULL, NULL },
};
static const struct option_row send_rows[] = {
	COMMON_ROWS,
	JSON_ROW,
	{ NULL, 0, NULL, NULL, NULL },
};
static const struct option_row rm_rows[] = {
	COMMON_ROWS,
	JSON_ROW,
	{ "recursive", 'r', NULL, "with all below it", set_recursive },
	{ NULL, 0, NULL, NULL, NULL },
};
static const struct option_row make_rows[] = {
	COMMON_ROWS,
	JSON_ROW,
	{ "parents", 'p', NULL, "make what is missing on the way", set_parents },
	{ NULL, 0, NULL, NULL, NULL },
};

/* ------------------------------------------------------------------ asking */

struct ask_files {
	struct files_options o;
	char **args; /* the session's name, then the operands */
	int n;
};

/* -1: go on. */
static int read_line(int argc, char **argv, const char *usage, const struct option_row *rows,
		     int min, int max, struct ask_files *a)
{
	int r = cli_options(argc, argv, usage, rows, &a->o);

	if (r >= 0)
		return r;
	a->args = argv + optind;
	a->n = argc - optind;
	if (a->n < min || a->n > max)
		return cli_usage("usage: %s", usage);
	return -1;
}

/* The place of a file; malloc'd, NULL after a message. */
static char *url_of(const struct ask_files *a, const char *path, const char *query)
{
	auto_free char *name = path_encode(a->args[0]), *file = path_encode(path);
	auto_free char *workspace = a->o.workspace ? path_encode(a->o.workspace) : NULL;
	char *url = NULL;

	if (*path != '/') {
		cli_usage("'%s': paths inside are absolute, such as /workspace/%s", path, path);
		return NULL;
	}
	if (strchr(a->args[0], '/')) {
		cli_usage("'%s' is no session's name", a->args[0]);
		return NULL;
	}
	if (!name || !file ||
	    asprintf(&url, "/v1/sessions/%s/files%s?%s%s%s%s%s", name, file, query,
		     a->o.recursive ? "&recursive" : "", a->o.parents ? "&parents" : "",
		     workspace ? "&workspace_id=" : "", workspace ? workspace : "") < 0) {
		cli_usage("out of memory");
		return NULL;
	}
	return url;
}

struct got {
	char *data;
	size_t len;
};

static int refused(const struct got *g)
{
	struct json_object *o = json_tokener_parse(g->data), *e = NULL, *m = NULL;
	const char *text = "the service refused";
	auto_free char *shown = NULL;

	if (json_object_object_get_ex(o, "error", &e) &&
	    json_object_object_get_ex(e, "message", &m))
		text = json_object_get_string(m);
	shown = text_shown(text, strlen(text));
	fprintf(stderr, "nsbox: %s\n", shown ? shown : "out of memory");
	json_object_put(o);
	return EXIT_NSBOX;
}

/* 0 with the answer's body; else an exit status after a message. */
static int ask(const struct ask_files *a, const char *method, const char *path, const char *query,
	       const char *body, size_t len, struct got *ret)
{
	auto_free char *url = url_of(a, path, query);
	struct nsbox_error err = { 0 };
	int status;

	if (!url)
		return EXIT_USAGE;
	if (client_request(ask_socket(a->o.socket), method, url, body, len, &status, &ret->data,
			   &ret->len, &err) < 0)
		return cli_error(&err);
	if (status >= 200 && status < 300)
		return 0;
	return refused(ret);
}

/* An answer that only programs want to see; those with no body are an empty object. */
static void answered(const struct ask_files *a, struct got *g, int r)
{
	if (r == 0 && a->o.json)
		printf("%s\n", g->len ? g->data : "{}");
	free(g->data);
}

static int tell(const struct ask_files *a, const char *method, const char *path, const char *query)
{
	struct got g = { 0 };
	int r = ask(a, method, path, query, NULL, 0, &g);

	answered(a, &g, r);
	return r;
}

/* To a file, which is made or replaced, or ("-" or NULL) to standard output. */
static int write_out(const struct got *g, const char *file)
{
	auto_close int fd = -1;
	int r;

	if (!file || !strcmp(file, "-")) {
		r = write_full(STDOUT_FILENO, g->data, g->len);
	} else {
		fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
		r = fd < 0 ? -errno : write_full(fd, g->data, g->len);
	}
	if (r == 0)
		return 0;
	fprintf(stderr, "nsbox: write '%s': %s\n", file ? file : "-", strerror(-r));
	return EXIT_NSBOX;
}

/* ------------------------------------------------------------------ ls */

static const char *text_in(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	return json_object_object_get_ex(o, key, &v) ? json_object_get_string(v) : "";
}

static void show_entry(struct json_object *o)
{
	const char *path = text_in(o, "path"), *type = text_in(o, "type");
	const char *target = text_in(o, "target");
	auto_free char *shown = text_shown(path, strlen(path));
	auto_free char *to = text_shown(target, strlen(target));

	printf("%-9s %s %12s %s%s%s\n", type, text_in(o, "mode"), text_in(o, "size"),
	       shown ? shown : "?", *target ? " -> " : "", to ? to : "");
}

static int by_path(const void *x, const void *y)
{
	struct json_object *const *a = x, *const *b = y;

	return strcmp(text_in(*a, "path"), text_in(*b, "path"));
}

static void show_left_out(struct json_object *answer)
{
	struct json_object *list = NULL;

	json_object_object_get_ex(answer, "left_out", &list);
	for (size_t i = 0; list && i < json_object_array_length(list); i++) {
		struct json_object *o = json_object_array_get_idx(list, i);
		auto_free char *shown = text_shown(text_in(o, "path"), strlen(text_in(o, "path")));

		fprintf(stderr, "nsbox: '%s': %s\n", shown ? shown : "?", text_in(o, "note"));
	}
}

int session_ls(int argc, char **argv)
{
	struct ask_files a = { 0 };
	struct json_object *answer, *list = NULL;
	struct got g = { 0 };
	int r = read_line(argc, argv, "nsbox session ls [OPTION...] NAME [PATH]", ls_rows, 1, 2,
			  &a);

	if (r >= 0)
		return r;
	r = ask(&a, "GET", a.n > 1 ? a.args[1] : "/workspace", "list", NULL, 0, &g);
	if (r == 0 && a.o.json) {
		printf("%s\n", g.data);
	} else if (r == 0) {
		answer = json_tokener_parse(g.data);
		json_object_object_get_ex(answer, "entries", &list);
		if (list)
			json_object_array_sort(list, by_path);
		for (size_t i = 0; list && i < json_object_array_length(list); i++)
			show_entry(json_object_array_get_idx(list, i));
		show_left_out(answer);
		json_object_put(answer);
	}
	free(g.data);
	return r;
}

/* ------------------------------------------------------------------ content */

static int fetch(int argc, char **argv, const char *usage, const char *query)
{
	struct ask_files a = { 0 };
	struct got g = { 0 };
	int r = read_line(argc, argv, usage, plain_rows, 2, 3, &a);

	if (r >= 0)
		return r;
	r = ask(&a, "GET", a.args[1], query, NULL, 0, &g);
	if (r == 0)
		r = write_out(&g, a.n > 2 ? a.args[2] : NULL);
	free(g.data);
	return r;
}

int session_get(int argc, char **argv)
{
	return fetch(argc, argv, "nsbox session get [OPTION...] NAME PATH [FILE]", "");
}

int session_download(int argc, char **argv)
{
	return fetch(argc, argv, "nsbox session download [OPTION...] NAME DIR [FILE.tar]",
		     "archive");
}

static int send(int argc, char **argv, const char *usage, const struct option_row *rows,
		const char *query)
{
	struct nsbox_error err = { 0 };
	struct ask_files a = { 0 };
	auto_free char *data = NULL;
	struct got g = { 0 };
	size_t len = 0;
	int r = read_line(argc, argv, usage, rows, 3, 3, &a);

	if (r >= 0)
		return r;
	if (cli_read_file(a.args[1], BODY_MAX, &data, &len, &err) < 0)
		return cli_error(&err);
	r = ask(&a, "PUT", a.args[2], query, data, len, &g);
	answered(&a, &g, r);
	return r;
}

int session_put(int argc, char **argv)
{
	return send(argc, argv, "nsbox session put [OPTION...] NAME FILE PATH", make_rows, "");
}

int session_upload(int argc, char **argv)
{
	return send(argc, argv, "nsbox session upload [OPTION...] NAME ARCHIVE DIR", send_rows,
		    "archive");
}

/* ------------------------------------------------------------------ the rest */

int session_mkdir(int argc, char **argv)
{
	struct ask_files a = { 0 };
	int r = read_line(argc, argv, "nsbox session mkdir [OPTION...] NAME DIR", make_rows, 2, 2,
			  &a);

	return r >= 0 ? r : tell(&a, "POST", a.args[1], "mkdir");
}

int session_rm(int argc, char **argv)
{
	struct ask_files a = { 0 };
	int r = read_line(argc, argv, "nsbox session rm [OPTION...] NAME PATH", rm_rows, 2, 2, &a);

	return r >= 0 ? r : tell(&a, "DELETE", a.args[1], "");
}

int session_mv(int argc, char **argv)
{
	struct ask_files a = { 0 };
	auto_free char *to = NULL, *query = NULL;
	int r = read_line(argc, argv, "nsbox session mv [OPTION...] NAME FROM TO", make_rows, 3, 3,
			  &a);

	if (r >= 0)
		return r;
	to = path_encode(a.args[2]);
	if (!to || asprintf(&query, "move_to=%s", to) < 0)
		return cli_usage("out of memory");
	return tell(&a, "POST", a.args[1], query);
}
