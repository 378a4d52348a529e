/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of imported images, part of the state directory:
 *
 *	images/name/NAME	link to the id that is called NAME
 *	images/id/ID		what the image is made of (index.c); ID is the SHA-256 of this text.
 *				Held with a shared lock by each prepared root: in use
 *	images/.lock		held exclusively by whoever changes names, ids or layers
 *	images/.importing	held shared while layers come in that no id names yet
 *	layers/DIGEST/		one layer, shared by all images that have it; DIGEST is the SHA-256 of
 *				the archive it came in
 *	layers/.new.N.M/	coming in
 *
 * What is below images/ belongs to the owner of sandboxes, layers to the image block (ids.h), where
 * the owner may set ids: the run's inside-root can then copy them up, and nobody on the host is
 * that user. layers/ itself can only be searched by the two, since set-id bits and world-writable
 * directories in an image are not for local users.
 */
#ifndef OVERLAY_STORE_H
#define OVERLAY_STORE_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "overlay/internal.h"

#define DIGEST_TEXT	 65  /* 64 hex digits and a NUL */
#define IMAGE_NAME_MAX	 128 /* with the NUL */
#define IMAGE_LAYERS_MAX 400 /* overlayfs takes 500 */

struct store {
	struct state_dir state;
	int images_fd, ids_fd, names_fd, layers_fd;
	bool own_ids; /* layers belong to the image block */
};

int store_open(const char *state_dir, struct store *ret, struct nsbox_error *err);
void store_done(struct store *s);
/* "name", "org/name:tag": letters, digits and "._-", '/' and ':' between them. */
int image_name_check(const char *name, struct nsbox_error *err);
bool digest_ok(const char *text);
/* The id behind a name, or behind the first digits (8 or more) of an id; -ENOENT without. */
int store_find(const struct store *s, const char *name, char ret[DIGEST_TEXT],
	       struct nsbox_error *err);
int store_names(const struct store *s, int (*each)(void *ctx, const char *name, const char *id),
		void *ctx, struct nsbox_error *err);
int store_set_name(const struct store *s, const char *name, const char *id,
		   struct nsbox_error *err);
/* Take a name away; its image goes with the last name, or as soon as nothing runs in it. */
int store_remove(const struct store *s, const char *name, bool *ret_kept, struct nsbox_error *err);

struct gc_result {
	unsigned images, layers, unfinished; /* that were removed */
	bool busy;			     /* an import is under way: layers were left alone */
};
/* Remove what nothing refers to and nobody uses. The caller holds no lock. */
int store_gc(const struct store *s, struct gc_result *ret, struct nsbox_error *err);

/* ---- index.c */

struct image_layer {
	char digest[DIGEST_TEXT];
	uint64_t bytes;
};

struct strings {
	char **item;
	size_t count, room;
};
int strings_add(struct strings *s, const char *text, struct nsbox_error *err);
void strings_done(struct strings *s);

struct image_index {
	char *digest;	/* of what it was imported from: "sha256:..." */
	char *source;	/* directory, tar, oci, docker, commit */
	char *platform; /* "linux/amd64", or "" */
	char *owner;	/* "block" or "caller": whose the layers are */
	char *workdir, *user, *passwd, *group;
	uint64_t bytes, entries;
	struct image_layer *layer; /* the lowest first */
	size_t layers;
	struct strings dirs, files; /* of its top */
	struct strings env, entrypoint, cmd;
};

void index_done(struct image_index *x);
int index_add_layer(struct image_index *x, const char *digest, uint64_t bytes,
		    struct nsbox_error *err);
/* One record of an index, or of what the reader says of an image's configuration. */
int index_record(void *x, const char *key, const char *value, struct nsbox_error *err);
/* malloc'd text */
int index_text(const struct image_index *x, char **ret, size_t *ret_len, struct nsbox_error *err);
int index_read(int fd, struct image_index *ret, struct nsbox_error *err);
/* Open the index of an id; with `operation` (LOCK_SH, LOCK_EX, maybe LOCK_NB) locked. */
int index_open(const struct store *s, const char *id, int operation, int *ret_fd,
	       struct nsbox_error *err);

/* What an image is made of, by its name as store_find() takes it. */
int image_read(const char *state_dir, const char *name, struct image_index *ret,
	       struct nsbox_error *err);

/* ---- owner.c: with the ids of images, and no way to anything but the store's layers */

struct owner_task {
	pid_t pid;
	int report; /* pipe */
};
typedef int owner_fn(void *ctx, struct nsbox_error *err);

/* Runs in a process of its own; memory it should change has to be shared. keep: descriptors that
 * it needs, -1 entries are ignored; all others but the standard ones are closed there. */
int owner_start(const struct store *s, owner_fn *fn, void *ctx, const int *keep, unsigned n,
		struct owner_task *ret, struct nsbox_error *err);
int owner_wait(struct owner_task *t, struct nsbox_error *err);
/* Both at once. */
int owner_run(const struct store *s, owner_fn *fn, void *ctx, struct nsbox_error *err);
/* Remove layers/NAME. */
int owner_remove_layer(const struct store *s, const char *name, struct nsbox_error *err);

/* ---- root.c: the root list of an image; *ret_lock keeps it from being removed */
int image_root_blob(const struct state_dir *state, const char *name, void **ret, size_t *ret_len,
		    char **ret_digest, int *ret_lock, struct nsbox_error *err);

#endif
