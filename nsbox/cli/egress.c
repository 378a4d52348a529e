/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The broker of one run: a child that serves one sandbox. Should it die, the run goes on without a
 * network: its listeners exist nowhere else, so that every call is refused and none waits.
 */
#include "nsbox/cli/egress.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "daemon/common/release.h"
#include "nsbox/cli/cli.h"
#include "nsbox/util.h"

#define SANDBOX	  1	/* the only one */
#define READY_MS  30000 /* a machine may have much else to do */
#define FINISH_US 10000000

void run_egress_init(struct run_egress *e)
{
	*e = (struct run_egress){ .sock = -1 };
}

/* ------------------------------------------------------------------ the child */

static _Noreturn void become(int sock, pid_t parent, const char *servers, const char *proxy)
{
	char path[4096];
	const char *argv[6] = { "nsbox-egress" };
	unsigned n = 1;
	char *const env[] = { NULL };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* Not of our terminal's business: its end is the end of the socket. */
	if (setsid() < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent ||
	    null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(sock, 3) < 0 ||
	    fcntl(3, F_SETFD, 0) < 0 || close_range(4, ~0u, 0) < 0)
		_exit(1);
	if (servers) {
		argv[n++] = "--servers";
		argv[n++] = servers;
	}
	if (proxy) {
		argv[n++] = "--proxy";
		argv[n++] = proxy;
	}
	cli_libexec("nsbox-egress", path, sizeof(path));
	execve(path, (char *const *)argv, env);
	fprintf(stderr, "nsbox: start '%s': %m\n", path);
	_exit(127);
}

static int wait_ready(struct run_egress *e, struct nsbox_error *err)
{
	struct pollfd p = { .fd = e->sock, .events = POLLIN };
	struct egress_event ev;
	int r = release_send(e->sock, "nsbox-egress", err) < 0 ? -EIO : poll(&p, 1, READY_MS);

	if (r == 1)
		r = release_recv(e->sock, "nsbox-egress", err);
	if (r == -EPROTO)
		return r;
	if (r == 1 && poll(&p, 1, READY_MS) == 1 && egress_recv(e->sock, &ev, NULL) == 1 &&
	    ev.kind == EGRESS_READY)
		return 0;
	return nsbox_fail_at(err, NSBOX_STAGE_EGRESS, NSBOX_E_SETUP, 0,
			     "nsbox-egress, which the run needs for its network, did not start");
}

int run_egress_start(struct run_egress *e, const struct nsbox_plan *plan, const char *servers,
		     const char *proxy, struct nsbox_error *err)
{
	pid_t parent = getpid();
	auto_close int theirs = -1;
	int sv[2];

	e->rules = nsbox_plan_egress(plan, &e->len);
	if (!e->rules)
		return 0;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make a socket pair");
	e->sock = sv[0];
	theirs = sv[1];
	e->pid = fork();
	if (e->pid == 0)
		become(theirs, parent, servers, proxy);
	if (e->pid < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "start nsbox-egress");
	e->log.used = true;
	close_fd(&theirs);
	return wait_ready(e, err);
}

int run_egress_listeners(struct run_egress *e, struct nsbox_sandbox *sb, struct nsbox_error *err)
{
	int fds[NSBOX_LISTENERS_MAX], r = 0;
	unsigned set = nsbox_sandbox_listeners(sb, fds);

	if (e->sock >= 0)
		r = egress_send(e->sock, EGRESS_ADD, SANDBOX, e->rules, e->len, set, fds, err);
	for (int i = 0; i < NSBOX_LISTENERS_MAX; i++)
		close_fd(&fds[i]);
	return r;
}

/* ------------------------------------------------------------------ what it tells */

/* True at the totals, or when there is nobody to wait for. */
static bool read_some(struct run_egress *e)
{
	struct egress_event ev;
	int flags = fcntl(e->sock, F_GETFL), r;

	fcntl(e->sock, F_SETFL, flags | O_NONBLOCK);
	while ((r = egress_recv(e->sock, &ev, NULL)) == 1) {
		egress_log_take(&e->log, &ev);
		if (ev.kind == EGRESS_TOTALS)
			return true;
	}
	if (r == -EAGAIN)
		return false;
	e->log.lost = true;
	close_fd(&e->sock);
	return true;
}

void run_egress_read(struct run_egress *e)
{
	if (e->sock >= 0)
		read_some(e);
}

void run_egress_finish(struct run_egress *e)
{
	uint64_t end = monotonic_us() + FINISH_US;
	struct pollfd p = { .events = POLLIN };

	if (e->sock < 0 || egress_send(e->sock, EGRESS_REMOVE, SANDBOX, NULL, 0, 0, NULL, NULL) < 0)
		return;
	for (;;) {
		uint64_t now = monotonic_us();

		p.fd = e->sock;
		if (now >= end || poll(&p, 1, (int)((end - now) / 1000) + 1) < 0 || read_some(e))
			return;
	}
}

void run_egress_done(struct run_egress *e)
{
	close_fd(&e->sock);
	if (e->pid > 0)
		waitpid(e->pid, NULL, 0);
	e->pid = 0;
	egress_log_done(&e->log);
}
