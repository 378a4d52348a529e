/* SPDX-License-Identifier: Apache-2.0 */
/* A directory of the host that a run shares with its owner: filesystem.workspace "rw". */
#ifndef NSBOX_SHARE_H
#define NSBOX_SHARE_H

#include <nsbox/plan.h>
#include <sys/types.h>

#include "nsbox/ids.h"

struct child;

struct share {
	const char *path; /* absolute; NULL: none */
	dev_t dev;	  /* what has to be there when it is mounted */
	ino_t ino;
	struct ids_payload owner;
};

/* Before the clone: may the plan and this directory go together, and whose is it. `choose`: the payload's
 * id outside is ours to choose. */
int share_open(const struct nsbox_plan *plan, const char *path, bool choose, struct share *ret,
	       struct nsbox_error *err);

#endif
