/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of overlay/: the state directory, the sources of an image, its skeleton. */
#ifndef OVERLAY_INTERNAL_H
#define OVERLAY_INTERNAL_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* ---- hash.c: names of skeletons. Tells honest inputs apart; it is no cryptographic hash. */

struct hash128 {
	unsigned __int128 h;
};
#define HASH128_TEXT 33 /* 32 hex digits and a NUL */

void hash128_init(struct hash128 *h);
void hash128_add(struct hash128 *h, const void *data, size_t len);
void hash128_add_str(struct hash128 *h, const char *s); /* with its length */
void hash128_text(const struct hash128 *h, char ret[HASH128_TEXT]);

/* ---- state.c */

struct state_dir {
	int fd;
	char *path; /* absolute, no links in it */
};

/* dir NULL: nsbox_state_dir(). Creates it where missing; refuses one that others could change. */
int state_open(const char *dir, struct state_dir *ret, struct nsbox_error *err);
void state_done(struct state_dir *s);
/* A directory below parent_fd: made where missing, 0755, the caller's own. */
int state_subdir(int parent_fd, const char *name, int *ret_fd, struct nsbox_error *err);
/* Lock the file `name` (0600, made where missing) with LOCK_SH or LOCK_EX, maybe LOCK_NB. */
int state_lock(int dir_fd, const char *name, int operation, int *ret_fd, struct nsbox_error *err);
/* Remove a tree, without following links. 0 or -errno; what is not there is no error. */
int state_remove_tree(int dir_fd, const char *name);

/* ---- host_image.c: what of the host becomes part of the image */

enum source_kind {
	SOURCE_DIR,  /* made in the skeleton */
	SOURCE_FILE, /* copied into it */
	SOURCE_LINK, /* made in it, pointing to `text` */
	SOURCE_BIND, /* a mount point in it; `text` is the directory of the host to bind */
};

struct source {
	enum source_kind kind;
	char *path; /* below the root, without a leading slash */
	char *text;
	unsigned flags; /* SOURCE_BIND: enum mount_op_flags */
	uint64_t size, ino;
	struct timespec mtime, ctime;
};

struct sources {
	struct source *item;
	size_t count, room;
};

/* Parents come before what is in them; the order depends on names alone. */
int sources_scan(const struct state_dir *state, struct sources *ret, struct nsbox_error *err);
void sources_done(struct sources *s);
void sources_hash(const struct sources *s, struct hash128 *h);
/* The root blob: the skeleton as the only lower layer, then the binds. */
int host_image_blob(const struct sources *s, const char *skeleton, void **ret, size_t *ret_len,
		    struct nsbox_error *err);

/* ---- host_paths.c: directories below /opt that the operator shows besides */
typedef int host_path_fn(void *ctx, const char *path);
int host_paths_each(const struct state_dir *state, host_path_fn *fn, void *ctx,
		    struct nsbox_error *err);

/* ---- skeleton.c */

struct skeleton {
	char *path; /* absolute */
	char name[HASH128_TEXT];
	int lock_fd; /* shared lock: nobody removes it while this is open */
};

int skeleton_ensure(const struct state_dir *state, const struct sources *src, struct skeleton *ret,
		    struct nsbox_error *err);
void skeleton_done(struct skeleton *s);

/* ---- skeleton_build.c */

/* Everything in the skeleton that does not come from the host. */
void skeleton_hash_template(struct hash128 *h);
/* Fill an empty directory. */
int skeleton_build(int dir_fd, const struct sources *src, struct nsbox_error *err);

struct blob_builder;
/* What an imported image gets of it, as operations of a root list. */
void skeleton_files(struct blob_builder *b);

/* ---- runner_py.c: nsbox/runner/python.py */
extern const char runner_py_start[] __attribute__((visibility("hidden")));
extern const uint64_t runner_py_size __attribute__((visibility("hidden")));

#endif
