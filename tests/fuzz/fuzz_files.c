/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a file stream to the incremental reader, at once and in pieces of a size that the first
 * byte chooses. What it hands on keeps the promises of files.h.
 */
#include <stdlib.h>
#include <string.h>

#include <nsbox/files.h>

#include "nsbox/files_format.h"
#include "nsbox/util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct nsbox_files_limits limits = { 1 << 20, 100 };

struct seen {
	uint64_t left;
	bool open;
	unsigned frames;
};

static void must(bool holds)
{
	if (!holds)
		abort();
}

static int on_begin(void *ctx, int kind, const char *path, uint32_t mode, uint64_t size,
		    struct nsbox_error *err)
{
	struct seen *s = ctx;

	must(!s->open && mode <= 0777 && size <= limits.total_bytes);
	must(kind >= NSBOX_FRAME_DIR && kind <= NSBOX_FRAME_MATCH);
	if (kind == NSBOX_FRAME_BASE)
		must(*path++ == '/');
	if (*path || kind != NSBOX_FRAME_INFO)
		must(nsbox_files_check_path(path, strlen(path), NULL) == 0);
	s->open = true;
	s->left = size;
	must(++s->frames <= limits.files);
	return 0;
}

static int on_data(void *ctx, const void *buf, size_t len, struct nsbox_error *err)
{
	struct seen *s = ctx;

	must(s->open && len <= s->left);
	s->left -= len;
	return 0;
}

static int on_finish(void *ctx, struct nsbox_error *err)
{
	struct seen *s = ctx;

	must(s->open && s->left == 0);
	s->open = false;
	return 0;
}

static void feed(const uint8_t *data, size_t size, size_t piece)
{
	static const struct nsbox_files_sink sink = { on_begin, on_data, on_finish };
	struct nsbox_files_reader *reader;
	struct nsbox_error err = { 0 };
	struct seen s = { 0 };
	int r = nsbox_files_reader_new(&sink, &s, &limits, &reader, &err);

	must(r == 0);
	for (size_t at = 0; r == 0 && at < size; at += piece)
		r = nsbox_files_feed(reader, data + at, MIN(piece, size - at), &err);
	must(r == 0 || (err.code && err.msg[0]));
	must(r < 0 || !nsbox_files_done(reader) || !s.open);
	nsbox_files_reader_free(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	feed(data + 1, size - 1, size); /* at once */
	feed(data + 1, size - 1, 1u + data[0]);
	return 0;
}
