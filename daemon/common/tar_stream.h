/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file stream (nsbox/files.h) becomes a tar file as it comes: what a download hands out. Files,
 * directories and links; modes but no owners; names as they are, in pax records where the plain
 * header cannot say them.
 */
#ifndef COMMON_TAR_STREAM_H
#define COMMON_TAR_STREAM_H

#include <nsbox/files.h>

struct tar_stream;

struct tar_out {
	/* Bytes of the tar file, in order. */
	int (*write)(void *ctx, const void *buf, size_t len, struct nsbox_error *err);
	/* `path` is not in it, and why. May be NULL. */
	void (*left_out)(void *ctx, const char *path, const char *why);
	void *ctx;
	int64_t mtime; /* of every entry, seconds */
};

int tar_stream_new(const struct tar_out *out, const struct nsbox_files_limits *lim,
		   struct tar_stream **ret, struct nsbox_error *err);
/* The next bytes of the file stream. With its end the tar file's is written. */
int tar_stream_feed(struct tar_stream *t, const void *buf, size_t len, struct nsbox_error *err);
bool tar_stream_done(const struct tar_stream *t);
void tar_stream_free(struct tar_stream *t);

#endif
