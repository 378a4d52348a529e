/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to a sandbox between its making and its end: reports of init and payload, deadlines,
 * and the cause of death.
 *
 * A sandbox is in one phase at a time, and each phase has at most one deadline, so one timer serves.
 * Ending something goes TERM, grace, KILL, and at last the kill of init itself, which the kernel
 * turns into the end of everything in the pid namespace.
 */
#include "nsbox/sandbox_private.h"

#include <signal.h>
#include <string.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include "nsbox/sys.h"
#include "nsbox/util.h"

#define START_LIMIT_US 30000000 /* set-up of a loaded host, with room */
#define KILL_LIMIT_US  5000000	/* for init to report after a kill */

/* ------------------------------------------------------------------ events */

static struct nsbox_event *push(struct nsbox_sandbox *sb, uint32_t kind)
{
	struct nsbox_event *e;

	/* Callers take events as they come; a full queue means one that never does. The oldest
	 * notice gives way: results come last. */
	if (sb->count == EVENTS_MAX) {
		close_fd(&sb->queue[sb->head].fd);
		sb->head = (sb->head + 1) % EVENTS_MAX;
		sb->count--;
	}
	e = &sb->queue[(sb->head + sb->count++) % EVENTS_MAX];
	memset(e, 0, sizeof(*e));
	e->kind = kind;
	e->id = sb->exec_id;
	e->fd = -1;
	return e;
}

/* ------------------------------------------------------------------ phases and the timer */

static void arm(struct nsbox_sandbox *sb)
{
	struct itimerspec spec = { 0 };
	uint64_t at = sb->deadline_us;

	/* Where the memory limit is ours to watch, wake up for that as well. */
	if (sb->phase == PHASE_RUN && sb->cg.kind == NSBOX_CGROUP_NONE) {
		uint64_t tick = monotonic_us() + WATCH_INTERVAL_US;

		at = at ? MIN(at, tick) : tick;
	}
	spec.it_value.tv_sec = (time_t)(at / 1000000);
	spec.it_value.tv_nsec = (long)(at % 1000000) * 1000;
	if (timerfd_settime(sb->timer, TFD_TIMER_ABSTIME, &spec, NULL) == 0 || sb->gone)
		return;
	/* Without it no limit of time or memory would hold: then nothing runs. */
	if (!sb->start_error.code)
		nsbox_fail_at(&sb->start_error, NSBOX_STAGE_LIMITS, NSBOX_E_SETUP, errno,
			      "arm the timer of the run's deadline");
	sys_pidfd_send_signal(sb->pidfd, SIGKILL);
}

void supervise_enter(struct nsbox_sandbox *sb, enum phase phase, uint64_t us)
{
	sb->phase = phase;
	sb->deadline_us = us ? monotonic_us() + us : 0;
	arm(sb);
}

/* ------------------------------------------------------------------ ending */

int supervise_signal(struct nsbox_sandbox *sb, int signal, bool all)
{
	struct ctl_request req = {
		.magic = CTL_MAGIC,
		.kind = CTL_SIGNAL,
		.id = sb->exec_id,
		.signal = signal,
		.all = all,
	};

	return ctl_send(sb->control, &req, sizeof(req), NULL, 0);
}

static void kill_now(struct nsbox_sandbox *sb)
{
	supervise_signal(sb, SIGKILL, !sb->keep_rest);
	supervise_enter(sb, PHASE_KILL, KILL_LIMIT_US);
}

int supervise_stop(struct nsbox_sandbox *sb, int cause, struct nsbox_error *err)
{
	switch (sb->phase) {
	case PHASE_START: /* nothing of the caller's runs yet that could wind up */
	case PHASE_RUN: break;
	case PHASE_TERM:
	case PHASE_KILL: return 0;
	case PHASE_SETUP:
	case PHASE_IDLE:
	case PHASE_OVER:
	default: return nsbox_fail(err, NSBOX_E_INVALID, ESRCH, "nothing is running");
	}
	sb->stop_cause = (uint32_t)cause;
	if (sb->phase == PHASE_START || !sb->fixed->limits.grace_ms ||
	    cause == NSBOX_CAUSE_MEMORY) {
		kill_now(sb);
		return 0;
	}
	supervise_signal(sb, SIGTERM, !sb->keep_rest);
	supervise_enter(sb, PHASE_TERM, sb->fixed->limits.grace_ms * 1000);
	return 0;
}

/* The answer comes with init's other reports, and counts from the next look on. */
static void watch_files(struct nsbox_sandbox *sb)
{
	struct ctl_request req = { .magic = CTL_MAGIC, .kind = CTL_USAGE };

	ctl_send(sb->control, &req, sizeof(req), NULL, 0);
	sb->watch_memfds = watchdog_memfds(sb->pid);
}

static void watch_memory(struct nsbox_sandbox *sb)
{
	uint64_t now;

	if (sb->watch_round++ % WATCH_FILES_EVERY == 0)
		watch_files(sb);
	now = watchdog_memory(sb->pid, sb->watch_files + sb->watch_memfds,
			      sb->fixed->limits.memory);
	sb->watch_peak = MAX(sb->watch_peak, now);
	if (now > sb->fixed->limits.memory) {
		sb->watch_kills++;
		supervise_stop(sb, NSBOX_CAUSE_MEMORY, NULL);
	}
}

void supervise_timer(struct nsbox_sandbox *sb)
{
	uint64_t ticks;
	bool due = sb->deadline_us && monotonic_us() >= sb->deadline_us;

	if (read(sb->timer, &ticks, sizeof(ticks)) < 0)
		return;
	if (!due) {
		if (sb->phase == PHASE_RUN)
			watch_memory(sb);
		arm(sb);
		return;
	}
	switch (sb->phase) {
	case PHASE_RUN: supervise_stop(sb, NSBOX_CAUSE_WALL_TIME, NULL); break;
	case PHASE_TERM: kill_now(sb); break;
	case PHASE_SETUP:
	case PHASE_START:
	case PHASE_KILL: /* init itself does not answer */
		sys_pidfd_send_signal(sb->pidfd, SIGKILL);
		sb->deadline_us = 0;
		break;
	case PHASE_IDLE:
	case PHASE_OVER:
	default: break;
	}
}

/* ------------------------------------------------------------------ results */

static void fill_usage(struct nsbox_sandbox *sb, struct nsbox_result *r)
{
	struct cgroup_usage u = { 0 };

	cgroup_usage(&sb->cg, &u);
	r->memory_peak = sb->cg.kind == NSBOX_CGROUP_NONE ? sb->watch_peak : u.memory_peak;
	r->oom_kills = u.oom_kills - sb->usage_before.oom_kills + sb->watch_kills;
	r->pids_limit_hits = u.pids_hits - sb->usage_before.pids_hits;
	r->memory_limit = sb->fixed->limits.memory;
}

static void fill_state(struct nsbox_sandbox *sb, struct nsbox_result *r)
{
	uint32_t witness = NSBOX_LAYER_BIT(NSBOX_LAYER_WITNESS);

	r->cgroup_kind = (uint32_t)sb->cg.kind;
	r->enforced = sb->enforced;
	r->not_enforced = sb->not_enforced;
	if (sb->witness_seen)
		r->enforced |= sb->want & (witness | NSBOX_LAYER_BIT(NSBOX_LAYER_SECCOMP));
	r->witness_tried = sb->witness_tried;
	r->witness_held = sb->witness_held;
	r->witness_us = sb->witness_us;
	r->setup_us = sb->ready_us > sb->created_us ? sb->ready_us - sb->created_us : 0;
	if (sb->started_us)
		r->wall_us = monotonic_us() - sb->started_us;
}

static uint32_t cause_of_signal(const struct nsbox_sandbox *sb, const struct nsbox_result *r)
{
	uint64_t cpu_ms = sb->fixed->limits.cpu_ms;

	switch (r->signal) {
	case SIGSYS: return NSBOX_CAUSE_POLICY;
	case SIGXCPU: return NSBOX_CAUSE_CPU_TIME;
	case SIGKILL:
		if (r->oom_kills)
			return NSBOX_CAUSE_MEMORY;
		if (cpu_ms && r->cpu_us / 1000 >= cpu_ms)
			return NSBOX_CAUSE_CPU_TIME;
		return NSBOX_CAUSE_SIGNAL;
	default: return NSBOX_CAUSE_SIGNAL;
	}
}

static void judge_start_error(const struct nsbox_sandbox *sb, struct nsbox_result *r)
{
	const struct nsbox_error *e = &sb->start_error;
	bool ours = e->code != NSBOX_E_EXEC && e->code != NSBOX_E_INVALID;

	r->cause = ours ? NSBOX_CAUSE_SANDBOX : NSBOX_CAUSE_EXEC;
	r->exit_status = e->stage == NSBOX_STAGE_EXECVE && e->errnum == ENOENT ? 127 : 126;
	r->signal = 0;
	r->error = *e;
}

static void judge(const struct nsbox_sandbox *sb, int status, struct nsbox_result *r)
{
	r->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	r->exit_status = r->signal ? 128 + r->signal : WEXITSTATUS(status);
	if (sb->start_error.code)
		judge_start_error(sb, r);
	else if (sb->stop_cause != NSBOX_CAUSE_NONE)
		r->cause = sb->stop_cause;
	else
		r->cause = r->signal ? cause_of_signal(sb, r) : NSBOX_CAUSE_EXIT;
	if (r->cause == NSBOX_CAUSE_POLICY)
		nsbox_fail_at(&r->error, NSBOX_STAGE_SECCOMP, NSBOX_E_EXEC, 0,
			      "the system call filter ended the program: it made a call of a "
			      "foreign architecture");
}

static void exec_over(struct nsbox_sandbox *sb, int status, uint64_t cpu_us)
{
	struct nsbox_event *e = push(sb, NSBOX_EVENT_EXITED);

	fill_state(sb, &e->result);
	fill_usage(sb, &e->result);
	e->result.cpu_us = cpu_us;
	judge(sb, status, &e->result);
	e->error = e->result.error;
	supervise_enter(sb, PHASE_IDLE, 0);
}

/* Init died under a running exec: by the kernel's hand, or by ours as a last resort. */
static void exec_lost(struct nsbox_sandbox *sb)
{
	struct nsbox_event *e = push(sb, NSBOX_EVENT_EXITED);
	struct nsbox_result *r = &e->result;

	fill_state(sb, r);
	fill_usage(sb, r);
	r->signal = SIGKILL;
	r->exit_status = 128 + SIGKILL;
	r->cause = sb->stop_cause ? sb->stop_cause
		   : r->oom_kills ? NSBOX_CAUSE_MEMORY
				  : NSBOX_CAUSE_INTERRUPTED;
	nsbox_fail(&r->error, NSBOX_E_PROTOCOL, 0, "the sandbox's init ended during the run");
	if (sb->start_error.code)
		judge_start_error(sb, r);
	e->error = r->error;
}

static bool running(const struct nsbox_sandbox *sb)
{
	return sb->phase == PHASE_START || sb->phase == PHASE_RUN || sb->phase == PHASE_TERM ||
	       sb->phase == PHASE_KILL;
}

/* ------------------------------------------------------------------ the payload's channel */

static void hello(struct nsbox_sandbox *sb, int pid)
{
	struct ctl_report go = { .magic = CTL_MAGIC, .kind = CTL_PROCEED };
	int r = cgroup_attach(&sb->cg, pid, &sb->start_error);

	if (r < 0 || ctl_send(sb->channel, &go, sizeof(go), NULL, 0) < 0)
		kill_now(sb);
}

static void channel_closed(struct nsbox_sandbox *sb)
{
	close_fd(&sb->channel);
	if (sb->start_error.code || sb->phase != PHASE_START)
		return;
	sb->started_us = monotonic_us();
	supervise_enter(sb, PHASE_RUN, sb->wall_us);
	push(sb, NSBOX_EVENT_STARTED);
}

static void witnessed(struct nsbox_sandbox *sb, const struct ctl_report *rep)
{
	sb->witness_seen = 1;
	sb->witness_tried = rep->tried & ((1U << NSBOX_WITNESS_MAX) - 1);
	sb->witness_held = rep->held & sb->witness_tried;
	sb->witness_us = rep->us;
}

void supervise_channel(struct nsbox_sandbox *sb)
{
	struct ctl_report rep;
	int fd, pid;

	while (sb->channel >= 0) {
		int r = ctl_recv_report(sb->channel, &rep, &fd, &pid);

		if (r == -EAGAIN)
			return;
		if (r < 0) {
			channel_closed(sb);
			return;
		}
		switch (rep.kind) {
		case CTL_HELLO: hello(sb, pid); break;
		case CTL_WITNESS: witnessed(sb, &rep); break;
		case CTL_ERROR:
			if (!sb->start_error.code)
				sb->start_error = rep.error;
			break;
		case CTL_TERMINAL:
			if (fd >= 0)
				push(sb, NSBOX_EVENT_TERMINAL)->fd = take_fd(&fd);
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
	sb->enforced = rep->enforced & sb->want;
	if (sb->cg.kind != NSBOX_CGROUP_NONE)
		sb->enforced |= NSBOX_LAYER_BIT(NSBOX_LAYER_CGROUP);
	sb->not_enforced = sb->missing | rep->not_enforced;
	if (sb->phase == PHASE_SETUP)
		supervise_enter(sb, PHASE_IDLE, 0);
	fill_state(sb, &push(sb, NSBOX_EVENT_READY)->result);
}

static void failed(struct nsbox_sandbox *sb, const struct nsbox_error *error)
{
	struct nsbox_event *e = push(sb, NSBOX_EVENT_FAILED);

	e->error = *error;
	e->result.cause = NSBOX_CAUSE_SANDBOX;
	e->result.exit_status = 126;
	e->result.error = *error;
	fill_state(sb, &e->result);
	supervise_enter(sb, PHASE_OVER, 0);
}

static void files_done(struct nsbox_sandbox *sb, const struct ctl_report *rep)
{
	struct nsbox_event *e = push(sb, NSBOX_EVENT_FILES);

	e->id = rep->id;
	e->error = rep->error;
	if (sb->files_running)
		sb->files_running--;
}

void supervise_control(struct nsbox_sandbox *sb)
{
	struct ctl_report rep;
	int fd, pid;

	while (sb->control >= 0) {
		int r = ctl_recv_report(sb->control, &rep, &fd, &pid);

		close_fd(&fd); /* init sends none */
		if (r == -EAGAIN)
			return;
		if (r < 0) { /* the pidfd tells the rest */
			close_fd(&sb->control);
			return;
		}
		switch (rep.kind) {
		case CTL_READY: ready(sb, &rep); break;
		case CTL_FAILED: failed(sb, &rep.error); break;
		case CTL_EXITED:
			if (!running(sb) || rep.id != sb->exec_id)
				break;
			supervise_channel(sb); /* what it said before it ended */
			close_fd(&sb->channel);
			exec_over(sb, rep.status, rep.cpu_us);
			break;
		case CTL_USED: sb->watch_files = rep.bytes; break;
		case CTL_COLLECTED: push(sb, NSBOX_EVENT_COLLECTED)->error = rep.error; break;
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
	if (running(sb)) {
		exec_lost(sb);
	} else if (!sb->ready_us && sb->phase != PHASE_OVER) {
		nsbox_fail_at(&lost, NSBOX_STAGE_CLONE, NSBOX_E_SETUP, 0,
			      "the sandbox's init ended during set-up (%s %d)",
			      info.si_code == CLD_EXITED ? "status" : "signal", info.si_status);
		failed(sb, &lost);
	}
	supervise_enter(sb, PHASE_OVER, 0);
	push(sb, NSBOX_EVENT_GONE);
}
