/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resolving and compiling: hosts are made up here, so that each answer depends on nothing but what
 * a test says.
 */
#include <check.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/bpf_sim.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"
#include "policy/internal.h"

#define MI UINT64_C(1048576)

/* A host that has everything but a writable cgroup. */
static struct nsbox_host good_host(void)
{
	struct nsbox_host h = {
		.machine = "x86_64",
		.landlock_abi = 7,
		.overlay_userns = true,
		.proc_mountable = true,
		.nftables = true,
		.seccomp_filter = true,
		.cpus = 4,
	};

	for (int i = NSBOX_LAYER_USER; i <= NSBOX_LAYER_CGROUP_NS; i++)
		h.namespaces |= NSBOX_LAYER_BIT(i);
	return h;
}

/* ------------------------------------------------------------------ helpers */

struct run {
	struct nsbox_host host;
	struct nsbox_resolve_options opt;
	struct nsbox_policy *p;
	struct nsbox_error err;
	struct blob plan;
};

static void run_init(struct run *run)
{
	*run = (struct run){ .host = good_host() };
}

/* json NULL: the default manifest. */
static int resolve(struct run *run, const char *json)
{
	struct nsbox_manifest *m = NULL;
	int r = json ? nsbox_manifest_parse(json, strlen(json), &m, &run->err)
		     : nsbox_manifest_default(&m, &run->err);

	ck_assert_msg(r == 0, "%s", run->err.msg);
	run->opt.host = &run->host;
	r = nsbox_policy_resolve(m, &run->opt, &run->p, &run->err);
	nsbox_manifest_free(m); /* a policy keeps nothing of it */
	return r;
}

static void compile(struct run *run, const char *json)
{
	auto_close int fd = -1;

	ck_assert_msg(resolve(run, json) == 0, "%s", run->err.msg);
	ck_assert_msg(nsbox_policy_compile(run->p, &fd, &run->err) == 0, "%s", run->err.msg);
	/* What a receiver does: seals, layout and every value are checked. */
	ck_assert_msg(blob_map(fd, PLAN_MAGIC, &run->plan, &run->err) == 0, "%s", run->err.msg);
}

static void run_done(struct run *run)
{
	if (run->plan.base)
		blob_unmap(&run->plan);
	nsbox_policy_free(run->p);
}

static const struct plan_fixed *fixed(const struct run *run)
{
	return blob_fixed(&run->plan, struct plan_fixed);
}

static const struct mount_op *find_op(const struct run *run, int kind, const char *dst)
{
	size_t n;
	const struct mount_op *ops = blob_get(&run->plan, SEC_OPS, sizeof(*ops), &n);

	for (size_t i = 0; i < n; i++)
		if (ops[i].kind == kind && !strcmp(blob_get_str(&run->plan, ops[i].dst), dst))
			return &ops[i];
	return NULL;
}

/* Rights that the rules give on `path`, as the kernel adds them up along the way to it. */
static uint64_t landlock_rights(const struct run *run, const char *path)
{
	size_t n;
	const struct landlock_rule *r = blob_get(&run->plan, SEC_LANDLOCK, sizeof(*r), &n);
	uint64_t rights = 0;

	for (size_t i = 0; i < n; i++) {
		const char *dir = blob_get_str(&run->plan, r[i].path);
		size_t len = strlen(dir);

		if (!strcmp(dir, "/") ||
		    (!strncmp(path, dir, len) && (path[len] == '/' || !path[len])))
			rights |= r[i].access;
	}
	return rights;
}

static bool has_rule(const struct run *run, const char *path)
{
	size_t n;
	const struct landlock_rule *r = blob_get(&run->plan, SEC_LANDLOCK, sizeof(*r), &n);

	for (size_t i = 0; i < n; i++)
		if (!strcmp(blob_get_str(&run->plan, r[i].path), path))
			return true;
	return false;
}

static const char *find_env(const struct run *run, const char *name)
{
	size_t n, len = strlen(name);
	const str_off *off = blob_get(&run->plan, SEC_ENV, sizeof(*off), &n);

	for (size_t i = 0; i < n; i++) {
		const char *v = blob_get_str(&run->plan, off[i]);

		if (!strncmp(v, name, len) && v[len] == '=')
			return v + len + 1;
	}
	return NULL;
}

/* ------------------------------------------------------------------ profiles */

START_TEST(standard_is_the_default)
{
	struct run run;
	struct nsbox_policy_limits l;
	size_t len = 1;

	run_init(&run);
	compile(&run, NULL);
	ck_assert_str_eq(blob_get_str(&run.plan, fixed(&run)->profile), "standard");
	ck_assert_str_eq(blob_get_str(&run.plan, fixed(&run)->manifest_sha256), "");
	ck_assert_str_eq(blob_get_str(&run.plan, fixed(&run)->workdir), "/workspace");
	ck_assert_str_eq(blob_get_str(&run.plan, fixed(&run)->hostname), "sandbox");
	ck_assert_uint_eq(fixed(&run)->uid, 1000);
	ck_assert_uint_eq(fixed(&run)->flags, 0);
	ck_assert_uint_eq(fixed(&run)->subprocess, SUBPROCESS_ANY);
	nsbox_policy_limits(run.p, &l);
	ck_assert_uint_eq(l.memory, 512 * MI);
	ck_assert_uint_eq(l.disk, 256 * MI);
	ck_assert_uint_eq(l.pids, 128);
	ck_assert_uint_eq(l.cpu_milli, 1000);
	ck_assert_uint_eq(l.wall_ms, 120000);
	ck_assert_uint_eq(l.stdout_max, MI);
	ck_assert_uint_eq(l.result_max, 64 * MI);
	ck_assert_ptr_null(nsbox_policy_noexec_filter(run.p, &len));
	ck_assert_uint_eq(len, 0);
	ck_assert_ptr_nonnull(find_op(&run, OP_DIR, "/workspace"));
	ck_assert_ptr_nonnull(find_op(&run, OP_DIR, "/home/sandbox"));
	ck_assert_ptr_null(find_op(&run, OP_TMPFS, "/workspace"));
	ck_assert_uint_eq(find_op(&run, OP_TMPFS, "/tmp")->flags & OPF_NOEXEC, 0);
	ck_assert_uint_eq(find_op(&run, OP_TMPFS, "/tmp")->size, 256 * MI);
	ck_assert_uint_eq(find_op(&run, OP_DIR, "/tmp")->mode, 01777);
	ck_assert_uint_eq(find_op(&run, OP_DEV, "/dev")->size, 512 * MI);
	ck_assert_ptr_nonnull(find_op(&run, OP_MASK, "/proc/kallsyms"));
	ck_assert_str_eq(find_env(&run, "HOME"), "/home/sandbox");
	ck_assert_str_eq(find_env(&run, "TMPDIR"), "/tmp");
	ck_assert_ptr_null(find_env(&run, "OMP_NUM_THREADS"));
	run_done(&run);
}
END_TEST

START_TEST(strict_for_a_function)
{
	static const char *const places[] = { "/tmp", "/var/tmp", "/home/sandbox", "/workspace" };
	struct run run;
	uint64_t total = 0;
	size_t len = 0;

	run_init(&run);
	run.opt.python_function = true;
	compile(&run, "{\"manifestVersion\":1,\"profile\":\"strict\"}");
	ck_assert_uint_eq(fixed(&run)->flags, PLAN_ROOT_RDONLY);
	ck_assert_uint_eq(fixed(&run)->subprocess, SUBPROCESS_NONE);
	ck_assert_uint_eq(fixed(&run)->limits.memory, 256 * MI);
	ck_assert_uint_eq(fixed(&run)->limits.pids, 32);
	ck_assert_uint_eq(fixed(&run)->limits.wall_ms, 60000);
	ck_assert_ptr_nonnull(nsbox_policy_noexec_filter(run.p, &len));
	ck_assert_uint_gt(len, 0);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		const struct mount_op *op = find_op(&run, OP_TMPFS, places[i]);

		ck_assert_msg(op != NULL, "%s", places[i]);
		ck_assert_uint_eq(op->flags & (OPF_NOEXEC | OPF_NODEV | OPF_NOSUID),
				  OPF_NOEXEC | OPF_NODEV | OPF_NOSUID);
		total += op->size;
	}
	ck_assert_uint_eq(total, fixed(&run)->limits.disk);
	ck_assert_uint_eq(landlock_rights(&run, "/tmp/x") & LANDLOCK_ACCESS_FS_EXECUTE, 0);
	ck_assert_uint_ne(landlock_rights(&run, "/usr/bin/x") & LANDLOCK_ACCESS_FS_EXECUTE, 0);
	run_done(&run);
}
END_TEST

/* A command must be executed itself: strict then keeps it to programs that the run did not write. */
START_TEST(strict_for_a_command)
{
	struct run run;
	size_t len = 1;

	run_init(&run);
	compile(&run, "{\"manifestVersion\":1,\"profile\":\"strict\"}");
	ck_assert_uint_eq(fixed(&run)->subprocess, SUBPROCESS_SKILL);
	ck_assert_ptr_null(nsbox_policy_noexec_filter(run.p, &len));
	ck_assert(!run.p->memfd_exec);
	run_done(&run);
}
END_TEST

START_TEST(none_in_standard)
{
	const char *json = "{\"manifestVersion\":1,\"process\":{\"subprocess\":\"none\"}}";
	struct run run;
	size_t len = 0;

	run_init(&run);
	ck_assert_int_lt(resolve(&run, json), 0);
	ck_assert_str_eq(run.err.msg, "/process/subprocess: \"none\" can be held for Python "
				      "functions only, each in a sandbox of its own; commands and "
				      "sessions can have \"skill\"");
	run.opt.python_function = true;
	ck_assert_int_eq(resolve(&run, json), 0);
	ck_assert_ptr_nonnull(nsbox_policy_noexec_filter(run.p, &len));
	run_done(&run);
}
END_TEST

/* What the run wrote cannot be started, unless that too was asked for. */
START_TEST(skill_in_standard)
{
	const uint64_t exec = LANDLOCK_ACCESS_FS_EXECUTE;
	struct run run;

	run_init(&run);
	compile(&run, "{\"manifestVersion\":1,\"process\":{\"subprocess\":\"skill\"}}");
	ck_assert_uint_eq(fixed(&run)->layer[NSBOX_LAYER_LANDLOCK_FS], NSBOX_REQUIRE);
	ck_assert_uint_eq(landlock_rights(&run, "/tmp/x") & exec, 0);
	ck_assert_uint_eq(landlock_rights(&run, "/workspace/x") & exec, 0);
	ck_assert_uint_eq(landlock_rights(&run, "/usr/x") & exec, exec);
	ck_assert_uint_ne(find_op(&run, OP_TMPFS, "/tmp")->flags & OPF_NOEXEC, 0);
	run_done(&run);
	run_init(&run);
	compile(&run, "{\"manifestVersion\":1,\"process\":{\"subprocess\":\"skill\"},"
		      "\"filesystem\":{\"tmp\":{\"exec\":true},\"exec\":[\"bin\"]}}");
	ck_assert_uint_eq(landlock_rights(&run, "/tmp/x") & exec, exec);
	ck_assert_uint_eq(landlock_rights(&run, "/workspace/bin/x") & exec, exec);
	ck_assert_uint_eq(landlock_rights(&run, "/workspace/x") & exec, 0);
	ck_assert_uint_eq(find_op(&run, OP_TMPFS, "/tmp")->flags & OPF_NOEXEC, 0);
	run_done(&run);
}
END_TEST

/* ------------------------------------------------------------------ skills */

START_TEST(a_skill_with_a_manifest)
{
	struct run run;

	run_init(&run);
	run.opt.skill_dir = "/skills/pdf";
	compile(&run, "{\"manifestVersion\":1,\"files\":{\"executable\":[\"bin/tool\",\"./"
		      "x.sh\",\"lib/**/*.so\"]},"
		      "\"filesystem\":{\"mask\":[\".env\",\"${work}/a\",\"${tmp}/b\",\"/opt//c/\"],"
		      "\"readOnly\":[\"conf\"]}}");
	ck_assert_str_eq(blob_get_str(&run.plan, fixed(&run)->workdir), "/skills/pdf");
	ck_assert_ptr_nonnull(find_op(&run, OP_DIR, "/skills/pdf"));
	ck_assert_ptr_nonnull(find_op(&run, OP_READONLY, "/skills/pdf"));
	ck_assert_ptr_nonnull(find_op(&run, OP_READONLY, "/skills/pdf/conf"));
	ck_assert_ptr_nonnull(find_op(&run, OP_MAKE_EXEC, "/skills/pdf/bin/tool"));
	ck_assert_ptr_nonnull(find_op(&run, OP_MAKE_EXEC, "/skills/pdf/x.sh"));
	ck_assert_str_eq(
		blob_get_str(&run.plan, find_op(&run, OP_MAKE_EXEC, "/skills/pdf/lib")->src),
		"**/*.so");
	ck_assert_str_eq(
		blob_get_str(&run.plan, find_op(&run, OP_MAKE_EXEC, "/skills/pdf/x.sh")->src), "");
	ck_assert_uint_eq(find_op(&run, OP_MASK, "/skills/pdf/.env")->flags, OPF_OPTIONAL);
	ck_assert_ptr_nonnull(find_op(&run, OP_MASK, "/skills/pdf/a"));
	ck_assert_ptr_nonnull(find_op(&run, OP_MASK, "/tmp/b"));
	ck_assert_ptr_nonnull(find_op(&run, OP_MASK, "/opt/c"));
	run_done(&run);
}
END_TEST

/* Granted places exist and are the payload's; what it owns anyway needs no rule. */
START_TEST(grants)
{
	const uint64_t write = LANDLOCK_ACCESS_FS_WRITE_FILE, read = LANDLOCK_ACCESS_FS_READ_FILE;
	struct run run;

	run_init(&run);
	compile(&run, "{\"manifestVersion\":1,\"filesystem\":{\"write\":[\"out\",\"/srv/cache\"],"
		      "\"read\":[\"in\",\"/data\"],\"exec\":[\"bin\"]}}");
	ck_assert_uint_eq(find_op(&run, OP_DIR, "/srv/cache")->flags, OPF_OWNER_PAYLOAD);
	ck_assert_ptr_null(find_op(&run, OP_DIR, "/workspace/out"));
	ck_assert_uint_eq(landlock_rights(&run, "/srv/cache/x") & write, write);
	ck_assert_uint_eq(landlock_rights(&run, "/data/x") & (read | write), read);
	ck_assert(!has_rule(&run, "/workspace/out"));
	ck_assert(!has_rule(&run, "/workspace/in"));
	ck_assert(!has_rule(&run, "/workspace/bin"));
	ck_assert(has_rule(&run, "/data"));
	run_done(&run);
}
END_TEST

START_TEST(a_skill_without_a_manifest)
{
	struct run run;

	run_init(&run);
	run.opt.skill_dir = "/skills/old";
	compile(&run, NULL);
	ck_assert_ptr_null(find_op(&run, OP_READONLY, "/skills/old"));
	run_done(&run);
}
END_TEST

START_TEST(a_strict_skill)
{
	struct run run;
	const struct mount_op *op;

	run_init(&run);
	run.opt.skill_dir = "/skills/s";
	compile(&run, "{\"manifestVersion\":1,\"profile\":\"strict\"}");
	op = find_op(&run, OP_TMPFS, "/skills/s");
	ck_assert_ptr_nonnull(op);
	ck_assert_uint_eq(op->flags & OPF_NOEXEC, 0);
	ck_assert_uint_ne(op->flags & OPF_OWNER_PAYLOAD, 0);
	ck_assert_uint_ne(landlock_rights(&run, "/skills/s/x") & LANDLOCK_ACCESS_FS_EXECUTE, 0);
	ck_assert_uint_eq(landlock_rights(&run, "/workspace/x") & LANDLOCK_ACCESS_FS_EXECUTE, 0);
	run_done(&run);
}
END_TEST

/* ------------------------------------------------------------------ refusals */

static const struct {
	const char *body, *message; /* body follows {"manifestVersion":1, */
} refusals[] = {
	{ "\"profile\":\"build\"",
	  "/profile: \"build\" runs as user 0 inside, which the operator does not allow" },
	{ "\"process\":{\"user\":\"root\"}",
	  "/process/user: user 0 inside is more than the operator allows" },
	{ "\"process\":{\"userns\":true}", "/process/userns: true is never granted: a user "
					   "namespace gives capabilities over what the "
					   "sandbox keeps closed" },
	{ "\"network\":{\"mode\":\"open\"}",
	  "/network/mode: \"open\" is more than the operator's ceiling of \"allowlist\"" },
	{ "\"network\":{\"allow\":[{\"host\":\"a.example\",\"ports\":[1],\"description\":\"d\"}]}",
	  "/network/allow/0: network.mode is \"none\" here" },
	{ "\"syscalls\":{\"groups\":[\"@ipc\"]}",
	  "/syscalls/groups/0: only an operator can allow raw system calls" },
	{ "\"session\":{\"ttl\":\"1h\"}",
	  "/session/ttl: is of a session, and mode is \"oneshot\"" },
	{ "\"resources\":{\"memory\":\"32Gi\"}",
	  "/resources/memory: 32Gi is more than the operator's ceiling of 16Gi" },
	{ "\"resources\":{\"pids\":5000}",
	  "/resources/pids: 5000 is more than the operator's ceiling of 4096" },
	{ "\"resources\":{\"cpu\":\"100\"}",
	  "/resources/cpu: 100 is more than the operator's ceiling of 64" },
	{ "\"resources\":{\"openFiles\":100000}",
	  "/resources/openFiles: 100000 is more than the operator's ceiling of 65536" },
	{ "\"timeouts\":{\"wall\":\"2d\"}",
	  "/timeouts/wall: 48h is more than the operator's ceiling of 24h" },
	{ "\"profile\":\"strict\",\"resources\":{\"disk\":\"1Gi\"}",
	  "/resources/disk: is more than the memory limit, and under a root that is read-only what "
	  "a run writes is kept in memory" },
	{ "\"filesystem\":{\"tmp\":\"300Mi\"}",
	  "/filesystem/tmp: is more than resources.disk or memory (268435456 bytes)" },
	{ "\"filesystem\":{\"mask\":[\"/\"]}",
	  "/filesystem/mask/0: must not be the root directory" },
	{ "\"filesystem\":{\"mask\":[\"/./\"]}",
	  "/filesystem/mask/0: must not be the root directory" },
	{ "\"filesystem\":{\"mask\":[\"/proc/self\"]}",
	  "/filesystem/mask/0: /proc is managed by the sandbox" },
	{ "\"filesystem\":{\"readOnly\":[\"//dev\"]}",
	  "/filesystem/readOnly/0: /dev is managed by the sandbox" },
	{ "\"filesystem\":{\"read\":[\"/.nsbox/witness\"]}",
	  "/filesystem/read/0: /.nsbox is managed by the sandbox" },
	{ "\"filesystem\":{\"write\":[\"/etc/passwd\"]}",
	  "/filesystem/write/0: /etc belongs to the image, which is read-only" },
	{ "\"filesystem\":{\"mask\":[\"${skill}/x\"]}",
	  "/filesystem/mask/0: there is no skill in this run for ${skill}" },
	{ "\"filesystem\":{\"mask\":[\"$HOME/x\"]}",
	  "/filesystem/mask/0: knows ${skill}, ${work}, ${out} and ${tmp} only" },
	{ "\"filesystem\":{\"mask\":[\"${workx}\"]}",
	  "/filesystem/mask/0: knows ${skill}, ${work}, ${out} and ${tmp} only" },
	{ "\"files\":{\"executable\":[\"/t*/x\"]}",
	  "/files/executable/0: a pattern has to begin with a directory" },
	{ "\"files\":{\"executable\":[\"/usr/bin/*\"]}",
	  "/files/executable/0: /usr belongs to the image, which is read-only" },
	{ "\"files\":{\"executable\":[\"/usr/bin/x\"]}",
	  "/files/executable/0: /usr belongs to the image, which is read-only" },
	{ "\"profile\":\"strict\",\"filesystem\":{\"write\":[\"/srv/x\"]}",
	  "/filesystem/write/0: is read-only in profile \"strict\"; /tmp, HOME and the workspace "
	  "can "
	  "be written" },
	{ "\"outputs\":[{\"glob\":\"a\"},{\"glob\":\"../x\"}]",
	  "/outputs/1/glob: must be relative, without empty, \".\" or \"..\" parts" },
	{ "\"outputs\":[{\"glob\":\"/etc/*\"}]",
	  "/outputs/0/glob: must be relative, without empty, \".\" or \"..\" parts" },
	{ "\"syscalls\":{\"allow\":[\"mount\"]}",
	  "/syscalls: only an operator can allow system calls by name" },
	{ "\"env\":{\"set\":{\"LD_PRELOAD\":\"/x.so\"}}",
	  "/env/set/LD_PRELOAD: \"LD_PRELOAD\" decides what a program loads or runs first; only an "
	  "operator may set it" },
	{ "\"env\":{\"pass\":[\"A\",\"BASH_ENV\"]}",
	  "/env/pass/1: \"BASH_ENV\" decides what a program loads or runs first; only an operator "
	  "may "
	  "set it" },
	{ "\"require\":{\"seccomp\":\"prefer\"}",
	  "/require/seccomp: a manifest can only raise what is required; lowering it is the "
	  "operator's to decide" },
};

START_TEST(refusals_by_place)
{
	char text[512];
	struct run run;
	struct nsbox_manifest *m = NULL;

	run_init(&run);
	run.opt.host = &run.host;
	snprintf(text, sizeof(text), "{\"manifestVersion\":1,%s}", refusals[_i].body);
	ck_assert_msg(nsbox_manifest_parse(text, strlen(text), &m, &run.err) == 0, "%s",
		      run.err.msg);
	ck_assert_msg(nsbox_policy_resolve(m, &run.opt, &run.p, &run.err) < 0, "accepted: %s",
		      text);
	ck_assert_str_eq(run.err.msg, refusals[_i].message);
	ck_assert_int_eq(run.err.code, NSBOX_E_MANIFEST);
	nsbox_manifest_free(m);
}
END_TEST

/* ------------------------------------------------------------------ operator */

START_TEST(an_operator_may_more)
{
	struct run run;

	run_init(&run);
	run.opt.as_operator = true;
	compile(&run,
		"{\"manifestVersion\":1,\"syscalls\":{\"allow\":[\"personality\",\"mseal\"]},"
		"\"env\":{\"set\":{\"LD_PRELOAD\":\"/x.so\",\"HOME\":\"/tmp\"},\"pass\":[\"B\","
		"\"A\",\"B\"]}}");
	ck_assert_str_eq(find_env(&run, "LD_PRELOAD"), "/x.so");
	ck_assert_str_eq(find_env(&run, "HOME"), "/tmp");
	ck_assert_str_eq(nsbox_policy_env_pass(run.p)[0], "A");
	ck_assert_str_eq(nsbox_policy_env_pass(run.p)[1], "B");
	ck_assert_ptr_null(nsbox_policy_env_pass(run.p)[2]);
	run_done(&run);
}
END_TEST

START_TEST(an_unknown_call_is_an_error)
{
	struct run run;

	run_init(&run);
	run.opt.as_operator = true;
	ck_assert_int_lt(
		resolve(&run,
			"{\"manifestVersion\":1,\"syscalls\":{\"allow\":[\"read\",\"ptraec\"]}}"),
		0);
	ck_assert_str_eq(
		run.err.msg,
		"/syscalls/allow/1: unknown system call \"ptraec\", did you mean \"ptrace\"?");
}
END_TEST

START_TEST(a_lower_ceiling)
{
	const struct nsbox_ceiling low = { .memory = 128 * MI, .pids = 16, .wall_ms = 1000 };
	struct run run;

	run_init(&run);
	run.opt.ceiling = &low;
	/* Nobody asked for the profile's default: it is lowered in silence. */
	ck_assert_int_eq(resolve(&run, NULL), 0);
	ck_assert_uint_eq(run.p->limits.memory, 128 * MI);
	ck_assert_uint_eq(run.p->limits.disk, 64 * MI);
	ck_assert_uint_eq(run.p->limits.pids, 16);
	ck_assert_uint_eq(run.p->limits.wall_ms, 1000);
	run_done(&run);
	run.p = NULL;
	ck_assert_int_lt(
		resolve(&run, "{\"manifestVersion\":1,\"resources\":{\"memory\":\"256Mi\"}}"), 0);
	ck_assert_str_eq(run.err.msg,
			 "/resources/memory: 256Mi is more than the operator's ceiling of 128Mi");
}
END_TEST

/* ------------------------------------------------------------------ hosts */

START_TEST(a_required_layer_is_missing)
{
	struct run run;

	run_init(&run);
	run.host.namespaces &= ~NSBOX_LAYER_BIT(NSBOX_LAYER_USER);
	run.host.userns_errno = EPERM;
	ck_assert_int_lt(resolve(&run, NULL), 0);
	ck_assert_int_eq(run.err.code, NSBOX_E_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(run.err.msg, "'user'"));
}
END_TEST

START_TEST(no_landlock)
{
	struct run run;

	run_init(&run);
	run.host.landlock_abi = 0;
	run.host.landlock_errno = EOPNOTSUPP;
	compile(&run, NULL); /* preferred: the run goes on and says so */
	ck_assert_uint_eq(fixed(&run)->landlock_fs, 0);
	ck_assert_uint_eq(fixed(&run)->landlock_abi, 0);
	ck_assert_uint_eq(fixed(&run)->layer[NSBOX_LAYER_LANDLOCK_FS], NSBOX_PREFER);
	run_done(&run);
	run.p = NULL;
	ck_assert_int_lt(
		resolve(&run, "{\"manifestVersion\":1,\"require\":{\"landlockFs\":\"require\"}}"),
		0);
	ck_assert_int_eq(run.err.code, NSBOX_E_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(run.err.msg, "'landlockFs'"));
	/* Only Landlock holds this in a root that can be written. */
	ck_assert_int_lt(
		resolve(&run, "{\"manifestVersion\":1,\"process\":{\"subprocess\":\"skill\"}}"), 0);
	ck_assert_int_eq(run.err.code, NSBOX_E_UNSUPPORTED);
}
END_TEST

START_TEST(landlock_by_abi)
{
	static const struct {
		int abi;
		uint32_t used;
		uint64_t fs, scoped;
	} rows[] = {
		{ 1, 0, 0, 0 }, /* without REFER renames break: not unless required */
		{ 2, 2, (1 << 14) - 1, 0 },
		{ 3, 3, (1 << 15) - 1, 0 },
		{ 4, 4, (1 << 15) - 1, 0 },
		{ 5, 5, (1 << 16) - 1, 0 },
		{ 6, 6, (1 << 16) - 1, 3 },
		{ 7, 6, (1 << 16) - 1, 3 },
		{ 9, 6, (1 << 16) - 1, 3 },
		{ 99, 6, (1 << 16) - 1, 3 },
	};
	struct run run;
	size_t n;
	const struct landlock_rule *r;

	run_init(&run);
	run.host.landlock_abi = rows[_i].abi;
	compile(&run, NULL);
	ck_assert_uint_eq(fixed(&run)->landlock_abi, rows[_i].used);
	ck_assert_uint_eq(fixed(&run)->landlock_fs, rows[_i].fs);
	ck_assert_uint_eq(fixed(&run)->landlock_scoped, rows[_i].scoped);
	ck_assert_uint_eq(fixed(&run)->landlock_net, 0);
	r = blob_get(&run.plan, SEC_LANDLOCK, sizeof(*r), &n);
	ck_assert(rows[_i].fs ? n > 10 : n == 0);
	for (size_t i = 0; i < n; i++) /* the kernel refuses rights that are not handled */
		ck_assert_uint_eq(r[i].access & ~rows[_i].fs, 0);
	run_done(&run);
}
END_TEST

START_TEST(landlock_abi_1_when_required)
{
	struct run run;

	run_init(&run);
	run.host.landlock_abi = 1;
	compile(&run, "{\"manifestVersion\":1,\"require\":{\"landlockFs\":\"require\"}}");
	ck_assert_uint_eq(fixed(&run)->landlock_abi, 1);
	ck_assert_uint_eq(fixed(&run)->landlock_fs, (1 << 13) - 1);
	run_done(&run);
}
END_TEST

START_TEST(landlock_rights_by_place)
{
	const uint64_t read = LANDLOCK_ACCESS_FS_READ_FILE, write = LANDLOCK_ACCESS_FS_WRITE_FILE,
		       exec = LANDLOCK_ACCESS_FS_EXECUTE,
		       nodes = LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK;
	static const char *const closed[] = { "/.nsbox/witness", "/root/x", "/boot/x", "/witness" };
	static const char *const open[] = { "/tmp/x",	    "/var/tmp/x",  "/home/sandbox/x",
					    "/workspace/x", "/skills/a/x", "/run/x" };
	struct run run;

	run_init(&run);
	compile(&run, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(closed); i++)
		ck_assert_uint_eq(landlock_rights(&run, closed[i]) & (read | write | exec), 0);
	for (size_t i = 0; i < ARRAY_SIZE(open); i++) {
		uint64_t rights = landlock_rights(&run, open[i]);

		ck_assert_uint_eq(rights & (read | write | exec), read | write | exec);
		ck_assert_uint_ne(rights & LANDLOCK_ACCESS_FS_REFER, 0);
		ck_assert_uint_ne(rights & LANDLOCK_ACCESS_FS_TRUNCATE, 0);
		ck_assert_uint_eq(rights & nodes, 0);
	}
	ck_assert_uint_eq(landlock_rights(&run, "/usr/x") & (read | write | exec), read | exec);
	ck_assert_uint_eq(landlock_rights(&run, "/proc/x") & (read | write | exec), read);
	ck_assert_uint_ne(landlock_rights(&run, "/dev/pts/0") & LANDLOCK_ACCESS_FS_IOCTL_DEV, 0);
	run_done(&run);
}
END_TEST

START_TEST(tiers)
{
	struct run run;

	run_init(&run);
	ck_assert_int_lt(resolve(&run, "{\"manifestVersion\":1,\"minTier\":\"cgroup\"}"), 0);
	ck_assert_int_eq(run.err.code, NSBOX_E_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(run.err.msg, "cgroupLimits"));
	run.host.cgroup_kind = NSBOX_CGROUP_V2;
	run.host.cgroup_memory = run.host.cgroup_pids = run.host.cgroup_cpu = true;
	ck_assert_msg(resolve(&run, "{\"manifestVersion\":1,\"minTier\":\"cgroup\"}") == 0, "%s",
		      run.err.msg);
	ck_assert_uint_eq(run.p->layer[NSBOX_LAYER_CGROUP], NSBOX_REQUIRE);
	run_done(&run);
}
END_TEST

/* What a network takes is named where the host has no namespaces, and nothing of it where none is asked for. */
START_TEST(network_without_namespaces)
{
	static const char body[] =
		"{\"manifestVersion\":1,\"minTier\":\"process\",\"network\":{\"mode\":"
		"\"allowlist\",\"allow\":"
		"[{\"host\":\"a.test\",\"ports\":[443],\"description\":\"d\"}]}}";
	struct run run;

	run_init(&run);
	ck_assert_msg(resolve(&run, body) == 0, "%s", run.err.msg);
	run_done(&run);
	run_init(&run);
	run.host.namespaces &= ~NSBOX_LAYER_BIT(NSBOX_LAYER_USER);
	ck_assert_int_lt(resolve(&run, body), 0);
	ck_assert_int_eq(run.err.code, NSBOX_E_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(run.err.msg, "/network/allow: takes a network namespace"));
	ck_assert_ptr_nonnull(strstr(run.err.msg, "'user'"));
	ck_assert_int_lt(resolve(&run, "{\"manifestVersion\":1,\"minTier\":\"process\"}"), 0);
	ck_assert_ptr_null(strstr(run.err.msg, "/network"));
	run_done(&run);
}
END_TEST

static bool has_port(const struct run *run, uint16_t port)
{
	size_t n;
	const struct landlock_rule *r = blob_get(&run->plan, SEC_LANDLOCK, sizeof(*r), &n);

	for (size_t i = 0; i < n; i++)
		if (r[i].port == port)
			return r[i].access == LANDLOCK_ACCESS_NET_CONNECT_TCP;
	return false;
}

START_TEST(landlock_ports)
{
	const uint64_t bind = LANDLOCK_ACCESS_NET_BIND_TCP,
		       both = bind | LANDLOCK_ACCESS_NET_CONNECT_TCP;
	struct run run;

	run_init(&run);
	run.host.landlock_abi = 4;
	compile(&run, "{\"manifestVersion\":1,\"require\":{\"landlockTcp\":\"require\"},"
		      "\"network\":{\"mode\":"
		      "\"allowlist\",\"allow\":[{\"host\":\"a.test\",\"ports\":[443,80],"
		      "\"description\":\"d\"},"
		      "{\"host\":\"b.test\",\"ports\":[99],\"protocol\":\"udp\",\"description\":"
		      "\"d\"}]}}");
	ck_assert_uint_eq(fixed(&run)->landlock_net, both);
	ck_assert(has_port(&run, 443) && has_port(&run, 80) && has_port(&run, 53));
	ck_assert(!has_port(&run, 99) && !has_port(&run, 8080));
	run_done(&run);
	run_init(&run);
	run.host.landlock_abi = 4;
	compile(&run, "{\"manifestVersion\":1,\"require\":{\"landlockTcp\":\"require\"}}");
	ck_assert_uint_eq(fixed(&run)->landlock_net, both);
	ck_assert(!has_port(&run, 53));
	run_done(&run);
}
END_TEST

START_TEST(platforms)
{
	struct run run;

	run_init(&run);
	ck_assert_int_eq(resolve(&run, "{\"manifestVersion\":1,\"platforms\":[\"linux/arm64\","
				       "\"linux/amd64\"]}"),
			 0);
	run_done(&run);
	run.p = NULL;
	ck_assert_int_lt(resolve(&run, "{\"manifestVersion\":1,\"platforms\":[\"linux/arm64\"]}"),
			 0);
	ck_assert_int_eq(run.err.code, NSBOX_E_UNSUPPORTED);
	ck_assert_str_eq(run.err.msg,
			 "/platforms: this host is linux/amd64, which the manifest does not list");
}
END_TEST

/* ------------------------------------------------------------------ canonical form */

static void digest_of(const char *json, char hex[65])
{
	struct run run;

	run_init(&run);
	ck_assert_msg(resolve(&run, json) == 0, "%s", run.err.msg);
	memset(run.p->manifest_sha256, 'a', 64); /* spelling is not what is compared here */
	ck_assert_int_eq(nsbox_policy_digest(run.p, hex, &run.err), 0);
	run_done(&run);
}

START_TEST(spelling_does_not_matter)
{
	char a[65], b[65], c[65];

	digest_of("{\"manifestVersion\":1,\"resources\":{\"memory\":\"1Gi\",\"cpu\":\"1\"},"
		  "\"filesystem\":{\"mask\":[\"b\",\"a\",\"./"
		  "a\"]},\"env\":{\"set\":{\"X\":\"1\",\"B\":"
		  "\"2\"}}}",
		  a);
	digest_of(
		"{\"env\":{\"set\":{\"B\":\"2\",\"X\":\"1\"}},\"filesystem\":{\"mask\":[\"/"
		"workspace/a\""
		",\"b/"
		"\"]},\"resources\":{\"cpu\":\"1000m\",\"memory\":\"1024Mi\"},\"manifestVersion\":"
		"1}",
		b);
	digest_of("{\"manifestVersion\":1,\"resources\":{\"memory\":\"1Gi\",\"cpu\":\"2\"}}", c);
	ck_assert_str_eq(a, b);
	ck_assert_str_ne(a, c);
	ck_assert_uint_eq(strlen(a), 64);
}
END_TEST

START_TEST(the_same_policy_makes_the_same_plan)
{
	struct run a, b;

	run_init(&a);
	run_init(&b);
	compile(&a, NULL);
	compile(&b, NULL);
	ck_assert_uint_eq(a.plan.size, b.plan.size);
	ck_assert_int_eq(memcmp(a.plan.base, b.plan.base, a.plan.size), 0);
	run_done(&a);
	run_done(&b);
}
END_TEST

/* Keys of every object in ascending order, as the receipt's readers rely on. */
START_TEST(keys_are_sorted)
{
	struct run run;
	char *text = NULL, previous[16][64] = { "" };
	int depth = 0;

	run_init(&run);
	ck_assert_int_eq(resolve(&run, "{\"manifestVersion\":1,\"profile\":\"strict\"}"), 0);
	ck_assert_int_eq(nsbox_policy_json(run.p, &text, &run.err), 0);
	for (const char *p = text; *p; p++) {
		const char *end;

		if (*p == '{')
			previous[++depth][0] = '\0';
		else if (*p == '}')
			depth--;
		if (*p != '"')
			continue;
		end = strchr(p + 1, '"');
		if (end[1] == ':') {
			char key[64];

			snprintf(key, sizeof(key), "%.*s", (int)(end - p - 1), p + 1);
			ck_assert_msg(strcmp(previous[depth], key) < 0, "'%s' before '%s'",
				      previous[depth], key);
			strcpy(previous[depth], key);
		}
		p = end;
	}
	ck_assert_int_eq(depth, 0);
	free(text);
	run_done(&run);
}
END_TEST

/* ------------------------------------------------------------------ filters and batch */

START_TEST(filters_pass_the_kernels_check)
{
	struct run run;
	size_t n, m;
	const struct sock_filter *payload, *init;

	run_init(&run);
	compile(&run, NULL);
	payload = blob_get(&run.plan, SEC_BPF, sizeof(*payload), &n);
	init = blob_get(&run.plan, SEC_BPF_INIT, sizeof(*init), &m);
	ck_assert_ptr_null(bpf_sim_check(payload, n));
	ck_assert_ptr_null(bpf_sim_check(init, m));
	ck_assert_uint_gt(n, 300);
	run_done(&run);
}
END_TEST

START_TEST(the_packet_filter_is_one_batch)
{
	struct run run;
	size_t size;
	unsigned messages = 0, acks = 0;
	const unsigned char *batch;

	run_init(&run);
	compile(&run, NULL);
	batch = blob_get(&run.plan, SEC_NFT, 1, &size);
	for (uint32_t seq = 1; size; seq++, messages++) {
		struct nlmsghdr h;

		ck_assert_uint_ge(size, sizeof(h));
		memcpy(&h, batch, sizeof(h));
		ck_assert_uint_le(NLMSG_ALIGN(h.nlmsg_len), size);
		ck_assert_uint_eq(h.nlmsg_seq, seq);
		acks += (h.nlmsg_flags & NLM_F_ACK) != 0;
		batch += NLMSG_ALIGN(h.nlmsg_len);
		size -= NLMSG_ALIGN(h.nlmsg_len);
	}
	ck_assert_uint_eq(messages, 8); /* begin, table, three chains, two rules, end */
	ck_assert_uint_eq(acks, 1);	/* the last: failures are reported anyway */
	run_done(&run);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("policy");
	TCase *tc = tcase_create("policy");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_test(tc, standard_is_the_default);
	tcase_add_test(tc, strict_for_a_function);
	tcase_add_test(tc, strict_for_a_command);
	tcase_add_test(tc, none_in_standard);
	tcase_add_test(tc, skill_in_standard);
	tcase_add_test(tc, a_skill_with_a_manifest);
	tcase_add_test(tc, grants);
	tcase_add_test(tc, a_skill_without_a_manifest);
	tcase_add_test(tc, a_strict_skill);
	tcase_add_loop_test(tc, refusals_by_place, 0, (int)ARRAY_SIZE(refusals));
	tcase_add_test(tc, an_operator_may_more);
	tcase_add_test(tc, an_unknown_call_is_an_error);
	tcase_add_test(tc, a_lower_ceiling);
	tcase_add_test(tc, a_required_layer_is_missing);
	tcase_add_test(tc, no_landlock);
	tcase_add_loop_test(tc, landlock_by_abi, 0, 9);
	tcase_add_test(tc, landlock_abi_1_when_required);
	tcase_add_test(tc, landlock_rights_by_place);
	tcase_add_test(tc, tiers);
	tcase_add_test(tc, network_without_namespaces);
	tcase_add_test(tc, landlock_ports);
	tcase_add_test(tc, platforms);
	tcase_add_test(tc, spelling_does_not_matter);
	tcase_add_test(tc, the_same_policy_makes_the_same_plan);
	tcase_add_test(tc, keys_are_sorted);
	tcase_add_test(tc, filters_pass_the_kernels_check);
	tcase_add_test(tc, the_packet_filter_is_one_batch);
	suite_add_tcase(s, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
