/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The result of an exec: what was enforced, what was used, and the cause of its end, which is what
 * the kernel says and not what the program prints.
 */
#include "nsbox/sandbox_private.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "nsbox/util.h"

static void fill_usage(const struct nsbox_sandbox *sb, const struct exec *ex,
		       struct nsbox_result *r)
{
	struct cgroup_usage u = { 0 };

	cgroup_usage(&sb->cg, ex->leaf, &u);
	r->memory_peak = sb->cg.kind == NSBOX_CGROUP_NONE ? sb->watch_peak : u.memory_peak;
	r->oom_kills = u.oom_kills - ex->before.oom_kills + ex->watch_kills;
	r->pids_limit_hits = u.pids_hits - ex->before.pids_hits;
	r->memory_limit = sb->fixed->limits.memory;
}

/*
 * When init was ready, as the owner heard; it may hear late, on a busy host only with the program's start,
 * whose request had waited for init. The witness, for one, had its time after it.
 */
static uint64_t ready_us(const struct nsbox_sandbox *sb, const struct exec *ex)
{
	return ex && ex->started_us ? MIN(sb->ready_us, ex->started_us - ex->witness_us)
				    : sb->ready_us;
}

void judge_state(const struct nsbox_sandbox *sb, const struct exec *ex, struct nsbox_result *r)
{
	const uint64_t ready = ready_us(sb, ex);
	uint32_t witness = NSBOX_LAYER_BIT(NSBOX_LAYER_WITNESS);

	r->cgroup_kind = (uint32_t)sb->cg.kind;
	r->enforced = sb->enforced;
	r->not_enforced = sb->not_enforced;
	r->setup_us = ready > sb->created_us ? ready - sb->created_us : 0;
	memcpy(r->stage_us, sb->stage_us, sizeof(r->stage_us));
	if (!ex)
		return;
	if (ex->witness_seen)
		r->enforced |= sb->want & (witness | NSBOX_LAYER_BIT(NSBOX_LAYER_SECCOMP));
	r->witness_tried = ex->witness_tried;
	r->witness_held = ex->witness_held;
	r->witness_us = ex->witness_us;
	r->refused = ex->refused;
	if (ex->started_us)
		r->start_us = (uint32_t)(ex->started_us - MAX(ex->asked_us, ready));
	if (ex->started_us)
		r->wall_us = (ex->ended_us ? ex->ended_us : monotonic_us()) - ex->began_us;
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

/* By itself, well or badly. One that failed after a fork of its was refused failed for that, as far
 * as anyone outside can tell: programs seldom say, and few go on well without. The same holds for
 * one that left a full disk behind. */
static uint32_t cause_of_end(const struct nsbox_sandbox *sb, const struct exec *ex,
			     const struct nsbox_result *r)
{
	uint32_t cause = r->signal ? cause_of_signal(sb, r) : NSBOX_CAUSE_EXIT;

	if ((cause == NSBOX_CAUSE_EXIT || cause == NSBOX_CAUSE_SIGNAL) && r->exit_status &&
	    r->pids_limit_hits)
		return NSBOX_CAUSE_PIDS;
	if ((cause == NSBOX_CAUSE_EXIT || cause == NSBOX_CAUSE_SIGNAL) && r->exit_status &&
	    ex->disk_full)
		return NSBOX_CAUSE_DISK;
	return cause;
}

static void judge_start_error(const struct exec *ex, struct nsbox_result *r)
{
	const struct nsbox_error *e = &ex->start_error;
	bool ours = e->code != NSBOX_E_EXEC && e->code != NSBOX_E_INVALID;

	r->cause = ours ? NSBOX_CAUSE_SANDBOX : NSBOX_CAUSE_EXEC;
	/* The kernel's answer to an execve with more processes than RLIMIT_NPROC allows. */
	if (e->stage == NSBOX_STAGE_EXECVE && e->errnum == EAGAIN)
		r->cause = NSBOX_CAUSE_PIDS;
	r->exit_status = e->stage == NSBOX_STAGE_EXECVE && e->errnum == ENOENT ? 127 : 126;
	r->signal = 0;
	r->error = *e;
}

void judge_exit(const struct nsbox_sandbox *sb, const struct exec *ex, struct nsbox_result *r)
{
	judge_state(sb, ex, r);
	fill_usage(sb, ex, r);
	observe_result(ex, r);
	r->cpu_us = ex->cpu_us;
	r->signal = WIFSIGNALED(ex->status) ? WTERMSIG(ex->status) : 0;
	r->exit_status = r->signal ? 128 + r->signal : WEXITSTATUS(ex->status);
	if (ex->start_error.code)
		judge_start_error(ex, r);
	else if (ex->stop_cause != NSBOX_CAUSE_NONE)
		r->cause = ex->stop_cause;
	else
		r->cause = cause_of_end(sb, ex, r);
	if (sb->poor_upper && !r->error.code)
		nsbox_format(
			r->error.msg, sizeof(r->error.msg),
			"directories of the image cannot be removed or made anew in this run, and "
			"its changes not be listed or kept: a tmpfs of this kernel has no "
			"attributes for that, which takes Linux 6.6, or root with loop devices "
			"and mke2fs");
	if (r->cause == NSBOX_CAUSE_POLICY)
		nsbox_fail_at(&r->error, NSBOX_STAGE_SECCOMP, NSBOX_E_EXEC, 0,
			      "the system call filter ended the program: it made a call of a "
			      "foreign architecture");
}

/* Init died under a running exec: by the kernel's hand, or by ours as a last resort. */
void judge_lost(const struct nsbox_sandbox *sb, const struct exec *ex, struct nsbox_result *r)
{
	judge_state(sb, ex, r);
	fill_usage(sb, ex, r);
	observe_result(ex, r);
	r->signal = SIGKILL;
	r->exit_status = 128 + SIGKILL;
	r->cause = ex->stop_cause ? ex->stop_cause
		   : r->oom_kills ? NSBOX_CAUSE_MEMORY
				  : NSBOX_CAUSE_INTERRUPTED;
	nsbox_fail(&r->error, NSBOX_E_PROTOCOL, 0, "the sandbox's init ended during the run");
	if (ex->start_error.code)
		judge_start_error(ex, r);
}
