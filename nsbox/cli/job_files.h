/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a job: into its request, and out of its result. */
#ifndef NSBOX_CLI_JOB_FILES_H
#define NSBOX_CLI_JOB_FILES_H

#include <nsbox/error.h>

struct json_object;

/* SRC[:DST], a file or a directory, as entries of `list`. */
int job_files_add(struct json_object *list, const char *text, struct nsbox_error *err);
/* The outputs of a result into a directory, which is made where it is missing. */
int job_files_write(struct json_object *result, const char *dir, struct nsbox_error *err);

#endif
