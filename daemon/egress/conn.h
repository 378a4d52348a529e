/* SPDX-License-Identifier: Apache-2.0 */
/* A connection: shared by relay.c, which brings it about, and pump.c, which moves its bytes. */
#ifndef EGRESS_CONN_H
#define EGRESS_CONN_H

#include "daemon/egress/egress.h"

enum { INSIDE, OUTSIDE };

struct side {
	struct conn *conn;
	int fd;
	struct loop_source *source; /* NULL: nothing to wait for */
	uint32_t events;
	bool eof;  /* nothing more comes from it */
	bool shut; /* nothing more goes to it */
};

/* From side i to the other: what was read and not yet written is in a pipe. */
struct flow {
	struct pipe_end pipe;
	size_t held;
	uint64_t bytes;
};

/* One try to connect to one address. */
struct attempt {
	struct conn *conn;
	int fd; /* -1: none */
	struct loop_source *source;
	unsigned which; /* of the candidates */
	bool at_once;	/* it was connected when it had hardly begun */
};

enum conn_state { CONN_HELLO, CONN_NAMING, CONN_TRYING, CONN_OPEN };

struct handshake;

struct conn {
	struct waiter waiter; /* first: a waiter is its connection */
	struct conn *next, **link;
	struct box *box;
	enum conn_state state;
	struct name *name; /* NULL: an address was meant */
	uint16_t port;
	struct judgement judgement;
	struct outer candidate[OUTER_MAX];
	unsigned n_candidates, tried;
	struct attempt attempt[OUTER_MAX];
	unsigned under_way;
	int last_error;
	struct loop_timer next_try;
	struct outer outer;	     /* connected to */
	struct handshake *handshake; /* with the operator's proxy */
	struct side side[2];
	struct flow flow[2];
	uint64_t began_us, active_us;
};

/* pump.c: the two sockets are connected: move bytes until both have ended. */
void pump_start(struct conn *c);
void pump_run(struct conn *c); /* bytes may pass again */
void pump_done(struct conn *c);

/* hello.c: has it to begin with TLS for its name? Then wait for that. */
bool hello_wanted(const struct conn *c);
void hello_wait(struct conn *c);

/* upstream.c: side[OUTSIDE] is connected to the proxy: have it connect to c->outer. */
void proxy_shake_hands(struct conn *c);

/* relay.c: it may be connected now; it may not; not to this address, but perhaps to another. */
void conn_go_on(struct conn *c);
void conn_refuse(struct conn *c, const char *why, const char *pointer);
void conn_try_again(struct conn *c, int errnum);
/* relay.c: take the connection down. reset: both ends hear of it. errnum 0 with verdict ALLOWED. */
void conn_end(struct conn *c, unsigned verdict, int errnum, const char *why, bool reset);

#endif
