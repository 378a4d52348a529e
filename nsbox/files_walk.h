/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walking a tree that hostile code made and may be changing: what collect, list, search and
 * download share. System calls alone, buffers on the stack (about 300 KiB): safe after clone.
 */
#ifndef NSBOX_FILES_WALK_H
#define NSBOX_FILES_WALK_H

#include <sys/stat.h>

#include "nsbox/files_format.h"

#define WALK_DEPTH_MAX	 128
#define WALK_DENTS_SIZE	 2048 /* a name of 255 bytes takes 280 */
#define WALK_ENTRIES_MAX 200000

struct files_walk;

/* What to do with an entry, whose path below the top is w->path; dir_fd/name is the same. */
typedef int files_walk_fn(struct files_walk *w, int dir_fd, const char *name, const struct stat *st,
			  struct nsbox_error *err);
typedef int files_walk_left_fn(struct files_walk *w, int fd, struct nsbox_error *err);
/* The entry w->path is left out, and why. */
typedef int files_walk_note_fn(struct files_walk *w, const char *why, struct nsbox_error *err);

struct files_walk_level {
	int fd;
	size_t path_len; /* of this directory within the path buffer */
	size_t at, have; /* in dents */
	_Alignas(8) char dents[WALK_DENTS_SIZE];
};

struct files_walk {
	files_walk_fn *dir;	  /* 1: go into it, 0: do not; negative ends the walk */
	files_walk_fn *other;	  /* what is no directory */
	files_walk_left_fn *left; /* all of a directory was seen, w->path names it; or NULL */
	files_walk_note_fn *note;
	void *ctx;
	uint64_t entries; /* seen so far */
	dev_t dev;
	unsigned depth; /* levels in use */
	char path[FILES_PATH_MAX];
	struct files_walk_level level[WALK_DEPTH_MAX];
};

/*
 * Everything below the directory, whose descriptor is taken. The walk stays on its file system. An
 * order is not promised. dir, other, note and ctx are set by the caller, the rest here.
 */
int files_walk(struct files_walk *w, int dir_fd, struct nsbox_error *err);

/*
 * Open for reading inside the sandbox: never waits (FIFOs), follows links of the sandbox but none
 * of the kernel's (/proc/self/fd), and refuses what lies in a procfs: there the helper would show
 * itself and not the payload. -errno.
 */
int files_open(int dir_fd, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve);

#endif
