/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tier "process", with ids of its own: signalling a payload's user as a whole, and being it.
 *
 * kill(-1) reaches what the caller may signal, in one walk of the kernel's that no fork slips through.
 * So the caller must be somebody who may signal the payload's processes and nobody else's: real and saved
 * id are a third one that no other process has, the effective one is the payload's, and every capability
 * is gone. That is read back before the call: with CAP_KILL it would end the host's processes.
 */
#include <signal.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "nsbox/child.h"
#include "nsbox/process_tier.h"
#include "nsbox/util.h"

static bool holds_nothing(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	if (syscall(SYS_capset, &head, data) < 0)
		return false;
	memset(data, 0xff, sizeof(data));
	if (syscall(SYS_capget, &head, data) < 0)
		return false;
	return !(data[0].effective | data[0].permitted | data[1].effective | data[1].permitted);
}

/* In a process of its own: a status for the parent. */
static int signal_as(const struct process_box *b, int signal)
{
	uid_t r, e, s;

	if (syscall(SYS_setgroups, 0, NULL) < 0 ||
	    syscall(SYS_setresgid, b->reaper, b->reaper, b->reaper) < 0 ||
	    syscall(SYS_setresuid, b->reaper, b->payload.uid, b->reaper) < 0)
		return errno;
	getresuid(&r, &e, &s);
	if (r != b->reaper || s != b->reaper || e != b->payload.uid || !holds_nothing())
		return EPERM;
	return kill(-1, signal) < 0 ? errno : 0;
}

int process_signal_user(const struct process_box *b, int signal)
{
	pid_t pid = child_fork();
	int status = 0;

	if (pid == 0)
		_exit(signal_as(b, signal));
	if (pid < 0)
		return -errno;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

int process_become(const struct process_box *b)
{
	const struct ids_payload *p = &b->payload;

	if (syscall(SYS_setgroups, 0, NULL) < 0 ||
	    syscall(SYS_setresgid, p->gid, p->gid, p->gid) < 0 ||
	    syscall(SYS_setresuid, p->uid, p->uid, p->uid) < 0)
		return -errno;
	return holds_nothing() ? 0 : -EPERM;
}
