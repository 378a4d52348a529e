/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A template: an interpreter that has started and imported what it was told to, outside every sandbox,
 * and forks. Each fork is made by the same clone3 as any other init, with the owner as its parent,
 * goes through the same set-up, and starts programs as any init does. Only where a program is the
 * very one that the template has started its process goes on as the interpreter that it is already,
 * where any other would call execve.
 *
 * So the template holds nothing that a run must not know: the interpreter and the operator's list of
 * modules. Plans and requests reach its forks as descriptors, and are mapped there. What forks share
 * is the layout of their memory and the seed of str hashes; the owner makes a new template from time to
 * time.
 */
#ifndef NSBOX_TEMPLATE_H
#define NSBOX_TEMPLATE_H

#include "nsbox/child.h"

#define TEMPLATE_MAGIC UINT32_C(0x316c7074) /* "tpl1" */

/* On a SOCK_SEQPACKET pair. The first reply, pid 0, comes unasked: it is ready. */
struct template_request {
	uint32_t magic, reserved;
	uint64_t flags;	    /* of clone3 */
	struct child child; /* whose pointers mean nothing there */
};
struct template_reply {
	uint32_t magic;
	int32_t pid, errnum;
	uint32_t pages; /* that a fork copies at once: template_pages() */
};

/* Descriptors of a request, in their order. */
enum template_fd { TEMPLATE_PLAN, TEMPLATE_ROOT, TEMPLATE_CONTROL, TEMPLATE_CGROUP, TEMPLATE_FDS };

/*
 * The owner's side: a fork that becomes init, a child of ours, with its pidfd in the sandbox; 0: it was not
 * asked; -1: it was, and there may be a fork of which nothing is known. On a template that does not answer the
 * socket is shut down.
 */
struct nsbox_sandbox;
pid_t template_fork_init(struct nsbox_sandbox *sb, const struct child *c);

/* Init's, in a fork: fork(2) with what the C library keeps of threads put right. */
int template_fork(void);
/* A payload's, before it is the interpreter again: copy what its call will write to. */
void template_populate(void);
unsigned template_pages(void);
/* A payload's, locked down: is this the program that it is? Then it is, and this does not return. */
void template_enter(struct child *c, const struct blob *exec, int channel, char *const *argv,
		    char *const *env);

/*
 * What the interpreter calls (nsbox/runner/python.py), from nsbox-template.so: 0 in each payload that
 * is to go on, where the other two are its arguments and variables; else, at the end, -errno.
 */
#pragma GCC visibility push(default)
int nsbox_template_serve(int sock);
char **nsbox_template_argv(void);
char **nsbox_template_env(void);
/* Before a fork that plays a call; in it, in the place of exit(), when it has; when it has ended. */
void nsbox_template_expect(void);
_Noreturn void nsbox_template_learn(int status);
void nsbox_template_learnt(void);
#pragma GCC visibility pop

#endif
