/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file stream: how files travel into and out of a sandbox.
 *
 * A sequence of frames over a pipe or memfd: a fixed header, the path (no NUL), then the content.
 * Directories come before what is in them. It ends with a frame of kind END; a stream that just
 * stops is an error. Archives (tar, zip) are turned into this stream by a confined worker; skill
 * directories by nsbox_files_send_dir(). Host byte order: it never leaves the machine.
 *
 * Paths are relative, of 1-4095 bytes, with no empty, "." or ".." component, no NUL and no
 * component over 255 bytes; names are bytes. The receiver checks all of this and opens with
 * RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS.
 */
#ifndef NSBOX_FILES_H
#define NSBOX_FILES_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

#define NSBOX_FRAME_MAGIC UINT32_C(0x316d7266) /* "frm1" */

enum nsbox_frame_kind {
	NSBOX_FRAME_END =
		1, /* aux: enum nsbox_error_code of the sender, 0 for a whole stream; content: message */
	NSBOX_FRAME_DIR,     /* mode */
	NSBOX_FRAME_FILE,    /* mode, size bytes of content */
	NSBOX_FRAME_SYMLINK, /* content is the target */
	NSBOX_FRAME_BASE,    /* path is an absolute inside directory: what follows goes below it */
	NSBOX_FRAME_NOTE,    /* collect: path was not sent; content says why */
};

struct nsbox_frame {
	uint32_t magic;
	uint16_t kind;
	uint16_t path_len;
	uint32_t mode; /* 0777 bits; set-id bits are dropped */
	uint32_t aux;
	uint64_t size; /* of the content */
};

struct nsbox_files_limits {
	uint64_t total_bytes;
	uint32_t files; /* frames */
};
#define NSBOX_FILES_LIMITS_DEFAULT ((struct nsbox_files_limits){ 256u << 20, 20000 })

/* ---- writing (blocking; the descriptor is borrowed) */

int nsbox_files_put_frame(int fd, int kind, const char *path, uint32_t mode, const void *data,
			  uint64_t size, struct nsbox_error *err);
int nsbox_files_end(int fd, struct nsbox_error *err);
/*
 * Send the tree below an open directory as frames: regular files, directories and symbolic links
 * whose target stays inside the tree; sockets, devices and FIFOs are an error that names them.
 * dir_fd is borrowed. Never follows a link.
 */
int nsbox_files_send_dir(int fd, int dir_fd, const struct nsbox_files_limits *lim,
			 struct nsbox_error *err);

/* ---- reading */

/*
 * Take a stream into a directory of the caller (for `--output DIR`): each file is made new below
 * dir_fd, never through a link, 0644/0755 and 0755 for directories. Existing files are replaced.
 * `each` (may be NULL) hears of every file and note.
 */
typedef void nsbox_files_fn(void *ctx, int kind, const char *path, uint64_t size, const char *note);
int nsbox_files_receive_dir(int fd, int dir_fd, const struct nsbox_files_limits *lim,
			    nsbox_files_fn *each, void *ctx, struct nsbox_error *err);

/*
 * Incremental reader for event loops: feed bytes as they come. The callbacks borrow their
 * arguments. Malformed input makes nsbox_files_feed() fail for good.
 */
struct nsbox_files_reader;
struct nsbox_files_sink {
	int (*begin)(void *ctx, int kind, const char *path, uint32_t mode, uint64_t size,
		     struct nsbox_error *err);
	int (*data)(void *ctx, const void *buf, size_t len, struct nsbox_error *err);
	int (*finish)(void *ctx, struct nsbox_error *err);
};
int nsbox_files_reader_new(const struct nsbox_files_sink *sink, void *ctx,
			   const struct nsbox_files_limits *lim, struct nsbox_files_reader **ret,
			   struct nsbox_error *err);
void nsbox_files_reader_free(struct nsbox_files_reader *r);
int nsbox_files_feed(struct nsbox_files_reader *r, const void *buf, size_t len,
		     struct nsbox_error *err);
bool nsbox_files_done(const struct nsbox_files_reader *r); /* END was seen */

/* Is this a relative path as described above? `max` bytes of path, no NUL needed. */
int nsbox_files_check_path(const char *path, size_t len, struct nsbox_error *err);

#pragma GCC visibility pop

#endif
