/* SPDX-License-Identifier: Apache-2.0 */
/* What was asked for and what came of it: the record that explain and receipts show. */
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/resolve.h"

static int add_grant(struct resolve *rs, struct policy_grant g)
{
	struct nsbox_policy *p = rs->p;
	struct policy_grant *grown = reallocarray(p->grants, p->n_grants + 1, sizeof(*grown));

	if (grown)
		p->grants = grown;
	if (!grown || !g.pointer || !g.value) {
		free(g.pointer);
		free(g.value);
		free(g.refused);
		return json_nomem(&rs->r);
	}
	p->grants[p->n_grants++] = g;
	return 0;
}

int resolve_grant(struct resolve *rs, const char *fmt, ...)
{
	char *value = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&value, fmt, ap) < 0)
		value = NULL;
	va_end(ap);
	return add_grant(rs, (struct policy_grant){ strdup(rs->r.pointer), value, NULL });
}

int resolve_refuse(struct resolve *rs, const char *value, const char *why)
{
	struct policy_grant g = { strdup(rs->r.pointer), strdup(value), strdup(why) };

	if (!g.refused) {
		free(g.value); /* a refusal without its reason would read as a grant */
		g.value = NULL;
	}
	return add_grant(rs, g);
}

int resolve_gap(struct resolve *rs, const char *why)
{
	struct nsbox_policy *p = rs->p;
	struct policy_gap g = { strdup(rs->r.pointer), strdup(why) };
	struct policy_gap *grown = reallocarray(p->gaps, p->n_gaps + 1, sizeof(*grown));

	if (grown)
		p->gaps = grown;
	if (!grown || !g.pointer || !g.why) {
		free(g.pointer);
		free(g.why);
		return json_nomem(&rs->r);
	}
	p->gaps[p->n_gaps++] = g;
	return 0;
}

void resolve_try(struct resolve *rs, struct resolve_attempt *a)
{
	*a = (struct resolve_attempt){ .err = rs->r.err, .mark = rs->r.len };
	rs->r.err = &a->scratch;
}

int resolve_tried(struct resolve *rs, struct resolve_attempt *a, int r, bool optional,
		  const char *value)
{
	const char *why = a->scratch.msg;

	rs->r.err = a->err;
	if (r == 0)
		return 0;
	if (!optional || a->scratch.code != NSBOX_E_MANIFEST) {
		if (a->err)
			*a->err = a->scratch;
		return r;
	}
	json_leave(&rs->r, a->mark);
	/* The pointer is kept apart. */
	if (!strncmp(why, rs->r.pointer, rs->r.len) && strstr(why, ": "))
		why = strstr(why + rs->r.len, ": ") ? strstr(why + rs->r.len, ": ") + 2 : why;
	return resolve_refuse(rs, value, why);
}

bool nsbox_policy_grant(const struct nsbox_policy *p, size_t i, struct nsbox_grant *ret)
{
	if (i >= p->n_grants)
		return false;
	*ret = (struct nsbox_grant){ p->grants[i].pointer, p->grants[i].value,
				     p->grants[i].refused };
	return true;
}
