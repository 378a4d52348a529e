/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nsbox-spawn: the process that may make sandboxes.
 *
 * It has whatever privilege the host gives nsbox, and so it reads as little as possible: fixed
 * structs from its one socket (daemon/common/wire.c), plans and exec requests through the
 * library's checks. JSON, SQL and HTTP are not even linked. One thread, one epoll set: the socket
 * and one descriptor per live sandbox.
 *
 * The front is its only client and its reason to be. When the socket ends, or a message on it is
 * malformed, every sandbox is taken down and the process exits; whoever started the pair starts
 * a new one. TERM and INT do the same. After SIGKILL the kernel ends the sandboxes.
 */
#include <fcntl.h>
#include <getopt.h>
#include <nsbox/image.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include "daemon/common/release.h"
#include "daemon/spawn/spawn.h"
#include "nsbox/util.h"

#define SWEEPS	       4
#define SWEEP_PAUSE_MS 700

static void complain(const struct nsbox_error *err)
{
	fprintf(stderr, "<3>nsbox-spawn: %s\n", err->msg);
}

/*
 * No debugger of the same user, no core dumps of this process. Only as root: for anyone else a
 * non-dumpable process's /proc files belong to root, and the id maps could not be written.
 */
static int harden(struct nsbox_error *err)
{
	if (geteuid() == 0 && prctl(PR_SET_DUMPABLE, 0) != 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "become non-dumpable");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "set no_new_privs");
	return 0;
}

/*
 * All that may be had: descriptors in flight between the processes of runs count against their
 * users, and we could send none of ours if they were as many as we may have open.
 */
static void raise_open_files(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
		l.rlim_cur = l.rlim_max;
		setrlimit(RLIMIT_NOFILE, &l);
	}
}

static int add(int epoll, int fd, uint64_t id)
{
	struct epoll_event e = { .events = EPOLLIN, .data.u64 = id };

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) < 0 ? -errno : 0;
}

static int open_signals(void)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

/* Nothing is forked from a template without namespaces: it would be there for nothing. */
static int check_template(const struct spawn *s, struct nsbox_error *err)
{
	int tier = nsbox_host_tier(&s->host);

	if (!s->template.library || tier >= NSBOX_TIER_NAMESPACE)
		return 0;
	return nsbox_fail(
		err, NSBOX_E_UNSUPPORTED, 0,
		"zygote: this host reaches the tier '%s', where no interpreter can be a fork "
		"of one: start the service without (--zygote, zygote of nsboxd.json), or give "
		"it namespaces (nsbox doctor)",
		nsbox_tier_name(tier));
}

/* Say what this host can do; an error here is told, then the process ends. */
static int greet(struct spawn *s, struct nsbox_error *err)
{
	struct wire_hello hello;
	int r = release_send(s->sock, "nsboxd", err), sent;

	if (r == 0 && s->egress >= 0)
		r = release_send(s->egress, "nsbox-egress", err);
	if (r < 0)
		return r;
	memset(&hello, 0, sizeof(hello));
	hello.magic = WIRE_MAGIC;
	hello.kind = WIRE_HELLO;
	r = nsbox_host_probe(&s->host, &hello.error);
	if (r == 0)
		r = check_template(s, &hello.error);
	if (r == 0) {
		hello.host = s->host;
		s->layers = nsbox_host_layers(&s->host);
	} else if (err) {
		*err = hello.error;
	}
	sent = wire_send(s->sock, &hello, sizeof(hello), NULL, 0, r == 0 ? err : NULL);
	return r == 0 ? sent : r;
}

/* 1: go on; 0: the front is done; negative: it broke the rules. */
static int take_request(struct spawn *s, struct nsbox_error *err)
{
	struct wire_request q;
	int fds[WIRE_FDS_MAX], r;
	unsigned n;

	if (!s->greeted) {
		r = release_recv(s->sock, "nsboxd", err);
		s->greeted = r > 0;
		return r == -EAGAIN ? 1 : r;
	}
	r = wire_recv_request(s->sock, &q, fds, &n, err);
	if (r == -EAGAIN)
		return 1;
	if (r <= 0)
		return r;
	if (q.sandbox >= SPAWN_ID_TEMPLATE) {
		wire_close_fds(fds, n);
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EPROTO, "a reserved sandbox number");
	}
	r = spawn_request(s, &q, fds, n, err);
	return r < 0 ? r : 1;
}

/*
 * What a predecessor that was killed has left is cleared now and, since its processes may take a
 * moment to be gone, some more times in the first quiet seconds.
 */
static int sweep(int left)
{
	nsbox_sweep();
	return left - 1;
}

static int serve(struct spawn *s, struct nsbox_error *err)
{
	int r = 1, sweeps = sweep(SWEEPS);

	while (r > 0) {
		struct epoll_event e;
		/* One at a time: handling one event may free what the next is about. */
		int n = epoll_wait(s->epoll, &e, 1, sweeps > 0 ? SWEEP_PAUSE_MS : -1);

		if (n < 0 && errno != EINTR)
			return nsbox_fail(err, NSBOX_E_IO, errno, "epoll_wait");
		if (n == 0)
			sweeps = sweep(sweeps);
		if (n <= 0)
			continue;
		if (e.data.u64 == SPAWN_ID_SIGNAL)
			return 0;
		if (e.data.u64 == SPAWN_ID_SOCKET)
			r = take_request(s, err);
		else if (e.data.u64 == SPAWN_ID_TEMPLATE)
			spawn_template_told(s);
		else if (e.data.u64 >= SPAWN_ID_COMMITS)
			r = spawn_commit_told(s, e.data.u64, err) < 0 ? -EPIPE : 1;
		else
			r = spawn_events(s, e.data.u64, err) < 0 ? -EPIPE : 1;
	}
	return r;
}

/*
 * The image that most runs want, before the first one comes: it is there then, and what is wrong with
 * the state directory is in the log from the start. Not an error here, other images may do.
 */
static void try_state(const char *state_dir)
{
	struct nsbox_error err = { 0 };
	struct nsbox_root *root;

	if (nsbox_root_prepare(state_dir, "host", &root, &err) == 0)
		nsbox_root_free(root);
	else
		complain(&err);
}

/* s: what it is told by its options; the rest is empty. */
static int run(struct spawn *s, struct nsbox_error *err)
{
	auto_close int epoll = epoll_create1(EPOLL_CLOEXEC), sig = -1;
	int r;

	s->epoll = epoll;
	if (epoll < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "epoll_create1");
	sig = open_signals();
	if (sig < 0 || add(epoll, sig, SPAWN_ID_SIGNAL) < 0 ||
	    add(epoll, s->sock, SPAWN_ID_SOCKET) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "watch the socket");
	r = greet(s, err);
	if (r == 0) {
		spawn_template_start(s);
		try_state(s->state_dir);
		r = serve(s, err);
	}
	spawn_free_all(s);
	spawn_template_end(s);
	nsbox_sweep();
	return r;
}

static const struct option options[] = {
	{ "fd", required_argument, NULL, 'f' },
	{ "egress-fd", required_argument, NULL, 'e' },
	{ "state-dir", required_argument, NULL, 's' },
	{ "process-tier", no_argument, NULL, 'p' },
	{ "workspace", required_argument, NULL, 'w' },
	{ "directory", required_argument, NULL, 'd' },
	{ "template", required_argument, NULL, 't' },
	{ "modules", required_argument, NULL, 'm' },
	{ "version", no_argument, NULL, 'V' },
	{ 0 },
};

int main(int argc, char **argv)
{
	struct nsbox_error err = { 0 };
	static struct spawn s; /* too big for a stack */
	const char *workspace = NULL;
	uint64_t fd = 3, egress = 0;
	int c, type = 0;
	socklen_t len = sizeof(type);

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 's') {
			s.state_dir = optarg;
		} else if (c == 't') {
			s.template.library = optarg;
		} else if (c == 'm') {
			s.template.modules = optarg;
		} else if (c == 'w') {
			workspace = optarg;
		} else if (c == 'd' && workspace && s.n_shares < SPAWN_SHARES_MAX) {
			s.shares[s.n_shares++] =
				(struct spawn_share){ take_ptr(&workspace), optarg };
		} else if (c == 'p') {
			s.process_tier = true;
		} else if (c == 'V') {
			puts("nsbox-spawn " NSBOX_VERSION);
			return 0;
		} else if (c == 'e' ? !parse_u64(optarg, &egress) || egress > 1024
				    : c != 'f' || !parse_u64(optarg, &fd) || fd > 1024) {
			fprintf(stderr, "usage: nsbox-spawn [--fd N] [--egress-fd N] "
					"[--state-dir DIR] [--process-tier] "
					"[--workspace NAME --directory DIR]... "
					"[--template FILE --modules LIST]\n");
			return 2;
		}
	}
	if (getsockopt((int)fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_SEQPACKET) {
		fprintf(stderr,
			"<3>nsbox-spawn: descriptor %d is not its socket; it is started "
			"by nsboxd, not by hand\n",
			(int)fd);
		return 2;
	}
	/* Never waited for: what it does not take at once fails. */
	if (egress && fcntl((int)egress, F_SETFL, O_NONBLOCK) < 0) {
		fprintf(stderr, "<3>nsbox-spawn: descriptor %d: %m\n", (int)egress);
		return 2;
	}
	s.kept_filter = -1;
	s.template.sock = s.template.words = -1;
	if (!s.template.modules)
		s.template.modules = "";
	s.sock = (int)fd;
	s.egress = egress ? (int)egress : -1;
	raise_open_files();
	if (harden(&err) < 0 || run(&s, &err) < 0) {
		complain(&err);
		return 1;
	}
	return 0;
}
