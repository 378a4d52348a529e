/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections out of a sandbox. The packet filter inside has redirected them to our listeners; the
 * kernel still knows where they were going. An inner address stands for a name; anything else is
 * the address that was meant. The rules are asked, then each address that comes into question, right
 * before it is connected to; addresses are tried one after the other, the next one already when the
 * one before has not answered for a quarter of a second (RFC 8305).
 *
 * The program inside is connected before we know. What is refused or fails is a reset.
 */
#include <arpa/inet.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6/ip6_tables.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "daemon/egress/conn.h"
#include "nsbox/util.h"

#define STAGGER_US   250000
#define ACCEPT_AGAIN 100000 /* us, where there are no descriptors */
#define ACCEPTS	     64	    /* at once */

/* ------------------------------------------------------------------ ending */

static void reset(int *fd)
{
	const struct linger now = { 1, 0 };

	if (*fd >= 0)
		setsockopt(*fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close_fd(fd);
}

static void put_address(const struct outer *o, char *buf, socklen_t size)
{
	if (!inet_ntop(o->family == 4 ? AF_INET : AF_INET6, o->addr, buf, size))
		buf[0] = '\0';
}

static void tell(const struct conn *c, unsigned verdict, int errnum, const char *why)
{
	struct egress_event e = { .kind = EGRESS_DECISION,
				  .what = EGRESS_CONNECTION,
				  .verdict = verdict,
				  .port = c->port,
				  .errnum = (uint32_t)errnum,
				  .bytes_out = c->flow[INSIDE].bytes,
				  .bytes_in = c->flow[OUTSIDE].bytes,
				  .duration_us = monotonic_us() - c->began_us };

	if (c->name)
		snprintf(e.name, sizeof(e.name), "%s", c->name->text);
	if (c->outer.family)
		put_address(&c->outer, e.address, sizeof(e.address));
	snprintf(e.pointer, sizeof(e.pointer), "%s", c->judgement.pointer);
	snprintf(e.why, sizeof(e.why), "%s", why);
	report_event(c->box, &e);
}

static void stop_trying(struct conn *c)
{
	struct loop *l = c->box->broker->loop;

	loop_timer_cancel(l, &c->next_try);
	for (unsigned i = 0; i < c->tried; i++) {
		loop_del(l, &c->attempt[i].source);
		close_fd(&c->attempt[i].fd);
	}
	c->under_way = 0;
}

void conn_end(struct conn *c, unsigned verdict, int errnum, const char *why, bool hard)
{
	struct box *x = c->box;

	x->totals.connections++;
	x->totals.refused += verdict == EGRESS_REFUSED;
	x->totals.failed += verdict == EGRESS_FAILED;
	tell(c, verdict, errnum, why);
	if (c->state == CONN_NAMING && c->name)
		name_forget(c->name, &c->waiter);
	stop_trying(c);
	free(c->handshake);
	pump_done(c);
	for (int i = 0; i < 2; i++) {
		if (hard)
			reset(&c->side[i].fd);
		close_fd(&c->side[i].fd);
	}
	*c->link = c->next;
	if (c->next)
		c->next->link = c->link;
	x->n_conns--;
	x->broker->conns--;
	free(c);
}

static void refuse(struct conn *c, const struct judgement *j)
{
	c->judgement = *j;
	conn_end(c, EGRESS_REFUSED, EACCES, j->why, true);
}

/* ------------------------------------------------------------------ trying addresses */

static void try_next(struct conn *c);

static void connected(struct conn *c, struct attempt *a)
{
	const int on = 1;

	c->outer = c->candidate[a->which];
	loop_del(c->box->broker->loop, &a->source);
	c->side[OUTSIDE].fd = take_fd(&a->fd);
	stop_trying(c);
	setsockopt(c->side[OUTSIDE].fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(c->side[OUTSIDE].fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	if (c->box->broker->proxy.len)
		proxy_shake_hands(c);
	else
		pump_start(c);
}

static void on_attempt(void *ctx, uint32_t events)
{
	struct attempt *a = ctx;
	struct conn *c = a->conn;
	int errnum = 0;
	socklen_t len = sizeof(errnum);

	if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &errnum, &len) < 0)
		errnum = errno;
	if (!errnum) {
		connected(c, a);
		return;
	}
	c->last_error = errnum;
	c->outer = c->candidate[a->which];
	loop_del(c->box->broker->loop, &a->source);
	close_fd(&a->fd);
	c->under_way--;
	try_next(c);
}

/* What is near has answered by the time connect() returns. */
static bool is_connected(int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
	       info.tcpi_state == TCP_ESTABLISHED;
}

/* Its address, or the proxy's. */
static socklen_t where(const struct conn *c, const struct outer *o, struct sockaddr_storage *ret)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(c->port) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(c->port) };
	const struct proxy *p = &c->box->broker->proxy;
	bool four = o->family == 4;

	if (p->len) {
		*ret = p->addr;
		return p->len;
	}
	memcpy(&v4.sin_addr, o->addr, 4);
	memcpy(&v6.sin6_addr, o->addr, 16);
	memcpy(ret, four ? (void *)&v4 : (void *)&v6, four ? sizeof(v4) : sizeof(v6));
	return four ? sizeof(v4) : sizeof(v6);
}

/* 0: under way, or there at once; else why not. */
static int start_attempt(struct conn *c, struct attempt *a, const struct outer *o)
{
	struct sockaddr_storage to;
	socklen_t len = where(c, o, &to);
	int r;

	a->fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (a->fd < 0)
		return errno;
	r = connect(a->fd, (struct sockaddr *)&to, len);
	if (r < 0 && errno != EINPROGRESS)
		return errno;
	a->at_once = r == 0 || is_connected(a->fd);
	if (a->at_once)
		return 0;
	r = loop_add(c->box->broker->loop, a->fd, EPOLLOUT, on_attempt, a, &a->source, NULL);
	return r < 0 ? ENOMEM : 0;
}

static void on_next_try(void *ctx)
{
	try_next(ctx);
}

static void try_next(struct conn *c)
{
	while (c->tried < c->n_candidates) {
		struct attempt *a = &c->attempt[c->tried];
		int e;

		*a = (struct attempt){ c, -1, NULL, c->tried, false };
		c->tried++;
		e = start_attempt(c, a, &c->candidate[a->which]);
		if (e == 0 && a->at_once) {
			connected(c, a);
			return;
		}
		if (e == 0) {
			c->under_way++;
			if (c->tried < c->n_candidates && !c->box->broker->proxy.len)
				loop_timer_set(c->box->broker->loop, &c->next_try, STAGGER_US);
			return;
		}
		c->last_error = e;
		c->outer = c->candidate[a->which];
		close_fd(&a->fd);
	}
	if (!c->under_way)
		conn_end(c, EGRESS_FAILED, c->last_error, strerrordesc_np(c->last_error), true);
}

void conn_try_again(struct conn *c, int errnum)
{
	c->last_error = errnum;
	try_next(c);
}

/* Those of the addresses that nobody has denied. */
static void begin(struct conn *c, const struct outer *list, unsigned n)
{
	struct judgement j = { .allowed = false };

	for (unsigned i = 0; i < n; i++) {
		if (!box_denies(c->box, list[i].family, list[i].addr, &j))
			c->candidate[c->n_candidates++] = list[i];
		else if (!c->n_candidates)
			c->outer = list[i];
	}
	if (!c->n_candidates) {
		refuse(c, &j);
		return;
	}
	c->state = CONN_TRYING;
	c->next_try = (struct loop_timer){ .fn = on_next_try, .ctx = c };
	try_next(c);
}

static void on_name(struct waiter *w, struct name *n)
{
	struct conn *c = (struct conn *)w;

	c->state = CONN_TRYING; /* the name waits for us no more */
	if (n->n_outer)
		begin(c, n->outer, n->n_outer);
	else
		conn_end(c, EGRESS_FAILED, EHOSTUNREACH, "the name has no address any more", true);
}

void conn_go_on(struct conn *c)
{
	const struct outer to = c->outer;

	c->state = CONN_NAMING;
	if (c->name)
		name_wait(c->name, &c->waiter);
	else
		begin(c, &to, 1);
}

void conn_refuse(struct conn *c, const char *why, const char *pointer)
{
	struct judgement j = { .allowed = false };

	snprintf(j.why, sizeof(j.why), "%s", why);
	snprintf(j.pointer, sizeof(j.pointer), "%s", pointer);
	refuse(c, &j);
}

/* ------------------------------------------------------------------ accepting */

/* Where was it going? False: nowhere that we know, it was meant for us. */
static bool destination(int fd, int listener, struct outer *ret, uint16_t *ret_port)
{
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	socklen_t len = listener == EGRESS_TCP4 ? sizeof(v4) : sizeof(v6);

	memset(ret, 0, sizeof(*ret));
	if (listener == EGRESS_TCP4) {
		if (getsockopt(fd, SOL_IP, SO_ORIGINAL_DST, &v4, &len) < 0)
			return false;
		ret->family = 4;
		memcpy(ret->addr, &v4.sin_addr, 4);
		*ret_port = ntohs(v4.sin_port);
	} else {
		if (getsockopt(fd, SOL_IPV6, IP6T_SO_ORIGINAL_DST, &v6, &len) < 0)
			return false;
		ret->family = 6;
		memcpy(ret->addr, &v6.sin6_addr, 16);
		*ret_port = ntohs(v6.sin6_port);
	}
	return true;
}

static struct conn *conn_new(struct box *x, int *fd, uint16_t port)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->box = x;
	c->port = port;
	c->waiter.fn = on_name;
	c->began_us = c->active_us = monotonic_us();
	for (int i = 0; i < 2; i++)
		c->flow[i].pipe.fd[0] = c->flow[i].pipe.fd[1] = -1;
	c->side[INSIDE].fd = take_fd(fd);
	c->side[OUTSIDE].fd = -1;
	c->next = x->conns;
	c->link = &x->conns;
	if (c->next)
		c->next->link = &c->next;
	x->conns = c;
	x->n_conns++;
	x->broker->conns++;
	return c;
}

/* What is allowed goes on by itself from here; the rest has ended on return. */
static void decide(struct conn *c, const struct outer *to)
{
	struct box *x = c->box;
	uint32_t place = egress_place_of(to->family, to->addr);
	uint64_t most = box_limits(x)->bytes;
	struct judgement j = { .allowed = false };

	if (place) {
		c->name = name_at(x, place);
		if (c->name)
			box_judge_name(x, c->name->text, EGRESS_TCP, c->port, &j);
		else
			snprintf(j.why, sizeof(j.why), "no name was given this address");
	} else {
		box_judge_addr(x, to->family, to->addr, EGRESS_TCP, c->port, &j);
	}
	if (!c->name)
		c->outer = *to;
	if (j.allowed &&
	    (x->n_conns > box_limits(x)->connections || x->broker->conns > x->broker->conns_max))
		j = (struct judgement){ false, "the limit of connections is reached", "" };
	if (j.allowed && most && x->totals.bytes_in + x->totals.bytes_out >= most)
		j = (struct judgement){ false, "the limit of bytes is reached", "" };
	if (!j.allowed) {
		refuse(c, &j);
		return;
	}
	c->judgement = j;
	if (hello_wanted(c))
		hello_wait(c);
	else
		conn_go_on(c);
}

static void set_accepting(struct box *x, bool on)
{
	for (int i = 0; i < 2; i++)
		if (x->accepting[i])
			loop_change(x->broker->loop, x->accepting[i], on ? EPOLLIN : 0);
}

static void on_accept_again(void *ctx)
{
	set_accepting(ctx, true);
}

static void accept_some(struct box *x, int listener)
{
	for (int i = 0; i < ACCEPTS; i++) {
		auto_close int fd =
			accept4(x->fd[listener], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		struct outer to;
		uint16_t port;
		struct conn *c;

		if (fd < 0 && errno != EMFILE && errno != ENFILE && errno != ENOBUFS &&
		    errno != ENOMEM)
			return;
		if (fd < 0) { /* those that wait stay in the kernel's queue */
			set_accepting(x, false);
			if (x->accept_again.armed)
				return;
			x->accept_again = (struct loop_timer){ .fn = on_accept_again, .ctx = x };
			loop_timer_set(x->broker->loop, &x->accept_again, ACCEPT_AGAIN);
			return;
		}
		if (!destination(fd, listener, &to, &port)) {
			reset(&fd);
			continue;
		}
		c = conn_new(x, &fd, port);
		if (c)
			decide(c, &to);
	}
}

static void on_tcp4(void *ctx, uint32_t events)
{
	accept_some(ctx, EGRESS_TCP4);
}

static void on_tcp6(void *ctx, uint32_t events)
{
	accept_some(ctx, EGRESS_TCP6);
}

/* ------------------------------------------------------------------ of a sandbox */

int relay_open(struct box *x, struct nsbox_error *err)
{
	static loop_fn *const on[2] = { on_tcp4, on_tcp6 };
	const int yes = 1;
	int r = 0;

	x->tokens = (int64_t)box_limits(x)->bytes_per_s;
	x->refilled_us = monotonic_us();
	for (int i = 0; r == 0 && i < 2; i++) {
		int fd = x->fd[EGRESS_TCP4 + i];

		if (fd < 0)
			continue;
		/* What it accepts is so as well. */
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
		r = loop_add(x->broker->loop, fd, EPOLLIN, on[i], x, &x->accepting[i], err);
	}
	return r == 0 ? datagrams_open(x, err) : r;
}

void relay_close(struct box *x)
{
	datagrams_close(x);
	while (x->conns)
		conn_end(x->conns, EGRESS_ALLOWED, 0, "the sandbox ended", true);
	for (int i = 0; i < 2; i++)
		loop_del(x->broker->loop, &x->accepting[i]);
}

void relay_judge(struct box *x)
{
	datagrams_judge(x);
	for (struct conn *c = x->conns, *next; c; c = next) {
		struct judgement j = { 0 };
		bool denied = c->outer.family && box_denies(x, c->outer.family, c->outer.addr, &j);

		next = c->next;
		if (!denied && c->name)
			box_judge_name(x, c->name->text, EGRESS_TCP, c->port, &j);
		else if (!denied && c->outer.family)
			box_judge_addr(x, c->outer.family, c->outer.addr, EGRESS_TCP, c->port, &j);
		if (denied || !j.allowed)
			refuse(c, &j);
	}
}

void relay_tick(struct box *x)
{
	const struct egress_limits *l = box_limits(x);
	uint64_t now = monotonic_us();

	datagrams_tick(x);
	for (struct conn *c = x->conns, *next; c; c = next) {
		next = c->next;
		if (c->state != CONN_OPEN && now - c->began_us > l->connect_s * UINT64_C(1000000))
			conn_end(c, EGRESS_FAILED, ETIMEDOUT,
				 c->state == CONN_HELLO ? "it did not begin to speak TLS"
							: "no answer from outside",
				 true);
		else if (now - c->active_us > l->idle_s * UINT64_C(1000000))
			conn_end(c, EGRESS_ALLOWED, ETIMEDOUT, "nothing passed for too long", true);
		else if (now - c->began_us > l->total_s * UINT64_C(1000000))
			conn_end(c, EGRESS_ALLOWED, ETIMEDOUT, "it was open for too long", true);
	}
}

void relay_refill(struct box *x)
{
	for (struct conn *c = x->conns, *next; c; c = next) {
		next = c->next;
		if (c->state == CONN_OPEN)
			pump_run(c);
	}
}
