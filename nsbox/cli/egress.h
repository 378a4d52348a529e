/* SPDX-License-Identifier: Apache-2.0 */
/* nsbox-egress as a child of `nsbox run`, for a run that may reach something outside. */
#ifndef NSBOX_CLI_EGRESS_H
#define NSBOX_CLI_EGRESS_H

#include <nsbox/plan.h>
#include <nsbox/sandbox.h>
#include <stdbool.h>
#include <sys/types.h>

#include "daemon/common/egress_log.h"

struct run_egress {
	int sock; /* -1: none is needed, or it is gone */
	pid_t pid;
	const void *rules;
	size_t len;
	struct egress_log log;
};

void run_egress_init(struct run_egress *e);
/* Start one if the plan needs it, and wait until it is ready. servers NULL: those of resolv.conf;
 * proxy NULL: none. */
int run_egress_start(struct run_egress *e, const struct nsbox_plan *plan, const char *servers,
		     const char *proxy, struct nsbox_error *err);
/* NSBOX_EVENT_LISTENERS: hand them over. */
int run_egress_listeners(struct run_egress *e, struct nsbox_sandbox *sb, struct nsbox_error *err);
/* Take what it has to tell. */
void run_egress_read(struct run_egress *e);
/* The run is over: the rest of it, and the totals. */
void run_egress_finish(struct run_egress *e);
void run_egress_done(struct run_egress *e);

#endif
