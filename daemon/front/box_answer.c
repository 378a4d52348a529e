/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer of a sandbox about its files. It is as untrusted as the files: the library's reader
 * checks its form, this file bounds it, and names and texts that are not UTF-8 are shown replaced and,
 * in base64, as they are.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/common/media_type.h"
#include "daemon/common/tar_stream.h"
#include "daemon/common/text.h"
#include "daemon/front/box_files.h"
#include "daemon/front/front.h"
#include "daemon/front/json_reply.h"
#include "nsbox/util.h"

struct box_answer {
	enum box_files_answer kind;
	struct nsbox_files_reader *reader; /* or: */
	struct tar_stream *tar;
	struct json_object *entries, *matches, *left_out;
	char *data; /* RAW, TAR */
	size_t len, cap;
	struct nsbox_file_info info; /* of the object itself */
	bool has_info;
	/* the frame that is coming in */
	int frame;
	char path[4096];
	char part[8192];
	size_t have;
};

static int keep(struct box_answer *a, const void *buf, size_t len, struct nsbox_error *err)
{
	if (a->len + len > a->cap) {
		size_t cap = MAX(a->cap * 2, a->len + len + 4096);
		char *p = realloc(a->data, cap);

		if (!p)
			return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "keep what a sandbox sends");
		a->data = p;
		a->cap = cap;
	}
	memcpy(a->data + a->len, buf, len);
	a->len += len;
	return 0;
}

/* ------------------------------------------------------------------ JSON */

static void put_bytes(struct json_object *o, const char *key, const char *s, size_t len)
{
	auto_free char *exact = NULL;
	char name[40];

	json_put(o, key, json_text_new(s, len));
	if (utf8_valid(s, len))
		return;
	exact = base64_encode(s, len);
	snprintf(name, sizeof(name), "%s_base64", key);
	json_put(o, name, exact ? json_object_new_string(exact) : NULL);
}

static void put_info(struct json_object *o, const struct nsbox_file_info *i, const char *target,
		     size_t len)
{
	static const char *const types[] = { "other", "file", "directory", "symlink" };
	char mode[16];

	json_put_text(o, "type", types[MIN(i->type, 3u)]);
	snprintf(mode, sizeof(mode), "%04o", i->mode & 07777);
	json_put_text(o, "mode", mode);
	json_put_u64(o, "size", i->size);
	json_put(o, "mtime_ms", json_object_new_int64(i->mtime_ns / 1000000));
	if (i->type == NSBOX_FILE_TYPE_SYMLINK)
		put_bytes(o, "target", target, len);
}

static void add_entry(struct box_answer *a)
{
	struct json_object *o;
	struct nsbox_file_info info;

	memcpy(&info, a->part, sizeof(info));
	if (!*a->path) {
		a->info = info;
		a->has_info = true;
	}
	if (a->kind != BOX_FILES_JSON)
		return;
	o = json_object_new_object();
	if (*a->path)
		put_bytes(o, "path", a->path, strlen(a->path));
	put_info(o, &info, a->part + sizeof(info), a->have - sizeof(info));
	json_object_array_add(a->entries, o);
}

static void add_match(struct box_answer *a)
{
	struct json_object *o = json_object_new_object();
	struct nsbox_file_match m;

	memcpy(&m, a->part, sizeof(m));
	put_bytes(o, "path", a->path, strlen(a->path));
	json_put_u64(o, "line", m.line);
	json_put_u64(o, "offset", m.offset);
	put_bytes(o, "text", a->part + sizeof(m), a->have - sizeof(m));
	if (m.cut)
		json_put(o, "cut", json_object_new_boolean(1));
	json_object_array_add(a->matches, o);
}

static void add_left_out(void *ctx, const char *path, const char *why)
{
	struct box_answer *a = ctx;
	struct json_object *o = json_object_new_object();

	put_bytes(o, "path", path, strlen(path));
	json_put(o, "note", json_text_new(why, strlen(why)));
	json_object_array_add(a->left_out, o);
}

/* ------------------------------------------------------------------ frames */

static int on_begin(void *ctx, int kind, const char *path, uint32_t mode, uint64_t size,
		    struct nsbox_error *err)
{
	struct box_answer *a = ctx;
	bool content = kind == NSBOX_FRAME_FILE && a->kind == BOX_FILES_RAW;

	if (!content && kind != NSBOX_FRAME_INFO && kind != NSBOX_FRAME_MATCH &&
	    kind != NSBOX_FRAME_NOTE)
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EBADMSG,
				  "file stream: a frame that this answer does not have");
	a->frame = kind;
	a->have = 0;
	snprintf(a->path, sizeof(a->path), "%s", path);
	return 0;
}

static int on_data(void *ctx, const void *buf, size_t len, struct nsbox_error *err)
{
	struct box_answer *a = ctx;

	if (a->frame == NSBOX_FRAME_FILE)
		return keep(a, buf, len, err);
	if (a->have + len < sizeof(a->part)) { /* the reader has bounded it already */
		memcpy(a->part + a->have, buf, len);
		a->have += len;
	}
	return 0;
}

static int on_finish(void *ctx, struct nsbox_error *err)
{
	struct box_answer *a = ctx;

	a->part[a->have] = '\0';
	if (a->frame == NSBOX_FRAME_INFO)
		add_entry(a);
	else if (a->frame == NSBOX_FRAME_MATCH)
		add_match(a);
	else if (a->frame == NSBOX_FRAME_NOTE)
		add_left_out(a, a->path, a->part);
	return 0;
}

static int on_tar(void *ctx, const void *buf, size_t len, struct nsbox_error *err)
{
	return keep(ctx, buf, len, err);
}

/* ------------------------------------------------------------------ life */

int box_answer_new(enum box_files_answer kind, struct box_answer **ret, struct nsbox_error *err)
{
	static const struct nsbox_files_sink sink = { on_begin, on_data, on_finish };
	const struct nsbox_files_limits lim = { BOX_FILES_BYTES_MAX * 2,
						BOX_FILES_FRAMES_MAX + 16 };
	struct box_answer *a = calloc(1, sizeof(*a));
	const struct tar_out out = { on_tar, add_left_out, a, (int64_t)time(NULL) };
	int r;

	if (!a)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "take what a sandbox sends");
	a->kind = kind;
	a->entries = json_object_new_array();
	a->matches = json_object_new_array();
	a->left_out = json_object_new_array();
	r = kind == BOX_FILES_TAR ? tar_stream_new(&out, &lim, &a->tar, err)
				  : nsbox_files_reader_new(&sink, a, &lim, &a->reader, err);
	if (r < 0)
		box_answer_free(a);
	else
		*ret = a;
	return r;
}

void box_answer_free(struct box_answer *a)
{
	if (!a)
		return;
	nsbox_files_reader_free(a->reader);
	tar_stream_free(a->tar);
	json_object_put(a->entries);
	json_object_put(a->matches);
	json_object_put(a->left_out);
	free(a->data);
	free(a);
}

int box_answer_feed(struct box_answer *a, const void *buf, size_t len, struct nsbox_error *err)
{
	return a->tar ? tar_stream_feed(a->tar, buf, len, err)
		      : nsbox_files_feed(a->reader, buf, len, err);
}

bool box_answer_done(const struct box_answer *a)
{
	return a->tar ? tar_stream_done(a->tar) : nsbox_files_done(a->reader);
}

/* ------------------------------------------------------------------ the reply */

static void reply_raw(struct box_answer *a, struct http_request *rq, bool range, uint64_t offset)
{
	char place[80], size[24];
	const char *headers[] = { "Content-Type",
				  "application/octet-stream",
				  "X-Content-Type-Options",
				  "nosniff",
				  "Accept-Ranges",
				  "bytes",
				  "X-File-Size",
				  size,
				  range ? "Content-Range" : NULL,
				  place,
				  NULL };

	snprintf(size, sizeof(size), "%llu", (unsigned long long)a->info.size);
	if (range && a->len == 0) {
		snprintf(place, sizeof(place), "bytes */%s", size);
		http_reply(rq, 416, strdup(""), 0, headers);
		return;
	}
	snprintf(place, sizeof(place), "bytes %llu-%llu/%s", (unsigned long long)offset,
		 (unsigned long long)(offset + a->len - 1), size);
	http_reply(rq, range ? 206 : 200, a->data ? take_ptr(&a->data) : strdup(""), a->len,
		   headers);
}

static void reply_tar(struct box_answer *a, struct http_request *rq)
{
	char left[24];
	const char *const headers[] = { "Content-Type", "application/x-tar", "X-Left-Out", left,
					NULL };

	snprintf(left, sizeof(left), "%zu", json_object_array_length(a->left_out));
	http_reply(rq, 200, take_ptr(&a->data), a->len, headers);
}

void box_answer_reply(struct box_answer *a, struct http_request *rq, int status, bool range,
		      uint64_t offset, struct json_object *notices)
{
	struct json_object *o;

	if (a->kind == BOX_FILES_RAW) {
		reply_raw(a, rq, range, offset);
		return;
	}
	if (a->kind == BOX_FILES_TAR) {
		reply_tar(a, rq);
		return;
	}
	o = json_object_new_object();
	json_put(o, "entries", take_ptr(&a->entries));
	if (json_object_array_length(a->matches))
		json_put(o, "matches", take_ptr(&a->matches));
	if (json_object_array_length(a->left_out))
		json_put(o, "left_out", take_ptr(&a->left_out));
	if (notices)
		json_put(o, "notices", json_object_get(notices));
	api_reply(rq, status, o, NULL);
}
