/* SPDX-License-Identifier: Apache-2.0 */
/* nsbox-egress as a child of `nsbox run`, for a run that may reach something outside. */
#ifndef NSBOX_CLI_EGRESS_H
#define NSBOX_CLI_EGRESS_H

#include <nsbox/plan.h>
#include <nsbox/sandbox.h>
#include <stdbool.h>
#include <sys/types.h>

#include "daemon/common/egress_wire.h"

struct json_object;

/* What was refused, each thing once. */
struct egress_denial_count {
	struct egress_event first;
	uint64_t times;
};

#define EGRESS_KEPT    1000 /* decisions that the report shows */
#define EGRESS_DENIALS 256

struct run_egress {
	int sock; /* -1: none is needed, or it is gone */
	pid_t pid;
	bool used, lost; /* there was one; it went away under the run */
	const void *rules;
	size_t len;
	struct egress_totals totals;
	struct egress_event *kept;
	size_t n_kept;
	struct egress_denial_count *denials;
	size_t n_denials;
};

void run_egress_init(struct run_egress *e);
/* Start one if the plan needs it, and wait until it is ready. servers NULL: those of resolv.conf. */
int run_egress_start(struct run_egress *e, const struct nsbox_plan *plan, const char *servers,
		     struct nsbox_error *err);
/* NSBOX_EVENT_LISTENERS: hand them over. */
int run_egress_listeners(struct run_egress *e, struct nsbox_sandbox *sb, struct nsbox_error *err);
/* Take what it has to tell. */
void run_egress_read(struct run_egress *e);
/* The run is over: the rest of it, and the totals. */
void run_egress_finish(struct run_egress *e);
void run_egress_done(struct run_egress *e);

/* For the report; NULL where there was none. */
struct json_object *run_egress_json(const struct run_egress *e);
struct json_object *run_egress_denials(const struct run_egress *e);

#endif
