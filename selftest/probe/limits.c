/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of limits (H of the catalogue). The plan they run under has small ones, and they are told
 * how much that is; the control takes as much where there is no limit. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "selftest/probe/probe.h"

/* The neighbour: as many pages in pipes as its id may have, until `until` ends. */
static void hold_pipes(int ready, int until)
{
	int fds[2], n = 0;
	char byte;

	while (n < 400 && pipe2(fds, O_CLOEXEC) == 0 && fcntl(fds[1], F_SETPIPE_SZ, 1 << 20) > 0)
		n++;
	if (n == 400 || write(ready, "ready\n", 6) != 6)
		return;
	while (read(until, &byte, 1) < 0 && errno == EINTR)
		;
}

/* Beside a neighbour of the same id a new pipe is small, and cannot be made larger. */
void probe_A03_shared_account(const struct probe *p)
{
	int ready[2], until[2], fds[2], size;
	char byte;

	if (fact_or(p, "neighbour", NULL)) {
		if (pipe(until) == 0)
			hold_pipes(1, until[0]); /* for as long as there is a sandbox */
		skip("pipes have no limit here");
	}
	if (p->control) { /* the neighbour is a child of the same id */
		if (pipe(ready) < 0 || pipe(until) < 0)
			skip("pipe: %s", errname(errno));
		if (fork() == 0) {
			close(until[1]);
			hold_pipes(ready[1], until[0]);
			_exit(0);
		}
		close(ready[1]);
		if (read(ready[0], &byte, 1) != 1)
			skip("pipes have no limit here");
	}
	if (pipe2(fds, O_CLOEXEC) < 0)
		skip("pipe: %s", errname(errno));
	size = fcntl(fds[1], F_GETPIPE_SZ);
	if (fcntl(fds[1], F_SETPIPE_SZ, 1 << 20) < 0)
		escaped("a pipe has %d bytes, and %s for more", size, errname(errno));
	held("user", "a pipe has %d bytes, and may have more", size);
}

void probe_H02_fork_bomb(const struct probe *p)
{
	long limit = fact_number(p, "pids"), n = 0;
	int stop[2];
	char byte;

	if (pipe(stop) < 0)
		skip("pipe: %s", errname(errno));
	for (; n < limit + 40; n++) {
		pid_t pid = fork();

		if (pid < 0)
			break;
		if (pid == 0) { /* until the first of all ends */
			close(stop[1]);
			_exit(read(stop[0], &byte, 1) != 0);
		}
	}
	if (n >= limit + 40) {
		usleep(200000); /* where nothing but a watchdog counts it has to have looked */
		escaped("%ld processes, of %ld", n, limit);
	}
	if (p->control)
		skip("this user may not start %ld processes here", limit);
	held("limits", "after %ld processes: %s", n, errname(errno));
}

static void fill(char *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 4096)
		at[i] = 1;
}

static size_t too_much(const struct probe *p)
{
	return (size_t)fact_number(p, "memory") * 2;
}

void probe_H03_memory(const struct probe *p)
{
	size_t bytes = too_much(p);
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		held("limits", "mmap of %zu MiB: %s", bytes >> 20, errname(errno));
	fill(at, bytes);
	usleep(200000);
	escaped("%zu MiB of memory, twice the limit", bytes >> 20);
}

void probe_H05_memfd(const struct probe *p)
{
	size_t bytes = too_much(p);
	int fd = memfd_create("probe", MFD_CLOEXEC | 8u /* MFD_NOEXEC_SEAL */);
	char *at;

	if (fd < 0)
		fd = memfd_create("probe", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
		held("limits", "a memfd of %zu MiB: %s", bytes >> 20, errname(errno));
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		skip("mmap: %s", errname(errno));
	fill(at, bytes);
	usleep(300000);
	escaped("%zu MiB of a memfd, twice the limit", bytes >> 20);
}

/* Buffers of pipes belong to no process's address space. */
void probe_H03_pipes(const struct probe *p)
{
	static char megabyte[1 << 20];
	size_t wanted = (size_t)fact_number(p, "memory") + (16 << 20), done = 0;
	int fds[2];

	memset(megabyte, 1, sizeof(megabyte));
	while (done < wanted) {
		if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0 ||
		    fcntl(fds[1], F_SETPIPE_SZ, sizeof(megabyte)) < 0)
			skip("a pipe of 1 MiB: %s", errname(errno));
		done += (size_t)write(fds[1], megabyte, sizeof(megabyte));
	}
	escaped("%zu MiB in pipes", done >> 20);
}

void probe_H06_disk(const struct probe *p)
{
	static char block[1 << 20];
	const char *path = place("/tmp/.nsbox-probe-fill");
	size_t limit = (size_t)fact_number(p, "disk") * 2, done = 0;
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	long n = 0;

	signal(SIGXFSZ, SIG_IGN);
	if (fd < 0)
		skip("a file in /tmp: %s", errname(errno));
	unlink(path); /* what is open and has no name counts as well */
	while (done < limit && (n = write(fd, block, sizeof(block))) > 0)
		done += (size_t)n;
	if (done >= limit)
		escaped("%zu MiB on disk, twice the limit", done >> 20);
	held("limits", "after %zu MiB: %s", done >> 20, n < 0 ? errname(errno) : "no more");
}

#define SPINNERS 16

static double seconds(int clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* In thousandths of a processor, what the spinning children had. */
static long spin(void)
{
	double start = seconds(CLOCK_MONOTONIC), end = start + 0.6;
	struct rusage used;

	for (int i = 0; i < SPINNERS; i++)
		if (fork() == 0) {
			while (seconds(CLOCK_MONOTONIC) < end)
				;
			_exit(0);
		}
	while (wait(NULL) > 0)
		;
	getrusage(RUSAGE_CHILDREN, &used);
	return (long)(((double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 +
		       (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000) /
		      (seconds(CLOCK_MONOTONIC) - start));
}

void probe_H08_processor(const struct probe *p)
{
	long limit = fact_number(p, "cpu"), had = spin();

	if (had > limit * 3 / 2)
		escaped("%ld thousandths of a processor, of %ld", had, limit);
	if (p->control)
		skip("this machine is too busy to give more than %ld thousandths of a processor",
		     had);
	held("cgroupLimits", "%ld thousandths of a processor", had);
}

void probe_H09_time(const struct probe *p)
{
	const struct timespec long_time = { fact_number(p, "seconds"), 0 };
	sigset_t all;

	for (int sig = 1; sig < 65; sig++)
		signal(sig, SIG_IGN);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	if (fork() > 0)
		setsid();
	nanosleep(&long_time, NULL);
	escaped("alive after %ld seconds", (long)long_time.tv_sec);
}

void probe_H11_descriptors(const struct probe *p)
{
	long n = 0, limit = fact_number(p, "files");
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < l.rlim_max) {
		l.rlim_cur = l.rlim_max;
		setrlimit(RLIMIT_NOFILE, &l);
	}
	while (n <= limit && dup(1) >= 0)
		n++;
	if (n > limit)
		escaped("%ld descriptors, of %ld", n, limit);
	if (p->control)
		skip("the caller may not open more than %ld descriptors itself", limit);
	held("limits", "after %ld descriptors: %s", n, errname(errno));
}

void probe_H11_inotify(const struct probe *p)
{
	int n = 0;

	while (n < 40 && inotify_init1(IN_CLOEXEC) >= 0)
		n++;
	if (n >= 40)
		escaped("%d inotify instances, of the host's for this user", n);
	if (p->control)
		skip("this user has no inotify instances left");
	held("proc", "after %d instances: %s", n, errname(errno));
}
