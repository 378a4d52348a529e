/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network of a session: the rules in force, what was decided for it, and how both change. They
 * only ever narrow: by a client (PATCH /v1/sessions/ID), and by a reload of the operator's ceiling.
 */
#ifndef FRONT_SESSION_NETWORK_H
#define FRONT_SESSION_NETWORK_H

#include "daemon/common/egress_log.h"

struct front;
struct json_object;
struct session;

struct session_network {
	void *rules; /* that it was made with, or narrowed to last; NULL: it has no network */
	size_t len;
	unsigned narrowings;   /* by clients */
	bool late;	       /* the ceiling changed before it was ready */
	struct egress_log log; /* decisions while no command ran, and counts of all */
};

/* From its plan, which the maker of the session has. */
int session_network_take(struct session *s, int plan_fd, struct nsbox_error *err);
void session_network_ready(struct session *s);
void session_network_event(struct session *s, const struct egress_event *e);
/* Its end: nothing more comes; what no command's reply told goes to the audit. */
void session_network_over(struct session *s);
void session_network_done(struct session *s);
void session_network_put(const struct session *s, struct json_object *o);

/* Rules of a plan; *ret NULL: it grants nothing. */
int session_network_rules(int plan_fd, void **ret, size_t *ret_len, struct nsbox_error *err);
/* Has a plan for one command the rules in force? -EEXIST where they are others. */
int session_network_same(const struct session *s, int plan_fd, struct nsbox_error *err);
/*
 * From now on these, for all of the session; rules NULL: nothing. -EEXIST where they are wider; wish is
 * for the audit.
 */
int session_network_narrow(struct session *s, const void *rules, size_t len,
			   struct json_object *wish, struct nsbox_error *err);

/* The ceiling is another: live sessions have to agree with it as well. */
void session_network_reload(struct front *f);

#endif
