/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits by control groups, version 1 or 2, whichever this host lets us write.
 *
 * The payload of a sandbox lives in a leaf of its own with the limits on it: `nsbox/<slot>` below
 * the owner's group of each controller (v1), `nsbox/<slot>/run` below the root or a delegated
 * group (v2). Init stays outside the leaf, in the owner's group (v1) or in `nsbox/<slot>/init`,
 * where it is born by CLONE_INTO_CGROUP (v2): when memory runs out the kernel takes the payload,
 * and init is there to tell.
 */
#ifndef NSBOX_CGROUP_H
#define NSBOX_CGROUP_H

#include <nsbox/host.h>
#include <sys/types.h>

#include "nsbox/plan_format.h"

enum cgroup_controller { CG_MEMORY, CG_PIDS, CG_CPU, CG_CONTROLLERS };

struct cgroup {
	int kind;		  /* enum nsbox_cgroup_kind; NONE: nothing below is open */
	int base[CG_CONTROLLERS]; /* `nsbox` directory; v2: the same for all */
	int leaf[CG_CONTROLLERS]; /* where the payload goes; v2: the same for all */
	int sandbox;		  /* v2: `nsbox/<slot>`, else -1 */
	int init;		  /* v2: where init is born, else -1 */
	uint32_t slot;
	uint64_t oom_at_start, pids_at_start;
};

struct cgroup_usage {
	uint64_t memory_peak;
	uint32_t oom_kills, pids_hits;
};

/* Which kind can be written; the host's note says why none. Leaves nothing behind. */
int cgroup_probe(struct nsbox_host *host);
void cgroup_init(struct cgroup *cg); /* nothing is open */
/* Make the groups of a sandbox and set the limits; on an error nothing is left open. */
int cgroup_open(struct cgroup *cg, uint32_t slot, const struct plan_limits *l,
		struct nsbox_error *err);
int cgroup_attach(const struct cgroup *cg, pid_t pid, struct nsbox_error *err);
void cgroup_usage(const struct cgroup *cg, struct cgroup_usage *ret);
/* Remove the leaf (its processes are gone) and close. Idempotent. */
void cgroup_close(struct cgroup *cg);
/* Remove leaves whose slot no one holds. */
void cgroup_sweep(void);

#endif
