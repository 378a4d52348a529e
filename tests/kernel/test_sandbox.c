/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sandboxes by the library: how runs end, what they are given, and what is left of them.
 *
 * Small programs run in real sandboxes of the image "host". Limits are put into the compiled plan,
 * so that each test is about one of them. What limits and causes are not about is in test_life.c.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "nsbox/util.h"
#include "tests/support/box_kit.h"

#define MI UINT64_C(1048576)

static void run_ok(struct box_run *run, const char *script)
{
	box_run_sh(run, script);
	ck_assert_msg(run->ret == 0, "%s", run->err.msg);
}

/* ------------------------------------------------------------------ how it ended */

static const struct {
	const char *script;
	int status, signal;
	uint32_t cause;
} ends[] = {
	{ "exit 0", 0, 0, NSBOX_CAUSE_EXIT },
	{ "exit 3", 3, 0, NSBOX_CAUSE_EXIT },
	{ "exit 255", 255, 0, NSBOX_CAUSE_EXIT },
	/* What only looks like a signal is an exit. */
	{ "exit 137", 137, 0, NSBOX_CAUSE_EXIT },
	{ "kill -KILL $$", 137, SIGKILL, NSBOX_CAUSE_SIGNAL },
	{ "kill -SEGV $$", 139, SIGSEGV, NSBOX_CAUSE_SIGNAL },
	{ "kill -TERM $$", 143, SIGTERM, NSBOX_CAUSE_SIGNAL },
	{ "kill -HUP $$", 129, SIGHUP, NSBOX_CAUSE_SIGNAL },
	/* A child's death is the shell's to tell. */
	{ "sh -c 'kill -KILL $$'", 137, 0, NSBOX_CAUSE_EXIT },
};

START_TEST(end)
{
	struct box_run run = { 0 };

	run_ok(&run, ends[_i].script);
	ck_assert_int_eq(run.res.exit_status, ends[_i].status);
	ck_assert_int_eq(run.res.signal, ends[_i].signal);
	ck_assert_str_eq(nsbox_cause_name((int)run.res.cause),
			 nsbox_cause_name((int)ends[_i].cause));
	ck_assert_int_eq(run.res.error.code, 0);
}
END_TEST

static const struct {
	const char *program;
	int status, errnum;
} starts[] = {
	{ "/usr/bin/true", 0, 0 },
	{ "true", 0, 0 },
	{ "nsbox-no-such-program", 127, ENOENT },
	{ "/usr/bin/nsbox-no-such-program", 127, ENOENT },
	{ "/nsbox/no/such/dir", 127, ENOENT },
	{ "", 127, ENOENT },
	{ "/tmp", 126, EACCES },
	{ "/etc/passwd", 126, EACCES },
	{ "/etc/passwd/x", 126, ENOTDIR },
};

START_TEST(start)
{
	const char *const argv[] = { starts[_i].program, NULL };
	struct box_run run = { 0 };

	box_run_argv(&run, argv);
	ck_assert_msg(run.ret == 0, "%s", run.err.msg);
	ck_assert_int_eq(run.res.exit_status, starts[_i].status);
	ck_assert_int_eq(run.res.error.errnum, starts[_i].errnum);
	ck_assert_uint_eq(run.res.cause, starts[_i].errnum ? NSBOX_CAUSE_EXEC : NSBOX_CAUSE_EXIT);
	if (starts[_i].errnum) {
		ck_assert_int_eq(run.res.error.code, NSBOX_E_EXEC);
		ck_assert_int_eq(run.res.error.stage, NSBOX_STAGE_EXECVE);
	}
}
END_TEST

START_TEST(arguments)
{
	/* Empty, with spaces, with bytes that are no text. */
	const char *const argv[] = { "/usr/bin/printf", "<%s>", "", "a b", "\xff\n", "-e", NULL };
	struct box_run run = { 0 };

	box_run_argv(&run, argv);
	ck_assert_int_eq(run.res.exit_status, 0);
	ck_assert_str_eq(run.out, "<><a b><\xff\n><-e>");
}
END_TEST

/* ------------------------------------------------------------------ what it is given */

static int count_lines(const char *text, const char *head)
{
	int n = 0;

	for (const char *p = text; p; p = strchr(p, '\n'), p += p != NULL)
		n += !strncmp(p, head, strlen(head));
	return n;
}

START_TEST(environment)
{
	static const char *const env[] = { "NSBOX_A=1", "HOME=/nowhere", "NSBOX_A=2", NULL };
	struct box_run run = { 0 };

	ck_assert_int_eq(setenv("NSBOX_TEST_SECRET", "of the owner", 1), 0);
	run_ok(&run, "exec env");
	ck_assert_int_eq(count_lines(run.out, "HOME=/home/"), 1);
	ck_assert_int_eq(count_lines(run.out, "PATH="), 1);
	ck_assert_int_eq(count_lines(run.out, "NSBOX_"), 0);
	run.env = env;
	run_ok(&run, "exec env");
	ck_assert_int_eq(count_lines(run.out, "HOME="), 1);
	ck_assert_int_eq(count_lines(run.out, "HOME=/nowhere"), 1);
	ck_assert_int_eq(count_lines(run.out, "PATH="), 1);
	ck_assert_int_eq(count_lines(run.out, "NSBOX_"), 1);
	ck_assert_int_eq(count_lines(run.out, "NSBOX_A=2"), 1);
}
END_TEST

START_TEST(search_uses_the_path_given)
{
	static const char *const env[] = { "PATH=/nowhere", NULL };
	const char *const argv[] = { "true", NULL };
	struct box_run run = { .env = env };

	box_run_argv(&run, argv);
	ck_assert_int_eq(run.res.exit_status, 127);
	ck_assert_ptr_nonnull(strstr(run.res.error.msg, "PATH=/nowhere"));
}
END_TEST

START_TEST(many_variables)
{
	static const char *env[4097];
	static char text[4096][16];
	struct box_run run = { .env = env };

	for (int i = 0; i < 4096; i++) {
		nsbox_format(text[i], sizeof(text[i]), "V%d=%d", i, i);
		env[i] = text[i];
	}
	run_ok(&run, "echo $V0 $V4095; env | grep -c ^V");
	ck_assert_str_eq(run.out, "0 4095\n4096\n");
}
END_TEST

static const struct {
	const char *cwd, *out;
	int errnum;
} directories[] = {
	{ NULL, "/workspace\n", 0 },	 { "/", "/\n", 0 },
	{ "/usr/bin", "/usr/bin\n", 0 }, { "/nowhere", "", ENOENT },
	{ "/etc/passwd", "", ENOTDIR },	 { "/proc/1/root", "", EACCES },
};

START_TEST(working_directory)
{
	struct box_run run = { .cwd = directories[_i].cwd };

	run_ok(&run, "pwd");
	ck_assert_str_eq(run.out, directories[_i].out);
	if (!directories[_i].errnum) {
		ck_assert_int_eq(run.res.exit_status, 0);
		return;
	}
	ck_assert_uint_eq(run.res.cause, NSBOX_CAUSE_EXEC);
	ck_assert_int_eq(run.res.exit_status, 126);
	ck_assert_int_eq(run.res.error.stage, NSBOX_STAGE_CWD);
	ck_assert_ptr_nonnull(strstr(run.res.error.msg, directories[_i].cwd));
	/* /proc shows no process of another id: ENOENT in its place. */
	ck_assert(run.res.error.errnum == directories[_i].errnum ||
		  (directories[_i].errnum == EACCES && run.res.error.errnum == ENOENT));
}
END_TEST

static const char list_descriptors[] = "i=0; while [ $i -lt 300 ]; do [ -e /proc/self/fd/$i ] && "
				       "echo -n \"$i \"; i=$((i+1)); done";

START_TEST(descriptors)
{
	struct box_run run = { 0 };
	int high, low = open("/etc/hosts", O_RDONLY); /* inheritable, on purpose */

	high = fcntl(low, F_DUPFD, 200);
	ck_assert_int_ge(high, 200);
	run_ok(&run, list_descriptors);
	ck_assert_str_eq(run.out, "0 1 2 ");
	/* The twin: a program that just inherits sees them. */
	{
		char command[400], text[256] = "";
		FILE *f;

		nsbox_format(command, sizeof(command), "%s", list_descriptors);
		f = popen(command, "r");
		ck_assert_ptr_nonnull(fgets(text, sizeof(text), f));
		pclose(f);
		ck_assert_ptr_nonnull(strstr(text, "200 "));
	}
	close(low);
	close(high);
}
END_TEST

START_TEST(request_and_result)
{
	auto_close int request = make_memfd("request", "question", 8, false);
	auto_close int result = memfd_create("result", MFD_CLOEXEC);
	struct box_run run = { .request = request, .result_fd = result };
	char text[64];

	run_ok(&run, list_descriptors);
	ck_assert_str_eq(run.out, "0 1 2 3 4 ");
	run_ok(&run, "read -r x <&3; echo \"$x answered\" >&4");
	box_slurp(result, text, sizeof(text));
	ck_assert_str_eq(text, "question answered\n");
	ck_assert_str_eq(run.out, "");
	/* One without the other keeps its place. */
	run = (struct box_run){ .result_fd = result };
	run_ok(&run, list_descriptors);
	ck_assert_str_eq(run.out, "0 1 2 4 ");
}
END_TEST

START_TEST(no_stdio)
{
	struct box_run run = { 0 };

	/* Standard input is /dev/null of the sandbox. */
	run_ok(&run, "cat; echo $?; readlink /proc/self/fd/0");
	ck_assert_str_eq(run.out, "0\n/dev/null\n");
}
END_TEST

START_TEST(inherited_state)
{
	struct box_run run = { 0 };
	sigset_t set;
	const unsigned long ignore[16] = { (unsigned long)SIG_IGN };

	signal(SIGINT, SIG_IGN);
	signal(SIGCHLD, SIG_IGN);
	/* One of the two that libc lets nobody touch. */
	ck_assert_int_eq(syscall(SYS_rt_sigaction, 33, ignore, NULL, 8), 0);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	umask(0777);
	run_ok(&run, "grep -E '^Sig(Blk|Ign)' /proc/self/status; umask");
	/* Python-like ignoring of SIGPIPE is nobody's here: all default, nothing blocked. */
	ck_assert_str_eq(run.out, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n0022\n");
}
END_TEST

/* ------------------------------------------------------------------ limits */

static void wall_short(struct plan_fixed *f)
{
	f->limits.wall_ms = 300 * box_slow();
	f->limits.grace_ms = 200 * box_slow();
}

START_TEST(wall_time)
{
	struct nsbox_plan *plan = box_plan(NULL, wall_short);
	struct box_run run = { .plan = plan };

	run_ok(&run, "sleep 0.01; echo in time");
	ck_assert_uint_eq(run.res.cause, NSBOX_CAUSE_EXIT);
	ck_assert_str_eq(run.out, "in time\n");
	run_ok(&run, "echo begun; exec sleep 30");
	ck_assert_uint_eq(run.res.cause, NSBOX_CAUSE_WALL_TIME);
	ck_assert_int_eq(run.res.signal, SIGTERM);
	ck_assert_str_eq(run.out, "begun\n");
	ck_assert_uint_ge(run.res.wall_us, UINT64_C(300000) * box_slow());
	ck_assert_uint_lt(run.res.wall_us, UINT64_C(3000000) * box_slow());
	/* Who does not listen is killed after the grace. */
	run_ok(&run, "trap '' TERM; while :; do sleep 1; done");
	ck_assert_uint_eq(run.res.cause, NSBOX_CAUSE_WALL_TIME);
	ck_assert_int_eq(run.res.signal, SIGKILL);
	ck_assert_uint_ge(run.res.wall_us, UINT64_C(500000) * box_slow());
	ck_assert_uint_lt(run.res.wall_us, UINT64_C(5000000) * box_slow());
	/* A request may shorten the limit, never extend it. */
	run.wall_ms = 60000;
	run_ok(&run, "exec sleep 30");
	ck_assert_uint_eq(run.res.cause, NSBOX_CAUSE_WALL_TIME);
	ck_assert_uint_lt(run.res.wall_us, UINT64_C(3000000) * box_slow());
	nsbox_plan_close(plan);
	run = (struct box_run){ .wall_ms = 200 * box_slow() };
	run_ok(&run, "exec sleep 30");
	ck_assert_uint_eq(run.res.cause, NSBOX_CAUSE_WALL_TIME);
	ck_assert_uint_lt(run.res.wall_us, UINT64_C(3000000) * box_slow());
}
END_TEST

static void cpu_short(struct plan_fixed *f)
{
	f->limits.cpu_ms = 1000;
	f->limits.wall_ms = 60000;
}

START_TEST(cpu_time)
{
	struct nsbox_plan *plan = box_plan(NULL, cpu_short);
	struct box_run run = { .plan = plan };

	run_ok(&run, "sleep 1.3"); /* time that passes is not time that is used */
	ck_assert_uint_eq(run.res.cause, NSBOX_CAUSE_EXIT);
	run_ok(&run, "while :; do :; done");
	ck_assert_uint_eq(run.res.cause, NSBOX_CAUSE_CPU_TIME);
	/* The limit goes by the kernel's ticks, which on a busy host run ahead of the time used. */
	ck_assert_uint_ge(run.res.cpu_us, 400000);
	run_ok(&run, "trap '' XCPU; while :; do :; done");
	ck_assert_uint_eq(run.res.cause, NSBOX_CAUSE_CPU_TIME);
	ck_assert_int_eq(run.res.signal, SIGKILL);
	nsbox_plan_close(plan);
}
END_TEST

static void memory_small(struct plan_fixed *f)
{
	f->limits.memory = 64 * MI;
	f->limits.wall_ms = 60000;
}

/* 0: control groups where there are, 1: the watchdog. */
static uint32_t layers_by(int way)
{
	return way ? box_layers & ~NSBOX_LAYER_BIT(NSBOX_LAYER_CGROUP) : box_layers;
}

START_TEST(memory)
{
	struct nsbox_plan *plan = box_plan(NULL, memory_small);
	struct box_run run = { .plan = plan, .layers = layers_by(_i) };
	bool by_cgroup = run.layers & NSBOX_LAYER_BIT(NSBOX_LAYER_CGROUP);

	run_ok(&run, "head -c 20000000 /dev/zero | tail -n 1 | wc -c");
	ck_assert_uint_eq(run.res.cause, NSBOX_CAUSE_EXIT);
	ck_assert_str_eq(run.out, "20000000\n");
	run_ok(&run, "exec tail -n 1 /dev/zero"); /* keeps all of an endless line */
	ck_assert_str_eq(nsbox_cause_name((int)run.res.cause), "memory");
	ck_assert_int_eq(run.res.signal, SIGKILL);
	ck_assert_uint_ge(run.res.oom_kills, 1);
	ck_assert_uint_eq(run.res.memory_limit, 64 * MI);
	ck_assert_uint_ge(run.res.memory_peak, 40 * MI);
	ck_assert_int_eq(run.res.cgroup_kind == NSBOX_CGROUP_NONE, !by_cgroup);
	ck_assert_int_eq((run.res.enforced & NSBOX_LAYER_BIT(NSBOX_LAYER_CGROUP)) != 0, by_cgroup);
	ck_assert_int_eq((run.res.not_enforced & NSBOX_LAYER_BIT(NSBOX_LAYER_CGROUP)) != 0,
			 !by_cgroup);
	nsbox_plan_close(plan);
}
END_TEST

/* The memory of a child that a thread made, and pages that two processes share. */
static const char thread_child[] = "import os, threading, time\n"
				   "def f():\n"
				   "    if os.fork() == 0:\n"
				   "        a = bytearray(os.urandom(1)) * 200_000_000\n"
				   "        time.sleep(5)\n"
				   "        os._exit(0)\n"
				   "    time.sleep(5)\n"
				   "threading.Thread(target=f).start()\n";
static const char shared_pages[] = "import os, time\n"
				   "a = bytearray(b'x') * 30_000_000\n"
				   "pids = []\n"
				   "for i in range(4):\n"
				   "    p = os.fork()\n"
				   "    if p == 0:\n"
				   "        time.sleep(0.5); os._exit(0)\n"
				   "    pids.append(p)\n"
				   "for p in pids: os.waitpid(p, 0)\n"
				   "print('shared')\n";

START_TEST(memory_of_families)
{
	struct nsbox_plan *plan = box_plan(NULL, memory_small);
	struct box_run run = { .plan = plan, .layers = layers_by(_i) };
	const char *const argv[] = { "/usr/bin/python3", "-c", thread_child, NULL };
	const char *const argv2[] = { "/usr/bin/python3", "-c", shared_pages, NULL };

	box_run_argv(&run, argv);
	ck_assert_uint_ge(run.res.oom_kills, 1);
	box_run_argv(&run, argv2);
	ck_assert_str_eq(run.out, "shared\n");
	ck_assert_uint_eq(run.res.oom_kills, 0);
	nsbox_plan_close(plan);
}

/* Pages that no process has mapped: of a memfd, and of files on the sandbox's tmpfs mounts. */
static const char unmapped[] = "import os, sys, time\n"
			       "where, mb = sys.argv[1], int(sys.argv[2])\n"
			       "fd = os.memfd_create('m') if where == 'memfd' else os.open(where, "
			       "os.O_CREAT | os.O_RDWR)\n"
			       "for i in range(mb): os.write(fd, b'x' * 1000000)\n"
			       "time.sleep(1.5)\n"
			       "print('kept')\n";
static const char *const unmapped_in[] = { "memfd", "/dev/shm/f", "/workspace/f" };

static void memory_roomy_disk(struct plan_fixed *f)
{
	memory_small(f);
	f->limits.disk = 256 * MI; /* so that it is memory, and not disk, that ends it */
}

START_TEST(memory_not_mapped)
{
	struct nsbox_plan *plan = box_plan(NULL, memory_roomy_disk);
	struct box_run run = { .plan = plan, .layers = layers_by(_i % 2) };
	const char *const much[] = { "/usr/bin/python3",  "-c",	 unmapped,
				     unmapped_in[_i / 2], "100", NULL };
	const char *const little[] = { "/usr/bin/python3",  "-c", unmapped,
				       unmapped_in[_i / 2], "20", NULL };

	box_run_argv(&run, much);
	/* /dev/shm is sized by the memory limit of the plan as it was compiled: larger than 64 MiB. */
	ck_assert_msg(run.res.oom_kills >= 1, "%s: %s", unmapped_in[_i / 2], run.out);
	ck_assert_str_eq(nsbox_cause_name((int)run.res.cause), "memory");
	box_run_argv(&run, little);
	ck_assert_str_eq(run.out, "kept\n");
	ck_assert_uint_eq(run.res.oom_kills, 0);
	nsbox_plan_close(plan);
}
END_TEST

static void few_processes(struct plan_fixed *f)
{
	f->limits.pids = 8;
}

static const char many_children[] =
	"for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 3 & done 2>/dev/null; echo all";

START_TEST(processes)
{
	struct nsbox_plan *plan = box_plan(NULL, few_processes);
	struct box_run run = { .plan = plan, .layers = layers_by(_i) };

	run_ok(&run, many_children);
	ck_assert_str_eq(run.out, "");
	ck_assert_int_ne(run.res.exit_status, 0);
	if (run.layers & NSBOX_LAYER_BIT(NSBOX_LAYER_CGROUP))
		ck_assert_uint_ge(run.res.pids_limit_hits, 1);
	nsbox_plan_close(plan);
	run.plan = NULL;
	run_ok(&run, many_children);
	ck_assert_str_eq(run.out, "all\n");
	ck_assert_uint_eq(run.res.pids_limit_hits, 0);
}
END_TEST

static void small_disk(struct plan_fixed *f)
{
	f->limits.disk = 4 * MI;
	f->limits.file_size = 2 * MI;
}

START_TEST(disk_and_file_size)
{
	struct nsbox_plan *plan = box_plan(NULL, small_disk);
	struct box_run run = { .plan = plan };

	run_ok(&run, "head -c 1000000 /dev/zero >a && wc -c <a");
	ck_assert_str_eq(run.out, "1000000\n");
	run_ok(&run, "trap '' XFSZ; head -c 3000000 /dev/zero >a; wc -c <a");
	ck_assert_ptr_nonnull(strstr(run.out, "File too large"));
	ck_assert_ptr_nonnull(strstr(run.out, "\n2097152\n"));
	run_ok(&run, "for i in 1 2 3 4; do head -c 1500000 /dev/zero >$i; done");
	ck_assert_ptr_nonnull(strstr(run.out, "No space left on device"));
	nsbox_plan_close(plan);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("sandbox");
	TCase *tc = tcase_create("runs");
	int status;

	if (!box_prepare(&status))
		return status;
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, end, 0, ARRAY_SIZE(ends));
	tcase_add_loop_test(tc, start, 0, ARRAY_SIZE(starts));
	tcase_add_test(tc, arguments);
	tcase_add_test(tc, environment);
	tcase_add_test(tc, search_uses_the_path_given);
	tcase_add_test(tc, many_variables);
	tcase_add_loop_test(tc, working_directory, 0, ARRAY_SIZE(directories));
	tcase_add_test(tc, descriptors);
	tcase_add_test(tc, request_and_result);
	tcase_add_test(tc, no_stdio);
	tcase_add_test(tc, inherited_state);
	tcase_add_test(tc, wall_time);
	tcase_add_test(tc, cpu_time);
	tcase_add_loop_test(tc, memory, 0, 2);
	tcase_add_loop_test(tc, memory_of_families, 0, 2);
	tcase_add_loop_test(tc, memory_not_mapped, 0, 6);
	tcase_add_loop_test(tc, processes, 0, 2);
	tcase_add_test(tc, disk_and_file_size);
	suite_add_tcase(s, tc);
	return box_finish(s);
}
