/* SPDX-License-Identifier: Apache-2.0 */
/* The files a run hands back: read from the collecting helper's stream, hashed, kept in memory. */
#ifndef FRONT_OUTPUTS_H
#define FRONT_OUTPUTS_H

#include <nsbox/files.h>

#include "daemon/front/loop.h"

#define OUTPUTS_MAX_BYTES (UINT64_C(64) << 20)
#define OUTPUTS_MAX_FILES 4096

struct output_file {
	char *path;
	char *note; /* why it was not sent; NULL: it was */
	unsigned char *data;
	size_t size, have;
	char sha256[65];
};

struct outputs {
	struct loop *loop;
	struct loop_source *source;
	struct nsbox_files_reader *reader;
	int fd;
	struct output_file *files;
	size_t n, cap;
	struct nsbox_error error; /* code 0 while all is well */
};

/* Read from a pipe whose write end goes to *ret_fd. */
int outputs_start(struct outputs *o, struct loop *l, int *ret_fd, struct nsbox_error *err);
/* The helper is done: take what is there and stop. A stream without its end is an error. */
void outputs_finish(struct outputs *o);
void outputs_done(struct outputs *o); /* zeroed structs are fine */

#endif
