/* SPDX-License-Identifier: Apache-2.0 */
/* What nsbox-egress decided for one run: kept as it comes, counted, and said as JSON. */
#ifndef DAEMON_EGRESS_LOG_H
#define DAEMON_EGRESS_LOG_H

#include "daemon/common/egress_wire.h"

struct json_object;

#define EGRESS_KEPT    1000 /* decisions that are kept one by one */
#define EGRESS_DENIALS 256  /* different things that were refused */

struct egress_denial_count {
	struct egress_event first;
	uint64_t times;
};

/* Zeroed: nothing was decided. */
struct egress_log {
	bool used;		  /* the run has egress */
	bool lost;		  /* nsbox-egress ended before the run */
	uint32_t refused_at_once; /* by the packet filter, before anything reached nsbox-egress */
	struct egress_totals totals;
	struct egress_event *kept;
	size_t n_kept;
	struct egress_denial_count *denials;
	size_t n_denials;
};

/* Take a decision, or the totals. */
void egress_log_take(struct egress_log *l, const struct egress_event *e);
/* A decision, where totals are of more than the log is about. */
void egress_log_count(struct egress_log *l, const struct egress_event *e);
void egress_log_done(struct egress_log *l);

struct json_object *egress_event_json(const struct egress_event *e);
/* Counts, and with `decisions` each of them; NULL where the run has no egress. */
struct json_object *egress_log_json(const struct egress_log *l, bool decisions);
struct json_object *egress_log_denials(const struct egress_log *l); /* [] where there are none */

#endif
