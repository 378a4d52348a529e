/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file system that a run would see, looked at from outside: the layers and binds of an image's
 * root list, and the skill's directory at its inside path. Paths are resolved as the kernel would
 * inside, with absolute links starting at the view's own root. Nothing is mounted.
 */
#ifndef POLICY_SKILL_VIEW_H
#define POLICY_SKILL_VIEW_H

#include <limits.h>
#include <nsbox/error.h>
#include <sys/stat.h>

struct view;
struct blob;

/* root: a checked root blob, borrowed for this call. */
int view_new(const struct blob *root, struct view **ret, struct nsbox_error *err);
void view_free(struct view *v);
/* Show the directory at `dst` (absolute, inside); the descriptor is duplicated. */
int view_add(struct view *v, const char *dst, int dir_fd, struct nsbox_error *err);

/*
 * Follow `path` (absolute) to what it names in the end. 0 with its own path and state; else
 * -ENOENT, -ENOTDIR, -ELOOP, -ENAMETOOLONG, -EACCES...
 */
int view_find(const struct view *v, const char *path, char ret[PATH_MAX], struct stat *st);
/* A regular file for reading, by a path that view_find() gave; never waits. -errno. */
int view_open(const struct view *v, const char *path);
/* Each name of a directory, maybe more than once, until `each` returns non-zero; returns that. */
int view_list(const struct view *v, const char *path, int (*each)(void *ctx, const char *name),
	      void *ctx);

#endif
