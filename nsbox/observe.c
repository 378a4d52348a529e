/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Observers of refused calls (observe.h): the owner's side. What an observer does is observer.c's.
 *
 * One lives as long as anything runs behind the filter it answers for, which may be longer than its
 * exec; the kernel tells it when nothing does. It is not waited for: its pidfd is watched.
 */
#include "nsbox/observer.h"

#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "nsbox/sandbox_private.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

struct observer {
	struct observer *next;
	uint32_t id; /* of its exec */
	int pidfd;
	pid_t pid; /* ours until it is collected */

	/* Of one that waits for its listener: */
	int place;
	struct observed *table;
};

static struct observed *table_new(void)
{
	void *p = mmap(NULL, sizeof(struct observed), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

void observe_forget(struct exec *ex)
{
	if (ex->observed)
		munmap(ex->observed, sizeof(*ex->observed));
	if (ex->trace)
		munmap(ex->trace, sizeof(*ex->trace));
	ex->observed = NULL;
	ex->trace = NULL;
	close_fd(&ex->prober);
}

/* The plan is kept out of children (nsbox_plan_open): the observer gets a copy of the filter. */
static int fork_observer(const struct nsbox_sandbox *sb, const struct exec *ex,
			 struct observer_task *task, struct observer *ret)
{
	const struct sock_filter *filter =
		blob_get(plan_blob(sb->plan), SEC_BPF, sizeof(*filter), &task->n);
	auto_free struct sock_filter *copy = NULL;
	pid_t pid;
	int r;

	if (ex && ex->filter) {
		filter = ex->filter;
		task->n = ex->insns;
	}
	copy = calloc(task->n, sizeof(*copy));
	r = copy ? 0 : -ENOMEM;

	if (r == 0) {
		memcpy(copy, filter, task->n * sizeof(*copy));
		task->filter = copy;
		r = observer_prepare(task);
	}
	if (r < 0)
		return r;
	pid = sys_clone_pidfd(&ret->pidfd);
	if (pid == 0)
		observer_main(task);
	r = pid < 0 ? -errno : 0;
	ret->pid = pid;
	observer_release(task);
	return r;
}

int observe_trace(struct nsbox_sandbox *sb, struct exec *ex, int file, int *ret_prober,
		  struct nsbox_error *err)
{
	int pair[2], r;
	void *p;

	if (!sb->opt.observe)
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "opens are traced in sandboxes that observe");
	p = mmap(NULL, sizeof(*ex->trace), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (p == MAP_FAILED)
		return nsbox_fail(err, NSBOX_E_IO, errno, "map the file of a trace");
	ex->trace = p;
	r = ctl_pair(pair);
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, r, "make a socket for a trace");
	ex->prober = pair[0];
	*ret_prober = pair[1];
	return 0;
}

static void collect(struct observer *o)
{
	siginfo_t info;

	while (waitid(P_PIDFD, (id_t)o->pidfd, &info, WEXITED | __WALL) < 0 && errno == EINTR)
		;
	close(o->pidfd);
	free(o);
}

static void drop_spare(struct nsbox_sandbox *sb)
{
	struct observer *o = sb->spare;

	sb->spare = NULL;
	if (!o)
		return;
	sys_pidfd_send_signal(o->pidfd, SIGKILL);
	close(o->place);
	if (o->table)
		munmap(o->table, sizeof(*o->table));
	collect(o);
}

/*
 * The first program's, forked while init makes the sandbox, when its owner has nothing to do: the
 * program's start would wait for the fork. Without one that start forks its own, and has the error.
 */
void observe_spare(struct nsbox_sandbox *sb)
{
	struct observer *o = calloc(1, sizeof(*o));
	struct observer_task task = { .listener = -1, .prober = -1 };
	int pair[2];

	if (!o || ctl_pair(pair) < 0) {
		free(o);
		return;
	}
	o->place = pair[0];
	task.place = pair[1];
	task.table = o->table = table_new();
	if (o->table && fork_observer(sb, NULL, &task, o) == 0) {
		sb->spare = o;
	} else {
		close(o->place);
		if (o->table)
			munmap(o->table, sizeof(*o->table));
		free(o);
	}
	close(pair[1]);
}

/* The spare one, which answers at the listener now; NULL where there is none that could. */
static struct observer *adopt(struct nsbox_sandbox *sb, struct exec *ex, int listener)
{
	struct observer *o = sb->spare;
	char byte = 0;

	if (!o || ex->trace || ex->filter || ctl_send(o->place, &byte, 1, &listener, 1) < 0) {
		drop_spare(sb);
		return NULL;
	}
	sb->spare = NULL;
	close_fd(&o->place);
	ex->observed = take_ptr(&o->table);
	return o;
}

static int start_own(struct nsbox_sandbox *sb, struct exec *ex, int listener, struct observer **ret)
{
	struct observer *o = calloc(1, sizeof(*o));
	struct observer_task task = {
		.listener = listener, .place = -1, .prober = ex->prober, .trace = ex->trace
	};
	int r;

	ex->observed = table_new();
	task.table = ex->observed;
	r = o && ex->observed ? fork_observer(sb, ex, &task, o) : -ENOMEM;
	if (r < 0) {
		free(o);
		observe_forget(ex);
		return r;
	}
	close_fd(&ex->prober);
	*ret = o;
	return 0;
}

int observe_start(struct nsbox_sandbox *sb, struct exec *ex, int listener, struct nsbox_error *err)
{
	struct observer *o = adopt(sb, ex, listener);
	int r = o ? 0 : start_own(sb, ex, listener, &o);

	if (r < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_SECCOMP, NSBOX_E_SETUP, r,
				     "start the observer of refused calls");
	/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): r is 0 */
	o->id = ex->id;
	o->next = sb->observers;
	sb->observers = o;
	return sandbox_watch(sb, o->pidfd, WATCH_OBSERVER, ex->id, err);
}

/* Not before: what the witness is refused is waited for, by the one who waits for the program. */
void observe_behind(struct nsbox_sandbox *sb, uint32_t id)
{
	for (struct observer *o = sb->observers; o; o = o->next)
		if (o->id == id)
			(void)setpriority(PRIO_PROCESS, (id_t)o->pid, 10);
}

void observe_ended(struct nsbox_sandbox *sb, uint32_t id)
{
	for (struct observer **p = &sb->observers; *p; p = &(*p)->next) {
		struct observer *o = *p;

		if (o->id != id)
			continue;
		*p = o->next;
		epoll_ctl(sb->epoll, EPOLL_CTL_DEL, o->pidfd, NULL);
		collect(o);
		return;
	}
}

void observe_end_all(struct nsbox_sandbox *sb)
{
	drop_spare(sb);
	while (sb->observers) {
		struct observer *o = sb->observers;

		sb->observers = o->next;
		sys_pidfd_send_signal(o->pidfd, SIGKILL);
		collect(o);
	}
}

/* The observer is a process of ours and still one that may have died in mid-write. */
void observe_result(const struct exec *ex, struct nsbox_result *r)
{
	const struct observed *o = ex->observed;

	if (!o)
		return;
	r->observed = 1;
	r->denied_calls = MIN(o->rows, NSBOX_DENIED_MAX);
	r->denied_untold = o->untold;
	memcpy(r->denied, o->row, r->denied_calls * sizeof(r->denied[0]));
}
