/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system call tables: which calls there are for a payload, which are refused by name, and which
 * are judged by their arguments. seccomp.c makes filters of them; the documentation prints them.
 *
 *   allowed   the call reaches the kernel
 *   refused   EPERM: known, and not for a payload
 *   the rest  ENOSYS, as if the kernel were older, so that libraries fall back
 *   rules     tried in order before the lists, on arguments; the first that matches decides
 */
#ifndef POLICY_SYSCALLS_H
#define POLICY_SYSCALLS_H

#include <stddef.h>
#include <stdint.h>

/* Traits of a policy that a group or rule depends on. */
enum {
	SC_PTRACE = 1 << 0,	/* may trace own children */
	SC_JIT = 1 << 1,	/* may have memory both writable and executable */
	SC_THREADS = 1 << 2,	/* may have threads */
	SC_MEMFD_EXEC = 1 << 3, /* may execute a program that is in memory only */
	SC_INIT = 1 << 4,	/* the sandbox's init: passes all that a payload may do */
	SC_NETLINK = 1 << 5,	/* may ask the kernel about sockets and devices */
	SC_LISTEN = 1 << 6,	/* may wait for connections */
	SC_SETID = 1 << 7,	/* may give files set-id bits: nothing of it outlives the run */
	SC_OWN_NET = 1 << 8, /* has a network and processes of its own: all tiers but "process" */
};
/* The most generous payload: what init passes, besides SC_INIT. */
#define SC_PAYLOAD                                                                                 \
	(SC_PTRACE | SC_JIT | SC_THREADS | SC_MEMFD_EXEC | SC_NETLINK | SC_LISTEN | SC_SETID |     \
	 SC_OWN_NET)

struct syscall_group {
	const char *name;
	const char *why;	  /* why it is there, or what is lost by it */
	unsigned needs;		  /* allowed only with all of these traits */
	const char *const *names; /* NULL-terminated */
};

extern const struct syscall_group syscall_allowed[];
extern const size_t syscall_n_allowed;
extern const struct syscall_group syscall_refused[];
extern const size_t syscall_n_refused;
/* "@mount", ...: the refused groups by the names that syscalls.groups knows; NULL past the last. */
const char *syscall_raw_group(size_t i);

/* Calls newer than libseccomp 2.5.4: the same number on every architecture since 5.1. */
struct syscall_number {
	const char *name;
	unsigned nr;
	unsigned allowed; /* by default */
};
extern const struct syscall_number syscall_newer[];
extern const size_t syscall_n_newer;
#define SYSCALL_NEWER_FIRST 452

/* Conditions read the low 32 bits: everything judged here is an int or a flag in those bits. */
enum cond_op { COND_NONE, COND_EQ, COND_ANY_BIT };
struct arg_cond {
	uint8_t arg, op;
	uint32_t mask; /* COND_EQ: arg & mask == value; COND_ANY_BIT: arg & mask != 0 */
	uint32_t value;
};

#define RULE_PASS  0xffff /* this call is fine: go on to the lists */
#define RULE_CONDS 3
struct arg_rule {
	const char *name;
	unsigned unless;  /* the rule is left out where the policy has any of these traits */
	uint16_t verdict; /* RULE_PASS, or the errno that the call gets (0: success, not done) */
	struct arg_cond cond[RULE_CONDS]; /* all must hold; none: always */
};
extern const struct arg_rule syscall_rules[]; /* rules of one call stand together */
extern const size_t syscall_n_rules;

#endif
