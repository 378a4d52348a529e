/* SPDX-License-Identifier: Apache-2.0 */
/* `nsbox session shell`, and what it has from session.c. */
#ifndef NSBOX_CLI_SESSION_SHELL_H
#define NSBOX_CLI_SESSION_SHELL_H

#include "nsbox/cli/job_request.h"

int session_shell(int argc, char **argv);

/* Options, then the name; what follows it is the caller's. -1, or an exit status. */
int session_read_line(int argc, char **argv, const char *usage, const struct option_row *rows,
		      struct job_options *o);

#endif
