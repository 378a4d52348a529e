/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What supervisor and front say to each other, packets of wire.h over a pair of sockets. The
 * supervisor has the files of the operator and the service manager, the front knows what runs.
 */
#ifndef FRONT_ORDERS_H
#define FRONT_ORDERS_H

#include "daemon/common/wire.h"
#include "daemon/front/options.h"

enum order_kind {
	/* To the front: */
	ORDER_OPTIONS, /* be this: a memfd of struct front_options, and the files it names */
	ORDER_FAILED,  /* the reload came to nothing: error */
	ORDER_DRAIN,   /* finish what runs, within arg seconds, then end */
	ORDER_PING,
	/* To the supervisor: */
	ORDER_READY,   /* it serves */
	ORDER_TAKEN,   /* the options are in force; error.code: they are not, the old ones are */
	ORDER_RELOAD,  /* a client wishes it */
	ORDER_DRAINED, /* and now it ends, for good */
	ORDER_PONG,
	ORDER_KINDS
};

/* Which descriptors come with ORDER_OPTIONS behind the options, in this order; order.arg. */
enum order_files { ORDER_TCP = 1, ORDER_TOKENS = 2, ORDER_SECRETS = 4 };

struct order {
	uint32_t magic, kind;
	uint64_t arg;
	struct nsbox_error error;
};

int order_send(int sock, enum order_kind kind, uint64_t arg, const struct nsbox_error *why,
	       const int *fds, unsigned n);
/* As wire_recv(), of a known kind alone. */
int order_recv(int sock, struct order *ret, int fds[static WIRE_FDS_MAX], unsigned *ret_n,
	       struct nsbox_error *err);

#endif
