/* SPDX-License-Identifier: Apache-2.0 */
/* Starting the front's confined workers. */
#ifndef FRONT_CHILD_H
#define FRONT_CHILD_H

#include <nsbox/error.h>
#include <sys/types.h>

/*
 * Start a program of ours with descriptors in[i] as i (-1: /dev/null) for i < n, everything else
 * closed, an empty environment and no blocked signal. The caller learns of its end through these
 * descriptors; it is reaped by child_reap().
 */
int child_start(const char *path, const char *const *argv, const int *in, int n, pid_t *ret,
		struct nsbox_error *err);
void child_reap(void);

#endif
