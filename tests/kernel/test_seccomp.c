/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The filters in a kernel. Each row makes one call in a child of its own, under a profile's filter,
 * and must get the listed answer; the same call without the filter must get another, so that it is
 * the filter that was seen. Needs no privilege.
 *
 *   test -> fork -> no_new_privs, filter -> call -> exit status: errno, 0 for success
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/syscalls.h"

/* ------------------------------------------------------------------ filters */

enum profile_kind { STANDARD, STRICT, SKILL, NO_THREADS, NO_LISTEN, NETLINK, INIT, KINDS };

#define ORDINARY                                                                                   \
	(SC_PTRACE | SC_JIT | SC_THREADS | SC_MEMFD_EXEC | SC_LISTEN | SC_SETID | SC_OWN_NET)
static const unsigned traits[KINDS] = {
	[STANDARD] = ORDINARY,
	[STRICT] = SC_THREADS | SC_MEMFD_EXEC | SC_LISTEN | SC_SETID | SC_OWN_NET,
	[SKILL] = SC_THREADS | SC_LISTEN | SC_SETID | SC_OWN_NET,
	[NO_THREADS] = ORDINARY & ~(unsigned)SC_THREADS,
	[NO_LISTEN] = ORDINARY & ~(unsigned)SC_LISTEN,
	[NETLINK] = ORDINARY | SC_NETLINK,
	[INIT] = SC_PAYLOAD | SC_INIT,
};

static struct sock_fprog programs[KINDS];

static void compile_all(void)
{
	const struct seccomp_spec spec = { .arch = SECCOMP_ARCH_NATIVE };
	struct seccomp_program compiled[KINDS];
	struct nsbox_error err = { 0 };

	ck_assert_msg(seccomp_compile(&spec, traits, KINDS, compiled, &err) == 0, "%s", err.msg);
	for (int k = 0; k < KINDS; k++)
		programs[k] =
			(struct sock_fprog){ (unsigned short)compiled[k].n, compiled[k].insn };
}

static void free_all(void)
{
	for (int k = 0; k < KINDS; k++)
		free(programs[k].filter);
}

static void install(const struct sock_fprog *prog)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, prog))
		_exit(250);
}

/* ------------------------------------------------------------------ calls */

/* Each returns 0 or an errno. What it needs is made before the filter is there, by prepare(). */
static int pair[2] = { -1, -1 }, terminal = -1;
static int bound = -1, listening = -1;

static void prepare(void)
{
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	terminal = posix_openpt(O_RDWR | O_NOCTTY);
	bound = socket(AF_INET, SOCK_STREAM, 0);
	/* not blocking: a call that is allowed finds nobody waiting */
	listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	ck_assert_int_eq(listen(listening, 1), 0);
}

static int answer(long r)
{
	return r < 0 ? errno : 0;
}

static int try_read(void)
{
	char c;

	return answer(read(-1, &c, 1));
}

static int try_unshare_user(void)
{
	return answer(unshare(CLONE_NEWUSER));
}

static int try_unshare_files(void)
{
	return answer(unshare(CLONE_FILES));
}

static int try_clone_user(void)
{
	long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);

	if (pid == 0)
		_exit(0);
	return answer(pid);
}

static int try_fork(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	return answer(pid);
}

static int try_clone3(void)
{
	return answer(syscall(SYS_clone3, NULL, 0));
}

static int try_fsopen(void)
{
	return answer(syscall(SYS_fsopen, NULL, 0));
}

static int try_setns(void)
{
	return answer(syscall(SYS_setns, -1, 0));
}

static int try_never_assigned(void)
{
	return answer(syscall(4000));
}

static int try_fchmodat2(void)
{
	return answer(syscall(452, -100, "", 0, 0));
}

static int try_personality(void)
{
	return answer(personality(ADDR_NO_RANDOMIZE));
}

static int try_personality_query(void)
{
	return answer(personality(0xffffffff));
}

static int try_keepcaps(void)
{
	return answer(prctl(PR_SET_KEEPCAPS, 1));
}

static int try_dumpable(void)
{
	return answer(prctl(PR_SET_DUMPABLE, 1));
}

static int try_tiocsetd(void)
{
	int n = 0;

	return answer(ioctl(terminal, TIOCSETD, &n));
}

/* The request with a bit set above the 32 that the kernel reads. */
static int try_tiocsetd_wide(void)
{
	int n = 0;

	return answer(syscall(SYS_ioctl, terminal, 0x100000000UL | TIOCSETD, &n));
}

static int try_tiocgwinsz(void)
{
	struct winsize w;

	return answer(ioctl(terminal, TIOCGWINSZ, &w));
}

static int try_packet_pair(void)
{
	int sv[2];

	return answer(socketpair(AF_INET, SOCK_STREAM, 0, sv));
}

static int try_nfnetlink(void)
{
	return answer(socket(AF_NETLINK, SOCK_RAW, 12 /* NETLINK_NETFILTER */));
}

static int try_route(void)
{
	return answer(socket(AF_NETLINK, SOCK_RAW, 0));
}

static int try_sock_diag(void)
{
	return answer(socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG));
}

static int try_uevent(void)
{
	return answer(socket(AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT));
}

static int try_generic(void)
{
	return answer(socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC));
}

/* On sockets made before the filter is there: what is asked is the one call. */
static int try_bind(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET };

	/* one of its own: a socket is bound once */
	return answer(bind(socket(AF_INET, SOCK_DGRAM, 0), (struct sockaddr *)&a, sizeof(a)));
}

static int try_listen(void)
{
	return answer(listen(bound, 1));
}

static int try_accept(void)
{
	return answer(accept(listening, NULL, NULL));
}

static int try_accept4(void)
{
	return answer(accept4(listening, NULL, NULL, SOCK_CLOEXEC));
}

static int try_connect(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "/nonexistent" };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	return answer(connect(fd, (struct sockaddr *)&a, sizeof(a)));
}

static void *nothing(void *arg)
{
	return arg;
}

static int try_thread(void)
{
	pthread_t t;
	int r = pthread_create(&t, NULL, nothing, NULL);

	if (r == 0)
		pthread_join(t, NULL);
	return r;
}

static int try_vfork_exec(void)
{
	pid_t pid = vfork();

	if (pid == 0)
		_exit(0);
	return answer(pid);
}

static int try_tcp(void)
{
	return answer(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

static int try_oob(void)
{
	return answer(send(pair[0], "x", 1, MSG_OOB));
}

static int try_send(void)
{
	return answer(send(pair[0], "x", 1, MSG_NOSIGNAL));
}

static int try_growsdown(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0);

	return p == MAP_FAILED ? errno : 0;
}

static int try_wx(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);

	return p == MAP_FAILED ? errno : 0;
}

static int try_make_exec(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? 249 : answer(mprotect(p, 4096, PROT_READ | PROT_EXEC));
}

static int try_pkey_exec(void)
{
	void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	/* key -1 is none: the call is mprotect then, also without the hardware */
	return p == MAP_FAILED
		       ? 249
		       : answer(syscall(SYS_pkey_mprotect, p, 4096, PROT_READ | PROT_EXEC, -1));
}

static int try_pkey_read(void)
{
	void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? 249 : answer(syscall(SYS_pkey_mprotect, p, 4096, PROT_READ, -1));
}

static int try_readv_self(void)
{
	char from = 'x', to = 0;
	struct iovec l = { &to, 1 }, r = { &from, 1 };

	return answer(process_vm_readv(getpid(), &l, 1, &r, 1, 0));
}

static int try_memfd(void)
{
	return answer(memfd_create("x", MFD_CLOEXEC));
}

static int try_traceme(void)
{
	return answer(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
}

static int try_device(void)
{
	/* the whiteout of overlayfs, which needs no privilege */
	return answer(mknodat(-1, "x", S_IFCHR | 0600, 0));
}

static int try_fifo(void)
{
	return answer(mknodat(-1, "x", S_IFIFO | 0600, 0));
}

static int try_listener(void)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog prog = { 1, &allow };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return answer(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
			      SECCOMP_FILTER_FLAG_NEW_LISTENER, &prog));
}

static int try_own_filter(void)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog prog = { 1, &allow };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return answer(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog));
}

#define KILLED	251
#define NO_GATE 252
#ifdef __x86_64__
static int try_i386(void)
{
	long r;

	/* getpid of the 32-bit table, through its own gate; a sanitizer must not handle its lack */
	signal(SIGSEGV, SIG_DFL);
	__asm__ volatile("int $0x80" : "=a"(r) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
	return r > 0 ? 0 : ENOSYS;
}

static int try_x32(void)
{
	return answer(syscall(0x40000000 + SYS_getpid));
}
#endif

/* ------------------------------------------------------------------ rows */

static const struct row {
	const char *name;
	int (*call)(void);
	enum profile_kind kind;
	int with;  /* answer under the filter */
	bool same; /* the filter changes nothing: an allowed call */
} rows[] = {
	{ "read", try_read, STANDARD, EBADF, true },
	{ "unshare user", try_unshare_user, STANDARD, EPERM, false },
	{ "unshare user", try_unshare_user, INIT, EPERM, false },
	{ "unshare files", try_unshare_files, STANDARD, 0, true },
	{ "clone user", try_clone_user, STANDARD, EPERM, false },
	{ "fork", try_fork, STRICT, 0, true },
	{ "clone3", try_clone3, STANDARD, ENOSYS, false },
	{ "fsopen", try_fsopen, STANDARD, ENOSYS, false },
	{ "setns", try_setns, STANDARD, EPERM, false },
	{ "fchmodat2", try_fchmodat2, STANDARD, ENOENT, true },
	{ "personality", try_personality, STANDARD, EPERM, false },
	{ "personality query", try_personality_query, STANDARD, 0, true },
	{ "keepcaps", try_keepcaps, STANDARD, EPERM, false },
	{ "keepcaps", try_keepcaps, INIT, 0, true },
	{ "dumpable", try_dumpable, STRICT, 0, true },
	{ "TIOCSETD", try_tiocsetd, STANDARD, EPERM, false },
	{ "TIOCSETD, 64 bits", try_tiocsetd_wide, STANDARD, EPERM, false },
	{ "TIOCGWINSZ", try_tiocgwinsz, STANDARD, 0, true },
	{ "socketpair inet", try_packet_pair, STANDARD, EAFNOSUPPORT, false },
	{ "netlink netfilter", try_nfnetlink, STANDARD, EAFNOSUPPORT, false },
	{ "netlink route", try_route, STRICT, 0, true },
	{ "tcp6", try_tcp, STRICT, 0, true },
	{ "send out of band", try_oob, STANDARD, EPERM, false },
	{ "send", try_send, STANDARD, 0, true },
	{ "MAP_GROWSDOWN", try_growsdown, STANDARD, EPERM, false },
	{ "writable and executable", try_wx, STANDARD, 0, true },
	{ "writable and executable", try_wx, STRICT, EPERM, false },
	{ "made executable", try_make_exec, STANDARD, 0, true },
	{ "made executable", try_make_exec, STRICT, EPERM, false },
	{ "made executable with a key", try_pkey_exec, STANDARD, 0, true },
	{ "made executable with a key", try_pkey_exec, STRICT, EPERM, false },
	{ "made readable with a key", try_pkey_read, STRICT, 0, true },
	{ "memfd", try_memfd, STRICT, 0, true },
	{ "memfd", try_memfd, SKILL, EACCES, false },
	{ "traceme", try_traceme, STANDARD, 0, true },
	{ "traceme", try_traceme, STRICT, EPERM, false },
	{ "own memory", try_readv_self, STANDARD, 0, true },
	{ "own memory", try_readv_self, STRICT, EPERM, false },
	{ "thread", try_thread, STANDARD, 0, true },
	{ "thread", try_thread, STRICT, 0, true },
	{ "thread", try_thread, NO_THREADS, EPERM, false },
	{ "fork", try_fork, NO_THREADS, 0, true },
	{ "vfork", try_vfork_exec, NO_THREADS, 0, true },
	{ "bind", try_bind, STANDARD, 0, true },
	{ "bind", try_bind, NO_LISTEN, EPERM, false },
	{ "listen", try_listen, STANDARD, 0, true },
	{ "listen", try_listen, NO_LISTEN, EPERM, false },
	{ "accept", try_accept, STANDARD, EAGAIN, true },
	{ "accept", try_accept, NO_LISTEN, EPERM, false },
	{ "accept4", try_accept4, STANDARD, EAGAIN, true },
	{ "accept4", try_accept4, NO_LISTEN, EPERM, false },
	{ "connect", try_connect, NO_LISTEN, ENOENT, true },
	{ "tcp6", try_tcp, NO_LISTEN, 0, true },
	{ "netlink sock_diag", try_sock_diag, STANDARD, EAFNOSUPPORT, false },
	{ "netlink sock_diag", try_sock_diag, NETLINK, 0, true },
	{ "netlink uevent", try_uevent, STANDARD, EAFNOSUPPORT, false },
	{ "netlink uevent", try_uevent, NETLINK, 0, true },
	{ "netlink generic", try_generic, NETLINK, EAFNOSUPPORT, false },
	{ "netlink netfilter", try_nfnetlink, NETLINK, EAFNOSUPPORT, false },
	{ "device", try_device, STANDARD, EPERM, false },
	{ "fifo", try_fifo, STANDARD, EBADF, true },
	{ "seccomp listener", try_listener, STANDARD, EPERM, false },
	{ "seccomp", try_own_filter, STANDARD, 0, true },
	{ "never assigned", try_never_assigned, STANDARD, ENOSYS, true },
#ifdef __x86_64__
	{ "i386", try_i386, STANDARD, KILLED, false },
	{ "x32", try_x32, STANDARD, ENOSYS, true },
#endif
};

/* The call's answer in a child; KILLED where the filter ended it, NO_GATE where this kernel has no way
 * in for such calls. */
static int call_in_child(const struct row *row, bool filtered)
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		if (filtered)
			install(&programs[row->kind]);
		_exit(row->call());
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
		return KILLED;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV)
		return NO_GATE;
	ck_assert_msg(WIFEXITED(status), "%s: signal %d", row->name, WTERMSIG(status));
	return WEXITSTATUS(status);
}

START_TEST(answers_under_the_filter)
{
	const struct row *row = &rows[_i];
	int with = call_in_child(row, true), without = call_in_child(row, false);
	/* What a kernel does not have, by its age or as it was built, the filter does not give. */
	bool lacking = without == NO_GATE || (row->same && without == ENOSYS);
	int expected = lacking ? without : row->with;

	ck_assert_msg(with == expected, "%s: %d with the filter, expected %d", row->name, with,
		      expected);
	if (row->same || lacking)
		ck_assert_msg(without == with, "%s: %d without the filter", row->name, without);
	else
		ck_assert_msg(without != with, "%s: %d without the filter too", row->name, without);
}
END_TEST

/* ------------------------------------------------------------------ stacking */

/* As in a sandbox: init's filter, a fork, the payload's; then the payload starts a program. */
START_TEST(a_program_under_both)
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		install(&programs[INIT]);
		pid = fork();
		if (pid == 0) {
			install(&programs[STANDARD]);
			execl("/bin/sh", "sh", "-c", "exit $(echo 7 | cat)", NULL);
			_exit(1);
		}
		if (waitpid(pid, &status, 0) != pid)
			_exit(2);
		_exit(WEXITSTATUS(status));
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(WEXITSTATUS(status), 7);
}
END_TEST

static int exec_status(bool filtered)
{
	struct sock_filter insn[16];
	struct sock_fprog prog = { (unsigned short)seccomp_noexec(insn, ARRAY_SIZE(insn)), insn };
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		if (filtered)
			install(&prog);
		execl("/bin/true", "true", NULL);
		_exit(errno);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WEXITSTATUS(status);
}

START_TEST(noexec_refuses_programs)
{
	ck_assert_int_eq(exec_status(true), EPERM);
	ck_assert_int_eq(exec_status(false), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("seccomp");
	TCase *tc = tcase_create("kernel");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_set_timeout(tc, 30);
	tcase_add_unchecked_fixture(tc, compile_all, free_all);
	tcase_add_checked_fixture(tc, prepare, NULL);
	tcase_add_loop_test(tc, answers_under_the_filter, 0, (int)ARRAY_SIZE(rows));
	tcase_add_test(tc, a_program_under_both);
	tcase_add_test(tc, noexec_refuses_programs);
	suite_add_tcase(s, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
