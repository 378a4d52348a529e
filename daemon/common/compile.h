/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compile worker: one manifest in, one plan out, one process per manifest.
 *
 * The front sends one packet, struct compile_request with a sealed memfd that holds the manifest's
 * text, and gets one back: struct compile_reply, with the plan's memfd where `error.code` is 0.
 * The worker reads JSON that anyone may have written, so it confines itself before it does; the
 * plan it returns is checked again by nsbox-spawn, like every plan.
 */
#ifndef DAEMON_COMPILE_H
#define DAEMON_COMPILE_H

#include <nsbox/host.h>
#include <nsbox/policy.h>
#include <stdint.h>

#include "daemon/common/wire.h"

#define COMPILE_NOEXEC_MAX  4096
#define COMPILE_COMMAND_MAX 16384
#define COMPILE_INPUTS_MAX  32768

enum compile_flags {
	COMPILE_PYTHON = 1 << 0,     /* nsbox_resolve_options.python_function */
	COMPILE_OPERATOR = 1 << 1,   /* nsbox_resolve_options.as_operator */
	COMPILE_ENTRYPOINT = 1 << 2, /* the reply has to name the command of `entrypoint` */
	COMPILE_STDIN = 1 << 3,	     /* the job has something on standard input */
	COMPILE_NARROWER =
		1 << 4, /* for a sandbox that there is: `base_len` bytes of the manifest's
					text, at the front, are the one that it was made with (0:
					none), and nothing may be wider, or otherwise in what no single
					program can have */
};

/* All bytes count for the plan's cache, so all of them are set: memset first. */
struct compile_request {
	uint32_t magic, flags; /* magic: WIRE_MAGIC, both ways: wire_send() and wire_recv() */
	uint64_t manifest_len; /* 0: no manifest, all defaults; no descriptor comes along */
	uint64_t base_len;     /* COMPILE_NARROWER: how much of that is the base */
	struct nsbox_host host;
	struct nsbox_ceiling ceiling;
	char skill_dir[256];  /* "" for none */
	char entrypoint[128]; /* "" for the default one */
};

struct compile_reply {
	uint32_t magic;
	uint32_t noexec_len; /* bytes of noexec[] */
	struct nsbox_error error;
	struct nsbox_policy_limits limits;
	char digest[65];
	char base_digest[65]; /* COMPILE_NARROWER: of the policy that it was compared with */
	char name[129];	      /* of the manifest, "" for none */
	char image[128];      /* that the manifest names, "" for none */
	uint64_t timeout_ms;  /* entry point's, 0 for the policy's */
	char cwd[4096];	      /* entry point's, "" for the default */
	uint32_t command_len, command_args;
	char inputs[COMPILE_INPUTS_MAX];   /* of nsbox_manifest_inputs(), "" for none */
	char command[COMPILE_COMMAND_MAX]; /* command_args strings, each with its NUL */
	unsigned char noexec[COMPILE_NOEXEC_MAX];
};

#endif
