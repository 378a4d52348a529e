/* SPDX-License-Identifier: Apache-2.0 */
/* A template's owner: asking it for a fork (template.h). */
#include "nsbox/template.h"

#include <poll.h>
#include <signal.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "nsbox/host_private.h"
#include "nsbox/sandbox_private.h"
#include "nsbox/util.h"
#include "nsbox/weaken.h"

/* It takes less than one; on a loaded host more. Its owner serves nobody meanwhile. */
#define ANSWER_MS 1000

static int answer(int sock, struct template_reply *ret)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	unsigned none = 0;
	int r = poll(&p, 1, ANSWER_MS);

	if (r <= 0)
		return r < 0 ? -errno : -ETIMEDOUT;
	r = ctl_recv(sock, ret, sizeof(*ret), NULL, &none, MSG_DONTWAIT);
	return r == 0 && ret->magic != TEMPLATE_MAGIC ? -EBADMSG : r;
}

/* A wrapper that starts the interpreter and stays would be the parent. */
static bool is_our_child(pid_t pid)
{
	siginfo_t info;

	return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0;
}

static int ask(int sock, const struct template_request *q, const int *fds, unsigned n)
{
	struct template_reply rep = { 0 };
	int r = ctl_send(sock, q, sizeof(*q), fds, n);

	if (r == 0)
		r = answer(sock, &rep);
	if (r == 0 && rep.errnum)
		return -rep.errnum; /* it is well, the kernel refuses */
	if (r == 0 && !is_our_child(rep.pid))
		r = -ECHILD;
	if (r < 0)
		shutdown(sock, SHUT_RDWR);
	return r < 0 ? r : rep.pid;
}

static int ask_for_one(int sock, const struct child *c, uint64_t flags, int cgroup)
{
	struct template_request q = { .magic = TEMPLATE_MAGIC, .flags = flags, .child = *c };
	auto_close int plan = make_memfd("nsbox-plan", c->plan->base, c->plan->size, true);
	auto_close int root = make_memfd("nsbox-root", c->root->base, c->root->size, true);
	const int fds[TEMPLATE_FDS] = { plan, root, c->control, cgroup };

	/* Addresses of ours are of no use there. */
	q.child.plan = q.child.root = NULL;
	q.child.share = NULL;
	q.child.process = NULL;
	if (plan < 0 || root < 0)
		return plan < 0 ? plan : root;
	return ask(sock, &q, fds, cgroup < 0 ? TEMPLATE_CGROUP : TEMPLATE_FDS);
}

/*
 * A fork of the owner's template, where all that the sandbox begins with is a plan and a root. One
 * that cannot fork is no reason to have no sandbox: it is the same one. Not without Landlock: the
 * program that a fork has mapped is of the host's own mount, and no read-only one stands before it.
 */
pid_t template_fork_init(struct nsbox_sandbox *sb, const struct child *c)
{
	pid_t pid;

	if (sb->opt.template <= 0 || c->process || c->files_fd >= 0 || c->upper_from >= 0 ||
	    c->on_disk || c->share->path || c->track || weakened() ||
	    !(sb->want & NSBOX_LAYER_BIT(NSBOX_LAYER_LANDLOCK_FS)))
		return 0;
	pid = ask_for_one(sb->opt.template, c, host_namespace_flags(sb->want), sb->cg.init);
	if (pid < 0)
		return -1;
	sb->pidfd = pidfd_open(pid, 0); /* not reaped yet, its number is nobody else's */
	if (sb->pidfd < 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, __WALL);
		return -1;
	}
	sb->forked = true;
	return pid;
}
