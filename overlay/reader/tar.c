/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a tar file to a layer stream.
 *
 * libarchive only lists; what an entry may be is decided here and checked again by the writer.
 * Names are bytes: a leading "./" goes, everything absolute or with ".." in it is refused. Sizes
 * are counted while they are inflated. The whole file is read, also what stands behind its end
 * mark: its hash covers that.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nsbox/files_format.h"
#include "nsbox/util.h"
#include "overlay/reader/reader.h"

/* More than this many times its size is no archive of files, once this much has come out. */
#define RATIO	   400
#define RATIO_FROM (UINT64_C(1) << 30)

struct tar {
	struct archive *a;
	struct inflate *src;
	const struct layer_limits *lim;
	bool layered;
	EVP_MD_CTX *hash;
	uint64_t total; /* bytes of files */
	uint64_t inflated;
	uint32_t entries;
	struct nsbox_error *err;
};

static int refuse(struct tar *t, const char *name, int code, const char *why)
{
	char show[160];
	size_t len = strlen(name);

	nsbox_format(show, sizeof(show), "%s", len > 150 ? name + (len - 150) : name);
	files_clean_text(show);
	return nsbox_fail(t->err, code, 0, "entry '%s': %s", show, why);
}

static int broken(struct tar *t)
{
	const char *why = archive_error_string(t->a);

	return nsbox_fail(t->err, NSBOX_E_INVALID, 0, "after entry %u: %s", t->entries,
			  why ? why : "the archive cannot be read");
}

/* ------------------------------------------------------------------ input */

static la_ssize_t feed(struct archive *a, void *ctx, const void **ret)
{
	struct tar *t = ctx;
	ssize_t n = inflate_next(t->src, ret);

	if (n < 0) {
		archive_set_error(a, EINVAL, "%s", inflate_error(t->src));
		return ARCHIVE_FATAL;
	}
	if (n > 0 && !EVP_DigestUpdate(t->hash, *ret, (size_t)n)) {
		archive_set_error(a, ENOMEM, "out of memory");
		return ARCHIVE_FATAL;
	}
	t->inflated += (uint64_t)n;
	if (t->inflated > RATIO_FROM && t->inflated / RATIO > inflate_input(t->src)) {
		archive_set_error(a, EFBIG,
				  "it inflates to far more than an archive of this size "
				  "should hold");
		return ARCHIVE_FATAL;
	}
	return n;
}

static int read_rest(struct tar *t)
{
	const void *buf;
	la_ssize_t n;

	do
		n = feed(t->a, t, &buf);
	while (n > 0);
	return n == 0 ? 0 : broken(t);
}

/* ------------------------------------------------------------------ names */

/* In place; false where it is no name for a layer. "" is the top. */
static bool normalise(char *name)
{
	char *from = name;
	size_t len;

	while (from[0] == '.' && from[1] == '/')
		for (from += 2; *from == '/'; from++)
			;
	len = strlen(from);
	memmove(name, from, len + 1);
	while (len > 0 && name[len - 1] == '/')
		name[--len] = '\0';
	if (!strcmp(name, "."))
		name[0] = '\0';
	return !name[0] || nsbox_files_check_path(name, strlen(name), NULL) == 0;
}

static int take_name(struct tar *t, const char *raw, char name[FILES_PATH_MAX + 2])
{
	if (!raw || !raw[0])
		return nsbox_fail(t->err, NSBOX_E_INVALID, 0,
				  "entry %u: it has no name, or one that cannot be decoded",
				  t->entries);
	if (strlen(raw) > FILES_PATH_MAX)
		return refuse(t, raw, NSBOX_E_INVALID, "its name is too long");
	strcpy(name, raw);
	if (!normalise(name))
		return refuse(t, raw, NSBOX_E_INVALID,
			      "its name is absolute, has a '..' or is otherwise none of an image");
	return 0;
}

/* ------------------------------------------------------------------ entries */

static struct layer_frame frame_of(struct archive_entry *e, int kind)
{
	la_int64_t uid = archive_entry_uid(e), gid = archive_entry_gid(e);

	return (struct layer_frame){
		.kind = (uint16_t)kind,
		.mode = archive_entry_perm(e) & 07777,
		.uid = uid >= 0 && uid <= UINT32_MAX ? (uint32_t)uid : UINT32_MAX,
		.gid = gid >= 0 && gid <= UINT32_MAX ? (uint32_t)gid : UINT32_MAX,
		.mtime = archive_entry_mtime(e),
	};
}

static int put_xattrs(struct tar *t, struct archive_entry *e, const char *name)
{
	const char *key;
	const void *value;
	size_t size;

	archive_entry_xattr_reset(e);
	while (archive_entry_xattr_next(e, &key, &value, &size) == ARCHIVE_OK) {
		struct layer_frame f = { .kind = LAYER_XATTR };
		char buf[LAYER_EXTRA_MAX];
		size_t n = strlen(key) + 1;
		int r;

		if (!layer_xattr_ok(key))
			continue;
		if (size > sizeof(buf) - n)
			return refuse(t, name, NSBOX_E_LIMIT, "an attribute is too large");
		memcpy(buf, key, n);
		memcpy(buf + n, value, size);
		f.extra = (uint32_t)(n + size);
		r = layer_put(STDOUT_FILENO, &f, name, buf, t->err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int put(struct tar *t, const void *buf, size_t n)
{
	int r = write_full(STDOUT_FILENO, buf, n);

	return r < 0 ? nsbox_fail(t->err, NSBOX_E_IO, -r, "write the layer stream") : 0;
}

/* The frame promised its size: it gets it, so that the END with the reason can follow. */
static int fill_up(uint64_t left, int result)
{
	static const char zeros[16384];

	/* Not terabytes of them for a lie in a header. */
	for (left = MIN(left, UINT64_C(64) << 20); left;) {
		size_t n = (size_t)MIN(left, (uint64_t)sizeof(zeros));

		if (write_full(STDOUT_FILENO, zeros, n) < 0)
			break;
		left -= n;
	}
	return result;
}

static int put_content(struct tar *t, const char *name, uint64_t left)
{
	char buf[65536];

	for (;;) {
		la_ssize_t n = archive_read_data(t->a, buf, sizeof(buf));
		int r;

		if (n == 0)
			break;
		if (n < 0)
			return fill_up(left, broken(t));
		if ((uint64_t)n > left)
			return refuse(t, name, NSBOX_E_INVALID, "larger than its header says");
		r = put(t, buf, (size_t)n);
		if (r < 0)
			return r;
		left -= (uint64_t)n;
	}
	return left ? fill_up(left,
			      refuse(t, name, NSBOX_E_INVALID, "smaller than its header says"))
		    : 0;
}

static int put_file(struct tar *t, struct archive_entry *e, const char *name)
{
	struct layer_frame f = frame_of(e, LAYER_FILE);
	la_int64_t size = archive_entry_size(e);
	int r;

	if (!archive_entry_size_is_set(e) || size < 0)
		return refuse(t, name, NSBOX_E_INVALID, "its size is not known");
	f.size = (uint64_t)size;
	if (f.size > t->lim->bytes - t->total)
		return refuse(t, name, NSBOX_E_LIMIT,
			      "the files are larger than allowed, together (--max-bytes)");
	t->total += f.size;
	r = put_xattrs(t, e, name);
	if (r == 0)
		r = layer_put(STDOUT_FILENO, &f, name, NULL, t->err);
	return r < 0 ? r : put_content(t, name, f.size);
}

static int put_dir(struct tar *t, struct archive_entry *e, const char *name)
{
	struct layer_frame f = frame_of(e, LAYER_DIR);
	int r = put_xattrs(t, e, name);

	return r < 0 ? r : layer_put(STDOUT_FILENO, &f, name, NULL, t->err);
}

static int put_link(struct tar *t, struct archive_entry *e, const char *name)
{
	const char *target = archive_entry_symlink(e);
	struct layer_frame f = frame_of(e, LAYER_SYMLINK);

	if (!target || !target[0] || strlen(target) > FILES_TEXT_MAX)
		return refuse(t, name, NSBOX_E_INVALID,
			      "a symbolic link without a target, or with a long one");
	f.extra = (uint32_t)strlen(target);
	return layer_put(STDOUT_FILENO, &f, name, target, t->err);
}

static int put_hardlink(struct tar *t, struct archive_entry *e, const char *name)
{
	struct layer_frame f = frame_of(e, LAYER_HARDLINK);
	char target[FILES_PATH_MAX + 2] = "";
	int r = take_name(t, archive_entry_hardlink(e), target);

	if (r < 0)
		return refuse(t, name, NSBOX_E_INVALID, "a hard link that leads out of the image");
	f.extra = (uint32_t)strlen(target);
	if (!f.extra)
		return refuse(t, name, NSBOX_E_INVALID, "a hard link to the top");
	return layer_put(STDOUT_FILENO, &f, name, target, t->err);
}

static int put_kind(struct tar *t, struct archive_entry *e, const char *name, int kind)
{
	struct layer_frame f = frame_of(e, kind);

	return layer_put(STDOUT_FILENO, &f, name, NULL, t->err);
}

/* "dir/.wh.name": 1 when it was one (or was nothing), 0: an ordinary name. */
static int put_whiteout(struct tar *t, struct archive_entry *e, char *name)
{
	char *base = strrchr(name, '/');
	int r;

	base = base ? base + 1 : name;
	if (strncmp(base, WHITEOUT_PREFIX, sizeof(WHITEOUT_PREFIX) - 1) != 0)
		return 0;
	if (!strcmp(base, WHITEOUT_OPAQUE)) {
		base[base > name ? -1 : 0] = '\0';
		r = put_kind(t, e, name, LAYER_OPAQUE);
		return r < 0 ? r : 1;
	}
	if (!strncmp(base, ".wh..wh.", 8)) /* aufs' own bookkeeping */
		return 1;
	memmove(base, base + sizeof(WHITEOUT_PREFIX) - 1,
		strlen(base) - (sizeof(WHITEOUT_PREFIX) - 1) + 1);
	if (!normalise(name) || !*base)
		return refuse(t, name, NSBOX_E_INVALID, "it removes what is no name");
	r = put_kind(t, e, name, LAYER_WHITEOUT);
	return r < 0 ? r : 1;
}

static int put_entry(struct tar *t, struct archive_entry *e)
{
	char name[FILES_PATH_MAX + 2] = "";
	int r = take_name(t, archive_entry_pathname(e), name);

	if (r == 0 && t->layered && name[0])
		r = put_whiteout(t, e, name);
	if (r)
		return MIN(r, 0);
	if (archive_entry_hardlink(e))
		return put_hardlink(t, e, name);
	if (!name[0] && archive_entry_filetype(e) != AE_IFDIR)
		return refuse(t, ".", NSBOX_E_INVALID, "the top is not a directory");
	switch (archive_entry_filetype(e)) {
	case AE_IFREG: return put_file(t, e, name);
	case AE_IFDIR: return put_dir(t, e, name);
	case AE_IFLNK: return put_link(t, e, name);
	default: return put_kind(t, e, name, LAYER_SKIPPED);
	}
}

static int put_entries(struct tar *t)
{
	struct archive_entry *e;
	int r;

	/* A warning is about something layers do not have (an ACL, a flag), or comes again as an
	 * error: names that cannot be decoded are refused above. */
	while ((r = archive_read_next_header(t->a, &e)) == ARCHIVE_OK || r == ARCHIVE_WARN) {
		if (++t->entries > t->lim->entries)
			return nsbox_fail(t->err, NSBOX_E_LIMIT, 0,
					  "more than %u entries (--max-files)", t->lim->entries);
		r = put_entry(t, e);
		if (r < 0)
			return r;
	}
	return r == ARCHIVE_EOF ? read_rest(t) : broken(t);
}

static int digest_text(struct tar *t, char ret[65])
{
	unsigned char md[32];
	unsigned n = 0;

	if (!EVP_DigestFinal_ex(t->hash, md, &n) || n != sizeof(md))
		return nsbox_fail(t->err, NSBOX_E_NOMEM, ENOMEM, "compute a SHA-256");
	for (unsigned i = 0; i < n; i++)
		nsbox_format(ret + (size_t)2 * i, 3, "%02x", md[i]);
	return 0;
}

static int read_all(struct tar *t)
{
	int r = inflate_new(&t->src, t->err);

	if (r < 0)
		return r;
	t->a = archive_read_new();
	t->hash = EVP_MD_CTX_new();
	if (!t->a || !t->hash || !EVP_DigestInit_ex(t->hash, EVP_sha256(), NULL) ||
	    archive_read_support_format_tar(t->a) != ARCHIVE_OK ||
	    archive_read_support_format_empty(t->a) != ARCHIVE_OK)
		return nsbox_fail(t->err, NSBOX_E_NOMEM, ENOMEM, "read the archive");
	if (archive_read_open2(t->a, t, NULL, feed, NULL, NULL) != ARCHIVE_OK) {
		const char *why = archive_error_string(t->a);

		return nsbox_fail(t->err, NSBOX_E_INVALID, 0, "not a tar file: %s",
				  why ? why : "?");
	}
	return put_entries(t);
}

int tar_to_stream(bool layered, const struct layer_limits *lim, struct nsbox_error *err)
{
	struct tar t = { .lim = lim, .layered = layered, .err = err };
	char diff[65] = "";
	int r = read_all(&t);

	if (r == 0)
		r = digest_text(&t, diff);
	if (t.a) {
		archive_read_close(t.a); /* it must not ask src any more */
		archive_read_free(t.a);
	}
	inflate_free(t.src);
	EVP_MD_CTX_free(t.hash);
	if (layer_put_end(STDOUT_FILENO, r < 0 ? err : NULL, diff, NULL) < 0 && r == 0)
		r = -EPIPE;
	return r;
}
