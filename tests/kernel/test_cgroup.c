/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control groups of sandboxes: made, enforced, counted, removed; version 1 or 2, as this host has
 * them. Where none can be written, that is what is tested: it is said, and nothing is made.
 *
 * A group is named by its slot, as in the product; each test holds the lock of the slot it uses, so
 * that runs beside it are not disturbed.
 */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "nsbox/cgroup.h"
#include "nsbox/ids.h"
#include "nsbox/util.h"

#define MI UINT64_C(1048576)

static struct nsbox_host host;
static struct slot slot;
static const struct plan_limits small = {
	.memory = 32 * MI, .pids = 6, .cpu_milli = 500, .disk = MI, .disk_inodes = 1
};

static void set_up(void)
{
	struct nsbox_error err = { 0 };

	ck_assert_msg(slot_take(&slot, &err) == 0, "%s", err.msg);
}

static void tear_down(void)
{
	slot_release(&slot);
}

static void open_group(struct cgroup *cg, const struct plan_limits *l)
{
	struct nsbox_error err = { 0 };

	ck_assert_msg(cgroup_open(cg, slot.number, l, &err) == 0, "%s", err.msg);
}

static void read_from(int dir, const char *name, char *text, size_t size)
{
	ssize_t n = read_small_file(dir, name, text, size);

	ck_assert_msg(n > 0, "%s: %s", name, strerror((int)-n));
	text[strcspn(text, "\n")] = '\0';
}

/* ------------------------------------------------------------------ limits */

static const struct {
	int controller;
	const char *v1, *v1_text, *v2, *v2_text;
} values[] = {
	{ CG_MEMORY, "memory.limit_in_bytes", "33554432", "memory.max", "33554432" },
	{ CG_PIDS, "pids.max", "6", "pids.max", "6" },
	{ CG_CPU, "cpu.cfs_quota_us", "50000", "cpu.max", "50000 100000" },
};

START_TEST(limits_are_set)
{
	struct cgroup cg;
	char text[256];

	open_group(&cg, &small);
	ck_assert_int_eq(cg.kind, (int)host.cgroup_kind);
	for (unsigned i = 0; i < ARRAY_SIZE(values); i++) {
		bool v1 = cg.kind == NSBOX_CGROUP_V1;

		read_from(cg.leaf[values[i].controller], v1 ? values[i].v1 : values[i].v2, text,
			  sizeof(text));
		ck_assert_str_eq(text, v1 ? values[i].v1_text : values[i].v2_text);
	}
	cgroup_close(&cg);
}
END_TEST

/* A child that waits inside the group until it is told to begin; then exits with what fn says. */
struct inside {
	pid_t pid;
	int go;
};

static struct inside start_inside(const struct cgroup *cg, int (*fn)(void))
{
	struct nsbox_error err = { 0 };
	struct inside in;
	int p[2];
	char c;

	ck_assert_int_eq(pipe2(p, O_CLOEXEC), 0);
	in.pid = fork();
	if (in.pid == 0) {
		close(p[1]);
		if (read(p[0], &c, 1) != 1)
			_exit(99);
		_exit(fn());
	}
	close(p[0]);
	in.go = p[1];
	ck_assert_msg(cgroup_attach(cg, CGROUP_NO_LEAF, in.pid, &err) == 0, "%s", err.msg);
	return in;
}

static int finish(struct inside *in)
{
	int status;

	ck_assert_int_eq(write_full(in->go, "x", 1), 0);
	close(in->go);
	ck_assert_int_eq(waitpid(in->pid, &status, 0), in->pid);
	return status;
}

static int take(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return 1;
	for (size_t i = 0; i < bytes; i += 4096)
		p[i] = 1;
	return 0;
}

static int take_little(void)
{
	return take(8 * MI);
}

static int take_much(void)
{
	return take(64 * MI);
}

/* As many children as can be had, of `wanted`. */
static int fork_children(int wanted)
{
	pid_t pids[32];
	int made = 0;

	for (int i = 0; i < wanted; i++) {
		pid_t pid = fork();

		if (pid == 0)
			for (;;)
				pause();
		if (pid > 0)
			pids[made++] = pid;
	}
	for (int i = 0; i < made; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	return made;
}

static int fork_few(void)
{
	return fork_children(3);
}

static int fork_many(void)
{
	return fork_children(20);
}

START_TEST(attached)
{
	struct cgroup cg;
	struct inside in;
	char text[4096], want[32];

	open_group(&cg, &small);
	in = start_inside(&cg, take_little);
	nsbox_format(want, sizeof(want), "%d", in.pid);
	for (int i = 0; i < CG_CONTROLLERS; i++) {
		read_from(cg.leaf[i], "cgroup.procs", text, sizeof(text));
		ck_assert_str_eq(text, want);
	}
	ck_assert_int_eq(finish(&in), 0);
	cgroup_close(&cg);
}
END_TEST

START_TEST(memory)
{
	struct cgroup_usage u = { 0 };
	struct cgroup cg;
	struct inside in;

	open_group(&cg, &small);
	in = start_inside(&cg, take_little);
	ck_assert_int_eq(finish(&in), 0);
	cgroup_usage(&cg, CGROUP_NO_LEAF, &u);
	ck_assert_uint_eq(u.oom_kills, 0);
	ck_assert_uint_ge(u.memory_peak, 8 * MI);
	in = start_inside(&cg, take_much);
	{
		int status = finish(&in);

		ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	}
	cgroup_usage(&cg, CGROUP_NO_LEAF, &u);
	ck_assert_uint_eq(u.oom_kills, 1);
	ck_assert_uint_ge(u.memory_peak, 31 * MI);
	ck_assert_uint_le(u.memory_peak, 32 * MI);
	cgroup_close(&cg);
}
END_TEST

START_TEST(pids)
{
	struct cgroup_usage u = { 0 };
	struct cgroup cg;
	struct inside in;

	open_group(&cg, &small);
	in = start_inside(&cg, fork_few);
	ck_assert_int_eq(WEXITSTATUS(finish(&in)), 3);
	cgroup_usage(&cg, CGROUP_NO_LEAF, &u);
	ck_assert_uint_eq(u.pids_hits, 0);
	in = start_inside(&cg, fork_many);
	ck_assert_int_eq(WEXITSTATUS(finish(&in)), 5);
	cgroup_usage(&cg, CGROUP_NO_LEAF, &u);
	ck_assert_uint_ge(u.pids_hits, 1);
	cgroup_close(&cg);
}
END_TEST

START_TEST(attach_of_nobody)
{
	struct nsbox_error err = { 0 };
	struct cgroup cg;
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
	open_group(&cg, &small);
	ck_assert_int_eq(cgroup_attach(&cg, CGROUP_NO_LEAF, pid, &err), -ESRCH);
	ck_assert_int_eq(err.stage, NSBOX_STAGE_CGROUP);
	cgroup_close(&cg);
}
END_TEST

/* ------------------------------------------------------------------ joining */

static bool is_inside(pid_t pid, const char *controller)
{
	char path[64], text[4096], want[64];

	nsbox_format(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	read_small_file(AT_FDCWD, path, text, sizeof(text));
	nsbox_format(want, sizeof(want), ":%s:", controller);
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		char end[32];

		nsbox_format(end, sizeof(end), "/nsbox/%u", slot.number);
		if (strstr(line, want))
			return strlen(line) > strlen(end) &&
			       !strcmp(line + strlen(line) - strlen(end), end);
	}
	return false;
}

/* What a run's process does where the groups are of version 1: each of the three has it afterwards, and none
 * before. */
START_TEST(joined)
{
	static const char *const names[CG_CONTROLLERS] = { "memory", "pids", "cpu" };
	struct nsbox_error err = { 0 };
	int join[CG_CONTROLLERS], go[2], done[2], status;
	struct cgroup cg;
	char byte = 0;
	pid_t pid;

	open_group(&cg, &small);
	if (cg.kind == NSBOX_CGROUP_V2) { /* has no file for it: the owner attaches ("attached") */
		cgroup_close(&cg);
		return;
	}
	ck_assert_msg(cgroup_open_join(&cg, CGROUP_NO_LEAF, join, &err) == 0, "%s", err.msg);
	ck_assert(pipe(go) == 0 && pipe(done) == 0);
	pid = fork();
	if (pid == 0) {
		bool ok = read(go[0], &byte, 1) == 1;

		for (int i = 0; i < CG_CONTROLLERS; i++)
			ok = ok && write(join[i], "0", 1) == 1;
		ok = ok && write(done[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1;
		_exit(!ok);
	}
	for (int i = 0; i < CG_CONTROLLERS; i++)
		ck_assert_msg(!is_inside(pid, names[i]), "%s before", names[i]);
	ck_assert(write(go[1], &byte, 1) == 1 && read(done[0], &byte, 1) == 1);
	for (int i = 0; i < CG_CONTROLLERS; i++)
		ck_assert_msg(is_inside(pid, names[i]), "%s afterwards", names[i]);
	ck_assert_int_eq(write(go[1], &byte, 1), 1);
	waitpid(pid, &status, 0);
	ck_assert_int_eq(status, 0);
	for (int i = 0; i < CG_CONTROLLERS; i++)
		close(join[i]);
	close(go[0]), close(go[1]), close(done[0]), close(done[1]);
	cgroup_close(&cg);
}
END_TEST

/* ------------------------------------------------------------------ slots */

static int in_child(bool (*fn)(void))
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0)
		_exit(!fn());
	waitpid(pid, &status, 0);
	return status;
}

static bool takes_another(void)
{
	struct slot mine;
	bool ok = slot_try(slot.number, &mine) == -EAGAIN && slot_take(&mine, NULL) == 0;

	ok = ok && mine.number != slot.number;
	slot_release(&slot); /* the parent's: it stays */
	return ok;
}

static bool is_free(void)
{
	struct slot mine;

	return slot_try(slot.number, &mine) == 0;
}

/* Of what a child holds its parent must not take any, though both have the description of the parent's. */
START_TEST(slots_of_a_child)
{
	struct slot mine, theirs = { 0 };
	struct nsbox_error err = { 0 };
	int told[2], go[2], status;
	char byte = 0;
	pid_t pid;

	ck_assert(pipe(told) == 0 && pipe(go) == 0);
	pid = fork();
	if (pid == 0) {
		bool ok = slot_take(&mine, NULL) == 0;

		ok = ok && write(told[1], &mine, sizeof(mine)) == sizeof(mine);
		_exit(!(ok && read(go[0], &byte, 1) == 1));
	}
	ck_assert_int_eq(read(told[0], &theirs, sizeof(theirs)), sizeof(theirs));
	ck_assert_int_eq(slot_take(&mine, &err), 0);
	ck_assert_uint_ne(mine.number, theirs.number);
	slot_release(&mine);
	ck_assert_int_eq(write(go[1], &byte, 1), 1);
	waitpid(pid, &status, 0);
	ck_assert_int_eq(status, 0);
	close(told[0]), close(told[1]), close(go[0]), close(go[1]);
}
END_TEST

/* A process holds all its slots by one description, which a child is born with. */
START_TEST(slots)
{
	struct slot second, third;
	struct nsbox_error err = { 0 };
	int status = -1;

	ck_assert_int_eq(slot_take(&second, &err), 0);
	ck_assert_uint_ne(second.number, slot.number);
	ck_assert_int_eq(slot_try(slot.number, &third), -EAGAIN);
	ck_assert_int_eq(in_child(takes_another), 0);
	ck_assert_int_ne(in_child(is_free), 0);
	slot_release(&slot);
	/* Though the other is held. Another owner may take it before the child does. */
	for (int i = 0; i < 50 && status; i++) {
		status = in_child(is_free);
		usleep(status ? 20000 : 0);
	}
	ck_assert_int_eq(status, 0);
	slot_release(&second);
}
END_TEST

/* ------------------------------------------------------------------ what is left */

/* As an owner that was killed: descriptors closed, groups there. */
static void abandon(struct cgroup *cg)
{
	for (int i = 0; i < CG_CONTROLLERS; i++) {
		close_fd(&cg->leaf[i]);
		close_fd(&cg->base[i]);
	}
	close_fd(&cg->sandbox);
	close_fd(&cg->init);
}

/* Paths of the groups, which descriptors know. */
struct paths {
	char path[CG_CONTROLLERS][512];
};

static struct paths paths_of(const struct cgroup *cg)
{
	struct paths p = { 0 };

	for (int i = 0; i < CG_CONTROLLERS; i++) {
		char link[40];

		nsbox_format(link, sizeof(link), "/proc/self/fd/%d", cg->leaf[i]);
		ck_assert_int_gt(readlink(link, p.path[i], sizeof(p.path[i]) - 1), 0);
	}
	return p;
}

static int how_many(const struct paths *p)
{
	int n = 0;

	for (int i = 0; i < CG_CONTROLLERS; i++)
		n += access(p->path[i], F_OK) == 0;
	return n;
}

START_TEST(closed)
{
	struct paths p;
	struct cgroup cg;

	open_group(&cg, &small);
	p = paths_of(&cg);
	ck_assert_int_eq(how_many(&p), CG_CONTROLLERS);
	cgroup_close(&cg);
	ck_assert_int_eq(how_many(&p), 0);
	cgroup_close(&cg); /* twice is harmless */
}
END_TEST

START_TEST(reused)
{
	struct plan_limits larger = small;
	struct cgroup_usage u = { 0 };
	struct cgroup cg;
	struct inside in;

	open_group(&cg, &small);
	in = start_inside(&cg, take_much);
	ck_assert(WIFSIGNALED(finish(&in)));
	abandon(&cg);
	/* Limits above those that it was left with, and nothing of its history. */
	larger.memory = 128 * MI;
	open_group(&cg, &larger);
	cgroup_usage(&cg, CGROUP_NO_LEAF, &u);
	ck_assert_uint_eq(u.oom_kills, 0);
	ck_assert_uint_eq(u.pids_hits, 0);
	if (cg.kind == NSBOX_CGROUP_V1)
		ck_assert_uint_lt(u.memory_peak, 8 * MI);
	in = start_inside(&cg, take_much);
	ck_assert_int_eq(finish(&in), 0);
	cgroup_close(&cg);
}
END_TEST

START_TEST(swept)
{
	struct cgroup cg;
	struct paths p;

	open_group(&cg, &small);
	p = paths_of(&cg);
	abandon(&cg);
	cgroup_sweep(); /* its slot is held: someone lives there */
	ck_assert_int_eq(how_many(&p), CG_CONTROLLERS);
	slot_release(&slot);
	/* Another owner may take the slot, and use its groups, before we do. */
	for (int i = 0; i < 50 && how_many(&p); i++) {
		cgroup_sweep();
		usleep(20000);
	}
	ck_assert_int_eq(how_many(&p), 0);
}
END_TEST

START_TEST(probe_leaves_nothing)
{
	struct nsbox_host h = { 0 };
	char name[64];
	struct cgroup cg;

	ck_assert_int_eq(cgroup_probe(&h), 0);
	ck_assert(h.cgroup_memory && h.cgroup_pids && h.cgroup_cpu);
	open_group(&cg, &small);
	nsbox_format(name, sizeof(name), "probe-%d", (int)getpid());
	for (int i = 0; i < CG_CONTROLLERS; i++)
		ck_assert_int_lt(faccessat(cg.base[i], name, F_OK, 0), 0);
	cgroup_close(&cg);
}
END_TEST

/* ------------------------------------------------------------------ a host without */

START_TEST(none_to_be_had)
{
	struct nsbox_error err = { 0 };
	struct nsbox_host h = { 0 };
	struct cgroup_usage u = { 0 };
	struct cgroup cg;

	ck_assert_int_lt(cgroup_probe(&h), 0);
	ck_assert_uint_eq(h.cgroup_kind, NSBOX_CGROUP_NONE);
	ck_assert(!h.cgroup_memory && !h.cgroup_pids && !h.cgroup_cpu);
	ck_assert_str_ne(h.cgroup_note, "");
	ck_assert_int_lt(cgroup_open(&cg, slot.number, &small, &err), 0);
	ck_assert_int_eq(err.stage, NSBOX_STAGE_CGROUP);
	ck_assert_str_ne(err.msg, "");
	ck_assert_int_eq(cg.kind, NSBOX_CGROUP_NONE);
	cgroup_usage(&cg, CGROUP_NO_LEAF, &u);
	ck_assert_uint_eq(u.memory_peak, 0);
	cgroup_close(&cg);
	cgroup_sweep();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cgroup");
	TCase *tc = tcase_create("cgroup");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_set_timeout(tc, 30);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	if (cgroup_probe(&host) < 0) {
		tcase_add_test(tc, none_to_be_had);
	} else {
		tcase_add_test(tc, limits_are_set);
		tcase_add_test(tc, attached);
		tcase_add_test(tc, memory);
		tcase_add_test(tc, pids);
		tcase_add_test(tc, attach_of_nobody);
		tcase_add_test(tc, joined);
		tcase_add_test(tc, slots);
		tcase_add_test(tc, slots_of_a_child);
		tcase_add_test(tc, closed);
		tcase_add_test(tc, reused);
		tcase_add_test(tc, swept);
		tcase_add_test(tc, probe_leaves_nothing);
	}
	suite_add_tcase(s, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	cgroup_sweep();
	return failed != 0;
}
