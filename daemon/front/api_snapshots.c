/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface's part about snapshots (snapshot.h):
 *
 *	POST	/v1/sessions/ID/snapshot	keep its files as they are
 *	POST	/v1/sessions/ID/fork		another session that begins with them: the body is that of
 *						POST /v1/sessions, without what fixes the policy
 *	POST	/v1/sessions/ID/commit		an image of its own, of what commands have changed
 *	GET	/v1/sessions/ID/changes		what commands have changed in its root
 *	GET	/v1/snapshots[/ID], DELETE /v1/snapshots/ID
 *
 * POST /v1/sessions with "snapshot_id" makes a session that begins with a snapshot.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "daemon/front/evidence.h"
#include "daemon/front/json_reply.h"
#include "daemon/front/snapshot.h"
#include "nsbox/util.h"
#include "overlay/image/store.h"
#include "policy/json_strict.h"

static void take(struct front *f, struct http_request *rq, const char *id, enum take_kind kind,
		 const char *image)
{
	struct session *s = api_find_session(f, rq, id);

	if (!s)
		return;
	if (s->state != SESSION_UP || !s->ready)
		http_reply_error(rq, 409, "conflict", "the session is not made yet");
	/* A copy's policy is made anew, of the manifest: it would have what was taken away. */
	else if (kind == TAKE_COMMIT && strncmp(s->image_digest, "host:", 5) == 0)
		http_reply_error(
			rq, 409, "conflict",
			"the session runs in this machine's own files (image \"host\"), of "
			"which no image can be made: make one in an imported image");
	/* An image holds no policy. */
	else if ((kind == TAKE_SNAPSHOT || kind == TAKE_FORK) && s->network.narrowings)
		http_reply_error(rq, 409, "conflict",
				 "the session's network was narrowed, and its copies would have "
				 "what it was made with; fetch its files instead");
	else
		snapshot_take(f, s, rq, kind, image);
}

void api_post_snapshot(struct front *f, struct http_request *rq, const char *id)
{
	take(f, rq, id, TAKE_SNAPSHOT, NULL);
}

void api_get_changes(struct front *f, struct http_request *rq, const char *id)
{
	take(f, rq, id, TAKE_CHANGES, NULL);
}

/* ------------------------------------------------------------------ commits */

struct commit_body {
	char *image;
};
static const struct json_field commit_fields[] = {
	{ "image", json_take_string, offsetof(struct commit_body, image), .min = 1, .max = 127,
	  .required = true },
};

/* Images are all workspaces': the store is the operator's, and so is who adds to it. */
void api_post_commit(struct front *f, struct http_request *rq, const char *id)
{
	const struct json_limits lim = { .max_size = 4096,
					 .max_depth = 4,
					 .code = NSBOX_E_INVALID };
	struct commit_body b = { 0 };
	struct nsbox_error err = { 0 };
	struct json_object *o = NULL;
	struct json_reader r;
	struct who who;
	size_t len = 0;
	const char *body = http_body(rq, &len);

	api_who(f, rq, &who);
	if (!who.all) {
		api_deny(f, rq, "only root and the service's owner make images");
		return;
	}
	json_reader_init(&r, NSBOX_E_INVALID, &err);
	if (json_strict_parse(body, len, &lim, &o, &err) == 0 &&
	    json_read_object(&r, o, commit_fields, ARRAY_SIZE(commit_fields), true, &b) == 0 &&
	    image_name_check(b.image, &err) == 0)
		take(f, rq, id, TAKE_COMMIT, b.image);
	if (err.code)
		api_reply_error(rq, 0, &err);
	json_object_put(o);
	json_free_fields(commit_fields, ARRAY_SIZE(commit_fields), &b);
}

/* ------------------------------------------------------------------ forks */

/* The body, with what makes it a fork of this put in; NULL: answered. */
static char *fork_body(struct http_request *rq, const char *snapshot, const char *workspace)
{
	const struct json_limits lim = { .max_size = REQUEST_BODY_MAX,
					 .max_depth = JSON_DEPTH_MAX,
					 .max_nodes = 100000,
					 .code = NSBOX_E_INVALID };
	struct nsbox_error err = { 0 };
	struct json_object *o = NULL;
	size_t len = 0;
	const char *body = http_body(rq, &len);
	char *text = NULL;
	int r = json_strict_parse(body, len, &lim, &o, &err);

	if (r == 0 && !json_object_is_type(o, json_type_object))
		nsbox_fail(&err, NSBOX_E_INVALID, 0, "/: expected an object");
	else if (r == 0 && json_object_object_get_ex(o, "snapshot_id", NULL))
		nsbox_fail(&err, NSBOX_E_INVALID, 0,
			   "/snapshot_id: a fork begins with its session");
	if (!err.code) {
		json_put_text(o, "snapshot_id", snapshot);
		if (!json_object_object_get_ex(o, "workspace_id", NULL))
			json_put_text(o, "workspace_id", workspace);
		text = strdup(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN));
		if (!text)
			nsbox_fail(&err, NSBOX_E_NOMEM, ENOMEM, "fork a session");
	}
	json_object_put(o);
	if (err.code)
		api_reply_error(rq, 0, &err);
	return text;
}

/* A body that is none shall not cost a snapshot: it is read first, and again when that is there. */
void api_post_fork(struct front *f, struct http_request *rq, const char *id)
{
	struct nsbox_error err = { 0 };
	struct job_spec *spec = NULL;
	size_t len = 0;
	const char *body = http_body(rq, &len);

	if (request_parse(body, len, JOB_SESSION, &spec, &err) < 0)
		api_reply_error(rq, 0, &err);
	else
		take(f, rq, id, TAKE_FORK, NULL);
	job_spec_free(spec);
}

void api_fork_from(struct front *f, struct http_request *rq, struct snapshot *n)
{
	char *body = fork_body(rq, n->id, n->workspace);

	if (body) {
		evidence_note(f, "fork", n->uid, n->session, "");
		http_set_body(rq, body);
		api_post_session(f, rq, NULL);
	}
	snapshot_drop(n); /* the session that it makes holds it */
}

/* ------------------------------------------------------------------ those that are kept */

void api_list_snapshots(struct front *f, struct http_request *rq, const char *rest)
{
	struct json_object *o = json_object_new_object();
	struct who who;

	api_who(f, rq, &who);
	json_put(o, "snapshots", snapshots_list(f->snapshots, &who));
	json_put_u64(o, "max", f->opt->snapshots);
	json_put_u64(o, "max_bytes", f->opt->snapshot_mb << 20);
	api_reply(rq, 200, o, NULL);
}

static struct snapshot *find(struct front *f, struct http_request *rq, const char *id)
{
	struct who who;
	struct snapshot *n;

	api_who(f, rq, &who);
	n = snapshot_find(f->snapshots, &who, id);
	if (n && !n->passing)
		return n;
	http_reply_error(rq, 404, "not_found", "no snapshot has the id '%.64s'", id);
	return NULL;
}

void api_get_snapshot(struct front *f, struct http_request *rq, const char *id)
{
	const struct snapshot *n = find(f, rq, id);

	if (n)
		api_reply(rq, 200, snapshot_object(n), NULL);
}

void api_delete_snapshot(struct front *f, struct http_request *rq, const char *id)
{
	struct snapshot *n = find(f, rq, id);
	struct json_object *o;

	if (!n)
		return;
	o = snapshot_object(n);
	evidence_note(f, "snapshot-remove", http_peer(rq), n->id, "");
	snapshot_drop(n);
	api_reply(rq, 200, o, NULL);
}
