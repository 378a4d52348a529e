/* SPDX-License-Identifier: Apache-2.0 */
/* The file that an observer writes a run's failed opens to (struct nsbox_trace), and reading it. */
#ifndef DAEMON_TRACE_FILE_H
#define DAEMON_TRACE_FILE_H

#include <nsbox/sandbox.h>

struct json_object;

struct trace_file {
	int fd;				 /* for nsbox_io.trace; 0 or -1: none */
	const struct nsbox_trace *table; /* NULL: none */
};

int trace_file_open(struct trace_file *ret, struct nsbox_error *err);
void trace_file_close(struct trace_file *t);
/* A row for each name that could not be opened, for `denials`. */
void trace_file_tell(const struct trace_file *t, struct json_object *list);

#endif
