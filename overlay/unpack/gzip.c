/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gzip, by way of zlib: libarchive 3.6 reads gzip without looking at the checksum at its end, so
 * that a damaged file would be taken for a whole one. (The other filters check theirs.)
 *
 * A file may be several gzip members one after the other, then zero bytes (padding of tapes).
 */
#include <archive.h>
#include <errno.h>
#include <string.h>
#include <zlib.h>

#include "nsbox/util.h"
#include "overlay/unpack/unpack.h"

struct gzip {
	z_stream z;
	bool inside; /* a member has begun and not ended */
	unsigned char out[65536];
};

bool gzip_is(const unsigned char *data, size_t len)
{
	return len >= 3 && data[0] == 0x1f && data[1] == 0x8b && data[2] == 8;
}

static bool only_zeros(const z_stream *z)
{
	for (uInt i = 0; i < z->avail_in; i++) {
		if (z->next_in[i])
			return false;
	}
	return true;
}

static la_ssize_t broken(struct archive *a, const char *why)
{
	archive_set_error(a, EINVAL, "gzip: %s", why);
	return ARCHIVE_FATAL;
}

/* At the start of a member, or behind the last: 1 go on, 0 the end, negative an error. */
static la_ssize_t next_member(struct archive *a, struct gzip *g)
{
	if (only_zeros(&g->z))
		return 0;
	if (!gzip_is(g->z.next_in, g->z.avail_in))
		return broken(a, "bytes after its end");
	if (inflateReset(&g->z) != Z_OK)
		return broken(a, "cannot go on");
	g->inside = true;
	return 1;
}

la_ssize_t gzip_read(struct archive *a, struct gzip *g, const void **ret)
{
	*ret = g->out;
	g->z.next_out = g->out;
	g->z.avail_out = sizeof(g->out);
	while (g->z.avail_out == sizeof(g->out)) {
		la_ssize_t r = g->inside ? 1 : next_member(a, g);

		if (r <= 0)
			return r;
		switch (inflate(&g->z, Z_NO_FLUSH)) {
		case Z_STREAM_END: g->inside = false; break;
		case Z_OK: break;
		case Z_BUF_ERROR: return broken(a, "truncated");
		default: return broken(a, g->z.msg ? g->z.msg : "damaged");
		}
	}
	return (la_ssize_t)(sizeof(g->out) - g->z.avail_out);
}

int gzip_new(const unsigned char *data, size_t len, struct gzip **ret, struct nsbox_error *err)
{
	struct gzip *g = calloc(1, sizeof(*g));

	if (!g || len > UINT32_MAX || inflateInit2(&g->z, 15 + 16) != Z_OK) {
		free(g);
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read the archive");
	}
	g->z.next_in = (unsigned char *)(uintptr_t)data; /* zlib does not write there */
	g->z.avail_in = (uInt)len;
	*ret = g;
	return 0;
}

void gzip_free(struct gzip *g)
{
	if (g)
		inflateEnd(&g->z);
	free(g);
}
