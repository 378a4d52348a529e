/* SPDX-License-Identifier: Apache-2.0 */
/* DNS messages: reading a question, writing an answer. Pure: bytes in, bytes out. */
#ifndef EGRESS_DNS_H
#define EGRESS_DNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DNS_NAME_MAX	256 /* as text, with its NUL */
#define DNS_ANSWER_MAX	2048
#define DNS_UDP_PLAIN	512 /* what a client takes that does not say more */
#define DNS_MESSAGE_MAX 4096

enum dns_rcode {
	DNS_OK = 0,
	DNS_FORMERR = 1,
	DNS_SERVFAIL = 2,
	DNS_NXDOMAIN = 3,
	DNS_NOTIMP = 4,
	DNS_REFUSED = 5
};
enum dns_type { DNS_A = 1, DNS_CNAME = 5, DNS_AAAA = 28, DNS_OPT = 41 };

struct dns_question {
	uint16_t id, flags, type, class;
	uint16_t end;		 /* bytes of header and question */
	uint16_t udp_max;	 /* bytes of an answer that the client takes by UDP */
	bool edns;		 /* it sent an OPT record */
	char name[DNS_NAME_MAX]; /* lower case, no trailing dot; "" for the root */
	bool plain;		 /* only letters, digits, '-' and '_' in its labels */
};

/*
 * Read a query. 0; or the rcode of the answer it deserves (ret->id, flags and end are filled, end
 * is 12 where the question could not be read); -1 where it deserves none.
 */
int dns_read(const uint8_t *msg, size_t len, struct dns_question *ret);

/* What an answer says besides its rcode. */
struct dns_answer {
	const char *const *chain; /* names that stand for the name, in order, NULL-terminated */
	const uint8_t *addr;	  /* 4 bytes for A, 16 for AAAA; NULL: no such record */
	uint32_t ttl;
	bool truncated; /* nothing but the question: ask again by TCP */
};

/* The answer to the query that `q` was read from, into buf of DNS_ANSWER_MAX; its length. */
size_t dns_write(const uint8_t *query, const struct dns_question *q, int rcode,
		 const struct dns_answer *a, uint8_t *buf);

#endif
