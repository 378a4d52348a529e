/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nsbox-egress does to itself before it takes an order.
 *
 * Should: take sockets that are given to it, connect over IPv4 and IPv6, move bytes, allocate.
 * Mustn't: open a file, start a program, listen, look at or signal another process, hold a
 * capability or an id that owns anything.
 *
 * As root it becomes another user; where that cannot be had (a root without the capability) and for
 * an ordinary user, the rest has to do. Landlock is taken where the kernel has it: the system call
 * filter, which has no call that opens a file, holds without.
 */
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "daemon/egress/egress.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

#define NOBODY 65534

static const int allowed[] = {
	SCMP_SYS(read),		 SCMP_SYS(write),	 SCMP_SYS(readv),
	SCMP_SYS(writev),	 SCMP_SYS(recvfrom),	 SCMP_SYS(recvmsg),
	SCMP_SYS(sendto),	 SCMP_SYS(sendmsg),	 SCMP_SYS(close),
	SCMP_SYS(epoll_wait),	 SCMP_SYS(epoll_pwait),	 SCMP_SYS(epoll_ctl),
	SCMP_SYS(connect),	 SCMP_SYS(accept4),	 SCMP_SYS(getsockopt),
	SCMP_SYS(setsockopt),	 SCMP_SYS(getsockname),	 SCMP_SYS(getpeername),
	SCMP_SYS(shutdown),	 SCMP_SYS(splice),	 SCMP_SYS(pipe2),
	SCMP_SYS(fcntl),	 SCMP_SYS(mmap),	 SCMP_SYS(munmap),
	SCMP_SYS(mremap),	 SCMP_SYS(mprotect),	 SCMP_SYS(brk),
	SCMP_SYS(madvise),	 SCMP_SYS(futex),	 SCMP_SYS(getrandom),
	SCMP_SYS(clock_gettime), SCMP_SYS(gettimeofday), SCMP_SYS(exit),
	SCMP_SYS(exit_group),	 SCMP_SYS(rt_sigreturn), SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(getpid),	 SCMP_SYS(gettid),	 SCMP_SYS(restart_syscall),
	SCMP_SYS(newfstatat),	 SCMP_SYS(fstat),	 SCMP_SYS(rseq),
};

/* Anything else fails with ENOSYS: libraries probe, and a log line is better than a corpse. */
static int load_filter(struct nsbox_error *err)
{
	static const int families[] = { AF_INET, AF_INET6 };
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
	int r = ctx ? 0 : -ENOMEM;

	for (size_t i = 0; i < ARRAY_SIZE(allowed) && r == 0; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0);
	for (size_t i = 0; i < ARRAY_SIZE(families) && r == 0; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1,
				     SCMP_A0_32(SCMP_CMP_EQ, (uint32_t)families[i]));
	if (r == 0)
		r = seccomp_load(ctx);
	seccomp_release(ctx);
	return r == 0 ? 0 : nsbox_fail(err, NSBOX_E_SETUP, -r, "install nsbox-egress's own filter");
}

/* A user of its own where there is one, else the service's. EPERM: a root that may not change its user. */
static int become_nobody(struct nsbox_error *err)
{
	const struct passwd *pw;
	uid_t uid;
	gid_t gid;

	if (geteuid() != 0)
		return 0;
	pw = getpwnam("nsbox-egress");
	if (!pw)
		pw = getpwnam("nsbox");
	uid = pw && pw->pw_uid ? pw->pw_uid : NOBODY;
	gid = pw && pw->pw_gid ? pw->pw_gid : NOBODY;
	if ((setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 ||
	     setresuid(uid, uid, uid) < 0) &&
	    errno != EPERM && errno != EINVAL)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "become another user");
	return 0;
}

static int drop_capabilities(struct nsbox_error *err)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };

	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "clear the ambient set");
	if (syscall(SYS_capset, &head, none) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "drop capabilities");
	return 0;
}

/* Every right on files that the kernel knows, and no rule: nothing can be opened any more. */
static int enter_landlock(struct nsbox_error *err)
{
	static const uint64_t fs[] = { 0x1fff, 0x3fff, 0x7fff, 0x7fff, 0xffff };
	struct nsbox_landlock_ruleset_attr attr = { 0 };
	int abi = sys_landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	auto_close int ruleset = -1;

	if (abi < 1)
		return 0;
	attr.handled_access_fs = fs[MIN(abi, (int)ARRAY_SIZE(fs)) - 1];
	attr.scoped = abi >= 6 ? 3 : 0; /* abstract sockets and signals */
	ruleset = sys_landlock_create_ruleset(&attr, abi >= 6 ? sizeof(attr) : 8, 0);
	if (ruleset < 0 || sys_landlock_restrict_self(ruleset) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "enter a Landlock domain");
	return 0;
}

int confine(struct nsbox_error *err)
{
	const struct rlimit none = { 0, 0 };
	int r = become_nobody(err);

	if (r == 0)
		r = drop_capabilities(err);
	if (r == 0 && setrlimit(RLIMIT_CORE, &none) < 0)
		r = nsbox_fail(err, NSBOX_E_SETUP, errno, "limit core dumps");
	if (r == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		r = nsbox_fail(err, NSBOX_E_SETUP, errno, "set no_new_privs");
	if (r == 0 && prctl(PR_SET_DUMPABLE, 0) < 0)
		r = nsbox_fail(err, NSBOX_E_SETUP, errno, "become non-dumpable");
	if (r == 0)
		r = enter_landlock(err);
	return r == 0 ? load_filter(err) : r;
}
