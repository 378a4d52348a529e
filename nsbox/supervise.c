/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to a sandbox between its making and its end: reports of init and of payloads.
 * Deadlines and endings are stop.c's, results judge.c's.
 */
#include "nsbox/sandbox_private.h"

#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

#include "nsbox/sys.h"
#include "nsbox/util.h"

/* ------------------------------------------------------------------ the end of an exec */

static void push_result(struct nsbox_sandbox *sb, struct exec *ex,
			void (*judge)(const struct nsbox_sandbox *, const struct exec *,
				      struct nsbox_result *))
{
	struct nsbox_event *e = event_push(sb, NSBOX_EVENT_EXITED, ex->id);

	judge(sb, ex, &e->result);
	e->error = e->result.error;
	exec_free(sb, ex);
}

/* Since it was told last, without what the witness of this program tried. */
static void count_refused(struct nsbox_sandbox *sb, struct exec *ex)
{
	uint64_t all = refused_at_once(sb->counters), now = all - MIN(sb->refused, all);
	bool tried = ex->witness_held & (1u << NSBOX_WITNESS_CONNECT);

	sb->refused = MAX(all, sb->refused);
	ex->refused = (uint32_t)MIN(now - MIN(now, (uint64_t)tried), (uint64_t)UINT32_MAX);
}

void supervise_over(struct nsbox_sandbox *sb, struct exec *ex)
{
	count_refused(sb, ex);
	push_result(sb, ex, judge_exit);
	stop_arm(sb);
}

/* ------------------------------------------------------------------ the payload's channel */

/* Where there are no control groups it is a leader that says hello. */
static int meet(struct nsbox_sandbox *sb, struct exec *ex, int pid)
{
	if (ex->stop_cause != NSBOX_CAUSE_NONE)
		return -ECANCELED;
	if (sb->cg.kind != NSBOX_CGROUP_NONE)
		return cgroup_attach(&sb->cg, ex->leaf, pid, &ex->start_error);
	if (ex->leader_fd < 0) {
		ex->leader = pid;
		ex->leader_fd = pidfd_open(pid, 0);
	}
	return ex->leader_fd < 0 ? nsbox_fail_at(&ex->start_error, NSBOX_STAGE_FORK, NSBOX_E_SETUP,
						 errno, "hold the leader of the program")
				 : 0;
}

static void hello(struct nsbox_sandbox *sb, struct exec *ex, int pid)
{
	struct ctl_report go = { .magic = CTL_MAGIC, .kind = CTL_PROCEED };
	int r = meet(sb, ex, pid);

	if (r == 0 && ctl_send(ex->channel, &go, sizeof(go), NULL, 0) == 0)
		return;
	close_fd(&ex->channel); /* it does not proceed without */
	stop_kill(sb, ex);
}

static void channel_closed(struct nsbox_sandbox *sb, struct exec *ex)
{
	close_fd(&ex->channel);
	if (ex->start_error.code || ex->phase != EXEC_START)
		return;
	ex->started_us = monotonic_us();
	observe_behind(sb, ex->id);
	sb->watch_at = ex->started_us + WATCH_INTERVAL_US;
	ex->began_us = ex->started_us;
	stop_enter(sb, ex, EXEC_RUN, ex->waits ? 0 : ex->wall_us);
	event_push(sb, NSBOX_EVENT_STARTED, ex->id);
}

static void witnessed(struct exec *ex, const struct ctl_report *rep)
{
	ex->witness_seen = true;
	ex->witness_tried = rep->tried & ((1U << NSBOX_WITNESS_MAX) - 1);
	ex->witness_held = rep->held & ex->witness_tried;
	ex->witness_us = rep->us;
}

/* Without an observer the program would get another errno than the rule's: it does not start. */
static void refusals(struct nsbox_sandbox *sb, struct exec *ex, int listener)
{
	if (listener >= 0 && !ex->observed &&
	    observe_start(sb, ex, listener, &ex->start_error) == 0)
		return;
	close_fd(&ex->channel);
	stop_kill(sb, ex);
}

void supervise_channel(struct nsbox_sandbox *sb, struct exec *ex)
{
	struct ctl_report rep;
	int fd, pid;

	while (ex->channel >= 0) {
		int r = ctl_recv_report(ex->channel, &rep, &fd, &pid);

		if (r == -EAGAIN)
			return;
		if (r < 0) {
			channel_closed(sb, ex);
			return;
		}
		switch (rep.kind) {
		case CTL_HELLO: hello(sb, ex, pid); break;
		case CTL_WITNESS: witnessed(ex, &rep); break;
		case CTL_REFUSALS: refusals(sb, ex, fd); break;
		case CTL_ERROR:
			if (!ex->start_error.code)
				ex->start_error = rep.error;
			break;
		case CTL_TERMINAL:
			if (fd >= 0)
				event_push(sb, NSBOX_EVENT_TERMINAL, ex->id)->fd = take_fd(&fd);
			break;
		default: break;
		}
		close_fd(&fd);
	}
}

/* ------------------------------------------------------------------ init's reports */

static void ready(struct nsbox_sandbox *sb, const struct ctl_report *rep)
{
	sb->ready_us = monotonic_us();
	memcpy(sb->stage_us, rep->stage_us, sizeof(sb->stage_us));
	sb->enforced = rep->enforced & sb->want;
	if (sb->cg.kind != NSBOX_CGROUP_NONE)
		sb->enforced |= NSBOX_LAYER_BIT(NSBOX_LAYER_CGROUP);
	sb->not_enforced = sb->missing | rep->not_enforced;
	if (sb->phase == PHASE_SETUP)
		sb->phase = PHASE_UP;
	sb->deadline_us = 0;
	stop_arm(sb);
	judge_state(sb, NULL, &event_push(sb, NSBOX_EVENT_READY, 0)->result);
}

static void failed(struct nsbox_sandbox *sb, const struct nsbox_error *error)
{
	struct nsbox_event *e = event_push(sb, NSBOX_EVENT_FAILED, 0);

	e->error = *error;
	e->result.cause = NSBOX_CAUSE_SANDBOX;
	e->result.exit_status = 126;
	e->result.error = *error;
	judge_state(sb, NULL, &e->result);
	sb->phase = PHASE_OVER;
	sb->deadline_us = 0;
	while (sb->execs) /* none was begun: the failure is the answer to all */
		exec_free(sb, sb->execs);
	stop_arm(sb);
}

/* The row of an exec is free again: the program has ended, and its leader where it had one. */
static void exited(struct nsbox_sandbox *sb, struct exec *ex, const struct ctl_report *rep)
{
	supervise_channel(sb, ex); /* what it said before it ended */
	close_fd(&ex->channel);
	close_fd(&ex->leader_fd);
	ex->status = rep->status;
	ex->cpu_us = rep->cpu_us;
	ex->disk_full = rep->full;
	stop_rest(sb, ex);
}

static void left(struct nsbox_sandbox *sb, struct exec *ex)
{
	supervise_channel(sb, ex);
	stop_rest(sb, ex);
}

static void files_done(struct nsbox_sandbox *sb, const struct ctl_report *rep)
{
	struct nsbox_event *e = event_push(sb, NSBOX_EVENT_FILES, rep->id);

	e->error = rep->error;
	if (sb->files_running)
		sb->files_running--;
}

/* Sent once, before anything of the payload's runs, and only where the plan has egress. */
static void take_listeners(struct nsbox_sandbox *sb, const struct ctl_report *rep, int *fds,
			   unsigned n)
{
	unsigned at = 0, set = rep->bytes & ((1u << EGRESS_LISTENERS) - 1);

	if (sb->ready_us || sb->listener_set || !sb->opt.egress ||
	    (unsigned)__builtin_popcount(set) + 1 != n)
		return;
	for (int i = 0; i < EGRESS_LISTENERS; i++)
		if (set & (1u << i))
			sb->listeners[i] = take_fd(&fds[at++]);
	sb->counters = take_fd(&fds[at]);
	sb->listener_set = set;
	event_push(sb, NSBOX_EVENT_LISTENERS, 0);
}

unsigned nsbox_sandbox_listeners(struct nsbox_sandbox *sb, int ret[NSBOX_LISTENERS_MAX])
{
	unsigned set = sb->listener_set;

	for (int i = 0; i < EGRESS_LISTENERS; i++)
		ret[i] = take_fd(&sb->listeners[i]);
	sb->listener_set = 0;
	return set;
}

static void close_some(int *fds, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		close_fd(&fds[i]);
}

void supervise_control(struct nsbox_sandbox *sb)
{
	struct ctl_report rep;
	int pid;

	while (sb->control >= 0) {
		struct exec *ex;
		int fds[EGRESS_LISTENERS + 1];
		unsigned n = EGRESS_LISTENERS + 1;
		int r = ctl_recv_reports(sb->control, &rep, fds, &n, &pid);

		if (r == 0 && rep.kind == CTL_LISTENERS)
			take_listeners(sb, &rep, fds, n);
		close_some(fds, n); /* init sends no others */
		if (r == -EAGAIN)
			return;
		if (r < 0) { /* the pidfd tells the rest */
			close_fd(&sb->control);
			return;
		}
		ex = exec_find(sb, rep.id);
		switch (rep.kind) {
		case CTL_READY: ready(sb, &rep); break;
		case CTL_FAILED: failed(sb, &rep.error); break;
		case CTL_LEFT:
			if (ex)
				left(sb, ex);
			break;
		case CTL_EXITED:
			if (ex)
				exited(sb, ex, &rep);
			break;
		case CTL_USED: sb->watch_files = rep.bytes; break;
		case CTL_COLLECTED:
			event_push(sb, NSBOX_EVENT_COLLECTED, 0)->error = rep.error;
			break;
		case CTL_FILES_DONE: files_done(sb, &rep); break;
		default: break;
		}
	}
}

void supervise_pidfd(struct nsbox_sandbox *sb)
{
	siginfo_t info = { 0 };
	struct nsbox_error lost = { 0 };

	supervise_control(sb); /* last words first */
	waitid(P_PIDFD, (id_t)sb->pidfd, &info, WEXITED | __WALL);
	sb->gone = true;
	if (!sb->ready_us && sb->phase != PHASE_OVER && !sb->execs) {
		nsbox_fail_at(&lost, NSBOX_STAGE_CLONE, NSBOX_E_SETUP, 0,
			      "the sandbox's init ended during set-up (%s %d)",
			      info.si_code == CLD_EXITED ? "status" : "signal", info.si_status);
		failed(sb, &lost);
	}
	while (sb->execs)
		push_result(sb, sb->execs, judge_lost);
	sb->phase = PHASE_OVER;
	event_push(sb, NSBOX_EVENT_GONE, 0);
}
