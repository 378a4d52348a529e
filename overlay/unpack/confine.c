/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nsbox-unpack gives up before it reads the first byte of an archive.
 *
 * Theory: the parsers behind libarchive are assumed to be taken over. What is left to whoever
 * takes them over is memory (bounded), processor time (bounded), and the two descriptors: the
 * archive on 0 and the stream on 1, whose reader believes nothing in it. No file can be opened, no
 * program started, no socket made, no process signalled.
 *
 * Should:  keep read, write, and what malloc needs.
 * Mustn't: run before everything that opens files is done (locale, time zone: see main.c).
 *
 * The filter refuses with EPERM and does not kill: a library that asks for something it can do
 * without (a time zone, a thread) goes on without it.
 */
#include <errno.h>
#include <seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "nsbox/sys.h"
#include "nsbox/util.h"
#include "overlay/unpack/unpack.h"

static int limit(__rlimit_resource_t what, const char *name, uint64_t value,
		 struct nsbox_error *err)
{
	struct rlimit r;

	if (getrlimit(what, &r) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "read the limit %s", name);
	r.rlim_cur = r.rlim_max = MIN((rlim_t)value, r.rlim_max);
	if (setrlimit(what, &r) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "set the limit %s", name);
	return 0;
}

/*
 * Deny all of the file system and, where the kernel knows them, all TCP ports and scopes. The
 * system call filter below already has no way to open anything; this is a second wall, and a
 * kernel without it is no reason to stop.
 */
static int deny_files(struct nsbox_error *err)
{
	struct nsbox_landlock_ruleset_attr attr = { .handled_access_fs = (1ULL << 13) - 1 };
	int abi =
		(int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	auto_close int fd = -1;

	if (abi < 1)
		return 0;
	if (abi >= 2)
		attr.handled_access_fs |= LANDLOCK_ACCESS_FS_REFER;
	if (abi >= 3)
		attr.handled_access_fs |= LANDLOCK_ACCESS_FS_TRUNCATE;
	if (abi >= 4)
		attr.handled_access_net =
			LANDLOCK_ACCESS_NET_BIND_TCP | LANDLOCK_ACCESS_NET_CONNECT_TCP;
	if (abi >= 6)
		attr.scoped = LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL;
	fd = sys_landlock_create_ruleset(&attr, abi >= 6 ? sizeof(attr) : abi >= 4 ? 16 : 8, 0);
	if (fd < 0 || sys_landlock_restrict_self(fd) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "Landlock");
	return 0;
}

static int filter_calls(struct nsbox_error *err)
{
	static const int allowed[] = {
		/* clang-format off */
		SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(lseek), SCMP_SYS(close),
		SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise),
		SCMP_SYS(futex), SCMP_SYS(getrandom), SCMP_SYS(clock_gettime),
		SCMP_SYS(gettimeofday), SCMP_SYS(time), SCMP_SYS(rt_sigreturn),
		SCMP_SYS(exit), SCMP_SYS(exit_group),
		/* clang-format on */
	};
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r = ctx ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(allowed); i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0);
	/* Memory, but none that can be executed. */
	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
				     SCMP_A2(SCMP_CMP_MASKED_EQ, 4 /* PROT_EXEC */, 0));
	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1,
				     SCMP_A2(SCMP_CMP_MASKED_EQ, 4 /* PROT_EXEC */, 0));
	if (r == 0)
		r = seccomp_load(ctx);
	seccomp_release(ctx);
	return r < 0 ? nsbox_fail(err, NSBOX_E_SETUP, -r, "system call filter") : 0;
}

int confine(const struct unpack_limits *lim, struct nsbox_error *err)
{
	int r;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "no_new_privs");
	r = deny_files(err);
	if (r == 0)
		r = limit(RLIMIT_AS, "RLIMIT_AS", lim->memory, err);
	if (r == 0)
		r = limit(RLIMIT_CPU, "RLIMIT_CPU", lim->cpu_s, err);
	if (r == 0)
		r = limit(RLIMIT_CORE, "RLIMIT_CORE", 0, err);
	if (r == 0)
		r = limit(RLIMIT_NPROC, "RLIMIT_NPROC", 0, err);
	if (r == 0)
		r = filter_calls(err);
	return r;
}
