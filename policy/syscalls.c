/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of syscalls.h. What is not named in this file does not exist for a payload (ENOSYS).
 *
 * Not named on purpose, so that programs fall back to older calls: clone3 (its flags are behind a
 * pointer that a filter cannot follow), io_uring_* (their operations pass no filter), the mount API
 * of 5.2 and later, splice and tee (page cache primitives; libraries copy instead), native AIO,
 * memory policy calls (libnuma then says that there is no NUMA), memfd_secret.
 */
#include "policy/syscalls.h"

#include <asm/ioctls.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/netlink.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "nsbox/util.h"

#define NAMES(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* clang-format off */

/* ------------------------------------------------------------------ allowed */

const struct syscall_group syscall_allowed[] = {
	{ "io", "descriptors and data", 0, NAMES(
		"read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev",
		"preadv2", "pwritev2", "lseek", "close", "close_range", "dup", "dup2", "dup3",
		"pipe", "pipe2", "fcntl", "ioctl", "sendfile", "copy_file_range", "fadvise64",
		"readahead", "fsync", "fdatasync", "sync_file_range", "syncfs", "sync", "fallocate",
		"ftruncate", "truncate", "flock", "cachestat") },
	{ "files", "names, what they mean is decided by mounts and Landlock", 0, NAMES(
		"open", "openat", "openat2", "creat", "access", "faccessat", "faccessat2",
		"stat", "lstat", "fstat", "newfstatat", "statx", "statfs", "fstatfs",
		"getdents", "getdents64", "getcwd", "chdir", "fchdir", "mkdir", "mkdirat", "rmdir",
		"link", "linkat", "symlink", "symlinkat", "unlink", "unlinkat", "readlink",
		"readlinkat", "rename", "renameat", "renameat2", "chmod", "fchmod", "fchmodat",
		"chown", "fchown", "lchown", "fchownat", "mknod", "mknodat", "umask", "utime",
		"utimes", "futimesat", "utimensat", "name_to_handle_at") },
	{ "xattr", "user.* only: the kernel refuses the rest without capabilities", 0, NAMES(
		"getxattr", "lgetxattr", "fgetxattr", "listxattr", "llistxattr", "flistxattr",
		"setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr",
		"fremovexattr") },
	{ "events", "waiting", 0, NAMES(
		"poll", "ppoll", "select", "pselect6", "epoll_create", "epoll_create1", "epoll_ctl",
		"epoll_wait", "epoll_pwait", "epoll_pwait2", "eventfd", "eventfd2", "signalfd",
		"signalfd4", "timerfd_create", "timerfd_settime", "timerfd_gettime", "inotify_init",
		"inotify_init1", "inotify_add_watch", "inotify_rm_watch") },
	{ "memory", "own address space", 0, NAMES(
		"brk", "mmap", "munmap", "mremap", "mprotect", "msync", "mincore", "madvise",
		"mlock", "mlock2", "munlock", "mlockall", "munlockall", "memfd_create",
		"membarrier", "pkey_alloc", "pkey_free", "pkey_mprotect", "process_mrelease") },
	{ "process", "programs, threads, waiting for them; bounded by the pid namespace", 0, NAMES(
		"clone", "fork", "vfork", "execve", "execveat", "exit", "exit_group", "wait4",
		"waitid", "gettid", "getpid", "getppid", "getpgid", "getpgrp", "setpgid", "getsid",
		"setsid", "set_tid_address", "set_robust_list", "get_robust_list", "rseq",
		"arch_prctl", "prctl", "personality", "unshare", "restart_syscall", "pidfd_open",
		"uname", "sysinfo", "getrusage", "times", "getcpu") },
	{ "signals", "reach own processes only: pid namespace and Landlock scope", 0, NAMES(
		"kill", "tkill", "tgkill", "pidfd_send_signal", "rt_sigaction", "rt_sigprocmask",
		"rt_sigreturn", "rt_sigsuspend", "rt_sigpending", "rt_sigtimedwait",
		"rt_sigqueueinfo", "rt_tgsigqueueinfo", "sigaltstack", "pause", "alarm") },
	{ "futex", "locks of threads", 0, NAMES("futex", "futex_waitv") },
	{ "time", "reading clocks, sleeping", 0, NAMES(
		"clock_gettime", "clock_getres", "clock_nanosleep", "nanosleep", "gettimeofday",
		"time", "getitimer", "setitimer", "timer_create", "timer_delete", "timer_settime",
		"timer_gettime", "timer_getoverrun") },
	{ "ids", "changing them fails by itself: no capability is held", 0, NAMES(
		"getuid", "geteuid", "getgid", "getegid", "getresuid", "getresgid", "getgroups",
		"setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups",
		"setfsuid", "setfsgid", "capget", "capset") },
	{ "scheduling", "own priority and limits; raising them fails by itself", 0, NAMES(
		"sched_yield", "sched_getaffinity", "sched_setaffinity", "sched_getparam",
		"sched_setparam", "sched_getscheduler", "sched_setscheduler", "sched_getattr",
		"sched_setattr", "sched_get_priority_max", "sched_get_priority_min",
		"sched_rr_get_interval", "getpriority", "setpriority", "ioprio_get", "ioprio_set",
		"getrlimit", "setrlimit", "prlimit64") },
	{ "random", "random numbers", 0, NAMES("getrandom") },
	{ "sockets", "families are judged by rules; what leaves is judged by the net namespace", 0, NAMES(
		"socket", "socketpair", "connect",
		"getsockname", "getpeername", "getsockopt", "setsockopt", "shutdown", "sendto",
		"sendmsg", "sendmmsg", "recvfrom", "recvmsg", "recvmmsg") },
	/* bind too: a UDP socket that is bound has an address to be sent to. */
	{ "listen", "waiting for connections, within the own net namespace", SC_LISTEN, NAMES(
		"bind", "listen", "accept", "accept4") },
	{ "sandbox", "a program may confine itself further", 0, NAMES(
		"seccomp", "landlock_create_ruleset", "landlock_add_rule",
		"landlock_restrict_self") },
	/* A tracer sees what the filter let through, never more: the kernel runs the filter again
	 * after a tracer changed a call (4.8). The kernel's own checks keep it to own processes. */
	{ "ptrace", "debuggers and strace, on own processes", SC_PTRACE, NAMES(
		"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise") },
};
const size_t syscall_n_allowed = ARRAY_SIZE(syscall_allowed);

/* ------------------------------------------------------------------ refused */

const struct syscall_group syscall_refused[] = {
	{ "ptrace", "other processes' memory", 0, NAMES(
		"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise",
		"pidfd_getfd", "kcmp") },
	{ "mount", "the file system as the plan made it", 0, NAMES(
		"mount", "umount2", "pivot_root", "chroot", "setns", "open_by_handle_at",
		"swapon", "swapoff", "quotactl", "quotactl_fd", "acct", "vmsplice") },
	{ "kernel", "changes the kernel or reads it", 0, NAMES(
		"init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load",
		"reboot", "syslog", "bpf", "perf_event_open", "userfaultfd", "fanotify_init",
		"fanotify_mark", "lookup_dcookie", "vhangup", "sethostname", "setdomainname") },
	{ "clock", "the host's clocks", 0, NAMES(
		"settimeofday", "clock_settime", "clock_adjtime", "adjtimex") },
	{ "hardware", "ports, segments, moving pages between nodes", 0, NAMES(
		"iopl", "ioperm", "modify_ldt", "move_pages", "migrate_pages") },
	{ "keys", "keyrings are not bounded by a namespace", 0, NAMES(
		"add_key", "request_key", "keyctl") },
	/* The ipc namespace would bound them; their kernel objects are favourite heap shapes. */
	{ "ipc", "System V and POSIX queues: only what an operator allows", 0, NAMES(
		"shmget", "shmat", "shmctl", "shmdt", "semget", "semop", "semtimedop", "semctl",
		"msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink", "mq_timedsend",
		"mq_timedreceive", "mq_notify", "mq_getsetattr") },
};
const size_t syscall_n_refused = ARRAY_SIZE(syscall_refused);

const char *syscall_raw_group(size_t i)
{
	static const char *const names[] = {
		"@ptrace", "@mount", "@kernel", "@clock", "@hardware", "@keys", "@ipc",
	};

	_Static_assert(ARRAY_SIZE(names) == ARRAY_SIZE(syscall_refused), "a name for each");
	return i < ARRAY_SIZE(names) ? names[i] : NULL;
}

/* ------------------------------------------------------------------ newer than libseccomp */

const struct syscall_number syscall_newer[] = {
	{ "fchmodat2", 452, 1 },	/* 6.6, chmod with flags */
	{ "map_shadow_stack", 453, 1 }, /* 6.6, own control flow protection */
	{ "futex_wake", 454, 1 },	/* 6.7 */
	{ "futex_wait", 455, 1 },	/* 6.7 */
	{ "futex_requeue", 456, 1 },	/* 6.7 */
	{ "statmount", 457, 0 },	/* 6.8, shows mounts: not without a reason */
	{ "listmount", 458, 0 },
	{ "lsm_get_self_attr", 459, 0 },
	{ "lsm_set_self_attr", 460, 0 },
	{ "lsm_list_modules", 461, 0 },
	{ "mseal", 462, 1 },		/* 6.10, makes own memory unchangeable */
	{ "setxattrat", 463, 1 },	/* 6.13, as their older siblings */
	{ "getxattrat", 464, 1 },
	{ "listxattrat", 465, 1 },
	{ "removexattrat", 466, 1 },
	{ "open_tree_attr", 467, 0 },	/* 6.15, mount API */
	{ "file_getattr", 468, 0 },	/* 6.17 */
	{ "file_setattr", 469, 0 },
};
const size_t syscall_n_newer = ARRAY_SIZE(syscall_newer);

/* ------------------------------------------------------------------ rules on arguments */

#define ALL_BITS UINT32_MAX
#define EQ(arg, value) { arg, COND_EQ, ALL_BITS, value }
#define BITS_EQ(arg, mask, value) { arg, COND_EQ, mask, value }
#define ANY(arg, mask) { arg, COND_ANY_BIT, mask, 0 }

/* CLONE_NEW*, without CLONE_NEWTIME whose bit belongs to the exit signal in clone(). */
#define CLONE_NAMESPACES 0x7e020000u
#define SOCK_TYPE 0xfu /* the rest are SOCK_CLOEXEC and SOCK_NONBLOCK */
#define MSG_REFUSED ((uint32_t)(MSG_OOB | MSG_FASTOPEN))

/* Families in which payloads may talk: TCP, UDP and ping sockets, inside the own net namespace. */
#define INET_RULES(family, icmp)                                                               \
	{ "socket", 0, RULE_PASS, { EQ(0, family), BITS_EQ(1, SOCK_TYPE, SOCK_STREAM), EQ(2, 0) } },           \
	{ "socket", 0, RULE_PASS, { EQ(0, family), BITS_EQ(1, SOCK_TYPE, SOCK_STREAM), EQ(2, IPPROTO_TCP) } }, \
	{ "socket", 0, RULE_PASS, { EQ(0, family), BITS_EQ(1, SOCK_TYPE, SOCK_DGRAM), EQ(2, 0) } },            \
	{ "socket", 0, RULE_PASS, { EQ(0, family), BITS_EQ(1, SOCK_TYPE, SOCK_DGRAM), EQ(2, IPPROTO_UDP) } },  \
	{ "socket", 0, RULE_PASS, { EQ(0, family), BITS_EQ(1, SOCK_TYPE, SOCK_DGRAM), EQ(2, icmp) } },         \
	{ "socket", 0, EPERM, { EQ(0, family), BITS_EQ(1, SOCK_TYPE, SOCK_RAW) } },                           \
	{ "socket", 0, EPERM, { EQ(0, family), BITS_EQ(1, SOCK_TYPE, SOCK_PACKET) } },                        \
	/* MPTCP, SCTP, UDP-Lite: as on a kernel built without them */                                       \
	{ "socket", 0, EPROTONOSUPPORT, { EQ(0, family) } }

/* Where it makes a file; without that the mode is whatever the register held. */
#define MAKES(arg) ANY(arg, O_CREAT | (O_TMPFILE & ~O_DIRECTORY))
#define SET_ID (S_ISUID | S_ISGID)

#define IOCTL(request) { "ioctl", 0, EPERM, { EQ(1, (uint32_t)(request)) } }

const struct arg_rule syscall_rules[] = {
	/* Namespaces are the sandbox's business: most escapes of the last years begin with one. */
	{ "clone", 0, EPERM, { ANY(0, CLONE_NAMESPACES) } },
	{ "clone", SC_THREADS | SC_INIT, EPERM, { ANY(0, CLONE_THREAD) } },
	{ "unshare", 0, EPERM, { ANY(0, ~(uint32_t)(CLONE_FS | CLONE_FILES)) } },

	/* Tier "process": any socket would be one of the host's, and Unix sockets that others wait at are
	 * reached by path, which no rule of Landlock's decides before ABI 9. */
	{ "socket", SC_OWN_NET, EACCES, {} },
	{ "socket", 0, RULE_PASS, { EQ(0, AF_UNIX) } },
	INET_RULES(AF_INET, IPPROTO_ICMP),
	INET_RULES(AF_INET6, IPPROTO_ICMPV6),
	{ "socket", 0, RULE_PASS, { EQ(0, AF_NETLINK), EQ(2, NETLINK_ROUTE) } }, /* interface lists */
	/* What ss and libudev ask for. The families with a history (netfilter, generic, xfrm, crypto)
	 * stay closed: they hold most of the kernel's netlink code. */
	{ "socket", SC_NETLINK | SC_INIT, EAFNOSUPPORT, { EQ(0, AF_NETLINK), EQ(2, NETLINK_SOCK_DIAG) } },
	{ "socket", SC_NETLINK | SC_INIT, EAFNOSUPPORT, { EQ(0, AF_NETLINK), EQ(2, NETLINK_KOBJECT_UEVENT) } },
	{ "socket", 0, RULE_PASS, { EQ(0, AF_NETLINK), EQ(2, NETLINK_SOCK_DIAG) } },
	{ "socket", 0, RULE_PASS, { EQ(0, AF_NETLINK), EQ(2, NETLINK_KOBJECT_UEVENT) } },
	{ "socket", 0, EAFNOSUPPORT, {} },
	{ "socketpair", 0, RULE_PASS, { EQ(0, AF_UNIX) } },
	{ "socketpair", 0, EAFNOSUPPORT, {} },

	/* Tier "process" with the caller's own user: the limits of whatever else that one runs. */
	{ "prlimit64", SC_OWN_NET, EPERM, { ANY(0, ALL_BITS) } },

	/* Out-of-band data of Unix sockets (CVE-2025-38236), and connecting while sending. */
	{ "sendto", 0, EPERM, { ANY(3, MSG_REFUSED) } },
	{ "sendmsg", 0, EPERM, { ANY(2, MSG_REFUSED) } },
	{ "sendmmsg", 0, EPERM, { ANY(3, MSG_REFUSED) } },
	{ "recvfrom", 0, EPERM, { ANY(3, MSG_REFUSED) } },
	{ "recvmsg", 0, EPERM, { ANY(2, MSG_REFUSED) } },
	{ "recvmmsg", 0, EPERM, { ANY(3, MSG_REFUSED) } },

	/* The kernel reads the request as 32 bits: so must the rule (CVE-2019-7303). */
	IOCTL(TIOCSTI),		 /* types into the terminal */
	IOCTL(TIOCLINUX),	 /* pastes into a virtual console */
	IOCTL(TIOCSETD),	 /* line disciplines: modules with a history */
	IOCTL(TIOCCONS),	 /* takes the console's output */
	IOCTL(SIOCATMARK),	 /* out-of-band data again */
	IOCTL(FIFREEZE),
	IOCTL(FITHAW),
	IOCTL(FS_IOC_SETFLAGS),	 /* immutable files cannot be cleaned up */
	IOCTL(FS_IOC32_SETFLAGS),
	IOCTL(FS_IOC_FSSETXATTR),

	/* Nothing but the native personality, set or asked for. */
	{ "personality", 0, RULE_PASS, { EQ(0, 0) } },
	{ "personality", 0, RULE_PASS, { EQ(0, 0xffffffffu) } },
	{ "personality", 0, EPERM, {} },

	{ "prctl", SC_INIT, EPERM, { EQ(0, PR_SET_MM) } },
	{ "prctl", SC_INIT, EPERM, { EQ(0, PR_SET_SECUREBITS) } },
	{ "prctl", SC_INIT, EPERM, { EQ(0, PR_SET_KEEPCAPS) } },
	{ "prctl", SC_INIT, EPERM, { EQ(0, PR_CAP_AMBIENT), EQ(1, PR_CAP_AMBIENT_RAISE) } },
	{ "prctl", SC_INIT, EPERM, { EQ(0, PR_SCHED_CORE) } },

	/* A listener would let one process decide the calls of another. */
	{ "seccomp", 0, EPERM, { EQ(0, SECCOMP_SET_MODE_FILTER), ANY(1, SECCOMP_FILTER_FLAG_NEW_LISTENER) } },

	{ "mmap", 0, EPERM, { ANY(3, MAP_GROWSDOWN) } }, /* CVE-2023-3269 */
	{ "mmap", SC_JIT | SC_INIT, EPERM, { BITS_EQ(2, PROT_WRITE | PROT_EXEC, PROT_WRITE | PROT_EXEC) } },
	{ "mprotect", SC_JIT | SC_INIT, EPERM, { ANY(2, PROT_EXEC) } },
	{ "pkey_mprotect", SC_JIT | SC_INIT, EPERM, { ANY(2, PROT_EXEC) } },

	/* Landlock does not see an exec from memory; MFD_NOEXEC_SEAL (6.3) makes it harmless. */
	{ "memfd_create", SC_MEMFD_EXEC | SC_INIT, EACCES, { BITS_EQ(1, 0x8u, 0) } },

	/*
	 * A directory of the host is shared (filesystem.workspace "rw"): a program with a set-id bit that is
	 * left there would run as its owner for whoever starts it outside. openat2 has its mode in memory.
	 */
	{ "chmod", SC_SETID, EPERM, { ANY(1, SET_ID) } },
	{ "fchmod", SC_SETID, EPERM, { ANY(1, SET_ID) } },
	{ "fchmodat", SC_SETID, EPERM, { ANY(2, SET_ID) } },
	{ "fchmodat2", SC_SETID, EPERM, { ANY(2, SET_ID) } },
	{ "creat", SC_SETID, EPERM, { ANY(1, SET_ID) } },
	{ "open", SC_SETID, EPERM, { MAKES(1), ANY(2, SET_ID) } },
	{ "openat", SC_SETID, EPERM, { MAKES(2), ANY(3, SET_ID) } },
	{ "openat2", SC_SETID, ENOSYS, {} },

	/* Regular files (type 0 too) and FIFOs; character device 0,0 is overlayfs's whiteout. */
	{ "mknod", SC_SETID, EPERM, { ANY(1, SET_ID) } }, /* as above */
	{ "mknod", 0, RULE_PASS, { BITS_EQ(1, S_IFMT, 0) } },
	{ "mknod", 0, RULE_PASS, { BITS_EQ(1, S_IFMT, S_IFREG) } },
	{ "mknod", 0, RULE_PASS, { BITS_EQ(1, S_IFMT, S_IFIFO) } },
	{ "mknod", 0, EPERM, {} },
	{ "mknodat", SC_SETID, EPERM, { ANY(2, SET_ID) } },
	{ "mknodat", 0, RULE_PASS, { BITS_EQ(2, S_IFMT, 0) } },
	{ "mknodat", 0, RULE_PASS, { BITS_EQ(2, S_IFMT, S_IFREG) } },
	{ "mknodat", 0, RULE_PASS, { BITS_EQ(2, S_IFMT, S_IFIFO) } },
	{ "mknodat", 0, EPERM, {} },

	/* Would wait for disks of the host. The run's files are not meant to outlive it. */
	{ "sync", 0, 0, {} },
	{ "syncfs", 0, 0, {} },
};
const size_t syscall_n_rules = ARRAY_SIZE(syscall_rules);
/* clang-format on */
