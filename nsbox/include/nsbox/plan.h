/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan: everything about a sandbox that is known before it is made, in one sealed memfd.
 *
 * A plan is a versioned, position-independent blob in the byte order of the host that made it. It
 * is compiled once (nsbox_policy_compile), may be cached and hashed, and is checked again by
 * whoever receives it: the receiver trusts no offset, count or value in it.
 */
#ifndef NSBOX_PLAN_H
#define NSBOX_PLAN_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

/* Largest plan or exec request accepted, in bytes. */
#define NSBOX_PLAN_MAX (16u << 20)

/*
 * Is this blob a well-formed plan? Needs no privilege and touches nothing but the blob. After 0
 * every offset, string and enumerated value in it may be used without a further check.
 */
int nsbox_plan_check(const void *blob, size_t len, struct nsbox_error *err);

struct nsbox_plan; /* a mapped, checked plan */

/*
 * Map the plan behind a descriptor and check it. The memfd must carry all F_SEAL_* seals, so that
 * its sender cannot change it afterwards. The descriptor is borrowed: it may be closed after.
 */
int nsbox_plan_open(int plan_fd, struct nsbox_plan **ret, struct nsbox_error *err);
void nsbox_plan_close(struct nsbox_plan *plan);

/*
 * What the plan lets a run reach outside, in the form that nsbox-egress takes; NULL where that is
 * nothing. A plan that has it needs an owner that gives its sandbox's listeners away
 * (nsbox_sandbox_listeners).
 */
const void *nsbox_plan_egress(const struct nsbox_plan *plan, size_t *ret_len);

/*
 * For who makes many sandboxes: while the returned descriptor is open, the kernel's packet filter stays
 * switched on. Else the first sandbox that loads a filter switches it on and the end of the last one off
 * again, which stops all processors each time (nf_hooks_needed, static keys; measured: 1.7 to 5 ms of 17).
 * It is a network namespace of its own, with this plan's filter and nothing and nobody in it, and about
 * speed alone: sandboxes are what they are without it. *ret_fd is the caller's; -1 with a plan that has no
 * filter. Errors: NSBOX_E_UNSUPPORTED (what made it fail would make a sandbox fail, too), NSBOX_E_SETUP.
 */
int nsbox_plan_keep_filter(const struct nsbox_plan *plan, int *ret_fd, struct nsbox_error *err);

/* Does it want a directory of the host as its workspace (nsbox_sandbox_options.shared)? */
bool nsbox_plan_shares(const struct nsbox_plan *plan);

#pragma GCC visibility pop

#endif
