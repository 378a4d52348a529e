/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the compile worker does to itself before it reads a byte of a manifest.
 *
 * Should: compute, allocate, read the manifest's memfd, make and seal memfds for the plan and the
 * filters, answer on its socket, exit.
 * Mustn't: open anything, make a socket, start a program, signal or look at another process, live
 * longer than a few seconds, or use more memory than the biggest manifest needs.
 *
 * The order matters: descriptors and limits first, the filter last, since it forbids the rest.
 */
#include "daemon/compile/confine.h"

#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "nsbox/util.h"

#define MEMORY_MAX  (UINT64_C(512) << 20)
#define CPU_SECONDS 10

static const int allowed[] = {
	SCMP_SYS(read),		 SCMP_SYS(pread64),
	SCMP_SYS(write),	 SCMP_SYS(pwrite64),
	SCMP_SYS(close),	 SCMP_SYS(lseek),
	SCMP_SYS(fstat),	 SCMP_SYS(newfstatat),
	SCMP_SYS(mmap),		 SCMP_SYS(munmap),
	SCMP_SYS(mremap),	 SCMP_SYS(mprotect),
	SCMP_SYS(brk),		 SCMP_SYS(madvise),
	SCMP_SYS(futex),	 SCMP_SYS(getrandom),
	SCMP_SYS(memfd_create),	 SCMP_SYS(ftruncate),
	SCMP_SYS(fcntl),	 SCMP_SYS(sendmsg),
	SCMP_SYS(recvmsg),	 SCMP_SYS(exit),
	SCMP_SYS(exit_group),	 SCMP_SYS(rt_sigreturn),
	SCMP_SYS(getpid),	 SCMP_SYS(gettid),
	SCMP_SYS(clock_gettime), SCMP_SYS(uname),
	SCMP_SYS(rseq),		 SCMP_SYS(sched_getaffinity),
	SCMP_SYS(sysinfo),	 SCMP_SYS(restart_syscall),
};

static int limit(int what, rlim_t value, const char *name, struct nsbox_error *err)
{
	struct rlimit rl;

	if (getrlimit(what, &rl) == 0 && (rl.rlim_max == RLIM_INFINITY || rl.rlim_max > value)) {
		rl = (struct rlimit){ value, value };
		if (setrlimit(what, &rl) < 0)
			return nsbox_fail(err, NSBOX_E_SETUP, errno, "limit %s", name);
	}
	return 0;
}

/*
 * Anything else fails with ENOSYS rather than killing: libraries probe (libseccomp asks the kernel
 * what it can do), and a refused call ends in an error message that reaches the user.
 */
static int load_filter(struct nsbox_error *err)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
	int r = ctx ? 0 : -ENOMEM;

	for (size_t i = 0; i < ARRAY_SIZE(allowed) && r == 0; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0);
	if (r == 0)
		r = seccomp_load(ctx);
	seccomp_release(ctx);
	return r == 0 ? 0 : nsbox_fail(err, NSBOX_E_SETUP, -r, "install the worker's own filter");
}

int confine(int sock, struct nsbox_error *err)
{
	int r;

	if (sock != 3 && (dup2(sock, 3) < 0))
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "move the socket");
	if (close_range(4, ~0u, 0) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "close inherited descriptors");
	r = limit(RLIMIT_CPU, CPU_SECONDS, "processor time", err);
#ifndef __SANITIZE_ADDRESS__ /* its shadow alone takes terabytes of address space */
	if (r == 0)
		r = limit(RLIMIT_AS, MEMORY_MAX, "memory", err);
#endif
	if (r == 0)
		r = limit(RLIMIT_CORE, 0, "core dumps", err);
	if (r == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		r = nsbox_fail(err, NSBOX_E_SETUP, errno, "set no_new_privs");
	if (r == 0 && prctl(PR_SET_DUMPABLE, 0) < 0)
		r = nsbox_fail(err, NSBOX_E_SETUP, errno, "become non-dumpable");
	return r == 0 ? load_filter(err) : r;
}
