/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layer stream: a file tree on its way into the store of images, or out of and into the upper
 * layer of a sandbox.
 *
 * Frames over a pipe, each a fixed header, a path, `extra` bytes and, for files, the content. It is
 * the file stream of nsbox/files.h with what images have besides: owners, times, hard links,
 * attributes, whiteouts. One writer makes a layer of it (layer_write.c); it comes from the confined
 * reader of archives (overlay/reader/), from a directory (overlay/image/layer_dir.c) or from a
 * sandbox (upper.c).
 *
 * Paths as in the file stream: relative, 1-4095 bytes, no empty, "." or ".." component. "" is the
 * top, where a frame may have it. Whoever reads a stream checks it: the writer's peer may be a
 * parser that an archive has taken over.
 */
#ifndef NSBOX_LAYER_STREAM_H
#define NSBOX_LAYER_STREAM_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAYER_MAGIC	UINT32_C(0x3172796c) /* "lyr1" */
#define LAYER_EXTRA_MAX 65536

enum layer_kind {
	LAYER_END = 1,	/* extra: struct layer_end */
	LAYER_DIR,	/* path may be "" */
	LAYER_FILE,	/* size bytes of content follow */
	LAYER_SYMLINK,	/* extra: target */
	LAYER_HARDLINK, /* extra: path of a file that came before */
	LAYER_WHITEOUT, /* path of lower layers is gone */
	LAYER_OPAQUE,	/* what lower layers have in this directory is gone; path may be "" */
	LAYER_XATTR,	/* extra: name, NUL, value; for the DIR or FILE that comes next */
	LAYER_SKIPPED,	/* an entry that layers do not have (devices, sockets, FIFOs) */
	LAYER_KIND_MAX
};

struct layer_frame {
	uint32_t magic;
	uint16_t kind;
	uint16_t path_len;
	uint32_t extra;
	uint32_t mode; /* 07777 bits */
	uint32_t uid, gid;
	uint64_t size; /* FILE: of the content */
	int64_t mtime; /* seconds */
};

struct layer_end {
	uint32_t code; /* enum nsbox_error_code, 0: whole */
	char diff[68]; /* hex SHA-256 of the archive as inflated, "" where there was none */
	char msg[NSBOX_ERROR_MSG_MAX];
};

struct layer_limits {
	uint64_t bytes;	  /* of all files together */
	uint32_t entries; /* frames */
};
/* An image of a whole desktop distribution, with room; `nsbox image import` can ask for more. */
#define LAYER_LIMITS_DEFAULT ((struct layer_limits){ UINT64_C(32) << 30, 2000000 })

#define OVL_OPAQUE	"user.overlay.opaque"
#define OVL_PREFIX	"user.overlay."
#define WHITEOUT_PREFIX ".wh."
#define WHITEOUT_OPAQUE ".wh..wh..opq"

/* ---- layer_stream.c: writing (blocking), for readers and walkers alike. System calls alone. */

int layer_put(int fd, const struct layer_frame *f, const char *path, const void *extra,
	      struct nsbox_error *err);
/* why NULL or without a code: whole. diff may be NULL. */
int layer_put_end(int fd, const struct nsbox_error *why, const char *diff, struct nsbox_error *err);
/* Is this header one that a stream may have, where the frames before came to these sums? */
int layer_check(const struct layer_frame *f, struct nsbox_error *err);
/* The path of a checked header, NUL-terminated. */
int layer_check_path(const struct layer_frame *f, const char *path, struct nsbox_error *err);
/* May an image bring this attribute? Those of users, but not the overlay's own. */
bool layer_xattr_ok(const char *name);

/* ---- layer_write.c */

struct layer_sums {
	uint64_t bytes;
	uint32_t entries, skipped;
	char diff[68];
};

struct layer_options {
	bool own; /* with the owners that the stream names; else all is the caller's */
	/* Of a sandbox and not of an image: 1000 is the run and stays that; and directories come a
	 * second time behind what is in them, so nothing has to be remembered: no heap is used. */
	bool upper;
	struct layer_limits lim;
};

/* Make the directory dir_fd what the stream says. It is read to its END, or to an error. */
int layer_write(int fd, int dir_fd, const struct layer_options *opt, struct layer_sums *ret,
		struct nsbox_error *err);

/* ---- overlay/image/layer_dir.c */

/* Send the tree below dir_fd, END included; `why` it could not is in END and returned. */
int layer_send_dir(int fd, int dir_fd, struct nsbox_error *err);

#endif
