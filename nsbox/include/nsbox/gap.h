/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tier "process" cannot stop a run from, one table for all that tells of it: the doctor, the
 * result's `notStopped`, the selftest's verdict "declared", and docs/THREAT-MODEL.md.
 *
 * Columns: symbol, name in JSON, layers each of which closes it where a run has it (0: none of this tier's
 * does), and the end of the sentence "a run is not stopped from ...".
 */
#ifndef NSBOX_GAP_H
#define NSBOX_GAP_H

#include <nsbox/layer.h>
#include <stdint.h>

#pragma GCC visibility push(default)

#define NSBOX_GAP_BY_ID	   NSBOX_LAYER_BIT(NSBOX_LAYER_OWN_ID)
#define NSBOX_GAP_BY_SCOPE (NSBOX_GAP_BY_ID | NSBOX_LAYER_BIT(NSBOX_LAYER_LANDLOCK_SCOPES))

/* clang-format off */
#define NSBOX_GAPS(X)                                                                             \
	X(PROCESSES, "processes", 0, "seeing which processes there are on the host, with their arguments and " \
	  "owners; memory, variables and descriptors of others stay closed")                      \
	X(HOST, "host", 0, "seeing what /proc tells everybody of the host: its kernel, mounts, control groups, " \
	  "network interfaces and connections; the run is in the host's namespaces")              \
	X(PATHS, "paths", 0, "seeing that a path exists and what its owner, size and times are: Landlock does not " \
	  "judge looking")                                                                        \
	X(DISK, "disk", 0, "filling the file system that the state directory is on: each file has a limit, all " \
	  "together have none")                                                                   \
	X(MEMORY, "memory", 0, "using more memory than its limit for some tens of milliseconds, or in memfds that " \
	  "nobody maps, or in buffers of the kernel's: there are no control groups")              \
	X(PROCESSOR, "processor", 0, "using more of the processor than the ones it is given at its start") \
	X(PIDS, "pids", 0, "counting towards the process limit of runs that another container of the host gives the " \
	  "same user: RLIMIT_NPROC goes by user (remedy: user namespaces for containers, or higher `pids`)") \
	X(USER_LIMITS, "userLimits", 0, "taking all that the kernel gives its user of inotify instances, pipe pages " \
	  "and the like")                                                                         \
	X(SHARED_MEMORY, "sharedMemory", 0, "reading which names there are in /dev/shm, and leaving files there " \
	  "while it runs, where it has a user of its own; they are removed after it")             \
	X(SET_ID, "setId", 0, "making set-user-id programs of its own user, in its own directory, which no other " \
	  "user can enter and which is removed after it")                                         \
	X(ATTRIBUTES, "attributes", NSBOX_GAP_BY_ID, "changing mode, times and attributes of any file of the " \
	  "caller's: Landlock judges content alone")                                              \
	X(GROUPS, "groups", NSBOX_GAP_BY_ID, "using what groups of the caller's give, of what Landlock leaves it") \
	X(PRIORITY, "priority", NSBOX_GAP_BY_ID, "lowering the priority of the caller's processes, and choosing " \
	  "their processors")                                                                     \
	X(SIGNALS, "signals", NSBOX_GAP_BY_SCOPE, "signalling the caller's processes, and its own init (before " \
	  "Linux 6.12)")                                                                          \
	X(OUTLIVE, "outlive", NSBOX_GAP_BY_SCOPE, "outliving its end by forking faster than it is killed, once it " \
	  "has ended its init (before Linux 6.12)")

enum nsbox_gap {
#define X(sym, name, closed, text) NSBOX_GAP_##sym,
	NSBOX_GAPS(X)
#undef X
	NSBOX_GAP_MAX
};
/* clang-format on */

#define NSBOX_GAP_BIT(g) (UINT32_C(1) << (g))

const char *nsbox_gap_name(int gap); /* the JSON name; NULL beyond the table */
const char *nsbox_gap_text(int gap); /* for people; NULL beyond the table */
/* What is left, as bits, where a run of the tier "process" has these layers. */
uint32_t nsbox_gaps(uint32_t layers);

#pragma GCC visibility pop

#endif
