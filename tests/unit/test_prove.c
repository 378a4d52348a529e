/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prover against real filters and against the same filters with one instruction changed: a
 * change that lets more through must be found each time, and the unchanged twin must pass.
 */
#include <check.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/socket.h>

#include "nsbox/bpf_sim.h"
#include "nsbox/util.h"
#include "policy/calls.h"
#include "policy/prove.h"
#include "policy/syscalls.h"

#define STANDARD                                                                                   \
	(SC_PTRACE | SC_JIT | SC_THREADS | SC_MEMFD_EXEC | SC_LISTEN | SC_SETID | SC_OWN_NET)
#define INIT (SC_PAYLOAD | SC_INIT)

#define PROCESS (STANDARD & ~(unsigned)SC_OWN_NET) /* tier "process" */

static const unsigned kinds[] = { STANDARD,   SC_THREADS | SC_MEMFD_EXEC | SC_OWN_NET,
				  PROCESS,    SC_THREADS | SC_OWN_NET,
				  SC_OWN_NET, SC_PAYLOAD,
				  INIT };
#define KINDS (int)ARRAY_SIZE(kinds)
#define ARCHS 2

static struct seccomp_program compile(int arch, unsigned traits, char *const *extra)
{
	const struct seccomp_spec spec = { .arch = (enum seccomp_arch)arch, .extra = extra };
	struct seccomp_program p;
	struct nsbox_error err = { 0 };

	ck_assert_msg(seccomp_compile(&spec, &traits, 1, &p, &err) == 0, "%s", err.msg);
	return p;
}

static struct prove_report prove(const struct seccomp_program *p, int arch, unsigned traits,
				 char *const *extra)
{
	const struct program prog = { p->insn, p->n };
	const struct prove_spec spec = { .arch = (enum seccomp_arch)arch,
					 .traits = traits,
					 .extra = extra };
	struct prove_report rep = { 0 };
	struct nsbox_error err = { 0 };
	int r = prove_filter(&prog, &spec, &rep, &err);

	ck_assert_msg(r == 0, "%s", err.msg);
	return rep;
}

static void expect_clean(const struct prove_report *rep)
{
	const struct prove_violation *v = &rep->violation[0];

	ck_assert_msg(!rep->n_violations, "%s: %s: arch %#x, call %d(%#llx, %#llx, %#llx) -> %#x",
		      prove_kind_text(v->kind), v->rule ? v->rule->why : "", v->call.arch,
		      v->call.nr, (unsigned long long)v->call.args[0],
		      (unsigned long long)v->call.args[1], (unsigned long long)v->call.args[2],
		      v->action);
}

START_TEST(real_filters_hold)
{
	int arch = _i % ARCHS;
	unsigned traits = kinds[_i / ARCHS];
	struct seccomp_program p = compile(arch, traits, NULL);
	struct prove_report rep = prove(&p, arch, traits, NULL);

	expect_clean(&rep);
	ck_assert_uint_gt(rep.paths, rep.classes / 2);
	ck_assert_uint_gt(rep.checks, traits & SC_OWN_NET ? 100u : 30u);
	ck_assert_uint_eq(rep.instructions, p.n);
	/* libseccomp checks the architecture again, after us; jumps behind rules that always match. */
	ck_assert_uint_le(rep.n_unreached, 16);
	free(p.insn);
}
END_TEST

/* What an operator allows by name is no violation; without the name it is one. */
START_TEST(operator_calls)
{
	char *extra[] = { (char *)"mount", (char *)"personality", (char *)"listmount", NULL };
	struct seccomp_program p = compile(_i, STANDARD, extra);
	struct prove_report rep = prove(&p, _i, STANDARD, extra);

	expect_clean(&rep);
	rep = prove(&p, _i, STANDARD, NULL);
	ck_assert_uint_gt(rep.n_violations, 0);
	free(p.insn);
}
END_TEST

/* The filter of one policy is not the filter of a narrower one. */
START_TEST(traits_are_told_apart)
{
	static const unsigned dropped[] = { SC_PTRACE,	SC_JIT,	   SC_THREADS, SC_MEMFD_EXEC,
					    SC_NETLINK, SC_LISTEN, SC_SETID,   SC_OWN_NET };
	struct seccomp_program p = compile(_i, SC_PAYLOAD, NULL);

	for (size_t i = 0; i < ARRAY_SIZE(dropped); i++) {
		struct prove_report rep = prove(&p, _i, SC_PAYLOAD & ~dropped[i], NULL);

		ck_assert_msg(rep.n_violations, "trait %#x is not missed", dropped[i]);
	}
	free(p.insn);
}
END_TEST

static bool reaches(const struct seccomp_program *p, int arch, unsigned traits, size_t at)
{
	struct prove_report rep = prove(p, arch, traits, NULL);

	for (size_t i = 0; i < MIN(rep.n_unreached, ARRAY_SIZE(rep.unreached)); i++)
		if (rep.unreached[i] == at)
			return false;
	return true;
}

static bool is_foreign_end(const struct seccomp_program *p, size_t at)
{
	return p->insn[at].k == SECCOMP_RET_KILL_PROCESS;
}

/* Every refusal turned into "allow", one at a time. */
START_TEST(flipped_return)
{
	int arch = _i % ARCHS;
	unsigned traits = kinds[_i / ARCHS], flipped = 0;
	struct seccomp_program p = compile(arch, traits, NULL);

	for (size_t i = 0; i < p.n; i++) {
		struct sock_filter was = p.insn[i];
		struct prove_report rep;

		if (was.code != (BPF_RET | BPF_K) || was.k == SECCOMP_RET_ALLOW)
			continue;
		if (is_foreign_end(&p, i) && i > 4 && !reaches(&p, arch, traits, i))
			continue;
		p.insn[i].k = SECCOMP_RET_ALLOW;
		rep = prove(&p, arch, traits, NULL);
		ck_assert_msg(rep.n_violations, "return %zu (%#x) may be flipped", i, was.k);
		/* The counterexample is one: the interpreter lets it through. */
		ck_assert_uint_eq(bpf_sim_run(p.insn, p.n, &rep.violation[0].call),
				  SECCOMP_RET_ALLOW);
		p.insn[i] = was;
		flipped++;
	}
	ck_assert_uint_gt(flipped, 20);
	ck_assert_uint_eq(prove(&p, arch, traits, NULL).n_violations, 0);
	free(p.insn);
}
END_TEST

/* A rule's block is skipped whatever the number is: dropped. */
START_TEST(dropped_rules)
{
	int arch = _i % ARCHS;
	unsigned traits = kinds[_i / ARCHS], dropped = 0;
	struct seccomp_program p = compile(arch, traits, NULL);

	for (size_t i = 0; i + 1 < p.n; i++) {
		struct sock_filter was = p.insn[i];
		struct prove_report rep;

		/* "is it this number? then skip the jump over the block" */
		if (was.code != (BPF_JMP | BPF_JEQ | BPF_K) || was.jt != 1 || was.jf != 0 ||
		    p.insn[i + 1].code != (BPF_JMP | BPF_JA))
			continue;
		p.insn[i].jt = 0;
		rep = prove(&p, arch, traits, NULL);
		ck_assert_msg(rep.n_violations, "the rules of call %u may be dropped", was.k);
		ck_assert_int_eq(rep.violation[0].kind, PROVE_REFUSED);
		p.insn[i] = was;
		dropped++;
	}
	ck_assert_uint_gt(dropped, 12);
	free(p.insn);
}
END_TEST

START_TEST(no_arch_check)
{
	struct seccomp_program p = compile(_i, STANDARD, NULL);
	struct prove_report rep;

	ck_assert_uint_eq(p.insn[1].k, call_audit_arch((enum seccomp_arch)_i));
	p.insn[1].jf = p.insn[1].jt; /* libseccomp's own check is behind the prologue's returns */
	rep = prove(&p, _i, STANDARD, NULL);
	ck_assert_uint_gt(rep.n_violations, 0);
	ck_assert_int_eq(rep.violation[0].kind, PROVE_FOREIGN);
	ck_assert_uint_ne(rep.violation[0].call.arch, call_audit_arch((enum seccomp_arch)_i));
	free(p.insn);
}
END_TEST

/* Not all numbers above x32's bit: just one of them, which is mprotect's. */
START_TEST(one_x32_number)
{
	struct seccomp_program p = compile(SECCOMP_ARCH_X86_64, STANDARD, NULL);
	struct sock_filter *f = calloc(p.n + 2, sizeof(*f));
	struct prove_report rep;

	memcpy(f, p.insn, 4 * sizeof(*f));
	f[4] = (struct sock_filter){ BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0x4000000a };
	f[5] = (struct sock_filter){ BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW };
	memcpy(f + 6, p.insn + 4, (p.n - 4) * sizeof(*f));
	free(p.insn);
	p = (struct seccomp_program){ f, p.n + 2 };
	rep = prove(&p, SECCOMP_ARCH_X86_64, STANDARD, NULL);
	ck_assert_uint_eq(rep.n_violations, 1);
	ck_assert_int_eq(rep.violation[0].kind, PROVE_FOREIGN);
	ck_assert_int_eq(rep.violation[0].call.nr, 0x4000000a);
	free(p.insn);
}
END_TEST

/* One flag of many is no longer refused: found with arguments that show it. */
START_TEST(weakened_mask)
{
	struct seccomp_program p = compile(_i, STANDARD, NULL);
	const struct prove_violation *v;
	struct prove_report rep;
	size_t at = 0;

	while (at < p.n &&
	       !(p.insn[at].code == (BPF_JMP | BPF_JSET | BPF_K) && p.insn[at].k == 0x7e020000u))
		at++;
	ck_assert_uint_lt(at, p.n);
	p.insn[at].k &= ~(uint32_t)CLONE_NEWUSER;
	rep = prove(&p, _i, STANDARD, NULL);
	ck_assert_uint_eq(rep.n_violations, 1);
	v = &rep.violation[0];
	ck_assert_int_eq(v->call.nr, call_number("clone", (enum seccomp_arch)_i));
	ck_assert_uint_eq(v->call.args[0] & 0x7e020000u, CLONE_NEWUSER);
	free(p.insn);
}
END_TEST

/* ------------------------------------------------------------------ init and payload */

static struct prove_report superset(const struct seccomp_program *init,
				    const struct seccomp_program *payload, int arch)
{
	const struct program i = { init->insn, init->n }, p = { payload->insn, payload->n };
	struct prove_report rep = { 0 };
	struct nsbox_error err = { 0 };

	ck_assert_msg(prove_superset(&i, &p, (enum seccomp_arch)arch, &rep, &err) == 0, "%s",
		      err.msg);
	return rep;
}

START_TEST(init_allows_all)
{
	int arch = _i % ARCHS;
	struct seccomp_program init = compile(arch, INIT, NULL);
	struct seccomp_program payload = compile(arch, kinds[_i / ARCHS], NULL);
	struct prove_report rep = superset(&init, &payload, arch);

	expect_clean(&rep);
	ck_assert_uint_gt(rep.checks, 200);
	free(payload.insn);
	free(init.insn);
}
END_TEST

START_TEST(narrow_init_is_found)
{
	struct seccomp_program init = compile(_i, SC_THREADS | SC_INIT, NULL); /* no ptrace */
	struct seccomp_program payload = compile(_i, STANDARD, NULL);
	struct prove_report rep = superset(&init, &payload, _i);

	ck_assert_uint_gt(rep.n_violations, 0);
	ck_assert_int_eq(rep.violation[0].kind, PROVE_NOT_IN_INIT);
	free(payload.insn);
	free(init.insn);
}
END_TEST

/* ------------------------------------------------------------------ the solver */

static int solve(const struct word_cond *c, size_t n, uint32_t *ret)
{
	struct seccomp_data d = { 0 };
	int r = walk_solve(c, n, &d);

	*ret = (uint32_t)d.args[0];
	return r;
}

START_TEST(solver)
{
	const uint8_t w = WORD_LOW(0);
	const struct word_cond cases[][4] = {
		{ { w, WORD_EQ, true, 0xf, 2 }, { w, WORD_EQ, false, 0xff, 2 } },
		{ { w, WORD_ANY, true, 0x30, 0 }, { w, WORD_ANY, false, 0x10, 0 } },
		{ { w, WORD_GT, true, UINT32_MAX, 99 }, { w, WORD_GE, false, UINT32_MAX, 101 } },
		{ { w, WORD_GE, true, 0xf0, 0x50 }, { w, WORD_EQ, false, 0xf0, 0x50 } },
		{ { w, WORD_EQ, false, UINT32_MAX, 0 }, { w, WORD_EQ, false, UINT32_MAX, 1 } },
	};
	const uint32_t expected[] = { 0x12, 0x20, 100, 0x60, 2 };
	const struct word_cond never[][3] = {
		{ { w, WORD_EQ, true, 0xf, 2 }, { w, WORD_EQ, false, 0x3, 2 } },
		{ { w, WORD_ANY, true, 0x30, 0 }, { w, WORD_ANY, false, 0xf0, 0 } },
		{ { w, WORD_GT, true, UINT32_MAX, 99 }, { w, WORD_GE, false, UINT32_MAX, 100 } },
		{ { w, WORD_EQ, true, 0xf, 0x12 } },
		{ { w, WORD_EQ, true, 0x1, 0 },
		  { w, WORD_EQ, false, 0x3, 0 },
		  { w, WORD_EQ, false, 0x3, 2 } },
	};
	uint32_t x;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		ck_assert_int_eq(solve(cases[i], 2, &x), 1);
		ck_assert_uint_eq(x, expected[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(never); i++)
		ck_assert_int_eq(solve(never[i], i == 3 ? 1 : i == 4 ? 3 : 2, &x), 0);
}
END_TEST

/* A filter that looks at bits of the number is not understood, and that is an error, not a pass. */
START_TEST(undecided_is_an_error)
{
	const struct sock_filter f[] = {
		{ BPF_LD | BPF_W | BPF_ABS, 0, 0, 0 },
		{ BPF_ALU | BPF_AND | BPF_K, 0, 0, 0xff },
		{ BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 1 },
		{ BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW },
		{ BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS },
	};
	const struct program prog = { f, ARRAY_SIZE(f) };
	const struct prove_spec spec = { .arch = SECCOMP_ARCH_X86_64 };
	struct prove_report rep = { 0 };
	struct nsbox_error err = { 0 };

	ck_assert_int_lt(prove_filter(&prog, &spec, &rep, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.msg, "instruction 1"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("prove");
	TCase *tc = tcase_create("prove");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, real_filters_hold, 0, KINDS * ARCHS);
	tcase_add_loop_test(tc, operator_calls, 0, ARCHS);
	tcase_add_loop_test(tc, traits_are_told_apart, 0, ARCHS);
	tcase_add_loop_test(tc, flipped_return, 0, 3 * ARCHS); /* standard, strict, process */
	tcase_add_loop_test(tc, dropped_rules, 0, 2 * ARCHS);
	tcase_add_loop_test(tc, no_arch_check, 0, ARCHS);
	tcase_add_test(tc, one_x32_number);
	tcase_add_loop_test(tc, weakened_mask, 0, ARCHS);
	tcase_add_loop_test(tc, init_allows_all, 0, KINDS * ARCHS);
	tcase_add_loop_test(tc, narrow_init_is_found, 0, ARCHS);
	tcase_add_test(tc, solver);
	tcase_add_test(tc, undecided_is_an_error);
	suite_add_tcase(s, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
