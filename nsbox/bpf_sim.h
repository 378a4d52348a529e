/* SPDX-License-Identifier: Apache-2.0 */
/* A small interpreter of seccomp programs, so that filters can be judged without a kernel. */
#ifndef NSBOX_BPF_SIM_H
#define NSBOX_BPF_SIM_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>

/* What the kernel's verifier demands: known instructions, jumps forward and inside, a return at the
 * end, loads of aligned words of struct seccomp_data. NULL, or what is wrong. */
const char *bpf_sim_check(const struct sock_filter *prog, size_t n);

/* The program's return value, SECCOMP_RET_*. prog must have passed bpf_sim_check(). */
uint32_t bpf_sim_run(const struct sock_filter *prog, size_t n, const struct seccomp_data *data);
/* And which words of the data it looked at, a bit each: what decided. */
uint32_t bpf_sim_words(const struct sock_filter *prog, size_t n, const struct seccomp_data *data,
		       uint32_t *ret_words);

/*
 * Could the kernel answer `nr` from its bitmap (allowed whatever the arguments are)? As
 * seccomp_is_const_allow() does: follows the program as long as only number and arch are read.
 */
int bpf_sim_is_constant(const struct sock_filter *prog, size_t n, uint32_t arch, uint32_t nr);

#endif
