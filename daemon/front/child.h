/* SPDX-License-Identifier: Apache-2.0 */
/* Starting the front's confined workers, and learning how they ended. */
#ifndef FRONT_CHILD_H
#define FRONT_CHILD_H

#include "daemon/front/loop.h"

struct child;
/* status as from waitid(2): si_code CLD_* and the number that goes with it. */
typedef void child_fn(void *ctx, int code, int status);

/*
 * Start a program of ours with descriptors in[i] as i (-1: /dev/null) for i < n, everything else
 * closed, an empty environment and no blocked signal. on_exit (may be NULL) is called once, and
 * then *ret is no longer valid.
 */
int child_start(struct loop *l, const char *path, const char *const *argv, const int *in, int n,
		child_fn *on_exit, void *ctx, struct child **ret, struct nsbox_error *err);
/* Kill it and hear no more of it; it is still reaped. NULL is fine. */
void child_forget(struct child **c);

#endif
