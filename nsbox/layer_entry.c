/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a layer: an entry of each kind, and in the end the modes and times of directories. */
#include "nsbox/layer_writer.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "nsbox/ids.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

#define HOLE_BLOCK 4096

/* ------------------------------------------------------------------ entries */

static int note_dir(struct layer_writer *w)
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

static int open_dir(struct layer_writer *w, const char *path)
{
	return sys_openat2(w->top_fd, *path ? path : ".", O_RDONLY | O_DIRECTORY, 0, FILES_RESOLVE);
}

static int finish_dir(struct layer_writer *w, const char *path, uint32_t mode, uint32_t uid,
		      uint32_t gid, int64_t mtime)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = mtime } };
	auto_close int fd = open_dir(w, path);

	if (fd < 0 && (errno == ENOTDIR || errno == ENOENT))
		return 0; /* a later entry of the archive took its place */
	if (fd < 0)
		return layer_fail(w, errno, "open the directory");
	if (w->own && fchown(fd, layer_stored_id(w, uid), layer_stored_id(w, gid)) < 0)
		return layer_fail(w, errno, "give away");
	/* With one id its owner is the run as well, and the store has to get in again. */
	if (!w->own && !w->opt->upper)
		mode |= 0700;
	if (fchmod(fd, mode & 07777) < 0 || futimens(fd, times) < 0)
		return layer_fail(w, errno, "set mode and time of");
	return 0;
}

static int make_dir(struct layer_writer *w)
{
	const char *name = "";
	auto_close int fd = -1;
	struct stat st;
	int parent = -1, whiteout = 0, r = 0;

	if (*w->path) {
		r = layer_parent_of(w, &parent, &name);
		if (r < 0)
			return r;
		if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
			return layer_fail(w, errno, "make the directory");
		if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return layer_fail(w, errno, "look at");
		if (!S_ISDIR(st.st_mode)) {
			whiteout = layer_clear_place(w, parent, name);
			if (whiteout >= 0 && mkdirat(parent, name, 0700) < 0)
				return layer_fail(w, errno, "make the directory");
		}
		if (whiteout < 0)
			return whiteout;
	}
	if (w->xattr_len || whiteout) {
		fd = open_dir(w, w->path);
		if (fd < 0)
			return layer_fail(w, errno, "open the directory");
		r = layer_set_xattrs(w, fd);
		if (r == 0 && whiteout)
			r = layer_set_opaque(w, fd);
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

static int copy_content(struct layer_writer *w, int fd)
{
	for (uint64_t left = w->f.size; left;) {
		size_t n;
		int r = w->at == w->have ? layer_fill(w) : 0;

		if (r < 0)
			return r;
		n = (size_t)MIN(left, (uint64_t)(w->have - w->at));
		r = put_bytes(fd, w->buf + w->at, n);
		if (r < 0)
			return layer_fail(w, -r, "write");
		w->at += n;
		left -= n;
	}
	return ftruncate(fd, (off_t)w->f.size) < 0 ? layer_fail(w, errno, "write") : 0;
}

static int make_file(struct layer_writer *w)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = w->f.mtime } };
	const int how = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	auto_close int fd = -1;
	const char *name;
	int parent, r = layer_parent_of(w, &parent, &name);

	if (r < 0)
		return r;
	fd = openat(parent, name, how, 0600);
	if (fd < 0 && errno == EEXIST) {
		r = layer_clear_place(w, parent, name);
		if (r < 0)
			return r;
		fd = openat(parent, name, how, 0600);
	}
	if (fd < 0)
		return layer_fail(w, errno, "create");
	r = copy_content(w, fd);
	if (r == 0)
		r = layer_set_xattrs(w, fd);
	if (r < 0)
		return r;
	if (layer_own(w, fd) < 0 || fchmod(fd, w->f.mode & 01777) < 0 || futimens(fd, times) < 0)
		return layer_fail(w, errno, "set owner, mode and time of");
	return 0;
}

static int make_link(struct layer_writer *w)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = w->f.mtime } };
	const char *name;
	int parent, r = layer_parent_of(w, &parent, &name);

	if (r == 0)
		r = layer_clear_place(w, parent, name);
	if (r < 0)
		return r;
	if (strlen(w->extra) != w->f.extra)
		return layer_refuse(w, NSBOX_E_PROTOCOL, "a link whose target holds a NUL byte");
	if (symlinkat(w->extra, parent, name) < 0 || layer_own_link(w, parent, name) < 0 ||
	    utimensat(parent, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return layer_fail(w, errno, "make the link");
	return 0;
}

static int make_hardlink(struct layer_writer *w)
{
	auto_close int from = -1;
	const char *name, *slash;
	char dir[FILES_PATH_MAX];
	struct stat st;
	int parent, r = nsbox_files_check_path(w->extra, w->f.extra, w->err);

	if (r < 0)
		return layer_refuse(w, NSBOX_E_INVALID, "a hard link that leads out of the image");
	if (!strcmp(w->extra, w->path))
		return 0;
	slash = strrchr(w->extra, '/');
	nsbox_format(dir, sizeof(dir), "%.*s", slash ? (int)(slash - w->extra) : 1,
		     slash ? w->extra : ".");
	from = sys_openat2(w->top_fd, dir, O_PATH | O_DIRECTORY, 0, FILES_RESOLVE);
	slash = slash ? slash + 1 : w->extra;
	if (from < 0 || fstatat(from, slash, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return layer_refuse(w, NSBOX_E_INVALID,
				    "a hard link to what is not in the archive");
	if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
		return layer_refuse(w, NSBOX_E_INVALID, "a hard link to what is no file");
	r = layer_parent_of(w, &parent, &name);
	if (r == 0)
		r = layer_clear_place(w, parent, name);
	if (r < 0)
		return r;
	return linkat(from, slash, parent, name, 0) < 0 ? layer_fail(w, errno, "link") : 0;
}

static int make_whiteout(struct layer_writer *w)
{
	const char *name;
	struct stat st;
	int parent, r = layer_parent_of(w, &parent, &name);

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
		return layer_fail(w, errno, "remove");
	if (S_ISDIR(st.st_mode)) { /* the layer removes one and brings its own */
		auto_close int fd = open_dir(w, w->path);

		return fd < 0 ? layer_fail(w, errno, "open the directory")
			      : layer_set_opaque(w, fd);
	}
	return 0;
}

static int make_opaque(struct layer_writer *w)
{
	auto_close int fd = -1;
	int r;

	if (!*w->path)
		return layer_refuse(w, NSBOX_E_UNSUPPORTED,
				    "the layer removes all of the image's files");
	fd = open_dir(w, w->path);
	if (fd < 0 && errno == ENOENT) { /* its own entry comes later */
		r = files_make_dir(w->top_fd, w->path, 0755, w->err);
		if (r < 0)
			return r;
		fd = open_dir(w, w->path);
	}
	return fd < 0 ? layer_fail(w, errno, "open the directory") : layer_set_opaque(w, fd);
}

static int skip(struct layer_writer *w)
{
	w->sums->skipped++;
	w->xattr_len = 0;
	return 0;
}

int (*const layer_handlers[LAYER_KIND_MAX])(struct layer_writer *) = {
	[LAYER_DIR] = make_dir,		  [LAYER_FILE] = make_file,
	[LAYER_SYMLINK] = make_link,	  [LAYER_HARDLINK] = make_hardlink,
	[LAYER_WHITEOUT] = make_whiteout, [LAYER_OPAQUE] = make_opaque,
	[LAYER_XATTR] = layer_keep_xattr, [LAYER_SKIPPED] = skip,
};

/* ------------------------------------------------------------------ the end */

/* What is in a directory comes before it; of two entries for one the later counts, so is last. */
static int deepest_first(const void *a, const void *b)
{
	const struct dir_meta *x = a, *y = b;
	int c = strcmp(y->path, x->path);

	return c ? c : (x->order > y->order) - (x->order < y->order);
}

int layer_finish_dirs(struct layer_writer *w)
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
