/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All ways through a seccomp program.
 *
 * A program looks at sixteen 32-bit words of struct seccomp_data: number, architecture,
 * instruction pointer, and six arguments in two halves. For one number on one architecture the
 * walk follows each branch that some arguments can take, and reports every way to a return with
 * the conditions under which it is taken and a call that takes it. Numbers and architectures fall
 * into classes that a program cannot tell apart, so a walk of each class is a walk of all calls.
 *
 * Nothing is sampled: what cannot be decided is an error, never a pass.
 */
#ifndef POLICY_PROVE_WALK_H
#define POLICY_PROVE_WALK_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <nsbox/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WORD_NR, WORD_ARCH, WORD_IP, WORD_ARGS = 4, WORD_MAX = 16 };
/* Half of an argument: the low one is what the kernel reads of an int. */
#define WORD_LOW(arg)  (uint8_t)(WORD_ARGS + 2 * (arg))
#define WORD_HIGH(arg) (uint8_t)(WORD_ARGS + 2 * (arg) + 1)

enum word_op { WORD_EQ, WORD_GT, WORD_GE, WORD_ANY };

/* "(word & mask) op k" is `want`; WORD_ANY: "(word & mask) != 0". */
struct word_cond {
	uint8_t word, op;
	bool want;
	uint32_t mask, k;
};

struct program {
	const struct sock_filter *insn;
	size_t n;
};

struct walk_path {
	const struct word_cond *cond;
	size_t n;
	uint32_t action;	     /* SECCOMP_RET_* */
	struct seccomp_data witness; /* a call that comes this way */
};
/* Non-zero ends the walk and is what it returns. */
typedef int walk_fn(void *ctx, const struct walk_path *path);

struct walk {
	struct program prog;
	uint32_t arch, nr;
	const struct word_cond *given; /* what is known of the arguments */
	size_t n_given;
	bool *reached; /* one for each instruction, set where a path comes by; or NULL */
	walk_fn *each;
	void *ctx;
};
int walk_program(const struct walk *w, struct nsbox_error *err);

/* Can all n conditions hold at once? Then *ret has words for which they do. 1 yes, 0 no, -errno
 * where it could not be decided. */
int walk_solve(const struct word_cond *cond, size_t n, struct seccomp_data *ret);

/*
 * The values of a word (number, architecture) that begin a class, sorted; the last class ends at
 * UINT32_MAX. `extra` are boundaries besides those that the programs' constants make. malloc'd.
 */
int walk_classes(const struct program *progs, size_t n_progs, uint8_t word, const uint32_t *extra,
		 size_t n_extra, uint32_t **ret, size_t *ret_n);

#endif
