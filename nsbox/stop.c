/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deadlines, and ending what runs.
 *
 * Ending an exec goes TERM, grace, KILL, and at last the kill of init itself, which the kernel turns
 * into the end of everything in the pid namespace. What is meant by "the exec" depends:
 *
 *   not keep_rest   everything but init: one kill(-1) of init's
 *   control groups  everything in the exec's leaf (cgroup_leaf.c)
 *   else            everything below the exec's leader (leader.c, tree.c)
 *
 * The latter two are rounds of looking and signalling from outside until nothing is found; a program
 * that ended meanwhile is not reported before. Other execs, and what earlier ones have left running,
 * are not touched. One timer serves all deadlines of a sandbox.
 */
#include "nsbox/sandbox_private.h"

#include <signal.h>
#include <sys/timerfd.h>

#include "nsbox/sys.h"
#include "nsbox/tree.h"
#include "nsbox/util.h"

#define KILL_LIMIT_US 5000000 /* for init to report after a kill, and for trees to end */
#define ROUND_US      2000

/* ------------------------------------------------------------------ the timer */

static bool is_watched(const struct nsbox_sandbox *sb)
{
	if (sb->cg.kind != NSBOX_CGROUP_NONE)
		return false; /* the kernel watches */
	for (const struct exec *ex = sb->execs; ex; ex = ex->next)
		if (ex->phase == EXEC_RUN)
			return true;
	return sb->kept && sb->phase == PHASE_UP; /* what earlier ones have left */
}

static bool in_rounds(const struct exec *ex)
{
	return ex->keep_rest && (ex->phase == EXEC_KILL || ex->phase == EXEC_REST);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return !a ? b : !b ? a : MIN(a, b);
}

void stop_arm(struct nsbox_sandbox *sb)
{
	struct itimerspec spec = { 0 };
	uint64_t at = sb->deadline_us;

	for (const struct exec *ex = sb->execs; ex; ex = ex->next) {
		at = earlier(at, ex->deadline_us);
		if (in_rounds(ex))
			at = earlier(at, monotonic_us() + ROUND_US);
	}
	if (is_watched(sb))
		at = earlier(at, sb->watch_at);
	spec.it_value.tv_sec = (time_t)(at / 1000000);
	spec.it_value.tv_nsec = (long)(at % 1000000) * 1000;
	if (timerfd_settime(sb->timer, TFD_TIMER_ABSTIME, &spec, NULL) == 0 || sb->gone)
		return;
	/* Without it no limit of time or memory would hold: then nothing runs. */
	for (struct exec *ex = sb->execs; ex; ex = ex->next)
		if (!ex->start_error.code)
			nsbox_fail_at(&ex->start_error, NSBOX_STAGE_LIMITS, NSBOX_E_SETUP, errno,
				      "arm the timer of the run's deadline");
	sandbox_kill_init(sb);
}

void stop_enter(struct nsbox_sandbox *sb, struct exec *ex, enum exec_phase phase, uint64_t us)
{
	ex->phase = phase;
	ex->deadline_us = us ? monotonic_us() + us : 0;
	stop_arm(sb);
}

/* ------------------------------------------------------------------ signals */

int stop_signal(struct nsbox_sandbox *sb, const struct exec *ex, int signal, bool all)
{
	struct ctl_request req = {
		.magic = CTL_MAGIC,
		.kind = CTL_SIGNAL,
		.id = ex->id,
		.signal = signal,
		.all = all,
	};

	return ctl_send(sb->control, &req, sizeof(req), NULL, 0);
}

/* All that belongs to the exec, in one round. True where there is nothing any more. */
static bool signal_tree(struct nsbox_sandbox *sb, struct exec *ex, int signal)
{
	if (!ex->keep_rest) {
		stop_signal(sb, ex, signal, true);
		return false;
	}
	if (ex->leaf != CGROUP_NO_LEAF) {
		cgroup_leaf_signal(&sb->cg, ex->leaf, signal);
		return cgroup_leaf_empty(&sb->cg, ex->leaf);
	}
	return ex->leader_fd < 0 || tree_signal(ex->leader, signal, !sb->process) == 0;
}

/* ------------------------------------------------------------------ ending */

void stop_kill(struct nsbox_sandbox *sb, struct exec *ex)
{
	/* Before it is in its group the program is known to init alone. One that has a leader is
	 * not begun where that one is not told to proceed. */
	if (ex->phase == EXEC_START && ex->keep_rest && ex->leaf != CGROUP_NO_LEAF)
		stop_signal(sb, ex, SIGKILL, false);
	signal_tree(sb, ex, SIGKILL);
	stop_enter(sb, ex, EXEC_KILL, KILL_LIMIT_US);
}

void stop_exec(struct nsbox_sandbox *sb, struct exec *ex, int cause)
{
	uint64_t grace_us = sb->fixed->limits.grace_ms * 1000;

	if (ex->phase != EXEC_START && ex->phase != EXEC_RUN)
		return;
	ex->stop_cause = (uint32_t)cause;
	/* In START nothing of the caller's runs yet that could wind up. */
	if (ex->phase == EXEC_START || !grace_us || cause == NSBOX_CAUSE_MEMORY) {
		stop_kill(sb, ex);
		return;
	}
	signal_tree(sb, ex, SIGTERM);
	stop_enter(sb, ex, EXEC_TERM, grace_us);
}

/* The program has ended; one that was stopped is over when all it started has. */
void stop_rest(struct nsbox_sandbox *sb, struct exec *ex)
{
	bool first = ex->phase != EXEC_REST, stopped = ex->stop_cause != NSBOX_CAUSE_NONE;

	if (first)
		ex->ended_us = monotonic_us();
	ex->phase = EXEC_REST;
	if (!stopped || !ex->keep_rest || signal_tree(sb, ex, SIGKILL)) {
		if (ex->leader_fd < 0) {
			supervise_over(sb, ex);
			return;
		}
		sys_pidfd_send_signal(ex->leader_fd, SIGKILL); /* init says when it is gone */
	}
	if (first)
		stop_enter(sb, ex, EXEC_REST, KILL_LIMIT_US);
}

/* ------------------------------------------------------------------ time */

static void on_deadline(struct nsbox_sandbox *sb, struct exec *ex)
{
	switch (ex->phase) {
	case EXEC_RUN: stop_exec(sb, ex, NSBOX_CAUSE_WALL_TIME); break;
	case EXEC_TERM: stop_kill(sb, ex); break;
	case EXEC_START:
		if (sb->phase == PHASE_UP && ex->keep_rest) {
			nsbox_fail_at(&ex->start_error, NSBOX_STAGE_FORK, NSBOX_E_SETUP, ETIMEDOUT,
				      "start the program");
			stop_kill(sb, ex);
			break;
		}
		/* fallthrough */
	case EXEC_KILL: /* init itself does not answer, */
	case EXEC_REST: /* or processes there cannot be ended otherwise */
	default:
		sandbox_kill_init(sb);
		ex->deadline_us = 0;
		break;
	}
}

static void exec_time(struct nsbox_sandbox *sb, struct exec *ex, uint64_t now)
{
	if (ex->deadline_us && now >= ex->deadline_us)
		on_deadline(sb, ex);
	else if (ex->phase == EXEC_REST)
		stop_rest(sb, ex);
	else if (in_rounds(ex))
		signal_tree(sb, ex, SIGKILL);
}

void stop_timer(struct nsbox_sandbox *sb)
{
	uint64_t ticks, now = monotonic_us();

	if (read(sb->timer, &ticks, sizeof(ticks)) < 0)
		return;
	if (sb->deadline_us && now >= sb->deadline_us) {
		sandbox_kill_init(sb);
		sb->deadline_us = 0;
	}
	for (struct exec *ex = sb->execs, *next; ex; ex = next) {
		next = ex->next; /* what is over is freed */
		exec_time(sb, ex, now);
	}
	if (is_watched(sb) && now >= sb->watch_at) {
		sb->watch_at = now + WATCH_INTERVAL_US;
		watchdog_look(sb);
	}
	stop_arm(sb);
}
