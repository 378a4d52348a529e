/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filters judged by an interpreter: rows of tests/unit/seccomp/<arch>.tab on every profile, and
 * properties that no row can list (init passes all that a payload may do; what has no rule on its
 * arguments costs nothing per call).
 */
#include <check.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/fs.h>
#include <linux/netlink.h>
#include <linux/prctl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "nsbox/bpf_sim.h"
#include "nsbox/observe.h"
#include "nsbox/util.h"
#include "policy/calls.h"
#include "policy/denied.h"
#include "policy/internal.h"
#include "policy/syscalls.h"
#include "tests/support/plan_kit.h"

/* ------------------------------------------------------------------ constants of the tables */

#define C(x)                                                                                       \
	{                                                                                          \
#x, (uint64_t)(x)                                                                  \
	}
static const struct constant {
	const char *name;
	uint64_t value;
} constants[] = {
	/* clang-format off */
	C(SIGCHLD), C(CLONE_VM), C(CLONE_VFORK), C(CLONE_FS), C(CLONE_FILES), C(CLONE_SIGHAND),
	C(CLONE_THREAD), C(CLONE_SYSVSEM), C(CLONE_SETTLS), C(CLONE_NEWUSER), C(CLONE_NEWNS),
	C(CLONE_NEWPID), C(CLONE_NEWNET), C(CLONE_NEWIPC), C(CLONE_NEWUTS), C(CLONE_NEWCGROUP),
	{ "CLONE_NEWTIME", 0x80 },
	C(AF_UNIX), C(AF_INET), C(AF_INET6), C(AF_NETLINK), C(AF_PACKET), C(AF_ALG), C(AF_VSOCK),
	C(AF_KEY), C(AF_RXRPC), C(AF_XDP), C(AF_BLUETOOTH), C(SOCK_STREAM), C(SOCK_DGRAM),
	C(SOCK_RAW), C(SOCK_SEQPACKET), C(SOCK_CLOEXEC), C(SOCK_NONBLOCK), { "SOCK_PACKET", 10 },
	C(IPPROTO_TCP), C(IPPROTO_UDP), C(IPPROTO_ICMP), C(IPPROTO_ICMPV6), C(IPPROTO_SCTP),
	C(IPPROTO_MPTCP), C(NETLINK_ROUTE), C(NETLINK_NETFILTER), C(NETLINK_XFRM), C(NETLINK_CRYPTO),
	C(NETLINK_SOCK_DIAG), C(NETLINK_KOBJECT_UEVENT), C(NETLINK_GENERIC), C(NETLINK_AUDIT),
	C(MSG_OOB), C(MSG_FASTOPEN), C(MSG_NOSIGNAL), C(MSG_DONTWAIT), C(MSG_CMSG_CLOEXEC),
	C(TCGETS), C(TIOCGWINSZ), C(TIOCSCTTY), C(FIONREAD), C(TIOCSTI), C(TIOCLINUX), C(TIOCSETD),
	C(TIOCCONS), C(SIOCATMARK), C(FIFREEZE), C(FS_IOC_SETFLAGS),
	C(ADDR_NO_RANDOMIZE), C(READ_IMPLIES_EXEC),
	C(PR_SET_NAME), C(PR_SET_DUMPABLE), C(PR_SET_PDEATHSIG), C(PR_SET_NO_NEW_PRIVS), C(PR_SET_MM),
	C(PR_SET_SECUREBITS), C(PR_SET_KEEPCAPS), C(PR_CAP_AMBIENT), C(PR_CAP_AMBIENT_RAISE),
	C(PR_CAP_AMBIENT_CLEAR_ALL), C(PR_SCHED_CORE), C(PR_CAPBSET_DROP),
	C(SECCOMP_SET_MODE_FILTER), C(SECCOMP_FILTER_FLAG_TSYNC), C(SECCOMP_FILTER_FLAG_NEW_LISTENER),
	C(SECCOMP_GET_ACTION_AVAIL),
	C(PROT_READ), C(PROT_WRITE), C(PROT_EXEC), C(MAP_PRIVATE), C(MAP_ANONYMOUS), C(MAP_GROWSDOWN),
	C(MFD_CLOEXEC), { "MFD_NOEXEC_SEAL", 8 },
	C(S_IFIFO), C(S_IFREG), C(S_IFCHR), C(S_IFBLK), C(S_IFSOCK),
	/* clang-format on */
};

static const struct constant actions[] = {
	{ "ALLOW", SECCOMP_RET_ALLOW },
	{ "KILL", SECCOMP_RET_KILL_PROCESS },
	{ "DONE", SECCOMP_RET_ERRNO },
	{ "EPERM", SECCOMP_RET_ERRNO | EPERM },
	{ "ENOSYS", SECCOMP_RET_ERRNO | ENOSYS },
	{ "EACCES", SECCOMP_RET_ERRNO | EACCES },
	{ "EAFNOSUPPORT", SECCOMP_RET_ERRNO | EAFNOSUPPORT },
	{ "EPROTONOSUPPORT", SECCOMP_RET_ERRNO | EPROTONOSUPPORT },
};

/* ------------------------------------------------------------------ filters under test */

static char *extra_names[] = { (char *)"listmount", (char *)"mount", (char *)"personality", NULL };

/* Each is resolved as a run of it would be; `more` is what init adds. */
enum {
	STANDARD,
	STRICT,
	SKILL,
	NETWORK,
	BUILD,
	PLAIN
}; /* PLAIN: so many are profiles as they are */
static const struct kind {
	const char *name, *manifest;
	unsigned more;
	bool python, special; /* special: '*' does not mean it */
	char *const *extra;
} kinds[] = {
	[STANDARD] = { "standard", "" },
	[STRICT] = { "strict", ",\"profile\":\"strict\"", .python = true },
	[SKILL] = { "skill", ",\"profile\":\"strict\"" },
	[NETWORK] = { "network", ",\"profile\":\"network\"" },
	[BUILD] = { "build", ",\"profile\":\"build\"" },
	{ "init", "", .more = SC_PAYLOAD | SC_INIT },
	{ "nothreads", ",\"process\":{\"threads\":false}", .special = true },
	{ "nolisten", ",\"process\":{\"listen\":false}", .special = true },
	{ "netlink", ",\"process\":{\"netlink\":true}", .special = true },
	{ "nojit", ",\"process\":{\"jit\":false}", .special = true },
	{ "noptrace", ",\"process\":{\"ptrace\":false}", .special = true },
	{ "extra", "", .special = true, .extra = extra_names },
};
#define INIT ((size_t)PLAIN)

static unsigned traits_of(const struct kind *k)
{
	const struct nsbox_host host = kit_full_host();
	const struct nsbox_resolve_options opt = { .host = &host,
						   .python_function = k->python,
						   .as_operator = true };
	struct nsbox_manifest *m = NULL;
	struct nsbox_policy *p = NULL;
	struct nsbox_error err = { 0 };
	char text[200];
	unsigned traits;

	snprintf(text, sizeof(text), "{\"manifestVersion\":1%s}", k->manifest);
	ck_assert_msg(nsbox_manifest_parse(text, strlen(text), &m, &err) == 0, "%s", err.msg);
	ck_assert_msg(nsbox_policy_resolve(m, &opt, &p, &err) == 0, "%s", err.msg);
	traits = seccomp_traits(p) | k->more;
	nsbox_policy_free(p);
	nsbox_manifest_free(m);
	return traits;
}

static unsigned traits[ARRAY_SIZE(kinds)];

static const struct arch {
	const char *name;
	uint32_t audit, token;
} archs[] = {
	[SECCOMP_ARCH_X86_64] = { "x86_64", AUDIT_ARCH_X86_64, SCMP_ARCH_X86_64 },
	[SECCOMP_ARCH_ARM64] = { "arm64", AUDIT_ARCH_AARCH64, SCMP_ARCH_AARCH64 },
};

static const struct arch foreign[] = {
	{ "i386", AUDIT_ARCH_I386, 0 },
	{ "arm", AUDIT_ARCH_ARM, 0 },
};

static struct seccomp_program programs[ARRAY_SIZE(archs)][ARRAY_SIZE(kinds)];

static void compile_all(void)
{
	for (size_t a = 0; a < ARRAY_SIZE(archs); a++)
		for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
			const struct seccomp_spec spec = { .arch = (enum seccomp_arch)a,
							   .extra = kinds[k].extra };
			struct nsbox_error err = { 0 };
			struct seccomp_program *p = &programs[a][k];
			const char *why;

			traits[k] = traits_of(&kinds[k]);
			ck_assert_msg(seccomp_compile(&spec, &traits[k], 1, p, &err) == 0, "%s",
				      err.msg);
			why = bpf_sim_check(p->insn, p->n);
			ck_assert_msg(!why, "%s %s: %s", archs[a].name, kinds[k].name, why);
		}
}

static void free_all(void)
{
	for (size_t a = 0; a < ARRAY_SIZE(archs); a++)
		for (size_t k = 0; k < ARRAY_SIZE(kinds); k++)
			free(programs[a][k].insn);
}

static uint32_t judge(size_t a, size_t k, uint32_t audit, uint32_t nr, const uint64_t args[6])
{
	struct seccomp_data d = { .nr = (int)nr, .arch = audit };

	for (int i = 0; i < 6; i++)
		d.args[i] = args[i];
	return bpf_sim_run(programs[a][k].insn, programs[a][k].n, &d);
}

/* ------------------------------------------------------------------ rows */

static bool constant(const char *word, size_t len, const struct constant *table, size_t n,
		     uint64_t *ret)
{
	for (size_t i = 0; i < n; i++)
		if (strlen(table[i].name) == len && !strncmp(table[i].name, word, len)) {
			*ret = table[i].value;
			return true;
		}
	return false;
}

static uint64_t argument(const char *word)
{
	uint64_t value = 0, one;

	for (const char *p = word; *p; p += strcspn(p, "|"), p += *p == '|') {
		size_t len = strcspn(p, "|");
		char *end;

		if (!constant(p, len, constants, ARRAY_SIZE(constants), &one)) {
			one = *p == '-' ? (uint64_t)strtoll(p, &end, 0) : strtoull(p, &end, 0);
			ck_assert_msg(end == p + len, "unknown constant in '%s'", word);
		}
		value |= one;
	}
	return value;
}

static uint32_t number_of_call(size_t a, const char *word)
{
	char *end;
	unsigned long n = strtoul(word, &end, 0);
	int nr;

	if (!*end)
		return (uint32_t)n;
	for (size_t i = 0; i < syscall_n_newer; i++)
		if (!strcmp(word, syscall_newer[i].name))
			return syscall_newer[i].nr;
	nr = seccomp_syscall_resolve_name_arch(archs[a].token, word);
	ck_assert_msg(nr >= 0, "%s has no call '%s'", archs[a].name, word);
	return (uint32_t)nr;
}

static uint32_t audit_of(size_t a, char **call)
{
	char *colon = strchr(*call, ':');

	if (!colon)
		return archs[a].audit;
	*colon = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(foreign) + ARRAY_SIZE(archs); i++) {
		const struct arch *x =
			i < ARRAY_SIZE(foreign) ? &foreign[i] : &archs[i - ARRAY_SIZE(foreign)];

		if (!strcmp(x->name, *call)) {
			*call = colon + 1;
			return x->audit;
		}
	}
	ck_abort_msg("unknown architecture '%s'", *call);
	return 0;
}

struct row {
	const char *profile;
	uint32_t audit, nr, action;
	uint64_t args[6];
};

static bool parse_row(size_t a, char *line, struct row *ret)
{
	char *save = NULL, *word, *call;
	uint64_t action;
	int n = 0;

	line[strcspn(line, "#\n")] = '\0';
	*ret = (struct row){ .profile = strtok_r(line, " \t", &save) };
	if (!ret->profile)
		return false;
	call = strtok_r(NULL, " \t", &save);
	ck_assert_ptr_nonnull(call);
	ret->audit = audit_of(a, &call);
	ret->nr = number_of_call(a, call);
	while ((word = strtok_r(NULL, " \t", &save)) && strcmp(word, "->") != 0) {
		ck_assert_int_lt(n, 6);
		ret->args[n++] = argument(word);
	}
	word = strtok_r(NULL, " \t", &save);
	ck_assert_msg(word && constant(word, strlen(word), actions, ARRAY_SIZE(actions), &action),
		      "unknown action '%s'", word ? word : "");
	ret->action = (uint32_t)action;
	return true;
}

/* What the observed form may answer: a notification for each refusal, and all else as it was. */
static uint32_t observed_action(size_t k, const struct row *r)
{
	bool clone3 = r->nr == SYS_clone3 && r->audit == archs[SECCOMP_ARCH_NATIVE].audit;
	bool listener = r->nr == SYS_seccomp && (uint32_t)r->args[0] == SECCOMP_SET_MODE_FILTER &&
			(r->args[1] & SECCOMP_FILTER_FLAG_NEW_LISTENER);

	if (clone3 || (r->action & SECCOMP_RET_ACTION_FULL) != SECCOMP_RET_ERRNO ||
	    !(r->action & SECCOMP_RET_DATA))
		return r->action;
	if (listener)
		return k == INIT ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | EPERM;
	return SECCOMP_RET_USER_NOTIF;
}

static void judge_observed(size_t k, const struct row *r, const char *where, int line)
{
	static struct sock_filter form[OBSERVE_MAX + OBSERVE_EXTRA];
	const struct seccomp_program *p = &programs[SECCOMP_ARCH_NATIVE][k];
	int n = observe_rewrite(p->insn, p->n, k == INIT ? OBSERVE_INIT : OBSERVE_PAYLOAD, form);
	struct seccomp_data d = { .nr = (int)r->nr, .arch = r->audit };
	struct nsbox_denied_call told;
	char buf[64];
	const char *name;
	uint32_t arg[6];

	ck_assert_int_gt(n, 0);
	ck_assert_ptr_null(bpf_sim_check(form, (size_t)n));
	for (int i = 0; i < 6; i++)
		arg[i] = (uint32_t)(d.args[i] = r->args[i]);
	ck_assert_msg(bpf_sim_run(form, (size_t)n, &d) == observed_action(k, r),
		      "%s:%d: %s: observed: %#x", where, line, kinds[k].name,
		      bpf_sim_run(form, (size_t)n, &d));
	if ((r->action & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO &&
	    (r->action & SECCOMP_RET_DATA))
		ck_assert_uint_eq(observe_judge(p->insn, p->n, &d, &told),
				  r->action & SECCOMP_RET_DATA);
	if (k != INIT) { /* traced: opens as well, and nothing else */
		bool opens = observe_open(r->nr) && r->audit == archs[SECCOMP_ARCH_NATIVE].audit;

		n = observe_rewrite(p->insn, p->n, OBSERVE_TRACED, form);
		ck_assert_int_gt(n, 0);
		ck_assert_ptr_null(bpf_sim_check(form, (size_t)n));
		ck_assert_uint_eq(bpf_sim_run(form, (size_t)n, &d),
				  opens ? SECCOMP_RET_USER_NOTIF : observed_action(k, r));
	}
	name = call_name(r->nr, SECCOMP_ARCH_NATIVE, buf, sizeof(buf));
	if (name && !kinds[k].extra && r->audit == archs[SECCOMP_ARCH_NATIVE].audit)
		ck_assert_msg(denied_judge(name, arg, traits[k]) ==
				      (r->action == SECCOMP_RET_ALLOW
					       ? DENIED_ALLOWED
					       : r->action & SECCOMP_RET_DATA),
			      "%s:%d: %s: the tables say %#x", where, line, kinds[k].name,
			      denied_judge(name, arg, traits[k]));
}

static unsigned judge_row(size_t a, const struct row *r, const char *where, int line)
{
	unsigned tried = 0;

	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
		uint32_t action;

		/* '*': every profile, and init */
		if (strcmp(r->profile, "*") ? strcmp(r->profile, kinds[k].name) != 0
					    : kinds[k].special)
			continue;
		action = judge(a, k, r->audit, r->nr, r->args);
		ck_assert_msg(action == r->action, "%s:%d: %s %s: got %#x, expected %#x", where,
			      line, archs[a].name, kinds[k].name, action, r->action);
		if (a == SECCOMP_ARCH_NATIVE)
			judge_observed(k, r, where, line);
		tried++;
	}
	return tried;
}

static void judge_file(size_t a, const char *name)
{
	char path[4096], line[512];
	unsigned rows = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%.*s/seccomp/%s.tab",
		 (int)(strrchr(__FILE__, '/') - __FILE__), __FILE__, name);
	f = fopen(path, "re");
	ck_assert_msg(f != NULL, "open %s: %s (run from the top directory)", path, strerror(errno));
	for (int n = 1; fgets(line, sizeof(line), f); n++) {
		struct row r;

		if (!parse_row(a, line, &r))
			continue;
		ck_assert_msg(judge_row(a, &r, path, n) > 0, "%s:%d: unknown profile", path, n);
		rows++;
	}
	fclose(f);
	ck_assert_uint_gt(rows, 5);
}

START_TEST(rows_common)
{
	judge_file((size_t)_i, "common");
}
END_TEST

START_TEST(rows_of_the_architecture)
{
	judge_file((size_t)_i, archs[_i].name);
}
END_TEST

/* ------------------------------------------------------------------ properties */

static uint64_t interesting(unsigned *seed)
{
	static const uint64_t values[] = {
		0,	    1,		2,	    3,		 8,	     10,
		0x10,	    0x26,	0x80,	    0x200,	 0x400,	     0x1000,
		0x5412,	    0x8905,	0x10000,    0x20000,	 0x40000,    0x10000000,
		0x20000000, 0x7e020000, 0xffffffff, 0x100000000, UINT64_MAX,
	};
	uint64_t v = values[(unsigned)rand_r(seed) % ARRAY_SIZE(values)];

	if (rand_r(seed) % 4 == 0)
		v |= values[(unsigned)rand_r(seed) % ARRAY_SIZE(values)];
	return rand_r(seed) % 8 == 0 ? (v << 32) | v : v;
}

/* A payload's filter is stacked on init's: what init refuses no payload could do. */
START_TEST(init_passes_what_payloads_may)
{
	size_t a = (size_t)_i;
	unsigned seed = 1, allowed = 0;

	for (uint32_t n = 0; n < 200000; n++) {
		uint32_t nr = n % 480;
		uint64_t args[6];

		for (int i = 0; i < 6; i++)
			args[i] = interesting(&seed);
		for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
			if (k == INIT || kinds[k].extra)
				continue;
			if (judge(a, k, archs[a].audit, nr, args) != SECCOMP_RET_ALLOW)
				continue;
			allowed++;
			ck_assert_msg(judge(a, INIT, archs[a].audit, nr, args) == SECCOMP_RET_ALLOW,
				      "init refuses call %u, %s does not", nr, kinds[k].name);
		}
	}
	ck_assert_uint_gt(allowed, 100000);
}
END_TEST

/* Every profile is at most the standard one. */
START_TEST(profiles_are_within_standard)
{
	size_t a = (size_t)_i;
	unsigned seed = 7, less = 0;

	for (uint32_t n = 0; n < 100000; n++) {
		uint32_t nr = n % 480;
		uint64_t args[6];
		bool standard;

		for (int i = 0; i < 6; i++)
			args[i] = interesting(&seed);
		standard = judge(a, 0, archs[a].audit, nr, args) == SECCOMP_RET_ALLOW;
		for (size_t k = 1; k < PLAIN; k++) {
			bool other = judge(a, k, archs[a].audit, nr, args) == SECCOMP_RET_ALLOW;

			ck_assert_msg(!other || standard, "%s allows call %u", kinds[k].name, nr);
			less += standard && !other;
		}
	}
	ck_assert_uint_gt(less, 100);
}
END_TEST

static bool has_rule(const char *name, unsigned have)
{
	for (size_t i = 0; i < syscall_n_rules; i++)
		if (!strcmp(syscall_rules[i].name, name) && !(syscall_rules[i].unless & have))
			return true;
	return false;
}

/* The tables are what the filter does: each name, by its number, on each architecture. */
START_TEST(tables_are_the_filter)
{
	static const uint64_t none[6];
	size_t a = (size_t)_i;
	unsigned seen = 0;

	for (size_t g = 0; g < syscall_n_allowed; g++)
		for (const char *const *name = syscall_allowed[g].names; *name; name++) {
			int nr = seccomp_syscall_resolve_name_arch(archs[a].token, *name);
			bool free_of_charge;

			ck_assert_msg(nr != __NR_SCMP_ERROR, "nobody knows '%s'", *name);
			if (nr < 0)
				continue;
			seen++;
			free_of_charge = bpf_sim_is_constant(programs[a][0].insn, programs[a][0].n,
							     archs[a].audit, (uint32_t)nr);
			ck_assert_msg(free_of_charge == !has_rule(*name, traits[STANDARD]),
				      "%s: answered from the bitmap: %d", *name, free_of_charge);
			if (!has_rule(*name, traits[STANDARD]))
				ck_assert_msg(judge(a, 0, archs[a].audit, (uint32_t)nr, none) ==
						      SECCOMP_RET_ALLOW,
					      "%s is not allowed", *name);
		}
	ck_assert_uint_gt(seen, 200);
}
END_TEST

START_TEST(names_of_the_tables_exist)
{
	for (size_t g = 0; g < syscall_n_refused; g++)
		for (const char *const *name = syscall_refused[g].names; *name; name++)
			ck_assert_msg(seccomp_name_known(*name), "nobody knows '%s'", *name);
	for (size_t i = 0; i < syscall_n_rules; i++)
		ck_assert_msg(seccomp_name_known(syscall_rules[i].name), "nobody knows '%s'",
			      syscall_rules[i].name);
	for (size_t i = 0; i < syscall_n_newer; i++)
		ck_assert_uint_eq(syscall_newer[i].nr, SYSCALL_NEWER_FIRST + i);
	ck_assert(!seccomp_name_known("no_such_call"));
}
END_TEST

/* Those of one call are compiled as one: others further down would never be reached. */
START_TEST(rules_of_a_call_stand_together)
{
	for (size_t i = 1; i < syscall_n_rules; i++)
		for (size_t k = 0; k + 1 < i; k++)
			ck_assert_msg(strcmp(syscall_rules[i].name, syscall_rules[k].name) != 0 ||
					      strcmp(syscall_rules[i].name,
						     syscall_rules[i - 1].name) == 0,
				      "%s", syscall_rules[i].name);
}
END_TEST

START_TEST(noexec_refuses_exec_alone)
{
	struct sock_filter prog[16];
	size_t n = seccomp_noexec(prog, ARRAY_SIZE(prog));
	const uint32_t audit = archs[SECCOMP_ARCH_NATIVE].audit;
	unsigned refused = 0;

	ck_assert_ptr_null(bpf_sim_check(prog, n));
	for (uint32_t nr = 0; nr < 500; nr++) {
		const struct seccomp_data d = { .nr = (int)nr, .arch = audit };
		uint32_t action = bpf_sim_run(prog, n, &d);

		if (action == (SECCOMP_RET_ERRNO | EPERM))
			refused++;
		else
			ck_assert_uint_eq(action, SECCOMP_RET_ALLOW);
	}
	ck_assert_uint_eq(refused, 2);
	ck_assert_uint_eq(
		bpf_sim_run(prog, n,
			    &(struct seccomp_data){ .nr = SCMP_SYS(execve), .arch = audit }),
		SECCOMP_RET_ERRNO | EPERM);
	ck_assert_uint_eq(
		bpf_sim_run(prog, n, &(struct seccomp_data){ .nr = 11, .arch = AUDIT_ARCH_I386 }),
		SECCOMP_RET_KILL_PROCESS);
	ck_assert_uint_eq(seccomp_noexec(prog, 3), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("seccomp_tables");
	TCase *tc = tcase_create("filters");
	SRunner *sr = srunner_create(s);
	int failed, n = (int)ARRAY_SIZE(archs);

	tcase_set_timeout(tc, 60);
	tcase_add_unchecked_fixture(tc, compile_all, free_all);
	tcase_add_loop_test(tc, rows_common, 0, n);
	tcase_add_loop_test(tc, rows_of_the_architecture, 0, n);
	tcase_add_loop_test(tc, init_passes_what_payloads_may, 0, n);
	tcase_add_loop_test(tc, profiles_are_within_standard, 0, n);
	tcase_add_loop_test(tc, tables_are_the_filter, 0, n);
	tcase_add_test(tc, names_of_the_tables_exist);
	tcase_add_test(tc, rules_of_a_call_stand_together);
	tcase_add_test(tc, noexec_refuses_exec_alone);
	suite_add_tcase(s, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
