/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sandboxes for tests: the host is probed and the image "host" prepared once, before Check forks;
 * each test compiles a plan of its own, changes what it is about, and runs small programs.
 */
#ifndef TESTS_BOX_KIT_H
#define TESTS_BOX_KIT_H

#include <check.h>
#include <nsbox/host.h>
#include <nsbox/sandbox.h>
#include <sys/types.h>

#include "tests/support/plan_kit.h"

extern struct nsbox_host box_host;
extern struct nsbox_root *box_root;
extern uint32_t box_layers; /* that this host can give */

/* In main(): false where the host cannot hold sandboxes; the file's TAP is then complete, and
 * *ret_status what main() returns. NSBOX_MUST_WORK makes it a failure instead of a skip. */
bool box_prepare(int *ret_status);
/* The rest of main(): run the suite, print TAP, free all. */
int box_finish(Suite *s);

/* A plan of a manifest (NULL: default) for this host, changed by fn (NULL: as it is). */
struct nsbox_plan *box_plan(const char *manifest, void (*fn)(struct plan_fixed *));

struct box_run {
	/* in */
	const struct nsbox_plan *plan; /* NULL: the default one */
	uint32_t layers;	       /* 0: all there are */
	const char *const *env;
	const char *cwd;
	uint64_t wall_ms;
	int request, result_fd; /* 0: none */
	bool observe;		/* count refused calls */
	/* out */
	int ret;
	struct nsbox_error err;
	struct nsbox_result res;
	char out[16384]; /* stdout and stderr */
};

/* nsbox_run() of a program, or of `sh -c script`. */
void box_run_argv(struct box_run *run, const char *const *argv);
void box_run_sh(struct box_run *run, const char *script);

/* A sandbox that is being made; and an exec of `sh -c script` in it, output to out (or -1). */
struct nsbox_sandbox *box_new(const struct nsbox_plan *plan, int files_fd);
void box_sh(struct nsbox_sandbox *sb, const char *script, bool keep_rest, int out);
/* The next event, which must be of this kind and come within ten seconds
 * of a real processor. */
struct nsbox_event box_expect(struct nsbox_sandbox *sb, uint32_t kind);

/* Children of a process, as seen from outside; how many, at most max. */
int box_children(pid_t pid, pid_t *ret, int max);
bool box_gone(pid_t pid); /* no such process, or a zombie */
/* Wait for a condition on a pid, at most ms, on a real processor. */
bool box_wait_gone(pid_t pid, int ms);
/* How many times slower than a processor this machine is: NSBOX_SLOW, for emulated ones. */
unsigned box_slow(void);
/* All of a descriptor's file from its start, NUL-terminated. */
void box_slurp(int fd, char *buf, size_t size);

#endif
