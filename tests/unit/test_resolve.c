/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asked, granted, refused: profiles, the operator's ceiling, optional grants, and what this version
 * has no enforcement for. Each refusal has a twin that differs in one word and goes through.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/sys.h"
#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/syscalls.h"
#include "tests/support/plan_kit.h"

#define MI UINT64_C(1048576)

/* ------------------------------------------------------------------ helpers */

struct world {
	struct nsbox_host host;
	struct nsbox_ceiling ceiling;
	struct nsbox_resolve_options opt;
	struct nsbox_policy *p;
	struct nsbox_error err;
};

static void world_init(struct world *w)
{
	*w = (struct world){ .host = kit_full_host() };
	w->opt.host = &w->host;
}

static int parse_ceiling(struct world *w, const char *json)
{
	w->opt.ceiling = &w->ceiling;
	return nsbox_ceiling_parse(json, strlen(json), &w->ceiling, &w->err);
}

/* `body` follows {"manifestVersion":1 */
static int resolve(struct world *w, const char *body)
{
	struct nsbox_manifest *m = NULL;
	char text[2048];
	int r;

	w->opt.host = &w->host;
	snprintf(text, sizeof(text), "{\"manifestVersion\":1%s}", body);
	ck_assert_msg(nsbox_manifest_parse(text, strlen(text), &m, &w->err) == 0, "%s", w->err.msg);
	nsbox_policy_free(w->p);
	w->p = NULL;
	r = nsbox_policy_resolve(m, &w->opt, &w->p, &w->err);
	nsbox_manifest_free(m);
	return r;
}

static void must_resolve(struct world *w, const char *body)
{
	ck_assert_msg(resolve(w, body) == 0, "%s: %s", body, w->err.msg);
}

static int compile(struct world *w, struct blob *plan)
{
	auto_close int fd = -1;
	int r = nsbox_policy_compile(w->p, &fd, &w->err);

	return r < 0 ? r : blob_map(fd, PLAN_MAGIC, plan, &w->err);
}

static bool json_has(struct world *w, const char *part)
{
	auto_free char *text = NULL;

	ck_assert_int_eq(nsbox_policy_json(w->p, &text, &w->err), 0);
	if (!strstr(text, part))
		fprintf(stderr, "# %s\n", text);
	return strstr(text, part) != NULL;
}

/* ------------------------------------------------------------------ profiles */

static const struct {
	const char *name;
	uint32_t subprocess, uid, network;
	bool jit, ptrace, exec_tmp, rdonly;
	uint64_t memory, wall_ms;
	uint32_t pids;
} profiles[] = {
	{ "strict", SUBPROCESS_NONE, 1000, NETWORK_NONE, false, false, false, true, 256, 60, 32 },
	{ "standard", SUBPROCESS_ANY, 1000, NETWORK_NONE, true, true, true, false, 512, 120, 128 },
	{ "network", SUBPROCESS_ANY, 1000, NETWORK_ALLOWLIST, true, false, true, false, 512, 120,
	  128 },
	{ "build", SUBPROCESS_ANY, 0, NETWORK_ALLOWLIST, true, true, true, false, 2048, 600, 512 },
};

START_TEST(profiles_by_the_table)
{
	struct world w;
	struct blob plan = { 0 };
	const struct plan_fixed *f;
	char body[64];

	world_init(&w);
	w.opt.as_operator = true;
	w.opt.python_function = true;
	snprintf(body, sizeof(body), ",\"profile\":\"%s\"", profiles[_i].name);
	must_resolve(&w, body);
	ck_assert_uint_eq(w.p->subprocess, profiles[_i].subprocess);
	ck_assert_uint_eq(w.p->network.mode, profiles[_i].network);
	ck_assert(w.p->jit == profiles[_i].jit && w.p->ptrace == profiles[_i].ptrace);
	ck_assert(w.p->threads && w.p->listen && !w.p->netlink);
	ck_assert(w.p->tmpfs[TMPFS_TMP].exec == profiles[_i].exec_tmp);
	ck_assert_uint_eq(w.p->n_gaps, 0); /* an empty allowlist reaches nothing */
	ck_assert_msg(compile(&w, &plan) == 0, "%s", w.err.msg);
	f = blob_fixed(&plan, struct plan_fixed);
	ck_assert_uint_eq(f->uid, profiles[_i].uid);
	ck_assert_uint_eq(f->gid, profiles[_i].uid);
	ck_assert_uint_eq(f->flags, profiles[_i].rdonly ? PLAN_ROOT_RDONLY : 0);
	ck_assert_uint_eq(f->limits.memory, profiles[_i].memory * MI);
	ck_assert_uint_eq(f->limits.disk, profiles[_i].memory * MI / 2);
	ck_assert_uint_eq(f->limits.wall_ms, profiles[_i].wall_ms * 1000);
	ck_assert_uint_eq(f->limits.pids, profiles[_i].pids);
	ck_assert_str_eq(blob_get_str(&plan, f->profile), profiles[_i].name);
	ck_assert_str_eq(blob_get_str(&plan, f->hostname), "sandbox");
	ck_assert(json_has(&w, profiles[_i].uid ? "\"uid\":1000" : "\"uid\":0"));
	ck_assert(json_has(&w, profiles[_i].uid ? "\"USER=sandbox\"" : "\"USER=root\""));
	blob_unmap(&plan);
	nsbox_policy_free(w.p);
}
END_TEST

/* ------------------------------------------------------------------ ceilings */

#define HOST_A	  "{\"host\":\"api.example.com\",\"ports\":[443],\"description\":\"d\"}"
#define NET(rest) ",\"network\":{\"mode\":\"allowlist\",\"allow\":[" rest "]}"

static const struct {
	const char *ceiling, *body;
	const char *message; /* NULL: granted */
	bool as_operator;
} ceilings[] = {
	{ "{\"memory\":\"128Mi\"}", ",\"resources\":{\"memory\":\"129Mi\"}",
	  "/resources/memory: 129Mi is more than the operator's ceiling of 128Mi", false },
	{ "{\"memory\":\"128Mi\"}", ",\"resources\":{\"memory\":\"128Mi\"}", NULL, false },
	{ "{\"cpu\":\"500m\"}", ",\"resources\":{\"cpu\":\"501m\"}",
	  "/resources/cpu: 501m is more than the operator's ceiling of 500m", false },
	{ "{\"pids\":9}", ",\"resources\":{\"pids\":10}",
	  "/resources/pids: 10 is more than the operator's ceiling of 9", true },
	{ "{\"wall\":\"1s\"}", ",\"timeouts\":{\"wall\":\"2s\"}",
	  "/timeouts/wall: 2s is more than the operator's ceiling of 1s", false },
	{ "{\"disk\":\"1Mi\"}", ",\"resources\":{\"disk\":\"2Mi\"}",
	  "/resources/disk: 2Mi is more than the operator's ceiling of 1Mi", false },
	{ "{\"openFiles\":64}", ",\"resources\":{\"openFiles\":65}",
	  "/resources/openFiles: 65 is more than the operator's ceiling of 64", false },
	{ "{\"jit\":false}", ",\"process\":{\"jit\":true}",
	  "/process/jit: is more than the operator allows", false },
	{ "{\"jit\":false}", "", NULL, false }, /* a preset is lowered */
	{ "{\"jit\":true}", ",\"process\":{\"jit\":true}", NULL, false },
	{ "{\"listen\":false}", ",\"process\":{\"listen\":true}",
	  "/process/listen: is more than the operator allows", false },
	{ "{\"listen\":false}", ",\"process\":{\"listen\":false}", NULL, false },
	{ "{}", ",\"process\":{\"user\":\"root\"}",
	  "/process/user: user 0 inside is more than the operator allows", false },
	{ "{}", ",\"process\":{\"user\":\"root\"}", NULL, true },
	{ "{\"root\":true}", ",\"process\":{\"user\":\"root\"}", NULL, false },
	{ "{\"root\":false}", ",\"process\":{\"user\":\"root\"}",
	  "/process/user: user 0 inside is more than the operator allows", true },
	{ "{\"root\":false}", ",\"profile\":\"build\"",
	  "/profile: \"build\" runs as user 0 inside, which the operator does not allow", true },
	{ "{\"root\":false}", ",\"profile\":\"build\",\"process\":{\"user\":\"nobody\"}", NULL,
	  false },
	{ "{\"network\":\"none\"}", NET(""),
	  "/network/mode: \"allowlist\" is more than the operator's ceiling of \"none\"", true },
	{ "{\"network\":\"none\"}", ",\"profile\":\"network\"", NULL, true },
	{ "{\"network\":\"none\"}", ",\"profile\":\"network\",\"network\":{\"allow\":[" HOST_A "]}",
	  "/network/allow/0: network.mode is \"none\" here", true },
	{ "{}", ",\"network\":{\"mode\":\"open\"}",
	  "/network/mode: \"open\" is more than the operator's ceiling of \"allowlist\"", false },
	{ "{\"network\":\"open\"}", ",\"network\":{\"mode\":\"open\"}", NULL, false },
	{ "{\"hosts\":[\"*.example.com\"]}", NET(HOST_A), NULL, false },
	{ "{\"hosts\":[\"API.example.com.\"]}", NET(HOST_A), NULL, false },
	{ "{\"hosts\":[\"a.example\",\"*.api.example.com\"]}", NET(HOST_A),
	  "/network/allow/0: \"api.example.com\" is not among the operator's hosts", false },
	{ "{\"hosts\":[]}", NET(HOST_A),
	  "/network/allow/0: \"api.example.com\" is not among the operator's hosts", false },
	{ "{\"hosts\":[\"*.example.com\"]}",
	  NET("{\"host\":\"*.example.com\",\"ports\":[1],\"description\":\"d\"}"), NULL, false },
	{ "{\"hosts\":[\"www.example.com\"]}",
	  NET("{\"host\":\"*.example.com\",\"ports\":[1],\"description\":\"d\"}"),
	  "/network/allow/0: \"*.example.com\" is not among the operator's hosts", false },
	{ "{\"hosts\":[\"*.good.com\"]}",
	  NET("{\"host\":\"evilgood.com\",\"ports\":[1],\"description\":\"d\"}"),
	  "/network/allow/0: \"evilgood.com\" is not among the operator's hosts", false },
	{ "{\"syscallGroups\":[\"@ipc\"]}", ",\"syscalls\":{\"groups\":[\"@ipc\"]}", NULL, false },
	{ "{\"syscallGroups\":[\"@ipc\"]}", ",\"syscalls\":{\"groups\":[\"@keys\"]}",
	  "/syscalls/groups/0: only an operator can allow raw system calls", false },
	{ "{}", ",\"syscalls\":{\"groups\":[\"@keys\"]}", NULL, true },
};

START_TEST(under_a_ceiling)
{
	struct world w;
	int r;

	world_init(&w);
	w.opt.as_operator = ceilings[_i].as_operator;
	ck_assert_msg(parse_ceiling(&w, ceilings[_i].ceiling) == 0, "%s", w.err.msg);
	r = resolve(&w, ceilings[_i].body);
	if (!ceilings[_i].message) {
		ck_assert_msg(r == 0, "%s", w.err.msg);
	} else {
		ck_assert_int_lt(r, 0);
		ck_assert_str_eq(w.err.msg, ceilings[_i].message);
		ck_assert_int_eq(w.err.code, NSBOX_E_MANIFEST);
	}
	nsbox_policy_free(w.p);
}
END_TEST

START_TEST(presets_are_lowered)
{
	struct world w;

	world_init(&w);
	ck_assert_int_eq(parse_ceiling(&w, "{\"memory\":\"64Mi\",\"pids\":4,\"jit\":false,"
					   "\"listen\":false,\"network\":\"none\"}"),
			 0);
	must_resolve(&w, ",\"profile\":\"network\"");
	ck_assert_uint_eq(w.p->limits.memory, 64 * MI);
	ck_assert_uint_eq(w.p->limits.pids, 4);
	ck_assert(!w.p->jit && !w.p->listen);
	ck_assert_uint_eq(w.p->network.mode, NETWORK_NONE);
	ck_assert_uint_eq(seccomp_traits(w.p) & (SC_JIT | SC_LISTEN), 0);
	w.opt.ceiling = NULL;
	must_resolve(&w, ",\"profile\":\"network\"");
	ck_assert_uint_eq(seccomp_traits(w.p) & (SC_JIT | SC_LISTEN), SC_JIT | SC_LISTEN);
	nsbox_policy_free(w.p);
}
END_TEST

static const struct {
	const char *text, *message;
} bad_ceilings[] = {
	{ "[]", "/: expected an object, found an array" },
	{ "{\"memroy\":1}", "/memroy: unknown key, did you mean \"memory\"?" },
	{ "{\"memory\":\"1Mi\"}", "/memory: must be at least 16777216" },
	{ "{\"pids\":1,\"pids\":2}", "duplicate key \"pids\" (line 1, column 11)" },
	{ "{\"network\":\"all\"}",
	  "/network: \"all\" is not one of \"none\", \"allowlist\", \"open\"" },
	{ "{\"hosts\":[\"*\"]}", "/hosts/0: \"*\" is every host: that is network.mode \"open\"" },
	{ "{\"root\":1}", "/root: expected true or false, found a number" },
	{ "{\"syscallGroups\":[\"ipc\"]}",
	  "/syscallGroups/0: unknown group of system calls, did you mean \"@ipc\"?" },
	{ "{\"wall\":10}", "/wall: expected a time like \"30s\", found a number" },
};

START_TEST(ceilings_are_read_strictly)
{
	struct world w;

	world_init(&w);
	ck_assert_int_lt(parse_ceiling(&w, bad_ceilings[_i].text), 0);
	ck_assert_str_eq(w.err.msg, bad_ceilings[_i].message);
	ck_assert_int_eq(w.err.code, NSBOX_E_INVALID);
}
END_TEST

/* ------------------------------------------------------------------ gaps */

/* ------------------------------------------------------------------ a shared workspace */

#define SHARED ",\"filesystem\":{\"workspace\":\"rw\"}"

START_TEST(shared_workspace)
{
	struct nsbox_ceiling c = { .shared = NSBOX_ALLOWANCE_YES };
	struct blob plan = { 0 };
	struct world w;
	size_t n, found = 0;

	world_init(&w);
	ck_assert_int_lt(resolve(&w, SHARED), 0);
	ck_assert_ptr_nonnull(strstr(w.err.msg, "/filesystem/workspace: \"rw\" shares"));
	w.opt.ceiling = &c;
	must_resolve(&w, SHARED);
	ck_assert(json_has(&w, "\"workspaceShared\":true"));
	ck_assert_uint_eq(seccomp_traits(w.p) & SC_SETID, 0);
	ck_assert_msg(compile(&w, &plan) == 0, "%s", w.err.msg);
	for (const struct mount_op *op = blob_get(&plan, SEC_OPS, sizeof(*op), &n); n; n--, op++)
		found += op->kind == OP_SHARED && (op->flags & OPF_NOSUID);
	ck_assert_uint_eq(found, 1);
	blob_unmap(&plan);
	c.shared = NSBOX_ALLOWANCE_NO;
	w.opt.as_operator = true;
	ck_assert_int_lt(resolve(&w, SHARED), 0);
	w.opt.ceiling = NULL;
	must_resolve(&w, SHARED);
	ck_assert_int_lt(resolve(&w, SHARED ",\"profile\":\"build\""), 0);
	ck_assert_int_lt(resolve(&w, ",\"filesystem\":{\"workspace\":{\"mode\":\"rw\","
				     "\"size\":\"1Mi\"}}"),
			 0);
	must_resolve(&w, ",\"filesystem\":{\"workspace\":\"overlay\"}");
	ck_assert(json_has(&w, "\"workspaceShared\":false"));
	ck_assert_uint_ne(seccomp_traits(w.p) & SC_SETID, 0);
	nsbox_policy_free(w.p);
}
END_TEST

#define Z64    "0000000000000000000000000000000000000000000000000000000000000000"
#define SECRET "\"name\":\"T\",\"source\":\"vault:t\",\"description\":\"d\""

/* `twin` is the nearest wish that can be run. */
static const struct {
	const char *body, *message, *twin;
} gaps[] = {
	{ ",\"secrets\":[{" SECRET ",\"inject\":\"header\"}]",
	  "/secrets/0: no secret can be put into a request: what passes to the outside is not "
	  "opened, TLS least of all; \"env\" and \"file\" can be had",
	  ",\"secrets\":[{" SECRET ",\"inject\":\"file\"}]" },
	{ ",\"runtime\":{\"packages\":{\"lockfile\":\"l\",\"sha256\":\"" Z64 "\"}}",
	  "/runtime/packages: this version has no layers of packages",
	  ",\"runtime\":{\"interpreter\":{\"name\":\"python3\"}}" },
	{ ",\"resources\":{\"swap\":\"1Mi\"}", "/resources/swap: this version gives a run no swap",
	  ",\"resources\":{\"swap\":0}" },
	{ ",\"session\":{\"warm\":true}", "/session/warm: this version keeps no sandboxes ready",
	  ",\"session\":{\"warm\":false}" },
	{ ",\"determinism\":{\"time\":\"2026-01-31T12:00:00Z\"}",
	  "/determinism/time: this version cannot set the clocks",
	  ",\"determinism\":{\"hostname\":\"h\"}" },
	{ ",\"determinism\":{\"seed\":0}",
	  "/determinism/seed: this version cannot seed random numbers", ",\"determinism\":{}" },
	{ ",\"audit\":{\"retain\":\"30d\"}",
	  "/audit/retain: this version does not keep records for a time of the manifest's",
	  ",\"audit\":{\"level\":\"full\"}" },
};

START_TEST(what_is_not_enforced_does_not_run)
{
	struct world w;
	struct blob plan = { 0 };

	world_init(&w);
	w.opt.as_operator = true;
	must_resolve(&w, gaps[_i].body);
	ck_assert(json_has(&w, "\"unsupported\":[{\"pointer\":"));
	ck_assert_int_lt(compile(&w, &plan), 0);
	ck_assert_str_eq(w.err.msg, gaps[_i].message);
	ck_assert_int_eq(w.err.code, NSBOX_E_UNSUPPORTED);
	must_resolve(&w, gaps[_i].twin);
	ck_assert(json_has(&w, "\"unsupported\":[]"));
	ck_assert_msg(compile(&w, &plan) == 0, "%s", w.err.msg);
	blob_unmap(&plan);
	nsbox_policy_free(w.p);
}
END_TEST

/* ------------------------------------------------------------------ optional */

START_TEST(optional_grants_are_recorded)
{
	struct world w;

	world_init(&w);
	must_resolve(
		&w,
		",\"filesystem\":{\"read\":[\"/srv/a\",{\"path\":\"/proc/x\",\"optional\":true}],"
		"\"write\":[{\"path\":\"/etc/x\",\"optional\":true}]},"
		"\"process\":{\"netlink\":true},\"resources\":{\"memory\":\"256Mi\"},"
		"\"network\":{\"allow\":[{\"host\":\"B.example.\",\"ports\":[80,443,80],"
		"\"protocol\":\"udp\",\"description\":\"d\",\"optional\":true}]}");
	ck_assert(json_has(&w, "\"granted\":["
			       "{\"pointer\":\"/process/netlink\",\"value\":\"true\"},"
			       "{\"pointer\":\"/resources/memory\",\"value\":\"256Mi\"},"
			       "{\"pointer\":\"/filesystem/read/0\",\"value\":\"/srv/a\"}]"));
	ck_assert(json_has(
		&w, "\"refused\":["
		    "{\"pointer\":\"/filesystem/read/1\",\"value\":\"/proc/x\","
		    "\"why\":\"/proc is managed by the sandbox\"},"
		    "{\"pointer\":\"/filesystem/write/0\",\"value\":\"/etc/x\","
		    "\"why\":\"/etc belongs to the image, which is read-only\"},"
		    "{\"pointer\":\"/network/allow/0\",\"value\":\"b.example/udp:80,443,80\","
		    "\"why\":\"network.mode is \\\"none\\\" here\"}]"));
	ck_assert(
		json_has(&w, "\"asked\":[{\"pointer\":\"/process/netlink\",\"value\":\"true\"},"));
	/* the same without `optional` */
	ck_assert_int_lt(resolve(&w, ",\"filesystem\":{\"read\":[{\"path\":\"/proc/x\"}]}"), 0);
	ck_assert_str_eq(w.err.msg, "/filesystem/read/0: /proc is managed by the sandbox");
	nsbox_policy_free(w.p);
}
END_TEST

static int rule_optional(const struct blob *plan, const char *path)
{
	size_t n;
	const struct landlock_rule *r = blob_get(plan, SEC_LANDLOCK, sizeof(*r), &n);

	for (size_t i = 0; i < n; i++)
		if (!strcmp(blob_get_str(plan, r[i].path), path))
			return r[i].optional;
	return -1;
}

START_TEST(an_optional_path_may_be_missing)
{
	struct world w;
	struct blob plan = { 0 };

	world_init(&w);
	must_resolve(
		&w, ",\"filesystem\":{\"read\":[\"/srv/a\",{\"path\":\"/srv/b\",\"optional\":true},"
		    "{\"path\":\"/srv/c\",\"optional\":true}],"
		    "\"write\":[\"/srv/c\"]}");
	ck_assert_int_eq(compile(&w, &plan), 0);
	ck_assert_int_eq(rule_optional(&plan, "/srv/a"), 0);
	ck_assert_int_eq(rule_optional(&plan, "/srv/b"), 1);
	ck_assert_int_eq(rule_optional(&plan, "/srv/c"), 0); /* granted once without it */
	ck_assert(json_has(&w, "\"optional\":[\"/srv/b\"]"));
	blob_unmap(&plan);
	nsbox_policy_free(w.p);
}
END_TEST

START_TEST(hosts_are_canonical)
{
	struct world w;

	world_init(&w);
	must_resolve(
		&w,
		",\"network\":{\"mode\":\"allowlist\",\"denyCidrs\":[\"FD00::/8\",\"10.0.0.0/8\"],"
		"\"allow\":[{\"host\":\"Z.Example.\",\"ports\":[443,80,443],\"description\":\"d\"},"
		"{\"host\":\"2001:DB8:0::1\",\"ports\":[1],\"protocol\":\"udp\",\"description\":"
		"\"d\"}]}");
	ck_assert(json_has(&w, "\"network\":{\"allow\":[{\"host\":\"2001:db8::1\",\"ports\":[1],"
			       "\"protocol\":\"udp\"},{\"host\":\"z.example\",\"ports\":[80,443],"
			       "\"protocol\":\"tcp\"}],\"bannedNames\":[],\"bannedNetworks\":[],"
			       "\"connections\":1024,\"denyCidrs\":[\"10.0.0.0/8\",\"fd00::/8\"],"
			       "\"mode\":\"allowlist\",\"openNetworks\":[],\"transfer\":0,"
			       "\"transferRate\":0}"));
	nsbox_policy_free(w.p);
}
END_TEST

/* ------------------------------------------------------------------ system calls, host */

START_TEST(groups_are_their_calls)
{
	struct world w;

	world_init(&w);
	w.opt.as_operator = true;
	must_resolve(&w,
		     ",\"syscalls\":{\"groups\":[\"@keys\"],\"allow\":[\"keyctl\",\"statmount\"]}");
	ck_assert(json_has(&w, "\"syscalls\":{\"allow\":[\"add_key\",\"keyctl\",\"request_key\","
			       "\"statmount\"]}"));
	nsbox_policy_free(w.p);
}
END_TEST

START_TEST(raw_groups_are_the_refused_ones)
{
	size_t i = 0;

	for (; syscall_raw_group(i); i++) {
		ck_assert_int_eq(syscall_raw_group(i)[0], '@');
		ck_assert_str_eq(syscall_raw_group(i) + 1, syscall_refused[i].name);
	}
	ck_assert_uint_eq(i, syscall_n_refused);
}
END_TEST

static const struct {
	const char *kernel;
	int abi;
	const char *body, *message;
} compatibilities[] = {
	{ "6.1.0-18-amd64", 2, ",\"compatibility\":{\"kernel\":\">=6.1\",\"landlockAbi\":2}",
	  NULL },
	{ "6.1.0-18-amd64", 2, ",\"compatibility\":{\"kernel\":\">=6.1.1\"}",
	  "/compatibility/kernel: the skill needs Linux >=6.1.1, this host has 6.1.0-18-amd64" },
	{ "6.9", 2, ",\"compatibility\":{\"kernel\":\">=6.10\"}",
	  "/compatibility/kernel: the skill needs Linux >=6.10, this host has 6.9" },
	{ "6.10", 2, ",\"compatibility\":{\"kernel\":\">=6.9\"}", NULL },
	{ "6.10", 2, ",\"compatibility\":{\"kernel\":\">=5.13.7\"}", NULL },
	{ "6.10", 2, ",\"compatibility\":{\"landlockAbi\":3}",
	  "/compatibility/landlockAbi: the skill needs Landlock ABI >=3, this host has 2" },
	{ "6.10", 2, ",\"compatibility\":{\"features\":[\"landlockScopes\"]}",
	  "/compatibility/features: the skill needs the layer landlockScopes, this host has none" },
	{ "6.10", 6, ",\"compatibility\":{\"features\":[\"landlockScopes\",\"seccomp\"]}", NULL },
};

START_TEST(the_least_host)
{
	struct world w;
	int r;

	world_init(&w);
	snprintf(w.host.kernel, sizeof(w.host.kernel), "%s", compatibilities[_i].kernel);
	w.host.landlock_abi = compatibilities[_i].abi;
	r = resolve(&w, compatibilities[_i].body);
	if (!compatibilities[_i].message) {
		ck_assert_msg(r == 0, "%s", w.err.msg);
	} else {
		ck_assert_int_lt(r, 0);
		ck_assert_str_eq(w.err.msg, compatibilities[_i].message);
		ck_assert_int_eq(w.err.code, NSBOX_E_UNSUPPORTED);
	}
	nsbox_policy_free(w.p);
}
END_TEST

/* What an older Landlock cannot give is said; ABI 1 is used only where Landlock is demanded. */
static const struct {
	int abi;
	const char *body, *lost;
} losses[] = {
	{ 7, "", "\"landlockLost\":[]" },
	{ 6, "", "\"landlockLost\":[]" },
	{ 5, "", "\"landlockLost\":[\"scopes\"]" },
	{ 4, "", "\"landlockLost\":[\"ioctlDev\",\"scopes\"]" },
	{ 3, "", "\"landlockLost\":[\"ioctlDev\",\"scopes\"]" },
	{ 3, ",\"require\":{\"landlockTcp\":\"prefer\"}",
	  "\"landlockLost\":[\"tcp\",\"ioctlDev\",\"scopes\"]" },
	{ 2, "", "\"landlockLost\":[\"truncate\",\"ioctlDev\",\"scopes\"]" },
	{ 1, ",\"require\":{\"landlockFs\":\"require\"}",
	  "\"landlockLost\":[\"refer\",\"truncate\",\"ioctlDev\",\"scopes\"]" },
	{ 1, "", "\"landlockLost\":[\"fs\",\"refer\",\"truncate\",\"ioctlDev\",\"scopes\"]" },
	{ 0, "", "\"landlockLost\":[\"fs\",\"refer\",\"truncate\",\"ioctlDev\",\"scopes\"]" },
};

START_TEST(what_landlock_lacks)
{
	struct world w;

	world_init(&w);
	w.host.landlock_abi = losses[_i].abi;
	must_resolve(&w, losses[_i].body);
	ck_assert(json_has(&w, losses[_i].lost));
	nsbox_policy_free(w.p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("resolve");
	TCase *tc = tcase_create("resolve");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_loop_test(tc, profiles_by_the_table, 0, (int)ARRAY_SIZE(profiles));
	tcase_add_loop_test(tc, under_a_ceiling, 0, (int)ARRAY_SIZE(ceilings));
	tcase_add_test(tc, presets_are_lowered);
	tcase_add_loop_test(tc, ceilings_are_read_strictly, 0, (int)ARRAY_SIZE(bad_ceilings));
	tcase_add_loop_test(tc, what_is_not_enforced_does_not_run, 0, (int)ARRAY_SIZE(gaps));
	tcase_add_test(tc, shared_workspace);
	tcase_add_test(tc, optional_grants_are_recorded);
	tcase_add_test(tc, an_optional_path_may_be_missing);
	tcase_add_test(tc, hosts_are_canonical);
	tcase_add_test(tc, groups_are_their_calls);
	tcase_add_test(tc, raw_groups_are_the_refused_ones);
	tcase_add_loop_test(tc, the_least_host, 0, (int)ARRAY_SIZE(compatibilities));
	tcase_add_loop_test(tc, what_landlock_lacks, 0, (int)ARRAY_SIZE(losses));
	suite_add_tcase(s, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
