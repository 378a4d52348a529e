/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer stream becomes a directory tree, in the form that overlayfs takes for a layer.
 *
 * Runs in a process of its own that has the ids of images and nothing else (overlay/image/owner.c),
 * or in a sandbox that is being set up. Still no path of a stream may lead out of its layer: every
 * one is opened with RESOLVE_BENEATH and through no link, and what is there is replaced and never
 * written through.
 *
 * Should:  write below dir_fd; drop set-id bits of files, which no sandbox would honour but the
 *          host would; make devices of one kind only, overlayfs' own whiteout.
 * Mustn't: follow a link, believe a size, leave a directory without its mode.
 *
 * Modes and times of directories come last: what is in them needs room before. For an image they
 * are remembered, and that is the only use of the heap.
 */
#include "nsbox/layer_stream.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "nsbox/files_format.h"
#include "nsbox/ids.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

#define CHUNK	   (256u << 10)
#define HOLE_BLOCK 4096
#define XATTRS_MAX 65536 /* bytes of attributes of one file */

struct dir_meta {
	char *path;
	size_t order; /* of its frame */
	uint32_t mode, uid, gid;
	int64_t mtime;
};

struct writer {
	int in, top_fd;
	bool own;
	const struct layer_options *opt;
	struct layer_sums *sums;
	struct nsbox_error *err;
	/* read ahead */
	unsigned char buf[CHUNK];
	size_t at, have;
	/* the frame */
	struct layer_frame f;
	char path[FILES_PATH_MAX];
	char extra[LAYER_EXTRA_MAX + 1];
	/* attributes for the next entry: name, NUL, length, value, ... */
	char xattr[XATTRS_MAX];
	size_t xattr_len;
	/* the last directory written to, and the text of its path */
	int parent_fd;
	char parent[FILES_PATH_MAX];
	struct dir_meta *dir;
	size_t dirs, room;
};

static int fail(struct writer *w, int errnum, const char *what)
{
	char show[200];

	nsbox_format(show, sizeof(show), "%s", w->path);
	files_clean_text(show);
	if (errnum == ENOSPC || errnum == EDQUOT)
		return nsbox_fail(w->err, NSBOX_E_IO, errnum,
				  "%s '%s': the file system of the state directory is full", what,
				  show);
	if (errnum == ELOOP)
		return nsbox_fail(w->err, NSBOX_E_INVALID, errnum,
				  "%s '%s': it lies behind a symbolic link of the archive", what,
				  show);
	return nsbox_fail(w->err, NSBOX_E_IO, errnum, "%s '%s'", what, show);
}

static int refuse(struct writer *w, int code, const char *why)
{
	char show[160];

	nsbox_format(show, sizeof(show), "%s", w->path);
	files_clean_text(show);
	return nsbox_fail(w->err, code, 0, "entry '%s': %s", show, why);
}

/* ------------------------------------------------------------------ reading */

static int fill(struct writer *w)
{
	ssize_t n;

	do
		n = read(w->in, w->buf, sizeof(w->buf));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return nsbox_fail(w->err, NSBOX_E_IO, errno, "read the layer stream");
	if (n == 0)
		return nsbox_fail(w->err, NSBOX_E_PROTOCOL, EPIPE, "the layer stream ends early");
	w->at = 0;
	w->have = (size_t)n;
	return 0;
}

static int take(struct writer *w, void *to, size_t len)
{
	char *p = to;

	while (len) {
		size_t n = MIN(len, w->have - w->at);
		int r;

		if (!n) {
			r = fill(w);
			if (r < 0)
				return r;
			continue;
		}
		memcpy(p, w->buf + w->at, n);
		w->at += n;
		p += n;
		len -= n;
	}
	return 0;
}

static int next_frame(struct writer *w)
{
	int r = take(w, &w->f, sizeof(w->f));

	if (r == 0)
		r = layer_check(&w->f, w->err);
	if (r == 0)
		r = take(w, w->path, w->f.path_len);
	if (r < 0)
		return r;
	w->path[w->f.path_len] = '\0';
	r = layer_check_path(&w->f, w->path, w->err);
	if (r == 0)
		r = take(w, w->extra, w->f.extra);
	if (r < 0)
		return r;
	w->extra[w->f.extra] = '\0';
	if (w->f.kind == LAYER_END)
		return 0;
	if (++w->sums->entries > w->opt->lim.entries)
		return nsbox_fail(w->err, NSBOX_E_LIMIT, 0, "more than %u entries",
				  w->opt->lim.entries);
	if (w->f.size > w->opt->lim.bytes - MIN(w->sums->bytes, w->opt->lim.bytes))
		return nsbox_fail(w->err, NSBOX_E_LIMIT, 0,
				  "files of more than %llu bytes together",
				  (unsigned long long)w->opt->lim.bytes);
	w->sums->bytes += w->f.size;
	return 0;
}

/* ------------------------------------------------------------------ owners and attributes */

/*
 * Inside, 1000 is the run's own id and not the image's (nsbox/ids.h), so nothing in a layer can
 * belong to it; what lies beyond the map belongs to nobody.
 */
static uint32_t stored_id(const struct writer *w, uint32_t id)
{
	if (id == IDS_INSIDE && !w->opt->upper)
		return 0;
	return id < 65536 ? id : 65534;
}

static int own(struct writer *w, int fd)
{
	return w->own ? fchown(fd, stored_id(w, w->f.uid), stored_id(w, w->f.gid)) : 0;
}

static int own_link(struct writer *w, int parent, const char *name)
{
	return w->own ? fchownat(parent, name, stored_id(w, w->f.uid), stored_id(w, w->f.gid),
				 AT_SYMLINK_NOFOLLOW)
		      : 0;
}

static int keep_xattr(struct writer *w)
{
	size_t name = strlen(w->extra) + 1, total = w->f.extra + sizeof(uint32_t);
	uint32_t len = (uint32_t)(w->f.extra - name);

	if (name > w->f.extra || !layer_xattr_ok(w->extra))
		return refuse(w, NSBOX_E_PROTOCOL, "an attribute that layers do not have");
	if (total > sizeof(w->xattr) - w->xattr_len)
		return refuse(w, NSBOX_E_LIMIT, "its attributes are too large");
	memcpy(w->xattr + w->xattr_len, w->extra, name);
	memcpy(w->xattr + w->xattr_len + name, &len, sizeof(len));
	memcpy(w->xattr + w->xattr_len + name + sizeof(len), w->extra + name, len);
	w->xattr_len += total;
	return 0;
}

static int set_xattrs(struct writer *w, int fd)
{
	size_t at = 0;

	while (at < w->xattr_len) {
		const char *name = w->xattr + at, *value = name + strlen(name) + 1;
		uint32_t len;

		memcpy(&len, value, sizeof(len));
		value += sizeof(len);
		if (fsetxattr(fd, name, value, len, 0) < 0)
			return fail(w, errno, "set an attribute of");
		at = (size_t)(value - w->xattr) + len;
	}
	w->xattr_len = 0;
	return 0;
}

/* ------------------------------------------------------------------ places */

/* The directory that w->path lies in; *ret_name points into w->path. */
static int parent_of(struct writer *w, int *ret_fd, const char **ret_name)
{
	const char *slash = strrchr(w->path, '/');
	size_t len = slash ? (size_t)(slash - w->path) : 0;

	if (w->parent_fd < 0 || strlen(w->parent) != len || memcmp(w->parent, w->path, len) != 0) {
		close_fd(&w->parent_fd);
		if (files_open_parent(w->top_fd, w->path, &w->parent_fd, ret_name, w->err) < 0)
			return w->err && w->err->errnum ? -w->err->errnum : -EINVAL;
		memcpy(w->parent, w->path, len);
		w->parent[len] = '\0';
	}
	*ret_fd = w->parent_fd;
	*ret_name = slash ? slash + 1 : w->path;
	return 0;
}

/* Make room: a file or link that is there goes, an empty directory too. 1: it was a whiteout. */
static int clear_place(struct writer *w, int parent, const char *name)
{
	struct stat st;

	if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : fail(w, errno, "look at");
	if (S_ISDIR(st.st_mode))
		return refuse(w, NSBOX_E_INVALID, "it replaces a directory of the same archive");
	if (unlinkat(parent, name, 0) < 0)
		return fail(w, errno, "replace");
	return S_ISCHR(st.st_mode);
}

static int set_opaque(struct writer *w, int fd)
{
	if (fsetxattr(fd, OVL_OPAQUE, "y", 1, 0) == 0)
		return 0;
	if (errno == EOPNOTSUPP)
		return nsbox_fail(
			w->err, NSBOX_E_UNSUPPORTED, errno,
			"the file system of the state directory has no user.* attributes, "
			"which this image's layers need: put the state directory "
			"(NSBOX_STATE_DIR) on ext4, xfs or btrfs");
	return fail(w, errno, "hide lower layers in");
}

/* ------------------------------------------------------------------ entries */

static int note_dir(struct writer *w)
{
	struct dir_meta *d;

	if (w->dirs == w->room) {
		size_t room = w->room ? w->room * 2 : 1024;

		d = reallocarray(w->dir, room, sizeof(*d));
		if (!d)
			return nsbox_fail(w->err, NSBOX_E_NOMEM, ENOMEM, "list directories");
		w->dir = d;
		w->room = room;
	}
	d = &w->dir[w->dirs];
	*d =
		(struct dir_meta){ strdup(w->path), w->dirs,  w->f.mode,
				   w->f.uid,	    w->f.gid, w->f.mtime };
	if (!d->path)
		return nsbox_fail(w->err, NSBOX_E_NOMEM, ENOMEM, "list directories");
	w->dirs++;
	return 0;
}

static int open_dir(struct writer *w, const char *path)
{
	return sys_openat2(w->top_fd, *path ? path : ".", O_RDONLY | O_DIRECTORY, 0, FILES_RESOLVE);
}

static int finish_dir(struct writer *w, const char *path, uint32_t mode, uint32_t uid, uint32_t gid,
		      int64_t mtime)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = mtime } };
	auto_close int fd = open_dir(w, path);

	if (fd < 0 && (errno == ENOTDIR || errno == ENOENT))
		return 0; /* a later entry of the archive took its place */
	if (fd < 0)
		return fail(w, errno, "open the directory");
	if (w->own && fchown(fd, stored_id(w, uid), stored_id(w, gid)) < 0)
		return fail(w, errno, "give away");
	/* With one id its owner is the run as well, and the store has to get in again. */
	if (!w->own && !w->opt->upper)
		mode |= 0700;
	if (fchmod(fd, mode & 07777) < 0 || futimens(fd, times) < 0)
		return fail(w, errno, "set mode and time of");
	return 0;
}

static int make_dir(struct writer *w)
{
	const char *name = "";
	auto_close int fd = -1;
	struct stat st;
	int parent = -1, whiteout = 0, r = 0;

	if (*w->path) {
		r = parent_of(w, &parent, &name);
		if (r < 0)
			return r;
		if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
			return fail(w, errno, "make the directory");
		if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return fail(w, errno, "look at");
		if (!S_ISDIR(st.st_mode)) {
			whiteout = clear_place(w, parent, name);
			if (whiteout >= 0 && mkdirat(parent, name, 0700) < 0)
				return fail(w, errno, "make the directory");
		}
		if (whiteout < 0)
			return whiteout;
	}
	if (w->xattr_len || whiteout) {
		fd = open_dir(w, w->path);
		if (fd < 0)
			return fail(w, errno, "open the directory");
		r = set_xattrs(w, fd);
		if (r == 0 && whiteout)
			r = set_opaque(w, fd);
	}
	if (r == 0)
		r = w->opt->upper
			    ? finish_dir(w, w->path, w->f.mode, w->f.uid, w->f.gid, w->f.mtime)
			    : note_dir(w);
	return r;
}

static bool is_zero(const unsigned char *p, size_t n)
{
	return p[0] == 0 && memcmp(p, p + 1, n - 1) == 0;
}

/* Whole blocks of zeros become holes: an image must not take more room than it has content. */
static int put_block(int fd, const unsigned char *p, size_t n)
{
	if (n == HOLE_BLOCK && is_zero(p, n))
		return lseek(fd, (off_t)n, SEEK_CUR) < 0 ? -errno : 0;
	return write_full(fd, p, n);
}

static int put_bytes(int fd, const unsigned char *p, size_t len)
{
	size_t run = 0;

	/* Runs of data in one write. */
	while (len) {
		size_t n = MIN(len, (size_t)HOLE_BLOCK);
		int r = 0;

		if (n == HOLE_BLOCK && is_zero(p + run, n)) {
			if (run)
				r = write_full(fd, p, run);
			if (r == 0)
				r = put_block(fd, p + run, n);
			p += run + n;
			run = 0;
		} else {
			run += n;
		}
		len -= n;
		if (r == 0 && !len && run)
			r = write_full(fd, p, run);
		if (r < 0)
			return r;
	}
	return 0;
}

static int copy_content(struct writer *w, int fd)
{
	for (uint64_t left = w->f.size; left;) {
		size_t n;
		int r = w->at == w->have ? fill(w) : 0;

		if (r < 0)
			return r;
		n = (size_t)MIN(left, (uint64_t)(w->have - w->at));
		r = put_bytes(fd, w->buf + w->at, n);
		if (r < 0)
			return fail(w, -r, "write");
		w->at += n;
		left -= n;
	}
	return ftruncate(fd, (off_t)w->f.size) < 0 ? fail(w, errno, "write") : 0;
}

static int make_file(struct writer *w)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = w->f.mtime } };
	const int how = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	auto_close int fd = -1;
	const char *name;
	int parent, r = parent_of(w, &parent, &name);

	if (r < 0)
		return r;
	fd = openat(parent, name, how, 0600);
	if (fd < 0 && errno == EEXIST) {
		r = clear_place(w, parent, name);
		if (r < 0)
			return r;
		fd = openat(parent, name, how, 0600);
	}
	if (fd < 0)
		return fail(w, errno, "create");
	r = copy_content(w, fd);
	if (r == 0)
		r = set_xattrs(w, fd);
	if (r < 0)
		return r;
	if (own(w, fd) < 0 || fchmod(fd, w->f.mode & 01777) < 0 || futimens(fd, times) < 0)
		return fail(w, errno, "set owner, mode and time of");
	return 0;
}

static int make_link(struct writer *w)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = w->f.mtime } };
	const char *name;
	int parent, r = parent_of(w, &parent, &name);

	if (r == 0)
		r = clear_place(w, parent, name);
	if (r < 0)
		return r;
	if (strlen(w->extra) != w->f.extra)
		return refuse(w, NSBOX_E_PROTOCOL, "a link whose target holds a NUL byte");
	if (symlinkat(w->extra, parent, name) < 0 || own_link(w, parent, name) < 0 ||
	    utimensat(parent, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return fail(w, errno, "make the link");
	return 0;
}

static int make_hardlink(struct writer *w)
{
	auto_close int from = -1;
	const char *name, *slash;
	char dir[FILES_PATH_MAX];
	struct stat st;
	int parent, r = nsbox_files_check_path(w->extra, w->f.extra, w->err);

	if (r < 0)
		return refuse(w, NSBOX_E_INVALID, "a hard link that leads out of the image");
	if (!strcmp(w->extra, w->path))
		return 0;
	slash = strrchr(w->extra, '/');
	nsbox_format(dir, sizeof(dir), "%.*s", slash ? (int)(slash - w->extra) : 1,
		     slash ? w->extra : ".");
	from = sys_openat2(w->top_fd, dir, O_PATH | O_DIRECTORY, 0, FILES_RESOLVE);
	slash = slash ? slash + 1 : w->extra;
	if (from < 0 || fstatat(from, slash, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return refuse(w, NSBOX_E_INVALID, "a hard link to what is not in the archive");
	if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
		return refuse(w, NSBOX_E_INVALID, "a hard link to what is no file");
	r = parent_of(w, &parent, &name);
	if (r == 0)
		r = clear_place(w, parent, name);
	if (r < 0)
		return r;
	return linkat(from, slash, parent, name, 0) < 0 ? fail(w, errno, "link") : 0;
}

static int make_whiteout(struct writer *w)
{
	const char *name;
	struct stat st;
	int parent, r = parent_of(w, &parent, &name);

	if (r < 0)
		return r;
	if (mknodat(parent, name, S_IFCHR, makedev(0, 0)) == 0)
		return 0;
	if (errno == EPERM)
		return nsbox_fail(
			w->err, NSBOX_E_UNSUPPORTED, EPERM,
			"the file system of the state directory takes no whiteouts (is it "
			"an overlay itself?): put the state directory (NSBOX_STATE_DIR) on "
			"another one");
	if (errno != EEXIST || fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return fail(w, errno, "remove");
	if (S_ISDIR(st.st_mode)) { /* the layer removes one and brings its own */
		auto_close int fd = open_dir(w, w->path);

		return fd < 0 ? fail(w, errno, "open the directory") : set_opaque(w, fd);
	}
	return 0;
}

static int make_opaque(struct writer *w)
{
	auto_close int fd = -1;
	int r;

	if (!*w->path)
		return refuse(w, NSBOX_E_UNSUPPORTED, "the layer removes all of the image's files");
	fd = open_dir(w, w->path);
	if (fd < 0 && errno == ENOENT) { /* its own entry comes later */
		r = files_make_dir(w->top_fd, w->path, 0755, w->err);
		if (r < 0)
			return r;
		fd = open_dir(w, w->path);
	}
	return fd < 0 ? fail(w, errno, "open the directory") : set_opaque(w, fd);
}

static int skip(struct writer *w)
{
	w->sums->skipped++;
	w->xattr_len = 0;
	return 0;
}

static int (*const handlers[LAYER_KIND_MAX])(struct writer *) = {
	[LAYER_DIR] = make_dir,		  [LAYER_FILE] = make_file,
	[LAYER_SYMLINK] = make_link,	  [LAYER_HARDLINK] = make_hardlink,
	[LAYER_WHITEOUT] = make_whiteout, [LAYER_OPAQUE] = make_opaque,
	[LAYER_XATTR] = keep_xattr,	  [LAYER_SKIPPED] = skip,
};

/* ------------------------------------------------------------------ the end */

/* What is in a directory comes before it; of two entries for one the later counts, so is last. */
static int deepest_first(const void *a, const void *b)
{
	const struct dir_meta *x = a, *y = b;
	int c = strcmp(y->path, x->path);

	return c ? c : (x->order > y->order) - (x->order < y->order);
}

static int finish_dirs(struct writer *w)
{
	int r = 0;

	if (w->dirs)
		qsort(w->dir, w->dirs, sizeof(*w->dir), deepest_first);
	for (size_t i = 0; r == 0 && i < w->dirs; i++) {
		const struct dir_meta *d = &w->dir[i];

		nsbox_format(w->path, sizeof(w->path), "%s", d->path);
		r = finish_dir(w, d->path, d->mode, d->uid, d->gid, d->mtime);
	}
	return r;
}

static int end_of_stream(struct writer *w)
{
	struct layer_end e;

	memcpy(&e, w->extra, sizeof(e));
	e.msg[sizeof(e.msg) - 1] = e.diff[sizeof(e.diff) - 1] = '\0';
	files_clean_text(e.msg);
	if (e.code)
		return nsbox_fail(w->err,
				  e.code < NSBOX_E_CODE_MAX ? (int)e.code : NSBOX_E_PROTOCOL, 0,
				  "%s", e.msg[0] ? e.msg : "the sender gave up");
	memcpy(w->sums->diff, e.diff, sizeof(w->sums->diff));
	return finish_dirs(w);
}

static int write_frames(struct writer *w)
{
	for (;;) {
		int r = next_frame(w);

		if (r < 0)
			return r;
		if (w->f.kind == LAYER_END)
			return end_of_stream(w);
		r = handlers[w->f.kind](w);
		if (r < 0)
			return r;
	}
}

int layer_write(int fd, int dir_fd, const struct layer_options *opt, struct layer_sums *ret,
		struct nsbox_error *err)
{
	struct writer *w =
		mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct nsbox_error local = { 0 };
	int r = 0;

	if (w == MAP_FAILED)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "write a layer");
	memset(ret, 0, sizeof(*ret));
	w->in = fd;
	w->top_fd = dir_fd;
	w->own = opt->own;
	w->opt = opt;
	w->sums = ret;
	w->err = err ? err : &local;
	w->parent_fd = -1;
	umask(0);
	/* Until an entry for the top says otherwise, or where there is none. */
	if (!opt->upper && fchmod(dir_fd, 0755) < 0)
		r = fail(w, errno, "set the mode of");
	if (r == 0)
		r = write_frames(w);
	close_fd(&w->parent_fd);
	for (size_t i = 0; i < w->dirs; i++)
		free(w->dir[i].path);
	free(w->dir);
	munmap(w, sizeof(*w));
	return r;
}
