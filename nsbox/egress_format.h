/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What may be reached outside, as the plan carries it (SEC_EGRESS) and nsbox-egress obeys it, and
 * the addresses that exist only inside.
 *
 * The section stands on its own: head, then in this order `rules` struct egress_rule, `nets` struct
 * egress_net, `bans` offsets of patterns, `ports` port numbers, and strings. It holds no pointer;
 * strings are offsets into its own strings, offset 0 is the empty one. egress_check() judges every
 * element once; after it each offset may be followed.
 *
 * Inside a sandbox with egress `lo` has addresses of its own and a route for everything:
 *
 *   198.18.0.1, ...::1      the sandbox: what its connections come from
 *   198.18.0.2, ...::2      nsbox-egress: where redirected packets go, and name server
 *   198.18.1.0, ...::100 on names, one address each, given out by nsbox-egress
 */
#ifndef NSBOX_EGRESS_FORMAT_H
#define NSBOX_EGRESS_FORMAT_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EGRESS_MAGIC UINT32_C(0x33726765) /* "egr3" */
#define EGRESS_MAX   (128u << 10)	  /* bytes of a section */

/* 198.18.0.0/15 (RFC 2544: for tests between hosts, never on the public net) and a fixed ULA. */
#define EGRESS_INNER4	     UINT32_C(0xc6120000)
#define EGRESS_INNER4_PREFIX 15
#define EGRESS_INNER6                                                                              \
	{                                                                                          \
		0xfd, 0x6e, 0x73, 0x62, 0x6f, 0x78                                                 \
	}
#define EGRESS_INNER6_PREFIX 64

/* The last part of an inner address, the same in both families. */
enum egress_place { EGRESS_OWN = 1, EGRESS_BROKER = 2, EGRESS_FIRST_NAME = 0x100 };
#define EGRESS_PLACES 0x20000u /* of a /15 */

/* Ports of nsbox-egress's own listeners, above those that the kernel picks by itself. */
#define EGRESS_PORT_TCP 64998
#define EGRESS_PORT_DNS 64999
#define EGRESS_PORT_UDP 64997

struct egress_net {
	uint8_t family; /* 4 or 6 */
	uint8_t prefix; /* bits */
	uint8_t kind;	/* enum egress_net_kind */
	uint8_t reserved;
	uint8_t addr[16]; /* network order; of IPv4 the first four */
	uint32_t pointer; /* who said so: a JSON pointer, or words */
};

enum egress_net_kind {
	EGRESS_NET_DENIED, /* by the manifest */
	EGRESS_NET_BANNED, /* by the operator */
	EGRESS_NET_OPENED, /* by the operator: may be reached though it is denied by default */
	EGRESS_NET_KINDS
};

enum egress_protocol { EGRESS_TCP, EGRESS_UDP, EGRESS_EITHER /* to be asked for, not to grant */ };

struct egress_rule {
	uint32_t host;		     /* lower-case name, or "*.name"; "": `net` counts */
	uint32_t pointer;	     /* JSON pointer of the grant */
	uint16_t ports, port;	     /* how many and the first one's place in the ports; 0: any */
	uint16_t protocol, reserved; /* enum egress_protocol */
	struct egress_net net;
};

struct egress_limits {
	uint32_t connections;	    /* at the same time */
	uint32_t lookups_per_s;	    /* DNS queries answered */
	uint64_t bytes;		    /* both ways together, 0: no limit */
	uint64_t bytes_per_s;	    /* both ways together, 0: no limit */
	uint32_t idle_s, connect_s; /* without a byte; to connect outside */
	uint32_t total_s, reserved; /* of one connection */
};

struct egress_head {
	uint32_t magic, size; /* of the whole section */
	uint16_t open;	      /* 1: everything public */
	uint16_t rules, nets, bans;
	uint32_t ports;
	uint32_t strings;	/* bytes */
	uint32_t tls, reserved; /* so many of the ports, the first ones: names there take TLS */
	struct egress_limits limits;
};

/* Listeners that the set-up makes and its owner gives to nsbox-egress; those for IPv6 are missing
 * where the kernel has none. */
enum egress_listener {
	EGRESS_TCP4,
	EGRESS_TCP6,
	EGRESS_DNS_UDP4,
	EGRESS_DNS_UDP6,
	EGRESS_DNS_TCP4,
	EGRESS_DNS_TCP6,
	EGRESS_UDP4, /* where anything is granted over UDP, with addresses as they were */
	EGRESS_UDP6,
	EGRESS_LISTENERS
};

/* A checked section. */
struct egress_rules {
	const struct egress_head *head;
	const struct egress_rule *rule;
	const struct egress_net *net;
	const uint32_t *ban; /* extended regular expressions on whole names, any case */
	const uint16_t *port;
	const char *strings;
};

/* Is it well-formed? No allocation, no side effect; fills ret with pointers into it. */
int egress_check(const void *base, size_t size, struct egress_rules *ret, struct nsbox_error *err);

/* "*.example.com" covers names below example.com at any depth; both lower case. */
bool egress_covers(const char *pattern, const char *name);
bool egress_net_has(const struct egress_net *net, uint8_t family, const uint8_t *addr);

/* Which grant covers a name or an address (port 0: at any port); NULL: none. */
const struct egress_rule *egress_find_name(const struct egress_rules *r, const char *name,
					   unsigned protocol, uint16_t port);
const struct egress_rule *egress_find_addr(const struct egress_rules *r, uint8_t family,
					   const uint8_t *addr, unsigned protocol, uint16_t port);
bool egress_has_udp(const struct egress_rules *r); /* anything granted over it */

/*
 * Is everything that `a` grants granted by `b` as well, at each of its ports? Else *ret_pointer is
 * what a names that grant by. Denials are not compared: those of both hold where both have to agree.
 */
bool egress_within(const struct egress_rules *a, const struct egress_rules *b,
		   const char **ret_pointer);

/*
 * Why an address is never connected to, or NULL. Networks of the manifest and bans come first, then
 * what the operator has opened, then what is denied to all: an IPv6 address that carries an IPv4
 * one is judged as that as well.
 */
struct egress_denial {
	const char *why;     /* "private", "a network of network.denyCidrs", ... */
	const char *pointer; /* "" where no one can be named */
};
bool egress_denied(const struct egress_rules *r, uint8_t family, const uint8_t *addr,
		   struct egress_denial *ret);

/* Networks that are denied to all, for the packet filter; NULL past the last. */
const struct egress_net *egress_builtin(size_t i, const char **ret_what);

/* "10.0.0.0/8"; a single address is without its prefix. */
void egress_net_text(const struct egress_net *net, char *buf, size_t size);

/* An inner address. */
void egress_inner(uint8_t family, uint32_t place, uint8_t ret[16]);
/* The place that an address stands for, 0: none. */
uint32_t egress_place_of(uint8_t family, const uint8_t *addr);

#endif
