/* SPDX-License-Identifier: Apache-2.0 */
/* The profiles: what holds where a manifest says nothing. Pages that describe them print this. */
#include "nsbox/util.h"
#include "policy/internal.h"

#define MI UINT64_C(1048576)

static const struct profile profiles[] = {
	[PROFILE_STANDARD] = {
		.name = "standard",
		.summary = "agent skills: shell, scripts, binaries, subprocesses",
		.subprocess = SUBPROCESS_ANY,
		.jit = true,
		.ptrace = true,
		.exec_writable = true,
		.memory = 512 * MI,
		.pids = 128,
		.cpu_milli = 1000,
		.wall_ms = 120000,
	},
	[PROFILE_STRICT] = {
		.name = "strict",
		.summary = "one Python function, pure computation",
		.subprocess = SUBPROCESS_NONE,
		.root_rdonly = true,
		.memory = 256 * MI,
		.pids = 32,
		.cpu_milli = 1000,
		.wall_ms = 60000,
	},
	[PROFILE_NETWORK] = {
		.name = "network",
		.summary = "a tool that calls an API",
		.subprocess = SUBPROCESS_ANY,
		.jit = true,
		.exec_writable = true,
		.network = NETWORK_ALLOWLIST,
		.memory = 512 * MI,
		.pids = 128,
		.cpu_milli = 1000,
		.wall_ms = 120000,
	},
	[PROFILE_BUILD] = {
		.name = "build",
		.summary = "set-up of a layer by pip, npm or apt",
		.subprocess = SUBPROCESS_ANY,
		.jit = true,
		.ptrace = true,
		.exec_writable = true,
		.uid_root = true,
		.network = NETWORK_ALLOWLIST,
		.memory = 2048 * MI,
		.pids = 512,
		.cpu_milli = 1000,
		.wall_ms = 600000,
	},
};

const struct profile *profile_get(uint32_t id)
{
	return id < ARRAY_SIZE(profiles) ? &profiles[id] : NULL;
}
