/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nsbox-pack: the working directory, as a tar archive on standard output.
 *
 * How a skill travels from the command line to the daemon. The directory is the caller's own and
 * nothing in it is parsed, so this program gives nothing up. It is one of its own because libarchive
 * brings some fifteen libraries along, which every other command would load in vain.
 *
 * The exit status is 1, with a line on standard error, where it could not be packed whole.
 */
#include <archive.h>
#include <archive_entry.h>
#include <locale.h>
#include <stdio.h>

#include "nsbox/util.h"

static int fail(struct archive *a)
{
	fprintf(stderr, "%s\n", archive_error_string(a));
	return -1;
}

/* Holes come as jumps of the offset, and leave as zeros. */
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
				return fail(to);
		if (archive_write_data(to, block, n) < 0)
			return fail(to);
		at += (la_int64_t)n;
	}
	return r == ARCHIVE_EOF ? 0 : fail(from);
}

static int copy_tree(struct archive *disk, struct archive *tar)
{
	struct archive_entry *e = archive_entry_new();
	int r = 0, got = ARCHIVE_OK;

	while (r == 0 && (got = archive_read_next_header2(disk, e)) == ARCHIVE_OK) {
		archive_read_disk_descend(disk);
		/* Owners and host paths are nobody's business; links go as links. */
		archive_entry_set_uname(e, NULL);
		archive_entry_set_gname(e, NULL);
		archive_entry_set_uid(e, 0);
		archive_entry_set_gid(e, 0);
		archive_entry_xattr_clear(e);
		if (archive_write_header(tar, e) != ARCHIVE_OK)
			r = fail(tar);
		else if (archive_entry_size(e) > 0)
			r = copy_content(disk, tar);
	}
	if (r == 0 && got != ARCHIVE_EOF)
		r = fail(disk);
	archive_entry_free(e);
	return r;
}

int main(void)
{
	struct archive *disk = archive_read_disk_new(), *tar = archive_write_new();
	int r = 0;

	setlocale(LC_ALL, "C.UTF-8");
	archive_read_disk_set_symlink_physical(disk);
	archive_write_set_format_pax_restricted(tar);
	archive_write_set_bytes_per_block(tar, 0);
	if (archive_write_open_fd(tar, 1) != ARCHIVE_OK)
		r = fail(tar);
	/* Entries are named by the path that was given: "." gives relative ones. */
	else if (archive_read_disk_open(disk, ".") != ARCHIVE_OK)
		r = fail(disk);
	if (r == 0)
		r = copy_tree(disk, tar);
	if (r == 0 && archive_write_close(tar) != ARCHIVE_OK)
		r = fail(tar);
	archive_read_free(disk);
	archive_write_free(tar);
	return r < 0;
}
