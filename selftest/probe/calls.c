/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of system calls (D of the catalogue). Arguments do no harm where a call is let through. */
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "selftest/probe/probe.h"

/* Numbers since 5.1 are the same on every architecture. */
enum {
	NR_OPEN_TREE = 428,
	NR_MOVE_MOUNT,
	NR_FSOPEN,
	NR_FSCONFIG,
	NR_FSMOUNT,
	NR_FSPICK,
	NR_CLONE3 = 435,
	NR_PROCESS_MADVISE = 440,
	NR_MOUNT_SETATTR = 442,
	NR_QUOTACTL_FD,
	NR_MEMFD_SECRET = 447,
	NR_STATMOUNT = 457,
	NR_LISTMOUNT,
	NR_OPEN_TREE_ATTR = 467,
	NR_FILE_GETATTR,
	NR_IO_URING_SETUP = 425,
};

#define REFUSED ((const int[]){ EPERM, ENOSYS, 0 })
#define BAD	1 /* no address */

void probe_D01_new_calls(const struct probe *p)
{
	static const struct raw_call known[] = {
		{ "clone3", NR_CLONE3, { BAD, 0 } },
		{ "open_tree", NR_OPEN_TREE, { -1, BAD } },
		{ "fsopen", NR_FSOPEN, { BAD } },
		{ "mount_setattr", NR_MOUNT_SETATTR, { -1, BAD, 0, BAD, 0 } },
		{ "memfd_secret", NR_MEMFD_SECRET, { -1 } },
		{ "listmount", NR_LISTMOUNT, { BAD, BAD } },
		{ "open_tree_attr", NR_OPEN_TREE_ATTR, { -1, BAD } },
		{ "file_getattr", NR_FILE_GETATTR, { -1, BAD } },
	};
	static const long future[] = { 475, 480, 490, 500, 511, 900, 9999 };

	for (size_t i = 0; i < ARRAY_SIZE(future); i++)
		if (syscall(future[i], 0, 0, 0, 0, 0, 0) >= 0 || errno != ENOSYS)
			escaped("call %ld: %s instead of ENOSYS", future[i], errname(errno));
	judge_calls("seccomp", known, ARRAY_SIZE(known), (const int[]){ ENOSYS, 0 });
}

/* ------------------------------------------------------------------ other architectures */

#ifdef __x86_64__
static void call_as_i386(void)
{
	long r = 20; /* getpid there */

	__asm__ volatile("int $0x80" : "+a"(r) : : "memory", "r8", "r9", "r10", "r11");
	_exit(r > 0 ? 1 : 2);
}

void probe_D04_foreign_arch(const struct probe *p)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		call_as_i386();
	status = reap(pid);
	/* Without a handler for the trap in the kernel it is a fault. */
	if (p->control && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV)
		skip("this kernel has no 32-bit calls");
	if (!WIFSIGNALED(status))
		escaped("a 32-bit call is answered");
	/* x32: the same numbers with a bit. */
	if (syscall(0x40000000L + SYS_getpid) >= 0)
		escaped("an x32 call is answered");
	held("seccomp", "%s; x32: %s", WTERMSIG(status) == SIGSYS ? "SIGSYS" : "killed",
	     errname(errno));
}
#else
void probe_D04_foreign_arch(const struct probe *p)
{
	skip("calls of another architecture need a program for it");
}
#endif

/* ------------------------------------------------------------------ terminals */

void probe_D06_terminal_ioctl(const struct probe *p)
{
	static const struct {
		const char *name;
		unsigned long request;
	} rows[] = {
		{ "TIOCSTI", TIOCSTI },
		{ "TIOCLINUX", TIOCLINUX },
		{ "TIOCSETD", TIOCSETD },
		{ "TIOCCONS", TIOCCONS },
	};
	int ldisc = 0, master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	int unlock = 0, slave = -1;

	if (master >= 0 && ioctl(master, TIOCSPTLCK, &unlock) == 0)
		slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0 && p->control)
		skip("no terminal can be made: %s", errname(errno));
	/* Without one: the filter asks what is requested, and not of what. */
	if (slave < 0)
		slave = 0;
	/* The caller's console is not for a control to redirect. */
	for (size_t i = 0; i < ARRAY_SIZE(rows) - (p->control ? 1 : 0); i++)
		if (ioctl(slave, rows[i].request, &ldisc) == 0 || errno != EPERM)
			escaped("%s reaches the terminal (%s)", rows[i].name, errname(errno));
	held("seccomp", "%zu requests: EPERM", ARRAY_SIZE(rows));
}

/* ------------------------------------------------------------------ kernel exploit helpers */

void probe_D09_io_uring(const struct probe *p)
{
	long r = syscall(NR_IO_URING_SETUP, 8, BAD);

	if (p->control && r < 0 && (errno == EPERM || errno == ENOSYS))
		skip("this host has no io_uring for this user");
	errno = r < 0 ? errno : 0;
	/* EPERM: a filter around ours, or a host that has switched it off; the control then says so. */
	judge("seccomp", "io_uring_setup", r, (const int[]){ ENOSYS, EPERM, 0 });
}

void probe_D10_helpers(const struct probe *p)
{
	static const struct raw_call calls[] = {
		{ "userfaultfd", SYS_userfaultfd, { 1 /* user mode only */ } },
		{ "bpf", SYS_bpf, { 999, BAD, 0 } },
		{ "perf_event_open", SYS_perf_event_open, { BAD, 0, -1, -1, 0 } },
		{ "fanotify_init", SYS_fanotify_init, { 0x200 /* by file handle */, 0 } },
	};

	if (open("/dev/userfaultfd", O_RDWR | O_CLOEXEC) >= 0)
		escaped("/dev/userfaultfd can be opened");
	judge_calls("seccomp", calls, ARRAY_SIZE(calls), REFUSED);
}

void probe_D11_trace(const struct probe *p)
{
	char a = 1, b = 0;
	struct iovec from = { &a, 1 }, to = { &b, 1 };
	pid_t pid;

	if (syscall(SYS_process_vm_readv, getpid(), &to, 1, &from, 1, 0) >= 0)
		escaped("process_vm_readv: done");
	if (errno != EPERM && errno != ENOSYS)
		escaped("process_vm_readv: %s", errname(errno));
	if (syscall(SYS_kcmp, getpid(), getpid(), 0, 0, 0) >= 0)
		escaped("kcmp: done");
	if (syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, getpid(), 0), 0, 0) >= 0)
		escaped("pidfd_getfd: done");
	pid = fork();
	if (pid == 0)
		_exit(syscall(SYS_ptrace, PTRACE_TRACEME, 0, 0, 0) == 0);
	if (WEXITSTATUS(reap(pid)))
		escaped("ptrace: done");
	held("seccomp", "ptrace, process_vm_readv, kcmp, pidfd_getfd: refused");
}

/* ------------------------------------------------------------------ changing the kernel */

void probe_D13_mount_family(const struct probe *p)
{
	static const struct raw_call calls[] = {
		{ "mount", SYS_mount, { 0, BAD, BAD, 0, 0 } },
		{ "umount2", SYS_umount2, { BAD, 0 } },
		{ "pivot_root", SYS_pivot_root, { BAD, BAD } },
		{ "chroot", SYS_chroot, { BAD } },
		{ "open_tree", NR_OPEN_TREE, { -1, BAD, 1 } },
		{ "move_mount", NR_MOVE_MOUNT, { -1, BAD, -1, BAD, 0 } },
		{ "fsopen", NR_FSOPEN, { BAD } },
		{ "fsconfig", NR_FSCONFIG, { -1, 99, 0, 0, 0 } },
		{ "fsmount", NR_FSMOUNT, { -1 } },
		{ "fspick", NR_FSPICK, { -1, BAD, 0 } },
		{ "mount_setattr", NR_MOUNT_SETATTR, { -1, BAD, 0, BAD, 0 } },
		{ "open_tree_attr", NR_OPEN_TREE_ATTR, { -1, BAD, 1, BAD, 0 } },
		{ "statmount", NR_STATMOUNT, { BAD, BAD, 0, 0 } },
		{ "listmount", NR_LISTMOUNT, { BAD, BAD, 0, 0 } },
	};

	judge_calls("seccomp", calls, ARRAY_SIZE(calls), REFUSED);
}

void probe_D15_kernel_calls(const struct probe *p)
{
	static const struct raw_call calls[] = {
		{ "personality", SYS_personality, { ADDR_NO_RANDOMIZE } },
		{ "init_module", SYS_init_module, { 0, 0, BAD } },
		{ "finit_module", SYS_finit_module, { -1, BAD, 0 } },
		{ "delete_module", SYS_delete_module, { BAD, 0 } },
		{ "kexec_load", SYS_kexec_load, { 0, 0, BAD, -1 } },
		{ "reboot", SYS_reboot, { 0, 0, 0, 0 } },
		{ "swapon", SYS_swapon, { BAD, 0 } },
		{ "swapoff", SYS_swapoff, { BAD } },
		{ "acct", SYS_acct, { BAD } },
		{ "quotactl", SYS_quotactl, { 0, BAD, 0, BAD } },
		{ "quotactl_fd", NR_QUOTACTL_FD, { -1, 0, 0, BAD } },
		{ "syslog", SYS_syslog, { 10 /* size of the buffer */, 0, 0 } },
		{ "settimeofday", SYS_settimeofday, { 0, BAD } },
		{ "clock_adjtime", SYS_clock_adjtime, { 0, BAD } },
		{ "adjtimex", SYS_adjtimex, { BAD } },
		{ "sethostname", SYS_sethostname, { BAD, -1 } },
		{ "move_pages", SYS_move_pages, { 0, 1, BAD, 0, BAD, 0 } },
		{ "migrate_pages", SYS_migrate_pages, { -1, 0, 0, 0 } },
		{ "lookup_dcookie", SYS_lookup_dcookie, { 0, BAD, 0 } },
		{ "open_by_handle_at", SYS_open_by_handle_at, { -1, BAD, 0 } },
#ifdef SYS_modify_ldt
		{ "modify_ldt", SYS_modify_ldt, { 0, BAD, 0 } },
		{ "iopl", SYS_iopl, { 99 } },
		{ "ioperm", SYS_ioperm, { -1, 0, 0 } },
#endif
	};

	judge_calls("seccomp", calls, ARRAY_SIZE(calls), REFUSED);
}

void probe_D17_families(const struct probe *p)
{
	static const struct raw_call calls[] = {
		{ "AF_ALG", SYS_socket, { AF_ALG, SOCK_SEQPACKET, 0 } },
		{ "AF_VSOCK", SYS_socket, { AF_VSOCK, SOCK_STREAM, 0 } },
		{ "AF_PACKET", SYS_socket, { AF_PACKET, SOCK_RAW, 0 } },
		{ "AF_KEY", SYS_socket, { AF_KEY, SOCK_RAW, 2 } },
		{ "AF_RXRPC", SYS_socket, { AF_RXRPC, SOCK_DGRAM, AF_INET } },
		{ "AF_XDP", SYS_socket, { AF_XDP, SOCK_RAW, 0 } },
		{ "AF_BLUETOOTH", SYS_socket, { AF_BLUETOOTH, SOCK_RAW, 1 } },
		{ "AF_TIPC", SYS_socket, { AF_TIPC, SOCK_RDM, 0 } },
		{ "netfilter", SYS_socket, { AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER } },
		{ "xfrm", SYS_socket, { AF_NETLINK, SOCK_RAW, NETLINK_XFRM } },
		{ "crypto", SYS_socket, { AF_NETLINK, SOCK_RAW, NETLINK_CRYPTO } },
		{ "raw sockets", SYS_socket, { AF_INET, SOCK_RAW, 1 } },
	};

	judge_calls("seccomp", calls, ARRAY_SIZE(calls),
		    (const int[]){ EPERM, EACCES, EAFNOSUPPORT, EPROTONOSUPPORT, 0 });
}

void probe_D19_page_cache(const struct probe *p)
{
	static const struct raw_call calls[] = {
		{ "vmsplice", SYS_vmsplice, { -1, BAD, 0, 0 } },
		{ "splice", SYS_splice, { -1, 0, -1, 0, 1, 0 } },
		{ "tee", SYS_tee, { -1, -1, 1, 0 } },
	};

	judge_calls("seccomp", calls, ARRAY_SIZE(calls), REFUSED);
}

void probe_D20_flags(const struct probe *p)
{
	int pair[2], at;

	if (mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0) !=
	    MAP_FAILED)
		escaped("MAP_GROWSDOWN: done");
	if (errno != EPERM || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
		escaped("MAP_GROWSDOWN, socketpair: %s", errname(errno));
	if (send(pair[0], "x", 1, MSG_OOB) >= 0 || errno != EPERM)
		escaped("MSG_OOB: %s", errname(errno));
	JUDGE("seccomp", "MAP_GROWSDOWN, MSG_OOB, SIOCATMARK", ioctl(pair[0], SIOCATMARK, &at),
	      EPERM);
}

void probe_D21_memfd_exec(const struct probe *p)
{
	char *argv[] = { (char *)"true", NULL }, *env[] = { NULL };
	int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), fd;
	char buf[65536];
	long n;
	pid_t pid;

	fd = memfd_create("probe", 0);
	if (fd < 0 && (errno == EACCES || errno == EPERM))
		held("seccomp", "memfd_create without MFD_NOEXEC_SEAL: %s", errname(errno));
	while (self >= 0 && (n = read(self, buf, sizeof(buf))) > 0)
		if (write(fd, buf, (size_t)n) != n)
			skip("write: %s", errname(errno));
	pid = fork();
	if (pid == 0) {
		syscall(SYS_execveat, fd, "", argv, env, AT_EMPTY_PATH);
		_exit(errno == EACCES || errno == EPERM ? 77 : 78);
	}
	if (WEXITSTATUS(reap(pid)) != 77)
		escaped("a program in memory was run");
	held("landlockFs", "execveat: refused");
}

/* Nothing of libc between us and the kernel: what a limit by hooks would not see. */
void probe_D23_raw_call(const struct probe *p)
{
	long r;

#if defined(__x86_64__)
	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(SYS_unshare), "D"(CLONE_NEWNS)
			 : "rcx", "r11", "memory");
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = SYS_unshare;
	register long x0 __asm__("x0") = CLONE_NEWNS;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8) : "memory");
	r = x0;
#else
	skip("not written for this architecture");
#endif
	errno = r < 0 ? (int)-r : 0;
	judge("seccomp", "unshare, by an instruction of our own", r, REFUSED);
}

static void *mode_of_thread(void *ret)
{
	*(int *)ret = prctl(PR_GET_SECCOMP, 0, 0, 0, 0);
	return NULL;
}

void probe_D24_threads(const struct probe *p)
{
	pthread_t t;
	int mode = -1, own = prctl(PR_GET_SECCOMP, 0, 0, 0, 0);

	if (p->control && own == 2)
		skip("the caller has a filter itself");
	if (pthread_create(&t, NULL, mode_of_thread, &mode) != 0)
		skip("no thread can be made");
	pthread_join(t, NULL);
	if (mode != 2 || own != 2)
		escaped("a thread has mode %d, the first has %d", mode, own);
	held("seccomp", "mode 2 in each thread");
}
