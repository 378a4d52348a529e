/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `nsbox session snapshot`, `fork`, `restore` and so on: states of a session's files, over the daemon.
 * They hold files alone: what ran when a snapshot was taken runs in nothing that begins with it.
 */
#include "nsbox/cli/session_snapshot.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/client.h"
#include "daemon/common/text.h"
#include "nsbox/cli/job_request.h"
#include "nsbox/util.h"

/* The place of a session's or a snapshot's verb, in the workspace that was asked for; malloc'd. */
static char *place_of(const struct job_options *o, const char *what, const char *id,
		      const char *verb)
{
	auto_free char *name = path_encode(id);
	auto_free char *workspace = o->workspace ? path_encode(o->workspace) : NULL;
	char *ret = NULL;

	if (!name || asprintf(&ret, "/v1/%s/%s%s%s%s", what, name, verb,
			      workspace ? "?workspace_id=" : "", workspace ? workspace : "") < 0)
		return NULL;
	return ret;
}

/* -1: go on with argv[optind] and so many more operands. */
static int read_line(int argc, char **argv, const char *usage, const struct option_row *rows,
		     int min, int max, struct job_options *o)
{
	int r = cli_options(argc, argv, usage, rows, o);

	if (r >= 0)
		return r;
	if (argc - optind < min || argc - optind > max)
		return cli_usage("usage: %s", usage);
	return -1;
}

static int ask(const struct job_options *o, const char *method, const char *what, const char *id,
	       const char *verb, struct json_object *body, struct answer *a)
{
	auto_free char *place = place_of(o, what, id, verb);

	if (!place)
		return cli_usage("out of memory");
	return job_ask(o, method, place, body, a);
}

int session_snapshot(int argc, char **argv)
{
	struct job_options o = { 0 };
	struct answer a = { 0 };
	int r = read_line(argc, argv, "nsbox session snapshot [OPTION...] NAME", session_place_rows,
			  1, 1, &o);

	if (r >= 0)
		return r;
	r = ask(&o, "POST", "sessions", argv[optind], "/snapshot", NULL, &a);
	if (r == 0 && !o.json)
		printf("%s\n", answer_text(a.body, "id"));
	answer_done(&a);
	return r;
}

static int64_t number(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	return json_object_object_get_ex(o, key, &v) ? json_object_get_int64(v) : 0;
}

int session_snapshots(int argc, char **argv)
{
	struct job_options o = { 0 };
	struct json_object *list = NULL;
	struct answer a = { 0 };
	int r = read_line(argc, argv, "nsbox session snapshots [OPTION...]", job_plain_rows, 0, 0,
			  &o);

	if (r >= 0)
		return r;
	r = job_ask(&o, "GET", "/v1/snapshots", NULL, &a);
	if (r == 0 && !o.json && json_object_object_get_ex(a.body, "snapshots", &list)) {
		printf("%-34s %-24s %-16s %12s\n", "SNAPSHOT", "SESSION", "WORKSPACE", "BYTES");
		for (size_t i = 0; i < json_object_array_length(list); i++) {
			struct json_object *s = json_object_array_get_idx(list, i);

			printf("%-34s %-24s %-16s %12lld\n", answer_text(s, "id"),
			       answer_text(s, "session_id"), answer_text(s, "workspace_id"),
			       (long long)number(s, "bytes"));
		}
	}
	answer_done(&a);
	return r;
}

/* Make a session of the request, and print its name. */
static int make(struct job_options *o, const char *place, const char *snapshot)
{
	struct json_object *body = json_object_new_object(), *session = NULL;
	struct answer a = { 0 };
	int r;

	if (!session_name_ok(o->session))
		r = cli_usage("'%s' is no session's name: letters, digits and \"._:@-\", at most "
			      "127",
			      o->session);
	else
		r = session_build(o, body);
	if (r == 0) {
		job_add_str(body, "snapshot_id", snapshot);
		r = job_ask(o, "POST", place, body, &a);
	}
	if (r == 0 && !o->json && json_object_object_get_ex(a.body, "session", &session))
		printf("%s\n", answer_text(session, "id"));
	answer_done(&a);
	json_object_put(body);
	cli_inputs_done(&o->inputs);
	return r;
}

int session_fork(int argc, char **argv)
{
	struct job_options o = { 0 };
	auto_free char *place = NULL;
	int r = read_line(argc, argv, "nsbox session fork [OPTION...] NAME NEW-NAME",
			  session_again_rows, 2, 2, &o);

	if (r >= 0)
		return r;
	place = place_of(&o, "sessions", argv[optind], "/fork");
	o.session = argv[optind + 1];
	return place ? make(&o, place, NULL) : cli_usage("out of memory");
}

int session_restore(int argc, char **argv)
{
	struct job_options o = { 0 };
	int r = read_line(argc, argv, "nsbox session restore [OPTION...] SNAPSHOT NAME",
			  session_again_rows, 2, 2, &o);

	if (r >= 0)
		return r;
	o.session = argv[optind + 1];
	return make(&o, "/v1/sessions", argv[optind]);
}

int session_commit(int argc, char **argv)
{
	struct job_options o = { 0 };
	struct json_object *body;
	struct answer a = { 0 };
	int r = read_line(argc, argv, "nsbox session commit [OPTION...] NAME IMAGE",
			  session_place_rows, 2, 2, &o);

	if (r >= 0)
		return r;
	body = json_object_new_object();
	job_add_str(body, "image", argv[optind + 1]);
	r = ask(&o, "POST", "sessions", argv[optind], "/commit", body, &a);
	if (r == 0 && !o.json)
		printf("%s\n", answer_text(a.body, "id"));
	answer_done(&a);
	json_object_put(body);
	return r;
}

int session_forget(int argc, char **argv)
{
	struct job_options o = { 0 };
	int r = read_line(argc, argv, "nsbox session forget [OPTION...] SNAPSHOT...",
			  job_plain_rows, 1, argc, &o);

	if (r >= 0)
		return r;
	r = 0;
	for (char **id = argv + optind; *id && r == 0; id++) {
		struct answer a = { 0 };

		r = ask(&o, "DELETE", "snapshots", *id, "", NULL, &a);
		answer_done(&a);
	}
	return r;
}

int session_changes(int argc, char **argv)
{
	struct job_options o = { 0 };
	struct json_object *list = NULL, *path;
	struct answer a = { 0 };
	int r = read_line(argc, argv, "nsbox session changes [OPTION...] NAME", session_place_rows,
			  1, 1, &o);

	if (r >= 0)
		return r;
	r = ask(&o, "GET", "sessions", argv[optind], "/changes", NULL, &a);
	if (r == 0 && !o.json && json_object_object_get_ex(a.body, "changes", &list)) {
		for (size_t i = 0; i < json_object_array_length(list); i++) {
			struct json_object *c = json_object_array_get_idx(list, i);

			/* As JSON: a name may hold anything. */
			json_object_object_get_ex(c, "path", &path);
			printf("%-8s %s\n", answer_text(c, "kind"),
			       json_object_to_json_string_ext(path,
							      JSON_C_TO_STRING_NOSLASHESCAPE));
		}
	}
	answer_done(&a);
	return r;
}
