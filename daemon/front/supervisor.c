/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The supervisor: keeps front, nsbox-spawn and nsbox-egress running together.
 *
 *	nsboxd (this)	listening socket, data directory, nothing else; the caller's ids
 *	 +- nsboxd	front: ids of the user `nsbox`, no capability; these two, pair's socket
 *	 +- nsbox-spawn	the caller's ids; pair's socket, one to nsbox-egress
 *	 `- nsbox-egress	as root another user; a socket of nsbox-spawn, one of the front
 *
 * If one of them dies the others are ended and all are started anew, with a pause that grows as
 * long as they do not last. All die with the supervisor (PR_SET_PDEATHSIG), however it ends. A
 * first set that gives up by itself ends the supervisor: what keeps it from starting will not go
 * away by trying again, and whoever started it should hear of it.
 *
 * The supervisor opens the operator's files and gives them to the front (orders.h); the one that it
 * needs itself is read by a process apart (config_read.c). TERM lets the front finish what runs, a
 * second TERM or INT does not; HUP reads the files again, and either all of them are in force
 * afterwards or none is. To the service manager it says what the front has said.
 */
#include "daemon/front/supervisor_private.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "daemon/front/datadir.h"
#include "daemon/front/sd.h"
#include "nsbox/util.h"

#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 10000
#define SETTLED_US   (UINT64_C(10) * 1000000)
#define END_MS	     5000

/* ------------------------------------------------------------------ users and environment */

static int find_user(struct supervisor *s, struct nsbox_error *err)
{
	const char *name = *s->opt->user ? s->opt->user : "nsbox";
	struct passwd *pw;

	s->uid = geteuid();
	s->gid = getegid();
	if (s->uid != 0 && !*s->opt->user)
		return 0;
	errno = 0;
	pw = getpwnam(name);
	if (!pw)
		return nsbox_fail(err, NSBOX_E_INVALID, errno,
				  "there is no user '%s' for the unprivileged part: make it with "
				  "`useradd --system --no-create-home --shell /usr/sbin/nologin "
				  "%s`, or name another with --user",
				  name, name);
	if (s->uid != 0 && pw->pw_uid != s->uid)
		return nsbox_fail(err, NSBOX_E_INVALID, EPERM,
				  "only root can start the service for user '%s'", name);
	s->change_user = s->uid == 0 && pw->pw_uid != 0;
	s->user = name;
	s->uid = pw->pw_uid;
	s->gid = pw->pw_gid;
	return 0;
}

/* Where state is kept, and a PATH for nothing in particular. */
static int make_environment(struct supervisor *s)
{
	static const char *const keep[] = { "NSBOX_STATE_DIR", "XDG_STATE_HOME", "HOME" };
	size_t n = 0;

	s->env = calloc(ARRAY_SIZE(keep) + 2, sizeof(*s->env));
	if (!s->env || !(s->env[n++] = strdup("PATH=/usr/sbin:/usr/bin:/sbin:/bin")))
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_SIZE(keep); i++) {
		const char *v = getenv(keep[i]);

		if (v && asprintf(&s->env[n++], "%s=%s", keep[i], v) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* ------------------------------------------------------------------ starting */

/* In the child: die with the parent, also if that is gone already. */
static void tie_to_parent(pid_t parent)
{
	if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != parent)
		_exit(1);
}

static void become_user(const struct supervisor *s)
{
	if (!s->change_user)
		return;
	if (initgroups(s->user, s->gid) < 0 || setresgid(s->gid, s->gid, s->gid) < 0 ||
	    setresuid(s->uid, s->uid, s->uid) < 0) {
		fprintf(stderr, "<3>nsboxd: become user '%s': %m\n", s->user);
		_exit(1);
	}
}

/* Descriptors in[i] become 3 + i, all others above 2 go. */
static void place_fds(const int *in, int n)
{
	int high[8];

	for (int i = 0; i < n; i++)
		high[i] = fcntl(in[i], F_DUPFD_CLOEXEC, 16);
	for (int i = 0; i < n; i++)
		if (high[i] < 0 || dup2(high[i], 3 + i) < 0)
			_exit(1);
	if (close_range(3u + (unsigned)n, ~0u, 0) < 0)
		_exit(1);
}

static int start(struct supervisor *s, struct member *m, const char *path, char *const *argv,
		 const int *fds, int n, bool as_user, struct nsbox_error *err)
{
	pid_t parent = getpid();
	sigset_t none;

	m->pid = fork();
	if (m->pid < 0) {
		m->pid = 0;
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "start %s", m->name);
	}
	if (m->pid > 0)
		return 0;
	place_fds(fds, n);
	if (as_user)
		become_user(s);
	tie_to_parent(parent); /* after the change of user, which clears it */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execve(path, argv, s->env);
	fprintf(stderr, "<3>nsboxd: start '%s': %m\n", path);
	_exit(127);
}

static int start_front(struct supervisor *s, int sock, int orders, int reports,
		       struct nsbox_error *err)
{
	const int fds[] = { s->listen_fd, sock, s->data_fd, orders, reports };
	char *const argv[] = { s->args->argv[0], (char *)"--front", NULL };

	return start(s, &s->front, s->self, argv, fds, ARRAY_SIZE(fds), true, err);
}

static int start_spawn(struct supervisor *s, int sock, int egress, struct nsbox_error *err)
{
	char *argv[12 + 4 * OPTION_SHARES_MAX] = { (char *)"nsbox-spawn", (char *)"--egress-fd",
						   (char *)"4" };
	const int fds[] = { sock, egress };
	unsigned n = 3;

	if (*s->opt->state_dir) {
		argv[n++] = (char *)"--state-dir";
		argv[n++] = s->opt->state_dir;
	}
	if (*s->opt->zygote) {
		argv[n++] = (char *)"--template";
		argv[n++] = s->template_path;
		argv[n++] = (char *)"--modules";
		argv[n++] = strcmp(s->opt->zygote, "none") ? s->opt->zygote : (char *)"";
	}
	if (s->opt->min_tier == NSBOX_TIER_PROCESS)
		argv[n++] = (char *)"--process-tier";
	/* From here, where nobody but the operator has a say, and not by way of the front. */
	for (unsigned i = 0; i < s->opt->n_shares; i++) {
		argv[n++] = (char *)"--workspace";
		argv[n++] = s->opt->shares[i].name;
		argv[n++] = (char *)"--directory";
		argv[n++] = s->opt->shares[i].directory;
	}

	return start(s, &s->spawn, s->spawn_path, argv, fds, ARRAY_SIZE(fds), false, err);
}

/* It becomes another user by itself. */
static int start_egress(struct supervisor *s, int control, int reports, struct nsbox_error *err)
{
	char *argv[8] = { (char *)"nsbox-egress", (char *)"--report-fd", (char *)"4" };
	unsigned n = 3;
	const int fds[] = { control, reports };

	if (*s->opt->egress_dns) {
		argv[n++] = (char *)"--servers";
		argv[n++] = s->opt->egress_dns;
	}
	if (*s->opt->egress_proxy) {
		argv[n++] = (char *)"--proxy";
		argv[n++] = s->opt->egress_proxy;
	}
	return start(s, &s->egress, s->egress_path, argv, fds, ARRAY_SIZE(fds), false, err);
}

static int make_pair(int *a, int *b, struct nsbox_error *err)
{
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make a socket pair");
	*a = sv[0];
	*b = sv[1];
	return 0;
}

static int start_pair(struct supervisor *s, struct nsbox_error *err)
{
	auto_close int a = -1, b = -1, ours = -1, theirs = -1;
	auto_close int order = -1, obey = -1, hear = -1, tell = -1;
	int r = make_pair(&a, &b, err);

	if (r == 0)
		r = make_pair(&ours, &theirs, err);
	if (r == 0)
		r = make_pair(&order, &obey, err);
	if (r == 0)
		r = make_pair(&hear, &tell, err);
	if (r == 0)
		r = start_egress(s, obey, tell, err);
	if (r == 0)
		r = start_spawn(s, b, order, err);
	if (r == 0)
		r = start_front(s, a, theirs, hear, err);
	if (r < 0)
		return r;
	close_fd(&s->order_fd);
	s->order_fd = take_fd(&ours);
	s->ready = false;
	free_ptr(&s->next);
	return lead_options(s, s->opt, err);
}

/* ------------------------------------------------------------------ waiting and ending */

static void reap(struct supervisor *s)
{
	struct member *all[] = { &s->front, &s->spawn, &s->egress };
	pid_t pid;
	int status;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
			if (all[i]->pid != pid)
				continue;
			all[i]->pid = 0;
			all[i]->status = status;
		}
	}
}

static void on_signal(struct supervisor *s)
{
	struct signalfd_siginfo info;

	while (read(s->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGHUP)
			lead_reload(s);
		else if (info.ssi_signo == SIGTERM && !s->drain_end)
			lead_drain(s);
		else if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT)
			s->drain_end = 1;
	}
}

/* How long poll() may sleep until then, and until the next sign of life is due. */
static int sleep_ms(const struct supervisor *s, uint64_t end, uint64_t ping)
{
	uint64_t now = monotonic_us(), at = MIN(end, s->watchdog_us ? ping : UINT64_MAX);

	if (s->drain_end)
		at = MIN(at, s->drain_end);
	return at <= now ? 0 : (int)MIN((at - now + 999) / 1000, UINT64_C(3600000));
}

/* True: it is to end now. False: time is over, or (any_death) one of the three is gone. */
static bool wait_for(struct supervisor *s, uint64_t ms, bool any_death)
{
	uint64_t end = ms ? monotonic_us() + ms * 1000 : UINT64_MAX, ping = 0;

	for (;;) {
		struct pollfd fds[] = { { s->signal_fd, POLLIN, 0 }, { s->order_fd, POLLIN, 0 } };

		reap(s);
		if (any_death && (!s->front.pid || !s->spawn.pid || !s->egress.pid))
			return s->drained || s->drain_end;
		if (monotonic_us() >= end)
			return false;
		if (s->drain_end && (!any_death || monotonic_us() >= s->drain_end))
			return true;
		lead_ping(s, &ping);
		if (poll(fds, ARRAY_SIZE(fds), sleep_ms(s, end, ping)) < 0)
			continue;
		/* What the front has said counts before its death is seen. */
		if (fds[1].revents)
			lead_hear(s);
		if (fds[0].revents)
			on_signal(s);
	}
}

static void end_member(struct supervisor *s, struct member *m)
{
	if (m->pid)
		kill(m->pid, SIGTERM);
	for (int waited = 0; m->pid && waited < END_MS; waited += 20) {
		struct signalfd_siginfo info;
		struct pollfd fd = { s->signal_fd, POLLIN, 0 };

		poll(&fd, 1, 20);
		while (read(s->signal_fd, &info, sizeof(info)) > 0)
			if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT)
				s->drain_end = 1;
		reap(s);
	}
	if (m->pid) {
		kill(m->pid, SIGKILL);
		waitpid(m->pid, &m->status, 0);
		m->pid = 0;
	}
}

/* The front first: its clients hear of it, and its end is spawn's cue. */
static void end_pair(struct supervisor *s)
{
	end_member(s, &s->front);
	end_member(s, &s->spawn);
	end_member(s, &s->egress);
}

static void describe(const struct member *m, char *buf, size_t size)
{
	if (WIFSIGNALED(m->status))
		snprintf(buf, size, "%s was killed by signal %d", m->name, WTERMSIG(m->status));
	else
		snprintf(buf, size, "%s exited with status %d", m->name, WEXITSTATUS(m->status));
}

/* Did it end by itself, and soon? Asked before the rest of the pair is ended. */
static bool gave_up(const struct supervisor *s, uint64_t lasted_us)
{
	const struct member *all[] = { &s->front, &s->spawn, &s->egress };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (all[i]->pid == 0 && WIFSIGNALED(all[i]->status))
			return false;
	return lasted_us < SETTLED_US;
}

static int run(struct supervisor *s, struct nsbox_error *err)
{
	uint64_t pause = PAUSE_MIN_MS;
	char why[3][80];

	for (bool first = true;; first = false) {
		uint64_t began = monotonic_us();
		bool told, by_itself;
		int r = start_pair(s, err);

		told = r == 0 && wait_for(s, 0, true);
		by_itself = gave_up(s, monotonic_us() - began);
		end_pair(s);
		if (r < 0)
			return r;
		if (told)
			return 0;
		describe(&s->spawn, why[0], sizeof(why[0]));
		describe(&s->front, why[1], sizeof(why[1]));
		describe(&s->egress, why[2], sizeof(why[2]));
		if (first && by_itself && !s->ready_once)
			return nsbox_fail(err, NSBOX_E_SETUP, 0,
					  "the service did not start: %s, %s, %s", why[0], why[1],
					  why[2]);
		pause = monotonic_us() - began > SETTLED_US ? PAUSE_MIN_MS
							    : MIN(pause * 2, PAUSE_MAX_MS);
		fprintf(stderr, "<4>nsboxd: %s, %s, %s; starting again\n", why[0], why[1], why[2]);
		sd_notify_text("STATUS=starting again");
		if (wait_for(s, pause, false))
			return 0;
	}
}

static int open_signals(struct supervisor *s, struct nsbox_error *err)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return s->signal_fd < 0 ? nsbox_fail(err, NSBOX_E_NOMEM, errno, "signalfd") : 0;
}

/* Those of the service manager, else our own. */
static int open_sockets(struct supervisor *s, struct nsbox_error *err)
{
	int r = sd_take_sockets(&s->listen_fd, &s->tcp_fd, err);

	s->own_socket = s->listen_fd < 0;
	if (r == 0 && s->own_socket)
		r = listen_open(s->opt, s->gid, &s->listen_fd, err);
	if (r == 0 && s->tcp_fd >= 0 && !*s->opt->tokens)
		r = nsbox_fail(err, NSBOX_E_INVALID, 0,
			       "the service manager brings a TCP socket, and there is no file of "
			       "tokens for it: --tokens");
	if (r == 0 && s->tcp_fd < 0 && *s->opt->tcp)
		r = listen_tcp(s->opt->tcp, s->opt->tcp_any, &s->tcp_fd, err);
	return r;
}

static void supervisor_done(struct supervisor *s)
{
	if (s->own_socket && s->listen_fd >= 0)
		unlink(s->opt->socket_path);
	close_fd(&s->listen_fd);
	close_fd(&s->tcp_fd);
	close_fd(&s->data_fd);
	close_fd(&s->order_fd);
	close_fd(&s->signal_fd);
	free(s->template_path);
	free(s->spawn_path);
	free(s->egress_path);
	for (size_t i = 0; s->env && s->env[i]; i++)
		free(s->env[i]);
	free(s->env);
	free(s->opt);
	free(s->next);
}

static const char *or_null(const char *s)
{
	return *s ? s : NULL;
}

int supervise(struct front_options *opt, const struct front_arguments *args,
	      struct nsbox_error *err)
{
	struct supervisor s = { .opt = opt,
				.args = args,
				.listen_fd = -1,
				.tcp_fd = -1,
				.data_fd = -1,
				.order_fd = -1,
				.signal_fd = -1,
				.watchdog_us = sd_watchdog_us(),
				.front.name = "the front",
				.spawn.name = "nsbox-spawn",
				.egress.name = "nsbox-egress" };
	ssize_t n = readlink("/proc/self/exe", s.self, sizeof(s.self) - 1);
	int r;

	if (n <= 0) {
		free(opt);
		return nsbox_fail(err, NSBOX_E_IO, errno, "find my own program");
	}
	s.self[n] = 0;
	r = open_signals(&s, err);
	if (r == 0)
		r = find_user(&s, err);
	if (r == 0 && (make_environment(&s) < 0 ||
		       asprintf(&s.template_path, "%s/nsbox-template.so", opt->libexec) < 0 ||
		       asprintf(&s.spawn_path, "%s/nsbox-spawn", opt->libexec) < 0 ||
		       asprintf(&s.egress_path, "%s/nsbox-egress", opt->libexec) < 0))
		r = nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "start the service");
	if (r == 0)
		r = open_sockets(&s, err);
	if (r == 0)
		r = datadir_open(or_null(opt->data_dir), or_null(opt->state_dir), s.uid, s.gid,
				 &s.data_fd, err);
	if (r == 0)
		r = run(&s, err);
	supervisor_done(&s);
	return r;
}
