/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every step from nsbox_run() to execve made to fail, by a seccomp filter in the owner that its
 * children inherit: nothing may run, the error must name the step, and nothing may be left. The
 * host was probed before, so that the step itself is met and not the probe of it.
 *
 * What may fail is listed as well, with what then holds instead; and the twin of all rows is the
 * run under a filter that fails a call which nobody makes.
 */
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "nsbox/util.h"
#include "tests/support/box_kit.h"

#ifdef __SANITIZE_ADDRESS__
/* The leak detector forks and traces at exit, behind our filters. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}
#endif

#define ANY (-1)

/* clang-format off */
static const struct fault {
	const char *call;
	int errnum;
	int arg;	 /* only where this argument has this value, ANY: always */
	uint64_t value;
	int stage;	 /* that the error must name */
	const char *text; /* and what its message must hold */
	bool privileged; /* the call is made by privileged owners alone */
} faults[] = {
	/* The owner. */
	{ "memfd_create", ENOSYS, ANY, 0, NSBOX_STAGE_COMPILE, "memfd", false },
	{ "epoll_create1", ENOSYS, ANY, 0, NSBOX_STAGE_NONE, "epoll", false },
	{ "timerfd_create", ENOSYS, ANY, 0, NSBOX_STAGE_NONE, "timer", false },
	{ "epoll_ctl", EPERM, ANY, 0, NSBOX_STAGE_NONE, "watch", false },
	{ "socketpair", EMFILE, ANY, 0, NSBOX_STAGE_NONE, "control socket", false },
	{ "mkdir", ENOSPC, ANY, 0, NSBOX_STAGE_IDS, "make '", true },
	{ "fcntl", EINVAL, 1, F_OFD_SETLK, NSBOX_STAGE_IDS, "lock a slot", true },
	{ "clone3", ENOSYS, ANY, 0, NSBOX_STAGE_CLONE, "clone3", false },
	{ "clone3", EPERM, ANY, 0, NSBOX_STAGE_CLONE, "namespaces", false },
	{ "clone3", ENOSPC, ANY, 0, NSBOX_STAGE_CLONE, "max_", false },
	{ "capget", EPERM, ANY, 0, NSBOX_STAGE_IDS, "map ids", true },
	/* Init, on its way. */
	{ "close_range", ENOSYS, ANY, 0, NSBOX_STAGE_CLONE, "descriptors", false },
	{ "dup2", EBADF, ANY, 0, NSBOX_STAGE_CLONE, "descriptors 0 to 2", false },
	{ "rt_sigaction", EPERM, ANY, 0, NSBOX_STAGE_CLONE, "signals", false },
	{ "setsid", EPERM, ANY, 0, NSBOX_STAGE_CLONE, "session", false },
	{ "setgroups", EPERM, ANY, 0, NSBOX_STAGE_IDS, "become root inside", true },
	{ "setresgid", EPERM, ANY, 0, NSBOX_STAGE_IDS, "become root inside", true },
	{ "setresuid", EPERM, ANY, 0, NSBOX_STAGE_IDS, "become root inside", true },
	{ "mount", EPERM, ANY, 0, NSBOX_STAGE_PROPAGATION, "private", false },
	{ "mount", EPERM, 3, MS_NOSUID | MS_NODEV, NSBOX_STAGE_SCRATCH, "tmpfs", false },
	{ "pivot_root", EPERM, ANY, 0, NSBOX_STAGE_SCRATCH, "pivot", false },
	{ "chdir", EACCES, ANY, 0, NSBOX_STAGE_SCRATCH, "tmpfs", false },
	{ "openat2", ENOSYS, ANY, 0, NSBOX_STAGE_OVERLAY, "upper layer", false },
	{ "mkdirat", ENOSPC, ANY, 0, NSBOX_STAGE_OVERLAY, "upper layer", false },
	{ "fchmod", EPERM, ANY, 0, NSBOX_STAGE_OVERLAY, "upper layer", false },
	{ "fchown", EPERM, ANY, 0, NSBOX_STAGE_OVERLAY, "upper layer", true },
	{ "fsopen", ENOSYS, ANY, 0, NSBOX_STAGE_DEV, "/dev", false },
	{ "fsconfig", EPERM, ANY, 0, NSBOX_STAGE_DEV, "/dev", false },
	{ "fsmount", EPERM, ANY, 0, NSBOX_STAGE_DEV, "/dev", false },
	{ "move_mount", EPERM, ANY, 0, NSBOX_STAGE_DEV, "/dev", false },
	{ "open_tree", ENOSYS, ANY, 0, NSBOX_STAGE_DEV, "/dev", false },
	{ "mount_setattr", ENOSYS, ANY, 0, NSBOX_STAGE_DEV, "/dev", false },
	{ "symlinkat", EPERM, ANY, 0, NSBOX_STAGE_DEV, "/dev", false },
	{ "fchdir", EACCES, ANY, 0, NSBOX_STAGE_PIVOT, "pivot", false },
	{ "umount2", EPERM, ANY, 0, NSBOX_STAGE_PIVOT, "detach", false },
	{ "socket", EAFNOSUPPORT, 0, AF_INET, NSBOX_STAGE_LOOPBACK, "loopback", false },
	{ "ioctl", EPERM, 1, 0x8914 /* SIOCSIFFLAGS */, NSBOX_STAGE_LOOPBACK, "loopback", false },
	{ "sethostname", EPERM, ANY, 0, NSBOX_STAGE_HOSTNAME, "host name", false },
	{ "keyctl", EPERM, ANY, 0, NSBOX_STAGE_CAPABILITIES, "keyring", false },
	{ "keyctl", EDQUOT, ANY, 0, NSBOX_STAGE_CAPABILITIES, "keyring", false },
	{ "prctl", EINVAL, 0, PR_SET_DUMPABLE, NSBOX_STAGE_CAPABILITIES, "undumpable", false },
	{ "prctl", EINVAL, 0, PR_CAP_AMBIENT, NSBOX_STAGE_CAPABILITIES, "ambient", false },
	{ "prctl", EINVAL, 0, PR_CAPBSET_DROP, NSBOX_STAGE_CAPABILITIES, "bounding", false },
	{ "prctl", EPERM, 0, PR_SET_SECUREBITS, NSBOX_STAGE_CAPABILITIES, "secure bits", false },
	{ "prctl", EINVAL, 0, PR_SET_NO_NEW_PRIVS, NSBOX_STAGE_CAPABILITIES, "no_new_privs", false },
	{ "capset", EPERM, ANY, 0, NSBOX_STAGE_CAPABILITIES, "capabilities", false },
	{ "landlock_create_ruleset", ENOSYS, ANY, 0, NSBOX_STAGE_LANDLOCK, "ruleset", false },
	{ "landlock_create_ruleset", EOPNOTSUPP, ANY, 0, NSBOX_STAGE_LANDLOCK, "ruleset", false },
	{ "landlock_add_rule", EINVAL, ANY, 0, NSBOX_STAGE_LANDLOCK, "rule", false },
	{ "landlock_restrict_self", EPERM, ANY, 0, NSBOX_STAGE_LANDLOCK, "domain", false },
	{ "seccomp", ENOSYS, ANY, 0, NSBOX_STAGE_INIT_FILTER, "filter", false },
	{ "signalfd4", ENOSYS, ANY, 0, NSBOX_STAGE_READY, "signalfd", false },
	/* The program's process. */
	{ "clone", EAGAIN, ANY, 0, NSBOX_STAGE_FORK, "fork", false },
	{ "fcntl", EMFILE, 1, F_DUPFD_CLOEXEC, NSBOX_STAGE_STDIO, "descriptors", false },
	{ "prlimit64", ENOSYS, ANY, 0, NSBOX_STAGE_LIMITS, "resource limits", false },
	{ "sched_getaffinity", ENOSYS, ANY, 0, NSBOX_STAGE_LIMITS, "CPUs", false },
	{ "sched_setaffinity", EPERM, ANY, 0, NSBOX_STAGE_LIMITS, "CPUs", false },
	{ "getcwd", ENOSYS, ANY, 0, NSBOX_STAGE_CWD, "working directory", false },
	{ "execve", ENOSYS, ANY, 0, NSBOX_STAGE_EXECVE, "sh", false },
};
/* clang-format on */

static void fail_call(const char *call, int errnum, int arg, uint64_t value)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int nr = seccomp_syscall_resolve_name(call), r;

	ck_assert_int_ge(nr, 0);
	if (arg == ANY)
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO((unsigned)errnum), nr, 0);
	else
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO((unsigned)errnum), nr, 1,
				     SCMP_CMP((unsigned)arg, SCMP_CMP_EQ, value));
	ck_assert_int_eq(r, 0);
	/* Without no_new_privs where that is allowed: the run is to differ in nothing else. */
	seccomp_attr_set(ctx, SCMP_FLTATR_CTL_NNP, 0);
	if (seccomp_load(ctx) < 0) {
		seccomp_attr_set(ctx, SCMP_FLTATR_CTL_NNP, 1);
		ck_assert_int_eq(seccomp_load(ctx), 0);
	}
	seccomp_release(ctx);
}

/* ------------------------------------------------------------------ what is left */

static int lowest_free_fd(void)
{
	int fd = dup(STDOUT_FILENO);

	close(fd);
	return fd;
}

static void nothing_left(int fd_before)
{
	pid_t children[8];

	/* A clone without an exit signal is waited for with __WALL. */
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG | __WALL), -1);
	ck_assert_int_eq(errno, ECHILD);
	ck_assert_int_eq(box_children(getpid(), children, ARRAY_SIZE(children)), 0);
	ck_assert_int_eq(lowest_free_fd(), fd_before);
}

/* ------------------------------------------------------------------ the runs */

struct faulty_run {
	struct nsbox_plan *plan;
	int out, ret, fd_before;
	struct nsbox_error err; /* of the call, or of the result */
	struct nsbox_result res;
	char text[256];
};

static void prepare(struct faulty_run *run, void (*fn)(struct plan_fixed *))
{
	*run = (struct faulty_run){ .plan = box_plan(NULL, fn) };
	run->out = memfd_create("out", MFD_CLOEXEC);
	ck_assert_int_ge(run->out, 0);
	run->fd_before = lowest_free_fd();
}

static void go(struct faulty_run *run)
{
	static const char *const argv[] = { "sh", "-c", "echo RAN", NULL };
	const struct nsbox_sandbox_options opt = { .layers = box_layers, .files_fd = -1 };
	const struct nsbox_exec ex = { .argv = argv };
	const struct nsbox_io io = { -1, run->out, run->out, -1, -1 };

	run->ret = nsbox_run(run->plan, box_root, &opt, &ex, &io, &run->res, &run->err);
	if (run->ret == 0)
		run->err = run->res.error;
	box_slurp(run->out, run->text, sizeof(run->text));
	nothing_left(run->fd_before);
	close(run->out);
	nsbox_plan_close(run->plan);
}

static bool applies(const struct fault *f)
{
	cpu_set_t cpus;

	if (f->privileged && box_host.ids_kind != NSBOX_IDS_PRIVILEGED)
		return false;
	/* Where one CPU is all there is, there is nothing to narrow. */
	if (!strcmp(f->call, "sched_setaffinity"))
		return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) > 1;
	if (f->stage == NSBOX_STAGE_LANDLOCK)
		return box_host.landlock_abi > 0;
	return true;
}

static void one_cpu(struct plan_fixed *f)
{
	f->limits.cpu_milli = 1000;
}

START_TEST(fault)
{
	const struct fault *f = &faults[_i];
	struct faulty_run run;

	if (!applies(f))
		return;
	prepare(&run, one_cpu);
	fail_call(f->call, f->errnum, f->arg, f->value);
	go(&run);
	ck_assert_msg(strcmp(run.text, "") == 0, "%s: '%s'", f->call, run.text);
	ck_assert_msg(run.ret < 0 || run.res.cause == NSBOX_CAUSE_SANDBOX ||
			      (run.res.cause == NSBOX_CAUSE_EXEC && f->stage == NSBOX_STAGE_EXECVE),
		      "%s: cause %s", f->call, nsbox_cause_name((int)run.res.cause));
	ck_assert_int_ne(run.err.code, NSBOX_E_OK);
	ck_assert_msg(run.err.stage == f->stage, "%s: stage %s: %s", f->call,
		      nsbox_stage_name(run.err.stage), run.err.msg);
	ck_assert_msg(strstr(run.err.msg, f->text), "%s: %s", f->call, run.err.msg);
	if (run.ret == 0 && f->stage < NSBOX_STAGE_WITNESS)
		ck_assert_uint_eq(run.res.enforced & NSBOX_LAYER_BIT(NSBOX_LAYER_WITNESS), 0);
}
END_TEST

/* What the product can do without, and what is then said. */
static const struct {
	const char *call;
	int errnum, arg;
	uint64_t value;
	int layer; /* listed as not enforced, or -1: nothing is lost */
} tolerated[] = {
	/* The twin: nobody calls this. */
	{ "acct", ENOSYS, ANY, 0, -1 },
	/* A kernel without keyrings has none that could leak. */
	{ "keyctl", ENOSYS, ANY, 0, -1 },
	/* Init ends by losing its socket as well. */
	{ "pidfd_send_signal", ENOSYS, ANY, 0, -1 },
	/* Preferred layers. */
	{ "socket", EAFNOSUPPORT, 0, AF_NETLINK, NSBOX_LAYER_NFTABLES },
	{ "sendto", EPERM, ANY, 0, NSBOX_LAYER_NFTABLES },
};

START_TEST(tolerate)
{
	int layer = tolerated[_i].layer;
	struct faulty_run run;

	if (layer >= 0 && !(box_layers & NSBOX_LAYER_BIT(layer)))
		return;
	prepare(&run, NULL);
	fail_call(tolerated[_i].call, tolerated[_i].errnum, tolerated[_i].arg, tolerated[_i].value);
	go(&run);
	ck_assert_msg(run.ret == 0, "%s: %s", tolerated[_i].call, run.err.msg);
	ck_assert_str_eq(run.text, "RAN\n");
	if (layer >= 0) {
		ck_assert_uint_ne(run.res.not_enforced & NSBOX_LAYER_BIT(layer), 0);
		ck_assert_uint_eq(run.res.enforced & NSBOX_LAYER_BIT(layer), 0);
	} else {
		ck_assert_uint_eq(run.res.not_enforced & box_layers, 0);
	}
}
END_TEST

static void require_filter(struct plan_fixed *f)
{
	f->layer[NSBOX_LAYER_NFTABLES] = NSBOX_REQUIRE;
}

/* The same where the policy does not merely prefer the layer. */
START_TEST(required)
{
	struct faulty_run run;

	if (!(box_layers & NSBOX_LAYER_BIT(NSBOX_LAYER_NFTABLES)))
		return;
	prepare(&run, require_filter);
	fail_call("socket", EAFNOSUPPORT, 0, AF_NETLINK);
	go(&run);
	ck_assert_str_eq(run.text, "");
	ck_assert_int_eq(run.err.code, NSBOX_E_UNSUPPORTED);
	ck_assert_int_eq(run.err.stage, NSBOX_STAGE_NFTABLES);
}
END_TEST

/* Init that cannot wait for anything ends, and the run with it. */
START_TEST(init_cannot_wait)
{
	struct faulty_run run;

	prepare(&run, NULL);
	fail_call("poll", ENOSYS, ANY, 0);
	go(&run);
	ck_assert_str_eq(run.text, "");
	ck_assert_uint_eq(run.res.cause, NSBOX_CAUSE_INTERRUPTED);
	ck_assert_ptr_nonnull(strstr(run.err.msg, "init ended"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("faults");
	TCase *tc = tcase_create("faults");
	int status;

	if (!box_prepare(&status))
		return status;
	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, fault, 0, ARRAY_SIZE(faults));
	tcase_add_loop_test(tc, tolerate, 0, ARRAY_SIZE(tolerated));
	tcase_add_test(tc, required);
	tcase_add_test(tc, init_cannot_wait);
	suite_add_tcase(s, tc);
	return box_finish(s);
}
