/* SPDX-License-Identifier: Apache-2.0 */
/* Names for what a filter sees as numbers: calls, constants of their arguments, verdicts. */
#ifndef POLICY_CALLS_H
#define POLICY_CALLS_H

#include "policy/internal.h"

uint32_t call_audit_arch(enum seccomp_arch arch);
const char *call_arch_name(uint32_t audit_arch, char *buf, int size); /* "x86_64", "0x40000003" */
/* Negative where the architecture has no such call, or nobody knows it. */
int call_number(const char *name, enum seccomp_arch arch);
/* NULL: a number without a name. */
const char *call_name(uint32_t nr, enum seccomp_arch arch, char *buf, int size);
/* A number, a constant ("AF_PACKET"), or several joined by '|'. False: unknown. */
bool call_argument(const char *text, uint64_t *ret);

/* "EPERM"; "errno 99" in buf where there is no name. */
const char *call_errno_name(int errnum, char *buf, int size);
/* "allowed", "EPERM", "killed", ... of a SECCOMP_RET_*. */
const char *call_action_text(uint32_t action, char *buf, int size);

#endif
