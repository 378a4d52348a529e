/* SPDX-License-Identifier: Apache-2.0 */
/* Sending files out of the sandbox: what the helpers that collect and download share. */
#ifndef NSBOX_FILES_SENDER_H
#define NSBOX_FILES_SENDER_H

#include <sys/stat.h>

#include "nsbox/files_format.h"

struct files_sender {
	int fd; /* borrowed */
	struct nsbox_files_limits lim;
	struct files_count count;
};

struct files_sender files_sender(int fd, const struct nsbox_files_limits *lim);
/* `path` is left out, and why; silent where the limit of frames is reached. */
int files_send_note(struct files_sender *s, const char *path, const char *text,
		    struct nsbox_error *err);
/* A regular file that is open, whole. The caller has looked at the limits. */
int files_send_open(struct files_sender *s, int fd, const char *path, const struct stat *st,
		    struct nsbox_error *err);
/* `size` bytes from where fd is, after a header that promised them. */
int files_send_content(struct files_sender *s, int fd, const char *path, uint64_t size,
		       struct nsbox_error *err);
/* END; with r < 0 it carries the error, which err gets as well. Returns r, or what END failed of. */
int files_send_end(struct files_sender *s, int r, const struct nsbox_error *why,
		   struct nsbox_error *err);

#endif
