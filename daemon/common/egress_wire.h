/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between nsbox-egress and those that it works for: fixed structs over a SOCK_SEQPACKET
 * pair, descriptors by SCM_RIGHTS. One owner (nsbox run, or nsbox-spawn) makes sandboxes known and
 * ends them; one listener (the same, or the service's front) hears what was decided. A malformed
 * message ends nsbox-egress, and with it the network of all.
 *
 *   ADD      rules (egress_format.h) behind the struct; descriptors of the listeners that `arg` has
 *   NARROW   rules behind the struct: from now on they have to agree as well; NARROWED follows
 *   FLUSH    answer with TOTALS once everything decided so far was told
 *   REMOVE   end the sandbox's network; TOTALS follow
 *   READY    nsbox-egress has locked itself down and takes orders
 *   DECISION one name or connection: allowed and now over, or refused, or failed
 *   TOTALS   counters of the sandbox
 *   NARROWED it holds, what it does not cover is cut off; `sandbox` 0: there is none (any more, or
 *            yet: its ADD may be on the way by the other socket)
 */
#ifndef DAEMON_EGRESS_WIRE_H
#define DAEMON_EGRESS_WIRE_H

#include <nsbox/error.h>
#include <nsbox/sandbox.h>
#include <stddef.h>
#include <stdint.h>

#include "nsbox/egress_format.h"

#define EGRESS_WIRE_MAGIC UINT32_C(0x31776765) /* "egw1" */

enum egress_order { EGRESS_ADD = 1, EGRESS_NARROW, EGRESS_FLUSH, EGRESS_REMOVE, EGRESS_ORDERS };

struct egress_request {
	uint32_t magic, kind;
	uint64_t sandbox; /* the owner's number, never 0 */
	uint32_t arg;	  /* ADD: listeners that come along, a bit each */
	uint32_t len;	  /* bytes of rules behind this struct */
};

enum egress_note {
	EGRESS_READY = 1,
	EGRESS_DECISION,
	EGRESS_TOTALS,
	EGRESS_NARROWED,
	EGRESS_NOTES
};

/* DATAGRAMS: what went between two places over UDP until nothing did for a while. */
enum egress_what { EGRESS_LOOKUP, EGRESS_CONNECTION, EGRESS_DATAGRAMS };
/* REFUSED: by a rule. FAILED: allowed, and it did not come about outside. */
enum egress_verdict { EGRESS_ALLOWED, EGRESS_REFUSED, EGRESS_FAILED };
extern const char *const egress_what_names[], *const egress_verdict_names[];

struct egress_totals {
	uint64_t connections, refused, failed; /* of connections */
	uint64_t lookups, lookups_refused, lookups_failed;
	uint64_t bytes_out, bytes_in; /* as seen from inside */
	uint64_t untold;	      /* decisions that were counted and not told */
};

struct egress_event {
	uint32_t magic, kind;
	uint64_t sandbox;
	uint32_t what, verdict;
	uint32_t port, errnum;
	uint64_t bytes_out, bytes_in, duration_us;
	char name[256];	  /* that was meant, "" where an address was */
	char address[48]; /* connected to, or meant; "" for lookups that never got one */
	char pointer[96]; /* of the grant, or of what denies; "" for none */
	char why[96];	  /* "" where allowed */
	struct egress_totals totals;
};

/* Descriptors are borrowed. 0, -EAGAIN, or -errno with err filled. */
int egress_send(int sock, uint32_t kind, uint64_t sandbox, const void *rules, size_t len,
		unsigned listeners, const int fds[NSBOX_LISTENERS_MAX], struct nsbox_error *err);
/* 1 with an event, whose strings end; 0 at the end of the stream; -EAGAIN; or -errno. */
int egress_recv(int sock, struct egress_event *ret, struct nsbox_error *err);

#endif
