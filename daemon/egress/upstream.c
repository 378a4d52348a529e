/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operator's proxy: where there is one, all connections go to it, and it is told where to:
 * by address, the one that was checked, and never by name, which it could take for another.
 *
 *	socks5://HOST:PORT	RFC 1928, without a password
 *	http://HOST:PORT	CONNECT (RFC 9110, 9.3.6)
 *
 * Its host is looked up once, before this process locks itself down, and may be anywhere.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "daemon/egress/conn.h"
#include "nsbox/util.h"

#define ANSWER_MAX 4096

enum step { SOCKS_METHOD, SOCKS_REPLY, HTTP_REPLY };

struct handshake {
	enum step step;
	size_t have, need;
	uint8_t buf[ANSWER_MAX + 1];
};

/* ------------------------------------------------------------------ which */

static int look_up(struct proxy *p, const char *url, struct nsbox_error *err)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	const char *at = strstr(url, "://") + 3, *colon = strrchr(at, ':');
	struct addrinfo *found;
	char host[256];
	int r;

	if (strpbrk(at, "@"))
		return nsbox_fail(err, NSBOX_E_UNSUPPORTED, 0,
				  "the proxy '%.100s': this version cannot give it a password",
				  url);
	if (!colon || colon == at || !colon[1] || strpbrk(at, "/? ") ||
	    (size_t)(colon - at) >= sizeof(host))
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "the proxy '%.100s' is not socks5://HOST:PORT or "
				  "http://HOST:PORT",
				  url);
	snprintf(host, sizeof(host), "%.*s", (int)(colon - at), at);
	if (*host == '[' && host[strlen(host) - 1] == ']') {
		host[strlen(host) - 1] = '\0';
		memmove(host, host + 1, strlen(host));
	}
	r = getaddrinfo(host, colon + 1, &hints, &found);
	if (r)
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "look up the proxy '%.100s': %s", url,
				  gai_strerror(r));
	memcpy(&p->addr, found->ai_addr, found->ai_addrlen);
	p->len = found->ai_addrlen;
	freeaddrinfo(found);
	return 0;
}

int proxy_read(struct proxy *p, const char *url, struct nsbox_error *err)
{
	if (!url)
		return 0;
	p->socks = !strncmp(url, "socks5://", 9);
	if (!p->socks && strncmp(url, "http://", 7) != 0)
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "the proxy '%.100s' is not socks5://HOST:PORT or "
				  "http://HOST:PORT",
				  url);
	return look_up(p, url, err);
}

/* ------------------------------------------------------------------ the handshake */

static void fail(struct conn *c, int errnum)
{
	loop_del(c->box->broker->loop, &c->side[OUTSIDE].source);
	close_fd(&c->side[OUTSIDE].fd);
	conn_try_again(c, errnum);
}

/* Small, and the first that is sent: it fits or the connection is broken. */
static bool say(struct conn *c, const void *data, size_t len)
{
	return send(c->side[OUTSIDE].fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)len;
}

static bool ask_socks(struct conn *c)
{
	const struct outer *o = &c->outer;
	size_t n = o->family == 4 ? 4 : 16;
	uint8_t q[22] = { 5, 1, 0, o->family == 4 ? 1 : 4 };

	memcpy(q + 4, o->addr, n);
	q[4 + n] = (uint8_t)(c->port >> 8);
	q[5 + n] = (uint8_t)c->port;
	return say(c, q, 6 + n);
}

static bool ask_http(struct conn *c)
{
	char addr[INET6_ADDRSTRLEN], where[INET6_ADDRSTRLEN + 10], q[256];
	bool six = c->outer.family == 6;

	inet_ntop(six ? AF_INET6 : AF_INET, c->outer.addr, addr, sizeof(addr));
	snprintf(where, sizeof(where), six ? "[%s]:%u" : "%s:%u", addr, c->port);
	return say(c, q,
		   (size_t)snprintf(q, sizeof(q), "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", where,
				    where));
}

/* What a proxy says of the far end, as connect() would. */
static int socks_error(uint8_t code)
{
	static const int errors[] = { 0,	   EIO,		 EACCES,
				      ENETUNREACH, EHOSTUNREACH, ECONNREFUSED,
				      ETIMEDOUT,   EPROTO,	 EAFNOSUPPORT };

	return code < ARRAY_SIZE(errors) ? errors[code] : EPROTO;
}

static int http_error(const char *text)
{
	static const char head[] = "HTTP/1."; /* a digit, a space, three digits */
	const char *at = text + sizeof(head) - 1;
	unsigned code = 0;

	if (strncmp(text, head, sizeof(head) - 1) != 0 || *at < '0' || *at > '9' || at[1] != ' ')
		return EPROTO;
	for (int i = 2; i < 5; i++) {
		if (at[i] < '0' || at[i] > '9')
			return EPROTO;
		code = code * 10 + (unsigned)(at[i] - '0');
	}
	return code / 100 == 2		    ? 0
	       : code == 403 || code == 407 ? EACCES
	       : code == 504		    ? ETIMEDOUT
					    : ECONNREFUSED;
}

/* The bytes that were needed are there. 0: go on; 1: connected; else a negative errno. */
static int take(struct conn *c, struct handshake *h)
{
	switch (h->step) {
	case SOCKS_METHOD:
		if (h->buf[0] != 5 || h->buf[1] != 0)
			return h->buf[0] == 5 ? -EACCES : -EPROTO;
		*h = (struct handshake){ .step = SOCKS_REPLY, .need = 5 };
		return ask_socks(c) ? 0 : -EPIPE;
	case SOCKS_REPLY:
		if (h->buf[0] != 5 || h->buf[1])
			return h->buf[0] == 5 ? -socks_error(h->buf[1]) : -EPROTO;
		h->need = h->buf[3] == 1 ? 10 : h->buf[3] == 4 ? 22 : 7u + h->buf[4];
		return h->have == h->need;
	case HTTP_REPLY:
	default:
		h->buf[h->have] = '\0';
		if (h->have >= 4 && !memcmp(h->buf + h->have - 4, "\r\n\r\n", 4)) {
			int e = http_error((char *)h->buf);

			return e ? -e : 1;
		}
		h->need = h->have + 1; /* what comes behind the answer is not for us */
		return h->need > ANSWER_MAX ? -EPROTO : 0;
	}
}

static void on_proxy(void *ctx, uint32_t events)
{
	struct conn *c = ctx;
	struct handshake *h = c->handshake;
	int r = 0;

	while (r == 0) {
		ssize_t n = recv(c->side[OUTSIDE].fd, h->buf + h->have, h->need - h->have,
				 MSG_DONTWAIT);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		h->have += n > 0 ? (size_t)n : 0;
		if (n <= 0)
			r = n < 0 ? -errno : -ECONNRESET;
		else if (h->have == h->need)
			r = take(c, h);
	}
	if (r < 0) {
		fail(c, -r);
		return;
	}
	loop_del(c->box->broker->loop, &c->side[OUTSIDE].source);
	free_ptr(&c->handshake);
	pump_start(c);
}

void proxy_shake_hands(struct conn *c)
{
	bool socks = c->box->broker->proxy.socks, ok;
	struct side *s = &c->side[OUTSIDE];

	free(c->handshake);
	c->handshake = calloc(1, sizeof(*c->handshake));
	if (c->handshake)
		*c->handshake = (struct handshake){ .step = socks ? SOCKS_METHOD : HTTP_REPLY,
						    .need = socks ? 2 : 1 };
	ok = c->handshake && (socks ? say(c, "\5\1\0", 3) : ask_http(c));
	if (!ok ||
	    loop_add(c->box->broker->loop, s->fd, EPOLLIN, on_proxy, c, &s->source, NULL) < 0)
		conn_end(c, EGRESS_FAILED, c->handshake ? EPIPE : ENOMEM, "the proxy", true);
}
