/* SPDX-License-Identifier: Apache-2.0 */
/* What processes may do: the words of `process`, and the operator's raw system calls. */
#include <string.h>

#include "nsbox/util.h"
#include "policy/resolve.h"
#include "policy/syscalls.h"

/*
 * "none" is exact for a Python function, by a filter stacked once the interpreter runs. A command
 * has to be executed itself: there the strict profile means "skill" (nothing that the run wrote can
 * be started), and an author who wrote "none" is told.
 */
static int resolve_subprocess(struct resolve *rs)
{
	static const char *const words[] = { "none", "skill", "any" };
	uint32_t asked = rs->m->process.subprocess;
	size_t mark;
	int r;

	rs->p->subprocess = asked == UNSET ? rs->p->profile->subprocess : asked;
	if (asked == UNSET && rs->p->subprocess == SUBPROCESS_NONE && !rs->opt->python_function)
		rs->p->subprocess = SUBPROCESS_SKILL;
	if (asked == UNSET)
		return 0;
	mark = json_enter(&rs->r, "subprocess");
	if (asked == SUBPROCESS_NONE && !rs->opt->python_function)
		return json_fail(&rs->r,
				 "\"none\" can be held for Python functions only, each in a "
				 "sandbox of its own; commands and sessions can have \"skill\"");
	r = resolve_grant(rs, "%s", words[asked]);
	if (r == 0)
		json_leave(&rs->r, mark);
	return r;
}

/* A word with a preset, under what the operator allows at most; granting `false` is no grant. */
struct word {
	const char *key;
	uint32_t asked;
	bool preset, ceiling;
	bool *ret;
};

static int resolve_word(struct resolve *rs, const struct word *w)
{
	size_t mark = json_enter(&rs->r, w->key);
	int r = 0;

	if (w->asked == 1 && !w->ceiling)
		return json_fail(&rs->r, "is more than the operator allows");
	*w->ret = w->asked == UNSET ? w->preset && w->ceiling : w->asked;
	if (w->asked == 1)
		r = resolve_grant(rs, "true");
	if (r == 0)
		json_leave(&rs->r, mark);
	return r;
}

static bool allows(uint32_t allowance, bool built_in)
{
	return allowance == NSBOX_ALLOWANCE_UNSET ? built_in : allowance == NSBOX_ALLOWANCE_YES;
}

/* User 0 inside: an operator's profile. It holds no capability, like every payload. */
static int resolve_user(struct resolve *rs)
{
	enum { NOBODY, ROOT };
	uint32_t asked = rs->m->process.user;
	bool preset = rs->p->profile->uid_root;
	bool ceiling = allows(rs->ceiling->root, rs->opt->as_operator);
	size_t mark;
	int r = 0;

	if (!ceiling && (asked == ROOT || (asked == UNSET && preset))) {
		json_leave(&rs->r, 0);
		if (asked == UNSET) {
			json_enter(&rs->r, "profile");
			return json_fail(&rs->r,
					 "\"%s\" runs as user 0 inside, which the operator "
					 "does not allow",
					 rs->p->profile->name);
		}
		json_enter(&rs->r, "process");
		json_enter(&rs->r, "user");
		return json_fail(&rs->r, "user 0 inside is more than the operator allows");
	}
	mark = json_enter(&rs->r, "user");
	rs->p->uid = (asked == UNSET ? preset : asked == ROOT) ? 0 : POLICY_UID;
	if (asked == ROOT)
		r = resolve_grant(rs, "root");
	if (r == 0)
		json_leave(&rs->r, mark);
	return r;
}

static int refuse_userns(struct resolve *rs)
{
	if (rs->m->process.userns != 1)
		return 0;
	json_enter(&rs->r, "userns");
	return json_fail(&rs->r,
			 "true is never granted: a user namespace gives capabilities over what "
			 "the sandbox keeps closed");
}

int resolve_process(struct resolve *rs)
{
	struct nsbox_policy *p = rs->p;
	const struct profile *pr = p->profile;
	const struct nsbox_manifest *m = rs->m;
	const struct nsbox_ceiling *c = rs->ceiling;
	const struct word words[] = {
		{ "jit", m->process.jit, pr->jit, allows(c->jit, true), &p->jit },
		{ "threads", m->process.threads, true, true, &p->threads },
		{ "ptrace", m->process.ptrace, pr->ptrace, true, &p->ptrace },
		{ "netlink", m->process.netlink, false, true, &p->netlink },
		{ "listen", m->process.listen, true, allows(c->listen, true), &p->listen },
	};
	size_t start = json_enter(&rs->r, "process");
	int r = resolve_subprocess(rs);

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(words); i++)
		r = resolve_word(rs, &words[i]);
	if (r == 0)
		r = resolve_user(rs);
	if (r == 0)
		r = refuse_userns(rs);
	if (r < 0)
		return r;
	json_leave(&rs->r, start);
	p->memfd_exec = p->subprocess != SUBPROCESS_SKILL;
	if (p->subprocess == SUBPROCESS_NONE)
		p->n_noexec = seccomp_noexec(p->noexec, ARRAY_SIZE(p->noexec));
	return 0;
}

/* ------------------------------------------------------------------ system calls */

static int resolve_call(struct resolve *rs, const char *name)
{
	const char *near;

	if (seccomp_name_known(name)) {
		if (strings_add_take(&rs->p->syscalls, strdup(name)) < 0)
			return json_nomem(&rs->r);
		return resolve_grant(rs, "%s", name);
	}
	near = seccomp_name_near(name);
	if (near)
		return json_fail(&rs->r, "unknown system call \"%.40s\", did you mean \"%s\"?",
				 name, near);
	return json_fail(&rs->r, "unknown system call \"%.40s\"", name);
}

static int resolve_group(struct resolve *rs, const char *name)
{
	size_t i = 0;

	while (syscall_raw_group(i) && strcmp(syscall_raw_group(i), name) != 0)
		i++;
	if (!rs->opt->as_operator && !(rs->ceiling->syscall_groups & (1u << i)))
		return json_fail(&rs->r, "only an operator can allow raw system calls");
	for (const char *const *n = syscall_refused[i].names; *n; n++)
		if (strings_add_take(&rs->p->syscalls, strdup(*n)) < 0)
			return json_nomem(&rs->r);
	return resolve_grant(rs, "%s", name);
}

static int resolve_list(struct resolve *rs, const char *key, char *const *list,
			int (*resolve)(struct resolve *, const char *))
{
	size_t start = json_enter(&rs->r, key);

	for (size_t i = 0; list && list[i]; i++) {
		size_t mark = json_enter_index(&rs->r, i);
		int r = resolve(rs, list[i]);

		if (r < 0)
			return r;
		json_leave(&rs->r, mark);
	}
	json_leave(&rs->r, start);
	return 0;
}

int resolve_syscalls(struct resolve *rs)
{
	size_t start = json_enter(&rs->r, "syscalls");
	int r;

	rs->p->syscalls = calloc(1, sizeof(*rs->p->syscalls));
	if (!rs->p->syscalls)
		return json_nomem(&rs->r);
	if (rs->m->syscalls && !rs->opt->as_operator)
		return json_fail(&rs->r, "only an operator can allow system calls by name");
	r = resolve_list(rs, "allow", rs->m->syscalls, resolve_call);
	if (r == 0)
		r = resolve_list(rs, "groups", rs->m->syscall_groups, resolve_group);
	if (r < 0)
		return r;
	strings_sort_unique(rs->p->syscalls);
	json_leave(&rs->r, start);
	return 0;
}
