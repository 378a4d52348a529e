/* SPDX-License-Identifier: Apache-2.0 */
/* See denied.h. */
#include "policy/denied.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/calls.h"
#include "policy/syscalls.h"

/* ------------------------------------------------------------------ what the tables say */

static bool has(const char *const *names, const char *name)
{
	for (; *names; names++)
		if (!strcmp(*names, name))
			return true;
	return false;
}

static bool holds(const struct arg_rule *rule, const uint32_t arg[6])
{
	for (unsigned i = 0; i < RULE_CONDS; i++) {
		const struct arg_cond *c = &rule->cond[i];
		uint32_t v = arg[c->arg] & c->mask;

		if ((c->op == COND_EQ && v != c->value) || (c->op == COND_ANY_BIT && !v))
			return false;
	}
	return true;
}

static uint32_t by_groups(const char *name, unsigned traits)
{
	bool allowed = false;

	for (size_t i = 0; i < syscall_n_newer; i++)
		if (!strcmp(syscall_newer[i].name, name))
			return syscall_newer[i].allowed ? DENIED_ALLOWED : ENOSYS;
	for (size_t g = 0; g < syscall_n_allowed; g++) {
		if (!has(syscall_allowed[g].names, name))
			continue;
		if ((traits & syscall_allowed[g].needs) != syscall_allowed[g].needs)
			return EPERM;
		allowed = true;
	}
	if (allowed)
		return DENIED_ALLOWED;
	for (size_t g = 0; g < syscall_n_refused; g++)
		if (has(syscall_refused[g].names, name))
			return EPERM;
	return ENOSYS;
}

uint32_t denied_judge(const char *name, const uint32_t arg[6], unsigned traits)
{
	for (size_t i = 0; i < syscall_n_rules; i++) {
		const struct arg_rule *rule = &syscall_rules[i];

		if (strcmp(rule->name, name) != 0 || (rule->unless & traits) || !holds(rule, arg))
			continue;
		if (rule->verdict == RULE_PASS)
			break;
		return rule->verdict;
	}
	return by_groups(name, traits);
}

/* ------------------------------------------------------------------ what would allow it */

static const struct {
	unsigned trait;
	const char *pointer, *value;
} words[] = {
	{ SC_PTRACE, "/process/ptrace", "true" },
	{ SC_JIT, "/process/jit", "true" },
	{ SC_THREADS, "/process/threads", "true" },
	{ SC_NETLINK, "/process/netlink", "true" },
	{ SC_LISTEN, "/process/listen", "true" },
	{ SC_MEMFD_EXEC, "/process/subprocess", "\"any\"" },
	{ SC_SETID, "/filesystem/workspace", "\"overlay\"" },
};

/* One word is enough for each call there is: a test holds the tables to that. */
static void find_pointer(const struct nsbox_denied_call *d, struct denied_words *w)
{
	if (denied_judge(w->name, d->arg, SC_PAYLOAD) == DENIED_ALLOWED) {
		for (size_t i = 0; i < ARRAY_SIZE(words); i++)
			if (denied_judge(w->name, d->arg, SC_PAYLOAD & ~words[i].trait) !=
			    DENIED_ALLOWED) {
				w->pointer = words[i].pointer;
				w->value = words[i].value;
				return;
			}
	}
	w->pointer = "/syscalls/allow";
	w->value = NULL;
	w->note = "an operator alone may";
}

/* The last argument that decided, and all before it. */
static void put_arguments(const struct nsbox_denied_call *d, struct denied_words *w)
{
	unsigned n = 6;
	int len = 0;

	while (n && !d->arg[n - 1])
		n--;
	for (unsigned i = 0; i < n; i++)
		len += nsbox_format(w->arguments + len, (int)sizeof(w->arguments) - len,
				    d->arg[i] > 9 ? "%s0x%x" : "%s%u", i ? ", " : "", d->arg[i]);
}

void denied_describe(const struct nsbox_denied_call *d, struct denied_words *ret)
{
	char buf[64], number[32];
	const char *name = call_name(d->nr, SECCOMP_ARCH_NATIVE, buf, sizeof(buf));

	*ret = (struct denied_words){ .pointer = NULL };
	snprintf(ret->errnum, sizeof(ret->errnum), "%s",
		 call_errno_name((int)d->errnum, number, sizeof(number)));
	put_arguments(d, ret);
	if (name) {
		snprintf(ret->name, sizeof(ret->name), "%s", name);
		find_pointer(d, ret);
		return;
	}
	snprintf(ret->name, sizeof(ret->name), "call %u", d->nr);
	ret->note = "it has no name here, so that no manifest can allow it";
}
