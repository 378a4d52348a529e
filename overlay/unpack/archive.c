/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From an archive to frames, by way of libarchive.
 *
 * libarchive only inflates and lists; what an entry may be is decided here. Every size is counted
 * while it is inflated and compared with what the header promised. A warning of libarchive is an
 * error: it means that it had to guess.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "nsbox/files_format.h"
#include "nsbox/util.h"
#include "overlay/unpack/unpack.h"

struct job {
	struct archive *a;
	const struct unpack_limits *lim;
	size_t input;
	struct names *names;
	uint64_t total; /* inflated so far */
	uint32_t entries;
	int fd;
	bool legacy_names; /* zip: they may be in another encoding */
	bool no_modes; /* zip of a system without: what can be executed is known by its beginning */
	char block[65536]; /* of the file that is being read */
	struct nsbox_error *err;
};

static int refuse(struct job *j, const char *name, int code, const char *why)
{
	int r = nsbox_fail(j->err, code, 0, "%s", why);

	name_blame(name, j->err);
	return r;
}

static int broken(struct job *j, const char *name)
{
	const char *why = archive_error_string(j->a);

	return refuse(j, name, NSBOX_E_INVALID, why ? why : "cannot be read");
}

/* ------------------------------------------------------------------ content */

static int count_bytes(struct job *j, const char *name, size_t n)
{
	j->total += n;
	if (j->total > j->lim->total)
		return refuse(j, name, NSBOX_E_LIMIT,
			      "the files are larger than allowed, together");
	if (j->total > j->lim->ratio_from && j->total / j->lim->ratio > j->input)
		return refuse(j, name, NSBOX_E_LIMIT,
			      "it inflates to far more than an archive of "
			      "this size should hold");
	return 0;
}

static int put(struct job *j, const void *buf, size_t n)
{
	int r = write_full(j->fd, buf, n);

	return r < 0 ? nsbox_fail(j->err, NSBOX_E_IO, -r, "write the file stream") : 0;
}

/*
 * The frame promised `size` bytes and has to get them even where the archive is broken, so that
 * the END frame, which says what is wrong, can follow.
 */
static int fill_up(struct job *j, uint64_t left, int result)
{
	static const char zeros[16384];

	while (left) {
		size_t n = (size_t)MIN(left, (uint64_t)sizeof(zeros));

		if (write_full(j->fd, zeros, n) < 0)
			break;
		left -= n;
	}
	return result;
}

/* The next bytes of the file, into j->block; 0 at its end. Counted, and checked against `left`. */
static la_ssize_t next_block(struct job *j, const char *name, uint64_t left)
{
	la_ssize_t n = archive_read_data(j->a, j->block, sizeof(j->block));

	if (n == 0)
		return left ? refuse(j, name, NSBOX_E_INVALID, "smaller than its header says") : 0;
	if (n < 0)
		return broken(j, name);
	if ((uint64_t)n > left)
		return refuse(j, name, NSBOX_E_INVALID, "larger than its header says");
	return count_bytes(j, name, (size_t)n) < 0 ? -EINVAL : n;
}

/* `n` bytes are in j->block already. */
static int put_content(struct job *j, const char *name, uint64_t left, la_ssize_t n)
{
	while (n > 0) {
		int r = put(j, j->block, (size_t)n);

		if (r < 0)
			return r;
		left -= (uint64_t)n;
		n = next_block(j, name, left);
	}
	return n < 0 ? fill_up(j, left, (int)n) : 0;
}

/* ------------------------------------------------------------------ kinds of entries */

static bool is_program(const char *p, size_t n)
{
	return (n >= 2 && memcmp(p, "#!", 2) == 0) || (n >= 4 && memcmp(p, "\177ELF", 4) == 0);
}

/* The kernel takes the CR for a part of the interpreter's name. */
static bool is_crlf_script(const char *p, size_t n)
{
	const char *nl = memchr(p, '\n', MIN(n, (size_t)256));

	return n >= 2 && memcmp(p, "#!", 2) == 0 && nl && nl[-1] == '\r';
}

static int put_note(struct job *j, const char *name, const char *text)
{
	return nsbox_files_put_frame(j->fd, NSBOX_FRAME_NOTE, name, 0, text, strlen(text), j->err);
}

static int put_file(struct job *j, struct archive_entry *e, const char *name)
{
	bool executable = archive_entry_perm(e) & 0111, crlf;
	la_int64_t size = archive_entry_size(e);
	la_ssize_t n;
	int r;

	if (!archive_entry_size_is_set(e) || size < 0)
		return refuse(j, name, NSBOX_E_INVALID, "its size is not known");
	if ((uint64_t)size > j->lim->total - j->total)
		return refuse(j, name, NSBOX_E_LIMIT,
			      "the files are larger than allowed, together");
	r = names_add(j->names, name, NAME_FILE, j->err);
	if (r < 0)
		return r;
	n = next_block(j, name, (uint64_t)size);
	if (n < 0)
		return (int)n;
	executable = executable || (j->no_modes && is_program(j->block, (size_t)n));
	crlf = is_crlf_script(j->block, (size_t)n);
	r = files_put_header(j->fd, NSBOX_FRAME_FILE, name, executable ? 0755 : 0644,
			     (uint64_t)size, j->err);
	if (r == 0)
		r = put_content(j, name, (uint64_t)size, n);
	if (r == 0 && crlf)
		r = put_note(j, name,
			     "a script whose first line ends in CR LF: its interpreter will not be "
			     "found; save it with Unix line ends");
	return r;
}

static int put_dir(struct job *j, const char *name)
{
	int r = names_add(j->names, name, NAME_DIR, j->err);

	return r < 0 ? r
		     : nsbox_files_put_frame(j->fd, NSBOX_FRAME_DIR, name, 0755, NULL, 0, j->err);
}

static int put_link(struct job *j, struct archive_entry *e, const char *name)
{
	const char *target = archive_entry_symlink(e);
	int r = name_check_link(name, target, j->err);

	if (r == 0)
		r = names_add(j->names, name, NAME_LINK, j->err);
	return r < 0 ? r
		     : nsbox_files_put_frame(j->fd, NSBOX_FRAME_SYMLINK, name, 0, target,
					     strlen(target), j->err);
}

/* What macOS adds to archives: nothing that a program could miss. */
static bool is_clutter(const char *name)
{
	static const char dir[] = "__MACOSX";
	size_t n = sizeof(dir) - 1;

	return strncmp(name, dir, n) == 0 && (name[n] == '/' || name[n] == '\0');
}

static int put_entry(struct job *j, struct archive_entry *e)
{
	const char *raw = archive_entry_pathname(e);
	char name[FILES_PATH_MAX + 2];
	int r;

	if (!raw)
		return nsbox_fail(j->err, NSBOX_E_INVALID, 0,
				  "entry %u: its name cannot be decoded", j->entries);
	if (!raw[0] || strlen(raw) >= sizeof(name) ||
	    (j->legacy_names && !name_decode(raw, strlen(raw), name, sizeof(name))))
		return refuse(j, raw, NSBOX_E_INVALID, "its name is empty or too long");
	if (!j->legacy_names)
		strcpy(name, raw);
	r = name_normalise(name, j->err);
	if (r < 0)
		return r;
	if (archive_entry_is_encrypted(e))
		return refuse(j, raw, NSBOX_E_INVALID, "it is encrypted");
	if (archive_entry_hardlink(e))
		return refuse(j, raw, NSBOX_E_INVALID, "a hard link");
	if (is_clutter(name))
		return 0;
	if (!name[0])
		return archive_entry_filetype(e) == AE_IFDIR
			       ? 0
			       : refuse(j, raw, NSBOX_E_INVALID, "the top is not a directory");
	switch (archive_entry_filetype(e)) {
	case AE_IFREG: return put_file(j, e, name);
	case AE_IFDIR: return put_dir(j, name);
	case AE_IFLNK: return put_link(j, e, name);
	default:
		return refuse(j, raw, NSBOX_E_INVALID,
			      "neither a file, a directory nor a symbolic link");
	}
}

static int put_entries(struct job *j)
{
	struct archive_entry *e;
	int r;

	while ((r = archive_read_next_header(j->a, &e)) == ARCHIVE_OK) {
		if (++j->entries > j->lim->entries)
			return nsbox_fail(j->err, NSBOX_E_LIMIT, 0, "more than %u entries",
					  j->lim->entries);
		r = put_entry(j, e);
		if (r < 0)
			return r;
	}
	if (r == ARCHIVE_EOF)
		return 0;
	if (r == ARCHIVE_WARN && archive_entry_pathname(e))
		return broken(j, archive_entry_pathname(e));
	return nsbox_fail(j->err, NSBOX_E_INVALID, 0, "after entry %u: %s", j->entries,
			  archive_error_string(j->a) ? archive_error_string(j->a)
						     : "cannot be read");
}

static int not_readable(struct job *j)
{
	const char *why = archive_error_string(j->a);

	return nsbox_fail(j->err, NSBOX_E_INVALID, 0,
			  "not an archive that can be read (zip and tar are): %s", why ? why : "?");
}

static int read_zip(struct job *j, const unsigned char *data, size_t len)
{
	struct zip_facts facts = { 0 };
	int r = zip_check(data, len, &facts, j->err);

	j->legacy_names = true;
	j->no_modes = !facts.modes;
	if (r < 0 || facts.entries == 0) /* libarchive takes an empty one for no zip file at all */
		return r;
	if (archive_read_support_format_zip_seekable(j->a) != ARCHIVE_OK ||
	    archive_read_open_memory(j->a, data, len) != ARCHIVE_OK)
		return not_readable(j);
	r = put_entries(j);
	if (r == 0 && j->entries != facts.entries)
		r = nsbox_fail(j->err, NSBOX_E_INVALID, 0,
			       "zip: %u entries, of which %u can be read", facts.entries,
			       j->entries);
	return r;
}

static int read_tar_from(struct job *j, struct source *s)
{
	int r;

	if (archive_read_support_format_tar(j->a) != ARCHIVE_OK ||
	    source_open(j->a, s) != ARCHIVE_OK)
		return not_readable(j);
	r = put_entries(j);
	return r < 0 ? r : source_finish(j->a, s, j->err);
}

static int read_tar(struct job *j, const unsigned char *data, size_t len)
{
	struct source *s = NULL;
	int r = source_new(data, len, &s, j->err);

	if (r < 0)
		return r;
	r = read_tar_from(j, s);
	archive_read_close(j->a); /* it must not ask s any more */
	source_free(s);
	return r;
}

int archive_to_stream(const unsigned char *data, size_t len, const struct unpack_limits *lim,
		      int fd, struct nsbox_error *err)
{
	struct job j = { .lim = lim, .input = len, .fd = fd, .err = err };
	int r;

	if (len == 0)
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "the archive is empty");
	r = names_new(&j.names, err);
	if (r < 0)
		return r;
	j.a = archive_read_new();
	if (!j.a)
		r = nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read the archive");
	else
		r = zip_is(data, len) ? read_zip(&j, data, len) : read_tar(&j, data, len);
	archive_read_free(j.a);
	names_free(j.names);
	return r;
}
