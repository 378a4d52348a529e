/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does the witness see a hole? Two ways to ask.
 *
 * Runs whose plan or root list was changed so that a layer does not hold: the run must end before
 * the program starts, naming the act. Their twin is the same plan, taken apart and put together.
 *
 * Acts alone: witness_run() in a process that stands where one act succeeds and, for the twin,
 * where only that one thing is different and it is refused.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <linux/seccomp.h>

#include "nsbox/child.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"
#include "overlay/root.h"
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

/* ------------------------------------------------------------------ runs with a hole */

#define FS(x) LANDLOCK_ACCESS_FS_##x
#define WRITING                                                                                    \
	(FS(READ_FILE) | FS(READ_DIR) | FS(EXECUTE) | FS(WRITE_FILE) | FS(MAKE_REG) |              \
	 FS(REMOVE_FILE))

static void allow_all(struct blob_builder *b, enum blob_section sec)
{
	const struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);

	blob_set(b, sec, &allow, sizeof(allow));
}

static void no_filters(struct blob_builder *b)
{
	allow_all(b, SEC_BPF);
	allow_all(b, SEC_BPF_INIT);
}

static void grant_hidden(struct blob_builder *b)
{
	blob_landlock(b, "/.nsbox", FS(READ_FILE), false);
}

static void grant_everything(struct blob_builder *b)
{
	blob_landlock(b, "/", FS(READ_FILE), false);
}

/* Landlock leaves /usr to the mounts alone. */
static void grant_usr(struct blob_builder *b)
{
	blob_landlock(b, "/usr", WRITING, false);
}

static void tmpfs_on_usr(struct blob_builder *b)
{
	blob_op(b, OP_TMPFS, OPF_OWNER_PAYLOAD, 0755, NULL, "/usr", 1 << 20);
	grant_usr(b);
}

static void nothing(struct blob_builder *b)
{
}

static const struct {
	const char *name;
	void (*change)(struct blob_builder *);
	int act; /* that must succeed, or -1: the run is whole */
	int layer;
} holes[] = {
	{ "as it was", nothing, -1, 0 },
	{ "no filters", no_filters, NSBOX_WITNESS_SYSCALL, NSBOX_LAYER_SECCOMP },
	{ "/.nsbox is readable", grant_hidden, NSBOX_WITNESS_LANDLOCK, NSBOX_LAYER_LANDLOCK_FS },
	{ "all is readable", grant_everything, NSBOX_WITNESS_LANDLOCK, NSBOX_LAYER_LANDLOCK_FS },
	{ "a tmpfs of the payload's on /usr", tmpfs_on_usr, NSBOX_WITNESS_WRITE, NSBOX_LAYER_ROOT },
	{ "/usr by Landlock alone", grant_usr, -1, 0 },
};

static void expect_hole(const struct box_run *run, int act)
{
	ck_assert_msg(run->ret == 0, "%s", run->err.msg);
	ck_assert_str_eq(run->out, "");
	ck_assert_str_eq(nsbox_cause_name((int)run->res.cause), "sandbox");
	ck_assert_int_eq(run->res.error.code, NSBOX_E_SANDBOX);
	ck_assert_int_eq(run->res.error.stage, NSBOX_STAGE_WITNESS);
	ck_assert_msg(strstr(run->res.error.msg, nsbox_witness_text(act)), "%s",
		      run->res.error.msg);
	/* What was not shown is not claimed. */
	ck_assert_uint_eq(run->res.enforced & NSBOX_LAYER_BIT(NSBOX_LAYER_WITNESS), 0);
}

static void expect_whole(const struct box_run *run)
{
	ck_assert_msg(run->ret == 0 && run->res.exit_status == 0, "%s %s", run->err.msg,
		      run->res.error.msg);
	ck_assert_str_eq(run->out, "RAN\n");
	ck_assert_uint_eq(run->res.witness_held, run->res.witness_tried);
	ck_assert_uint_ne(run->res.enforced & NSBOX_LAYER_BIT(NSBOX_LAYER_WITNESS), 0);
}

START_TEST(hole)
{
	struct blob_builder *b = kit_rebuild(plan_blob(plan));
	struct box_run run = { 0 };
	struct nsbox_plan *p;

	holes[_i].change(b);
	p = kit_open(b);
	run.plan = p;
	box_run_sh(&run, "echo RAN");
	if (holes[_i].act < 0)
		expect_whole(&run);
	else if (box_layers & NSBOX_LAYER_BIT(holes[_i].layer))
		expect_hole(&run, holes[_i].act);
	nsbox_plan_close(p);
}
END_TEST

START_TEST(all_acts_are_tried)
{
	struct box_run run = { 0 };
	uint32_t all = (1U << NSBOX_WITNESS_MAX) - 1;

	box_run_sh(&run, "echo RAN; ls -a / /usr | grep -c nsbox-witness");
	if (!(box_layers & NSBOX_LAYER_BIT(NSBOX_LAYER_LANDLOCK_FS)))
		all &= ~(1U << NSBOX_WITNESS_LANDLOCK);
	ck_assert_uint_eq(run.res.witness_tried, all);
	ck_assert_uint_eq(run.res.witness_held, all);
	ck_assert_str_eq(run.out, "RAN\n0\n");
}
END_TEST

/* Where what it would try to read is not there, nothing runs: a witness that cannot see is none. */
START_TEST(nothing_to_read)
{
	struct blob_builder *b = kit_rebuild(plan_blob(plan));
	struct box_run run = { 0 };

	if (!(box_layers & NSBOX_LAYER_BIT(NSBOX_LAYER_LANDLOCK_FS)))
		return;
	blob_op(b, OP_TMPFS, 0, 0755, NULL, "/.nsbox", 1 << 20);
	run.plan = kit_open(b);
	box_run_sh(&run, "echo RAN");
	ck_assert_str_eq(run.out, "");
	ck_assert_str_eq(nsbox_cause_name((int)run.res.cause), "sandbox");
	ck_assert_int_eq(run.res.error.stage, NSBOX_STAGE_LANDLOCK);
	ck_assert_msg(strstr(run.res.error.msg, WITNESS_FILE), "%s", run.res.error.msg);
	nsbox_plan_close((struct nsbox_plan *)run.plan);
}
END_TEST

START_TEST(cost_is_told)
{
	struct box_run run = { 0 };

	box_run_sh(&run, "echo RAN");
	expect_whole(&run);
	ck_assert_uint_gt(run.res.witness_us, 0);
	ck_assert_uint_le(run.res.witness_us, run.res.start_us); /* which has it in it */
}
END_TEST

/* A root list that shows a directory anyone may write as /usr. */
static void *root_with_usr(const char *src, unsigned flags, size_t *ret_len)
{
	const struct blob *root = nsbox_root_blob(box_root);
	struct blob_builder *b = kit_rebuild(root);
	size_t n;
	const struct mount_op *ops = blob_get(root, SEC_OPS, sizeof(*ops), &n);

	blob_set(b, SEC_OPS, NULL, 0);
	for (size_t i = 0; i < n; i++)
		if (ops[i].kind != OP_BIND || strcmp(blob_get_str(root, ops[i].dst), "/usr") != 0)
			blob_append(b, SEC_OPS, &ops[i], sizeof(ops[i]));
	blob_op(b, OP_BIND, flags, 0, src, "/usr", 0);
	return kit_bytes(b, ret_len);
}

START_TEST(writable_bind)
{
	struct blob *root = (struct blob *)nsbox_root_blob(box_root), was = *root;
	char dir[] = "/tmp/nsbox-witness.XXXXXX";
	struct blob_builder *b = kit_rebuild(plan_blob(plan));
	struct nsbox_plan *p;
	struct box_run run = { 0 };

	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(chmod(dir, 0777), 0);
	grant_usr(b);
	p = kit_open(b);
	for (unsigned flags = 0; flags <= OPF_RDONLY; flags += OPF_RDONLY) {
		size_t len;
		auto_free void *bytes = root_with_usr(dir, flags, &len);

		*root = (struct blob){ bytes, len };
		run = (struct box_run){ .plan = p };
		box_run_sh(&run, "echo RAN");
		if (!flags) {
			expect_hole(&run, NSBOX_WITNESS_WRITE);
		} else { /* the twin, held by its mount: the witness lets pass, but there is no sh */
			ck_assert_msg(run.res.cause == NSBOX_CAUSE_EXEC, "%s", run.res.error.msg);
			ck_assert_int_eq(run.res.exit_status, 127);
		}
		*root = was;
	}
	ck_assert_int_eq(rmdir(dir), 0); /* and nothing was left in it */
	nsbox_plan_close(p);
}
END_TEST

/* ------------------------------------------------------------------ acts alone */

/* Where a lone witness stands; holes found come back as an exit status of `tried & ~held`. */
static void map_self(uid_t uid, gid_t gid)
{
	char map[40];

	write_small_file(AT_FDCWD, "/proc/self/setgroups", "deny");
	nsbox_format(map, sizeof(map), "0 %u 1", (unsigned)uid);
	if (write_small_file(AT_FDCWD, "/proc/self/uid_map", map) < 0)
		_exit(255);
	nsbox_format(map, sizeof(map), "0 %u 1", (unsigned)gid);
	if (write_small_file(AT_FDCWD, "/proc/self/gid_map", map) < 0)
		_exit(255);
}

static void enter(int flags)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | flags) < 0)
		_exit(255);
	map_self(uid, gid);
	/* Nothing of the real /usr is to be touched, whoever runs this. */
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", "/usr", "tmpfs", MS_RDONLY, NULL) < 0)
		_exit(255);
}

static void drop_all(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	for (int cap = 0; cap < 64; cap++)
		prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	if (syscall(SYS_capset, &head, data) < 0)
		_exit(255);
}

/* A filter that refuses mount(2) and is one, for PR_GET_SECCOMP. */
static void filter(void)
{
	const struct sock_filter prog[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* the number */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mount, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog fprog = { ARRAY_SIZE(prog), (struct sock_filter *)prog };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &fprog) < 0)
		_exit(255);
}

/* All that the witness asks of a plan and a root list: that they grant and add nothing. */
static const struct blob *no_blob(void)
{
	static const struct {
		struct blob_header head;
	} empty = { 0 };
	static const struct blob nothing = { (const unsigned char *)&empty, sizeof(empty) };

	return &nothing;
}

static _Noreturn void witness(uint32_t enforced, int owner)
{
	const struct child c = {
		.plan = no_blob(),
		.root = no_blob(),
		.enforced = enforced,
		.owner_pid = owner,
		.parent_pid = 1,
		.init_pid = 1,
	};
	struct ctl_report rep = { 0 };
	struct nsbox_error err = { 0 };
	int r = witness_run(&c, &rep, &err);
	uint32_t found = rep.tried & ~rep.held;

	if ((r < 0) != (found != 0) || (found && err.code != NSBOX_E_SANDBOX))
		_exit(254);
	_exit((int)found);
}

static uint32_t found_by(void (*stand)(int hole), int is_hole)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0)
		stand(is_hole);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) < 254, "status 0x%x",
		      (unsigned)status);
	return (uint32_t)WEXITSTATUS(status);
}

static void on_usr(int is_hole)
{
	enter(0);
	if (is_hole && mount("tmpfs", "/usr", "tmpfs", 0, NULL) < 0)
		_exit(255);
	witness(0, 0);
}

static void hidden_file(int is_hole)
{
	enter(0);
	if (mount("tmpfs", "/tmp", "tmpfs", 0, NULL) < 0 || chroot("/tmp") < 0 || chdir("/") < 0)
		_exit(255);
	mkdir(".nsbox", 0700);
	close(open(".nsbox/witness", O_CREAT | O_WRONLY | O_CLOEXEC, 0400));
	if (!is_hole)
		chmod(".nsbox/witness", 0);
	drop_all();
	witness(NSBOX_LAYER_BIT(NSBOX_LAYER_LANDLOCK_FS), 0);
}

/* 192.0.2.1 answers. */
static void on_net(int is_hole)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(9) };
	struct ifreq up = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	struct ifreq addr = { .ifr_name = "lo:1" };
	int fd;

	enter(0);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	sin.sin_addr.s_addr = inet_addr("192.0.2.1");
	memcpy(&addr.ifr_addr, &sin, sizeof(sin));
	if (ioctl(fd, SIOCSIFFLAGS, &up) < 0)
		_exit(255);
	if (is_hole && (ioctl(fd, SIOCSIFADDR, &addr) < 0 ||
			bind(fd, (struct sockaddr *)&sin, sizeof(sin)) < 0 || listen(fd, 1) < 0))
		_exit(255);
	witness(0, 0);
}

static void with_mount(int is_hole)
{
	enter(0);
	if (!is_hole)
		filter();
	witness(0, 0);
}

static _Noreturn void pass_on(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) < 0)
		_exit(255);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 255);
}

/* Pid 1 of a pid namespace; its child is the witness. */
static void below_init(int is_hole)
{
	pid_t pid;

	enter(CLONE_NEWPID);
	pid = fork();
	if (pid == 0) {
		if (!is_hole)
			prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
		pid = fork();
		if (pid == 0) {
			if (!is_hole)
				drop_all();
			witness(0, 0);
		}
	}
	pass_on(pid);
}

/* Pid 2, whose owner is said to be pid 3: there, or not. */
static void beside_owner(int is_hole)
{
	char c = 0;
	int go[2];
	pid_t pid;

	enter(CLONE_NEWPID);
	if (pipe2(go, O_CLOEXEC) < 0)
		_exit(255);
	pid = fork();
	if (pid == 0) {
		pid = fork();
		if (pid == 0) {
			if (read(go[0], &c, 1) != 1)
				_exit(255);
			witness(0, 3);
		}
		if (is_hole && fork() == 0)
			for (;;)
				pause();
		if (write(go[1], &c, 1) != 1)
			_exit(255);
	}
	pass_on(pid);
}

static void with_capabilities(int is_hole)
{
	enter(0);
	if (!is_hole) {
		drop_all();
		filter();
	}
	witness(0, 0);
}

static const struct {
	int act;
	void (*stand)(int hole);
} acts[] = {
	{ NSBOX_WITNESS_WRITE, on_usr },
	{ NSBOX_WITNESS_LANDLOCK, hidden_file },
	{ NSBOX_WITNESS_CONNECT, on_net },
	{ NSBOX_WITNESS_SYSCALL, with_mount },
	{ NSBOX_WITNESS_PTRACE, below_init },
	{ NSBOX_WITNESS_PROCESS, beside_owner },
	{ NSBOX_WITNESS_CAPABILITY, with_capabilities },
};

START_TEST(act)
{
	uint32_t bit = 1U << acts[_i].act;

	ck_assert_uint_eq(found_by(acts[_i].stand, 1) & bit, bit);
	ck_assert_uint_eq(found_by(acts[_i].stand, 0) & bit, 0);
}
END_TEST

_Static_assert(ARRAY_SIZE(acts) == NSBOX_WITNESS_MAX, "every act is tried alone");

int main(void)
{
	Suite *s = suite_create("witness");
	TCase *tc = tcase_create("witness");
	int status;

	if (!box_prepare(&status))
		return status;
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_loop_test(tc, hole, 0, ARRAY_SIZE(holes));
	tcase_add_test(tc, all_acts_are_tried);
	tcase_add_test(tc, nothing_to_read);
	tcase_add_test(tc, cost_is_told);
	tcase_add_test(tc, writable_bind);
	tcase_add_loop_test(tc, act, 0, ARRAY_SIZE(acts));
	suite_add_tcase(s, tc);
	return box_finish(s);
}
