/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that resolve a manifest: limits, paths, environment, layers. */
#ifndef POLICY_RESOLVE_H
#define POLICY_RESOLVE_H

#include "policy/internal.h"
#include "policy/json_strict.h"

struct resolve {
	const struct nsbox_manifest *m;
	const struct nsbox_resolve_options *opt;
	struct nsbox_policy *p;
	struct json_reader r;		     /* where in the manifest we are */
	const struct nsbox_ceiling *ceiling; /* never NULL */
	char **required;		     /* paths granted without `optional` */
};

/* Each returns 0 or a negative errno with rs->r.err filled. */
int resolve_limits(struct resolve *rs);
int resolve_paths(struct resolve *rs);
int resolve_env(struct resolve *rs);
int resolve_layers(struct resolve *rs);
int resolve_network(struct resolve *rs);
int resolve_trust(struct resolve *rs);
int resolve_process(struct resolve *rs);
int resolve_syscalls(struct resolve *rs);
int resolve_inputs(struct resolve *rs);
/* resolve_tier.c: which it is to be; and what the tier "process" cannot hold, refused by name. */
int resolve_tier(struct resolve *rs);
int resolve_process_tier(struct resolve *rs);
#define TIER_REMEDY                                                                                \
	"where user namespaces can be made there is the tier \"namespace\" (nsbox doctor)"
int resolve_later(struct resolve *rs); /* what this version has no enforcement for */

/* At the place where rs->r is: asked and granted; asked, optional and refused; not to be run. */
int resolve_grant(struct resolve *rs, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int resolve_refuse(struct resolve *rs, const char *value, const char *why);
int resolve_gap(struct resolve *rs, const char *why);
/*
 * An attempt at an optional grant: from resolve_try() on errors go to `scratch`. resolve_tried()
 * returns r where it is 0, and otherwise makes a refusal of it if the grant is optional.
 */
struct resolve_attempt {
	struct nsbox_error scratch, *err;
	size_t mark;
};
void resolve_try(struct resolve *rs, struct resolve_attempt *a);
int resolve_tried(struct resolve *rs, struct resolve_attempt *a, int r, bool optional,
		  const char *value);

/* Sorted copy without duplicates; NULL only without memory. */
char **strings_sorted_copy(char *const *list);
void strings_sort_unique(char **list);
/* Append a string to a list and take it, also where that fails. */
int strings_add_take(char ***list, char *s);

#endif
