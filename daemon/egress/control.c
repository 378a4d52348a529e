/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders of the owner, and what is told back (daemon/common/egress_wire.h). The owner is trusted to
 * say what may be reached, and nothing it sends is believed to be well-formed. Its end of the socket
 * is our life: when it goes, all sandboxes lose their network and the process ends.
 *
 * Nothing here waits for who reads the reports: a decision that finds the queue full is counted and
 * not told.
 */
#include <string.h>
#include <sys/epoll.h>

#include "daemon/common/release.h"
#include "daemon/egress/egress.h"
#include "nsbox/util.h"

#define QUEUE_MAX 4096
#define TELL_MAX  64	/* decisions that are told together: who reads them is woken once */
#define TELL_US	  10000 /* and no later than that */
#define TICK_US	  1000000

struct report {
	struct report *next;
	struct egress_event e;
};

struct reports {
	struct broker *broker;
	int fd;
	struct loop_source *source;
	struct report *first, **last;
	unsigned n;
	struct loop_timer later;
};

/* A socket that orders come by: the owner's, and that of who hears the reports. */
struct end {
	struct control *control;
	int fd;	      /* -1: none */
	bool greeted; /* who is there is of our version */
	struct loop_source *source;
};

struct control {
	struct broker *broker;
	struct end end[2];
	struct reports reports;
	struct nsbox_error *err;
	int failed;
	char buf[sizeof(struct egress_request) + EGRESS_MAX] __attribute__((aligned(8)));
};

/* ------------------------------------------------------------------ reports */

static bool send_report(struct reports *r, const struct egress_event *e)
{
	/* A reader that is gone is no reason to stay awake for it; the owner's end is what counts. */
	return send(r->fd, e, sizeof(*e), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno != EAGAIN;
}

static void flush(struct reports *r)
{
	while (r->first && send_report(r, &r->first->e)) {
		struct report *p = r->first;

		r->first = p->next;
		if (!r->first)
			r->last = &r->first;
		r->n--;
		free(p);
	}
	if (r->source)
		loop_change(r->broker->loop, r->source, EPOLLIN | (r->first ? EPOLLOUT : 0u));
}

static void on_later(void *ctx)
{
	flush(ctx);
}

/* Decisions wait for others a moment, all else goes at once and after them. */
static void put_report(struct reports *r, struct box *x, struct egress_event *e)
{
	bool decision = e->kind == EGRESS_DECISION;
	struct report *p;

	e->magic = EGRESS_WIRE_MAGIC;
	e->sandbox = x ? x->id : 0;
	if (!decision)
		flush(r);
	if (!decision && !r->first && send_report(r, e))
		return;
	p = decision && r->n >= QUEUE_MAX ? NULL : malloc(sizeof(*p));
	if (!p) {
		if (x)
			x->totals.untold++;
		return;
	}
	*p = (struct report){ NULL, *e };
	*r->last = p;
	r->last = &p->next;
	r->n++;
	if (!decision || r->n >= TELL_MAX)
		flush(r);
	else if (!r->later.armed) {
		r->later = (struct loop_timer){ .fn = on_later, .ctx = r };
		loop_timer_set(r->broker->loop, &r->later, TELL_US);
	}
}

void report_event(struct box *x, struct egress_event *e)
{
	put_report(x->broker->reports, x, e);
}

static void send_totals(struct control *c, struct box *x, uint64_t id)
{
	struct egress_event e = { .kind = EGRESS_TOTALS };

	if (x)
		e.totals = x->totals;
	put_report(&c->reports, x, &e);
}

/* ------------------------------------------------------------------ orders */

static void fail(struct control *c, int r)
{
	c->failed = c->failed ? c->failed : r; /* the first reason */
	loop_stop(c->broker->loop);
}

/* Descriptors into the places of the listeners they are. */
static int take_listeners(const struct egress_request *q, int *fds, unsigned n,
			  int ret[NSBOX_LISTENERS_MAX], struct nsbox_error *err)
{
	unsigned at = 0;

	for (int i = 0; i < NSBOX_LISTENERS_MAX; i++)
		ret[i] = (q->arg & (1u << i)) && at < n ? take_fd(&fds[at++]) : -1;
	if ((q->arg >> NSBOX_LISTENERS_MAX) || (unsigned)__builtin_popcount(q->arg) != n)
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EPROTO, "listeners that do not fit");
	return 0;
}

static int on_add(struct control *c, const struct egress_request *q, int *fds, unsigned n)
{
	int listeners[NSBOX_LISTENERS_MAX];
	int r = take_listeners(q, fds, n, listeners, c->err);

	if (r == 0 && (!q->sandbox || box_find(c->broker, q->sandbox)))
		r = nsbox_fail(c->err, NSBOX_E_PROTOCOL, EPROTO, "a number that is taken");
	if (r < 0) {
		for (int i = 0; i < NSBOX_LISTENERS_MAX; i++)
			close_fd(&listeners[i]);
		return r;
	}
	return box_new(c->broker, q->sandbox, q + 1, q->len, listeners, c->err);
}

/* Orders about a sandbox that has gone meanwhile are no fault. */
static int on_order(struct control *c, const struct egress_request *q)
{
	struct box *x = box_find(c->broker, q->sandbox);
	struct egress_event e = { .kind = EGRESS_TOTALS };

	if (q->kind == EGRESS_NARROW) {
		int r = x ? box_narrow(x, q + 1, q->len, c->err) : 0;

		e.kind = EGRESS_NARROWED;
		put_report(&c->reports, x, &e);
		return r;
	}
	if (x && q->kind == EGRESS_REMOVE)
		relay_close(x); /* told before the totals */
	if (x)
		send_totals(c, x, q->sandbox);
	else
		put_report(&c->reports, NULL, &e);
	if (x && q->kind == EGRESS_REMOVE)
		box_free(x);
	return 0;
}

static int obey(struct control *c, size_t len, int *fds, unsigned n)
{
	const struct egress_request *q = (const struct egress_request *)c->buf;
	bool rules = q->kind == EGRESS_ADD || q->kind == EGRESS_NARROW;

	if (len < sizeof(*q) || q->magic != EGRESS_WIRE_MAGIC || !q->kind ||
	    q->kind >= EGRESS_ORDERS || q->len != len - sizeof(*q) || (rules ? !q->len : q->len))
		return nsbox_fail(c->err, NSBOX_E_PROTOCOL, EPROTO, "malformed order");
	if (q->kind == EGRESS_ADD)
		return on_add(c, q, fds, n);
	return on_order(c, q);
}

static unsigned take_fds(struct msghdr *mh, int fds[NSBOX_LISTENERS_MAX])
{
	unsigned n = 0;

	for (struct cmsghdr *m = CMSG_FIRSTHDR(mh); m; m = CMSG_NXTHDR(mh, m)) {
		size_t count = (m->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (m->cmsg_level != SOL_SOCKET || m->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(m) + i * sizeof(int), sizeof(fd));
			if (n < NSBOX_LISTENERS_MAX)
				fds[n++] = fd;
			else
				close(fd);
		}
	}
	return n;
}

/* The first packet of either: of which version who gives orders is. */
static void greet(struct end *end)
{
	struct control *c = end->control;
	int r = release_recv(end->fd, "who started nsbox-egress", c->err);

	end->greeted = r > 0;
	if (r <= 0 && r != -EAGAIN)
		fail(c, r);
}

static void on_control(void *ctx, uint32_t events)
{
	struct end *end = ctx;
	struct control *c = end->control;
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int) * NSBOX_LISTENERS_MAX)];
	} space = { 0 };
	struct iovec iov = { c->buf, sizeof(c->buf) };
	struct msghdr mh = { .msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = space.room,
			     .msg_controllen = sizeof(space.room) };
	int fds[NSBOX_LISTENERS_MAX], r;
	ssize_t len;
	unsigned n;

	if (events & EPOLLOUT)
		flush(&c->reports);
	if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		return;
	if (!end->greeted) {
		greet(end);
		return;
	}
	len = recvmsg(end->fd, &mh, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (len <= 0) { /* the owner has gone: so does the network */
		fail(c, 0);
		return;
	}
	n = take_fds(&mh, fds);
	if (mh.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
		r = nsbox_fail(c->err, NSBOX_E_PROTOCOL, EPROTO, "malformed order");
	else
		r = obey(c, (size_t)len, fds, n);
	for (unsigned i = 0; i < n; i++)
		close_fd(&fds[i]);
	if (r < 0)
		fail(c, r);
}

/* ------------------------------------------------------------------ the loop */

static void on_tick(void *ctx)
{
	struct broker *b = ctx;

	for (struct box *x = b->boxes; x; x = x->next)
		relay_tick(x);
	loop_timer_set(b->loop, &b->tick, TICK_US);
}

static int open_ends(struct control *c, int control, int report, struct nsbox_error *err)
{
	const int fds[] = { control, report == control ? -1 : report };
	int r = 0;

	for (int i = 0; r == 0 && i < 2; i++) {
		struct end *e = &c->end[i];

		*e = (struct end){ .control = c, .fd = fds[i] };
		if (e->fd >= 0)
			r = loop_add(c->broker->loop, e->fd, EPOLLIN, on_control, e, &e->source,
				     err);
		if (r == 0 && e->fd == c->reports.fd)
			c->reports.source = e->source;
	}
	return r;
}

static void close_ends(struct control *c)
{
	c->reports.source = NULL;
	loop_timer_cancel(c->broker->loop, &c->reports.later);
	for (int i = 0; i < 2; i++)
		loop_del(c->broker->loop, &c->end[i].source);
	while (c->reports.first) {
		struct report *p = c->reports.first;

		c->reports.first = p->next;
		free(p);
	}
}

int control_run(struct broker *b, int control, int report, struct nsbox_error *err)
{
	struct control *c = calloc(1, sizeof(*c));
	struct egress_event ready = { .kind = EGRESS_READY };
	int r;

	if (!c)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "take orders");
	c->broker = b;
	c->reports = (struct reports){ .broker = b, .fd = report };
	c->reports.last = &c->reports.first;
	b->reports = &c->reports;
	c->err = err;
	r = open_ends(c, control, report, err);
	if (r == 0) {
		b->tick = (struct loop_timer){ .fn = on_tick, .ctx = b };
		loop_timer_set(b->loop, &b->tick, TICK_US);
		r = release_send(report, "who started nsbox-egress", err);
	}
	if (r == 0) {
		put_report(&c->reports, NULL, &ready);
		r = loop_run(b->loop, err);
	}
	while (b->boxes)
		box_free(b->boxes);
	loop_timer_cancel(b->loop, &b->tick);
	close_ends(c);
	r = r < 0 ? r : c->failed;
	free(c);
	return r;
}
