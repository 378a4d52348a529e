/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DNS messages (RFC 1035, EDNS0 of RFC 6891), as far as a name server needs them that has one
 * question to read and one address to give. What is read comes from untrusted code: every length
 * is checked against what is left, compression is not accepted in a question, and nothing is kept.
 */
#include "daemon/egress/dns.h"

#include <ctype.h>
#include <string.h>

#define HEADER	     12
#define LABEL_MAX    63
#define FLAG_ANSWER  0x8000u
#define FLAG_OPCODE  0x7800u
#define FLAG_CUT     0x0200u
#define FLAG_DESIRED 0x0100u /* recursion, and copied back */
#define FLAG_OFFERED 0x0080u
#define CLASS_IN     1

static uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

/* ------------------------------------------------------------------ reading */

/* Labels from *at on; false where they do not end within the message or are too long. */
static bool read_name(const uint8_t *msg, size_t len, size_t *at, struct dns_question *q)
{
	size_t out = 0;

	q->plain = true;
	for (;;) {
		size_t n;

		if (*at >= len)
			return false;
		n = msg[(*at)++];
		if (n == 0)
			break;
		if (n > LABEL_MAX || n > len - *at || out + n + 1 >= DNS_NAME_MAX - 1)
			return false;
		if (out)
			q->name[out++] = '.';
		for (size_t i = 0; i < n; i++) {
			int c = tolower(msg[*at + i]);

			if (!isalnum(c) && c != '-' && c != '_')
				q->plain = false;
			/* A dot or a NUL within a label would read as another name. */
			q->name[out++] = c == '.' || c == 0 ? '?' : (char)c;
		}
		*at += n;
	}
	q->name[out] = '\0';
	return true;
}

/* Of the records behind the question only OPT matters: how much the client takes. */
static void read_options(const uint8_t *msg, size_t len, size_t at, struct dns_question *q)
{
	unsigned records = get16(msg + 6) + get16(msg + 8) + get16(msg + 10);
	uint16_t size;

	/* OPT's name is the root; anything else behind the question is nothing we wait for. */
	if (!records || len - at < 11 || msg[at] != 0 || get16(msg + at + 1) != DNS_OPT)
		return;
	size = get16(msg + at + 3);
	q->edns = true;
	if (size > DNS_UDP_PLAIN)
		q->udp_max = size;
}

int dns_read(const uint8_t *msg, size_t len, struct dns_question *ret)
{
	size_t at = HEADER;

	memset(ret, 0, sizeof(*ret));
	ret->udp_max = DNS_UDP_PLAIN;
	ret->end = HEADER;
	if (len < HEADER || (get16(msg + 2) & FLAG_ANSWER))
		return -1;
	ret->id = get16(msg);
	ret->flags = get16(msg + 2);
	if (ret->flags & FLAG_OPCODE)
		return DNS_NOTIMP;
	if (get16(msg + 4) != 1 || !read_name(msg, len, &at, ret) || len - at < 4)
		return DNS_FORMERR;
	ret->type = get16(msg + at);
	ret->class = get16(msg + at + 2);
	at += 4;
	ret->end = (uint16_t)at;
	read_options(msg, len, at, ret);
	return ret->class == CLASS_IN ? 0 : DNS_REFUSED;
}

/* ------------------------------------------------------------------ writing */

struct writer {
	uint8_t *buf;
	size_t len;
	bool full;
};

static void put(struct writer *w, const void *data, size_t len)
{
	if (w->len + len > DNS_ANSWER_MAX) {
		w->full = true;
		return;
	}
	memcpy(w->buf + w->len, data, len);
	w->len += len;
}

static void put16(struct writer *w, unsigned v)
{
	const uint8_t b[] = { (uint8_t)(v >> 8), (uint8_t)v };

	put(w, b, sizeof(b));
}

static void put32(struct writer *w, uint32_t v)
{
	put16(w, v >> 16);
	put16(w, v & 0xffff);
}

/* As labels, without compression; a label that is too long ends the name. */
static void put_name(struct writer *w, const char *name)
{
	while (*name) {
		size_t n = strcspn(name, ".");
		uint8_t len = (uint8_t)n;

		if (n == 0 || n > LABEL_MAX)
			break;
		put(w, &len, 1);
		put(w, name, n);
		name += n;
		name += *name == '.';
	}
	put(w, "", 1);
}

/* Name, type, class, TTL; `owner` NULL: the question's name, by reference. */
static void put_head(struct writer *w, const char *owner, uint16_t type, uint32_t ttl)
{
	if (owner)
		put_name(w, owner);
	else
		put16(w, 0xc000u | HEADER);
	put16(w, type);
	put16(w, CLASS_IN);
	put32(w, ttl);
}

static unsigned put_records(struct writer *w, const struct dns_question *q,
			    const struct dns_answer *a)
{
	const char *owner = NULL;
	unsigned n = 0;

	for (const char *const *c = a->chain; c && *c; c++, n++) {
		size_t at;

		put_head(w, owner, DNS_CNAME, a->ttl);
		at = w->len;
		put16(w, 0);
		put_name(w, *c);
		if (!w->full) {
			w->buf[at] = (uint8_t)((w->len - at - 2) >> 8);
			w->buf[at + 1] = (uint8_t)(w->len - at - 2);
		}
		owner = *c;
	}
	if (a->addr) {
		uint16_t len = q->type == DNS_A ? 4 : 16;

		put_head(w, owner, q->type, a->ttl);
		put16(w, len);
		put(w, a->addr, len);
		n++;
	}
	return n;
}

size_t dns_write(const uint8_t *query, const struct dns_question *q, int rcode,
		 const struct dns_answer *a, uint8_t *buf)
{
	static const uint8_t option[] = {
		0, 0, DNS_OPT, DNS_MESSAGE_MAX >> 8, 0, 0, 0, 0, 0, 0, 0
	};
	struct writer w = { buf, HEADER, false };
	unsigned flags = FLAG_ANSWER | FLAG_OFFERED | (q->flags & FLAG_DESIRED) | (unsigned)rcode;
	unsigned n = 0;

	memset(buf, 0, HEADER);
	put(&w, query + HEADER, q->end - HEADER);
	if (a && !a->truncated && q->end > HEADER)
		n = put_records(&w, q, a);
	if (w.full || (a && a->truncated)) {
		flags |= FLAG_CUT;
		n = 0;
		w.len = q->end;
	}
	if (q->edns)
		put(&w, option, sizeof(option));
	w.buf[0] = (uint8_t)(q->id >> 8);
	w.buf[1] = (uint8_t)q->id;
	w.buf[2] = (uint8_t)(flags >> 8);
	w.buf[3] = (uint8_t)flags;
	w.buf[5] = q->end > HEADER;
	w.buf[7] = (uint8_t)n;
	w.buf[11] = q->edns;
	return w.len;
}
