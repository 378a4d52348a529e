/* SPDX-License-Identifier: Apache-2.0 */
/* What a job writes, as it writes it. */
#ifndef NSBOX_CLI_JOB_LOGS_H
#define NSBOX_CLI_JOB_LOGS_H

#include <stdbool.h>

/* Of the job at this path of the service, until its end; json: all events, a line each. An exit status. */
int job_logs_print(const char *socket, const char *path, bool json);

struct json_object;
/*
 * Of an interactive command, which this asks for; `begun` hears of its job before any of its
 * output. *ret (the caller's, may be NULL either way): how the job ended. An exit status.
 */
int job_talk_print(const char *socket, struct json_object *body,
		   void (*begun)(void *ctx, const char *job), void *ctx, struct json_object **ret);

#endif
