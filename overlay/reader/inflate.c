/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standard input, inflated, as a stream: images are larger than memory.
 *
 * gzip by way of zlib, since libarchive 3.6 does not look at its checksums; bzip2, xz and zstd by a
 * libarchive reader in "raw" format, and what is none of these as it is. Only filters that are
 * compiled in: some of libarchive's would start a program instead.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "nsbox/util.h"
#include "overlay/reader/reader.h"

#define CHUNK 65536

struct inflate {
	unsigned char in[CHUNK], out[CHUNK];
	size_t have; /* bytes in `in` that nobody has taken */
	uint64_t input;
	bool ended; /* of standard input */
	bool gzip, member;
	z_stream z;
	struct archive *raw;
	char error[128];
};

static ssize_t fail(struct inflate *s, const char *what)
{
	nsbox_format(s->error, sizeof(s->error), "%s", what ? what : "damaged");
	return -1;
}

/* Fill `in` behind what is there; the bytes that are there then, or -1. */
static ssize_t refill(struct inflate *s, size_t want)
{
	while (!s->ended && s->have < want) {
		ssize_t n = read(STDIN_FILENO, s->in + s->have, sizeof(s->in) - s->have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail(s, "it cannot be read");
		s->ended = n == 0;
		s->have += (size_t)n;
		s->input += (uint64_t)n;
	}
	return (ssize_t)s->have;
}

/* ------------------------------------------------------------------ gzip */

/* Between members and behind the last: 1 go on, 0 the end, -1 an error. */
static ssize_t next_member(struct inflate *s)
{
	size_t zeros = 0;

	if (refill(s, 2) < 0)
		return -1;
	while (zeros < s->have && !s->in[zeros]) /* padding of tapes */
		zeros++;
	if (zeros == s->have && s->ended)
		return 0;
	if (zeros || s->have < 2 || s->in[0] != 0x1f || s->in[1] != 0x8b)
		return fail(s, "gzip: bytes after its end");
	if (inflateReset(&s->z) != Z_OK)
		return fail(s, s->z.msg);
	s->member = true;
	return 1;
}

static ssize_t inflate_some(struct inflate *s)
{
	int r;

	if (refill(s, 1) < 0)
		return -1;
	s->z.next_in = s->in;
	s->z.avail_in = (uInt)s->have;
	r = inflate(&s->z, Z_NO_FLUSH);
	memmove(s->in, s->in + (s->have - s->z.avail_in), s->z.avail_in);
	s->have = s->z.avail_in;
	if (r == Z_STREAM_END)
		s->member = false;
	else if (r == Z_BUF_ERROR && s->ended && !s->have)
		return fail(s, "gzip: truncated");
	else if (r != Z_OK && r != Z_BUF_ERROR)
		return fail(s, s->z.msg);
	return 1;
}

static ssize_t gzip_next(struct inflate *s, const void **ret)
{
	*ret = s->out;
	s->z.next_out = s->out;
	s->z.avail_out = sizeof(s->out);
	while (s->z.avail_out) {
		ssize_t r = s->member ? 1 : next_member(s);

		if (r < 0)
			return r;
		if (r == 0)
			break;
		r = inflate_some(s);
		if (r < 0)
			return r;
	}
	return (ssize_t)(sizeof(s->out) - s->z.avail_out);
}

/* ------------------------------------------------------------------ others */

static la_ssize_t feed_raw(struct archive *a, void *ctx, const void **ret)
{
	struct inflate *s = ctx;
	ssize_t n = refill(s, 1);

	if (n < 0) {
		archive_set_error(a, EIO, "%s", s->error);
		return ARCHIVE_FATAL;
	}
	/* It is done with what it was given before. */
	memcpy(s->out, s->in, s->have);
	s->have = 0;
	*ret = s->out;
	return n;
}

static int open_raw(struct inflate *s)
{
	struct archive_entry *e;

	s->raw = archive_read_new();
	if (!s->raw || archive_read_support_format_raw(s->raw) != ARCHIVE_OK ||
	    archive_read_support_filter_bzip2(s->raw) != ARCHIVE_OK ||
	    archive_read_support_filter_xz(s->raw) != ARCHIVE_OK ||
	    archive_read_support_filter_zstd(s->raw) != ARCHIVE_OK ||
	    archive_read_open2(s->raw, s, NULL, feed_raw, NULL, NULL) != ARCHIVE_OK ||
	    archive_read_next_header(s->raw, &e) != ARCHIVE_OK)
		return (int)fail(s, s->raw ? archive_error_string(s->raw) : "out of memory");
	return 0;
}

static ssize_t raw_next(struct inflate *s, const void **ret)
{
	la_int64_t offset;
	size_t n = 0;
	int r;

	do
		r = archive_read_data_block(s->raw, ret, &n, &offset);
	while (r == ARCHIVE_OK && n == 0);
	if (r == ARCHIVE_EOF)
		return 0;
	return r == ARCHIVE_OK ? (ssize_t)n : fail(s, archive_error_string(s->raw));
}

/* ------------------------------------------------------------------ all */

int inflate_new(struct inflate **ret, struct nsbox_error *err)
{
	struct inflate *s = calloc(1, sizeof(*s));
	ssize_t n;

	if (!s)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read the archive");
	n = refill(s, 8);
	if (n == 0)
		fail(s, "it is empty");
	s->gzip = s->have >= 3 && s->in[0] == 0x1f && s->in[1] == 0x8b && s->in[2] == 8;
	if (n > 0 && s->gzip && inflateInit2(&s->z, 15 + 16) != Z_OK)
		n = fail(s, "out of memory");
	if (n > 0 && !s->gzip)
		n = open_raw(s) < 0 ? -1 : n;
	if (n <= 0) {
		int r = nsbox_fail(err, NSBOX_E_INVALID, 0, "the archive cannot be read: %s",
				   s->error);

		inflate_free(s);
		return r;
	}
	s->member = s->gzip;
	*ret = s;
	return 0;
}

void inflate_free(struct inflate *s)
{
	if (!s)
		return;
	if (s->gzip)
		inflateEnd(&s->z);
	if (s->raw)
		archive_read_free(s->raw);
	free(s);
}

ssize_t inflate_next(struct inflate *s, const void **ret)
{
	return s->gzip ? gzip_next(s, ret) : raw_next(s, ret);
}

const char *inflate_error(const struct inflate *s)
{
	return s->error;
}

uint64_t inflate_input(const struct inflate *s)
{
	return s->input;
}
