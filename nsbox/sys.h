/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls and constants that the C library or the kernel headers of Debian 12 (glibc 2.36,
 * linux-libc-dev 6.1) do not have. The kernel version that brought each stands beside it.
 */
#ifndef NSBOX_SYS_H
#define NSBOX_SYS_H

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* 5.2: a child without an exit signal, by the older call, which containers let pass where they hide
 * clone3. With these flags the order of the arguments that differs by architecture does not matter. */
static inline pid_t sys_clone_pidfd(int *pidfd)
{
	return (pid_t)syscall(SYS_clone, CLONE_PIDFD, 0, pidfd, 0, 0);
}

/* 5.3 */
static inline pid_t sys_clone3(struct clone_args *args, size_t size)
{
	return (pid_t)syscall(SYS_clone3, args, size);
}

/* 5.6 */
static inline int sys_openat2(int dir_fd, const char *path, uint64_t flags, uint64_t mode,
			      uint64_t resolve)
{
	struct open_how how = { .flags = flags | O_CLOEXEC, .mode = mode, .resolve = resolve };

	return (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));
}

/* 5.2 */
static inline int sys_open_tree(int dir_fd, const char *path, unsigned flags)
{
	return (int)syscall(SYS_open_tree, dir_fd, path, flags | OPEN_TREE_CLOEXEC);
}

/* 5.2 */
static inline int sys_move_mount(int from_fd, const char *from, int to_fd, const char *to,
				 unsigned flags)
{
	return (int)syscall(SYS_move_mount, from_fd, from, to_fd, to, flags);
}

/* 5.12 */
static inline int sys_mount_setattr(int dir_fd, const char *path, unsigned flags,
				    struct mount_attr *attr, size_t size)
{
	return (int)syscall(SYS_mount_setattr, dir_fd, path, flags, attr, size);
}

static inline int sys_pivot_root(const char *new_root, const char *put_old)
{
	return (int)syscall(SYS_pivot_root, new_root, put_old);
}

/* 5.2: no mount in the caller's namespace before move_mount */
static inline int sys_fsopen(const char *fs)
{
	return (int)syscall(SYS_fsopen, fs, 1 /* FSOPEN_CLOEXEC */);
}

/* 5.1 */
static inline int sys_pidfd_send_signal(int pidfd, int sig)
{
	return (int)syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0);
}

/* 5.13 */
static inline int sys_landlock_create_ruleset(const void *attr, size_t size, uint32_t flags)
{
	return (int)syscall(SYS_landlock_create_ruleset, attr, size, flags);
}

static inline int sys_landlock_add_rule(int ruleset_fd, int type, const void *attr)
{
	return (int)syscall(SYS_landlock_add_rule, ruleset_fd, type, attr, 0);
}

static inline int sys_landlock_restrict_self(int ruleset_fd)
{
	return (int)syscall(SYS_landlock_restrict_self, ruleset_fd, 0);
}

/* Own layouts of structs that grew after the header: the kernel takes any known prefix. */
struct nsbox_landlock_ruleset_attr {
	uint64_t handled_access_fs;
	uint64_t handled_access_net; /* ABI 4 */
	uint64_t scoped;	     /* ABI 6 */
};

struct nsbox_landlock_net_port_attr {
	uint64_t allowed_access;
	uint64_t port;
};

#define NSBOX_LANDLOCK_RULE_NET_PORT 2

#ifndef LANDLOCK_ACCESS_FS_REFER
#define LANDLOCK_ACCESS_FS_REFER (1ULL << 13) /* ABI 2 */
#endif
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14) /* ABI 3 */
#endif
#ifndef LANDLOCK_ACCESS_FS_IOCTL_DEV
#define LANDLOCK_ACCESS_FS_IOCTL_DEV (1ULL << 15) /* ABI 5 */
#endif
#ifndef LANDLOCK_ACCESS_NET_BIND_TCP
#define LANDLOCK_ACCESS_NET_BIND_TCP	(1ULL << 0) /* ABI 4 */
#define LANDLOCK_ACCESS_NET_CONNECT_TCP (1ULL << 1) /* ABI 4 */
#endif
#ifndef LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
#define LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET (1ULL << 0) /* ABI 6 */
#define LANDLOCK_SCOPE_SIGNAL		    (1ULL << 1) /* ABI 6 */
#endif

#if defined(__x86_64__)
#define NATIVE_AUDIT_ARCH UINT32_C(0xc000003e) /* AUDIT_ARCH_X86_64 */
#elif defined(__aarch64__)
#define NATIVE_AUDIT_ARCH UINT32_C(0xc00000b7) /* AUDIT_ARCH_AARCH64 */
#endif

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL /* 5.7 */
#endif

/* What getdents64(2) fills in, record after record. */
struct dirent64_raw {
	uint64_t ino;
	int64_t off;
	uint16_t reclen;
	uint8_t type;
	char name[];
};

#endif
