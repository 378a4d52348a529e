/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several programs in one sandbox, in sequence and at once: what they share, ending one of them
 * with all it has started, causes that are its own, and what they can do to each other and to init.
 *
 * Each test runs with the control groups that the host has and without any: what is stopped is told
 * apart by a leaf there and by a leader here (nsbox/stop.c).
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include <nsbox/files.h>

#include "nsbox/sandbox_private.h"
#include "nsbox/tree.h"
#include "nsbox/util.h"
#include "tests/support/box_kit.h"

#define MI UINT64_C(1048576)

static struct nsbox_plan *plan;
static bool grouped; /* by control groups, else by leaders */

/* ------------------------------------------------------------------ a session */

static void small(struct plan_fixed *f)
{
	f->limits.grace_ms = UINT64_C(200) * box_slow();
	f->limits.pids = 64;
	f->limits.memory = 128 * MI;
}

static void set_up(void)
{
	plan = box_plan(NULL, small);
}

static void tear_down(void)
{
	nsbox_plan_close(plan);
}

/* mode 0: as the host can, 1: without control groups */
static struct nsbox_sandbox *session(int mode, uint32_t execs, int files_fd)
{
	uint32_t group = NSBOX_LAYER_BIT(NSBOX_LAYER_CGROUP);
	const struct nsbox_sandbox_options opt = {
		.layers = mode ? box_layers & ~group : box_layers,
		.files_fd = files_fd,
		.execs = execs,
	};
	struct nsbox_error err = { 0 };
	struct nsbox_sandbox *sb = NULL;

	ck_assert_msg(nsbox_sandbox_new(plan, box_root, &opt, &sb, &err) == 0, "%s", err.msg);
	grouped = sb->cg.kind != NSBOX_CGROUP_NONE;
	box_expect(sb, NSBOX_EVENT_READY);
	return sb;
}

static int try_sh(struct nsbox_sandbox *sb, const char *script, uint64_t wall_ms, int out,
		  uint32_t *ret_id, struct nsbox_error *err)
{
	const char *const argv[] = { "sh", "-c", script, NULL };
	const struct nsbox_exec ex = { .argv = argv, .wall_ms = wall_ms, .keep_rest = true };
	const struct nsbox_io io = { -1, out, out, -1, -1 };

	return nsbox_sandbox_exec(sb, &ex, &io, ret_id, err);
}

static uint32_t sh(struct nsbox_sandbox *sb, const char *script, uint64_t wall_ms, int out)
{
	struct nsbox_error err = { 0 };
	uint32_t id = 0;

	ck_assert_msg(try_sh(sb, script, wall_ms, out, &id, &err) == 0, "%s", err.msg);
	return id;
}

/* The result of exec `id`; none of the others may end before. */
static struct nsbox_result result(struct nsbox_sandbox *sb, uint32_t id)
{
	struct nsbox_error err = { 0 };
	struct nsbox_event ev;

	do {
		ck_assert_msg(nsbox_sandbox_next(sb, 20000 * (int)box_slow(), &ev, &err) == 0, "%s",
			      err.msg);
		ck_assert_msg(ev.kind == NSBOX_EVENT_STARTED || ev.kind == NSBOX_EVENT_EXITED,
			      "event %u while waiting for exec %u: %s", ev.kind, id, ev.error.msg);
	} while (ev.kind != NSBOX_EVENT_EXITED);
	ck_assert_uint_eq(ev.id, id);
	return ev.result;
}

static void ends_well(struct nsbox_sandbox *sb, uint32_t id)
{
	struct nsbox_result r = result(sb, id);

	ck_assert_msg(r.cause == NSBOX_CAUSE_EXIT && r.exit_status == 0, "%s, status %d: %s",
		      nsbox_cause_name((int)r.cause), r.exit_status, r.error.msg);
}

/* Two that end in any order: both results. */
static void results(struct nsbox_sandbox *sb, const uint32_t id[2], struct nsbox_result ret[2])
{
	struct nsbox_error err = { 0 };
	unsigned seen = 0;

	while (seen != 3) {
		struct nsbox_event ev;
		unsigned which;

		ck_assert_msg(nsbox_sandbox_next(sb, 20000 * (int)box_slow(), &ev, &err) == 0, "%s",
			      err.msg);
		ck_assert_uint_ne(ev.kind, NSBOX_EVENT_NONE);
		if (ev.kind != NSBOX_EVENT_EXITED)
			continue;
		which = ev.id == id[1];
		ck_assert_uint_eq(ev.id, id[which]);
		ret[which] = ev.result;
		seen |= 1U << which;
	}
}

/* Run it to its end and give what it printed. */
static void say(struct nsbox_sandbox *sb, const char *script, char *ret, size_t size)
{
	auto_close int out = memfd_create("out", MFD_CLOEXEC);

	ends_well(sb, sh(sb, script, 0, out));
	box_slurp(out, ret, size);
}

/* Processes of the sandbox whose command line holds `mark`; mark NULL: all. */
static unsigned count(const struct nsbox_sandbox *sb, const char *mark)
{
	auto_free struct tree *t = tree_grow(sb->pid);
	unsigned n = 0;

	ck_assert_ptr_nonnull(t);
	for (unsigned i = 0; i < t->count; i++) {
		char path[40], text[8192];
		ssize_t len;

		nsbox_format(path, sizeof(path), "/proc/%d/cmdline", (int)t->pid[i]);
		len = read_small_file(AT_FDCWD, path, text, sizeof(text));
		if (!mark && !box_gone(t->pid[i]))
			n++;
		else if (mark && len > 0 && !box_gone(t->pid[i]) &&
			 memmem(text, (size_t)len, mark, strlen(mark)))
			n++;
	}
	return n;
}

/* Until there are n such processes; meanwhile programs may start, and none may end. */
static void wait_for(struct nsbox_sandbox *sb, const char *mark, unsigned n)
{
	unsigned there = count(sb, mark);

	for (int i = 0; i < 1000 && there != n; i++) {
		struct nsbox_event ev;

		ck_assert_int_eq(nsbox_sandbox_next(sb, 5, &ev, NULL), 0);
		ck_assert_msg(ev.kind == NSBOX_EVENT_NONE || ev.kind == NSBOX_EVENT_STARTED,
			      "event %u while waiting for '%s'", ev.kind, mark);
		there = count(sb, mark);
	}
	ck_assert_msg(there == n, "%u processes '%s' instead of %u", there, mark ? mark : "all", n);
}

/* ------------------------------------------------------------------ sequences */

/* A program that reads a line and does what that says, started ahead of it; *ret_line: where to. */
static uint32_t waiting(struct nsbox_sandbox *sb, uint64_t wall_ms, int *ret_line)
{
	const char *const argv[] = { "sh", "-c", "read line; eval \"$line\"", NULL };
	const struct nsbox_exec ex = {
		.argv = argv, .wall_ms = wall_ms, .keep_rest = true, .waits = true
	};
	struct nsbox_error err = { 0 };
	struct nsbox_io io = NSBOX_IO_NONE;
	uint32_t id = 0;
	int line[2];

	ck_assert_int_eq(pipe2(line, O_CLOEXEC), 0);
	io.in = line[0];
	ck_assert_msg(nsbox_sandbox_exec(sb, &ex, &io, &id, &err) == 0, "%s", err.msg);
	close(line[0]);
	*ret_line = line[1];
	return id;
}

START_TEST(time_begins_with_the_work)
{
	struct nsbox_sandbox *sb = session(_i, 4, -1);
	struct nsbox_error err = { 0 };
	struct nsbox_result r;
	int line;
	uint32_t id = waiting(sb, 300 * box_slow(), &line), other;

	/* Far longer than its time, and it is still there. */
	ends_well(sb, sh(sb, "sleep 1", 0, -1));
	ck_assert_msg(nsbox_sandbox_begin(sb, id, &err) == 0, "%s", err.msg);
	r = result(sb, id);
	ck_assert_uint_eq(r.cause, NSBOX_CAUSE_WALL_TIME);
	close(line);

	id = waiting(sb, 60000, &line);
	ends_well(sb, sh(sb, "sleep 1", 0, -1));
	ck_assert_int_eq(nsbox_sandbox_begin(sb, id, &err), 0);
	ck_assert_int_eq(nsbox_sandbox_begin(sb, id, &err), -ESRCH);
	ck_assert_int_eq(write_full(line, "exit 7\n", 7), 0);
	r = result(sb, id);
	ck_assert_uint_eq(r.cause, NSBOX_CAUSE_EXIT);
	ck_assert_int_eq(r.exit_status, 7);
	close(line);

	/* Others never wait. */
	other = sh(sb, "sleep 60", 300 * box_slow(), -1);
	ck_assert_int_eq(nsbox_sandbox_begin(sb, other, &err), -ESRCH);
	ck_assert_uint_eq(result(sb, other).cause, NSBOX_CAUSE_WALL_TIME);
	nsbox_sandbox_free(sb);
}
END_TEST

START_TEST(one_after_the_other)
{
	struct nsbox_sandbox *sb = session(_i, 0, -1);
	char text[64];

	ends_well(sb, sh(sb, "echo kept >note; echo t >/tmp/t; echo x >$HOME/h", 0, -1));
	ck_assert_int_eq(result(sb, sh(sb, "exit 3", 0, -1)).exit_status, 3);
	ck_assert_int_eq(result(sb, sh(sb, "kill -ABRT $$", 0, -1)).signal, SIGABRT);
	say(sb, "cat note /tmp/t $HOME/h", text, sizeof(text));
	ck_assert_str_eq(text, "kept\nt\nx\n");
	nsbox_sandbox_free(sb);
}
END_TEST

/* A program that cannot be started is its own failure and no one else's. */
START_TEST(one_that_is_not_there)
{
	static const char *const argv[] = { "no-such-program", NULL };
	const struct nsbox_exec ex = { .argv = argv, .keep_rest = true };
	const struct nsbox_io io = NSBOX_IO_NONE;
	struct nsbox_sandbox *sb = session(_i, 0, -1);
	struct nsbox_error err = { 0 };
	struct nsbox_result r;
	uint32_t id;

	ck_assert_int_eq(nsbox_sandbox_exec(sb, &ex, &io, &id, &err), 0);
	r = result(sb, id);
	ck_assert_uint_eq(r.cause, NSBOX_CAUSE_EXEC);
	ck_assert_int_eq(r.exit_status, 127);
	ck_assert_ptr_nonnull(strstr(r.error.msg, "no-such-program"));
	ends_well(sb, sh(sb, "true", 0, -1));
	nsbox_sandbox_free(sb);
}
END_TEST

static int open_files(void)
{
	pid_t self = getpid();
	char path[32];
	int n = 0;

	nsbox_format(path, sizeof(path), "/proc/%d/fd", (int)self);
	for (int fd = 0; fd < 4096; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static uint64_t kilobytes(pid_t pid)
{
	char path[40], text[4096];
	const char *p;

	nsbox_format(path, sizeof(path), "/proc/%d/status", (int)pid);
	ck_assert_int_gt(read_small_file(AT_FDCWD, path, text, sizeof(text)), 0);
	p = strstr(text, "\nRssAnon:");
	ck_assert_ptr_nonnull(p);
	return strtoull(p + 9, NULL, 10);
}

/* What grows does so with hundreds. NSBOX_RUNS: how many (`make soak`: 1000). */
START_TEST(many_in_a_row)
{
	const char *wish = getenv("NSBOX_RUNS");
	const int many = wish ? atoi(wish) : 250;
	struct nsbox_sandbox *sb = session(_i, 0, -1);
	unsigned leaves = 0;
	uint64_t init = 0, own = 0;
	int files = 0;

	for (int i = 1; i <= many; i++) {
		ends_well(sb, sh(sb, "echo $$ >>log; exec true", 0, -1));
		if (i != 100)
			continue;
		files = open_files();
		leaves = sb->cg.leaves;
		init = kilobytes(sb->pid);
		own = kilobytes(getpid());
	}
	ck_assert_int_eq(open_files(), files);
	ck_assert_uint_eq(sb->cg.leaves, leaves);
	ck_assert_uint_le(leaves, 4);
	ck_assert_uint_le(kilobytes(sb->pid), init + 64);
	ck_assert_uint_le(kilobytes(getpid()), own + 256);
	ck_assert_ptr_null(sb->execs);
	wait_for(sb, NULL, 0);
	nsbox_sandbox_free(sb);
}
END_TEST

/* ------------------------------------------------------------------ at once */

START_TEST(at_once)
{
	struct nsbox_sandbox *sb = session(_i, 0, -1);
	uint32_t id[4];
	char text[64];

	for (int i = 0; i < 4; i++) {
		nsbox_format(text, sizeof(text), "until test -e go%d; do sleep 0.02; done; exit %d",
			     i, 10 + i);
		id[i] = sh(sb, text, 0, -1);
	}
	wait_for(sb, "until test -e", 4);
	for (int i = 3; i >= 0; i--) { /* last first */
		struct nsbox_result r[2];
		uint32_t both[2] = { id[i] };

		nsbox_format(text, sizeof(text), "echo >go%d", i);
		both[1] = sh(sb, text, 0, -1);
		results(sb, both, r);
		ck_assert_uint_eq(r[0].cause, NSBOX_CAUSE_EXIT);
		ck_assert_int_eq(r[0].exit_status, 10 + i);
		ck_assert_int_eq(r[1].exit_status, 0);
	}
	nsbox_sandbox_free(sb);
}
END_TEST

START_TEST(no_more_than_allowed)
{
	struct nsbox_sandbox *sb = session(_i, 2, -1);
	struct nsbox_error err = { 0 };
	uint32_t id[2] = { sh(sb, "sleep 300.1", 0, -1), sh(sb, "sleep 300.2", 0, -1) };

	ck_assert_int_eq(try_sh(sb, "true", 0, -1, NULL, &err), -EBUSY);
	ck_assert_int_eq(err.code, NSBOX_E_LIMIT);
	ck_assert_int_eq(nsbox_sandbox_kill(sb, id[0], NSBOX_CAUSE_CANCELLED, 0, &err), 0);
	ck_assert_uint_eq(result(sb, id[0]).cause, NSBOX_CAUSE_CANCELLED);
	ends_well(sb, sh(sb, "true", 0, -1)); /* the twin */
	nsbox_sandbox_free(sb);
}
END_TEST

/* One that ends everything with it runs alone; and then it does. */
START_TEST(the_one_that_ends_all)
{
	static const char *const argv[] = { "true", NULL };
	const struct nsbox_exec ex = { .argv = argv };
	const struct nsbox_io io = NSBOX_IO_NONE;
	struct nsbox_sandbox *sb = session(_i, 0, -1);
	struct nsbox_error err = { 0 };
	uint32_t id = sh(sb, "sleep 300.3 & sleep 0.2", 0, -1);

	ck_assert_int_eq(nsbox_sandbox_exec(sb, &ex, &io, NULL, &err), -EBUSY);
	ck_assert_int_eq(err.code, NSBOX_E_INVALID);
	ends_well(sb, id);
	ck_assert_uint_eq(count(sb, "300.3"), 1);
	ck_assert_int_eq(nsbox_sandbox_exec(sb, &ex, &io, &id, &err), 0);
	ends_well(sb, id);
	ck_assert_uint_eq(count(sb, NULL), 0);
	ends_well(sb, sh(sb, "true", 0, -1));
	nsbox_sandbox_free(sb);
}
END_TEST

/* ------------------------------------------------------------------ ending one */

/* Five processes that sleep `mark` seconds: a child, one that left the session and ignores TERM,
 * one whose parent has ended, one that did both, and the shell itself. */
#define TREE(mark)                                                                                 \
	"trap '' TERM; sleep " mark " & setsid sh -c \"trap '' TERM HUP; sleep " mark              \
	" & wait\" & "                                                                             \
	"(sleep " mark " &); (setsid sh -c \"trap '' TERM; sleep " mark " &\" &); wait"

static const struct {
	const char *script;
	unsigned marked; /* processes whose command line shows the mark: shells do, too */
	bool timeout;
} trees[] = {
	{ TREE("300.5"), 6, false },
	{ TREE("300.5"), 6, true },
	{ "exec sleep 300.5", 1, false },
	{ "sleep 300.5 & sleep 0.3; trap '' TERM; wait", 2, false },
};

#define MODES	   2
#define TREE_TESTS (MODES * (int)ARRAY_SIZE(trees))

START_TEST(ended_with_all_it_started)
{
	unsigned k = (unsigned)_i / MODES;
	struct nsbox_sandbox *sb = session(_i % MODES, 0, -1);
	uint32_t id;
	struct nsbox_result r;

	/* Left by an earlier one, and two that run beside it. */
	ends_well(sb, sh(sb, "setsid sleep 300.4 & exit 0", 0, -1));
	sh(sb, "sleep 300.6; exit 7", 0, -1);
	id = sh(sb, trees[k].script, trees[k].timeout ? UINT64_C(700) * box_slow() : 0, -1);
	sh(sb, "sleep 300.7 & sleep 300.7", 0, -1);
	wait_for(sb, "300.5", trees[k].marked);
	wait_for(sb, "300.7", 3);
	if (!trees[k].timeout)
		ck_assert_int_eq(nsbox_sandbox_kill(sb, id, NSBOX_CAUSE_CANCELLED, 0, NULL), 0);
	r = result(sb, id);
	ck_assert_uint_eq(r.cause,
			  trees[k].timeout ? NSBOX_CAUSE_WALL_TIME : NSBOX_CAUSE_CANCELLED);
	ck_assert_uint_lt(r.wall_us, UINT64_C(3000000) * box_slow());
	ck_assert_uint_eq(count(sb, "300.5"), 0);
	/* A process has no command line while it becomes another program: looked at more than once. */
	wait_for(sb, "300.4", 1);
	wait_for(sb, "300.6", 2);
	wait_for(sb, "300.7", 3);
	nsbox_sandbox_free(sb);
}
END_TEST

/* What TERM ends is not killed, and what TERM asks is done. */
START_TEST(asked_first)
{
	struct nsbox_sandbox *sb = session(_i, 0, -1);
	char text[64];
	uint32_t id = sh(sb, "trap 'echo wound up >note; exit 0' TERM; sleep 300.8 & wait", 0, -1);

	wait_for(sb, "300.8", 2);
	ck_assert_int_eq(nsbox_sandbox_kill(sb, id, NSBOX_CAUSE_CANCELLED, 0, NULL), 0);
	ck_assert_int_eq(result(sb, id).signal, 0);
	say(sb, "cat note", text, sizeof(text));
	ck_assert_str_eq(text, "wound up\n");
	nsbox_sandbox_free(sb);
}
END_TEST

START_TEST(all_at_once)
{
	struct nsbox_sandbox *sb = session(_i, 0, -1);
	struct nsbox_error err = { 0 };
	struct nsbox_event ev;
	unsigned ended = 0;

	for (int i = 0; i < 5; i++)
		sh(sb, "sleep 300.9 & sleep 300.9", 0, -1);
	ck_assert_int_eq(nsbox_sandbox_kill(sb, 0, NSBOX_CAUSE_CANCELLED, 0, &err), 0);
	while (ended < 5) {
		ck_assert_int_eq(nsbox_sandbox_next(sb, 10000 * (int)box_slow(), &ev, &err), 0);
		ck_assert_uint_ne(ev.kind, NSBOX_EVENT_NONE);
		ended += ev.kind == NSBOX_EVENT_EXITED && ev.result.cause == NSBOX_CAUSE_CANCELLED;
	}
	ck_assert_uint_eq(count(sb, "300.9"), 0);
	ck_assert_int_eq(nsbox_sandbox_kill(sb, 0, NSBOX_CAUSE_CANCELLED, 0, &err), -ESRCH);
	ck_assert_int_eq(nsbox_sandbox_kill(sb, 3, NSBOX_CAUSE_CANCELLED, 0, &err), -ESRCH);
	nsbox_sandbox_free(sb);
}
END_TEST

/* The program itself ends well in its grace, and what it started does not. */
START_TEST(rest_of_a_stopped_one)
{
	struct nsbox_sandbox *sb = session(_i, 0, -1);
	uint32_t id = sh(sb,
			 "setsid sh -c \"trap '' TERM; sleep 301.1\" & trap 'exit 0' TERM; "
			 "sleep 301.2 & wait",
			 0, -1);

	wait_for(sb, "301.1", 3);
	wait_for(sb, "301.2", 2);
	ck_assert_int_eq(nsbox_sandbox_kill(sb, id, NSBOX_CAUSE_CANCELLED, 0, NULL), 0);
	ck_assert_uint_eq(result(sb, id).cause, NSBOX_CAUSE_CANCELLED);
	ck_assert_uint_eq(count(sb, "301."), 0);
	nsbox_sandbox_free(sb);
}
END_TEST

/* ------------------------------------------------------------------ what runs away */

static int jumper_stream(void)
{
	int fd = memfd_create("files", MFD_CLOEXEC);
	auto_close int tool = open("build/release/tests/tools/jumper", O_RDONLY | O_CLOEXEC);
	struct nsbox_error err = { 0 };
	static char buf[4 << 20];
	ssize_t n;

	if (tool < 0)
		return -1;
	n = read(tool, buf, sizeof(buf));
	ck_assert_int_gt(n, 0);
	ck_assert_int_lt(n, (ssize_t)sizeof(buf));
	ck_assert_int_eq(
		nsbox_files_put_frame(fd, NSBOX_FRAME_FILE, "jumper", 0755, buf, (size_t)n, &err),
		0);
	ck_assert_int_eq(nsbox_files_end(fd, &err), 0);
	ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

START_TEST(faster_than_looked_at)
{
	auto_close int files = jumper_stream();
	struct nsbox_sandbox *sb = session(_i, 0, files);
	uint32_t beside = sh(sb, "sleep 301.3", 0, -1);
	uint32_t id = sh(sb, "exec ./jumper 20", 500, -1);
	struct nsbox_result r = result(sb, id);

	ck_assert_uint_eq(r.cause, NSBOX_CAUSE_WALL_TIME);
	ck_assert_uint_eq(count(sb, "jumper"), 0);
	ck_assert_uint_eq(count(sb, "301.3"), 2);
	ck_assert_int_eq(nsbox_sandbox_kill(sb, beside, NSBOX_CAUSE_CANCELLED, 0, NULL), 0);
	ck_assert_uint_eq(result(sb, beside).cause, NSBOX_CAUSE_CANCELLED);
	nsbox_sandbox_free(sb);
}
END_TEST

/* ------------------------------------------------------------------ causes */

#define HOG "exec python3 -c 'x = bytearray(200 << 20); import time; time.sleep(30)'"

START_TEST(memory_is_the_hogs)
{
	struct nsbox_sandbox *sb = session(_i, 0, -1);
	uint32_t quiet = sh(sb, "echo $$ >quiet; exec sleep 301.4", 0, -1), id = sh(sb, HOG, 0, -1);
	uint32_t both[2];
	struct nsbox_result r = result(sb, id), two[2];

	ck_assert_uint_eq(r.cause, NSBOX_CAUSE_MEMORY);
	ck_assert_uint_ge(r.oom_kills, 1);
	ck_assert_uint_eq(count(sb, "301.4"), 1);
	/* Killed as well, by a hand inside: not for memory. */
	both[0] = quiet;
	both[1] = sh(sb, "kill -9 $(cat quiet)", 0, -1);
	results(sb, both, two);
	ck_assert_int_eq(two[0].signal, SIGKILL);
	ck_assert_uint_eq(two[0].cause, NSBOX_CAUSE_SIGNAL);
	ck_assert_uint_eq(two[0].oom_kills, 0);
	ck_assert_int_eq(two[1].exit_status, 0);
	nsbox_sandbox_free(sb);
}
END_TEST

/* What an earlier program left running takes too much: that goes, nobody else. */
START_TEST(memory_of_what_was_left)
{
	struct nsbox_sandbox *sb = session(_i, 0, -1);
	uint32_t quiet = sh(sb, "sleep 301.5", 0, -1);

	ends_well(sb, sh(sb,
			 "setsid python3 -c 'import time; time.sleep(0.3); x = "
			 "bytearray(200 << 20); time.sleep(30)' 301.6 & exit 0",
			 0, -1));
	wait_for(sb, "301.6", 1);
	for (int i = 0; i < 400 && count(sb, "301.6"); i++) {
		struct nsbox_event ev;

		ck_assert_int_eq(nsbox_sandbox_next(sb, 50, &ev, NULL), 0);
		ck_assert_uint_ne(ev.kind, NSBOX_EVENT_EXITED);
	}
	ck_assert_uint_eq(count(sb, "301.6"), 0);
	ck_assert_uint_eq(count(sb, "301.5"), 2);
	ck_assert_int_eq(nsbox_sandbox_kill(sb, quiet, NSBOX_CAUSE_CANCELLED, 0, NULL), 0);
	ck_assert_uint_eq(result(sb, quiet).cause, NSBOX_CAUSE_CANCELLED);
	nsbox_sandbox_free(sb);
}
END_TEST

#define FORKS                                                                                      \
	"python3 -c '\nimport os, sys, time\nn = 0\ntry:\n"                                        \
	" while n < 100:\n  if not os.fork(): time.sleep(30); os._exit(0)\n  n += 1\n"             \
	"except OSError: sys.exit(%d)\n'"

START_TEST(forks_refused)
{
	static const int status[] = { 1, 0 };
	struct nsbox_sandbox *sb = session(_i % MODES, 0, -1);
	int want = status[_i / MODES];
	char script[512];
	struct nsbox_result r;

	nsbox_format(script, sizeof(script), FORKS, want);
	r = result(sb, sh(sb, script, 0, -1));
	ck_assert_int_eq(r.exit_status, want);
	/* Only control groups count; and one that copes has not failed. */
	ck_assert_uint_eq(r.cause, grouped && want ? NSBOX_CAUSE_PIDS : NSBOX_CAUSE_EXIT);
	ck_assert_uint_eq(r.pids_limit_hits > 0, grouped);
	nsbox_sandbox_free(sb);
}
END_TEST

START_TEST(failed_for_another_reason)
{
	struct nsbox_sandbox *sb = session(_i, 0, -1);
	char script[512];
	uint32_t id;

	nsbox_format(script, sizeof(script), FORKS, 0);
	result(sb, sh(sb, script, 0, -1));
	id = sh(sb, "exit 1", 0, -1); /* where the children above still are */
	ck_assert_uint_eq(result(sb, id).cause, NSBOX_CAUSE_EXIT);
	nsbox_sandbox_free(sb);
}
END_TEST

/* ------------------------------------------------------------------ hostile */

static const char at_init[] =
	"for s in $(seq 1 64); do kill -$s 1; done 2>/dev/null; "
	"for f in mem environ maps fd/3 root/etc exe cwd; do "
	"test -r /proc/1/$f && cat /proc/1/$f >/dev/null 2>&1 && echo read $f; done; "
	"(echo x >/proc/1/oom_score_adj) 2>/dev/null && echo wrote; "
	"renice -n 5 -p 1 >/dev/null 2>&1 && echo reniced; true";

START_TEST(nothing_to_init)
{
	struct nsbox_sandbox *sb = session(_i, 0, -1);
	char text[256];

	say(sb, at_init, text, sizeof(text));
	ck_assert_str_eq(text, "");
	ends_well(sb, sh(sb, "true", 0, -1));
	nsbox_sandbox_free(sb);
}
END_TEST

/* The parent of the program is told to end, too: init cannot be, a leader only where the payload
 * has its id; and then all that is in the sandbox ends, and the sandbox goes on. */
START_TEST(nothing_to_the_leader)
{
	struct nsbox_sandbox *sb = session(_i, 0, -1);
	bool exposed = !grouped && box_host.ids_kind == NSBOX_IDS_SINGLE;
	uint32_t left = sh(sb, "setsid sleep 301.7 & exit 0", 0, -1), id;
	struct nsbox_result r;

	ends_well(sb, left);
	id = sh(sb, "sleep 301.8 & kill -TERM $PPID; kill -KILL $PPID; sleep 0.2; exit 4", 0, -1);
	r = result(sb, id);
	ck_assert_int_eq(r.exit_status, exposed ? 137 : 4);
	wait_for(sb, "301.7", exposed ? 0 : 1);
	wait_for(sb, "301.8", exposed ? 0 : 1);
	ends_well(sb, sh(sb, "true", 0, -1));
	nsbox_sandbox_free(sb);
}
END_TEST

/* A program looks into every new process of the sandbox while others are started: nothing of the
 * owner's may be seen in one, whatever the moment. */
static const char lurk[] =
	"exec python3 -c '\n"
	"import os\n"
	"seen = set()\n"
	"while not os.path.exists(\"stop\"):\n"
	" for p in os.listdir(\"/proc\"):\n"
	"  if not p.isdigit() or int(p) == os.getpid(): continue\n"
	"  for f in \"exe\", \"cwd\", \"root\":\n"
	"   try: seen.add(f + \" \" + os.readlink(\"/proc/%s/%s\" % (p, f)))\n"
	"   except OSError: pass\n"
	"  try:\n"
	"   for n in os.listdir(\"/proc/%s/fd\" % p):\n"
	"    seen.add(\"fd \" + os.readlink(\"/proc/%s/fd/%s\" % (p, n)).split(\":\")[0])\n"
	"  except OSError: pass\n"
	"for s in sorted(seen): print(s)\n'";

START_TEST(nothing_to_see)
{
	struct nsbox_sandbox *sb = session(_i, 0, -1);
	auto_close int out = memfd_create("out", MFD_CLOEXEC);
	uint32_t id[2] = { sh(sb, lurk, 0, out) };
	struct nsbox_result r[2];
	char text[8192], *save;
	unsigned lines = 0;

	for (int i = 0; i < 60; i++)
		ends_well(sb, sh(sb, "sleep 0.005", 0, -1));
	id[1] = sh(sb, "echo >stop", 0, -1);
	results(sb, id, r);
	ck_assert_int_eq(r[0].exit_status, 0);
	box_slurp(out, text, sizeof(text));
	for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
		bool fine = strncmp(l, "exe ", 4) ? !strstr(l, "memfd") && !strstr(l, "socket") &&
							    !strstr(l, "anon_inode")
						  : !strncmp(l, "exe /usr/", 9);

		ck_assert_msg(fine, "seen: %s", l);
		lines++;
	}
	ck_assert_uint_ge(lines, 3); /* it does see the programs themselves */
	nsbox_sandbox_free(sb);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("session");
	TCase *tc = tcase_create("session");
	int status;

	if (!box_prepare(&status))
		return status;
	tcase_set_timeout(tc, 240);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_loop_test(tc, time_begins_with_the_work, 0, MODES);
	tcase_add_loop_test(tc, one_after_the_other, 0, MODES);
	tcase_add_loop_test(tc, one_that_is_not_there, 0, MODES);
	tcase_add_loop_test(tc, many_in_a_row, 0, MODES);
	tcase_add_loop_test(tc, at_once, 0, MODES);
	tcase_add_loop_test(tc, no_more_than_allowed, 0, MODES);
	tcase_add_loop_test(tc, the_one_that_ends_all, 0, MODES);
	tcase_add_loop_test(tc, ended_with_all_it_started, 0, TREE_TESTS);
	tcase_add_loop_test(tc, asked_first, 0, MODES);
	tcase_add_loop_test(tc, all_at_once, 0, MODES);
	tcase_add_loop_test(tc, rest_of_a_stopped_one, 0, MODES);
	tcase_add_loop_test(tc, faster_than_looked_at, 0, MODES);
	tcase_add_loop_test(tc, memory_is_the_hogs, 0, MODES);
	tcase_add_loop_test(tc, memory_of_what_was_left, 0, MODES);
	tcase_add_loop_test(tc, forks_refused, 0, 2 * MODES);
	tcase_add_loop_test(tc, failed_for_another_reason, 0, MODES);
	tcase_add_loop_test(tc, nothing_to_init, 0, MODES);
	tcase_add_loop_test(tc, nothing_to_the_leader, 0, MODES);
	tcase_add_loop_test(tc, nothing_to_see, 0, MODES);
	suite_add_tcase(s, tc);
	return box_finish(s);
}
