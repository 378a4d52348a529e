/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/front/who.h"

#include <string.h>

#include "nsbox/util.h"

int who_tie_parse(struct who_ties *t, const char *text)
{
	const char *equals = strchr(text, '=');
	char digits[16];
	uint64_t uid;

	if (!equals || (size_t)(equals - text) >= sizeof(digits) || t->n == ARRAY_SIZE(t->tie))
		return -EINVAL;
	memcpy(digits, text, (size_t)(equals - text));
	digits[equals - text] = 0;
	if (!parse_u64(digits, &uid) || uid >= UINT32_MAX || !equals[1] ||
	    strlen(equals + 1) > WHO_WORKSPACE_MAX)
		return -EINVAL;
	for (unsigned i = 0; i < t->n; i++)
		if (t->tie[i].uid == uid)
			return -EINVAL;
	t->tie[t->n].uid = (uid_t)uid;
	strcpy(t->tie[t->n++].workspace, equals + 1);
	return 0;
}

void who_find(const struct who_ties *t, uid_t uid, uid_t owner, struct who *ret)
{
	*ret = (struct who){ .uid = uid, .all = uid == 0 || uid == owner };
	for (unsigned i = 0; !ret->all && i < t->n; i++)
		if (t->tie[i].uid == uid)
			ret->workspace = t->tie[i].workspace;
}

bool who_sees(const struct who *w, uid_t uid, const char *workspace)
{
	if (w->all)
		return true;
	return w->workspace ? strcmp(w->workspace, workspace) == 0 : w->uid == uid;
}

const char *who_workspace(const struct who_ties *t, const struct who *w, const char *asked)
{
	if (w->all)
		return asked;
	if (w->workspace)
		return *asked && strcmp(asked, w->workspace) != 0 ? NULL : w->workspace;
	for (unsigned i = 0; i < t->n; i++)
		if (strcmp(t->tie[i].workspace, asked) == 0)
			return NULL;
	return asked;
}
