/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inflated bytes of a compressed tar file.
 *
 * The format reader stops at the end mark of the tar file, while the checksums of the compression
 * stand behind it. So inflating is a stage of its own, which is read to its end afterwards: gzip
 * by gzip.c, the rest (none, bzip2, xz, zstd) by a second libarchive reader in "raw" format.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>

#include "nsbox/util.h"
#include "overlay/unpack/unpack.h"

struct source {
	struct gzip *gzip; /* or: */
	struct archive *raw;
};

static la_ssize_t raw_read(struct archive *a, struct archive *raw, const void **ret)
{
	la_int64_t offset;
	size_t n = 0;
	int r;

	do
		r = archive_read_data_block(raw, ret, &n, &offset);
	while (r == ARCHIVE_OK && n == 0);
	if (r == ARCHIVE_EOF)
		return 0;
	if (r == ARCHIVE_OK)
		return (la_ssize_t)n;
	archive_set_error(a, EINVAL, "%s", archive_error_string(raw));
	return ARCHIVE_FATAL;
}

static la_ssize_t read_some(struct archive *a, void *ctx, const void **ret)
{
	struct source *s = ctx;

	return s->gzip ? gzip_read(a, s->gzip, ret) : raw_read(a, s->raw, ret);
}

/* Only what is compiled in: some filters of libarchive would start a program instead. */
static int open_raw(struct source *s, const unsigned char *data, size_t len,
		    struct nsbox_error *err)
{
	struct archive_entry *e;
	const char *why;

	s->raw = archive_read_new();
	if (!s->raw)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read the archive");
	if (archive_read_support_format_raw(s->raw) != ARCHIVE_OK ||
	    archive_read_support_filter_bzip2(s->raw) != ARCHIVE_OK ||
	    archive_read_support_filter_xz(s->raw) != ARCHIVE_OK ||
	    archive_read_support_filter_zstd(s->raw) != ARCHIVE_OK) {
		why = archive_error_string(s->raw);
		return nsbox_fail(err, NSBOX_E_UNSUPPORTED, 0, "libarchive lacks a filter: %s",
				  why ? why : "?");
	}
	if (archive_read_open_memory(s->raw, data, len) == ARCHIVE_OK &&
	    archive_read_next_header(s->raw, &e) == ARCHIVE_OK)
		return 0;
	why = archive_error_string(s->raw);
	return nsbox_fail(err, NSBOX_E_INVALID, 0, "cannot be inflated: %s", why ? why : "?");
}

int source_new(const unsigned char *data, size_t len, struct source **ret, struct nsbox_error *err)
{
	struct source *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read the archive");
	r = gzip_is(data, len) ? gzip_new(data, len, &s->gzip, err) : open_raw(s, data, len, err);
	if (r < 0)
		source_free(s);
	else
		*ret = s;
	return r;
}

void source_free(struct source *s)
{
	if (!s)
		return;
	gzip_free(s->gzip);
	if (s->raw)
		archive_read_free(s->raw);
	free(s);
}

int source_open(struct archive *a, struct source *s)
{
	return archive_read_open2(a, s, NULL, read_some, NULL, NULL);
}

int source_finish(struct archive *a, struct source *s, struct nsbox_error *err)
{
	const void *buf;
	la_ssize_t n;

	do
		n = read_some(a, s, &buf);
	while (n > 0);
	return n == 0 ? 0
		      : nsbox_fail(err, NSBOX_E_INVALID, 0, "at the end of the archive: %s",
				   archive_error_string(a));
}
