/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The name server inside a sandbox, by UDP and TCP. It knows the names that the rules grant, and
 * gives each an inner address once it is known outside that there is such a name and that one of
 * its addresses may be connected to. Everything else is refused without a word to the outside, so
 * that nothing can be told to anybody by asking for names that were not granted.
 *
 * Questions are counted: above the limit the sockets are not read for a while, and the kernel drops
 * what does not fit. A name that is granted has addresses of both families inside where the sandbox
 * has both, whatever it has outside. Records other than addresses do not exist.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "daemon/egress/dns.h"
#include "daemon/egress/egress.h"
#include "nsbox/util.h"

#define PENDING_MAX 256 /* questions that wait for the outside */
#define STREAMS_MAX 32
#define AT_ONCE	    32
#define QUERY_MAX   1024
#define PAUSE_US    100000
#define STREAM_US   (UINT64_C(10) * 1000000)

struct stream;

struct lookup_socket {
	struct box *box;
	struct loop_source *source[NSBOX_LISTENERS_MAX];
	struct loop_timer again;
	bool paused;
	struct question *questions;
	unsigned n_questions;
	struct stream *streams;
	unsigned n_streams;
};

/* A question that waits for the outside. */
struct question {
	struct waiter waiter; /* first: a waiter is its question */
	struct question *next;
	struct lookup_socket *of;
	struct name *name;
	struct stream *stream; /* NULL: by UDP, to peer */
	int fd;
	struct sockaddr_storage peer;
	socklen_t peer_len;
	uint64_t asked_us;
	struct judgement judgement;
	struct dns_question q;
	uint8_t query[DNS_NAME_MAX + 32];
};

/* A client by TCP: one question at a time. */
struct stream {
	struct stream *next;
	struct lookup_socket *of;
	int fd;
	struct loop_source *source;
	struct loop_timer end;
	bool asking;
	size_t len;
	uint8_t buf[2 + QUERY_MAX];
};

/* ------------------------------------------------------------------ telling */

static void tell(struct box *x, const struct dns_question *q, unsigned verdict,
		 const struct judgement *j, uint64_t since)
{
	struct egress_event e = { .kind = EGRESS_DECISION,
				  .what = EGRESS_LOOKUP,
				  .verdict = verdict,
				  .duration_us = since ? monotonic_us() - since : 0 };

	x->totals.lookups++;
	x->totals.lookups_refused += verdict == EGRESS_REFUSED;
	x->totals.lookups_failed += verdict == EGRESS_FAILED;
	snprintf(e.name, sizeof(e.name), "%s", q->name);
	snprintf(e.pointer, sizeof(e.pointer), "%s", j->pointer);
	snprintf(e.why, sizeof(e.why), "%s", j->why);
	report_event(x, &e);
}

/* ------------------------------------------------------------------ answering */

static void stream_close(struct stream *s);
static void stream_next(struct stream *s);

static void send_answer(struct stream *s, int fd, const struct sockaddr_storage *peer,
			socklen_t peer_len, const uint8_t *query, const struct dns_question *q,
			int rcode, struct dns_answer *a)
{
	uint8_t buf[2 + DNS_ANSWER_MAX];
	size_t len = dns_write(query, q, rcode, a, buf + 2);

	if (!s) {
		if (len > q->udp_max) {
			struct dns_answer cut = { .truncated = true };

			len = dns_write(query, q, rcode, &cut, buf + 2);
		}
		(void)sendto(fd, buf + 2, len, MSG_DONTWAIT, (const struct sockaddr *)peer,
			     peer_len);
		return;
	}
	buf[0] = (uint8_t)(len >> 8);
	buf[1] = (uint8_t)len;
	/* An answer is small; a client that leaves no room for one is not worth waiting for. */
	if (send(fd, buf, len + 2, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)len + 2)
		stream_close(s);
	else
		stream_next(s); /* what came meanwhile */
}

static void unlink_question(struct question *w)
{
	for (struct question **p = &w->of->questions; *p; p = &(*p)->next)
		if (*p == w) {
			*p = w->next;
			break;
		}
	w->of->n_questions--;
	if (w->stream)
		w->stream->asking = false;
}

static void question_free(struct question *w)
{
	unlink_question(w);
	free(w);
}

/* One of its addresses at least may be connected to? */
static bool reachable(struct box *x, const struct name *n, struct judgement *ret)
{
	for (unsigned i = 0; i < n->n_outer; i++)
		if (!box_denies(x, n->outer[i].family, n->outer[i].addr, ret))
			return true;
	return n->n_outer == 0;
}

static int rcode_of(enum name_state state)
{
	switch (state) {
	case NAME_KNOWN:
	case NAME_EMPTY: return DNS_OK;
	case NAME_MISSING: return DNS_NXDOMAIN;
	case NAME_UNKNOWN:
	case NAME_FAILED:
	default: return DNS_SERVFAIL;
	}
}

/* Judge what is known of the name now; false: refused. */
static bool judge_answer(struct question *w, const struct name *n, int *ret_rcode)
{
	struct box *x = w->of->box;
	struct judgement j = w->judgement;

	*ret_rcode = rcode_of(n->state);
	if (n->state == NAME_KNOWN && !reachable(x, n, &j)) {
		char why[sizeof(j.why)];

		snprintf(why, sizeof(why), "its addresses are: %.70s", j.why);
		memcpy(j.why, why, sizeof(why));
		*ret_rcode = DNS_NXDOMAIN;
		tell(x, &w->q, EGRESS_REFUSED, &j, w->asked_us);
		return false;
	}
	if (*ret_rcode != DNS_OK)
		snprintf(j.why, sizeof(j.why), "%s",
			 *ret_rcode == DNS_NXDOMAIN ? "there is no such name"
						    : "no name server answered");
	tell(x, &w->q, *ret_rcode == DNS_OK ? EGRESS_ALLOWED : EGRESS_FAILED, &j, w->asked_us);
	return *ret_rcode == DNS_OK;
}

static void on_name(struct waiter *waiter, struct name *n)
{
	struct question *w = (struct question *)waiter;
	struct box *x = w->of->box;
	bool six = x->fd[EGRESS_TCP6] >= 0;
	struct dns_answer a = { .ttl = MIN(n->ttl, 60u) };
	uint8_t addr[16];
	int rcode;

	if (judge_answer(w, n, &rcode)) {
		a.chain = (const char *const *)n->chain;
		if (n->state == NAME_KNOWN &&
		    (w->q.type == DNS_A || (w->q.type == DNS_AAAA && six))) {
			egress_inner(w->q.type == DNS_A ? 4 : 6, n->place, addr);
			a.addr = addr;
		}
	}
	unlink_question(w); /* first: to send may end the stream and what it waits for */
	send_answer(w->stream, w->fd, &w->peer, w->peer_len, w->query, &w->q, rcode, &a);
	free(w);
}

/* ------------------------------------------------------------------ asking */

static void ask(struct lookup_socket *l, struct stream *s, int fd,
		const struct sockaddr_storage *peer, socklen_t peer_len, const uint8_t *msg,
		const struct dns_question *q, const struct judgement *j)
{
	struct name *n = name_get(l->box, q->name);
	struct question *w = l->n_questions < PENDING_MAX && n ? calloc(1, sizeof(*w)) : NULL;

	if (!w) {
		send_answer(s, fd, peer, peer_len, msg, q, DNS_SERVFAIL, NULL);
		return;
	}
	*w = (struct question){ .waiter.fn = on_name,
				.next = l->questions,
				.of = l,
				.name = n,
				.stream = s,
				.fd = fd,
				.peer = *peer,
				.peer_len = peer_len,
				.asked_us = monotonic_us(),
				.judgement = *j,
				.q = *q };
	memcpy(w->query, msg, MIN((size_t)q->end, sizeof(w->query)));
	l->questions = w;
	l->n_questions++;
	if (s)
		s->asking = true;
	name_wait(n, &w->waiter);
}

static void handle(struct lookup_socket *l, struct stream *s, int fd,
		   const struct sockaddr_storage *peer, socklen_t peer_len, const uint8_t *msg,
		   size_t len)
{
	struct dns_question q;
	struct judgement j = { .allowed = false };
	int rcode = dns_read(msg, len, &q);

	l->box->lookup_tokens -= 1;
	if (rcode < 0) {
		if (s)
			stream_close(s);
		return;
	}
	if (rcode == 0 && q.name[0] && q.plain)
		box_judge_name(l->box, q.name, EGRESS_EITHER, 0, &j);
	else if (rcode == 0)
		snprintf(j.why, sizeof(j.why), "it is no host name");
	if (rcode == 0 && j.allowed) {
		ask(l, s, fd, peer, peer_len, msg, &q, &j);
		return;
	}
	if (rcode == 0)
		tell(l->box, &q, EGRESS_REFUSED, &j, 0);
	/* Not REFUSED: resolvers would ask again, and programs wait for that. */
	send_answer(s, fd, peer, peer_len, msg, &q, rcode ? rcode : DNS_NXDOMAIN, NULL);
}

/* ------------------------------------------------------------------ the limit */

static void set_reading(struct lookup_socket *l, bool on)
{
	for (int i = EGRESS_DNS_UDP4; i <= EGRESS_DNS_TCP6; i++)
		if (l->source[i])
			loop_change(l->box->broker->loop, l->source[i], on ? EPOLLIN : 0);
	l->paused = !on;
}

static void refill(struct box *x)
{
	double per_s = box_limits(x)->lookups_per_s;
	uint64_t now = monotonic_us();

	x->lookup_tokens += (double)(now - x->lookups_refilled_us) * per_s / 1e6;
	x->lookup_tokens = MIN(x->lookup_tokens, 2 * per_s);
	x->lookups_refilled_us = now;
}

static bool may_ask(struct lookup_socket *l)
{
	if (l->paused)
		return false;
	refill(l->box);
	if (l->box->lookup_tokens >= 1)
		return true;
	set_reading(l, false);
	loop_timer_set(l->box->broker->loop, &l->again, PAUSE_US);
	return false;
}

static void on_again(void *ctx)
{
	struct lookup_socket *l = ctx;

	set_reading(l, true);
	for (struct stream *s = l->streams, *next; s; s = next) {
		next = s->next;
		stream_next(s);
	}
}

/* ------------------------------------------------------------------ UDP */

static void on_datagram(struct lookup_socket *l, int fd)
{
	for (int i = 0; i < AT_ONCE && may_ask(l); i++) {
		struct sockaddr_storage peer;
		socklen_t len = sizeof(peer);
		uint8_t buf[QUERY_MAX];
		ssize_t n = recvfrom(fd, buf, sizeof(buf), MSG_DONTWAIT, (struct sockaddr *)&peer,
				     &len);

		if (n < 0)
			return;
		handle(l, NULL, fd, &peer, len, buf, (size_t)n);
	}
}

static void on_udp4(void *ctx, uint32_t events)
{
	struct lookup_socket *l = ctx;

	on_datagram(l, l->box->fd[EGRESS_DNS_UDP4]);
}

static void on_udp6(void *ctx, uint32_t events)
{
	struct lookup_socket *l = ctx;

	on_datagram(l, l->box->fd[EGRESS_DNS_UDP6]);
}

/* ------------------------------------------------------------------ TCP */

static void stream_close(struct stream *s)
{
	struct lookup_socket *l = s->of;
	struct question *next;

	for (struct question *w = l->questions; w; w = next) {
		next = w->next;
		if (w->stream == s) {
			name_forget(w->name, &w->waiter);
			question_free(w);
		}
	}
	for (struct stream **p = &l->streams; *p; p = &(*p)->next)
		if (*p == s) {
			*p = s->next;
			break;
		}
	l->n_streams--;
	loop_timer_cancel(l->box->broker->loop, &s->end);
	loop_del(l->box->broker->loop, &s->source);
	close_fd(&s->fd);
	free(s);
}

static void stream_next(struct stream *s)
{
	static const struct sockaddr_storage nobody;
	size_t need = s->len >= 2 ? (size_t)(s->buf[0] << 8 | s->buf[1]) : 0;
	uint8_t msg[QUERY_MAX];

	if (need > QUERY_MAX) {
		stream_close(s);
		return;
	}
	if (s->asking || s->len < 2 || s->len - 2 < need || !may_ask(s->of))
		return;
	memcpy(msg, s->buf + 2, need);
	s->len -= 2 + need;
	memmove(s->buf, s->buf + 2 + need, s->len);
	handle(s->of, s, s->fd, &nobody, 0, msg, need);
}

static void on_stream(void *ctx, uint32_t events)
{
	struct stream *s = ctx;
	ssize_t n;

	if (s->len == sizeof(s->buf)) { /* more than one question, and the first waits */
		stream_close(s);
		return;
	}
	n = recv(s->fd, s->buf + s->len, sizeof(s->buf) - s->len, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		stream_close(s);
		return;
	}
	s->len += (size_t)n;
	stream_next(s);
}

static void on_stream_end(void *ctx)
{
	stream_close(ctx);
}

static void accept_stream(struct lookup_socket *l, int listener)
{
	struct stream *s;
	auto_close int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0 || l->n_streams >= STREAMS_MAX)
		return;
	s = calloc(1, sizeof(*s));
	if (!s)
		return;
	*s = (struct stream){ .of = l, .fd = fd, .end = { .fn = on_stream_end, .ctx = s } };
	if (loop_add(l->box->broker->loop, fd, EPOLLIN, on_stream, s, &s->source, NULL) < 0) {
		free(s);
		return;
	}
	take_fd(&fd);
	s->next = l->streams;
	l->streams = s;
	l->n_streams++;
	loop_timer_set(l->box->broker->loop, &s->end, STREAM_US);
}

static void on_tcp4(void *ctx, uint32_t events)
{
	struct lookup_socket *l = ctx;

	accept_stream(l, l->box->fd[EGRESS_DNS_TCP4]);
}

static void on_tcp6(void *ctx, uint32_t events)
{
	struct lookup_socket *l = ctx;

	accept_stream(l, l->box->fd[EGRESS_DNS_TCP6]);
}

/* ------------------------------------------------------------------ making and ending */

int lookup_open(struct box *x, struct nsbox_error *err)
{
	static loop_fn *const on[NSBOX_LISTENERS_MAX] = {
		[EGRESS_DNS_UDP4] = on_udp4,
		[EGRESS_DNS_UDP6] = on_udp6,
		[EGRESS_DNS_TCP4] = on_tcp4,
		[EGRESS_DNS_TCP6] = on_tcp6,
	};
	struct lookup_socket *l = calloc(1, sizeof(*l));
	int r = 0;

	if (!l)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "make a name server");
	x->lookups = l;
	l->box = x;
	l->again = (struct loop_timer){ .fn = on_again, .ctx = l };
	x->lookup_tokens = 2.0 * box_limits(x)->lookups_per_s;
	x->lookups_refilled_us = monotonic_us();
	for (int i = EGRESS_DNS_UDP4; r == 0 && i <= EGRESS_DNS_TCP6; i++)
		if (x->fd[i] >= 0)
			r = loop_add(x->broker->loop, x->fd[i], EPOLLIN, on[i], l, &l->source[i],
				     err);
	return r;
}

void lookup_close(struct box *x)
{
	struct lookup_socket *l = take_ptr(&x->lookups);

	if (!l)
		return;
	while (l->streams)
		stream_close(l->streams);
	while (l->questions) {
		name_forget(l->questions->name, &l->questions->waiter);
		question_free(l->questions);
	}
	loop_timer_cancel(x->broker->loop, &l->again);
	for (int i = 0; i < NSBOX_LISTENERS_MAX; i++)
		loop_del(x->broker->loop, &l->source[i]);
	free(l);
}
