/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descendants of a process, seen and signalled from outside the sandbox: what the owner goes by
 * where no control group holds the processes of a sandbox or of one exec together.
 *
 * A process whose parent ends is given to the nearest ancestor that asked for such (init, or the
 * leader of an exec), so while that one lives a walk from it finds all. Nothing is signalled by
 * number: a process is held by a pidfd and looked at again first.
 */
#ifndef NSBOX_TREE_H
#define NSBOX_TREE_H

#include <stdbool.h>
#include <sys/types.h>

#define TREE_MAX 4096 /* processes looked at in one round */

struct tree {
	pid_t pid[TREE_MAX]; /* parents before their children; not the root itself */
	unsigned count;
	char text[64 << 10]; /* the list of a thread's children */
};

/* NULL without memory. The caller frees it. */
struct tree *tree_grow(pid_t root);
/* 0 where there is no such process. */
pid_t tree_parent(pid_t pid);
/*
 * Signal every descendant of `root`; nested: of those only what is in a pid namespace below ours, as all
 * of a sandbox with namespaces is. How many there were, 0: the root has none; or -ENOMEM.
 */
int tree_signal(pid_t root, int sig, bool nested);
/* Signal a process if it is a child of `parent`. */
void tree_signal_child(pid_t pid, pid_t parent, int sig, bool nested);

#endif
