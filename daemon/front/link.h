/* SPDX-License-Identifier: Apache-2.0 */
/* The front's end of the socket to nsbox-spawn. */
#ifndef FRONT_LINK_H
#define FRONT_LINK_H

#include "daemon/common/wire.h"
#include "daemon/front/loop.h"

struct link;
/* A descriptor in the event is the receiver's. */
typedef void link_event_fn(void *ctx, struct wire_event *w);
typedef void link_lost_fn(void *ctx, const struct nsbox_error *why);

/* Waits for the greeting (up to some seconds), then watches the socket, which is its own
 * where it succeeds. */
int link_new(struct loop *l, int sock, link_event_fn *on_event, link_lost_fn *on_lost, void *ctx,
	     struct nsbox_host *ret_host, struct link **ret, struct nsbox_error *err);
void link_free(struct link *k);
/* Never blocks: what the socket does not take now waits. Descriptors are borrowed. */
int link_send(struct link *k, struct wire_request *q, const int *fds, unsigned n,
	      struct nsbox_error *err);

#endif
