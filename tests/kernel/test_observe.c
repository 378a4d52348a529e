/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Refused system calls are told (nsbox/observe.h), and being told of changes nothing: each program
 * here runs observed and not, and sees the same. The twin of a refusal that is told is a call that
 * the filter allows, which is not.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "nsbox/observe.h"
#include "nsbox/util.h"
#include "tests/support/box_kit.h"

#define PRELUDE                                                                                    \
	"python3 -c '\n"                                                                           \
	"import ctypes, os, sys, threading, time\n"                                                \
	"libc = ctypes.CDLL(None, use_errno=True)\n"                                               \
	"def call(nr, *a):\n"                                                                      \
	"    ctypes.set_errno(0)\n"                                                                \
	"    libc.syscall(nr, *[ctypes.c_long(x) for x in a])\n"                                   \
	"    return ctypes.get_errno()\n"
#define END "'"

static char script[4096];

static const struct nsbox_denied_call *denied(const struct nsbox_result *r, long nr)
{
	for (uint32_t i = 0; i < r->denied_calls; i++)
		if (r->denied[i].nr == (uint32_t)nr)
			return &r->denied[i];
	return NULL;
}

static void expect_exit(const struct box_run *run)
{
	ck_assert_msg(run->ret == 0 && run->res.cause == NSBOX_CAUSE_EXIT, "%s %s", run->err.msg,
		      run->res.error.msg);
	ck_assert_msg(run->res.exit_status == 0, "%s", run->out);
}

/* ------------------------------------------------------------------ the same errno */

#define CALL(name, ...)                                                                            \
	{                                                                                          \
		SYS_##name, #__VA_ARGS__                                                           \
	}
static const struct {
	long nr;
	const char *args;
} calls[] = {
	CALL(mount, 0, 0, 0, 0, 0),
	CALL(bpf, 0, 0, 0),
	CALL(unshare, 0x10000000),
	CALL(socket, 17, 3, 0),	 /* AF_PACKET */
	CALL(socket, 2, 3, 1),	 /* raw */
	CALL(socket, 2, 1, 132), /* SCTP */
	CALL(seccomp, 1, 8, 0),	 /* a listener */
	CALL(clone3, 0, 0),
	CALL(io_uring_setup, 0, 0),
	CALL(memfd_create, 0, 8),
	CALL(getpid, 0),
	CALL(openat, -100, 0, 0), /* EFAULT, of the kernel */
	{ 999, "0" },
};

START_TEST(same_errno)
{
	struct box_run plain = { 0 }, seen = { .observe = true };
	int len = snprintf(script, sizeof(script), PRELUDE);

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		len += snprintf(script + len, sizeof(script) - (size_t)len,
				"print(call(%ld, %s))\n", calls[i].nr, calls[i].args);
	snprintf(script + len, sizeof(script) - (size_t)len, END);
	box_run_sh(&plain, script);
	box_run_sh(&seen, script);
	expect_exit(&plain);
	expect_exit(&seen);
	ck_assert_str_eq(plain.out, seen.out);
	ck_assert_uint_eq(plain.res.observed, 0);
	ck_assert_uint_eq(plain.res.denied_calls, 0);
	ck_assert_uint_eq(seen.res.observed, 1);
	ck_assert_uint_eq(seen.res.witness_held, plain.res.witness_held);
}
END_TEST

START_TEST(counts)
{
	struct box_run run = { .observe = true };
	const struct nsbox_denied_call *d;

	snprintf(script, sizeof(script),
		 PRELUDE "for i in range(7): call(%d, 0, 0, 0, 0, 0)\n"
			 "call(%d, 17, 3, 0); call(%d, 2, 1, 0); call(%d)\n" END,
		 SYS_mount, SYS_socket, SYS_socket, SYS_getpid);
	box_run_sh(&run, script);
	expect_exit(&run);
	d = denied(&run.res, SYS_mount); /* the witness's own is not among them */
	ck_assert(d && d->times == 7 && d->errnum == EPERM);
	d = denied(&run.res, SYS_socket);
	ck_assert(d && d->times == 1 && d->errnum == EAFNOSUPPORT && d->arg[0] == AF_PACKET);
	ck_assert_ptr_null(denied(&run.res, SYS_getpid));
	ck_assert_uint_eq(run.res.denied_untold, 0);
}
END_TEST

START_TEST(nothing_denied)
{
	struct box_run run = { .observe = true };

	box_run_sh(&run, "true");
	expect_exit(&run);
	ck_assert_uint_eq(run.res.observed, 1);
	ck_assert_uint_eq(run.res.denied_calls, 0);
}
END_TEST

/* A program may send the mark; what it did is told all the same. */
START_TEST(mark_hides_nothing)
{
	struct box_run run = { .observe = true };
	const struct nsbox_denied_call *d;

	snprintf(script, sizeof(script),
		 PRELUDE "call(%d, 0, 0, 0)\ncall(%d, %llu, 0, 0, 0, 0)\n" END, SYS_bpf, SYS_mount,
		 (unsigned long long)OBSERVE_MARK);
	box_run_sh(&run, script);
	expect_exit(&run);
	ck_assert_ptr_nonnull(denied(&run.res, SYS_bpf));
	d = denied(&run.res, SYS_mount);
	ck_assert(d && d->times == 1);
}
END_TEST

/* ------------------------------------------------------------------ the observer */

static pid_t observer_of(pid_t owner)
{
	pid_t child[16];
	int n = box_children(owner, child, ARRAY_SIZE(child));

	for (int i = 0; i < n; i++) {
		char path[48], name[32];

		nsbox_format(path, sizeof(path), "/proc/%d/comm", (int)child[i]);
		if (read_small_file(AT_FDCWD, path, name, sizeof(name)) >= 0 &&
		    !strncmp(name, "nsbox-observer", 14))
			return child[i];
	}
	return 0;
}

/* Started, and waiting on `in` for a line. */
struct life {
	struct nsbox_plan *plan;
	struct nsbox_sandbox *sb;
	int to[2], out;
};

static void live(struct life *l, bool keep_rest)
{
	const struct nsbox_sandbox_options opt = { .layers = box_layers,
						   .files_fd = -1,
						   .observe = true };
	const char *const argv[] = { "sh", "-c", script, NULL };
	const struct nsbox_exec ex = { .argv = argv, .keep_rest = keep_rest };
	struct nsbox_error err = { 0 };

	l->plan = box_plan(NULL, NULL);
	l->out = memfd_create("out", MFD_CLOEXEC);
	ck_assert_int_eq(pipe(l->to), 0);
	ck_assert_msg(nsbox_sandbox_new(l->plan, box_root, &opt, &l->sb, &err) == 0, "%s", err.msg);
	ck_assert_msg(nsbox_sandbox_exec(l->sb, &ex,
					 &(struct nsbox_io){ l->to[0], l->out, l->out, -1, -1 },
					 NULL, &err) == 0,
		      "%s", err.msg);
	box_expect(l->sb, NSBOX_EVENT_READY);
	box_expect(l->sb, NSBOX_EVENT_STARTED);
}

static void over(struct life *l)
{
	nsbox_sandbox_free(l->sb);
	nsbox_plan_close(l->plan);
	close(l->to[0]);
	close(l->to[1]);
	close(l->out);
}

START_TEST(observer_killed)
{
	struct life l;
	struct nsbox_event ev;
	char out[256];
	pid_t pid;

	snprintf(script, sizeof(script),
		 PRELUDE
		 "input()\n"
		 "print(call(%d, 0, 0, 0, 0, 0), call(%d, 1, 8, 0), call(%d, 0x10000000))\n" END,
		 SYS_mount, SYS_seccomp, SYS_unshare);
	live(&l, false);
	pid = observer_of(getpid());
	ck_assert_int_gt(pid, 0);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert(box_wait_gone(pid, 10000));
	ck_assert_int_eq(write(l.to[1], "\n", 1), 1);
	ev = box_expect(l.sb, NSBOX_EVENT_EXITED);
	ck_assert_int_eq(ev.result.exit_status, 0);
	box_slurp(l.out, out, sizeof(out));
	/* ENOSYS of the kernel; and still nobody inside can take the observer's place. */
	ck_assert_str_eq(out, "38 1 38\n");
	over(&l);
}
END_TEST

/* It is not the payload's to see, gives way to all others, and ends with what it observed. */
START_TEST(observer_outside)
{
	struct life l;
	pid_t pid;

	snprintf(script, sizeof(script), "read x; ls /proc; cat /proc/*/comm");
	live(&l, true);
	pid = observer_of(getpid());
	ck_assert_int_gt(pid, 0);
	ck_assert_int_ge(getpriority(PRIO_PROCESS, (id_t)pid), 10);
	ck_assert_int_eq(write(l.to[1], "\n", 1), 1);
	box_expect(l.sb, NSBOX_EVENT_EXITED);
	/* until it has ended and was waited for */
	while (observer_of(getpid())) {
		struct nsbox_event ev;

		nsbox_sandbox_next(l.sb, 100, &ev, NULL);
		ck_assert_uint_eq(ev.kind, NSBOX_EVENT_NONE);
	}
	ck_assert(box_gone(pid));
	over(&l);
}
END_TEST

/* ------------------------------------------------------------------ a flood */

static uint64_t resident(pid_t pid)
{
	char path[48], text[128], *end;

	nsbox_format(path, sizeof(path), "/proc/%d/statm", (int)pid);
	if (read_small_file(AT_FDCWD, path, text, sizeof(text)) < 0)
		return 0;
	strtoull(text, &end, 10);
	return strtoull(end, NULL, 10);
}

#define FLOOD (OBSERVE_FLOOD + 2000)

/* Counts are exact, the table is bounded, the observer's memory stays, and each call beyond a bound
 * costs who makes it. */
START_TEST(flood)
{
	struct nsbox_event ev = { 0 };
	struct life l;
	uint64_t before, after = 0, began;
	pid_t pid;

	snprintf(script, sizeof(script),
		 PRELUDE "input()\n"
			 "for i in range(%d): call(%d, 20 + i %% 100, 3, 0)\n"
			 "print(1, flush=True); input()\n" END,
		 FLOOD, SYS_socket);
	live(&l, false);
	pid = observer_of(getpid());
	ck_assert_int_eq(write(l.to[1], "\n", 1), 1);
	began = monotonic_us();
	before = resident(pid);
	for (char out[8] = ""; !*out; after = resident(pid)) {
		nsbox_sandbox_next(l.sb, 20, &ev, NULL);
		ck_assert_uint_ne(ev.kind, NSBOX_EVENT_EXITED);
		box_slurp(l.out, out, sizeof(out));
	}
	ck_assert_uint_ge(monotonic_us() - began, 2000 * (uint64_t)(OBSERVE_PAUSE_NS / 1000));
	ck_assert_msg(after < before + 256, "%llu pages, then %llu", (unsigned long long)before,
		      (unsigned long long)after);
	ck_assert_int_eq(write(l.to[1], "\n", 1), 1);
	ev = box_expect(l.sb, NSBOX_EVENT_EXITED);
	ck_assert_uint_eq(ev.result.denied_calls, NSBOX_DENIED_MAX);
	for (uint32_t i = 0; i < NSBOX_DENIED_MAX; i++)
		ev.result.denied_untold += ev.result.denied[i].times;
	ck_assert_uint_eq(ev.result.denied_untold, FLOOD);
	over(&l);
}
END_TEST

/* Threads that are refused at once, and signals meanwhile: no other errno comes of it, but EINTR
 * where a signal came before the observer had the call, as from any call that waits. */
START_TEST(threads_and_signals)
{
	struct box_run run = { .observe = true };
	const struct nsbox_denied_call *d;

	snprintf(script, sizeof(script),
		 PRELUDE "import signal\n"
			 "signal.signal(signal.SIGALRM, lambda *a: None)\n"
			 "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\n"
			 "seen = set()\n"
			 "def work():\n"
			 "    for i in range(200): seen.add(call(%d, 0, 0, 0, 0, 0))\n"
			 "all = [threading.Thread(target=work) for _ in range(8)]\n"
			 "[t.start() for t in all]; [t.join() for t in all]\n"
			 "signal.setitimer(signal.ITIMER_REAL, 0, 0)\n"
			 "print(seen - {4})\n" END,
		 SYS_mount);
	box_run_sh(&run, script);
	expect_exit(&run);
	ck_assert_str_eq(run.out, "{1}\n");
	d = denied(&run.res, SYS_mount);
	ck_assert(d && d->times > 800); /* but those that a signal was before */
}
END_TEST

int main(void)
{
	Suite *s = suite_create("observe");
	TCase *tc = tcase_create("observe");
	int status;

	if (!box_prepare(&status))
		return status;
	tcase_set_timeout(tc, 120 * (int)box_slow());
	tcase_add_test(tc, same_errno);
	tcase_add_test(tc, counts);
	tcase_add_test(tc, nothing_denied);
	tcase_add_test(tc, mark_hides_nothing);
	tcase_add_test(tc, observer_killed);
	tcase_add_test(tc, observer_outside);
	tcase_add_test(tc, flood);
	tcase_add_test(tc, threads_and_signals);
	suite_add_tcase(s, tc);
	return box_finish(s);
}
