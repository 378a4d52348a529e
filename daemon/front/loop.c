/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front's event loop.
 *
 * epoll for descriptors, a sorted list for timers (there are as many as jobs run at once), one
 * thread. A source may be deleted by any callback, also by that of another source whose event
 * came in the same batch: it is taken out of epoll at once, marked dead, and freed after the batch.
 */
#include "daemon/front/loop.h"

#include <sys/epoll.h>

#include "nsbox/util.h"

#define BATCH 64

struct loop_source {
	int fd;
	loop_fn *fn; /* NULL: dead */
	void *ctx;
	struct loop_source *next_dead;
};

struct loop {
	int epoll;
	bool stop;
	struct loop_timer *timers;
	struct loop_source *dead;
};

int loop_new(struct loop **ret, struct nsbox_error *err)
{
	struct loop *l = calloc(1, sizeof(*l));

	if (!l)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "event loop");
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll < 0) {
		free(l);
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "epoll_create1");
	}
	*ret = l;
	return 0;
}

static void bury(struct loop *l)
{
	while (l->dead) {
		struct loop_source *s = l->dead;

		l->dead = s->next_dead;
		free(s);
	}
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	bury(l);
	close_fd(&l->epoll);
	free(l);
}

int loop_add(struct loop *l, int fd, uint32_t events, loop_fn *fn, void *ctx,
	     struct loop_source **ret, struct nsbox_error *err)
{
	struct loop_source *s = malloc(sizeof(*s));
	struct epoll_event e = { .events = events, .data.ptr = s };

	if (!s)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "watch a descriptor");
	*s = (struct loop_source){ .fd = fd, .fn = fn, .ctx = ctx };
	if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &e) < 0) {
		free(s);
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "watch a descriptor");
	}
	*ret = s;
	return 0;
}

int loop_change(struct loop *l, struct loop_source *s, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.ptr = s };

	return epoll_ctl(l->epoll, EPOLL_CTL_MOD, s->fd, &e) < 0 ? -errno : 0;
}

void loop_forget(struct loop *l, struct loop_source **sp)
{
	struct loop_source *s = take_ptr(sp);

	if (!s)
		return;
	s->fn = NULL;
	s->next_dead = l->dead;
	l->dead = s;
}

void loop_del(struct loop *l, struct loop_source **sp)
{
	if (*sp)
		epoll_ctl(l->epoll, EPOLL_CTL_DEL, (*sp)->fd, NULL);
	loop_forget(l, sp);
}

void loop_timer_cancel(struct loop *l, struct loop_timer *t)
{
	if (!t->armed)
		return;
	for (struct loop_timer **p = &l->timers; *p; p = &(*p)->next) {
		if (*p == t) {
			*p = t->next;
			break;
		}
	}
	t->armed = false;
}

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t after_us)
{
	struct loop_timer **p = &l->timers;

	loop_timer_cancel(l, t);
	t->at = monotonic_us() + after_us;
	while (*p && (*p)->at <= t->at)
		p = &(*p)->next;
	t->next = *p;
	*p = t;
	t->armed = true;
}

static int timeout_ms(const struct loop *l)
{
	uint64_t now = monotonic_us();

	if (!l->timers)
		return -1;
	if (l->timers->at <= now)
		return 0;
	return (int)MIN((l->timers->at - now + 999) / 1000, UINT64_C(3600000));
}

static void run_timers(struct loop *l)
{
	/* As of now: a timer that sets itself anew waits for the next round. */
	uint64_t now = monotonic_us();

	while (l->timers && l->timers->at <= now) {
		struct loop_timer *t = l->timers;

		l->timers = t->next;
		t->armed = false;
		t->fn(t->ctx);
	}
}

int loop_run(struct loop *l, struct nsbox_error *err)
{
	struct epoll_event events[BATCH];

	while (!l->stop) {
		int n = epoll_wait(l->epoll, events, BATCH, timeout_ms(l));

		if (n < 0 && errno != EINTR)
			return nsbox_fail(err, NSBOX_E_IO, errno, "epoll_wait");
		for (int i = 0; i < n; i++) {
			struct loop_source *s = events[i].data.ptr;

			if (s->fn)
				s->fn(s->ctx, events[i].events);
		}
		run_timers(l);
		bury(l);
	}
	return 0;
}

void loop_stop(struct loop *l)
{
	l->stop = true;
}
