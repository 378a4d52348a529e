/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file stream itself: what a well-formed frame is, writing frames, and the incremental reader.
 * The rules stand here once; every reader (event loop, --output, in-sandbox helper) asks them.
 */
#include <nsbox/files.h>
#include <string.h>

#include "nsbox/files_format.h"
#include "nsbox/util.h"

static int malformed(struct nsbox_error *err, const char *what)
{
	return nsbox_fail(err, NSBOX_E_PROTOCOL, EBADMSG, "file stream: %s", what);
}

/* ------------------------------------------------------------------ rules */

void files_clean_text(char *s)
{
	for (; *s; s++) {
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			*s = '?';
	}
}

/* For messages: a path may hold anything but NUL. */
static int bad_path(struct nsbox_error *err, const char *path, size_t len, const char *why)
{
	char show[200];

	len = MIN(len, sizeof(show) - 1);
	memcpy(show, path, len);
	show[len] = '\0';
	files_clean_text(show);
	return nsbox_fail(err, NSBOX_E_INVALID, 0, "path '%s': %s", show, why);
}

static const char *judge_components(const char *path, size_t len)
{
	for (size_t at = 0; at <= len;) {
		const char *c = path + at;
		const char *slash = memchr(c, '/', len - at);
		size_t n = slash ? (size_t)(slash - c) : len - at;

		if (n == 0)
			return "has an empty component";
		if (n == 1 && c[0] == '.')
			return "has a '.' component";
		if (n == 2 && c[0] == '.' && c[1] == '.')
			return "has a '..' component";
		if (n > FILES_NAME_MAX)
			return "has a name of more than 255 bytes";
		at += n + 1;
	}
	return NULL;
}

int nsbox_files_check_path(const char *path, size_t len, struct nsbox_error *err)
{
	const char *why;

	if (len == 0)
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "a path is empty");
	if (len >= FILES_PATH_MAX)
		return bad_path(err, path, len, "longer than 4095 bytes");
	if (memchr(path, '\0', len))
		return bad_path(err, path, strlen(path), "holds a NUL byte");
	if (path[0] == '/')
		return bad_path(err, path, len, "is absolute");
	why = judge_components(path, len);
	return why ? bad_path(err, path, len, why) : 0;
}

/* Sizes by kind: what may follow a header. */
static const char *judge_sizes(const struct nsbox_frame *f)
{
	bool has_path = f->path_len > 0;

	switch ((enum nsbox_frame_kind)f->kind) {
	case NSBOX_FRAME_END:
		if (has_path || f->size >= NSBOX_ERROR_MSG_MAX)
			return "end with a path or a long text";
		return f->aux >= NSBOX_E_CODE_MAX ? "end with an unknown code" : NULL;
	case NSBOX_FRAME_DIR:
	case NSBOX_FRAME_BASE:
		return has_path && f->size == 0 ? NULL : "directory without a path or with content";
	case NSBOX_FRAME_FILE: return has_path ? NULL : "file without a path";
	case NSBOX_FRAME_SYMLINK:
		if (!has_path || f->size == 0 || f->size > FILES_TEXT_MAX)
			return "link without a path or a target";
		return NULL;
	case NSBOX_FRAME_NOTE:
		return has_path && f->size <= FILES_TEXT_MAX ? NULL
							     : "note without a path, or long";
	case NSBOX_FRAME_INFO:
		if (f->size < sizeof(struct nsbox_file_info) ||
		    f->size > sizeof(struct nsbox_file_info) + FILES_TEXT_MAX)
			return "description of a wrong size";
		return NULL;
	case NSBOX_FRAME_MATCH:
		if (f->size < sizeof(struct nsbox_file_match) ||
		    f->size > sizeof(struct nsbox_file_match) + FILES_TEXT_MAX)
			return "match of a wrong size";
		return has_path ? NULL : "match without a path";
	}
	return "unknown kind of frame";
}

int files_check_frame(const struct nsbox_frame *f, const struct nsbox_files_limits *lim,
		      struct files_count *count, struct nsbox_error *err)
{
	const char *why;

	if (f->magic != NSBOX_FRAME_MAGIC)
		return malformed(err, "not a frame");
	why = judge_sizes(f);
	if (!why && f->path_len >= FILES_PATH_MAX)
		why = "long path";
	if (!why && (f->mode & ~07777u))
		why = "impossible mode";
	if (!why && f->aux && f->kind != NSBOX_FRAME_END)
		why = "code in a frame that is no end";
	if (why)
		return malformed(err, why);
	if (f->kind == NSBOX_FRAME_END)
		return 0;
	if (count->frames >= lim->files)
		return nsbox_fail(err, NSBOX_E_LIMIT, 0, "more than %u files", lim->files);
	if (f->size > lim->total_bytes - count->bytes)
		return nsbox_fail(err, NSBOX_E_LIMIT, 0, "files of more than %llu bytes together",
				  (unsigned long long)lim->total_bytes);
	count->frames++;
	count->bytes += f->size;
	return 0;
}

int files_check_frame_path(const struct nsbox_frame *f, const char *path, struct nsbox_error *err)
{
	if (f->kind == NSBOX_FRAME_END || (f->kind == NSBOX_FRAME_INFO && f->path_len == 0))
		return 0;
	if (f->kind != NSBOX_FRAME_BASE)
		return nsbox_files_check_path(path, f->path_len, err);
	if (path[0] != '/')
		return malformed(err, "base that is not absolute");
	return nsbox_files_check_path(path + 1, f->path_len - 1u, err);
}

int files_end_error(const struct nsbox_frame *f, const char *text, struct nsbox_error *err)
{
	char clean[NSBOX_ERROR_MSG_MAX];

	if (f->aux == 0)
		return 0;
	memcpy(clean, text, f->size);
	clean[f->size] = '\0';
	files_clean_text(clean);
	return nsbox_fail(err, (int)f->aux, 0, "%s", clean[0] ? clean : "the sender gave up");
}

/* ------------------------------------------------------------------ writing */

static int put(int fd, const void *data, size_t len, struct nsbox_error *err)
{
	int r = write_full(fd, data, len);

	return r < 0 ? nsbox_fail(err, NSBOX_E_IO, -r, "write the file stream") : 0;
}

static int put_start(int fd, const struct nsbox_frame *f, const char *path, struct nsbox_error *err)
{
	char buf[sizeof(*f) + FILES_PATH_MAX];

	/* One write: small frames are most of a stream. */
	memcpy(buf, f, sizeof(*f));
	memcpy(buf + sizeof(*f), path, f->path_len);
	return put(fd, buf, sizeof(*f) + f->path_len, err);
}

int files_put_header(int fd, int kind, const char *path, uint32_t mode, uint64_t size,
		     struct nsbox_error *err)
{
	size_t len = path ? strlen(path) : 0;
	struct nsbox_frame f = { .magic = NSBOX_FRAME_MAGIC,
				 .kind = (uint16_t)kind,
				 .path_len = (uint16_t)len,
				 .mode = mode & 0777,
				 .size = size };
	const char *why = len < FILES_PATH_MAX ? judge_sizes(&f) : "long path";
	int r;

	if (why)
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "file stream: %s", why);
	r = files_check_frame_path(&f, path, err);
	return r < 0 ? r : put_start(fd, &f, path ? path : "", err);
}

int nsbox_files_put_frame(int fd, int kind, const char *path, uint32_t mode, const void *data,
			  uint64_t size, struct nsbox_error *err)
{
	int r = files_put_header(fd, kind, path, mode, size, err);

	return r < 0 || size == 0 ? r : put(fd, data, (size_t)size, err);
}

int nsbox_files_end(int fd, struct nsbox_error *err)
{
	return files_put_header(fd, NSBOX_FRAME_END, NULL, 0, 0, err);
}

int files_put_error(int fd, const struct nsbox_error *why, struct nsbox_error *err)
{
	size_t len = strnlen(why->msg, sizeof(why->msg) - 1);
	int code = why->code > 0 && why->code < NSBOX_E_CODE_MAX ? why->code : NSBOX_E_IO;
	struct nsbox_frame f = { .magic = NSBOX_FRAME_MAGIC,
				 .kind = NSBOX_FRAME_END,
				 .aux = (uint32_t)code,
				 .size = len };
	int r = put_start(fd, &f, "", err);

	return r < 0 ? r : put(fd, why->msg, len, err);
}

/* ------------------------------------------------------------------ incremental reader */

enum reader_state { READ_HEADER, READ_PATH, READ_CONTENT, READ_DONE, READ_BROKEN };

struct nsbox_files_reader {
	struct nsbox_files_sink sink;
	void *ctx;
	struct nsbox_files_limits lim;
	struct files_count count;
	enum reader_state state;
	struct nsbox_frame frame;
	size_t have;   /* bytes of the header or path that have come */
	uint64_t left; /* bytes of the content that have not */
	char path[FILES_PATH_MAX];
	char end_text[NSBOX_ERROR_MSG_MAX];
	struct nsbox_error error; /* READ_BROKEN: why, said again to whoever goes on feeding */
	int result;
};

int nsbox_files_reader_new(const struct nsbox_files_sink *sink, void *ctx,
			   const struct nsbox_files_limits *lim, struct nsbox_files_reader **ret,
			   struct nsbox_error *err)
{
	struct nsbox_files_reader *r = calloc(1, sizeof(*r));

	if (!r)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "file stream");
	r->sink = *sink;
	r->ctx = ctx;
	r->lim = lim ? *lim : NSBOX_FILES_LIMITS_DEFAULT;
	*ret = r;
	return 0;
}

void nsbox_files_reader_free(struct nsbox_files_reader *r)
{
	free(r);
}

bool nsbox_files_done(const struct nsbox_files_reader *r)
{
	return r->state == READ_DONE;
}

static int frame_over(struct nsbox_files_reader *r)
{
	r->have = 0;
	if (r->frame.kind == NSBOX_FRAME_END) {
		r->state = READ_DONE;
		return files_end_error(&r->frame, r->end_text, &r->error);
	}
	r->state = READ_HEADER;
	return r->sink.finish ? r->sink.finish(r->ctx, &r->error) : 0;
}

/* Header and path are complete. */
static int frame_begins(struct nsbox_files_reader *r)
{
	int ret;

	r->path[r->frame.path_len] = '\0';
	ret = files_check_frame_path(&r->frame, r->path, &r->error);
	if (ret < 0)
		return ret;
	r->state = READ_CONTENT;
	r->left = r->frame.size;
	if (r->frame.kind != NSBOX_FRAME_END && r->sink.begin) {
		ret = r->sink.begin(r->ctx, r->frame.kind, r->path, r->frame.mode & 0777,
				    r->frame.size, &r->error);
		if (ret < 0)
			return ret;
	}
	return r->left == 0 ? frame_over(r) : 0;
}

static size_t gather(struct nsbox_files_reader *r, void *to, size_t want, const char *p, size_t len)
{
	size_t n = MIN(want - r->have, len);

	memcpy((char *)to + r->have, p, n);
	r->have += n;
	return n;
}

static int take_content(struct nsbox_files_reader *r, const char *p, size_t n)
{
	int ret = 0;

	if (r->frame.kind == NSBOX_FRAME_END)
		memcpy(r->end_text + (r->frame.size - r->left), p, n);
	else if (r->sink.data)
		ret = r->sink.data(r->ctx, p, n, &r->error);
	r->left -= n;
	return ret < 0 || r->left ? ret : frame_over(r);
}

/* Consume some bytes of one kind; returns how many, or negative. */
static ssize_t feed_some(struct nsbox_files_reader *r, const char *p, size_t len)
{
	size_t n = 0;
	int ret = 0;

	switch (r->state) {
	case READ_HEADER:
		n = gather(r, &r->frame, sizeof(r->frame), p, len);
		if (r->have < sizeof(r->frame))
			break;
		r->have = 0;
		ret = files_check_frame(&r->frame, &r->lim, &r->count, &r->error);
		r->state = READ_PATH;
		if (ret == 0 && r->frame.path_len == 0)
			ret = frame_begins(r);
		break;
	case READ_PATH:
		n = gather(r, r->path, r->frame.path_len, p, len);
		if (r->have == r->frame.path_len)
			ret = frame_begins(r);
		break;
	case READ_CONTENT:
		n = (size_t)MIN(r->left, (uint64_t)len);
		ret = take_content(r, p, n);
		break;
	case READ_DONE: ret = malformed(&r->error, "bytes after its end"); break;
	case READ_BROKEN: ret = r->result; break;
	}
	return ret < 0 ? ret : (ssize_t)n;
}

int nsbox_files_feed(struct nsbox_files_reader *r, const void *buf, size_t len,
		     struct nsbox_error *err)
{
	const char *p = buf;

	while (len) {
		ssize_t n = feed_some(r, p, len);

		if (n < 0) {
			r->state = READ_BROKEN;
			r->result = (int)n;
			if (err)
				*err = r->error;
			return (int)n;
		}
		p += n;
		len -= (size_t)n;
	}
	return 0;
}
