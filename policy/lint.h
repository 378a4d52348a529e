/* SPDX-License-Identifier: Apache-2.0 */
/* Lint: findings about a manifest, with their place in its text. */
#ifndef POLICY_LINT_H
#define POLICY_LINT_H

#include "policy/internal.h"
#include "policy/report.h"

struct lint {
	const struct nsbox_lint *in;
	struct json_object *list; /* findings */
	unsigned errors, warnings;
};

/* pointer may be NULL: the file as a whole. */
void lint_add(struct lint *l, bool error, const char *id, const char *pointer, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* Line and column (from 1, in bytes) of the member or element that a JSON pointer names; false where
 * the text has none. The text has to be JSON. */
bool lint_locate(const char *json, size_t len, const char *pointer, unsigned *line,
		 unsigned *column);

/* lint_warn.c: what is legal, and probably not meant. */
int lint_warn(struct lint *l, struct json_object *json, const struct nsbox_policy *p,
	      struct nsbox_error *err);

#endif
