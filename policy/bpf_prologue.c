/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Argument rules as hand-made BPF in front of libseccomp's program.
 *
 * Why not libseccomp: a rule "refuse call X if ..." beside "allow call X" is dropped by it as
 * redundant, two "not equal" rules mean "always", and 2.5.4 merges comparisons of 64-bit arguments
 * in a way that weakens them. Here each rule is a few instructions, in order, first match wins, and
 * the whole is small enough to be read and to be checked by an interpreter in the tests.
 *
 * Calls without rules run through compares of the number only, which the kernel (5.11) evaluates
 * once when the filter is installed and remembers in a bitmap: they cost nothing per call.
 */
#include "policy/bpf_prologue.h"

#include <errno.h>
#include <linux/seccomp.h>

#define OFF_NR	   offsetof(struct seccomp_data, nr)
#define OFF_ARCH   offsetof(struct seccomp_data, arch)
#define OFF_LOW(a) (offsetof(struct seccomp_data, args) + 8 * (size_t)(a)) /* little endian */

#define LOAD (BPF_LD | BPF_W | BPF_ABS)
#define JEQ  (BPF_JMP | BPF_JEQ | BPF_K)
#define JGE  (BPF_JMP | BPF_JGE | BPF_K)
#define JSET (BPF_JMP | BPF_JSET | BPF_K)
#define JUMP (BPF_JMP | BPF_JA)
#define AND  (BPF_ALU | BPF_AND | BPF_K)
#define RET  (BPF_RET | BPF_K)

/* Placeholder of a jump behind the prologue: no real jump is that long. */
#define TO_END UINT32_MAX

#define X32_BIT 0x40000000u

void bpf_emit(struct bpf_code *c, uint16_t code, uint8_t jt, uint8_t jf, uint32_t k)
{
	if (c->n < BPF_PROLOGUE_MAX)
		c->insn[c->n] = (struct sock_filter){ code, jt, jf, k };
	c->n++;
}

void bpf_load_number(struct bpf_code *c)
{
	bpf_emit(c, LOAD, 0, 0, OFF_NR);
}

void bpf_check_arch(struct bpf_code *c, uint32_t audit_arch)
{
	bpf_emit(c, LOAD, 0, 0, OFF_ARCH);
	bpf_emit(c, JEQ, 1, 0, audit_arch);
	bpf_emit(c, RET, 0, 0, SECCOMP_RET_KILL_PROCESS);
	bpf_load_number(c);
}

void bpf_refuse_x32(struct bpf_code *c)
{
	bpf_emit(c, JGE, 0, 1, X32_BIT);
	bpf_emit(c, RET, 0, 0, SECCOMP_RET_ERRNO | ENOSYS);
}

void bpf_return_for(struct bpf_code *c, uint32_t nr, uint32_t action)
{
	bpf_emit(c, JEQ, 0, 1, nr);
	bpf_emit(c, RET, 0, 0, action);
}

static void patch_jump(struct bpf_code *c, size_t at, uint32_t distance)
{
	if (at < BPF_PROLOGUE_MAX)
		c->insn[at].k = distance;
}

/* Each condition that does not hold jumps to the next rule: backpatched, at most 8 away. */
static void emit_rule(struct bpf_code *c, const struct arg_rule *r)
{
	size_t branch[RULE_CONDS], n = 0;

	for (int i = 0; i < RULE_CONDS && r->cond[i].op != COND_NONE; i++) {
		const struct arg_cond *q = &r->cond[i];

		bpf_emit(c, LOAD, 0, 0, (uint32_t)OFF_LOW(q->arg));
		if (q->op == COND_EQ && q->mask != UINT32_MAX)
			bpf_emit(c, AND, 0, 0, q->mask);
		branch[n++] = c->n;
		if (q->op == COND_EQ)
			bpf_emit(c, JEQ, 0, 0, q->value);
		else
			bpf_emit(c, JSET, 0, 0, q->mask);
	}
	if (r->verdict == RULE_PASS)
		bpf_emit(c, JUMP, 0, 0, TO_END);
	else
		bpf_emit(c, RET, 0, 0, SECCOMP_RET_ERRNO | r->verdict);
	for (size_t i = 0; i < n; i++)
		if (branch[i] < BPF_PROLOGUE_MAX)
			c->insn[branch[i]].jf = (uint8_t)(c->n - branch[i] - 1);
}

void bpf_rules(struct bpf_code *c, uint32_t nr, const struct arg_rule *const *rules, size_t n)
{
	size_t skip;

	/* Blocks may be longer than the 255 that a conditional jump reaches. */
	bpf_emit(c, JEQ, 1, 0, nr);
	skip = c->n;
	bpf_emit(c, JUMP, 0, 0, 0);
	for (size_t i = 0; i < n; i++)
		emit_rule(c, rules[i]);
	bpf_emit(c, JUMP, 0, 0, TO_END);
	patch_jump(c, skip, (uint32_t)(c->n - skip - 1));
}

int bpf_finish(struct bpf_code *c)
{
	if (c->n > BPF_PROLOGUE_MAX)
		return -E2BIG;
	for (size_t i = 0; i < c->n; i++)
		if (c->insn[i].code == JUMP && c->insn[i].k == TO_END)
			c->insn[i].k = (uint32_t)(c->n - i - 1);
	return 0;
}
