/* SPDX-License-Identifier: Apache-2.0 */
/* On a terminal, a line that tells how long it has been, while the daemon is waited for. */
#ifndef NSBOX_CLI_PROGRESS_H
#define NSBOX_CLI_PROGRESS_H

#include <stdbool.h>
#include <sys/types.h>

/* 0: there is no line, because standard error is no terminal or `quiet`. */
pid_t progress_start(bool quiet, const char *what);
void progress_stop(pid_t pid);

#endif
