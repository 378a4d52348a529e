/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the owner and the sandbox's own processes say to each other.
 *
 * Two kinds of SOCK_SEQPACKET pair, both private to one sandbox; a packet is one fixed struct.
 *
 *   control   owner <-> init, for the sandbox's life. Its end is the end of the sandbox: when the
 *             owner's side closes, init exits and the kernel kills everything in its pid namespace.
 *   channel   owner <-> payload, one per exec. The payload's end is close-on-exec, so that end of
 *             file without an error means that the program runs. An exec that has a leader
 *             (leader.c) is spoken for by that one first.
 *
 * Hostile code never holds either: both are closed by execve at the latest. Still the owner
 * believes no length and no number in what it reads.
 */
#ifndef NSBOX_CONTROL_H
#define NSBOX_CONTROL_H

#include <nsbox/sandbox.h>
#include <stdint.h>

#define CTL_MAGIC	UINT32_C(0x316c7463) /* "ctl1" */
#define CTL_FDS_MAX	12
#define CTL_OUTPUTS_MAX 16
#define CTL_EXECS_MAX	64 /* programs of one sandbox at once */

enum ctl_kind {
	/* owner -> init */
	CTL_GO = 1,  /* id maps are written */
	CTL_EXEC,    /* id; fds: exec request, channel, then 0, 1, 2 and what flags say */
	CTL_SIGNAL,  /* id, signal; all: everything but init, else the program's process group */
	CTL_COLLECT, /* fds: out; base, rules */
	CTL_USAGE,   /* how full are its file systems? */
	CTL_FILES, /* id, flags (FILESF_*); fds: request (VERB_MAGIC), then in, out as flags say */
	CTL_FILES_CANCEL, /* id */
	CTL_UPPER,	  /* id, flags (enum nsbox_upper); fds: out. Answered as FILES is */
	/* init -> owner */
	CTL_READY,	/* enforced layers, duration of each stage */
	CTL_FAILED,	/* error: set-up did not succeed; init exits */
	CTL_LEFT,	/* id: the program has ended, its leader waits to be killed */
	CTL_EXITED,	/* id, status (wait(2) form), cpu_us, full */
	CTL_COLLECTED,	/* error.code 0, or what went wrong */
	CTL_USED,	/* bytes: what the tmpfs mounts of the sandbox hold */
	CTL_FILES_DONE, /* id, error */
	CTL_LISTENERS, /* fds: listeners of egress; bytes: which, a bit of enum egress_listener each */
	/* payload -> owner, on the channel */
	CTL_HELLO, /* carries SCM_CREDENTIALS: who to put into the control group, or the leader */
	CTL_TERMINAL, /* fd: the master of its terminal */
	CTL_WITNESS,  /* tried, held, us */
	CTL_ERROR,    /* error: the program could not be started */
	CTL_REFUSALS, /* fd: where its refused calls wait for an answer (observe.h) */
	/* owner -> payload */
	CTL_PROCEED, /* it is in its control group, or known */
	CTL_KIND_MAX
};

enum ctl_files_flags { FILESF_IN = 1 << 0, FILESF_OUT = 1 << 1 };

struct ctl_rule {
	char glob[256];
	uint64_t max_bytes;
	uint32_t max_files, reserved;
};

/* Owner to init: the large one, but only COLLECT fills it. */
struct ctl_request {
	uint32_t magic, kind;
	uint32_t id;
	int32_t signal;
	uint32_t all;
	uint32_t flags; /* EXEC: EXECF_* */
	uint32_t rules;
	uint32_t reserved;
	char base[256];
	struct ctl_rule rule[CTL_OUTPUTS_MAX];
};

/* Init and payload to owner (and PROCEED back). */
struct ctl_report {
	uint32_t magic, kind;
	uint32_t id;
	int32_t status;
	uint64_t cpu_us;
	uint64_t bytes;
	uint32_t enforced, not_enforced;
	uint32_t tried, held, us;
	uint32_t full; /* a file system of the sandbox is */
	uint32_t stage_us[NSBOX_STAGE_READY + 1];
	struct nsbox_error error;
};

/* Only system calls behind these: they serve both sides. 0, or -errno; -EPIPE when the peer is
 * gone. ret_n: in the room for descriptors, out how many came; excess ones are closed. */
int ctl_send(int sock, const void *msg, size_t len, const int *fds, unsigned n);
int ctl_recv(int sock, void *msg, size_t len, int *fds, unsigned *ret_n, int flags);
/* With the sender's credentials attached / taken (host pid as seen by the receiver). */
int ctl_send_hello(int sock);
int ctl_recv_report(int sock, struct ctl_report *ret, int *ret_fd, int *ret_pid);
/* The same where more descriptors may come: fds[0..*ret_n), *ret_n in the room for them. */
int ctl_recv_reports(int sock, struct ctl_report *ret, int *fds, unsigned *ret_n, int *ret_pid);
int ctl_pair(int ret[2]);

#endif
