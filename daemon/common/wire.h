/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between the front (unprivileged, parses everything) and nsbox-spawn (privileged, parses
 * nothing but this): fixed structs over a SOCK_SEQPACKET pair, descriptors by SCM_RIGHTS. One
 * message is one packet of exactly sizeof(struct) bytes. Either side ends its trust in the other
 * at the first malformed message.
 *
 * Front -> spawn: NEW makes a sandbox (plan, and a file stream to unpack), EXEC runs in it,
 * KILL, COLLECT, END. Spawn -> front: EVENT, the library's struct nsbox_event.
 */
#ifndef DAEMON_WIRE_H
#define DAEMON_WIRE_H

#include <nsbox/sandbox.h>
#include <stdint.h>

#define WIRE_MAGIC UINT32_C(0x31727773) /* "swr1" */
#define WIRE_OUTPUTS_MAX 16
#define WIRE_FDS_MAX 6

enum wire_kind {
	WIRE_NEW = 1,  /* fds: plan, files or none. image: name */
	WIRE_EXEC,     /* fds: exec request, stdin, stdout, stderr, then request (3), result (4) by flags */
	WIRE_KILL,     /* arg: cause, arg2: signal */
	WIRE_COLLECT,  /* fds: out. outputs */
	WIRE_END,      /* take the sandbox down */
	WIRE_EVENT,    /* spawn -> front; fds: terminal master, or none */
	WIRE_HELLO,    /* spawn -> front, first: host probe is done; arg: 0 or an error code */
	WIRE_KIND_MAX
};

struct wire_output {
	char glob[256]; /* NUL-terminated */
	uint64_t max_bytes;
	uint32_t max_files, reserved;
};

struct wire_request {
	uint32_t magic, kind;
	uint64_t sandbox; /* chosen by the front, unique while alive, never 0 */
	uint32_t arg, arg2;
	uint32_t fds;	  /* how many descriptors come along */
	uint32_t outputs; /* used entries */
	char image[64];	  /* NUL-terminated, [a-z0-9._-] */
	char base[256];	  /* COLLECT: NUL-terminated, "" = working directory */
	struct wire_output output[WIRE_OUTPUTS_MAX];
};

struct wire_event {
	uint32_t magic, kind;
	uint64_t sandbox;
	uint32_t fds, reserved;
	struct nsbox_event event; /* event.fd is meaningless on the wire */
};

#endif
