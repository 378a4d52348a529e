/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The leader of an exec: the process between init and the program of a sandbox that is kept, where
 * there are no control groups.
 *
 * Whatever the program starts must end with it when it is stopped, and nothing else may; but a
 * process that leaves its group and session and whose parent ends is init's child like any other.
 * A leader asks for the orphans below it (PR_SET_CHILD_SUBREAPER), so that while it lives all that
 * came from its program is found by walking down from it, which the owner does from outside
 * (tree.c). It stays, reaping, until the owner kills it: at once when the program ended by itself,
 * and what runs on is then init's; or when nothing is left below it.
 *
 * It holds nothing: no descriptor, no capability, not init's socket; it is undumpable, and every
 * signal it can block is blocked. With ids of its own the payload cannot reach it at all. With a
 * single id the payload could kill it, as it could kill everything else in the sandbox; init then
 * ends all of that, since nobody can tell any more whose it is.
 */
#include "nsbox/child.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "nsbox/util.h"

static _Noreturn void give_up(const struct payload_fds *fds, struct ctl_report *rep)
{
	rep->magic = CTL_MAGIC;
	rep->kind = CTL_ERROR;
	ctl_send(fds->channel, rep, sizeof(*rep), NULL, 0);
	_exit(126);
}

static uint64_t cpu_of_children(void)
{
	struct rusage u;

	if (getrusage(RUSAGE_CHILDREN, &u) < 0)
		return 0;
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Children that end later than the program still have to be taken, or they would stay as zombies;
 * while there are none there is nothing to do but to exist. */
static _Noreturn void reap(pid_t init, pid_t program, struct leader_note *note)
{
	sigset_t chld;
	int status;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	for (;;) {
		pid_t pid = waitpid(-1, &status, __WALL);

		if (pid == program) {
			note->status = status;
			note->cpu_us = cpu_of_children();
			__atomic_store_n(&note->over, 1, __ATOMIC_RELEASE);
			kill(init, SIGCHLD); /* it has that in a descriptor */
		} else if (pid < 0 && errno == ECHILD) {
			sigwaitinfo(&chld, NULL);
		}
	}
}

_Noreturn void leader_main(struct child *c, const struct blob *exec, struct payload_fds *fds,
			   struct leader_note *note)
{
	struct ctl_report rep = { 0 };
	sigset_t all;
	pid_t pid;
	int r;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0) {
		nsbox_fail_at(&rep.error, NSBOX_STAGE_FORK, NSBOX_E_SETUP, errno,
			      "ask for the orphans of the program");
		give_up(fds, &rep);
	}
	if (payload_hello(fds->channel, &rep.error) < 0)
		give_up(fds, &rep);
	c->parent_pid = getpid();
	pid = child_fork();
	if (pid == 0)
		payload_main(c, exec, fds);
	if (pid < 0) {
		nsbox_fail_at(&rep.error, NSBOX_STAGE_FORK, NSBOX_E_NOMEM, errno,
			      "fork the program's process");
		give_up(fds, &rep);
	}
	__atomic_store_n(&note->program, pid, __ATOMIC_RELEASE);
	r = child_close_others(0, NULL, 0);
	if (r == 0)
		r = payload_drop_capabilities(&rep.error);
	if (r < 0)
		_exit(126); /* init sees a leader that is lost, and ends all */
	reap(c->init_pid, pid, note);
}
