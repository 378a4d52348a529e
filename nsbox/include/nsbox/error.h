/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors of libnsbox.
 *
 * A function that can fail returns 0 or a negative errno and takes a caller-owned
 * `struct nsbox_error *` last (NULL is allowed). The struct has a fixed size and needs no
 * allocation, so that it can be filled after clone(2), under memory pressure, and written
 * through a pipe or a SEQPACKET socket in one atomic piece.
 *
 * The code is the API (and decides the exit status of the command line tool); the message is
 * for people: operation, object, cause, and where there is one the remedy. No trailing newline.
 */
#ifndef NSBOX_ERROR_H
#define NSBOX_ERROR_H

#include <stdarg.h>
#include <stdint.h>

#pragma GCC visibility push(default)

#ifdef __cplusplus
extern "C" {
#endif

/* Stable numbers: they travel between processes and appear in JSON by name. */
enum nsbox_error_code {
	NSBOX_E_OK = 0,
	NSBOX_E_INVALID = 1,	 /* a caller's argument, request or file is wrong */
	NSBOX_E_MANIFEST = 2,	 /* a manifest was refused; the message holds a JSON pointer */
	NSBOX_E_UNSUPPORTED = 3, /* cannot be had on this host, or in this version */
	NSBOX_E_SETUP = 4,	 /* a set-up stage of the sandbox failed */
	NSBOX_E_EXEC = 5,	 /* the program could not be started */
	NSBOX_E_LIMIT = 6,	 /* a limit of nsbox itself (size, count, queue) was met */
	NSBOX_E_PROTOCOL = 7,	 /* a peer process sent something malformed, or went away */
	NSBOX_E_NOMEM = 8,	 /* out of memory, descriptors or processes on the host */
	NSBOX_E_IO = 9,		 /* reading or writing a file or socket failed */
	NSBOX_E_SANDBOX = 10,	 /* the witness found a layer that does not hold: run aborted */
	NSBOX_E_CANCELLED = 11,	 /* ended by request before it could finish */
	NSBOX_E_CODE_MAX
};

/*
 * The step at which something failed; names come from nsbox_stage_name(). Stages up to
 * NSBOX_STAGE_READY happen in the order given here, the rest as they come.
 */
enum nsbox_stage {
	NSBOX_STAGE_NONE,
	NSBOX_STAGE_PROBE,
	NSBOX_STAGE_RESOLVE,
	NSBOX_STAGE_COMPILE,
	NSBOX_STAGE_PLAN, /* the receiver's check of a plan or exec request */
	NSBOX_STAGE_IMAGE,
	NSBOX_STAGE_IDS,
	NSBOX_STAGE_CGROUP,
	NSBOX_STAGE_CLONE,
	NSBOX_STAGE_PROPAGATION, /* first stage inside the new namespaces */
	NSBOX_STAGE_SCRATCH,
	NSBOX_STAGE_OVERLAY,
	NSBOX_STAGE_DEV,
	NSBOX_STAGE_PROC,
	NSBOX_STAGE_MOUNT,
	NSBOX_STAGE_PIVOT,
	NSBOX_STAGE_FILES,
	NSBOX_STAGE_MASK,
	NSBOX_STAGE_LOOPBACK,
	NSBOX_STAGE_NFTABLES,
	NSBOX_STAGE_EGRESS,
	NSBOX_STAGE_SYSCTL,
	NSBOX_STAGE_HOSTNAME,
	NSBOX_STAGE_CAPABILITIES,
	NSBOX_STAGE_LANDLOCK,
	NSBOX_STAGE_INIT_FILTER,
	NSBOX_STAGE_READY,
	NSBOX_STAGE_FORK, /* from here on: one exec */
	NSBOX_STAGE_STDIO,
	NSBOX_STAGE_TERMINAL,
	NSBOX_STAGE_LIMITS,
	NSBOX_STAGE_CREDENTIALS,
	NSBOX_STAGE_SECCOMP,
	NSBOX_STAGE_WITNESS,
	NSBOX_STAGE_CWD,
	NSBOX_STAGE_EXECVE,
	NSBOX_STAGE_COLLECT,
	NSBOX_STAGE_MAX
};

#define NSBOX_ERROR_MSG_MAX 480

struct nsbox_error {
	int32_t code;		       /* enum nsbox_error_code */
	int32_t errnum;		       /* positive errno, or 0 where none applies */
	int32_t stage;		       /* enum nsbox_stage, or 0 */
	char msg[NSBOX_ERROR_MSG_MAX]; /* NUL-terminated, cut where too long */
};

/*
 * Fill err and return -errnum, or -EINVAL where errnum is 0. Where errnum is not 0 its text is
 * appended as ": text". Uses no heap, no locale, no stdio: safe after clone in a child process.
 * The formatter knows %s %d %i %u %x %o %c %% and the length modifiers l, ll, z, j.
 */
int nsbox_fail(struct nsbox_error *err, int code, int errnum, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
int nsbox_fail_at(struct nsbox_error *err, int stage, int code, int errnum, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* Put "text: " before the message that is there. Once per layer. */
void nsbox_error_prefix(struct nsbox_error *err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

const char *nsbox_error_code_name(int code); /* "invalid", "unsupported", ...; never NULL */
const char *nsbox_stage_name(int stage);     /* "overlay", "execve", ...; never NULL */

/* snprintf for places where libc's is not allowed (after clone); returns the length written. */
int nsbox_format(char *buf, int size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int nsbox_vformat(char *buf, int size, const char *fmt, va_list ap)
	__attribute__((format(printf, 3, 0)));

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
