/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only thread besides the front's loop. It sleeps until it is told, calls the journal's sync()
 * and says how that went; it allocates nothing and shares nothing with the loop but the result,
 * which each side touches only when the other waits.
 */
#include "daemon/front/syncer.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include "nsbox/util.h"

struct syncer {
	struct loop *loop;
	struct loop_source *source;
	struct journal *journal;
	syncer_fn *done;
	void *ctx;
	pthread_t thread;
	bool has_thread;
	int go, over; /* eventfds: the loop's word, the thread's */
	atomic_bool ends;
	atomic_int result;
	struct nsbox_error err;
};

static void *run(void *arg)
{
	struct syncer *s = arg;
	uint64_t n;
	int r;

	prctl(PR_SET_NAME, "nsboxd-sync", 0, 0, 0);
	for (;;) {
		if (read(s->go, &n, sizeof(n)) < 0 && errno != EINTR)
			return NULL;
		if (atomic_load(&s->ends))
			return NULL;
		memset(&s->err, 0, sizeof(s->err));
		r = s->journal->ops->sync(s->journal, &s->err);
		atomic_store(&s->result, r);
		if (eventfd_write(s->over, 1) < 0)
			return NULL;
	}
}

static void on_over(void *ctx, uint32_t events)
{
	struct syncer *s = ctx;
	eventfd_t n;

	if (eventfd_read(s->over, &n) == 0)
		s->done(s->ctx, atomic_load(&s->result) < 0 ? &s->err : NULL);
}

/* Signals are the loop's: the thread takes none. */
static int start_thread(struct syncer *s)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&s->thread, NULL, run, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	s->has_thread = r == 0;
	return r;
}

int syncer_new(struct loop *l, struct journal *j, syncer_fn *done, void *ctx, struct syncer **ret,
	       struct nsbox_error *err)
{
	struct syncer *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "set up syncs");
	*s = (struct syncer){ .loop = l, .journal = j, .done = done, .ctx = ctx };
	s->go = eventfd(0, EFD_CLOEXEC);
	s->over = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->go < 0 || s->over < 0)
		r = nsbox_fail(err, NSBOX_E_NOMEM, errno, "eventfd");
	else
		r = loop_add(l, s->over, EPOLLIN, on_over, s, &s->source, err);
	if (r == 0 && (r = start_thread(s)) > 0)
		r = nsbox_fail(err, NSBOX_E_NOMEM, r, "start a thread for syncs");
	if (r < 0) {
		syncer_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void syncer_start(struct syncer *s)
{
	eventfd_write(s->go, 1);
}

int syncer_wait(struct syncer *s, struct nsbox_error *err)
{
	struct pollfd p = { .fd = s->over, .events = POLLIN };
	eventfd_t n;
	int r;

	while (eventfd_read(s->over, &n) < 0)
		poll(&p, 1, -1);
	r = atomic_load(&s->result);
	if (r < 0)
		*err = s->err;
	return r;
}

void syncer_free(struct syncer *s)
{
	if (!s)
		return;
	atomic_store(&s->ends, true);
	if (s->has_thread) {
		eventfd_write(s->go, 1);
		pthread_join(s->thread, NULL);
	}
	loop_del(s->loop, &s->source);
	close_fd(&s->go);
	close_fd(&s->over);
	free(s);
}
