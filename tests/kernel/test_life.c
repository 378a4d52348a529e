/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a sandbox, step by step: events, files in and out, ending it, losing its owner, and
 * layers that the host does not have.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include <nsbox/files.h>

#include "nsbox/sandbox_private.h"
#include "nsbox/template.h"
#include "nsbox/util.h"
#include "tests/support/box_kit.h"

static struct nsbox_plan *plan;

static void set_up(void)
{
	plan = box_plan(NULL, NULL);
}

static void tear_down(void)
{
	nsbox_plan_close(plan);
}

/* ------------------------------------------------------------------ events and files */

static int files_in(void)
{
	int fd = memfd_create("files", MFD_CLOEXEC);
	struct nsbox_error err = { 0 };

	ck_assert_int_eq(nsbox_files_put_frame(fd, NSBOX_FRAME_DIR, "data", 0755, NULL, 0, &err),
			 0);
	ck_assert_int_eq(nsbox_files_put_frame(fd, NSBOX_FRAME_FILE, "data/in.txt", 0644, "hello\n",
					       6, &err),
			 0);
	ck_assert_int_eq(nsbox_files_put_frame(fd, NSBOX_FRAME_FILE, "run.sh", 0755,
					       "#!/bin/sh\ncat data/in.txt >out.txt\n", 35, &err),
			 0);
	ck_assert_int_eq(nsbox_files_end(fd, &err), 0);
	ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

struct seen {
	unsigned files, notes;
	char names[256];
};

static void on_file(void *ctx, int kind, const char *path, uint64_t size, const char *note)
{
	struct seen *s = ctx;
	size_t n = strlen(s->names);

	s->files += kind == NSBOX_FRAME_FILE;
	s->notes += kind == NSBOX_FRAME_NOTE;
	nsbox_format(s->names + n, (int)(sizeof(s->names) - n), "%s:%llu ", path,
		     (unsigned long long)size);
}

START_TEST(events_in_order)
{
	static const struct nsbox_output rules[] = { { "*.txt", 1000, 10 } };
	char dir[] = "/tmp/nsbox-life.XXXXXX", text[64];
	auto_close int files = files_in(), out = memfd_create("out", MFD_CLOEXEC);
	struct nsbox_sandbox *sb = box_new(plan, files);
	struct nsbox_error err = { 0 };
	struct seen seen = { 0 };
	struct nsbox_event ev;
	auto_close int dir_fd = -1, copy = -1;

	box_sh(sb, "./run.sh", false, -1); /* at once: it waits until the sandbox is ready */
	ev = box_expect(sb, NSBOX_EVENT_READY);
	ck_assert_uint_ne(ev.result.enforced, 0);
	ev = box_expect(sb, NSBOX_EVENT_STARTED);
	ck_assert_uint_eq(ev.id, 1);
	ev = box_expect(sb, NSBOX_EVENT_EXITED);
	ck_assert_uint_eq(ev.id, 1);
	ck_assert_int_eq(ev.result.exit_status, 0);
	ck_assert_int_eq(nsbox_sandbox_collect(sb, NULL, rules, 1, out, &err), 0);
	ev = box_expect(sb, NSBOX_EVENT_COLLECTED);
	ck_assert_msg(ev.error.code == 0, "%s", ev.error.msg);
	ck_assert_int_eq(kill(sb->pid, SIGKILL), 0);
	box_expect(sb, NSBOX_EVENT_GONE);
	ck_assert_int_eq(nsbox_sandbox_next(sb, 50, &ev, &err), 0);
	ck_assert_uint_eq(ev.kind, NSBOX_EVENT_NONE);
	nsbox_sandbox_free(sb);

	ck_assert_ptr_nonnull(mkdtemp(dir));
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(lseek(out, 0, SEEK_SET), 0);
	ck_assert_msg(nsbox_files_receive_dir(out, dir_fd, &NSBOX_FILES_LIMITS_DEFAULT, on_file,
					      &seen, &err) == 0,
		      "%s", err.msg);
	ck_assert_str_eq(seen.names, "out.txt:6 ");
	copy = openat(dir_fd, "out.txt", O_RDONLY | O_CLOEXEC);
	box_slurp(copy, text, sizeof(text));
	ck_assert_str_eq(text, "hello\n");
	unlinkat(dir_fd, "out.txt", 0);
	rmdir(dir);
}
END_TEST

START_TEST(files_that_break_off)
{
	auto_close int fd = memfd_create("files", MFD_CLOEXEC);
	struct nsbox_event ev;
	struct nsbox_sandbox *sb;

	nsbox_files_put_frame(fd, NSBOX_FRAME_FILE, "a", 0644, "hello\n", 6, NULL);
	ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
	sb = box_new(plan, fd);
	box_sh(sb, "echo ran", false, -1);
	ev = box_expect(sb, NSBOX_EVENT_FAILED);
	ck_assert_int_eq(ev.error.stage, NSBOX_STAGE_FILES);
	ck_assert_uint_eq(ev.result.cause, NSBOX_CAUSE_SANDBOX);
	nsbox_sandbox_free(sb);
}
END_TEST

START_TEST(many_runs_in_one)
{
	auto_close int out = memfd_create("out", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct nsbox_sandbox *sb = box_new(plan, -1);
	char text[64];

	box_expect(sb, NSBOX_EVENT_READY);
	for (uint32_t i = 1; i <= 5; i++) {
		struct nsbox_event ev;

		box_sh(sb, "echo x >>count; wc -l <count", true, out);
		ev = box_expect(sb, NSBOX_EVENT_STARTED);
		ck_assert_uint_eq(ev.id, i);
		ev = box_expect(sb, NSBOX_EVENT_EXITED);
		ck_assert_uint_eq(ev.id, i);
		ck_assert_int_eq(ev.result.exit_status, 0);
	}
	nsbox_sandbox_free(sb);
	box_slurp(out, text, sizeof(text));
	ck_assert_str_eq(text, "1\n2\n3\n4\n5\n");
}
END_TEST

START_TEST(requests_out_of_place)
{
	static const char *const argv[] = { "true", NULL };
	const struct nsbox_exec ex = { .argv = argv };
	const struct nsbox_io io = NSBOX_IO_NONE;
	auto_close int out = memfd_create("out", MFD_CLOEXEC);
	struct nsbox_sandbox *sb = box_new(plan, -1);
	struct nsbox_error err = { 0 };

	box_expect(sb, NSBOX_EVENT_READY);
	ck_assert_int_eq(nsbox_sandbox_kill(sb, 0, NSBOX_CAUSE_CANCELLED, 0, &err), -ESRCH);
	box_sh(sb, "sleep 30", false, -1);
	box_expect(sb, NSBOX_EVENT_STARTED);
	ck_assert_int_eq(nsbox_sandbox_exec(sb, &ex, &io, NULL, &err), -EBUSY);
	ck_assert_int_eq(err.code, NSBOX_E_INVALID);
	ck_assert_int_eq(nsbox_sandbox_collect(sb, NULL, NULL, 0, out, &err), -EBUSY);
	ck_assert_int_eq(nsbox_sandbox_kill(sb, 0, NSBOX_CAUSE_CANCELLED, 0, &err), 0);
	box_expect(sb, NSBOX_EVENT_EXITED);
	ck_assert_int_eq(nsbox_sandbox_collect(sb, NULL, NULL, 0, out, &err), 0);
	box_expect(sb, NSBOX_EVENT_COLLECTED);
	nsbox_sandbox_free(sb);
	nsbox_sandbox_free(NULL);
}
END_TEST

/* ------------------------------------------------------------------ ending */

static void short_grace(struct plan_fixed *f)
{
	f->limits.grace_ms = 300 * box_slow();
}

static const struct {
	const char *script;
	int cause, signal;
} kills[] = {
	{ "exec sleep 30", NSBOX_CAUSE_CANCELLED, SIGTERM },
	{ "trap '' TERM; echo x; while :; do sleep 1; done", NSBOX_CAUSE_CANCELLED, SIGKILL },
	/* A clean end on request is still by request. */
	{ "trap 'exit 0' TERM; sleep 30 & echo x; wait", NSBOX_CAUSE_CANCELLED, 0 },
	{ "exec sleep 30", NSBOX_CAUSE_OUTPUT, SIGTERM },
};

START_TEST(killed)
{
	struct nsbox_plan *quick = box_plan(NULL, short_grace);
	struct nsbox_sandbox *sb = box_new(quick, -1);
	struct nsbox_event ev;
	int p[2];
	char c;

	ck_assert_int_eq(pipe2(p, O_CLOEXEC), 0);
	box_sh(sb, kills[_i].script, false, p[1]);
	close(p[1]);
	box_expect(sb, NSBOX_EVENT_READY);
	box_expect(sb, NSBOX_EVENT_STARTED);
	if (strstr(kills[_i].script, "echo x")) /* its trap is set */
		ck_assert_int_eq(read(p[0], &c, 1), 1);
	ck_assert_int_eq(nsbox_sandbox_kill(sb, 0, kills[_i].cause, 0, NULL), 0);
	ev = box_expect(sb, NSBOX_EVENT_EXITED);
	ck_assert_uint_eq(ev.result.cause, (uint32_t)kills[_i].cause);
	ck_assert_int_eq(ev.result.signal, kills[_i].signal);
	ck_assert_uint_lt(ev.result.wall_us, UINT64_C(4000000) * box_slow());
	close(p[0]);
	nsbox_sandbox_free(sb);
	nsbox_plan_close(quick);
}
END_TEST

/* A signal that is passed on ends nothing by itself, and is no one's cause. */
START_TEST(signalled)
{
	auto_close int out = memfd_create("out", MFD_CLOEXEC);
	struct nsbox_sandbox *sb = box_new(plan, -1);
	const struct timespec pause = { 0, 20000000 };
	char text[64] = "";
	struct nsbox_event ev;

	box_sh(sb, "trap 'echo int; exit 5' INT; echo up; while :; do sleep 0.05; done", false,
	       out);
	box_expect(sb, NSBOX_EVENT_READY);
	box_expect(sb, NSBOX_EVENT_STARTED);
	for (int i = 0; i < 200 && !*text; i++) {
		nanosleep(&pause, NULL);
		box_slurp(out, text, sizeof(text));
	}
	ck_assert_int_eq(nsbox_sandbox_kill(sb, 0, 0, SIGINT, NULL), 0);
	ev = box_expect(sb, NSBOX_EVENT_EXITED);
	ck_assert_uint_eq(ev.result.cause, NSBOX_CAUSE_EXIT);
	ck_assert_int_eq(ev.result.exit_status, 5);
	box_slurp(out, text, sizeof(text));
	ck_assert_str_eq(text, "up\nint\n");
	nsbox_sandbox_free(sb);
}
END_TEST

static const char daemonise[] =
	"setsid sh -c 'trap \"\" HUP TERM; sleep 100' </dev/null >/dev/null 2>&1 & exit 0";

START_TEST(left_behind)
{
	bool keep_rest = _i;
	struct nsbox_sandbox *sb = box_new(plan, -1);
	pid_t children[16], init = sb->pid;
	int n;

	box_sh(sb, daemonise, keep_rest, -1);
	box_expect(sb, NSBOX_EVENT_READY);
	box_expect(sb, NSBOX_EVENT_STARTED);
	ck_assert_uint_eq(box_expect(sb, NSBOX_EVENT_EXITED).result.cause, NSBOX_CAUSE_EXIT);
	n = box_children(init, children, ARRAY_SIZE(children));
	if (!keep_rest) {
		ck_assert_int_eq(n, 0);
	} else {
		/* It lives on, also through another command, and ends with the sandbox. */
		ck_assert_int_ge(n, 1);
		box_sh(sb, "exit 0", true, -1);
		box_expect(sb, NSBOX_EVENT_STARTED);
		box_expect(sb, NSBOX_EVENT_EXITED);
		ck_assert(!box_gone(children[0]));
	}
	nsbox_sandbox_free(sb);
	for (int i = 0; i < n; i++)
		ck_assert(box_gone(children[i]));
	ck_assert(box_gone(init));
}
END_TEST

/* The main program of a kept sandbox is killed: its session mates are not. */
START_TEST(kill_in_a_session)
{
	struct nsbox_plan *quick = box_plan(NULL, short_grace);
	struct nsbox_sandbox *sb = box_new(quick, -1);
	pid_t children[16];

	box_sh(sb, daemonise, true, -1);
	box_expect(sb, NSBOX_EVENT_READY);
	box_expect(sb, NSBOX_EVENT_STARTED);
	box_expect(sb, NSBOX_EVENT_EXITED);
	ck_assert_int_eq(box_children(sb->pid, children, ARRAY_SIZE(children)), 1);
	box_sh(sb, "trap '' TERM; sleep 30", true, -1);
	box_expect(sb, NSBOX_EVENT_STARTED);
	ck_assert_int_eq(nsbox_sandbox_kill(sb, 0, NSBOX_CAUSE_CANCELLED, 0, NULL), 0);
	ck_assert_uint_eq(box_expect(sb, NSBOX_EVENT_EXITED).result.cause, NSBOX_CAUSE_CANCELLED);
	ck_assert(!box_gone(children[0]));
	nsbox_sandbox_free(sb);
	ck_assert(box_gone(children[0]));
	nsbox_plan_close(quick);
}
END_TEST

START_TEST(init_dies)
{
	struct nsbox_sandbox *sb = box_new(plan, -1);
	struct nsbox_event ev;

	box_sh(sb, "exec sleep 30", false, -1);
	box_expect(sb, NSBOX_EVENT_READY);
	box_expect(sb, NSBOX_EVENT_STARTED);
	ck_assert_int_eq(kill(sb->pid, SIGKILL), 0);
	ev = box_expect(sb, NSBOX_EVENT_EXITED);
	ck_assert_uint_eq(ev.result.cause, NSBOX_CAUSE_INTERRUPTED);
	box_expect(sb, NSBOX_EVENT_GONE);
	nsbox_sandbox_free(sb);
}
END_TEST

/* ------------------------------------------------------------------ the owner goes */

/* In a process of its own: make a sandbox, say who lives in it, wait to be killed. */
static _Noreturn void own(int tell)
{
	struct nsbox_plan *mine = box_plan(NULL, NULL);
	struct nsbox_sandbox *sb = box_new(mine, -1);
	pid_t pids[3] = { sb->pid };

	signal(SIGTERM, SIG_DFL); /* Check's own handler ends the test */
	box_sh(sb, "sleep 100 & setsid sleep 100 & wait", false, -1);
	box_expect(sb, NSBOX_EVENT_READY);
	box_expect(sb, NSBOX_EVENT_STARTED);
	while (box_children(sb->pid, pids + 1, 1) < 1 || box_children(pids[1], pids + 2, 1) < 1)
		;
	write_full(tell, pids, sizeof(pids));
	for (;;)
		pause();
}

START_TEST(owner_killed)
{
	int signal = _i ? SIGKILL : SIGTERM, p[2];
	pid_t owner, pids[3];

	ck_assert_int_eq(pipe2(p, O_CLOEXEC), 0);
	owner = fork();
	if (owner == 0)
		own(p[1]);
	close(p[1]);
	ck_assert_int_eq(read_full(p[0], pids, sizeof(pids)), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(pids); i++)
		ck_assert(!box_gone(pids[i]));
	kill(owner, signal);
	waitpid(owner, NULL, 0);
	for (unsigned i = 0; i < ARRAY_SIZE(pids); i++)
		ck_assert(box_wait_gone(pids[i], 1000));
	close(p[0]);
	nsbox_sweep(); /* as the next owner does */
}
END_TEST

/* ------------------------------------------------------------------ ids */

static unsigned outside_uid(pid_t pid)
{
	char path[40], text[4096];
	const char *p;

	nsbox_format(path, sizeof(path), "/proc/%d/status", (int)pid);
	ck_assert_int_gt(read_small_file(AT_FDCWD, path, text, sizeof(text)), 0);
	p = strstr(text, "\nUid:");
	ck_assert_ptr_nonnull(p);
	return (unsigned)strtoul(p + 5, NULL, 10);
}

START_TEST(ids_of_two)
{
	struct nsbox_sandbox *sb[2] = { box_new(plan, -1), box_new(plan, -1) };
	bool privileged = box_host.ids_kind == NSBOX_IDS_PRIVILEGED;
	unsigned payload[2], init[2];

	for (int i = 0; i < 2; i++) {
		pid_t child;

		box_sh(sb[i], "exec sleep 30", false, -1);
		box_expect(sb[i], NSBOX_EVENT_READY);
		box_expect(sb[i], NSBOX_EVENT_STARTED);
		ck_assert_int_eq(box_children(sb[i]->pid, &child, 1), 1);
		payload[i] = outside_uid(child);
		init[i] = outside_uid(sb[i]->pid);
	}
	nsbox_sandbox_free(sb[0]);
	nsbox_sandbox_free(sb[1]);
	if (!privileged) {
		ck_assert_uint_eq(payload[0], getuid());
		ck_assert_uint_eq(payload[1], getuid());
		return;
	}
	ck_assert_uint_ne(payload[0], payload[1]);
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_ge(payload[i], IDS_PAYLOAD_BASE);
		ck_assert_uint_ne(payload[i], init[i]);
		ck_assert_uint_ne(init[i], 0);
	}
}
END_TEST

/* ------------------------------------------------------------------ layers the host lacks */

static int the_layer;

static void require_it(struct plan_fixed *f)
{
	f->layer[the_layer] = NSBOX_REQUIRE;
}

static void prefer_it(struct plan_fixed *f)
{
	f->layer[the_layer] = NSBOX_PREFER;
}

static void run_without(struct box_run *run, void (*fn)(struct plan_fixed *))
{
	struct nsbox_plan *p = box_plan(NULL, fn);

	*run = (struct box_run){ .plan = p, .layers = box_layers & ~NSBOX_LAYER_BIT(the_layer) };
	box_run_sh(run, "echo RAN");
	nsbox_plan_close(p);
}

START_TEST(required_and_missing)
{
	struct box_run run;

	the_layer = _i;
	run_without(&run, require_it);
	ck_assert_int_lt(run.ret, 0);
	ck_assert_int_eq(run.err.code, NSBOX_E_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(run.err.msg, nsbox_layer_name(_i)));
	ck_assert_str_eq(run.out, "");
}
END_TEST

/* No policy lowers these: init's kill(-1) and its mounts would meet the host's. */
static const int foundation[] = {
	NSBOX_LAYER_USER, NSBOX_LAYER_MOUNT, NSBOX_LAYER_PID,
	NSBOX_LAYER_NET,  NSBOX_LAYER_ROOT,  NSBOX_LAYER_OVERLAY,
};

static void turn_it_off(struct plan_fixed *f)
{
	f->layer[the_layer] = NSBOX_OFF;
}

static void refused_without_foundation(const struct box_run *run)
{
	ck_assert_int_lt(run->ret, 0);
	ck_assert_int_eq(run->err.code, NSBOX_E_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(run->err.msg, nsbox_layer_name(the_layer)));
	ck_assert_str_eq(run->out, "");
}

START_TEST(without_foundation)
{
	struct nsbox_plan *p;
	struct box_run run;

	the_layer = foundation[_i];
	run_without(&run, prefer_it);
	refused_without_foundation(&run);
	p = box_plan(NULL, turn_it_off);
	run = (struct box_run){ .plan = p };
	box_run_sh(&run, "echo RAN");
	refused_without_foundation(&run);
	nsbox_plan_close(p);
}
END_TEST

/* What a sandbox can be without. */
static const int optional[] = {
	NSBOX_LAYER_IPC,
	NSBOX_LAYER_UTS,
	NSBOX_LAYER_CGROUP_NS,
	NSBOX_LAYER_PROC,
	NSBOX_LAYER_LANDLOCK_FS,
	NSBOX_LAYER_LANDLOCK_TCP,
	NSBOX_LAYER_LANDLOCK_SCOPES,
	NSBOX_LAYER_NFTABLES,
	NSBOX_LAYER_CGROUP,
};

START_TEST(preferred_and_missing)
{
	uint32_t bit = NSBOX_LAYER_BIT(optional[_i]);
	struct box_run run;

	the_layer = optional[_i];
	run_without(&run, prefer_it);
	ck_assert_msg(run.ret == 0 && run.res.exit_status == 0, "%s %s", run.err.msg,
		      run.res.error.msg);
	ck_assert_str_eq(run.out, "RAN\n");
	ck_assert_uint_eq(run.res.not_enforced & bit, bit);
	ck_assert_uint_eq(run.res.enforced & bit, 0);
}
END_TEST

START_TEST(all_accounted_for)
{
	struct box_run run = { 0 };
	struct nsbox_plan *p = box_plan(NULL, NULL);
	const struct plan_fixed *f = blob_fixed(plan_blob(p), struct plan_fixed);

	box_run_sh(&run, "echo RAN");
	for (int i = 0; i < NSBOX_LAYER_MAX; i++) {
		uint32_t bit = NSBOX_LAYER_BIT(i);
		bool on = run.res.enforced & bit, off = run.res.not_enforced & bit;

		ck_assert_msg((on || off) == (f->layer[i] != NSBOX_OFF) && !(on && off), "%s",
			      nsbox_layer_name(i));
		ck_assert(!off || f->layer[i] == NSBOX_PREFER);
		ck_assert(!off || !(box_layers & bit));
	}
	nsbox_plan_close(p);
}
END_TEST

/* ------------------------------------------------------------------ plans without substance */

/* The layer is there and asked for, and the plan holds nothing to make it of. */
static const struct {
	int layer;
	enum blob_section empty; /* SEC_MAX: none, drop is what is taken out */
	enum mount_op_kind drop;
} hollow[] = {
	{ NSBOX_LAYER_NFTABLES, SEC_NFT, OP_KIND_MAX },
	{ NSBOX_LAYER_PROC, SEC_MAX, OP_PROC },
	{ NSBOX_LAYER_LANDLOCK_FS, SEC_LANDLOCK, OP_KIND_MAX },
	{ NSBOX_LAYER_LANDLOCK_TCP, SEC_MAX, OP_KIND_MAX },
};

static struct nsbox_plan *hollow_plan(int i, int requirement)
{
	const struct blob *full = plan_blob(plan);
	struct blob_builder *b = kit_rebuild(full);
	struct plan_fixed f = kit_fixed(full);
	size_t n;
	const struct mount_op *ops = blob_get(full, SEC_OPS, sizeof(*ops), &n);

	f.layer[hollow[i].layer] = (uint8_t)requirement;
	if (hollow[i].layer == NSBOX_LAYER_LANDLOCK_FS)
		f.landlock_fs = 0;
	kit_set_fixed(b, &f);
	if (hollow[i].empty != SEC_MAX)
		blob_set(b, hollow[i].empty, NULL, 0);
	if (hollow[i].drop != OP_KIND_MAX) {
		blob_set(b, SEC_OPS, NULL, 0);
		for (size_t j = 0; j < n; j++) /* nor what hides parts of it */
			if (ops[j].kind != hollow[i].drop && ops[j].kind != OP_MASK)
				blob_append(b, SEC_OPS, &ops[j], sizeof(ops[j]));
	}
	return kit_open(b);
}

START_TEST(nothing_to_make_it_of)
{
	uint32_t bit = NSBOX_LAYER_BIT(hollow[_i].layer);
	struct nsbox_plan *p;
	struct box_run run;

	if (!(box_layers & bit))
		return;
	p = hollow_plan(_i, NSBOX_REQUIRE);
	run = (struct box_run){ .plan = p };
	box_run_sh(&run, "echo RAN");
	ck_assert_int_eq(run.ret, 0);
	ck_assert_uint_eq(run.res.cause, NSBOX_CAUSE_SANDBOX);
	ck_assert_int_eq(run.res.error.code, NSBOX_E_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(run.res.error.msg, nsbox_layer_name(hollow[_i].layer)));
	ck_assert_str_eq(run.out, "");
	nsbox_plan_close(p);
	p = hollow_plan(_i, NSBOX_PREFER);
	run = (struct box_run){ .plan = p };
	box_run_sh(&run, "echo RAN");
	ck_assert_str_eq(run.out, "RAN\n");
	ck_assert_uint_eq(run.res.not_enforced & bit, bit);
	nsbox_plan_close(p);
}
END_TEST

/*
 * A template that has forked and ends before it says so: the fork, of which nobody knows, has the control
 * socket. It must not hear what is said to the init that is made instead.
 */
static pid_t start_mute_template(int *ret_sock)
{
	int pair[2], fds[TEMPLATE_FDS];
	unsigned n = ARRAY_SIZE(fds);
	struct template_request q;
	char heard;
	pid_t pid;

	ck_assert_int_eq(ctl_pair(pair), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		close(pair[0]);
		if (ctl_recv(pair[1], &q, sizeof(q), fds, &n, 0) < 0 || n < TEMPLATE_CGROUP)
			_exit(2);
		close(pair[1]);
		_exit(recv(fds[TEMPLATE_CONTROL], &heard, sizeof(heard), 0) == 0 ? 0 : 1);
	}
	close(pair[1]);
	*ret_sock = pair[0];
	return pid;
}

START_TEST(template_ends_unheard)
{
	struct nsbox_sandbox_options opt = { .layers = box_layers, .files_fd = -1 };
	struct nsbox_sandbox *sb = NULL;
	struct nsbox_error err = { 0 };
	int status = -1;
	pid_t pid;

	if (!(box_layers & NSBOX_LAYER_BIT(NSBOX_LAYER_LANDLOCK_FS)))
		return; /* none is asked */
	pid = start_mute_template(&opt.template);
	ck_assert_msg(nsbox_sandbox_new(plan, box_root, &opt, &sb, &err) == 0, "%s", err.msg);
	box_expect(sb, NSBOX_EVENT_READY);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "it heard something: %d",
		      status);
	box_sh(sb, "true", false, -1);
	box_expect(sb, NSBOX_EVENT_STARTED);
	ck_assert_int_eq(box_expect(sb, NSBOX_EVENT_EXITED).result.exit_status, 0);
	nsbox_sandbox_free(sb);
	close(opt.template);
}
END_TEST

/* A step of the set-up that the plan makes fail: told by its name, and nothing ran. */
START_TEST(set_up_fails)
{
	for (unsigned flags = 0; flags <= OPF_OPTIONAL; flags += OPF_OPTIONAL) {
		struct blob_builder *b = kit_rebuild(plan_blob(plan));
		struct nsbox_plan *p;
		struct box_run run;

		blob_op(b, OP_MASK, flags, 0, NULL, "/not/there", 0);
		p = kit_open(b);
		run = (struct box_run){ .plan = p };
		box_run_sh(&run, "echo RAN");
		ck_assert_int_eq(run.ret, 0);
		if (flags) { /* the twin */
			ck_assert_str_eq(run.out, "RAN\n");
		} else {
			ck_assert_str_eq(run.out, "");
			ck_assert_uint_eq(run.res.cause, NSBOX_CAUSE_SANDBOX);
			ck_assert_int_eq(run.res.error.stage, NSBOX_STAGE_MASK);
			ck_assert_ptr_nonnull(strstr(run.res.error.msg, "/not/there"));
		}
		nsbox_plan_close(p);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("life");
	TCase *tc = tcase_create("life");
	int status;

	if (!box_prepare(&status))
		return status;
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, events_in_order);
	tcase_add_test(tc, files_that_break_off);
	tcase_add_test(tc, many_runs_in_one);
	tcase_add_test(tc, requests_out_of_place);
	tcase_add_loop_test(tc, killed, 0, ARRAY_SIZE(kills));
	tcase_add_test(tc, signalled);
	tcase_add_loop_test(tc, left_behind, 0, 2);
	tcase_add_test(tc, kill_in_a_session);
	tcase_add_test(tc, init_dies);
	tcase_add_loop_test(tc, owner_killed, 0, 2);
	tcase_add_test(tc, ids_of_two);
	tcase_add_loop_test(tc, required_and_missing, 0, NSBOX_LAYER_MAX);
	tcase_add_loop_test(tc, preferred_and_missing, 0, ARRAY_SIZE(optional));
	tcase_add_loop_test(tc, without_foundation, 0, ARRAY_SIZE(foundation));
	tcase_add_test(tc, all_accounted_for);
	tcase_add_loop_test(tc, nothing_to_make_it_of, 0, ARRAY_SIZE(hollow));
	tcase_add_test(tc, template_ends_unheard);
	tcase_add_test(tc, set_up_fails);
	suite_add_tcase(s, tc);
	return box_finish(s);
}
