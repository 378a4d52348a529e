/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory as a layer stream: for `nsbox image import NAME DIRECTORY`.
 *
 * What is in the directory may be a stranger's: nothing is followed, nothing that could block is
 * opened, and what other file systems are mounted in it is left out. Files are sent as they are
 * found, sorted by name, so that the same tree gives the same stream.
 */
#include "nsbox/layer_stream.h"

#include <dirent.h>
#include <fcntl.h>
#include <search.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "nsbox/files_format.h"
#include "nsbox/util.h"

struct seen { /* a file with more than one name */
	dev_t dev;
	ino_t ino;
	char path[];
};

struct walk {
	int out;
	dev_t dev;
	void *seen; /* tsearch(3) */
	char path[FILES_PATH_MAX];
	struct nsbox_error *err;
};

static int fail(struct walk *w, int errnum, const char *what)
{
	char show[200];

	nsbox_format(show, sizeof(show), "%s", w->path);
	files_clean_text(show);
	return nsbox_fail(w->err, NSBOX_E_IO, errnum, "%s '%s'", what, show);
}

static struct layer_frame frame(int kind, const struct stat *st)
{
	return (struct layer_frame){ .kind = (uint16_t)kind,
				     .mode = st->st_mode & 07777,
				     .uid = st->st_uid,
				     .gid = st->st_gid,
				     .mtime = st->st_mtim.tv_sec };
}

/* ------------------------------------------------------------------ attributes */

static int send_xattr(struct walk *w, int fd, const char *name)
{
	struct layer_frame f = { .kind = LAYER_XATTR };
	char buf[LAYER_EXTRA_MAX];
	size_t n = strlen(name) + 1;
	ssize_t len;

	memcpy(buf, name, n);
	len = fgetxattr(fd, name, buf + n, sizeof(buf) - n);
	if (len < 0)
		return errno == ENODATA ? 0 : fail(w, errno, "read an attribute of");
	f.extra = (uint32_t)(n + (size_t)len);
	return layer_put(w->out, &f, w->path, buf, w->err);
}

static int send_xattrs(struct walk *w, int fd)
{
	char names[LAYER_EXTRA_MAX];
	ssize_t len = flistxattr(fd, names, sizeof(names));
	int r = 0;

	if (len < 0)
		return errno == EOPNOTSUPP ? 0 : fail(w, errno, "list the attributes of");
	for (char *p = names; r == 0 && p < names + len; p += strlen(p) + 1)
		if (layer_xattr_ok(p))
			r = send_xattr(w, fd, p);
	return r;
}

/* ------------------------------------------------------------------ files */

static int by_inode(const void *a, const void *b)
{
	const struct seen *x = a, *y = b;

	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	return (x->ino > y->ino) - (x->ino < y->ino);
}

/* 1: the same file was sent under another name, and now as a link to it. */
static int send_again(struct walk *w, const struct stat *st)
{
	size_t len = strlen(w->path) + 1;
	struct layer_frame f = frame(LAYER_HARDLINK, st);
	struct seen *s = malloc(sizeof(*s) + len), **found;
	int r;

	if (!s)
		return nsbox_fail(w->err, NSBOX_E_NOMEM, ENOMEM, "note a hard link");
	*s = (struct seen){ st->st_dev, st->st_ino };
	memcpy(s->path, w->path, len);
	found = tsearch(s, &w->seen, by_inode);
	if (!found || *found == s) {
		if (!found)
			free(s);
		return found ? 0 : nsbox_fail(w->err, NSBOX_E_NOMEM, ENOMEM, "note a hard link");
	}
	free(s);
	f.extra = (uint32_t)strlen((*found)->path);
	r = layer_put(w->out, &f, w->path, (*found)->path, w->err);
	return r < 0 ? r : 1;
}

static int send_content(struct walk *w, int fd, uint64_t left)
{
	char buf[65536];

	while (left) {
		size_t n = (size_t)MIN(left, (uint64_t)sizeof(buf));
		int r = read_full(fd, buf, n);

		if (r < 0)
			return fail(w, -r, "it changed while it was read:");
		r = write_full(w->out, buf, n);
		if (r < 0)
			return nsbox_fail(w->err, NSBOX_E_IO, -r, "write the layer stream");
		left -= n;
	}
	return 0;
}

static int send_file(struct walk *w, int dir_fd, const char *name)
{
	auto_close int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct layer_frame f;
	struct stat st;
	int r = 0;

	if (fd < 0 || fstat(fd, &st) < 0)
		return fail(w, errno, "open");
	if (!S_ISREG(st.st_mode))
		return fail(w, EAGAIN, "it changed while it was read:");
	if (st.st_nlink > 1)
		r = send_again(w, &st);
	if (r)
		return MIN(r, 0);
	r = send_xattrs(w, fd);
	f = frame(LAYER_FILE, &st);
	f.size = (uint64_t)st.st_size;
	if (r == 0)
		r = layer_put(w->out, &f, w->path, NULL, w->err);
	return r < 0 ? r : send_content(w, fd, f.size);
}

static int send_link(struct walk *w, int dir_fd, const char *name, const struct stat *st)
{
	struct layer_frame f = frame(LAYER_SYMLINK, st);
	char target[FILES_TEXT_MAX + 1];
	ssize_t n = readlinkat(dir_fd, name, target, sizeof(target));

	if (n <= 0 || n > FILES_TEXT_MAX)
		return fail(w, n < 0 ? errno : ENAMETOOLONG, "read the link");
	f.extra = (uint32_t)n;
	return layer_put(w->out, &f, w->path, target, w->err);
}

/* ------------------------------------------------------------------ directories */

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_dots(const struct dirent *e)
{
	return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

static int send_tree(struct walk *w, int fd, size_t len);

static int send_dir(struct walk *w, int dir_fd, const char *name, size_t len)
{
	auto_close int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct layer_frame f;
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return fail(w, errno, "open the directory");
	r = send_xattrs(w, fd);
	f = frame(LAYER_DIR, &st);
	if (r == 0)
		r = layer_put(w->out, &f, w->path, NULL, w->err);
	return r < 0 || st.st_dev != w->dev ? r : send_tree(w, fd, len);
}

static int send_entry(struct walk *w, int dir_fd, const char *name, size_t len)
{
	struct layer_frame f;
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return fail(w, errno, "look at");
	switch (st.st_mode & S_IFMT) {
	case S_IFREG: return send_file(w, dir_fd, name);
	case S_IFLNK: return send_link(w, dir_fd, name, &st);
	case S_IFDIR: return send_dir(w, dir_fd, name, len);
	default: f = frame(LAYER_SKIPPED, &st); return layer_put(w->out, &f, w->path, NULL, w->err);
	}
}

static int send_name(struct walk *w, int dir_fd, const char *name, size_t len)
{
	size_t n = strlen(name), sep = len > 0;
	int r;

	if (len + sep + n >= sizeof(w->path))
		return fail(w, ENAMETOOLONG, "go on below");
	if (sep)
		w->path[len] = '/';
	memcpy(w->path + len + sep, name, n + 1);
	r = send_entry(w, dir_fd, name, len + sep + n);
	w->path[len] = '\0';
	return r;
}

/* What is in the directory fd, whose path takes `len` bytes of w->path. */
static int send_tree(struct walk *w, int fd, size_t len)
{
	struct dirent **names = NULL;
	int r = 0, n = scandirat(fd, ".", &names, not_dots, by_name);

	if (n < 0)
		return fail(w, errno, "list the directory");
	for (int i = 0; i < n; i++) {
		if (r == 0)
			r = send_name(w, fd, names[i]->d_name, len);
		free(names[i]);
	}
	free(names);
	return r;
}

int layer_send_dir(int fd, int dir_fd, struct nsbox_error *err)
{
	struct nsbox_error why = { 0 };
	struct walk w = { .out = fd, .err = &why };
	struct layer_frame f;
	struct stat st;
	int r;

	if (fstat(dir_fd, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "look at the directory");
	w.dev = st.st_dev;
	f = frame(LAYER_DIR, &st);
	r = layer_put(fd, &f, "", NULL, &why);
	if (r == 0)
		r = send_tree(&w, dir_fd, 0);
	tdestroy(w.seen, free);
	if (r < 0 && err)
		*err = why;
	if (layer_put_end(fd, r < 0 ? &why : NULL, NULL, r < 0 ? NULL : err) < 0 && r == 0)
		r = -EPIPE;
	return r;
}
