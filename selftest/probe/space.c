/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of namespaces, processes and signals (A of the catalogue). */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "selftest/probe/probe.h"

static void nap(int ms)
{
	const struct timespec t = { ms / 1000, (ms % 1000) * 1000000L };

	nanosleep(&t, NULL);
}

/* A file of a process in /proc. */
static int open_of(int pid, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* ------------------------------------------------------------------ ids */

static void check_map(const struct probe *p, const char *file, const char *name, bool range)
{
	char map[512], *line = map;
	long owner = fact_number(p, name);

	if (slurp(file, map, sizeof(map)) <= 0)
		skip("%s: %s", file, errname(errno));
	for (; *line; line += strcspn(line, "\n") + (strchr(line, '\n') != NULL)) {
		char *end;
		unsigned long outside, count;

		strtoul(line, &end, 10);
		outside = strtoul(end, &end, 10);
		count = strtoul(end, NULL, 10);
		if (!outside)
			escaped("%s: an id inside is 0 outside", file);
		if (range && (unsigned long)owner - outside < count)
			escaped("%s: an id inside is the owner's, %ld", file, owner);
	}
}

/* The control reads the map of the caller's own namespace, which leads to the owner's id. */
void probe_A02_id_map(const struct probe *p)
{
	bool range = p->control || !strcmp(fact(p, "ids"), "range");

	check_map(p, "/proc/self/uid_map", "owner_uid", range);
	check_map(p, "/proc/self/gid_map", "owner_gid", range);
	held("user", "the maps lead neither to root%s", range ? " nor to the owner" : "");
}

void probe_A04_user_namespace(const struct probe *p)
{
	int pid, status;

	/* By clone as well: a filter that knows unshare alone would be of no use. */
	pid = (int)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
	if (pid == 0)
		_exit(0);
	if (pid > 0) {
		status = reap(pid);
		escaped("clone with CLONE_NEWUSER: done (status %d)", status);
	}
	JUDGE(errno == ENOSPC ? "user" : "seccomp", "unshare with CLONE_NEWUSER",
	      unshare(CLONE_NEWUSER), EPERM, ENOSYS, ENOSPC);
}

/* ------------------------------------------------------------------ which namespaces */

static void other_namespace(const struct probe *p, const char *layer, const char *file)
{
	char path[64], own[64], name[32];
	const char *hosts;
	long n;

	snprintf(name, sizeof(name), "ns.%s", file);
	hosts = fact(p, name);
	snprintf(path, sizeof(path), "/proc/self/ns/%s", file);
	n = readlink(path, own, sizeof(own) - 1);
	if (n < 0)
		skip("%s: %s", path, errname(errno));
	own[n] = '\0';
	if (!strcmp(own, hosts))
		escaped("%s is the host's", own);
	held(layer, "%s, the host's is %s", own, hosts);
}

#define NS_PROBE(name, layer, file)                                                                \
	void probe_##name(const struct probe *p)                                                   \
	{                                                                                          \
		other_namespace(p, layer, file);                                                   \
	}
NS_PROBE(A06_ns_user, "user", "user")
NS_PROBE(A06_ns_mnt, "mount", "mnt")
NS_PROBE(A06_ns_net, "net", "net")
NS_PROBE(A06_ns_ipc, "ipc", "ipc")
NS_PROBE(A06_ns_uts, "uts", "uts")
NS_PROBE(A06_ns_cgroup, "cgroupNamespace", "cgroup")

/* Without a /proc of the own pid namespace there is none to look at: then by the decoy's number. */
void probe_A06_ns_pid(const struct probe *p)
{
	if (access("/proc/self/ns/pid", F_OK) == 0 || p->control)
		other_namespace(p, "pid", "pid");
	if (kill((pid_t)fact_number(p, "decoy"), 0) == 0 || errno != ESRCH)
		escaped("the pid of a process of the host means that process (%s)", errname(errno));
	held("pid", "the pid of a process of the host means nothing");
}

void probe_A06_setns(const struct probe *p)
{
	static const char *const files[] = { "ns/net", "ns/mnt", "ns/user" };
	int fd, pidfd;

	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (!p->control && open_of(init_of(p), files[i]) >= 0)
			escaped("%s of init can be opened", files[i]);
	fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && setns(fd, CLONE_NEWNET) == 0)
		escaped("setns: done");
	if (fd >= 0 && errno != EPERM && errno != ENOSYS)
		escaped("setns: %s", errname(errno));
	pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	JUDGE("seccomp", "setns on a pidfd", setns(pidfd, CLONE_NEWNET | CLONE_NEWNS), EPERM,
	      ENOSYS);
}

/* ------------------------------------------------------------------ signals */

/* The harness looks at the decoy afterwards: that is the verdict of the control. */
void probe_A09_kill_all(const struct probe *p)
{
	pid_t decoy = (pid_t)fact_number(p, "decoy");

	kill(decoy, SIGKILL);
	/* Among pids of the host's nobody else is aimed at, and init is only asked for. */
	if (in_process_tier(p) && kill(init_of(p), 0) == 0)
		escaped("init can be signalled");
	if (!p->control && !in_process_tier(p) &&
	    *fact(p, "inside")) { /* never where there is more than a sandbox */
		kill(1, SIGKILL);
		kill(-1, SIGKILL); /* all but init and ourselves */
	}
	nap(50);
	held("pid", "init and the host live on");
}

void probe_A10_sigio(const struct probe *p)
{
	pid_t decoy = (pid_t)fact_number(p, "decoy");
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
		skip("socketpair: %s", errname(errno));
	for (int turn = 0; turn < 2; turn++) {
		fcntl(pair[0], F_SETOWN, turn ? -decoy : decoy);
		fcntl(pair[0], F_SETSIG, SIGKILL);
		fcntl(pair[0], F_SETFL, O_ASYNC | O_NONBLOCK);
		if (write(pair[1], "x", 1) != 1)
			skip("write: %s", errname(errno));
		nap(20);
	}
	held("pid", "no signal arrived outside");
}

void probe_E06_signal(const struct probe *p)
{
	pid_t decoy = (pid_t)fact_number(p, "decoy");
	int fd = (int)syscall(SYS_pidfd_open, decoy, 0);

	if (fd >= 0 && syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0)
		escaped("signalled by a pidfd");
	if (kill(decoy, SIGKILL) == 0)
		escaped("signalled by its pid");
	if (errno != ESRCH && errno != EPERM)
		escaped("kill: %s", errname(errno));
	held(errno == ESRCH ? "pid" : "landlockScopes", "kill: %s", errname(errno));
}

/* ------------------------------------------------------------------ init */

#define ORPHANS 60
#define MANY	20

/* Of these alone: in the tier "process" there are others, and their dead are not this run's. */
static int count_zombies(const volatile pid_t *orphans)
{
	char path[64], text[512], *p;
	int n = 0;

	for (int i = 0; i < ORPHANS; i++) {
		snprintf(path, sizeof(path), "/proc/%d/stat", (int)orphans[i]);
		if (slurp(path, text, sizeof(text)) <= 0)
			continue;
		p = strrchr(text, ')');
		n += p && p[2] == 'Z';
	}
	return n;
}

void probe_A13_zombies(const struct probe *p)
{
	volatile pid_t *orphans = mmap(NULL, ORPHANS * sizeof(*orphans), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int n = 0;

	if (access("/proc/self/stat", F_OK) < 0)
		skip("there is no /proc to count them in");
	if (orphans == MAP_FAILED)
		skip("mmap: %s", errname(errno));
	for (int i = 0; i < ORPHANS; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			pid = fork();
			if (pid != 0)
				orphans[i] = pid;
			_exit(pid < 0);
		}
		if (pid < 0 || reap(pid) != 0)
			skip("fork: %s", errname(errno));
	}
	for (int tries = 0; tries < 20 && (n = count_zombies(orphans)) > MANY; tries++)
		nap(20);
	if (n > MANY)
		escaped("%d of %d dead orphans are left", n, ORPHANS);
	held(in_process_tier(p) ? "setup" : "pid", "init reaps orphans: %d of %d are left", n,
	     ORPHANS);
}

void probe_A15_init(const struct probe *p)
{
	static const char *const files[] = { "mem", "environ", "fd/0", "root/.", "cwd/." };
	int init = init_of(p);
	char byte;
	struct iovec own = { &byte, 1 }, far = { &byte, 1 };

	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (open_of(init, files[i]) >= 0)
			escaped("%s of init can be opened", files[i]);
	if (syscall(SYS_ptrace, PTRACE_SEIZE, init, NULL, NULL) == 0)
		escaped("init can be traced");
	if (syscall(SYS_process_vm_readv, init, &own, 1, &far, 1, 0) >= 0)
		escaped("init's memory can be read");
	held("user", "%zu files of init, ptrace and process_vm_readv: refused", ARRAY_SIZE(files));
}

void probe_B21_init_exe(const struct probe *p)
{
	JUDGE("user", "the program of init", open_of(init_of(p), "exe"), EACCES, EPERM, ENOENT);
}
