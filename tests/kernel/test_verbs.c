/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbs on the files of a live sandbox, beside the commands that run in it:
 *
 *	/workspace	a.txt, dir/sub/b.txt, and what hostile code puts there
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "nsbox/sandbox_private.h"
#include "nsbox/util.h"
#include "tests/support/box_kit.h"
#include "tests/support/verb_kit.h"

static struct nsbox_plan *plan;
static struct nsbox_sandbox *sb;
static struct verb_answer a;

static void set_up(void)
{
	plan = box_plan(NULL, NULL);
	sb = box_new(plan, -1);
	box_expect(sb, NSBOX_EVENT_READY);
}

static void tear_down(void)
{
	nsbox_sandbox_free(sb);
	nsbox_plan_close(plan);
}

/* A command in the sandbox, to its end; what it wrote. */
static const char *sh(const char *script)
{
	static char text[4096];
	auto_close int out = memfd_create("out", MFD_CLOEXEC);
	struct nsbox_event ev;

	box_sh(sb, script, true, out);
	box_expect(sb, NSBOX_EVENT_STARTED);
	ev = box_expect(sb, NSBOX_EVENT_EXITED);
	box_slurp(out, text, sizeof(text));
	ck_assert_msg(ev.result.exit_status == 0, "'%s': status %d: %s %s", script,
		      ev.result.exit_status, text, ev.result.error.msg);
	return text;
}

static int act(uint32_t verb, uint32_t flags, const char *path)
{
	return verb_do(sb, verb, flags, path, &a);
}

/* ------------------------------------------------------------------ single files */

START_TEST(put_and_get)
{
	ck_assert_int_eq(verb_put_text(sb, 0, "/workspace/a.txt", "hello\n"), 0);
	ck_assert_str_eq(sh("cat a.txt; stat -c '%a %U' a.txt"), "hello\n644 sandbox\n");
	ck_assert_int_eq(act(NSBOX_FILE_GET, 0, "a.txt"), 0); /* relative: the working directory */
	ck_assert_uint_eq(a.n, 2);
	ck_assert_int_eq(a.frame[0].kind, NSBOX_FRAME_INFO);
	ck_assert_uint_eq(a.frame[0].info.size, 6);
	ck_assert_uint_eq(a.frame[0].info.type, NSBOX_FILE_TYPE_REGULAR);
	ck_assert_str_eq(a.frame[1].data, "hello\n");
	ck_assert_int_eq(a.stream.code, 0);
	/* the same paths for both */
	sh("mkdir -p /tmp/x && echo from-inside >/tmp/x/f");
	ck_assert_int_eq(act(NSBOX_FILE_GET, 0, "/tmp/x/f"), 0);
	ck_assert_str_eq(a.frame[1].data, "from-inside\n");
}
END_TEST

START_TEST(get_ranges)
{
	static const struct {
		uint64_t offset, length;
		const char *want;
	} rows[] = {
		{ 0, 3, "012" }, { 4, 3, "456" },    { 8, 100, "89" },
		{ 10, 5, "" },	 { 1000000, 5, "" }, { 3, UINT64_MAX, "3456789" },
	};

	ck_assert_int_eq(verb_put_text(sb, 0, "d", "0123456789"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct nsbox_file_request req = { .verb = NSBOX_FILE_GET,
							.path = "d",
							.offset = rows[i].offset,
							.length = rows[i].length };

		verb_ask(sb, &req, -1, &a);
		ck_assert_int_eq(a.error.code, 0);
		ck_assert_str_eq(a.frame[1].data, rows[i].want);
	}
}
END_TEST

START_TEST(get_limit)
{
	struct nsbox_file_request req = {
		.verb = NSBOX_FILE_GET, .path = "big", .length = UINT64_MAX, .lim = { 1000, 10 }
	};

	sh("head -c 1001 /dev/zero >big");
	verb_ask(sb, &req, -1, &a);
	ck_assert_int_eq(a.error.code, NSBOX_E_LIMIT);
	req.length = 1000;
	verb_ask(sb, &req, -1, &a);
	ck_assert_int_eq(a.error.code, 0);
	ck_assert_uint_eq(a.frame[1].size, 1000);
}
END_TEST

START_TEST(put_modes)
{
	struct nsbox_file_request req = { .verb = NSBOX_FILE_PUT, .path = "p/q/run", .mode = 0755 };
	auto_close int in = make_memfd("in", "x", 1, false);

	req.length = NSBOX_FILE_SIZE_UNKNOWN;
	verb_ask(sb, &req, in, &a);
	ck_assert_int_eq(a.error.errnum, ENOENT); /* without PARENTS */
	req.flags = NSBOX_FILE_PARENTS;
	lseek(in, 0, SEEK_SET);
	verb_ask(sb, &req, in, &a);
	ck_assert_msg(a.error.code == 0, "%s", a.error.msg);
	ck_assert_uint_eq(a.frame[0].info.mode, 0755);
	/* a new content keeps the mode; EXCLUSIVE wants nothing there */
	ck_assert_int_eq(verb_put_text(sb, 0, "p/q/run", "other"), 0);
	ck_assert_str_eq(sh("stat -c %a p/q/run; cat p/q/run"), "755\nother");
	ck_assert_int_eq(verb_put_text(sb, NSBOX_FILE_EXCLUSIVE, "p/q/run", "x"), EEXIST);
	ck_assert_int_eq(verb_put_text(sb, NSBOX_FILE_EXCLUSIVE, "p/q/new", "x"), 0);
	ck_assert_int_eq(verb_put_text(sb, 0, "p/q", "x"), EISDIR);
	ck_assert_str_eq(sh("cat p/q/run; ls -A p/q"), "othernew\nrun\n");
}
END_TEST

START_TEST(put_that_breaks_off)
{
	struct nsbox_file_request req = { .verb = NSBOX_FILE_PUT, .path = "f", .length = 10 };
	auto_close int in = make_memfd("in", "12345", 5, false);

	req.mode = NSBOX_FILE_MODE_DEFAULT;
	sh("echo old >f");
	verb_ask(sb, &req, in, &a);
	ck_assert_int_eq(a.error.errnum, EPIPE);
	ck_assert_str_eq(sh("cat f; ls -A"), "old\nf\n");
}
END_TEST

START_TEST(stat_and_links)
{
	sh("echo text >t; ln -s t l; ln -s nowhere broken; mkfifo pipe; mkdir d");
	ck_assert_int_eq(act(NSBOX_FILE_STAT, 0, "l"), 0);
	ck_assert_uint_eq(a.frame[0].info.type, NSBOX_FILE_TYPE_SYMLINK);
	ck_assert_str_eq(a.frame[0].data, "t");
	ck_assert_int_eq(act(NSBOX_FILE_STAT, NSBOX_FILE_FOLLOW, "l"), 0);
	ck_assert_uint_eq(a.frame[0].info.type, NSBOX_FILE_TYPE_REGULAR);
	ck_assert_int_eq(act(NSBOX_FILE_STAT, 0, "pipe"), 0); /* and does not wait */
	ck_assert_uint_eq(a.frame[0].info.type, NSBOX_FILE_TYPE_OTHER);
	ck_assert_int_eq(act(NSBOX_FILE_STAT, 0, "/workspace/"), 0);
	ck_assert_uint_eq(a.frame[0].info.type, NSBOX_FILE_TYPE_DIRECTORY);
	ck_assert_int_eq(act(NSBOX_FILE_STAT, NSBOX_FILE_FOLLOW, "broken"), ENOENT);
	ck_assert_int_eq(act(NSBOX_FILE_STAT, 0, "nowhere"), ENOENT);
	ck_assert_ptr_nonnull(strstr(a.error.msg, "'nowhere': No such file"));
	/* put replaces a link and does not write through it */
	ck_assert_int_eq(verb_put_text(sb, 0, "l", "new"), 0);
	ck_assert_str_eq(sh("cat t l; test ! -L l"), "text\nnew");
}
END_TEST

START_TEST(make_move_remove)
{
	ck_assert_int_eq(act(NSBOX_FILE_MKDIR, 0, "x/y"), ENOENT);
	ck_assert_int_eq(act(NSBOX_FILE_MKDIR, NSBOX_FILE_PARENTS, "x/y/z/"), 0);
	ck_assert_int_eq(act(NSBOX_FILE_MKDIR, NSBOX_FILE_PARENTS, "x/y/z"), 0);
	ck_assert_int_eq(act(NSBOX_FILE_MKDIR, 0, "x/y/z"), EEXIST);
	ck_assert_int_eq(act(NSBOX_FILE_REMOVE, 0, "x"), ENOTEMPTY);
	ck_assert_int_eq(act(NSBOX_FILE_REMOVE, 0, "x/y/z"), 0);
	ck_assert_int_eq(act(NSBOX_FILE_REMOVE, 0, "x/y/z"), ENOENT);
	ck_assert_int_eq(act(NSBOX_FILE_REMOVE, NSBOX_FILE_RECURSIVE, "x"), 0);
	ck_assert_str_eq(sh("ls -A"), "");
	ck_assert_int_eq(act(NSBOX_FILE_REMOVE, NSBOX_FILE_RECURSIVE, "/"), EINVAL);
	ck_assert_int_eq(act(NSBOX_FILE_REMOVE, NSBOX_FILE_RECURSIVE, "/workspace/.."), EINVAL);
	ck_assert_int_eq(act(NSBOX_FILE_REMOVE, 0, "/usr/bin/env"), EROFS);
}
END_TEST

static int move(const char *from, const char *to, uint32_t flags)
{
	const struct nsbox_file_request req = {
		.verb = NSBOX_FILE_MOVE, .path = from, .target = to, .flags = flags
	};

	verb_ask(sb, &req, -1, &a);
	return a.error.errnum;
}

START_TEST(move_things)
{
	sh("echo 1 >f; echo 2 >g; mkdir d; ln -s f l");
	ck_assert_int_eq(move("f", "g", NSBOX_FILE_EXCLUSIVE), EEXIST);
	ck_assert_int_eq(move("f", "g", 0), 0);
	ck_assert_int_eq(move("g", "n/m/g", 0), ENOENT);
	ck_assert_int_eq(move("g", "n/m/g", NSBOX_FILE_PARENTS), 0);
	ck_assert_int_eq(move("n/m/g", "/tmp/g", 0), 0); /* another file system */
	ck_assert_int_eq(move("d", "/tmp/d", 0), EXDEV);
	ck_assert_ptr_nonnull(strstr(a.error.msg, "only files"));
	ck_assert_int_eq(move("d", "n/d", 0), 0);
	ck_assert_int_eq(move("l", "k", 0), 0); /* the link itself */
	ck_assert_str_eq(sh("cat /tmp/g; find . | sort; readlink k"),
			 "1\n.\n./k\n./n\n./n/d\n./n/m\nf\n");
}
END_TEST

/* ------------------------------------------------------------------ trees */

START_TEST(list_tree)
{
	sh("mkdir -p dir/sub && echo 12 >dir/sub/b.txt && echo >a.txt && ln -s a.txt l");
	ck_assert_int_eq(act(NSBOX_FILE_LIST, 0, "/workspace"), 0);
	ck_assert_uint_eq(a.n, 3);
	ck_assert_uint_eq(verb_find(&a, "dir")->info.type, NSBOX_FILE_TYPE_DIRECTORY);
	ck_assert_str_eq(verb_find(&a, "l")->data, "a.txt");
	ck_assert_int_eq(act(NSBOX_FILE_LIST, NSBOX_FILE_RECURSIVE, "."), 0);
	ck_assert_uint_eq(a.n, 5);
	ck_assert_uint_eq(verb_find(&a, "dir/sub/b.txt")->info.size, 3);
	ck_assert_int_eq(act(NSBOX_FILE_LIST, 0, "a.txt"), ENOTDIR);
	ck_assert_int_eq(act(NSBOX_FILE_LIST, 0, "/"), 0);
	ck_assert_ptr_nonnull(verb_find(&a, "usr"));
}
END_TEST

START_TEST(list_limit)
{
	const struct nsbox_file_request req = { .verb = NSBOX_FILE_LIST,
						.path = ".",
						.lim = { 0, 5 } };

	sh("touch 1 2 3 4 5 6 7");
	verb_ask(sb, &req, -1, &a);
	ck_assert_int_eq(a.error.code, 0);
	ck_assert_uint_eq(a.n, 5);
	ck_assert_int_eq(a.frame[4].kind, NSBOX_FRAME_NOTE);
}
END_TEST

START_TEST(download_tree)
{
	sh("mkdir -p dir/sub && echo 12 >dir/sub/b && ln -s sub/b dir/in && ln -s ../a dir/out && "
	   "ln -s /etc/passwd dir/abs && mkfifo dir/pipe && mkdir dir/empty");
	ck_assert_int_eq(act(NSBOX_FILE_DOWNLOAD, 0, "dir"), 0);
	ck_assert_int_eq(verb_find(&a, "sub")->kind, NSBOX_FRAME_DIR);
	ck_assert_int_eq(verb_find(&a, "empty")->kind, NSBOX_FRAME_DIR);
	ck_assert_str_eq(verb_find(&a, "sub/b")->data, "12\n");
	ck_assert_int_eq(verb_find(&a, "in")->kind, NSBOX_FRAME_SYMLINK);
	ck_assert_int_eq(verb_find(&a, "out")->kind, NSBOX_FRAME_NOTE);
	ck_assert_int_eq(verb_find(&a, "abs")->kind, NSBOX_FRAME_NOTE);
	ck_assert_int_eq(verb_find(&a, "pipe")->kind, NSBOX_FRAME_NOTE);
	ck_assert_uint_eq(a.n, 7);
}
END_TEST

START_TEST(upload_tree)
{
	struct nsbox_file_request req = { .verb = NSBOX_FILE_UPLOAD, .path = "up/here/" };
	auto_close int in = memfd_create("in", MFD_CLOEXEC);
	struct nsbox_error err = { 0 };

	sh("ln -s /tmp evil");
	nsbox_files_put_frame(in, NSBOX_FRAME_FILE, "d/f", 0755, "data", 4, &err);
	nsbox_files_put_frame(in, NSBOX_FRAME_SYMLINK, "l", 0, "d/f", 3, &err);
	nsbox_files_end(in, &err);
	ck_assert_int_eq(err.code, 0);
	lseek(in, 0, SEEK_SET);
	verb_ask(sb, &req, in, &a);
	ck_assert_msg(a.error.code == 0, "%s", a.error.msg);
	ck_assert_str_eq(sh("cat up/here/l; stat -c %a up/here/d/f"), "data755\n");
	/* not through a link */
	lseek(in, 0, SEEK_SET);
	req.path = "evil/here";
	verb_ask(sb, &req, in, &a);
	ck_assert_int_eq(a.error.errnum, ELOOP);
	ck_assert_str_eq(sh("ls -A /tmp"), "");
	/* a stream that is no stream */
	lseek(in, 5, SEEK_SET);
	req.path = "up";
	verb_ask(sb, &req, in, &a);
	ck_assert_int_eq(a.error.code, NSBOX_E_PROTOCOL);
}
END_TEST

static int ask_search(uint32_t verb, const char *path, const char *pattern, const char *text,
		      uint32_t flags)
{
	const struct nsbox_file_request req = {
		.verb = verb, .path = path, .pattern = pattern, .text = text, .flags = flags
	};

	verb_ask(sb, &req, -1, &a);
	return a.error.code;
}

START_TEST(search_names)
{
	sh("mkdir -p src/deep && touch src/a.py src/deep/b.py src/c.txt top.py");
	ck_assert_int_eq(ask_search(NSBOX_FILE_GLOB, ".", "**/*.py", NULL, 0), 0);
	ck_assert_uint_eq(a.n, 3);
	ck_assert_int_eq(ask_search(NSBOX_FILE_GLOB, "src", "*.py", NULL, 0), 0);
	ck_assert_uint_eq(a.n, 1);
	ck_assert_str_eq(a.frame[0].path, "a.py");
	ck_assert_int_eq(ask_search(NSBOX_FILE_GLOB, ".", "src/*", NULL, 0), 0);
	ck_assert_uint_eq(a.n, 3); /* directories, too */
	ck_assert_int_eq(ask_search(NSBOX_FILE_GLOB, ".", "../*", NULL, 0), NSBOX_E_INVALID);
}
END_TEST

START_TEST(search_text)
{
	sh("mkdir d; printf 'one\\nTwo needle\\nthree' >d/a; printf 'no\\nlast needle' >b; "
	   "printf 'needle\\0' >binary; (head -c 200000 /dev/zero | tr '\\0' x; echo needle) "
	   ">long");
	ck_assert_int_eq(ask_search(NSBOX_FILE_GREP, ".", "", "needle", 0), 0);
	ck_assert_uint_eq(a.n, 3);
	ck_assert_uint_eq(verb_find(&a, "d/a")->match.line, 2);
	ck_assert_uint_eq(verb_find(&a, "d/a")->match.offset, 4);
	ck_assert_str_eq(verb_find(&a, "d/a")->data, "Two needle");
	ck_assert_str_eq(verb_find(&a, "b")->data, "last needle");
	ck_assert_uint_eq(verb_find(&a, "long")->match.line, 1);
	ck_assert_uint_eq(verb_find(&a, "long")->match.cut, 1);
	ck_assert_ptr_nonnull(strstr(verb_find(&a, "long")->data, "xneedle"));
	ck_assert_int_eq(ask_search(NSBOX_FILE_GREP, ".", "d/*", "two NEEDLE", 0), 0);
	ck_assert_uint_eq(a.n, 0);
	ck_assert_int_eq(
		ask_search(NSBOX_FILE_GREP, ".", "d/*", "two NEEDLE", NSBOX_FILE_IGNORE_CASE), 0);
	ck_assert_uint_eq(a.n, 1);
	ck_assert_int_eq(ask_search(NSBOX_FILE_GREP, "b", "", "no", 0), 0);
	ck_assert_str_eq(a.frame[0].path, "b");
	ck_assert_int_eq(ask_search(NSBOX_FILE_GREP, ".", "", "", 0), NSBOX_E_INVALID);
}
END_TEST

/* ------------------------------------------------------------------ what must not be reached */

/* Of the helper itself, the kernel's links lead to descriptors of the owner; and nothing waits. */
static const struct {
	const char *make, *path;
	int want;
} hostile[] = {
	{ "mkfifo fifo", "fifo", -1 },
	{ "ln -s /dev/zero z", "z", -1 },
	{ "ln -s /dev/tty t", "t", ENXIO },
	{ "ln -s /proc/self/fd d", "d/0", ELOOP },
	{ "ln -s /proc/self/root r", "r/etc/passwd", ELOOP },
	{ "ln -s /proc/self/exe e", "e", ELOOP },
	{ "ln -s /proc/self/maps m", "m", EACCES },
	{ "ln -s /proc/self/environ v", "v", EACCES },
	{ "ln -s /proc/1/environ v", "v", ENOENT },
	{ "ln -s l l", "l", ELOOP },
	{ ":", "/.nsbox/witness", EACCES },
	{ "mkdir x", "x", EISDIR },
};

START_TEST(hostile_get)
{
	char text[64];

	nsbox_format(text, sizeof(text), "%s", hostile[_i].make);
	sh(text);
	/* the twin: a link to a plain file is followed */
	sh("echo fine >plain; ln -s plain twin");
	ck_assert_int_eq(act(NSBOX_FILE_GET, 0, hostile[_i].path), hostile[_i].want);
	ck_assert_int_ne(a.stream.code, 0); /* the stream says so as well */
	ck_assert_int_eq(act(NSBOX_FILE_GET, 0, "twin"), 0);
}
END_TEST

START_TEST(hostile_put)
{
	sh("ln -s /proc/self/fd fds; ln -s /usr usr; mkfifo fifo");
	for (int i = 0; i < 10; i++) {
		char path[32];

		nsbox_format(path, sizeof(path), "fds/%d", i);
		ck_assert_int_eq(verb_put_text(sb, 0, path, "x"), EACCES);
		ck_assert_int_ne(act(NSBOX_FILE_REMOVE, 0, path), 0);
		ck_assert_int_ne(act(NSBOX_FILE_LIST, 0, "fds"), 0);
	}
	ck_assert_int_eq(verb_put_text(sb, 0, "usr/x", "x"), EROFS);
	ck_assert_int_eq(verb_put_text(sb, NSBOX_FILE_PARENTS, "usr/n/x", "x"), EROFS);
	ck_assert_int_eq(verb_put_text(sb, 0, "fifo", "x"), 0); /* replaced */
	ck_assert_str_eq(sh("cat fifo"), "x");
}
END_TEST

/* ------------------------------------------------------------------ beside commands */

static double since(const struct timespec *t)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - t->tv_sec) + (double)(now.tv_nsec - t->tv_nsec) / 1e9;
}

/* A put whose content never comes holds up nothing, is over when its time is, and leaves nothing. */
START_TEST(hanging_put)
{
	struct nsbox_file_request req = { .verb = NSBOX_FILE_PUT,
					  .path = "never",
					  .mode = 0644,
					  .length = 10,
					  .deadline_ms = 700 };
	struct nsbox_error err = { 0 };
	struct nsbox_event ev;
	struct timespec start;
	int p[2];

	ck_assert_int_eq(pipe2(p, O_CLOEXEC), 0);
	clock_gettime(CLOCK_MONOTONIC, &start);
	ck_assert_int_eq(nsbox_sandbox_files(sb, &req, 1000, p[0], -1, &err), 0);
	ck_assert_str_eq(sh("echo runs"), "runs\n");
	ck_assert_int_eq(verb_put_text(sb, 0, "other", "x"), 0);
	ck_assert(since(&start) < 0.6);
	ev = box_expect(sb, NSBOX_EVENT_FILES);
	ck_assert_uint_eq(ev.id, 1000);
	ck_assert_int_eq(ev.error.errnum, ETIMEDOUT);
	ck_assert_str_eq(sh("ls -A"), "other\n");
	close(p[0]);
	close(p[1]);
}
END_TEST

START_TEST(cancelled_put)
{
	const struct nsbox_file_request req = {
		.verb = NSBOX_FILE_PUT, .path = "never", .mode = 0644, .length = 10
	};
	struct nsbox_error err = { 0 };
	struct nsbox_event ev;
	int p[2];

	ck_assert_int_eq(pipe2(p, O_CLOEXEC), 0);
	ck_assert_int_eq(write(p[1], "123", 3), 3);
	for (uint32_t id = 1000; id < 1000 + NSBOX_FILES_AT_ONCE; id++)
		ck_assert_int_eq(nsbox_sandbox_files(sb, &req, id, p[0], -1, &err), 0);
	ck_assert_int_eq(nsbox_sandbox_files(sb, &req, 1, p[0], -1, &err), -EBUSY);
	for (uint32_t id = 1000; id < 1000 + NSBOX_FILES_AT_ONCE; id++)
		ck_assert_int_eq(nsbox_sandbox_files_cancel(sb, id, &err), 0);
	for (int i = 0; i < NSBOX_FILES_AT_ONCE; i++) {
		ev = box_expect(sb, NSBOX_EVENT_FILES);
		ck_assert_int_eq(ev.error.code, NSBOX_E_CANCELLED);
	}
	ck_assert_int_eq(nsbox_sandbox_files_cancel(sb, 1000, &err), 0);
	ck_assert_str_eq(sh("ls -A"), "");
	ck_assert_int_eq(verb_put_text(sb, 0, "f", "x"), 0);
	close(p[0]);
	close(p[1]);
}
END_TEST

/* Hostile code has the helper's id: it may stop or kill it, and gains nothing. */
START_TEST(stopped_helper)
{
	struct nsbox_file_request req = { .verb = NSBOX_FILE_PUT,
					  .path = "never",
					  .mode = 0644,
					  .length = 10,
					  .deadline_ms = 1500 };
	const char *const argv[] = {
		"python3",
		"-c",
		"import os, signal, time\n"
		"end = time.time() + 1\n"
		"while time.time() < end:\n"
		"  for pid in filter(str.isdigit, os.listdir('/proc')):\n"
		"    if int(pid) not in (1, os.getpid(), os.getppid()): os.kill(int(pid), "
		"signal.SIGSTOP)\n",
		NULL,
	};
	const struct nsbox_exec ex = { .argv = argv, .keep_rest = true };
	const struct nsbox_io io = NSBOX_IO_NONE;
	struct nsbox_error err = { 0 };
	struct nsbox_event ev;
	int p[2];

	ck_assert_int_eq(pipe2(p, O_CLOEXEC), 0);
	ck_assert_int_eq(nsbox_sandbox_exec(sb, &ex, &io, NULL, &err), 0);
	box_expect(sb, NSBOX_EVENT_STARTED);
	ck_assert_int_eq(nsbox_sandbox_files(sb, &req, 1, p[0], -1, &err), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(nsbox_sandbox_next(sb, 10000 * (int)box_slow(), &ev, &err), 0);
		ck_assert(ev.kind == NSBOX_EVENT_EXITED || ev.kind == NSBOX_EVENT_FILES);
		if (ev.kind == NSBOX_EVENT_FILES)
			ck_assert_int_eq(ev.error.errnum, ETIMEDOUT);
		else
			ck_assert_int_eq(ev.result.exit_status, 0);
	}
	ck_assert_int_eq(verb_put_text(sb, 0, "f", "x"), 0);
	close(p[0]);
	close(p[1]);
}
END_TEST

/* Who reads the answer goes away: the helper ends and the sandbox lives. */
START_TEST(lost_reader)
{
	const struct nsbox_file_request req = { .verb = NSBOX_FILE_GET,
						.path = "big",
						.length = UINT64_MAX };
	struct nsbox_error err = { 0 };
	struct nsbox_event ev;
	int p[2];

	sh("head -c 3000000 /dev/zero >big");
	ck_assert_int_eq(pipe2(p, O_CLOEXEC), 0);
	ck_assert_int_eq(nsbox_sandbox_files(sb, &req, 1, -1, p[1], &err), 0);
	close(p[1]);
	close(p[0]);
	ev = box_expect(sb, NSBOX_EVENT_FILES);
	ck_assert_int_eq(ev.error.errnum, EPIPE);
	ck_assert_int_eq(act(NSBOX_FILE_STAT, 0, "big"), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("verbs");
	TCase *tc = tcase_create("verbs");
	int status;

	if (!box_prepare(&status))
		return status;
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, put_and_get);
	tcase_add_test(tc, get_ranges);
	tcase_add_test(tc, get_limit);
	tcase_add_test(tc, put_modes);
	tcase_add_test(tc, put_that_breaks_off);
	tcase_add_test(tc, stat_and_links);
	tcase_add_test(tc, make_move_remove);
	tcase_add_test(tc, move_things);
	tcase_add_test(tc, list_tree);
	tcase_add_test(tc, list_limit);
	tcase_add_test(tc, download_tree);
	tcase_add_test(tc, upload_tree);
	tcase_add_test(tc, search_names);
	tcase_add_test(tc, search_text);
	tcase_add_loop_test(tc, hostile_get, 0, (int)ARRAY_SIZE(hostile));
	tcase_add_test(tc, hostile_put);
	tcase_add_test(tc, hanging_put);
	tcase_add_test(tc, cancelled_put);
	tcase_add_test(tc, stopped_helper);
	tcase_add_test(tc, lost_reader);
	suite_add_tcase(s, tc);
	return box_finish(s);
}
