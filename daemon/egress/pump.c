/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes between two sockets: spliced through a pipe, so that they are not copied to here and back.
 * A pipe is held only while there are bytes in it. Each direction ends by itself: the end of what
 * comes is passed on once all before it was. A reset of one side is a reset of the other.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>

#include "daemon/egress/conn.h"
#include "nsbox/util.h"

#define CHUNK	  (1u << 20)
#define LITTLE	  16384
#define ROUNDS	  16 /* then others have their turn */
#define REFILL_US 20000

/* ------------------------------------------------------------------ pipes */

static bool take_pipe(struct broker *b, struct pipe_end *ret)
{
	if (ret->fd[0] >= 0)
		return true;
	if (b->spares) {
		*ret = b->spare[--b->spares];
		return true;
	}
	if (pipe2(ret->fd, O_CLOEXEC | O_NONBLOCK) < 0) {
		ret->fd[0] = ret->fd[1] = -1;
		return false;
	}
	/* A user may have so many pages in pipes; beyond that they stay as they are. */
	(void)fcntl(ret->fd[1], F_SETPIPE_SZ, CHUNK);
	return true;
}

static void give_pipe(struct broker *b, struct flow *f)
{
	if (f->pipe.fd[0] < 0)
		return;
	if (!f->held && b->spares < SPARE_PIPES) {
		b->spare[b->spares++] = f->pipe;
	} else {
		close(f->pipe.fd[0]);
		close(f->pipe.fd[1]);
	}
	f->pipe.fd[0] = f->pipe.fd[1] = -1;
}

/* ------------------------------------------------------------------ limits */

static void on_refill(void *ctx)
{
	relay_refill(ctx);
}

static void refill_later(struct box *x)
{
	if (x->refill.armed)
		return;
	x->refill = (struct loop_timer){ .fn = on_refill, .ctx = x };
	loop_timer_set(x->broker->loop, &x->refill, REFILL_US);
}

size_t pump_allowance(struct box *x)
{
	uint64_t rate = box_limits(x)->bytes_per_s, now;

	if (!rate)
		return CHUNK;
	now = monotonic_us();
	x->tokens += (int64_t)((double)(now - x->refilled_us) * (double)rate / 1e6);
	x->tokens = MIN(x->tokens, (int64_t)rate); /* a second's worth at once, no more */
	x->refilled_us = now;
	if (x->tokens > 0)
		return (size_t)MIN(x->tokens, (int64_t)CHUNK);
	return 0;
}

/* How many bytes may be read now; 0: later, the timer is set. */
static size_t allowance(struct conn *c)
{
	size_t most = pump_allowance(c->box);

	if (!most)
		refill_later(c->box);
	return most;
}

bool pump_count(struct box *x, bool out, size_t n)
{
	uint64_t most = box_limits(x)->bytes;

	*(out ? &x->totals.bytes_out : &x->totals.bytes_in) += n;
	x->tokens -= (int64_t)n;
	return !most || x->totals.bytes_out + x->totals.bytes_in <= most;
}

static bool count(struct conn *c, int from, size_t n)
{
	c->flow[from].bytes += n;
	c->active_us = monotonic_us();
	return pump_count(c->box, from == INSIDE, n);
}

/* ------------------------------------------------------------------ moving */

enum moved { MOVED, DRAINED, BLOCKED, ENDED };

static enum moved end(struct conn *c, int errnum, const char *why)
{
	conn_end(c, errnum == EDQUOT ? EGRESS_REFUSED : EGRESS_ALLOWED, errnum, why, true);
	return ENDED;
}

static enum moved fill(struct conn *c, int from)
{
	struct flow *f = &c->flow[from];
	size_t most = allowance(c);
	ssize_t n;

	if (!most)
		return BLOCKED;
	if (!take_pipe(c->box->broker, &f->pipe))
		return end(c, errno, "out of descriptors");
	n = splice(c->side[from].fd, NULL, f->pipe.fd[1], NULL, most,
		   SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return BLOCKED;
	if (n < 0)
		return end(c, errno, "");
	c->side[from].eof = n == 0;
	f->held = (size_t)n;
	if (!count(c, from, (size_t)n))
		return end(c, EDQUOT, "the limit of bytes is reached");
	/* Little: all there is, most likely; if not, the loop will say so. */
	return n && n < LITTLE ? DRAINED : MOVED;
}

static enum moved empty(struct conn *c, int from)
{
	struct flow *f = &c->flow[from];
	ssize_t n = splice(f->pipe.fd[0], NULL, c->side[!from].fd, NULL, f->held,
			   SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return BLOCKED;
	if (n <= 0)
		return end(c, errno, "");
	f->held -= (size_t)n;
	return MOVED;
}

static enum moved move(struct conn *c, int from)
{
	struct flow *f = &c->flow[from];
	enum moved m = MOVED;
	bool drained = false;

	for (int i = 0; i < ROUNDS && m != BLOCKED && m != ENDED; i++) {
		if (m == DRAINED)
			drained = true;
		if (f->held)
			m = empty(c, from);
		else if (drained)
			m = BLOCKED;
		else if (!c->side[from].eof)
			m = fill(c, from);
		else
			m = BLOCKED;
	}
	if (m == ENDED)
		return ENDED;
	if (!f->held)
		give_pipe(c->box->broker, f);
	if (!f->held && c->side[from].eof && !c->side[!from].shut) {
		c->side[!from].shut = true;
		shutdown(c->side[!from].fd, SHUT_WR);
	}
	return m;
}

/* ------------------------------------------------------------------ waiting */

static void on_side(void *ctx, uint32_t events);

/* A side that nothing is expected of is not watched at all: its hang-up would be reported for
 * ever. */
static int watch(struct conn *c, int i)
{
	struct side *s = &c->side[i];
	struct loop *l = c->box->broker->loop;
	bool throttled = box_limits(c->box)->bytes_per_s && c->box->tokens <= 0;
	uint32_t events = 0;

	if (!s->eof && !c->flow[i].held && !throttled)
		events |= EPOLLIN;
	if (throttled)
		refill_later(c->box);
	if (c->flow[!i].held)
		events |= EPOLLOUT;
	if (events == s->events)
		return 0;
	s->events = events;
	if (!events) {
		loop_del(l, &s->source);
		return 0;
	}
	if (s->source)
		return loop_change(l, s->source, events);
	return loop_add(l, s->fd, events, on_side, s, &s->source, NULL);
}

/* Which directions: a try that is known to find nothing costs what a useful one does. */
static void run(struct conn *c, bool from_inside, bool from_outside)
{
	if ((from_inside && move(c, INSIDE) == ENDED) ||
	    (from_outside && move(c, OUTSIDE) == ENDED))
		return;
	if (c->side[INSIDE].shut && c->side[OUTSIDE].shut)
		conn_end(c, EGRESS_ALLOWED, 0, "", false);
	else if (watch(c, INSIDE) < 0 || watch(c, OUTSIDE) < 0)
		conn_end(c, EGRESS_ALLOWED, ENOMEM, "out of memory", true);
}

void pump_run(struct conn *c)
{
	run(c, true, true);
}

static void on_side(void *ctx, uint32_t events)
{
	struct side *s = ctx;
	bool inside = s == &s->conn->side[INSIDE];
	bool from = events & ~(uint32_t)EPOLLOUT, to = events & ~(uint32_t)EPOLLIN;
	int errnum = 0;
	socklen_t len = sizeof(errnum);

	/* What a reset side had sent before is gone with it, as it is for any reader. */
	if ((events & EPOLLERR) && getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &errnum, &len) == 0 &&
	    errnum) {
		conn_end(s->conn, EGRESS_ALLOWED, errnum, "", true);
		return;
	}
	run(s->conn, inside ? from : to, inside ? to : from);
}

void pump_start(struct conn *c)
{
	c->state = CONN_OPEN;
	c->active_us = monotonic_us();
	for (int i = 0; i < 2; i++)
		c->side[i].conn = c;
	/* Outside nobody has spoken yet, most likely; where they have, the loop says so. */
	run(c, true, false);
}

void pump_done(struct conn *c)
{
	for (int i = 0; i < 2; i++) {
		loop_forget(c->box->broker->loop, &c->side[i].source);
		give_pipe(c->box->broker, &c->flow[i]);
	}
}
