/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk: nothing is opened by a path of more than one component, nothing through a link; depth
 * and the number of entries are bounded, and so is the time that a directory which grows while it
 * is read can take.
 */
#include "nsbox/files_walk.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "nsbox/sys.h"
#include "nsbox/util.h"

#define PROC_MAGIC 0x9fa0

int files_open(int dir_fd, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve)
{
	const uint64_t calm = flags & O_PATH ? 0 : O_NONBLOCK | O_NOCTTY;
	struct statfs fs;
	int fd = sys_openat2(dir_fd, path, flags | calm, mode, resolve | RESOLVE_NO_MAGICLINKS);

	if (fd < 0)
		return -errno;
	if (fstatfs(fd, &fs) == 0 && fs.f_type != PROC_MAGIC)
		return fd;
	close(fd);
	return -EACCES;
}

/* ------------------------------------------------------------------ levels */

static int push(struct files_walk *w, int fd, size_t path_len)
{
	struct files_walk_level *l;

	if (w->depth == WALK_DEPTH_MAX)
		return -ELOOP;
	l = &w->level[w->depth++];
	l->fd = fd;
	l->path_len = path_len;
	l->at = l->have = 0;
	return 0;
}

static void pop(struct files_walk *w)
{
	close_fd(&w->level[--w->depth].fd);
}

/* The next name of the innermost directory, or NULL at its end. */
static const char *next_name(struct files_walk_level *l)
{
	struct dirent64_raw *d;

	if (l->at >= l->have) {
		long n = syscall(SYS_getdents64, l->fd, l->dents, sizeof(l->dents));

		if (n <= 0)
			return NULL;
		l->have = (size_t)n;
		l->at = 0;
	}
	d = (struct dirent64_raw *)(l->dents + l->at);
	l->at += d->reclen;
	return d->name;
}

/* ------------------------------------------------------------------ entries */

static int visit_dir(struct files_walk *w, int dir_fd, const char *name, size_t len,
		     const struct stat *found, struct nsbox_error *err)
{
	int r = w->dir(w, dir_fd, name, found, err);
	auto_close int fd = -1;
	struct stat st;

	if (r <= 0)
		return r;
	fd = files_open(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, 0);
	if (fd < 0 || fstat(fd, &st) < 0)
		return w->note(w, "directory that cannot be read", err);
	if (st.st_dev != w->dev)
		return w->note(w, "another file system", err);
	if (push(w, fd, len) < 0)
		return w->note(w, "nested too deeply", err);
	take_fd(&fd); /* the level's */
	return 0;
}

static int visit(struct files_walk *w, struct files_walk_level *l, const char *name,
		 struct nsbox_error *err)
{
	size_t at = l->path_len, len = strlen(name);
	struct stat st;

	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return 0;
	if (++w->entries > WALK_ENTRIES_MAX)
		return nsbox_fail(err, NSBOX_E_LIMIT, 0, "more than %d entries in the tree",
				  WALK_ENTRIES_MAX);
	if (at + 1 + len >= sizeof(w->path)) {
		w->path[at] = '\0'; /* beyond PATH_MAX no frame could say it: its directory does */
		return w->note(w, "what is in it has too long a path", err);
	}
	if (at)
		w->path[at++] = '/';
	memcpy(w->path + at, name, len + 1);
	if (fstatat(l->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0; /* gone meanwhile */
	if (S_ISDIR(st.st_mode))
		return visit_dir(w, l->fd, name, at + len, &st, err);
	return w->other(w, l->fd, name, &st, err);
}

static int walk(struct files_walk *w, struct nsbox_error *err)
{
	while (w->depth) {
		struct files_walk_level *l = &w->level[w->depth - 1];
		const char *name = next_name(l);
		int r;

		if (!name) {
			w->path[l->path_len] = '\0';
			r = w->left && l->path_len ? w->left(w, l->fd, err) : 0;
			pop(w);
			if (r < 0)
				return r;
			continue;
		}
		r = visit(w, l, name, err);
		if (r < 0)
			return r;
	}
	return 0;
}

int files_walk(struct files_walk *w, int dir_fd, struct nsbox_error *err)
{
	struct stat st;
	int r;

	w->entries = 0;
	w->depth = 0;
	w->path[0] = '\0';
	if (fstat(dir_fd, &st) < 0) {
		r = nsbox_fail(err, NSBOX_E_IO, errno, "look at a directory");
		close(dir_fd);
		return r;
	}
	w->dev = st.st_dev;
	push(w, dir_fd, 0);
	r = walk(w, err);
	while (w->depth)
		pop(w);
	return r;
}
