/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the files that write a layer: layer_write.c (the stream), layer_place.c (where an entry goes, and
 * whose it is), layer_entry.c (what is made of one).
 */
#ifndef NSBOX_LAYER_WRITER_H
#define NSBOX_LAYER_WRITER_H

#include "nsbox/files_format.h"
#include "nsbox/layer_stream.h"

#define LAYER_CHUNK  (256u << 10)
#define LAYER_XATTRS 65536 /* bytes of attributes of one file */

struct dir_meta {
	char *path;
	size_t order; /* of its frame */
	uint32_t mode, uid, gid;
	int64_t mtime;
};

struct layer_writer {
	int in, top_fd;
	bool own;
	const struct layer_options *opt;
	struct layer_sums *sums;
	struct nsbox_error *err;
	/* read ahead */
	unsigned char buf[LAYER_CHUNK];
	size_t at, have;
	/* the frame */
	struct layer_frame f;
	char path[FILES_PATH_MAX];
	char extra[LAYER_EXTRA_MAX + 1];
	/* attributes for the next entry: name, NUL, length, value, ... */
	char xattr[LAYER_XATTRS];
	size_t xattr_len;
	/* the last directory written to, and the text of its path */
	int parent_fd;
	char parent[FILES_PATH_MAX];
	struct dir_meta *dir;
	size_t dirs, room;
};

int layer_fail(struct layer_writer *w, int errnum, const char *what);
int layer_refuse(struct layer_writer *w, int code, const char *why);
int layer_fill(struct layer_writer *w);
uint32_t layer_stored_id(const struct layer_writer *w, uint32_t id);
int layer_own(struct layer_writer *w, int fd);
int layer_own_link(struct layer_writer *w, int parent, const char *name);
int layer_keep_xattr(struct layer_writer *w);
int layer_set_xattrs(struct layer_writer *w, int fd);
int layer_parent_of(struct layer_writer *w, int *ret_fd, const char **ret_name);
int layer_clear_place(struct layer_writer *w, int parent, const char *name);
int layer_set_opaque(struct layer_writer *w, int fd);
int layer_finish_dirs(struct layer_writer *w);
/* By the kind of a frame. */
extern int (*const layer_handlers[LAYER_KIND_MAX])(struct layer_writer *w);

#endif
