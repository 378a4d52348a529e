/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers a run can be held by, one table for everything that names them: the manifest's
 * `require`, the resolved policy, the plan, the result's `enforced` and `notEnforced`, the doctor.
 *
 * Columns: symbol, name in JSON, default requirement in the namespace tier, what it means.
 * The defaults are those of docs/THREAT-MODEL.md; `cgroup` and `proc` may be missing on hosts that
 * can still hold a run by everything else, and then the result says so.
 */
#ifndef NSBOX_LAYER_H
#define NSBOX_LAYER_H

#include <stdint.h>

#pragma GCC visibility push(default)

enum nsbox_requirement {
	NSBOX_OFF = 0,	   /* not asked for */
	NSBOX_PREFER = 1,  /* taken where the host has it, listed in notEnforced where not */
	NSBOX_REQUIRE = 2, /* its absence is an error and nothing runs */
};

/* clang-format off */
#define NSBOX_LAYERS(X)                                                                           \
	X(USER, "user", REQUIRE, "own user namespace: no id of the host")                         \
	X(MOUNT, "mount", REQUIRE, "own mount namespace")                                         \
	X(PID, "pid", REQUIRE, "own pid namespace: only own processes are visible")               \
	X(NET, "net", REQUIRE, "own network namespace: loopback alone")                           \
	X(IPC, "ipc", REQUIRE, "own System V and POSIX message queues")                           \
	X(UTS, "uts", REQUIRE, "own host name")                                                   \
	X(CGROUP_NS, "cgroupNamespace", PREFER, "own view of the control groups")                 \
	X(ROOT, "root", REQUIRE, "own root: the host's file system is not reachable")             \
	X(OVERLAY, "overlay", REQUIRE, "the root's changes go to an upper layer of this run alone") \
	X(PROC, "proc", PREFER, "fresh read-only /proc of the own pid namespace")                 \
	X(NO_NEW_PRIVS, "noNewPrivileges", REQUIRE, "set-user-id programs gain nothing")          \
	X(CAPABILITIES, "capabilities", REQUIRE, "no capability in any set")                      \
	X(SECCOMP, "seccomp", REQUIRE, "system call allowlist")                                   \
	X(LANDLOCK_FS, "landlockFs", PREFER, "Landlock domain over the file system")              \
	X(LANDLOCK_TCP, "landlockTcp", OFF, "Landlock: TCP to granted ports alone, and none bound") \
	X(LANDLOCK_SCOPES, "landlockScopes", PREFER, "no signal or abstract socket leaves the sandbox") \
	X(NFTABLES, "nftables", PREFER, "packet filter: nothing but loopback")                    \
	X(CGROUP, "cgroupLimits", PREFER, "memory, cpu and process limits by control groups")     \
	X(WITNESS, "witness", REQUIRE, "the run's own process tried forbidden acts before it started") \
	X(OWN_ID, "ownId", OFF, "tier process: a user and group of this run alone, outside")

enum nsbox_layer {
#define X(sym, name, def, text) NSBOX_LAYER_##sym,
	NSBOX_LAYERS(X)
#undef X
	NSBOX_LAYER_MAX
};
/* clang-format on */

#define NSBOX_LAYER_BIT(l) (UINT32_C(1) << (l))

const char *nsbox_layer_name(int layer);   /* the JSON name; NULL beyond the table */
const char *nsbox_layer_text(int layer);   /* one line for people; NULL beyond the table */
int nsbox_layer_default(int layer);	   /* enum nsbox_requirement */
int nsbox_layer_by_name(const char *name); /* enum nsbox_layer, or -1 */

#pragma GCC visibility pop

#endif
