/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment of a run: built from nothing. An author may set variables, but not those that
 * make the loader, the C library, a shell or an interpreter run or read something first.
 */
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/env_names.h"
#include "policy/resolve.h"

#define ENV_BYTES_MAX 65536

static const struct manifest_var base[] = {
	{ (char *)"PATH", (char *)PLAN_DEFAULT_PATH }, { (char *)"HOME", (char *)POLICY_HOME },
	{ (char *)"USER", (char *)"sandbox" },	       { (char *)"LOGNAME", (char *)"sandbox" },
	{ (char *)"LANG", (char *)"C.UTF-8" },	       { (char *)"TMPDIR", (char *)"/tmp" },
};

static int judge(struct resolve *rs, const char *name)
{
	if (!rs->opt->as_operator && env_name_is_loader(name))
		return json_fail(&rs->r,
				 "\"%s\" decides what a program loads or runs first; only an "
				 "operator may set it",
				 name);
	return 0;
}

static bool is_set(const struct nsbox_manifest *m, const char *name)
{
	for (size_t i = 0; i < m->n_env_set; i++)
		if (!strcmp(m->env_set[i].name, name))
			return true;
	return false;
}

static int add_variable(struct resolve *rs, const struct manifest_var *v, size_t *total)
{
	char *text = NULL;

	*total += strlen(v->name) + strlen(v->value) + 2;
	if (*total > ENV_BYTES_MAX)
		return json_fail(&rs->r, "the environment is larger than %d bytes", ENV_BYTES_MAX);
	if (asprintf(&text, "%s=%s", v->name, v->value) < 0)
		text = NULL;
	return strings_add_take(&rs->p->env, text) < 0 ? json_nomem(&rs->r) : 0;
}

static int resolve_set(struct resolve *rs)
{
	const struct nsbox_manifest *m = rs->m;
	size_t start = json_enter(&rs->r, "env"), total = 0;
	int r = 0;

	json_enter(&rs->r, "set");
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(base); i++) {
		struct manifest_var v = base[i];

		if (rs->p->uid == 0 && !strcmp(v.value, "sandbox"))
			v.value = (char *)"root";
		if (!is_set(m, v.name))
			r = add_variable(rs, &v, &total);
	}
	for (size_t i = 0; r == 0 && i < m->n_env_set; i++) {
		size_t mark = json_enter(&rs->r, m->env_set[i].name);

		r = judge(rs, m->env_set[i].name);
		if (r == 0)
			r = add_variable(rs, &m->env_set[i], &total);
		if (r == 0)
			json_leave(&rs->r, mark);
	}
	if (r < 0)
		return r;
	json_leave(&rs->r, start);
	strings_sort_unique(rs->p->env);
	return 0;
}

int resolve_env(struct resolve *rs)
{
	int r = resolve_set(rs);
	size_t start;

	if (r < 0)
		return r;
	start = json_enter(&rs->r, "env");
	json_enter(&rs->r, "pass");
	for (size_t i = 0; rs->m->env_pass && rs->m->env_pass[i]; i++) {
		size_t mark = json_enter_index(&rs->r, i);

		r = judge(rs, rs->m->env_pass[i]);
		if (r < 0)
			return r;
		json_leave(&rs->r, mark);
	}
	json_leave(&rs->r, start);
	rs->p->env_pass = strings_sorted_copy(rs->m->env_pass);
	return rs->p->env_pass ? 0 : json_nomem(&rs->r);
}
