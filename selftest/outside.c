/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Controls: the same probes where the act is allowed.
 *
 * As the caller: a plain child. These probes look and open, and change nothing.
 * In a stand-in: namespaces of its own in which the probe is root, with file systems of its own over
 * every place that probes write to, an init that does not reap, a decoy, and no filter. What a probe
 * breaks there is thrown away with it.
 */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "nsbox/sys.h"
#include "nsbox/util.h"
#include "selftest/selftest.h"

#define CONTROL_SECONDS 60

/* ------------------------------------------------------------------ programs */

static pid_t start(int probe_fd, const char *const *argv, int out)
{
	static char *env[] = { (char *)"PATH=/usr/bin:/bin", NULL };
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (dup2(out, 1) < 0 || dup2(out, 2) < 0)
		_exit(125);
	syscall(SYS_execveat, probe_fd, "", argv, env, AT_EMPTY_PATH);
	_exit(125);
}

static int wait_for(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

/* ------------------------------------------------------------------ the stand-in */

static const char *const covered[] = { "/tmp", "/var/tmp", "/dev/shm", "/home", "/run", "/usr" };

static void loopback_up(void)
{
	struct ifreq req = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd >= 0) {
		ioctl(fd, SIOCSIFFLAGS, &req);
		close(fd);
	}
}

/* What of it cannot be had shows in the control that wants it. */
static int furnish(const struct facts *f)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(covered); i++)
		if (mount("tmpfs", covered[i], "tmpfs", 0, "mode=0755") < 0 && errno != ENOENT)
			return -errno;
	if (mkdir(f->dir, 0755) == 0) /* for who looks for its name in the mount table */
		mount("tmpfs", f->dir, "tmpfs", 0, NULL);
	loopback_up();
	if (chdir("/tmp") < 0)
		return -errno;
	return mount("proc", "/proc", "proc", 0, NULL) < 0 ? -errno : 0;
}

static pid_t decoy(void)
{
	pid_t pid = fork();

	if (pid == 0)
		for (;;)
			pause();
	return pid;
}

/* Pid 1 of the stand-in: its exit status is the control's. */
static _Noreturn void standin_init(const struct probe_row *row, const struct facts *f, int probe_fd,
				   int out)
{
	char pid_fact[32], no_proc[] = "noproc=1";
	const char *more[] = { "control=1", pid_fact, NULL, NULL };
	const char **argv;
	int r, status = 0;
	pid_t d;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	r = furnish(f);
	if (r < 0 && access("/proc/self", F_OK) < 0)
		more[2] = no_proc;
	if (r < 0) {
		dprintf(out, "SKIP: the stand-in for a host cannot be furnished: %s\n",
			strerror(-r));
		_exit(2);
	}
	d = decoy();
	nsbox_format(pid_fact, sizeof(pid_fact), "decoy=%d", (int)d);
	argv = probe_argv("nsbox-probe", row, f, more);
	for (int i = 0; argv && i < (row->flags & PF_TWICE ? 2 : 1); i++)
		status = wait_for(start(probe_fd, argv, out));
	if ((row->flags & PF_DECOY) && waitpid(d, NULL, WNOHANG) == d) {
		dprintf(out, "ESCAPED: a process of the stand-in died of it\n");
		_exit(1);
	}
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 125);
}

static int write_maps(pid_t pid)
{
	static const char *const names[] = { "uid_map", "gid_map" };
	char path[64], map[64];
	bool all = true;

	for (int i = 0; i < 2; i++) {
		nsbox_format(path, sizeof(path), "/proc/%d/%s", (int)pid, names[i]);
		all = all && geteuid() == 0 &&
		      write_small_file(AT_FDCWD, path, "0 0 4294967295") == 0;
	}
	if (all)
		return 0;
	nsbox_format(path, sizeof(path), "/proc/%d/setgroups", (int)pid);
	write_small_file(AT_FDCWD, path, "deny");
	for (int i = 0; i < 2; i++) {
		nsbox_format(path, sizeof(path), "/proc/%d/%s", (int)pid, names[i]);
		nsbox_format(map, sizeof(map), "0 %u 1", (unsigned)(i ? getegid() : geteuid()));
		if (write_small_file(AT_FDCWD, path, map) < 0)
			return -errno;
	}
	return 0;
}

static _Noreturn void standin(const struct probe_row *row, const struct facts *f, int probe_fd,
			      int out, int ready, int go)
{
	char byte = 0;
	pid_t pid;
	int status;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
		    CLONE_NEWUTS) < 0) {
		dprintf(out, "SKIP: no stand-in for a host: %s\n", strerror(errno));
		_exit(2);
	}
	if (write(ready, &byte, 1) != 1 || read(go, &byte, 1) != 1)
		_exit(125);
	pid = fork();
	if (pid == 0)
		standin_init(row, f, probe_fd, out);
	status = wait_for(pid);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 125);
}

static pid_t start_standin(const struct probe_row *row, const struct facts *f, int probe_fd,
			   int out)
{
	int ready[2], go[2];
	char byte = 0;
	pid_t pid;

	if (pipe2(ready, O_CLOEXEC) < 0)
		return -1;
	if (pipe2(go, O_CLOEXEC) < 0) {
		close(ready[0]);
		close(ready[1]);
		return -1;
	}
	pid = fork();
	if (pid == 0) {
		close(ready[0]);
		close(go[1]);
		standin(row, f, probe_fd, out, ready[1], go[0]);
	}
	close(ready[1]);
	close(go[0]);
	if (read(ready[0], &byte, 1) == 1 && write_maps(pid) == 0 && write(go[1], &byte, 1) != 1)
		errno = EPIPE;
	close(ready[0]);
	close(go[1]);
	return pid;
}

/* ------------------------------------------------------------------ a control */

/* Its status; -1 where it had to be ended. */
static int wait_at_most(pid_t pid, int seconds)
{
	uint64_t end = monotonic_us() + (uint64_t)seconds * 1000000;
	int status = 0;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (monotonic_us() > end) {
			kill(pid, SIGKILL);
			wait_for(pid);
			return -1;
		}
		usleep(500);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void control_run(const struct probe_row *row, const struct facts *f, int probe_fd,
		 struct ending *ret)
{
	char unlisted[300];
	const char *const more[] = { "control=1", unlisted, NULL };
	auto_close int out = make_memfd("control", NULL, 0, false);
	auto_free const char **argv = NULL;
	ssize_t n;
	pid_t pid;

	*ret = (struct ending){ .status = -1 };
	nsbox_format(unlisted, sizeof(unlisted), "unlisted=%s", facts_get(f, "canary"));
	argv = probe_argv("nsbox-probe", row, f, more);
	if (out < 0 || !argv || fcntl(out, F_SETFL, O_APPEND) < 0)
		return;
	pid = row->control == IN_STANDIN ? start_standin(row, f, probe_fd, out)
					 : start(probe_fd, argv, out);
	if (pid < 0)
		return;
	ret->status = wait_at_most(pid, CONTROL_SECONDS);
	if (ret->status < 0)
		nsbox_format(ret->why, sizeof(ret->why), "it did not end by itself");
	n = pread(out, ret->out, sizeof(ret->out) - 1, 0);
	ret->out[n > 0 ? n : 0] = '\0';
}
