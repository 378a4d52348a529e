/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits by control groups, version 1 or 2, whichever this host lets us write.
 *
 * The payload of a sandbox lives in a leaf of its own with the limits on it: `nsbox/<slot>` below
 * the owner's group of each controller (v1), `nsbox/<slot>/run` below the root or a delegated
 * group (v2). Init stays outside the leaf, in the owner's group (v1) or in `nsbox/<slot>/init`,
 * where it is born by CLONE_INTO_CGROUP (v2): when memory runs out the kernel takes the payload,
 * and init is there to tell.
 *
 * Where several programs run in one sandbox each has a leaf of its own below that one
 * (cgroup_leaf.c): without limits of its own, but with counters, and everything the program has
 * started is in it and can be ended with it.
 */
#ifndef NSBOX_CGROUP_H
#define NSBOX_CGROUP_H

#include <nsbox/host.h>
#include <stdbool.h>
#include <sys/types.h>

#include "nsbox/plan_format.h"

enum cgroup_controller { CG_MEMORY, CG_PIDS, CG_CPU, CG_CONTROLLERS };

#define CGROUP_LEAVES  512 /* of the execs of one sandbox */
#define CGROUP_NO_LEAF (-1)

struct cgroup {
	int kind;		  /* enum nsbox_cgroup_kind; NONE: nothing below is open */
	int base[CG_CONTROLLERS]; /* `nsbox` directory; v2: the same for all */
	int leaf[CG_CONTROLLERS]; /* where the payload goes; v2: the same for all */
	int sandbox;		  /* v2: `nsbox/<slot>`, else -1 */
	int init;		  /* v2: where init is born, else -1 */
	uint32_t slot;
	uint32_t pids; /* the limit */
	uint64_t oom_at_start, pids_at_start;
	unsigned leaves;			/* made so far for execs */
	unsigned char taken[CGROUP_LEAVES / 8]; /* by a running exec */
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
/* Put a process into the leaf of an exec, or (CGROUP_NO_LEAF) into that of the sandbox. */
int cgroup_attach(const struct cgroup *cg, int leaf, pid_t pid, struct nsbox_error *err);
/*
 * Version 1: files by which a process that has one thread puts itself there, by a write of "0" to each;
 * ret[CG_CONTROLLERS], the caller's. Version 2 has none: there the owner attaches.
 *
 * Moving a process takes a lock against all forks and ends of processes, which is had after a grace period
 * of RCU: 7 to 15 ms where nobody moved one lately. Who moves itself alone goes without
 * (Linux 5.5, cgroup_procs_write_start() in kernel/cgroup/cgroup.c). Who opened the file is asked for
 * permission, not who writes.
 */
int cgroup_open_join(const struct cgroup *cg, int leaf, int *ret, struct nsbox_error *err);
/* Peak of the whole sandbox; events since it was made, or of a leaf since that was first made. */
void cgroup_usage(const struct cgroup *cg, int leaf, struct cgroup_usage *ret);
/* Remove the leaf (its processes are gone) and close. Idempotent. */
void cgroup_close(struct cgroup *cg);
/* Remove leaves whose slot no one holds. */
void cgroup_sweep(void);

/* cgroup_leaf.c */

/* A leaf that is empty and no running exec's; one is used again rather than a new one made. */
int cgroup_leaf_take(struct cgroup *cg, int *ret, struct nsbox_error *err);
/* The exec is over. What it left running stays in the leaf, and the leaf is not used meanwhile. */
void cgroup_leaf_release(struct cgroup *cg, int leaf);
bool cgroup_leaf_empty(const struct cgroup *cg, int leaf);
/* Signal all processes of a leaf. With SIGKILL nothing can fork away from it, but one round may
 * not be all there is to do: until it is empty. */
void cgroup_leaf_signal(const struct cgroup *cg, int leaf, int sig);
/* Remove the leaves below a directory. */
void cgroup_leaves_remove(int dir);

/* cgroup.c, for cgroup_leaf.c */
enum cgroup_file {
	CGF_MEMORY,
	CGF_SWAP,
	CGF_PIDS,
	CGF_CPU,
	CGF_PEAK,
	CGF_OOM,
	CGF_PIDS_EVENTS,
	CGF_FILES
};
int cgroup_set(const struct cgroup *cg, int leaf, enum cgroup_file f, const char *value);
int cgroup_enable_v2(int dir, bool cpu);
void cgroup_remove_dir(int base, const char *name);

#endif
