/* SPDX-License-Identifier: Apache-2.0 */
/* A directory as a tar archive in memory: how a skill travels to the daemon. */
#include "nsbox/cli/pack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "nsbox/util.h"

#define PACK_MAX (48u << 20) /* base64 of it fits the daemon's largest request */

static la_ssize_t grow(struct archive *a, void *ctx, const void *data, size_t n)
{
	struct pack *p = ctx;
	char *q;

	if (n > PACK_MAX - p->len) {
		archive_set_error(a, EFBIG, "it is larger than %u MiB packed", PACK_MAX >> 20);
		return -1;
	}
	q = realloc(p->data, p->len + n + 1);
	if (!q) {
		archive_set_error(a, ENOMEM, "no memory");
		return -1;
	}
	p->data = q;
	memcpy(q + p->len, data, n);
	p->len += n;
	return (la_ssize_t)n;
}

static int fail(struct nsbox_error *err, const char *dir, struct archive *a)
{
	return nsbox_fail(err, NSBOX_E_IO, 0, "pack '%s': %s", dir, archive_error_string(a));
}

static int copy_content(struct archive *from, struct archive *to)
{
	const void *block;
	la_int64_t offset, at = 0;
	size_t n;
	int r;

	while ((r = archive_read_data_block(from, &block, &n, &offset)) == ARCHIVE_OK) {
		static const char zeros[65536];

		for (; at < offset; at += (la_int64_t)MIN((size_t)(offset - at), sizeof(zeros)))
			if (archive_write_data(to, zeros,
					       MIN((size_t)(offset - at), sizeof(zeros))) < 0)
				return -1;
		if (archive_write_data(to, block, n) < 0)
			return -1;
		at += (la_int64_t)n;
	}
	return r == ARCHIVE_EOF ? 0 : -1;
}

static int copy_tree(const char *dir, struct archive *disk, struct archive *tar,
		     struct nsbox_error *err)
{
	struct archive_entry *e = archive_entry_new();
	int r = 0, got;

	while (r == 0 && (got = archive_read_next_header2(disk, e)) == ARCHIVE_OK) {
		archive_read_disk_descend(disk);
		/* Owners and host paths are nobody's business; links go as links. */
		archive_entry_set_uname(e, NULL);
		archive_entry_set_gname(e, NULL);
		archive_entry_set_uid(e, 0);
		archive_entry_set_gid(e, 0);
		archive_entry_xattr_clear(e);
		if (archive_write_header(tar, e) != ARCHIVE_OK)
			r = fail(err, dir, tar);
		else if (archive_entry_size(e) > 0 && copy_content(disk, tar) < 0)
			r = fail(err, dir, tar);
	}
	if (r == 0 && got != ARCHIVE_EOF)
		r = fail(err, dir, disk);
	archive_entry_free(e);
	return r;
}

/* archive_read_disk names entries by the path it was given: "." from within gives relative ones. */
static int pack_here(const char *dir, struct pack *ret, struct nsbox_error *err)
{
	struct archive *disk = archive_read_disk_new(), *tar = archive_write_new();
	int r = 0;

	archive_read_disk_set_symlink_physical(disk);
	archive_write_set_format_pax_restricted(tar);
	archive_write_set_bytes_per_block(tar, 0);
	if (archive_write_open(tar, ret, NULL, grow, NULL) != ARCHIVE_OK)
		r = fail(err, dir, tar);
	else if (archive_read_disk_open(disk, ".") != ARCHIVE_OK)
		r = fail(err, dir, disk);
	if (r == 0)
		r = copy_tree(dir, disk, tar, err);
	if (r == 0 && archive_write_close(tar) != ARCHIVE_OK)
		r = fail(err, dir, tar);
	archive_read_free(disk);
	archive_write_free(tar);
	return r;
}

int pack_dir(const char *dir, struct pack *ret, struct nsbox_error *err)
{
	auto_close int back = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	memset(ret, 0, sizeof(*ret));
	if (back < 0 || chdir(dir) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "enter the directory '%s'", dir);
	r = pack_here(dir, ret, err);
	if (fchdir(back) < 0 && r == 0)
		r = nsbox_fail(err, NSBOX_E_IO, errno, "return from '%s'", dir);
	if (r < 0)
		free(take_ptr(&ret->data));
	return r;
}
