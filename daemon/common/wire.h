/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between the front (unprivileged, parses everything) and nsbox-spawn (privileged, parses
 * nothing but this): fixed structs over a SOCK_SEQPACKET pair, descriptors by SCM_RIGHTS. One
 * message is one packet of exactly sizeof(struct) bytes. Either side ends its trust in the other
 * at the first malformed message.
 *
 * Front -> spawn: NEW makes a sandbox (plan, a file stream to unpack, files to begin with), EXEC runs in
 * it, several at once where they leave their processes behind, BEGIN, KILL, COLLECT, FILES, UPPER, END. Spawn -> front: EVENT,
 * the library's struct nsbox_event.
 */
#ifndef DAEMON_WIRE_H
#define DAEMON_WIRE_H

#include <nsbox/host.h>
#include <nsbox/sandbox.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_MAGIC	 UINT32_C(0x31727773) /* "swr1" */
#define WIRE_OUTPUTS_MAX 16
#define WIRE_FDS_MAX	 7

enum wire_kind {
	WIRE_NEW =
		1, /* fds: plan, then those that `arg` (WIRE_NEW_*) has. image: name; image_digest: what
			 that has to be, "" for anything. base: the workspace whose directory is shared,
			 where the plan says so */
	WIRE_EXEC, /* exec; fds: exec request, then those of struct nsbox_io that `arg` (WIRE_IO_*) has */
	WIRE_KILL,    /* exec, 0: all; arg: cause, arg2: signal */
	WIRE_COLLECT, /* exec: whose outputs, or 0; fds: out. outputs */
	WIRE_FILES, /* fds: request (nsbox_files_encode()), then those that `arg` (WIRE_FILES_*) has. arg2:
		       its number, not 0 */
	WIRE_UPPER,	   /* arg: enum nsbox_upper; fds: out. arg2: as above */
	WIRE_FILES_CANCEL, /* arg2: the number */
	WIRE_IMAGES, /* a number that no sandbox has; fds: out, gets what images there are. FILES
			      with that number follows */
	WIRE_BEGIN,  /* exec: there is work for it, its time begins */
	WIRE_COMMIT, /* a number that no sandbox has; fds: a layer stream, at its start, and out, which gets the new image's id or
			      an error, as records. image, image_digest: what it comes on top of; base:
			      its name. FILES follows */
	WIRE_END,    /* take the sandbox down */
	WIRE_EVENT,  /* spawn -> front; fds: terminal master, or none */
	WIRE_HELLO,  /* spawn -> front, first and once: struct wire_hello */
	WIRE_KIND_MAX
};

/* Which descriptors come with WIRE_NEW, in this order; and TRACK: WIRE_UPPER will be asked for. */
enum wire_new {
	WIRE_NEW_FILES = 1 << 0,
	WIRE_NEW_UPPER = 1 << 1,
	WIRE_NEW_FDS = (1 << 2) - 1,
	WIRE_NEW_TRACK = 1 << 2,
	WIRE_NEW_TEMPLATE = 1 << 3, /* a fork of the template, where there is one */
	WIRE_NEW_ALL = (1 << 4) - 1
};

/* Which descriptors come with WIRE_EXEC, in this order. */
enum wire_io {
	WIRE_IO_IN = 1 << 0,
	WIRE_IO_OUT = 1 << 1,
	WIRE_IO_ERR = 1 << 2,
	WIRE_IO_REQUEST = 1 << 3,
	WIRE_IO_RESULT = 1 << 4,
	WIRE_IO_TRACE = 1 << 5,
	WIRE_IO_ALL = (1 << 6) - 1
};

/* Which descriptors come with WIRE_FILES, in this order. */
enum wire_files { WIRE_FILES_IN = 1 << 0, WIRE_FILES_OUT = 1 << 1, WIRE_FILES_ALL = (1 << 2) - 1 };

struct wire_output {
	char glob[256]; /* NUL-terminated */
	uint64_t max_bytes;
	uint32_t max_files, reserved;
};

struct wire_request {
	uint32_t magic, kind;
	uint64_t sandbox; /* chosen by the front, unique while alive, never 0 */
	uint64_t exec;	  /* as well, of a program in it */
	uint32_t arg, arg2;
	uint32_t fds;	       /* how many descriptors come along */
	uint32_t outputs;      /* used entries */
	char image[128];       /* NUL-terminated, [A-Za-z0-9._-/:] */
	char image_digest[80]; /* NEW: NUL-terminated */
	char base[256]; /* COLLECT, NEW, COMMIT: NUL-terminated; "" = working directory, none */
	struct wire_output output[WIRE_OUTPUTS_MAX];
};

struct wire_event {
	uint32_t magic, kind;
	uint64_t sandbox;
	uint64_t exec; /* whom it is about, 0: the sandbox */
	uint32_t fds;
	uint32_t forked;	  /* NSBOX_EVENT_READY: of a template */
	char image[80];		  /* NSBOX_EVENT_READY: the image's digest, NUL-terminated */
	struct nsbox_event event; /* event.fd is meaningless on the wire */
};

struct wire_hello {
	uint32_t magic, kind;
	struct nsbox_host host;
	struct nsbox_error error; /* code 0, or why no sandbox can be made by this process */
};

/*
 * One packet. `fds` are borrowed. 0, -EAGAIN where the socket is non-blocking and full, or another
 * -errno (err is filled but for -EAGAIN).
 */
int wire_send(int sock, const void *msg, size_t size, const int *fds, unsigned n,
	      struct nsbox_error *err);

/*
 * Take one packet of exactly `size` bytes whose first word is WIRE_MAGIC. 1 with a message; 0 at
 * the end of the stream; -EAGAIN where there is none yet; else -EPROTO or the socket's error. The
 * descriptors that came are close-on-exec and now the caller's: fds[0..*ret_n). On any failure
 * those that came are closed.
 */
int wire_recv(int sock, void *msg, size_t size, int fds[static WIRE_FDS_MAX], unsigned *ret_n,
	      struct nsbox_error *err);

/* wire_recv() for requests, and the rules every request has to meet: kind, counts, strings. */
int wire_recv_request(int sock, struct wire_request *ret, int fds[static WIRE_FDS_MAX],
		      unsigned *ret_n, struct nsbox_error *err);
/* The same for events; a terminal's descriptor is put into event.fd, else that is -1. */
int wire_recv_event(int sock, struct wire_event *ret, struct nsbox_error *err);
int wire_recv_hello(int sock, struct wire_hello *ret, struct nsbox_error *err);

void wire_close_fds(int *fds, unsigned n);

#endif
