/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proofs about compiled filters. What must hold is written down in prove_rules.c, apart from the
 * tables that filters are made of: a mistake there is not repeated here.
 */
#ifndef POLICY_PROVE_H
#define POLICY_PROVE_H

#include "policy/internal.h"
#include "policy/prove_walk.h"

#define PROVE_RULE_CONDS 5

/* No arguments for which all conditions hold may reach the kernel; no condition: no arguments. */
struct prove_rule {
	const char *call;
	unsigned unless; /* traits (SC_*) that lift it */
	const char *why;
	struct prove_cond {
		uint8_t arg, op; /* enum prove_op */
		uint32_t mask, k;
	} cond[PROVE_RULE_CONDS];
};
enum prove_op { PROVE_NONE, PROVE_IS, PROVE_IS_NOT, PROVE_ANY_OF };

extern const struct prove_rule prove_rules[];
extern const size_t prove_n_rules;

/* What a filter is meant to be. */
struct prove_spec {
	enum seccomp_arch arch;
	unsigned traits;    /* SC_*, SC_INIT too */
	char *const *extra; /* calls an operator allowed by name */
};

enum prove_kind {
	PROVE_FOREIGN,	   /* another ABI reaches the kernel, or is not ended */
	PROVE_REFUSED,	   /* a rule of prove_rules.c */
	PROVE_UNKNOWN,	   /* a call that nobody allowed */
	PROVE_ACTION,	   /* neither allow nor an errno nor the end of the process */
	PROVE_NOT_IN_INIT, /* the payload may, its init may not: init's filter would decide */
	PROVE_KIND_MAX
};

#define PROVE_VIOLATIONS_MAX 32
struct prove_violation {
	enum prove_kind kind;
	const struct prove_rule *rule; /* of PROVE_REFUSED */
	struct seccomp_data call;      /* a call that shows it */
	uint32_t action;
};

struct prove_report {
	uint64_t classes, paths, checks; /* (arch, number) classes, ways to a return, rules tried */
	uint64_t instructions, reached;
	size_t unreached[16], n_unreached; /* the first ones */
	struct prove_violation violation[PROVE_VIOLATIONS_MAX];
	size_t n_violations; /* all, also those that did not fit */
};

/* 0 where it could be carried out: the report says with which outcome. Adds to *ret. */
int prove_filter(const struct program *prog, const struct prove_spec *spec,
		 struct prove_report *ret, struct nsbox_error *err);
/* Everything that `payload` allows is allowed by `init`. */
int prove_superset(const struct program *init, const struct program *payload,
		   enum seccomp_arch arch, struct prove_report *ret, struct nsbox_error *err);

const char *prove_kind_text(enum prove_kind kind);

#endif
