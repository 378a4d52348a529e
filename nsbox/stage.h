/* SPDX-License-Identifier: Apache-2.0 */
/* Mounting by descriptor, shared by the stages. Each returns 0 or a descriptor, or -errno. */
#ifndef NSBOX_STAGE_H
#define NSBOX_STAGE_H

#include <stdbool.h>
#include <stdint.h>

struct blob;
struct child;
struct mount_op;
struct nsbox_error;

/* O_PATH descriptor of a mount point inside root_fd, never through a link; -1 and errno. */
int open_target(int root_fd, const char *dst);
int attach_mount(int mount_fd, int target_fd);
int set_mount_attr(int mount_fd, uint64_t attr, bool recursive);
/* A copy of the mount at dir_fd/path, with attr added, attached to target_fd. */
int clone_tree(int dir_fd, const char *path, bool recursive, uint64_t attr, int target_fd);
/* A new, detached mount; opts are key, value, ..., NULL. */
int new_mount(const char *fs, const char *const *opts, uint64_t attr);

/* stage_root.c: directories, files and links of a blob, below the directory `up`. */
int stage_fill(struct child *c, const struct blob *b, int up, struct nsbox_error *err);
/* stage_lock.c: execute bits, for what the plan says. */
int stage_make_exec(struct child *c, struct nsbox_error *err);

/* stage_trust.c: of the mask stage. */
int trust_op(struct child *c, const struct mount_op *op, struct nsbox_error *err);

#endif
