/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The upper layer of a sandbox: what its programs have changed. Read by a helper of init, confined
 * as a payload and with its ids, through a descriptor that nothing else inside has.
 * System calls alone, buffers on the stack: safe after clone.
 */
#ifndef NSBOX_UPPER_H
#define NSBOX_UPPER_H

#include <nsbox/sandbox.h>
#include <time.h>

#define UPPER_FORM_MAX (NSBOX_UPPER_LAYER + 1)

/*
 * Records of NSBOX_UPPER_LIST: "added", "changed", "dir", "link", "removed", "replaced" (a directory that hides the
 * image's) and the value "SIZE/PATH". `since`: end of the set-up; what is older is no program's.
 */
int upper_send(int upper_fd, enum nsbox_upper form, const struct timespec *since, int out,
	       struct nsbox_error *err);

#endif
