/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of nsbox-egress. One thread, one loop (daemon/front/loop.h):
 *
 *   control.c   orders of the owner, and what is told back
 *   box.c       one sandbox: its rules, listeners and counters
 *   names.c     names that a sandbox asked for, each with an inner address of its own
 *   resolver.c  addresses outside, by c-ares
 *   lookup.c    the name server inside (dns.c: its messages)
 *   relay.c     connections: who is meant, may it be, which address answers first
 *   hello.c     connections that have to begin with TLS for their name (tls.c: that beginning)
 *   upstream.c  the operator's proxy
 *   pump.c      bytes between two sockets
 *   datagram.c  what goes over UDP (way.c: where each datagram comes from and goes to)
 *   confine.c   what the process does to itself before all that
 */
#ifndef EGRESS_EGRESS_H
#define EGRESS_EGRESS_H

#include <netinet/in.h>
#include <regex.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "daemon/common/egress_wire.h"
#include "daemon/front/loop.h"

struct resolver;
struct reports;
struct lookup_socket;
struct datagrams;
struct conn;
struct name;

struct pipe_end {
	int fd[2];
};
#define SPARE_PIPES 32

struct proxy {
	struct sockaddr_storage addr;
	socklen_t len; /* 0: there is none */
	bool socks;    /* else HTTP */
};

struct broker {
	struct loop *loop;
	struct resolver *resolver;
	struct reports *reports;
	struct box *boxes;
	unsigned conns, conns_max; /* of all sandboxes */
	struct proxy proxy;
	struct pipe_end spare[SPARE_PIPES];
	unsigned spares;
	struct loop_timer tick; /* once a second: what has been idle too long */
};

/* ------------------------------------------------------------------ a sandbox */

/* Rules as they came; all of a sandbox's have to agree. */
struct ruleset {
	struct ruleset *next;
	struct egress_rules rules;
	regex_t *bans;
	unsigned n_bans;
	char bytes[] __attribute__((aligned(8)));
};

struct box {
	struct box *next;
	struct broker *broker;
	uint64_t id;
	struct ruleset *sets; /* the first is what it was made with */
	int fd[NSBOX_LISTENERS_MAX];
	struct loop_source *accepting[2]; /* EGRESS_TCP4, EGRESS_TCP6 */
	struct lookup_socket *lookups;
	struct name **by_text, **by_place;
	uint32_t n_names, room;
	struct conn *conns;
	struct datagrams *datagrams; /* NULL: nothing over UDP */
	unsigned n_conns;	     /* flows of datagrams count as well */
	int64_t tokens;		     /* bytes that may pass now; where the rate is limited */
	double lookup_tokens;	     /* questions that may be answered now */
	uint64_t refilled_us, lookups_refilled_us;
	struct loop_timer refill, accept_again;
	struct egress_totals totals;
};

/* Takes the listeners (-1: none), also where it fails. */
int box_new(struct broker *b, uint64_t id, const void *rules, size_t len,
	    int fd[NSBOX_LISTENERS_MAX], struct nsbox_error *err);
/* More rules, which have to agree from now on; what they do not cover is cut off. */
int box_narrow(struct box *x, const void *rules, size_t len, struct nsbox_error *err);
struct box *box_find(struct broker *b, uint64_t id);
void box_free(struct box *x);

struct judgement {
	bool allowed;
	char why[96], pointer[96];
};
/* May the name be looked up (EGRESS_EITHER, port 0) or reached at this port? */
void box_judge_name(const struct box *x, const char *name, unsigned protocol, uint16_t port,
		    struct judgement *ret);
void box_judge_addr(const struct box *x, uint8_t family, const uint8_t *addr, unsigned protocol,
		    uint16_t port, struct judgement *ret);
/* Does the operator want TLS for the name there? */
bool box_takes_tls(const struct box *x, uint16_t port);
/* Is the address one that nobody is connected to? Fills ret where it is. */
bool box_denies(const struct box *x, uint8_t family, const uint8_t *addr, struct judgement *ret);
const struct egress_limits *box_limits(const struct box *x);

/* ------------------------------------------------------------------ names */

#define OUTER_MAX 16
#define CHAIN_MAX 8

struct outer {
	uint8_t family, addr[16];
};

struct waiter {
	void (*fn)(struct waiter *w, struct name *n);
	struct waiter *next;
};

enum name_state { NAME_UNKNOWN, NAME_KNOWN, NAME_MISSING, NAME_EMPTY, NAME_FAILED };

struct name {
	struct box *box;
	uint32_t place; /* of its inner addresses */
	struct name *next;
	enum name_state state;
	uint32_t ttl;
	uint64_t fresh_until;
	struct outer outer[OUTER_MAX];
	unsigned n_outer;
	char *chain[CHAIN_MAX + 1];
	struct resolver_ask *ask; /* under way, or NULL */
	struct waiter *waiters;
	char text[];
};

struct resolver_ask { /* a question under way; name NULL: nobody wants to know any more */
	struct name *name;
};

/* The name's entry, made where there is none; NULL where no more can be had. */
struct name *name_get(struct box *x, const char *text);
struct name *name_at(struct box *x, uint32_t place);
/* Call w->fn when the addresses of the name are known and fresh: perhaps at once. */
void name_wait(struct name *n, struct waiter *w);
void name_forget(struct name *n, struct waiter *w);
void names_free(struct box *x);
/* resolver.c: the answer is in *n. */
void name_answered(struct name *n);

int resolver_new(struct loop *l, const char *servers, struct resolver **ret,
		 struct nsbox_error *err);
void resolver_ask(struct resolver *r, struct name *n);
void resolver_free(struct resolver *r);

/* ------------------------------------------------------------------ the rest */

int lookup_open(struct box *x, struct nsbox_error *err);
void lookup_close(struct box *x);

int relay_open(struct box *x, struct nsbox_error *err);
void relay_close(struct box *x);  /* all connections of the sandbox */
void relay_judge(struct box *x);  /* cut off what is not allowed any more */
void relay_tick(struct box *x);	  /* what has been idle too long, or connecting */
void relay_refill(struct box *x); /* bytes may pass again */

int datagrams_open(struct box *x, struct nsbox_error *err);
void datagrams_close(struct box *x);
void datagrams_judge(struct box *x);
void datagrams_tick(struct box *x);

/* pump.c: how many bytes may pass now, 0: none for a while; so many did: false at the limit. */
size_t pump_allowance(struct box *x);
bool pump_count(struct box *x, bool out, size_t n);

/* control.c */
int control_run(struct broker *b, int control, int report, struct nsbox_error *err);
void report_event(struct box *x, struct egress_event *e);

/* url NULL: none */
int proxy_read(struct proxy *p, const char *url, struct nsbox_error *err);

int confine(struct nsbox_error *err);

#endif
