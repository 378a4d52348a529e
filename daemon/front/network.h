/* SPDX-License-Identifier: Apache-2.0 */
/* The front's end of the socket to nsbox-egress: what was decided for which job. */
#ifndef FRONT_NETWORK_H
#define FRONT_NETWORK_H

#include "daemon/common/egress_log.h"
#include "daemon/front/loop.h"

struct network;

typedef void network_event_fn(void *ctx, const struct egress_event *e);
typedef void network_lost_fn(void *ctx, const struct nsbox_error *why);

/* Takes the socket where it succeeds. NULL is fine for all that follow. */
int network_new(struct loop *l, int sock, network_event_fn *on_event, network_lost_fn *on_lost,
		void *ctx, struct network **ret, struct nsbox_error *err);
void network_free(struct network *n);

/* The run of this sandbox is over: end its network, and hear the rest, before anybody is told how it
 * went. Waits a moment at most. */
void network_settle(struct network *n, uint64_t sandbox);
/* The same for a command of a session, whose network stays. */
void network_flush(struct network *n, uint64_t sandbox);

/*
 * From now on these rules have to agree as well. When this returns 0 they are in force, and what
 * they do not cover is cut off. Any error leaves it open whether they are: end the sandbox.
 */
int network_narrow(struct network *n, uint64_t sandbox, const void *rules, size_t len,
		   struct nsbox_error *err);

#endif
