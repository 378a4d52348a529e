/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tier "process": a sandbox for hosts where no user namespace can be made.
 *
 * Theory of operation. Plan, init, control socket, payload, witness and supervision are those of
 * every sandbox; what is missing are the namespaces, and with them the mounts. So:
 *
 *   files      The run's places (/workspace, /tmp, HOME, /skills, /run) are directories below one of
 *              its own on the host, which init holds as its "root": whatever works on files for the
 *              owner goes by descriptors below it, as ever. The program sees the host's paths, and
 *              gets the real ones where its directory, its variables and its arguments name such a
 *              place (process_view()). Landlock leaves it those, and of the host what the image shows.
 *   ids        With CAP_SETUID and CAP_SETGID: a user and group for the payload, another for init, both
 *              of this sandbox alone, from its slot. Without, the caller's own.
 *   ending     Init asks for the orphans below it. With ids of its own everything of the payload's is
 *              killed at once, by user; else init kills its children until it has none.
 *   network    The filter lets no socket be made. Pairs of Unix sockets are.
 *   limits     Resource limits of the processes, and the watchdog.
 */
#ifndef NSBOX_PROCESS_TIER_H
#define NSBOX_PROCESS_TIER_H

#include <nsbox/layer.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "nsbox/ids.h"

struct blob;
struct child;
struct nsbox_error;
struct nsbox_root;

/* What no sandbox of this tier has, whatever the host has. */
#define PROCESS_ABSENT                                                                             \
	(NSBOX_LAYER_BIT(NSBOX_LAYER_USER) | NSBOX_LAYER_BIT(NSBOX_LAYER_MOUNT) |                  \
	 NSBOX_LAYER_BIT(NSBOX_LAYER_PID) | NSBOX_LAYER_BIT(NSBOX_LAYER_NET) |                     \
	 NSBOX_LAYER_BIT(NSBOX_LAYER_IPC) | NSBOX_LAYER_BIT(NSBOX_LAYER_UTS) |                     \
	 NSBOX_LAYER_BIT(NSBOX_LAYER_CGROUP_NS) | NSBOX_LAYER_BIT(NSBOX_LAYER_ROOT) |              \
	 NSBOX_LAYER_BIT(NSBOX_LAYER_OVERLAY) | NSBOX_LAYER_BIT(NSBOX_LAYER_PROC) |                \
	 NSBOX_LAYER_BIT(NSBOX_LAYER_NFTABLES) | NSBOX_LAYER_BIT(NSBOX_LAYER_CGROUP))
/* What it is made of: no plan of this tier may do without. */
#define PROCESS_FOUNDATION                                                                         \
	(NSBOX_LAYER_BIT(NSBOX_LAYER_NO_NEW_PRIVS) | NSBOX_LAYER_BIT(NSBOX_LAYER_CAPABILITIES) |   \
	 NSBOX_LAYER_BIT(NSBOX_LAYER_SECCOMP) | NSBOX_LAYER_BIT(NSBOX_LAYER_LANDLOCK_FS) |         \
	 NSBOX_LAYER_BIT(NSBOX_LAYER_WITNESS))

#define PROCESS_PATH 512

/* What the owner keeps of such a sandbox, and init has a copy of. */
struct process_box {
	bool own_ids;
	uid_t init, reaper; /* with ids of its own, user and group alike */
	struct ids_payload payload;
	int parent, dir;	 /* O_PATH of <state>/process, and of the directory in it; -1 */
	char name[16];		 /* its name there: the slot */
	char path[PROCESS_PATH]; /* and the whole of it */
	char variable[PROCESS_PATH + 16]; /* "NSBOX_ROOT=" and that */
};

/* ------------------------------------------------------------------ process_dir.c: the owner's side */

void process_init(struct process_box *b);
/* Make the directory of a slot, after what a dead owner may have left under that number is gone. */
int process_make(struct process_box *b, const char *state, uint32_t slot, bool own_ids,
		 struct nsbox_error *err);
/* End what may be left of the payload's processes, and remove the directory. */
void process_done(struct process_box *b);

/* ------------------------------------------------------------------ process_ids.c: either side */

/*
 * Send a signal to all processes of the payload, at once: from a process that is of that user in effect
 * and of another in truth, so that nothing can answer in kind. 0, or -errno. System calls only.
 */
int process_signal_user(const struct process_box *b, int signal);
/* In a child of ours: become the payload's user for good, without a capability. */
int process_become(const struct process_box *b);

/* ------------------------------------------------------------------ process_view.c: in the child */

/*
 * The host's path of a place of the run's; NULL where the path is none of its places (or does not fit):
 * then it means what it says.
 */
const char *process_view(const struct child *c, const char *path, char *buf, int size);
/* All arguments and variables that are such paths as a whole, replaced. */
int process_view_vectors(const struct child *c, char **argv, char **env, struct nsbox_error *err);

/* ------------------------------------------------------------------ stage_process.c */

/* Init's and its payloads' ids, after what the owner had. */
int process_take_ids(struct child *c, struct nsbox_error *err);
/* Landlock rules of the host's trees, which the image lists, and of /proc and devices. */
int process_add_trees(struct child *c, int ruleset, struct nsbox_error *err);
/*
 * In a payload: it ends with its parent; and where it has init's own id it enters a domain of its own, from
 * which it cannot signal init, if Landlock can do that.
 */
int process_payload_bind(const struct child *c, struct nsbox_error *err);

#endif
