/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing a tree of any depth with few descriptors, while hostile code may be changing it.
 *
 * Directories are entered one component at a time, never through a link. One that lies too deep is
 * moved to the top of the tree, where a later pass finds it: so neither the depth nor the length of
 * paths is limited. A directory that is filled as fast as it is emptied is given up.
 */
#include <fcntl.h>
#include <stdio.h> /* renameat(2) */
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "nsbox/files_verbs.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

#define DEPTH	   32
#define PASSES_MAX 100000 /* over one directory, each of which found something */

struct level {
	int fd;
	unsigned passes;
	char name[FILES_NAME_MAX + 1]; /* in the directory above */
};

struct removal {
	unsigned depth;
	unsigned moved; /* directories brought to the top, for their names */
	struct level level[DEPTH];
};

static int enter(struct removal *rm, int dir_fd, const char *name)
{
	struct level *l = &rm->level[rm->depth];
	int fd = files_open(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, 0);

	/* Without its read and search bits; its owner, who we are, may give them. */
	if (fd == -EACCES && fchmodat(dir_fd, name, 0700, 0) == 0)
		fd = files_open(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, 0);
	if (fd < 0)
		return fd;
	l->fd = fd;
	l->passes = 0;
	nsbox_format(l->name, sizeof(l->name), "%s", name);
	rm->depth++;
	return 0;
}

static int bring_up(struct removal *rm, int dir_fd, const char *name)
{
	char there[48];

	nsbox_format(there, sizeof(there), ".nsbox-remove.%d.%u", getpid(), rm->moved++);
	return renameat(dir_fd, name, rm->level[0].fd, there) < 0 ? -errno : 0;
}

/* One entry: gone at once, or a directory that has to be emptied first. 1: it was entered. */
static int take_one(struct removal *rm, int dir_fd, const char *name)
{
	int r;

	if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	if (errno == ENOTDIR)
		return 0; /* it was swapped: another pass sees what it is */
	if (errno != ENOTEMPTY && errno != EACCES)
		return -errno;
	if (rm->depth == DEPTH)
		return bring_up(rm, dir_fd, name);
	r = enter(rm, dir_fd, name);
	if (r == -ENOENT || r == -ENOTDIR || r == -ELOOP)
		return 0;
	return r < 0 ? r : 1;
}

/* Empty the innermost directory as far as it goes. 1: went into another, 2: something was there,
 * 0: it is empty. */
static int pass(struct removal *rm)
{
	struct level *l = &rm->level[rm->depth - 1];
	_Alignas(8) char dents[WALK_DENTS_SIZE];
	bool any = false;

	if (lseek(l->fd, 0, SEEK_SET) < 0)
		return -errno;
	for (;;) {
		long n = syscall(SYS_getdents64, l->fd, dents, sizeof(dents));

		if (n < 0)
			return -errno;
		if (n == 0)
			return any ? 2 : 0;
		for (long at = 0; at < n;) {
			const struct dirent64_raw *d = (const struct dirent64_raw *)(dents + at);
			int r;

			at += d->reclen;
			if (strcmp(d->name, ".") == 0 || strcmp(d->name, "..") == 0)
				continue;
			any = true;
			r = take_one(rm, l->fd, d->name);
			if (r != 0)
				return r;
		}
	}
}

/* The innermost directory is empty: leave it and remove it. */
static int leave(struct removal *rm, int dir_fd)
{
	struct level *l = &rm->level[--rm->depth];
	int above = rm->depth ? rm->level[rm->depth - 1].fd : dir_fd;

	close_fd(&l->fd);
	if (unlinkat(above, l->name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	/* Filled again, or swapped: the next pass above it sees. The top has none. */
	return (errno == ENOTEMPTY || errno == ENOTDIR) && rm->depth ? 0 : -errno;
}

static int empty(struct removal *rm, int dir_fd)
{
	int r = 0;

	while (rm->depth && r >= 0) {
		struct level *l = &rm->level[rm->depth - 1];

		r = pass(rm);
		if (r == 2 && ++l->passes > PASSES_MAX)
			return -ENOTEMPTY;
		if (r == 0)
			r = leave(rm, dir_fd);
	}
	return r;
}

int files_remove_tree(int dir_fd, const char *name)
{
	struct removal rm = { .depth = 0 };
	int r = 0;

	if (unlinkat(dir_fd, name, 0) == 0)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0)
		return 0;
	if (errno != ENOTEMPTY && errno != EACCES)
		return -errno;
	r = enter(&rm, dir_fd, name);
	if (r == 0)
		r = empty(&rm, dir_fd);
	while (rm.depth)
		close_fd(&rm.level[--rm.depth].fd);
	return r < 0 ? r : 0;
}
