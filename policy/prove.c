/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each (architecture, number) class is walked once; every way that ends in "allow" is held against
 * the rules for that call by solving the way's conditions together with the rule's. A solution is a
 * counterexample: a call with arguments that gets through.
 */
#include "policy/prove.h"

#include <linux/audit.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/calls.h"
#include "policy/syscalls.h"

#define X32_BIT 0x40000000u
/* Numbers that are looked at one by one, whether or not the program knows them. */
#define NUMBERS 1024u

struct proof {
	const struct program *prog;
	const struct prove_spec *spec; /* NULL: compare with init */
	const struct program *init;
	enum seccomp_arch arch;
	bool *reached;
	const struct walk_path *payload_path;
	struct prove_report *rep;
	struct nsbox_error *err;
};

static void violation(struct proof *p, enum prove_kind kind, const struct prove_rule *rule,
		      const struct seccomp_data *call, uint32_t action)
{
	struct prove_report *rep = p->rep;

	/* Many classes of foreign numbers say the same thing: one of a kind and call will do. */
	for (size_t i = 0; i < MIN(rep->n_violations, (size_t)PROVE_VIOLATIONS_MAX); i++) {
		const struct prove_violation *v = &rep->violation[i];

		if (v->kind == kind && v->rule == rule && v->call.arch == call->arch &&
		    (kind == PROVE_FOREIGN || v->call.nr == call->nr))
			return;
	}
	if (rep->n_violations < PROVE_VIOLATIONS_MAX)
		rep->violation[rep->n_violations] =
			(struct prove_violation){ kind, rule, *call, action };
	rep->n_violations++;
}

static bool in_list(char *const *list, const char *name)
{
	for (; list && *list; list++)
		if (!strcmp(*list, name))
			return true;
	return false;
}

/* ------------------------------------------------------------------ rules */

static size_t add_rule(const struct prove_rule *rule, struct word_cond *ret)
{
	size_t n = 0;

	for (; n < PROVE_RULE_CONDS && rule->cond[n].op != PROVE_NONE; n++) {
		const struct prove_cond *c = &rule->cond[n];

		ret[n] = (struct word_cond){
			.word = WORD_LOW(c->arg),
			.op = c->op == PROVE_ANY_OF ? WORD_ANY : WORD_EQ,
			.want = c->op != PROVE_IS_NOT,
			.mask = c->mask,
			.k = c->op == PROVE_ANY_OF ? 0 : c->k,
		};
	}
	return n;
}

static int check_rule(struct proof *p, const struct walk_path *path, const struct prove_rule *rule)
{
	struct seccomp_data call = { .nr = path->witness.nr, .arch = path->witness.arch };
	auto_free struct word_cond *all = calloc(path->n + PROVE_RULE_CONDS, sizeof(*all));
	size_t n = path->n;
	int r;

	if (!all)
		return nsbox_fail(p->err, NSBOX_E_NOMEM, ENOMEM, "prove a filter");
	memcpy(all, path->cond, n * sizeof(*all));
	n += add_rule(rule, all + n);
	p->rep->checks++;
	r = walk_solve(all, n, &call);
	if (r < 0)
		return nsbox_fail(p->err, NSBOX_E_LIMIT, -r, "decide the rule '%s' on %s",
				  rule->why, rule->call);
	if (r)
		violation(p, PROVE_REFUSED, rule, &call, path->action);
	return 0;
}

static bool in_groups(const char *name)
{
	for (size_t g = 0; g < syscall_n_allowed; g++)
		for (const char *const *n = syscall_allowed[g].names; *n; n++)
			if (!strcmp(*n, name))
				return true;
	for (size_t i = 0; i < syscall_n_newer; i++)
		if (syscall_newer[i].allowed && !strcmp(syscall_newer[i].name, name))
			return true;
	return false;
}

static int check_allowed(struct proof *p, const struct walk_path *path)
{
	const struct prove_spec *s = p->spec;
	char buf[64];
	const char *name = call_name((uint32_t)path->witness.nr, s->arch, buf, sizeof(buf));
	int r = 0;

	if (name && in_list(s->extra, name))
		return 0; /* the operator's own decision, whatever the arguments are */
	if (!name || !in_groups(name))
		violation(p, PROVE_UNKNOWN, NULL, &path->witness, path->action);
	for (size_t i = 0; name && r == 0 && i < prove_n_rules; i++)
		if (!(prove_rules[i].unless & s->traits) && !strcmp(prove_rules[i].call, name))
			r = check_rule(p, path, &prove_rules[i]);
	return r;
}

static int judge_path(void *ctx, const struct walk_path *path)
{
	struct proof *p = ctx;
	uint32_t action = path->action & SECCOMP_RET_ACTION_FULL;

	p->rep->paths++;
	if (path->witness.arch != call_audit_arch(p->spec->arch)) {
		if (action != SECCOMP_RET_KILL_PROCESS)
			violation(p, PROVE_FOREIGN, NULL, &path->witness, path->action);
		return 0;
	}
	if (action == SECCOMP_RET_ALLOW) {
		if (p->spec->arch == SECCOMP_ARCH_X86_64 && (uint32_t)path->witness.nr >= X32_BIT) {
			violation(p, PROVE_FOREIGN, NULL, &path->witness, path->action);
			return 0;
		}
		return check_allowed(p, path);
	}
	if ((action != SECCOMP_RET_ERRNO || (path->action & SECCOMP_RET_DATA) > 4095) &&
	    action != SECCOMP_RET_KILL_PROCESS)
		violation(p, PROVE_ACTION, NULL, &path->witness, path->action);
	return 0;
}

/* ------------------------------------------------------------------ classes */

/* Numbers 0..1023 and the same with x32's bit, one by one. */
static int number_classes(const struct program *progs, size_t n, uint32_t **ret, size_t *ret_n)
{
	uint32_t extra[2 * (NUMBERS + 1)];

	for (uint32_t i = 0; i <= NUMBERS; i++) {
		extra[(size_t)2 * i] = i;
		extra[(size_t)2 * i + 1] = X32_BIT + i;
	}
	return walk_classes(progs, n, WORD_NR, extra, ARRAY_SIZE(extra), ret, ret_n);
}

static int arch_classes(const struct program *progs, size_t n, uint32_t **ret, size_t *ret_n)
{
	static const uint32_t known[] = { AUDIT_ARCH_I386, AUDIT_ARCH_X86_64, AUDIT_ARCH_ARM,
					  AUDIT_ARCH_AARCH64 };

	return walk_classes(progs, n, WORD_ARCH, known, ARRAY_SIZE(known), ret, ret_n);
}

static int walk_all(struct proof *p, const struct program *progs, size_t n_progs, walk_fn *each)
{
	auto_free uint32_t *archs = NULL, *numbers = NULL;
	size_t n_archs = 0, n_numbers = 0;
	int r = arch_classes(progs, n_progs, &archs, &n_archs);

	if (r == 0)
		r = number_classes(progs, n_progs, &numbers, &n_numbers);
	if (r < 0)
		return nsbox_fail(p->err, r == -ENOMEM ? NSBOX_E_NOMEM : NSBOX_E_INVALID, -r,
				  "find the classes of a filter");
	for (size_t a = 0; r == 0 && a < n_archs; a++)
		for (size_t i = 0; r == 0 && i < n_numbers; i++) {
			const struct walk w = { .prog = *p->prog,
						.arch = archs[a],
						.nr = numbers[i],
						.reached = p->reached,
						.each = each,
						.ctx = p };

			r = walk_program(&w, p->err);
			p->rep->classes++;
		}
	return r;
}

static void count_reached(struct prove_report *rep, const bool *reached, size_t n)
{
	rep->instructions += n;
	for (size_t i = 0; i < n; i++) {
		if (reached[i]) {
			rep->reached++;
			continue;
		}
		if (rep->n_unreached < ARRAY_SIZE(rep->unreached))
			rep->unreached[rep->n_unreached] = i;
		rep->n_unreached++;
	}
}

int prove_filter(const struct program *prog, const struct prove_spec *spec,
		 struct prove_report *ret, struct nsbox_error *err)
{
	auto_free bool *reached = calloc(prog->n + 1, sizeof(*reached));
	struct proof p = { .prog = prog, .spec = spec, .reached = reached, .rep = ret, .err = err };
	int r;

	if (!reached)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "prove a filter");
	r = walk_all(&p, prog, 1, judge_path);
	if (r == 0)
		count_reached(ret, reached, prog->n);
	return r;
}

/* ------------------------------------------------------------------ init's filter */

static int compare_path(void *ctx, const struct walk_path *path)
{
	struct proof *p = ctx;

	p->rep->checks++;
	if ((path->action & SECCOMP_RET_ACTION_FULL) != SECCOMP_RET_ALLOW)
		violation(p, PROVE_NOT_IN_INIT, NULL, &path->witness, path->action);
	return 0;
}

/* Under the conditions of one of the payload's ways, what does init's filter say? */
static int follow_in_init(void *ctx, const struct walk_path *path)
{
	struct proof *p = ctx;
	const struct walk w = { .prog = *p->init,
				.arch = path->witness.arch,
				.nr = (uint32_t)path->witness.nr,
				.given = path->cond,
				.n_given = path->n,
				.each = compare_path,
				.ctx = p };

	p->rep->paths++;
	if ((path->action & SECCOMP_RET_ACTION_FULL) != SECCOMP_RET_ALLOW)
		return 0;
	return walk_program(&w, p->err);
}

int prove_superset(const struct program *init, const struct program *payload,
		   enum seccomp_arch arch, struct prove_report *ret, struct nsbox_error *err)
{
	const struct program both[] = { *init, *payload };
	struct proof p = { .prog = payload, .init = init, .arch = arch, .rep = ret, .err = err };

	return walk_all(&p, both, ARRAY_SIZE(both), follow_in_init);
}

const char *prove_kind_text(enum prove_kind kind)
{
	static const char *const texts[PROVE_KIND_MAX] = {
		[PROVE_FOREIGN] = "a foreign ABI must end the process",
		[PROVE_REFUSED] = "this must not reach the kernel",
		[PROVE_UNKNOWN] = "no group allows this call",
		[PROVE_ACTION] = "a verdict that no filter gives",
		[PROVE_NOT_IN_INIT] = "the payload may do this, and init's filter refuses it",
	};

	return texts[kind];
}
