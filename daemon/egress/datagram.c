/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes over UDP. Datagrams that may leave arrive at one socket of the sandbox, each with the address
 * that it was sent to and, as its mark, the port (policy/nftables.c). Those from one place inside to one
 * outside are a flow, with a socket of its own towards the outside; what comes back goes to the place
 * inside, from the address that the flow was sent to, and the kernel puts the port back.
 *
 * Flows are judged as connections are (relay.c), and count as such. A datagram that is refused has no
 * answer: there is none that programs heed. It is told once for its flow, as is what a flow carried
 * when nothing went either way for half a minute, which is as long as the kernel inside knows ports.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "daemon/egress/egress.h"
#include "daemon/egress/way.h"
#include "nsbox/util.h"

#define IDLE_US	     (UINT64_C(30) * 1000000)
#define BUCKETS	     256
#define AT_ONCE	     64
#define HELD_MAX     8	   /* datagrams that wait for the name */
#define DATAGRAM_MAX 65536 /* no longer ones exist */

enum flow_state { FLOW_WAITING, FLOW_OPEN, FLOW_REFUSED };

struct held {
	size_t len;
	uint8_t data[];
};

struct udp_flow {
	struct waiter waiter; /* first: a waiter is its flow */
	struct udp_flow *next, **link;
	struct datagrams *of;
	struct way way;
	enum flow_state state;
	struct name *name; /* NULL: an address was meant */
	struct judgement judgement;
	struct outer outer;
	int fd;
	struct loop_source *source;
	struct held *held[HELD_MAX];
	unsigned n_held;
	uint64_t bytes_out, bytes_in, began_us, active_us;
};

struct datagrams {
	struct box *box;
	struct loop_source *source[2];
	struct udp_flow *bucket[BUCKETS];
};

static uint8_t buffer[DATAGRAM_MAX]; /* one thread, and nothing is kept in it */

/* ------------------------------------------------------------------ flows */

static unsigned bucket_of(const struct way *w)
{
	return (w->peer_port ^ w->port ^ w->dst[3] ^ w->dst[15]) % BUCKETS;
}

static struct udp_flow *find(struct datagrams *d, const struct way *w)
{
	struct udp_flow *f = d->bucket[bucket_of(w)];

	while (f && memcmp(&f->way, w, sizeof(*w)) != 0)
		f = f->next;
	return f;
}

static struct udp_flow *flow_new(struct datagrams *d, const struct way *w)
{
	struct box *x = d->box;
	struct udp_flow *f = NULL;

	if (x->n_conns < box_limits(x)->connections && x->broker->conns < x->broker->conns_max)
		f = calloc(1, sizeof(*f));
	if (!f) { /* nobody has to be told of each */
		x->totals.refused++;
		x->totals.untold++;
		return NULL;
	}
	f->of = d;
	f->way = *w;
	f->fd = -1;
	f->began_us = f->active_us = monotonic_us();
	f->link = &d->bucket[bucket_of(w)];
	f->next = *f->link;
	if (f->next)
		f->next->link = &f->next;
	*f->link = f;
	x->n_conns++;
	x->broker->conns++;
	return f;
}

static void tell(const struct udp_flow *f, unsigned verdict, int errnum, const char *why)
{
	struct box *x = f->of->box;
	struct egress_event e = { .kind = EGRESS_DECISION,
				  .what = EGRESS_DATAGRAMS,
				  .verdict = verdict,
				  .port = f->way.port,
				  .errnum = (uint32_t)errnum,
				  .bytes_out = f->bytes_out,
				  .bytes_in = f->bytes_in,
				  .duration_us = f->active_us - f->began_us };

	x->totals.connections++;
	x->totals.refused += verdict == EGRESS_REFUSED;
	x->totals.failed += verdict == EGRESS_FAILED;
	if (f->name)
		snprintf(e.name, sizeof(e.name), "%s", f->name->text);
	if (f->outer.family)
		inet_ntop(f->outer.family == 4 ? AF_INET : AF_INET6, f->outer.addr, e.address,
			  sizeof(e.address));
	snprintf(e.pointer, sizeof(e.pointer), "%s", f->judgement.pointer);
	snprintf(e.why, sizeof(e.why), "%s", why);
	report_event(x, &e);
}

/* Everything but the flow itself. */
static void let_go(struct udp_flow *f)
{
	if (f->state == FLOW_WAITING && f->name)
		name_forget(f->name, &f->waiter);
	loop_del(f->of->box->broker->loop, &f->source);
	close_fd(&f->fd);
	while (f->n_held)
		free(f->held[--f->n_held]);
}

static void flow_free(struct udp_flow *f)
{
	struct box *x = f->of->box;

	let_go(f);
	*f->link = f->next;
	if (f->next)
		f->next->link = f->link;
	x->n_conns--;
	x->broker->conns--;
	free(f);
}

static void flow_end(struct udp_flow *f, unsigned verdict, int errnum, const char *why)
{
	if (f->state != FLOW_REFUSED)
		tell(f, verdict, errnum, why);
	flow_free(f);
}

/* It stays, so that more of the same is neither judged nor told again. */
static void refuse(struct udp_flow *f, const struct judgement *j)
{
	let_go(f);
	f->judgement = *j;
	f->state = FLOW_REFUSED;
	tell(f, EGRESS_REFUSED, EACCES, j->why);
}

/* ------------------------------------------------------------------ to the outside */

static void send_out(struct udp_flow *f, const void *data, size_t len)
{
	struct box *x = f->of->box;
	struct judgement j = { false, "the limit of bytes is reached", "" };

	if (!pump_allowance(x)) /* more than the rate: lost, as on any such line */
		return;
	f->active_us = monotonic_us();
	if (send(f->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return; /* an error of the outside is read where answers are */
	f->bytes_out += len;
	if (!pump_count(x, true, len))
		refuse(f, &j);
}

static void on_outside(void *ctx, uint32_t events)
{
	struct udp_flow *f = ctx;
	struct box *x = f->of->box;

	for (int i = 0; i < AT_ONCE; i++) {
		struct judgement j = { false, "the limit of bytes is reached", "" };
		ssize_t n = recv(f->fd, buffer, sizeof(buffer), MSG_DONTWAIT);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n < 0) { /* nobody there, most likely; the next datagram tries again */
			flow_end(f, EGRESS_FAILED, errno, strerrordesc_np(errno));
			return;
		}
		if (!pump_allowance(x))
			continue;
		f->active_us = monotonic_us();
		f->bytes_in += (uint64_t)n;
		way_answer(x->fd[f->way.family == 4 ? EGRESS_UDP4 : EGRESS_UDP6], &f->way, buffer,
			   (size_t)n);
		if (!pump_count(x, false, (size_t)n)) {
			refuse(f, &j);
			return;
		}
	}
}

static int connect_to(struct udp_flow *f, const struct outer *o)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(f->way.port) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(f->way.port) };
	bool four = o->family == 4;

	close_fd(&f->fd);
	f->outer = *o;
	memcpy(&v4.sin_addr, o->addr, 4);
	memcpy(&v6.sin6_addr, o->addr, 16);
	f->fd = socket(four ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (f->fd < 0 || connect(f->fd, four ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6,
				 four ? sizeof(v4) : sizeof(v6)) < 0)
		return errno;
	return 0;
}

/* The first of the addresses that nobody denies and that there is a way to. */
static void open_flow(struct udp_flow *f, const struct outer *list, unsigned n)
{
	struct box *x = f->of->box;
	struct judgement j = { .allowed = false };
	int e = 0;
	bool any = false;

	f->state = FLOW_OPEN; /* the name waits for us no more */
	for (unsigned i = 0; i < n && f->fd < 0; i++) {
		if (box_denies(x, list[i].family, list[i].addr, &j))
			continue;
		any = true;
		e = connect_to(f, &list[i]);
		if (e)
			close_fd(&f->fd);
	}
	if (!any) {
		f->outer = list[0];
		refuse(f, &j);
		return;
	}
	if (f->fd >= 0 &&
	    loop_add(x->broker->loop, f->fd, EPOLLIN, on_outside, f, &f->source, NULL) < 0)
		e = ENOMEM;
	if (e) {
		flow_end(f, EGRESS_FAILED, e, strerrordesc_np(e));
		return;
	}
	for (unsigned i = 0; i < f->n_held && f->state == FLOW_OPEN; i++)
		send_out(f, f->held[i]->data, f->held[i]->len);
	while (f->n_held)
		free(f->held[--f->n_held]);
}

static void on_name(struct waiter *w, struct name *n)
{
	struct udp_flow *f = (struct udp_flow *)w;

	if (n->n_outer) {
		open_flow(f, n->outer, n->n_outer);
		return;
	}
	f->state = FLOW_OPEN;
	flow_end(f, EGRESS_FAILED, EHOSTUNREACH, "the name has no address any more");
}

/* ------------------------------------------------------------------ from inside */

static bool judge(struct udp_flow *f, struct judgement *ret)
{
	struct box *x = f->of->box;
	const struct way *w = &f->way;

	*ret = (struct judgement){ .allowed = false };
	if (f->name)
		box_judge_name(x, f->name->text, EGRESS_UDP, w->port, ret);
	else if (egress_place_of((uint8_t)w->family, w->dst))
		snprintf(ret->why, sizeof(ret->why), "no name was given this address");
	else
		box_judge_addr(x, (uint8_t)w->family, w->dst, EGRESS_UDP, w->port, ret);
	if (ret->allowed && x->broker->proxy.len)
		*ret = (struct judgement){ false, "the operator's proxy takes no UDP", "" };
	if (ret->allowed && f->name && box_takes_tls(x, w->port))
		*ret = (struct judgement){ false, "no TLS, which this port is for", "" };
	return ret->allowed;
}

static void hold(struct udp_flow *f, const void *data, size_t len)
{
	struct held *h = f->n_held < HELD_MAX ? malloc(sizeof(*h) + len) : NULL;

	if (!h)
		return;
	h->len = len;
	memcpy(h->data, data, len);
	f->held[f->n_held++] = h;
}

static void begin(struct datagrams *d, const struct way *w, const void *data, size_t len)
{
	struct udp_flow *f = flow_new(d, w);
	uint32_t place = egress_place_of((uint8_t)w->family, w->dst);
	struct judgement j;

	if (!f)
		return;
	f->waiter.fn = on_name;
	f->name = place ? name_at(d->box, place) : NULL;
	if (!f->name) {
		f->outer.family = (uint8_t)w->family;
		memcpy(f->outer.addr, w->dst, sizeof(w->dst));
	}
	if (!judge(f, &j)) {
		f->state = FLOW_OPEN; /* it waits for nothing */
		refuse(f, &j);
		return;
	}
	f->judgement = j;
	hold(f, data, len);
	if (f->name) {
		name_wait(f->name, &f->waiter);
	} else {
		const struct outer to = f->outer;

		open_flow(f, &to, 1);
	}
}

static void on_inside(struct datagrams *d, int listener, uint8_t family)
{
	for (int i = 0; i < AT_ONCE; i++) {
		struct way w;
		ssize_t n = way_receive(d->box->fd[listener], family, buffer, sizeof(buffer), &w);
		struct udp_flow *f;

		if (n < 0)
			return;
		if (!w.port)
			continue;
		f = find(d, &w);
		if (!f)
			begin(d, &w, buffer, (size_t)n);
		else if (f->state == FLOW_WAITING)
			hold(f, buffer, (size_t)n);
		else if (f->state == FLOW_OPEN)
			send_out(f, buffer, (size_t)n);
	}
}

static void on_inside4(void *ctx, uint32_t events)
{
	on_inside(ctx, EGRESS_UDP4, 4);
}

static void on_inside6(void *ctx, uint32_t events)
{
	on_inside(ctx, EGRESS_UDP6, 6);
}

/* ------------------------------------------------------------------ of a sandbox */

int datagrams_open(struct box *x, struct nsbox_error *err)
{
	static loop_fn *const on[2] = { on_inside4, on_inside6 };
	struct datagrams *d;
	int r = 0;

	if (x->fd[EGRESS_UDP4] < 0 && x->fd[EGRESS_UDP6] < 0)
		return 0;
	d = calloc(1, sizeof(*d));
	if (!d)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "relay datagrams");
	x->datagrams = d;
	d->box = x;
	for (int i = 0; r == 0 && i < 2; i++)
		if (x->fd[EGRESS_UDP4 + i] >= 0)
			r = loop_add(x->broker->loop, x->fd[EGRESS_UDP4 + i], EPOLLIN, on[i], d,
				     &d->source[i], err);
	return r;
}

/* Each flow, which may be gone afterwards. */
static void each(struct box *x, void (*fn)(struct udp_flow *f))
{
	for (int i = 0; x->datagrams && i < BUCKETS; i++)
		for (struct udp_flow *f = x->datagrams->bucket[i], *next; f; f = next) {
			next = f->next;
			fn(f);
		}
}

static void end_with_sandbox(struct udp_flow *f)
{
	flow_end(f, EGRESS_ALLOWED, 0, "");
}

void datagrams_close(struct box *x)
{
	if (!x->datagrams)
		return;
	each(x, end_with_sandbox);
	for (int i = 0; i < 2; i++)
		loop_del(x->broker->loop, &x->datagrams->source[i]);
	free(take_ptr(&x->datagrams));
}

static void judge_again(struct udp_flow *f)
{
	struct judgement j = { 0 };
	bool denied = f->fd >= 0 && box_denies(f->of->box, f->outer.family, f->outer.addr, &j);

	if (f->state != FLOW_REFUSED && (denied || !judge(f, &j)))
		refuse(f, &j);
}

void datagrams_judge(struct box *x)
{
	each(x, judge_again);
}

static void tick(struct udp_flow *f)
{
	const struct egress_limits *l = box_limits(f->of->box);
	uint64_t now = monotonic_us();

	if (f->state == FLOW_WAITING && now - f->began_us > l->connect_s * UINT64_C(1000000))
		flow_end(f, EGRESS_FAILED, ETIMEDOUT, "no answer from outside");
	else if (now - f->active_us > IDLE_US)
		flow_end(f, EGRESS_ALLOWED, 0, "");
}

void datagrams_tick(struct box *x)
{
	each(x, tick);
}
