/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a filter that runs before libseccomp's: architecture, x32, and rules on arguments. */
#ifndef POLICY_BPF_PROLOGUE_H
#define POLICY_BPF_PROLOGUE_H

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/syscalls.h"

#define BPF_PROLOGUE_MAX 1024

struct bpf_code {
	struct sock_filter insn[BPF_PROLOGUE_MAX];
	size_t n; /* may pass BPF_PROLOGUE_MAX: then it did not fit */
};

void bpf_emit(struct bpf_code *c, uint16_t code, uint8_t jt, uint8_t jf, uint32_t k);
/* Anything but `arch` ends the process; A then holds the call's number. */
void bpf_check_arch(struct bpf_code *c, uint32_t audit_arch);
void bpf_refuse_x32(struct bpf_code *c);
/* Call `nr` is over with `action` (SECCOMP_RET_*). A must hold the number. */
void bpf_return_for(struct bpf_code *c, uint32_t nr, uint32_t action);
/*
 * n rules of call nr, tried in order. A holds the number, before and after. Where none matches, or
 * one says RULE_PASS, the program goes on behind everything bpf_finish() will have seen.
 */
void bpf_rules(struct bpf_code *c, uint32_t nr, const struct arg_rule *const *rules, size_t n);
/* A holds the number again, where rules have led. */
void bpf_load_number(struct bpf_code *c);
/* Resolve "go on behind": what comes after this; 0, or -E2BIG. */
int bpf_finish(struct bpf_code *c);

#endif
