/* SPDX-License-Identifier: Apache-2.0 */
/* See tar_stream.h. The format is POSIX.1-2001 (pax): ustar headers, with extended ones before those
 * whose names are long or not ASCII. */
#include "daemon/common/tar_stream.h"

#include <stdio.h>
#include <string.h>

#include "daemon/common/text.h"
#include "nsbox/util.h"

#define BLOCK 512

struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, link[100];
	char magic[6], version[2], uname[32], gname[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct header) == BLOCK, "a header is a block");

struct tar_stream {
	struct tar_out out;
	struct nsbox_files_reader *reader;
	bool ended; /* the two empty blocks are written */
	/* the frame that is coming in */
	int kind;
	uint32_t mode;
	uint64_t size;
	char path[4096];
	char text[4096]; /* of a link, a note */
	size_t have;
};

static int put(struct tar_stream *t, const void *buf, size_t len, struct nsbox_error *err)
{
	return len ? t->out.write(t->out.ctx, buf, len, err) : 0;
}

static int pad(struct tar_stream *t, uint64_t size, struct nsbox_error *err)
{
	static const char zeros[BLOCK];

	return put(t, zeros, (size_t)(BLOCK - size % BLOCK) % BLOCK, err);
}

/* ------------------------------------------------------------------ headers */

/* As many octal digits as fit before a NUL; what does not fit is in a pax record. */
static void octal(char *field, size_t size, uint64_t v)
{
	field[--size] = '\0';
	while (size--) {
		field[size] = (char)('0' + (v & 7));
		v >>= 3;
	}
}

static int put_header(struct tar_stream *t, char type, const char *name, const char *link,
		      uint32_t mode, uint64_t size, struct nsbox_error *err)
{
	struct header h = { .type = type };
	unsigned sum = 0;

	memcpy(h.name, name, strnlen(name, sizeof(h.name)));
	memcpy(h.link, link, strnlen(link, sizeof(h.link)));
	octal(h.mode, sizeof(h.mode), mode);
	octal(h.uid, sizeof(h.uid), 0);
	octal(h.gid, sizeof(h.gid), 0);
	octal(h.size, sizeof(h.size), size);
	octal(h.mtime, sizeof(h.mtime), (uint64_t)t->out.mtime);
	memcpy(h.magic, "ustar", sizeof(h.magic));
	memcpy(h.version, "00", sizeof(h.version));
	memset(h.sum, ' ', sizeof(h.sum));
	for (size_t i = 0; i < sizeof(h); i++)
		sum += ((const unsigned char *)&h)[i];
	octal(h.sum, 7, sum);
	return put(t, &h, sizeof(h), err);
}

struct records {
	char *data;
	size_t len;
};

/* "LEN KEY=VALUE\n", where LEN counts itself. */
static int add_record(struct records *r, const char *key, const char *value)
{
	size_t body = strlen(key) + strlen(value) + 3, len = body + 1;
	char digits[24], *p;

	while (len != body + (size_t)snprintf(digits, sizeof(digits), "%zu", len))
		len = body + strlen(digits);
	p = realloc(r->data, r->len + len + 1);
	if (!p)
		return -ENOMEM;
	r->data = p;
	snprintf(p + r->len, len + 1, "%s %s=%s\n", digits, key, value);
	r->len += len;
	return 0;
}

static bool is_plain(const char *s)
{
	size_t n = 0;

	for (; *s; s++, n++)
		if ((unsigned char)*s >= 0x80)
			return false;
	return n <= 100;
}

/* What the plain header cannot say. */
static int extend(struct tar_stream *t, const char *name, const char *link, uint64_t size,
		  struct nsbox_error *err)
{
	struct records r = { 0 };
	char digits[24];
	int fault = 0;

	/* Names are bytes: where they are no text, a reader is told not to convert them. */
	if (!utf8_valid(name, strlen(name)) || !utf8_valid(link, strlen(link)))
		fault = add_record(&r, "hdrcharset", "BINARY");
	if (!fault && !is_plain(name))
		fault = add_record(&r, "path", name);
	if (!fault && !is_plain(link))
		fault = add_record(&r, "linkpath", link);
	snprintf(digits, sizeof(digits), "%llu", (unsigned long long)size);
	if (!fault && size >> 33)
		fault = add_record(&r, "size", digits);
	if (fault)
		fault = nsbox_fail(err, NSBOX_E_NOMEM, -fault, "write a tar file");
	else if (r.len)
		fault = put_header(t, 'x', "pax", "", 0644, r.len, err);
	if (!fault && r.len) {
		fault = put(t, r.data, r.len, err);
		if (!fault)
			fault = pad(t, r.len, err);
	}
	free(r.data);
	return fault;
}

static int put_entry(struct tar_stream *t, char type, const char *link, uint64_t size,
		     struct nsbox_error *err)
{
	size_t len = strlen(t->path);
	int r;

	if (type == '5' && len + 1 < sizeof(t->path))
		memcpy(t->path + len, "/", 2);
	r = extend(t, t->path, link, size, err);
	return r < 0 ? r : put_header(t, type, t->path, link, t->mode, size, err);
}

/* ------------------------------------------------------------------ frames */

static int on_begin(void *ctx, int kind, const char *path, uint32_t mode, uint64_t size,
		    struct nsbox_error *err)
{
	struct tar_stream *t = ctx;

	t->kind = kind;
	t->mode = mode;
	t->size = size;
	t->have = 0;
	snprintf(t->path, sizeof(t->path), "%s", path);
	switch (kind) {
	case NSBOX_FRAME_FILE: return put_entry(t, '0', "", size, err);
	case NSBOX_FRAME_DIR: return put_entry(t, '5', "", 0, err);
	case NSBOX_FRAME_SYMLINK:
	case NSBOX_FRAME_NOTE: return 0; /* when their text is there */
	default:
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EBADMSG,
				  "file stream: a frame that a tree does not have");
	}
}

static int on_data(void *ctx, const void *buf, size_t len, struct nsbox_error *err)
{
	struct tar_stream *t = ctx;

	if (t->kind == NSBOX_FRAME_FILE)
		return put(t, buf, len, err);
	if (t->have + len < sizeof(t->text)) {
		memcpy(t->text + t->have, buf, len);
		t->have += len;
	}
	return 0;
}

static int on_finish(void *ctx, struct nsbox_error *err)
{
	struct tar_stream *t = ctx;

	t->text[t->have] = '\0';
	if (t->kind == NSBOX_FRAME_FILE)
		return pad(t, t->size, err);
	if (t->kind == NSBOX_FRAME_NOTE && t->out.left_out)
		t->out.left_out(t->out.ctx, t->path, t->text);
	t->mode = 0777;
	return t->kind == NSBOX_FRAME_SYMLINK ? put_entry(t, '2', t->text, 0, err) : 0;
}

/* ------------------------------------------------------------------ the stream */

int tar_stream_new(const struct tar_out *out, const struct nsbox_files_limits *lim,
		   struct tar_stream **ret, struct nsbox_error *err)
{
	static const struct nsbox_files_sink sink = { on_begin, on_data, on_finish };
	struct tar_stream *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "write a tar file");
	t->out = *out;
	r = nsbox_files_reader_new(&sink, t, lim, &t->reader, err);
	if (r < 0)
		free(t);
	else
		*ret = t;
	return r;
}

int tar_stream_feed(struct tar_stream *t, const void *buf, size_t len, struct nsbox_error *err)
{
	static const char end[2 * BLOCK];
	int r = nsbox_files_feed(t->reader, buf, len, err);

	if (r < 0 || t->ended || !nsbox_files_done(t->reader))
		return r;
	t->ended = true;
	return put(t, end, sizeof(end), err);
}

bool tar_stream_done(const struct tar_stream *t)
{
	return t->ended;
}

void tar_stream_free(struct tar_stream *t)
{
	if (!t)
		return;
	nsbox_files_reader_free(t->reader);
	free(t);
}
