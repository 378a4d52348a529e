/* SPDX-License-Identifier: Apache-2.0 */
/* See bpf_sim.h. Only what seccomp filters are made of; all else is refused by the check. */
#include "nsbox/bpf_sim.h"

#include <stdbool.h>
#include <string.h>

static bool is_jump(uint16_t code)
{
	return BPF_CLASS(code) == BPF_JMP && code != (BPF_JMP | BPF_JA);
}

static bool known(uint16_t code)
{
	switch (code) {
	case BPF_LD | BPF_W | BPF_ABS:
	case BPF_ALU | BPF_AND | BPF_K:
	case BPF_JMP | BPF_JA:
	case BPF_JMP | BPF_JEQ | BPF_K:
	case BPF_JMP | BPF_JGT | BPF_K:
	case BPF_JMP | BPF_JGE | BPF_K:
	case BPF_JMP | BPF_JSET | BPF_K:
	case BPF_RET | BPF_K: return true;
	default: return false;
	}
}

const char *bpf_sim_check(const struct sock_filter *prog, size_t n)
{
	if (!n || n > BPF_MAXINSNS)
		return "number of instructions";
	for (size_t i = 0; i < n; i++) {
		const struct sock_filter *f = &prog[i];

		if (!known(f->code))
			return "unknown instruction";
		if (f->code == (BPF_LD | BPF_W | BPF_ABS) &&
		    (f->k % 4 || f->k >= sizeof(struct seccomp_data)))
			return "load outside the data";
		if (f->code == (BPF_JMP | BPF_JA) && f->k >= n - i - 1)
			return "jump outside the program";
		if (is_jump(f->code) && ((size_t)f->jt >= n - i - 1 || (size_t)f->jf >= n - i - 1))
			return "branch outside the program";
	}
	return prog[n - 1].code == (BPF_RET | BPF_K) ? NULL : "no return at the end";
}

static bool taken(const struct sock_filter *f, uint32_t a)
{
	switch (BPF_OP(f->code)) {
	case BPF_JEQ: return a == f->k;
	case BPF_JGT: return a > f->k;
	case BPF_JGE: return a >= f->k;
	default: return (a & f->k) != 0; /* BPF_JSET */
	}
}

/*
 * `visible`: bytes of data that may be read; a load beyond gives up with *complete false. *words gets
 * a bit for each word of the data that was read.
 */
static uint32_t run(const struct sock_filter *prog, size_t n, const struct seccomp_data *data,
		    size_t visible, bool *complete, uint32_t *words)
{
	uint32_t a = 0;

	*complete = true;
	*words = 0;
	for (size_t pc = 0; pc < n; pc++) {
		const struct sock_filter *f = &prog[pc];

		switch (BPF_CLASS(f->code)) {
		case BPF_LD:
			if (f->k >= visible) {
				*complete = false;
				return 0;
			}
			memcpy(&a, (const char *)data + f->k, sizeof(a));
			*words |= UINT32_C(1) << (f->k / 4);
			break;
		case BPF_ALU: a &= f->k; break;
		case BPF_RET: return f->k;
		default:
			if (f->code == (BPF_JMP | BPF_JA))
				pc += f->k;
			else
				pc += taken(f, a) ? f->jt : f->jf;
		}
	}
	return SECCOMP_RET_KILL_PROCESS;
}

uint32_t bpf_sim_run(const struct sock_filter *prog, size_t n, const struct seccomp_data *data)
{
	uint32_t words;

	return bpf_sim_words(prog, n, data, &words);
}

uint32_t bpf_sim_words(const struct sock_filter *prog, size_t n, const struct seccomp_data *data,
		       uint32_t *ret_words)
{
	bool complete;

	return run(prog, n, data, sizeof(*data), &complete, ret_words);
}

int bpf_sim_is_constant(const struct sock_filter *prog, size_t n, uint32_t arch, uint32_t nr)
{
	const struct seccomp_data data = { .nr = (int)nr, .arch = arch };
	bool complete;
	uint32_t words,
		action = run(prog, n, &data, offsetof(struct seccomp_data, instruction_pointer),
			     &complete, &words);

	return complete && action == SECCOMP_RET_ALLOW;
}
