/* SPDX-License-Identifier: Apache-2.0 */
/* What a job writes, as it writes it. */
#ifndef NSBOX_CLI_JOB_LOGS_H
#define NSBOX_CLI_JOB_LOGS_H

#include <stdbool.h>

/* Of the job at this path of the service, until its end; json: all events, a line each. An exit status. */
int job_logs_print(const char *socket, const char *path, bool json);

#endif
