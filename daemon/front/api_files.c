/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /v1/sessions/ID/files/PATH: the files of a session, under the same absolute paths as its commands
 * have. The method says what is done, the query how:
 *
 *	GET	the content (Range); list[&recursive], stat[&follow], glob=PATTERN, grep=TEXT[&glob=PATTERN]
 *		[&ignore_case], archive: a tar file
 *	PUT	the body becomes the content: mode=0644, parents, exclusive; archive: a zip or tar file is
 *		unpacked below
 *	POST	mkdir[&parents][&mode=0755]; move_to=PATH[&parents][&exclusive]
 *	DELETE	recursive
 */
#include <stdio.h>
#include <string.h>

#include "daemon/front/box_files.h"
#include "daemon/front/front.h"
#include "daemon/front/session.h"
#include "nsbox/util.h"

/* ------------------------------------------------------------------ reading a request */

static bool has(const struct http_request *rq, const char *name)
{
	const char *v;

	return http_query(rq, name, &v);
}

static const char *value(const struct http_request *rq, const char *name)
{
	const char *v = NULL;

	return http_query(rq, name, &v) ? v : NULL;
}

static const struct {
	const char *name;
	uint32_t flag;
} flags[] = {
	{ "follow", NSBOX_FILE_FOLLOW },	   { "recursive", NSBOX_FILE_RECURSIVE },
	{ "parents", NSBOX_FILE_PARENTS },	   { "exclusive", NSBOX_FILE_EXCLUSIVE },
	{ "ignore_case", NSBOX_FILE_IGNORE_CASE },
};

/* Octal, of 0777 at most. */
static bool read_mode(const char *text, uint32_t *ret)
{
	char *end;
	unsigned long v = strtoul(text, &end, 8);

	if (*text < '0' || *text > '7' || *end || v > 0777)
		return false;
	*ret = (uint32_t)v;
	return true;
}

/* "bytes=FIRST-" or "bytes=FIRST-LAST"; what is not of that form is no range, as HTTP has it. */
static void read_range(const struct http_request *rq, struct box_files_want *w)
{
	const char *text = http_header(rq, "Range"), *dash;
	char first[24];
	uint64_t from, to = UINT64_MAX;

	if (!text || strncmp(text, "bytes=", 6) != 0)
		return;
	text += 6;
	dash = strchr(text, '-');
	if (!dash || (size_t)(dash - text) >= sizeof(first))
		return;
	snprintf(first, sizeof(first), "%.*s", (int)(dash - text), text);
	if (!parse_u64(first, &from) || from > INT64_MAX ||
	    (dash[1] && (!parse_u64(dash + 1, &to) || to < from)))
		return;
	w->range = true;
	w->req.offset = from;
	w->req.length = to == UINT64_MAX ? UINT64_MAX : to - from + 1;
}

/* What concerns all methods; false: answered. */
static bool begin(struct http_request *rq, const char *path, struct box_files_want *w)
{
	const char *mode = value(rq, "mode");

	*w = (struct box_files_want){ .req = { .path = path,
					       .mode = NSBOX_FILE_MODE_DEFAULT,
					       .length = NSBOX_FILE_SIZE_UNKNOWN } };
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
		if (has(rq, flags[i].name))
			w->req.flags |= flags[i].flag;
	if (!mode || read_mode(mode, &w->req.mode))
		return true;
	http_reply_error(rq, 400, "invalid", "mode: octal digits up to 0777");
	return false;
}

/* ------------------------------------------------------------------ methods */

static void want_get(struct http_request *rq, struct box_files_want *w)
{
	static const struct {
		const char *name;
		uint32_t verb;
		enum box_files_answer answer;
	} rows[] = {
		{ "stat", NSBOX_FILE_STAT, BOX_FILES_JSON },
		{ "list", NSBOX_FILE_LIST, BOX_FILES_JSON },
		{ "archive", NSBOX_FILE_DOWNLOAD, BOX_FILES_TAR },
		{ "grep", NSBOX_FILE_GREP, BOX_FILES_JSON },
		{ "glob", NSBOX_FILE_GLOB, BOX_FILES_JSON },
	};

	w->req.verb = NSBOX_FILE_GET;
	w->answer = BOX_FILES_RAW;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (!has(rq, rows[i].name))
			continue;
		w->req.verb = rows[i].verb;
		w->answer = rows[i].answer;
		break;
	}
	if (w->req.verb == NSBOX_FILE_GET)
		read_range(rq, w);
	if (w->req.verb == NSBOX_FILE_GREP)
		w->req.text = value(rq, "grep");
	if (w->req.verb == NSBOX_FILE_GREP || w->req.verb == NSBOX_FILE_GLOB)
		w->req.pattern = value(rq, "glob");
}

static void want_put(struct http_request *rq, struct box_files_want *w)
{
	w->unpack = has(rq, "archive");
	w->req.verb = w->unpack ? NSBOX_FILE_UPLOAD : NSBOX_FILE_PUT;
	http_body(rq, &w->body_len);
	if (!w->unpack)
		w->req.length = w->body_len;
	w->body = http_take_body(rq);
	w->created = true;
}

static void want_post(struct http_request *rq, struct box_files_want *w)
{
	w->req.target = value(rq, "move_to");
	w->req.verb = w->req.target ? NSBOX_FILE_MOVE : NSBOX_FILE_MKDIR;
	w->created = true;
}

static void want_delete(struct http_request *rq, struct box_files_want *w)
{
	w->req.verb = NSBOX_FILE_REMOVE;
}

/* The sandbox of a session that can be asked; NULL: answered. */
static struct session *ready_session(struct front *f, struct http_request *rq, const char *id)
{
	struct session *s = api_find_session(f, rq, id);

	if (!s || (s->state == SESSION_UP && s->ready))
		return s;
	http_reply_error(rq, 409, "conflict", "the session is not made yet");
	return NULL;
}

static void act(struct front *f, struct http_request *rq, const char *id,
		void (*fill)(struct http_request *, struct box_files_want *))
{
	struct session *s = ready_session(f, rq, id);
	struct box_files_want want;
	char path[4096];

	if (!s)
		return;
	snprintf(path, sizeof(path), "/%s", api_tail(rq));
	if (!begin(rq, path, &want))
		return;
	fill(rq, &want);
	s->used_us = monotonic_us();
	box_files_start(f, s->number, rq, &want);
}

void api_files_get(struct front *f, struct http_request *rq, const char *id)
{
	act(f, rq, id, want_get);
}

void api_files_put(struct front *f, struct http_request *rq, const char *id)
{
	act(f, rq, id, want_put);
}

void api_files_post(struct front *f, struct http_request *rq, const char *id)
{
	if (has(rq, "mkdir") || has(rq, "move_to"))
		act(f, rq, id, want_post);
	else
		http_reply_error(rq, 400, "invalid", "POST is for ?mkdir and ?move_to=PATH");
}

void api_files_delete(struct front *f, struct http_request *rq, const char *id)
{
	act(f, rq, id, want_delete);
}
