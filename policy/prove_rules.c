/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What no filter may let through, whatever its tables say. Written from the attacks, not from the
 * tables: each row is a call (with arguments) that has been the first step of an escape, or reaches
 * what a namespace does not bound.
 */
#include <asm/ioctls.h>
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
#include "policy/prove.h"
#include "policy/syscalls.h"

/* clang-format off */
#define ALL 0xffffffffu
#define IS(arg, value)		    { arg, PROVE_IS, ALL, (uint32_t)(value) }
#define IS_NOT(arg, value)	    { arg, PROVE_IS_NOT, ALL, (uint32_t)(value) }
#define BITS_ARE(arg, mask, value)  { arg, PROVE_IS, mask, value }
#define BITS_NOT(arg, mask, value)  { arg, PROVE_IS_NOT, mask, value }
#define ANY_OF(arg, mask)	    { arg, PROVE_ANY_OF, mask, 0 }
#define SET_ID_WHY		    "set-id bits in a directory of the host"
#define SET_ID(call, arg)	    { call, SC_SETID, SET_ID_WHY, { ANY_OF(arg, S_ISUID | S_ISGID) } }
#define CREATES			    (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))

#define NEVER(call, why) { call, 0, why, {} }

#define TYPE 0xfu /* of a socket, without SOCK_CLOEXEC and SOCK_NONBLOCK */
#define INET_SOCKETS(family, icmp)                                                                 \
	{ "socket", 0, "raw and odd sockets",                                                      \
	  { IS(0, family), BITS_NOT(1, TYPE, SOCK_STREAM), BITS_NOT(1, TYPE, SOCK_DGRAM) } },      \
	{ "socket", 0, "stream protocols beside TCP (MPTCP, SCTP)",                                \
	  { IS(0, family), BITS_ARE(1, TYPE, SOCK_STREAM), IS_NOT(2, 0), IS_NOT(2, IPPROTO_TCP) } }, \
	{ "socket", 0, "datagram protocols beside UDP and ping",                                   \
	  { IS(0, family), BITS_ARE(1, TYPE, SOCK_DGRAM), IS_NOT(2, 0), IS_NOT(2, IPPROTO_UDP),    \
	    IS_NOT(2, icmp) } }

#define REQUEST(request, why) { "ioctl", 0, why, { IS(1, request) } }
#define MESSAGE(call, arg) \
	{ call, 0, "out-of-band data of sockets, connecting while sending", \
	  { ANY_OF(arg, (uint32_t)(MSG_OOB | MSG_FASTOPEN)) } }
#define NODE(call, arg) \
	{ call, 0, "devices and overlay whiteouts", \
	  { BITS_NOT(arg, S_IFMT, 0), BITS_NOT(arg, S_IFMT, S_IFREG), BITS_NOT(arg, S_IFMT, S_IFIFO) } }

const struct prove_rule prove_rules[] = {
	NEVER("mount", "mounts"), NEVER("umount2", "mounts"), NEVER("pivot_root", "mounts"),
	NEVER("chroot", "mounts"), NEVER("open_tree", "mounts"), NEVER("open_tree_attr", "mounts"),
	NEVER("move_mount", "mounts"), NEVER("fsopen", "mounts"), NEVER("fsconfig", "mounts"),
	NEVER("fsmount", "mounts"), NEVER("fspick", "mounts"), NEVER("mount_setattr", "mounts"),
	NEVER("statmount", "shows the mounts"), NEVER("listmount", "shows the mounts"),
	NEVER("setns", "enters other namespaces"),
	NEVER("clone3", "its flags are behind a pointer that no filter follows"),
	NEVER("open_by_handle_at", "opens files past every directory"),
	NEVER("swapon", "the host's memory"), NEVER("swapoff", "the host's memory"),
	NEVER("quotactl", "file systems"), NEVER("quotactl_fd", "file systems"),
	NEVER("acct", "writes files as the kernel"),
	NEVER("init_module", "kernel modules"), NEVER("finit_module", "kernel modules"),
	NEVER("delete_module", "kernel modules"), NEVER("kexec_load", "another kernel"),
	NEVER("kexec_file_load", "another kernel"), NEVER("reboot", "the host"),
	NEVER("syslog", "reads the kernel's log"), NEVER("bpf", "programs in the kernel"),
	NEVER("perf_event_open", "large and often broken"),
	NEVER("userfaultfd", "stops the kernel where an exploit wants it"),
	NEVER("fanotify_init", "sees others' files"), NEVER("fanotify_mark", "sees others' files"),
	NEVER("lookup_dcookie", "profiling of the host"), NEVER("vhangup", "terminals"),
	NEVER("sethostname", "the host's name"), NEVER("setdomainname", "the host's name"),
	NEVER("settimeofday", "the host's clock"), NEVER("clock_settime", "the host's clock"),
	NEVER("clock_adjtime", "the host's clock"), NEVER("adjtimex", "the host's clock"),
	NEVER("iopl", "hardware"), NEVER("ioperm", "hardware"), NEVER("modify_ldt", "segments"),
	NEVER("move_pages", "others' pages"), NEVER("migrate_pages", "others' pages"),
	NEVER("add_key", "keyrings are not bounded by a namespace"),
	NEVER("request_key", "keyrings are not bounded by a namespace"),
	NEVER("keyctl", "keyrings are not bounded by a namespace"),
	NEVER("io_uring_setup", "its operations pass no filter"),
	NEVER("io_uring_enter", "its operations pass no filter"),
	NEVER("io_uring_register", "its operations pass no filter"),
	NEVER("io_setup", "native AIO"), NEVER("io_submit", "native AIO"),
	NEVER("memfd_secret", "memory that the host cannot see"),
	NEVER("kcmp", "compares kernel pointers"), NEVER("pidfd_getfd", "others' descriptors"),
	NEVER("vmsplice", "page cache primitive"), NEVER("splice", "page cache primitive"),
	NEVER("tee", "page cache primitive"),
	NEVER("mbind", "memory policy"), NEVER("set_mempolicy", "memory policy"),
	NEVER("uselib", "obsolete"), NEVER("nfsservctl", "obsolete"), NEVER("_sysctl", "obsolete"),
	NEVER("shmget", "System V objects"), NEVER("semget", "System V objects"),
	NEVER("msgget", "System V objects"), NEVER("shmat", "System V objects"),
	NEVER("shmctl", "System V objects"), NEVER("shmdt", "System V objects"),
	NEVER("semctl", "System V objects"), NEVER("semop", "System V objects"),
	NEVER("semtimedop", "System V objects"), NEVER("msgctl", "System V objects"),
	NEVER("msgsnd", "System V objects"), NEVER("msgrcv", "System V objects"),
	NEVER("mq_open", "POSIX queues"), NEVER("mq_unlink", "POSIX queues"),
	NEVER("mq_timedsend", "POSIX queues"), NEVER("mq_timedreceive", "POSIX queues"),
	NEVER("mq_notify", "POSIX queues"), NEVER("mq_getsetattr", "POSIX queues"),
	NEVER("sync", "waits for the host's disks"), NEVER("syncfs", "waits for the host's disks"),

	{ "ptrace", SC_PTRACE, "other processes' memory", {} },
	{ "process_vm_readv", SC_PTRACE, "other processes' memory", {} },
	{ "process_vm_writev", SC_PTRACE, "other processes' memory", {} },
	{ "process_madvise", SC_PTRACE, "other processes' memory", {} },

	/* CLONE_NEWTIME's bit is part of the exit signal in clone(). */
	{ "clone", 0, "new namespaces", { ANY_OF(0, 0x7e020000u) } },
	{ "clone", SC_THREADS | SC_INIT, "threads", { ANY_OF(0, CLONE_THREAD) } },
	{ "unshare", 0, "new namespaces", { ANY_OF(0, ~(uint32_t)(CLONE_FS | CLONE_FILES)) } },

	{ "socket", SC_OWN_NET, "sockets of the host's network", {} },
	{ "prlimit64", SC_OWN_NET, "others' limits", { ANY_OF(0, ALL) } },
	{ "socket", 0, "families beside AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK",
	  { IS_NOT(0, AF_UNIX), IS_NOT(0, AF_INET), IS_NOT(0, AF_INET6), IS_NOT(0, AF_NETLINK) } },
	INET_SOCKETS(AF_INET, IPPROTO_ICMP),
	INET_SOCKETS(AF_INET6, IPPROTO_ICMPV6),
	{ "socket", SC_NETLINK | SC_INIT, "netlink beside lists of interfaces", { IS(0, AF_NETLINK), IS_NOT(2, NETLINK_ROUTE) } },
	{ "socket", 0, "netlink families with a history", { IS(0, AF_NETLINK), IS_NOT(2, NETLINK_ROUTE),
	  IS_NOT(2, NETLINK_SOCK_DIAG), IS_NOT(2, NETLINK_KOBJECT_UEVENT) } },
	{ "bind", SC_LISTEN, "waiting for connections", {} },
	{ "listen", SC_LISTEN, "waiting for connections", {} },
	{ "accept", SC_LISTEN, "waiting for connections", {} },
	{ "accept4", SC_LISTEN, "waiting for connections", {} },
	{ "socketpair", 0, "families beside AF_UNIX", { IS_NOT(0, AF_UNIX) } },
	MESSAGE("sendto", 3), MESSAGE("sendmsg", 2), MESSAGE("sendmmsg", 3),
	MESSAGE("recvfrom", 3), MESSAGE("recvmsg", 2), MESSAGE("recvmmsg", 3),

	REQUEST(TIOCSTI, "types into the terminal"), REQUEST(TIOCLINUX, "pastes into a console"),
	REQUEST(TIOCSETD, "line disciplines"), REQUEST(TIOCCONS, "takes the console"),
	REQUEST(SIOCATMARK, "out-of-band data"), REQUEST(FIFREEZE, "freezes file systems"),
	REQUEST(FITHAW, "freezes file systems"), REQUEST(FS_IOC_SETFLAGS, "immutable files"),
	REQUEST(FS_IOC32_SETFLAGS, "immutable files"), REQUEST(FS_IOC_FSSETXATTR, "immutable files"),

	{ "personality", 0, "foreign personalities", { IS_NOT(0, 0), IS_NOT(0, ALL) } },
	{ "prctl", SC_INIT, "own memory map", { IS(0, PR_SET_MM) } },
	{ "prctl", SC_INIT, "capabilities", { IS(0, PR_SET_SECUREBITS) } },
	{ "prctl", SC_INIT, "capabilities", { IS(0, PR_SET_KEEPCAPS) } },
	{ "prctl", SC_INIT, "capabilities", { IS(0, PR_CAP_AMBIENT), IS(1, PR_CAP_AMBIENT_RAISE) } },
	{ "prctl", SC_INIT, "core scheduling", { IS(0, PR_SCHED_CORE) } },
	{ "seccomp", 0, "decides the calls of other processes",
	  { IS(0, SECCOMP_SET_MODE_FILTER), ANY_OF(1, SECCOMP_FILTER_FLAG_NEW_LISTENER) } },

	{ "mmap", 0, "stacks that grow", { ANY_OF(3, MAP_GROWSDOWN) } },
	{ "mmap", SC_JIT | SC_INIT, "memory both writable and executable",
	  { BITS_ARE(2, PROT_WRITE | PROT_EXEC, PROT_WRITE | PROT_EXEC) } },
	{ "mprotect", SC_JIT | SC_INIT, "memory made executable", { ANY_OF(2, PROT_EXEC) } },
	{ "pkey_mprotect", SC_JIT | SC_INIT, "memory made executable", { ANY_OF(2, PROT_EXEC) } },
	{ "memfd_create", SC_MEMFD_EXEC | SC_INIT, "programs in memory", { BITS_ARE(1, 0x8u, 0) } },
	NODE("mknod", 1), NODE("mknodat", 2),
	SET_ID("chmod", 1), SET_ID("fchmod", 1), SET_ID("fchmodat", 2), SET_ID("fchmodat2", 2),
	SET_ID("creat", 1), SET_ID("mknod", 1), SET_ID("mknodat", 2),
	{ "open", SC_SETID, SET_ID_WHY, { ANY_OF(1, CREATES), ANY_OF(2, S_ISUID | S_ISGID) } },
	{ "openat", SC_SETID, SET_ID_WHY, { ANY_OF(2, CREATES), ANY_OF(3, S_ISUID | S_ISGID) } },
	{ "openat2", SC_SETID, SET_ID_WHY, {} },
};
const size_t prove_n_rules = ARRAY_SIZE(prove_rules);
/* clang-format on */
