/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the compile worker can no longer do once it has confined itself. Each act is tried in a
 * child before and after: the first try has to work.
 */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "daemon/compile/confine.c" /* NOLINT(bugprone-suspicious-include): not in a library */

static long act_open(void)
{
	return open("/etc/passwd", O_RDONLY | O_CLOEXEC);
}

static long act_create(void)
{
	return open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

static long act_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static long act_fork(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	return pid;
}

static long act_exec(void)
{
	/* With no program at all: works if the call gets as far as looking for it. */
	static char *const none[] = { NULL };

	return execve("", none, none) < 0 && errno == ENOENT ? 0 : -1;
}

static long act_signal(void)
{
	return kill(getppid(), 0);
}

static long act_inherited(void)
{
	return fcntl(60, F_GETFD);
}

static long act_memory(void)
{
	void *p = mmap(NULL, (size_t)2 << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? -1 : munmap(p, (size_t)2 << 30);
}

static const struct {
	const char *name;
	long (*act)(void);
	int errnum; /* afterwards */
} acts[] = {
	{ "open a file", act_open, ENOSYS },
	{ "make a file", act_create, ENOSYS },
	{ "make a socket", act_socket, ENOSYS },
	{ "make a process", act_fork, ENOSYS },
	{ "start a program", act_exec, ENOSYS },
	{ "signal another process", act_signal, ENOSYS },
	{ "use an inherited descriptor", act_inherited, EBADF },
#ifndef __SANITIZE_ADDRESS__
	{ "take two gigabytes", act_memory, ENOMEM },
#endif
};

/* Exit status of a child that tries: 0 refused as it should be, else what went otherwise. */
static int try(int i)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		int sv[2];

		if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv) < 0 || dup2(sv[0], 60) < 0)
			_exit(1);
		if (acts[i].act() < 0)
			_exit(2); /* the twin: it works before */
		if (confine(sv[1], NULL) < 0)
			_exit(3);
		errno = 0;
		if (acts[i].act() >= 0)
			_exit(4);
		_exit(errno == acts[i].errnum ? 0 : 5);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

START_TEST(test_refused)
{
	int r = try(_i);

	ck_assert_msg(r == 0, "%s: step %d", acts[_i].name, r);
}
END_TEST

START_TEST(test_still_works)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		char buf[4] = "";
		int sv[2], fd;
		void *p;

		if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv) < 0 || confine(sv[1], NULL) < 0)
			_exit(1);
		fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		if (fd < 0 || write(fd, "abc", 3) != 3 || fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) < 0)
			_exit(2);
		if (pread(fd, buf, 3, 0) != 3 || memcmp(buf, "abc", 3) != 0)
			_exit(3);
		p = malloc(8 << 20);
		if (!p)
			_exit(4);
		memset(p, 1, 8 << 20);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("confine");
	TCase *tc = tcase_create("confine");
	SRunner *sr = srunner_create(s);
	int failed;

	suite_add_tcase(s, tc);
	tcase_add_loop_test(tc, test_refused, 0, ARRAY_SIZE(acts));
	tcase_add_test(tc, test_still_works);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
