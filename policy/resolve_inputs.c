/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Secrets and parameters of a manifest, as far as a policy knows of them: what is asked for, not
 * the values (inputs.h). A secret that is bound to hosts is held to them by the network: the run may
 * then reach no other.
 */
#include <string.h>

#include "nsbox/util.h"
#include "policy/env_names.h"
#include "policy/inputs.h"
#include "policy/names.h"
#include "policy/resolve.h"

#define NO_HEADER                                                                                  \
	"no secret can be put into a request: what passes to the outside is not opened, TLS "      \
	"least of "                                                                                \
	"all; \"env\" and \"file\" can be had"

static bool is_bound_to(const struct manifest_secret *s, const char *name)
{
	char own[HOST_MAX + 1];

	for (char *const *h = s->hosts; *h; h++) {
		host_normalise(*h, own, sizeof(own));
		if (strcmp(own, name) == 0)
			return true;
	}
	return false;
}

static int judge_hosts(struct resolve *rs, const struct manifest_secret *s)
{
	size_t mark = json_enter(&rs->r, "hosts");

	if (!s->hosts || !*s->hosts)
		goto good;
	if (rs->p->network.mode == NETWORK_OPEN)
		return json_fail(&rs->r, "cannot be held to while network.mode is \"open\"");
	for (size_t i = 0; i < rs->p->network.n_allow; i++)
		if (!is_bound_to(s, rs->p->network.allow[i].host))
			return json_fail(
				&rs->r,
				"the run may reach %.80s, which is not one of them: take it "
				"out of network.allow, or put it in here",
				rs->p->network.allow[i].host);
good:
	json_leave(&rs->r, mark);
	return 0;
}

static int resolve_secret(struct resolve *rs, const struct manifest_secret *s)
{
	if (s->inject == INJECT_HEADER)
		return s->optional ? resolve_refuse(rs, s->name, NO_HEADER)
				   : resolve_gap(rs, NO_HEADER);
	if (s->inject == INJECT_ENV && !rs->opt->as_operator && env_name_is_loader(s->name))
		return json_fail(&rs->r,
				 "\"%s\" decides what a program loads or runs first; only an "
				 "operator may set it",
				 s->name);
	if (s->inject == INJECT_FILE)
		rs->p->tmpfs[TMPFS_SECRETS].used = true;
	if (judge_hosts(rs, s) < 0)
		return -EINVAL;
	return resolve_grant(rs, "%s as %s", s->name, s->inject == INJECT_FILE ? "file" : "env");
}

int resolve_inputs(struct resolve *rs)
{
	size_t start = json_enter(&rs->r, "secrets");
	int r = 0;

	for (size_t i = 0; r == 0 && i < rs->m->n_secrets; i++) {
		size_t mark = json_enter_index(&rs->r, i);

		for (size_t k = 0; k < i; k++)
			if (strcmp(rs->m->secrets[k].name, rs->m->secrets[i].name) == 0)
				return json_fail(&rs->r, "\"%s\" is there twice",
						 rs->m->secrets[i].name);
		r = resolve_secret(rs, &rs->m->secrets[i]);
		if (r == 0)
			json_leave(&rs->r, mark);
	}
	if (r == 0)
		json_leave(&rs->r, start);
	return r;
}
