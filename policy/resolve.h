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
	struct json_reader r; /* where in the manifest we are */
};

/* Each returns 0 or a negative errno with rs->r.err filled. */
int resolve_limits(struct resolve *rs);
int resolve_paths(struct resolve *rs);
int resolve_env(struct resolve *rs);
int resolve_layers(struct resolve *rs);

/* Sorted copy without duplicates; NULL only without memory. */
char **strings_sorted_copy(char *const *list);
void strings_sort_unique(char **list);
/* Append a string to a list and take it, also where that fails. */
int strings_add_take(char ***list, char *s);

#endif
