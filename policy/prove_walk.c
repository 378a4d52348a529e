/* SPDX-License-Identifier: Apache-2.0 */
/* See prove_walk.h. The conditions of a path are about one word each, so each word is solved alone:
 * first by what follows at once (known bits), then by trying bits from the top. */
#include "policy/prove_walk.h"

#include <string.h>

#include "nsbox/bpf_sim.h"
#include "nsbox/util.h"

#define CONDS_MAX 512	  /* on one path; the longest rule block makes some sixty */
#define TRIES_MAX 200000  /* bits tried for one word */
#define PATHS_MAX 1000000 /* of one walk */

/* ------------------------------------------------------------------ one word */

struct word {
	const struct word_cond *cond[CONDS_MAX];
	size_t n;
	uint32_t one, zero; /* bits that are known */
	uint32_t matter;    /* bits that a condition looks at */
	unsigned tries;
};

/* What follows from one condition; false: nothing satisfies it. */
static bool learn(struct word *w, const struct word_cond *c)
{
	uint32_t free_bits = c->mask & ~(w->one | w->zero), known = c->mask & ~free_bits;

	if (c->op == WORD_EQ && c->want) {
		w->one |= c->k;
		w->zero |= c->mask & ~c->k;
		return !(c->k & ~c->mask);
	}
	if (c->op == WORD_ANY && !c->want) {
		w->zero |= c->mask;
		return true;
	}
	if (c->op == WORD_ANY) {
		if (c->mask & w->one)
			return true;
		if (free_bits && !(free_bits & (free_bits - 1)))
			w->one |= free_bits;
		return free_bits != 0;
	}
	if (c->op != WORD_EQ || (c->k & ~c->mask) || (w->one & known) != (c->k & known))
		return true;
	if (free_bits && !(free_bits & (free_bits - 1))) {
		if (c->k & free_bits)
			w->zero |= free_bits;
		else
			w->one |= free_bits;
	}
	return free_bits != 0;
}

static bool learn_all(struct word *w)
{
	uint32_t one, zero;

	do {
		one = w->one;
		zero = w->zero;
		for (size_t i = 0; i < w->n; i++)
			if (!learn(w, w->cond[i]) || (w->one & w->zero))
				return false;
	} while (one != w->one || zero != w->zero);
	return true;
}

/* Is the condition decided against us by the bits from `bit` up? */
static bool is_lost(const struct word_cond *c, uint32_t value, int bit)
{
	uint32_t upper = bit >= 32 ? 0 : UINT32_MAX << bit;
	uint32_t have = value & c->mask & upper, rest = c->mask & ~upper;

	if (c->op == WORD_ANY)
		return c->want ? !have && !rest : have != 0;
	if (c->op == WORD_EQ) {
		bool differs = have != (c->k & upper) || (c->k & ~upper & ~c->mask);

		return c->want ? differs : !differs && !rest;
	}
	/* The least and the most that the lower bits can still make of it. */
	if (c->op == WORD_GT)
		return c->want ? (have | rest) <= c->k : have > c->k;
	return c->want ? (have | rest) < c->k : have >= c->k;
}

static int try_bits(struct word *w, uint32_t value, int bit)
{
	for (size_t i = 0; i < w->n; i++)
		if (is_lost(w->cond[i], value, bit))
			return 0;
	if (bit == 0) {
		w->one = value;
		return 1;
	}
	if (++w->tries > TRIES_MAX)
		return -E2BIG;
	for (uint32_t b = 0; b < 2; b++) {
		uint32_t mask = UINT32_C(1) << (bit - 1);
		int r;

		if ((b ? w->zero : w->one) & mask)
			continue;
		if (b && !(w->one & mask) && !(w->matter & mask))
			continue;
		r = try_bits(w, value | (b ? mask : 0), bit - 1);
		if (r)
			return r;
	}
	return 0;
}

static int solve_word(const struct word_cond *cond, size_t n, uint8_t word, uint32_t *ret)
{
	struct word w = { .n = 0 };
	int r;

	for (size_t i = 0; i < n; i++) {
		if (cond[i].word != word)
			continue;
		if (w.n == CONDS_MAX)
			return -E2BIG;
		w.cond[w.n++] = &cond[i];
		w.matter |= cond[i].mask;
	}
	if (!learn_all(&w))
		return 0;
	r = try_bits(&w, 0, 32);
	if (r == 1)
		*ret = w.one;
	return r;
}

static uint32_t *word_of(struct seccomp_data *d, uint8_t word)
{
	return (uint32_t *)(void *)d + word;
}

int walk_solve(const struct word_cond *cond, size_t n, struct seccomp_data *ret)
{
	uint32_t seen = 0;

	for (size_t i = 0; i < n; i++) {
		int r;

		if (seen & (UINT32_C(1) << cond[i].word))
			continue;
		seen |= UINT32_C(1) << cond[i].word;
		r = solve_word(cond, n, cond[i].word, word_of(ret, cond[i].word));
		if (r != 1)
			return r;
	}
	return 1;
}

/* ------------------------------------------------------------------ a program */

struct accumulator {
	bool known;
	uint32_t value; /* where known */
	uint8_t word;	/* where it came from */
	uint32_t mask;	/* of the word */
};

struct walker {
	const struct walk *w;
	struct word_cond cond[CONDS_MAX];
	size_t n, paths;
	struct nsbox_error *err;
};

static int undecided(struct walker *k, size_t pc, const char *why)
{
	return nsbox_fail(k->err, NSBOX_E_LIMIT, E2BIG, "instruction %zu of the filter: %s", pc,
			  why);
}

static int finish(struct walker *k, size_t pc, uint32_t action)
{
	struct walk_path path = { .cond = k->cond, .n = k->n, .action = action };
	int r = walk_solve(k->cond, k->n, &path.witness);

	if (r < 0)
		return undecided(k, pc, "conditions that cannot be decided");
	if (++k->paths > PATHS_MAX)
		return undecided(k, pc, "too many ways lead here");
	path.witness.nr = (int)k->w->nr;
	path.witness.arch = k->w->arch;
	/* The walk and the interpreter must agree, or one of them is wrong. */
	if (bpf_sim_run(k->w->prog.insn, k->w->prog.n, &path.witness) != action)
		return nsbox_fail(k->err, NSBOX_E_SANDBOX, EPROTO,
				  "instruction %zu of the filter: the walk and the interpreter "
				  "disagree",
				  pc);
	return k->w->each(k->w->ctx, &path);
}

static int go(struct walker *k, size_t pc, struct accumulator a);

static struct word_cond condition(const struct sock_filter *f, const struct accumulator *a)
{
	static const uint8_t ops[] = { [BPF_JEQ >> 4] = WORD_EQ,
				       [BPF_JGT >> 4] = WORD_GT,
				       [BPF_JGE >> 4] = WORD_GE,
				       [BPF_JSET >> 4] = WORD_ANY };
	struct word_cond c = { .word = a->word, .op = ops[BPF_OP(f->code) >> 4], .mask = a->mask };

	if (c.op == WORD_ANY)
		c.mask &= f->k;
	else
		c.k = f->k;
	return c;
}

static bool holds(const struct sock_filter *f, uint32_t a)
{
	switch (BPF_OP(f->code)) {
	case BPF_JEQ: return a == f->k;
	case BPF_JGT: return a > f->k;
	case BPF_JGE: return a >= f->k;
	default: return (a & f->k) != 0;
	}
}

static int branch(struct walker *k, size_t pc, const struct accumulator *a)
{
	const struct sock_filter *f = &k->w->prog.insn[pc];
	struct word_cond c;

	if (a->known)
		return go(k, pc + 1 + (holds(f, a->value) ? f->jt : f->jf), *a);
	if (k->n == CONDS_MAX)
		return undecided(k, pc, "too many conditions on one way");
	c = condition(f, a);
	for (int want = 1; want >= 0; want--) {
		uint32_t ignored;
		int r;

		c.want = want;
		k->cond[k->n++] = c;
		r = solve_word(k->cond, k->n, c.word, &ignored);
		if (r < 0)
			r = undecided(k, pc, "a condition that cannot be decided");
		else if (r > 0)
			r = go(k, pc + 1 + (want ? f->jt : f->jf), *a);
		k->n--;
		if (r)
			return r;
	}
	return 0;
}

static struct accumulator load(const struct walk *w, uint32_t offset)
{
	struct accumulator a = { .word = (uint8_t)(offset / 4), .mask = UINT32_MAX };

	a.known = a.word == WORD_NR || a.word == WORD_ARCH;
	if (a.known)
		a.value = a.word == WORD_NR ? w->nr : w->arch;
	return a;
}

static int go(struct walker *k, size_t pc, struct accumulator a)
{
	const struct program *p = &k->w->prog;

	for (;; pc++) {
		const struct sock_filter *f = &p->insn[pc];

		if (k->w->reached)
			k->w->reached[pc] = true;
		switch (BPF_CLASS(f->code)) {
		case BPF_LD: a = load(k->w, f->k); break;
		case BPF_ALU:
			/* Classes of numbers are intervals: a filter that looks at single bits of
			 * a number would tell apart what is taken for one class here. */
			if (a.known)
				return undecided(k, pc, "masks a number or an architecture");
			a.mask &= f->k;
			break;
		case BPF_RET: return finish(k, pc, f->k);
		default:
			if (f->code != (BPF_JMP | BPF_JA)) {
				if (a.known && BPF_OP(f->code) == BPF_JSET)
					return undecided(k, pc,
							 "tests bits of a number or an "
							 "architecture");
				return branch(k, pc, &a);
			}
			pc += f->k;
		}
	}
}

int walk_program(const struct walk *w, struct nsbox_error *err)
{
	const char *why = bpf_sim_check(w->prog.insn, w->prog.n);
	struct walker k;

	if (why)
		return nsbox_fail(err, NSBOX_E_INVALID, EINVAL, "not a filter: %s", why);
	if (w->n_given > CONDS_MAX)
		return nsbox_fail(err, NSBOX_E_LIMIT, E2BIG, "walk a filter");
	/* Not zeroed as a whole: there are as many walks as numbers of calls. */
	k.w = w;
	k.err = err;
	k.n = w->n_given;
	k.paths = 0;
	if (k.n)
		memcpy(k.cond, w->given, k.n * sizeof(k.cond[0]));
	return go(&k, 0, (struct accumulator){ .known = true });
}

/* ------------------------------------------------------------------ classes */

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* Which words may the accumulator hold before each instruction? Jumps go forward only. */
static void find_words(const struct program *p, uint16_t *words)
{
	for (size_t i = 0; i < p->n; i++) {
		const struct sock_filter *f = &p->insn[i];
		uint16_t out = words[i];

		if (BPF_CLASS(f->code) == BPF_RET)
			continue;
		if (BPF_CLASS(f->code) == BPF_LD)
			out = (uint16_t)(1u << (f->k / 4));
		if (f->code == (BPF_JMP | BPF_JA)) {
			words[i + 1 + f->k] |= out;
		} else if (BPF_CLASS(f->code) == BPF_JMP) {
			words[i + 1 + f->jt] |= out;
			words[i + 1 + f->jf] |= out;
		} else {
			words[i + 1] |= out;
		}
	}
}

static size_t add_constants(const struct program *p, uint8_t word, uint32_t *at)
{
	uint16_t words[BPF_MAXINSNS] = { 0 };
	size_t n = 0;

	find_words(p, words);
	for (size_t i = 0; i < p->n; i++) {
		if (BPF_CLASS(p->insn[i].code) != BPF_JMP || !(words[i] & (1u << word)))
			continue;
		at[n++] = p->insn[i].k;
		at[n++] = p->insn[i].k + 1; /* of UINT32_MAX: 0, which is there anyway */
	}
	return n;
}

int walk_classes(const struct program *progs, size_t n_progs, uint8_t word, const uint32_t *extra,
		 size_t n_extra, uint32_t **ret, size_t *ret_n)
{
	size_t n = 1 + n_extra, kept = 0;
	uint32_t *at;

	for (size_t i = 0; i < n_progs; i++) {
		if (bpf_sim_check(progs[i].insn, progs[i].n))
			return -EINVAL;
		n += 2 * progs[i].n;
	}
	at = calloc(n, sizeof(*at));
	if (!at)
		return -ENOMEM;
	n = 1; /* the class of 0 */
	for (size_t i = 0; i < n_progs; i++)
		n += add_constants(&progs[i], word, at + n);
	if (n_extra)
		memcpy(at + n, extra, n_extra * sizeof(*at));
	n += n_extra;
	qsort(at, n, sizeof(*at), compare);
	for (size_t i = 0; i < n; i++)
		if (!kept || at[kept - 1] != at[i])
			at[kept++] = at[i];
	*ret = at;
	*ret_n = kept;
	return 0;
}
