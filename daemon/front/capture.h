/* SPDX-License-Identifier: Apache-2.0 */
/* What a run writes: read without waiting, kept up to a cap, counted beyond. */
#ifndef FRONT_CAPTURE_H
#define FRONT_CAPTURE_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/redact.h"
#include "daemon/front/loop.h"

struct capture {
	struct loop *loop;
	struct loop_source *source;
	int fd; /* read end, ours; -1: closed */
	char *data;
	size_t len, cap;	  /* cap: allocated */
	size_t max;		  /* bytes kept */
	uint64_t seen;		  /* bytes that came */
	void (*grew)(void *ctx);  /* there is more, or NULL */
	void (*flood)(void *ctx); /* called once when `seen` passes flood_at */
	void *ctx;
	uint64_t flood_at;
	struct redact redact; /* what is not to be kept */
	bool failed;	      /* no memory for what came: counts as truncated */
};

/* A pipe; its write end goes to *ret_fd (the caller's). */
int capture_pipe(struct capture *c, struct loop *l, size_t max, int *ret_fd,
		 struct nsbox_error *err);
/* Read from `fd`, which becomes the capture's (a terminal's master). */
int capture_attach(struct capture *c, struct loop *l, size_t max, int fd, struct nsbox_error *err);
/* Take what is there now and stop: the writers are dead, or do not count any more. */
void capture_finish(struct capture *c);
/* Put in a line of our own, behind what is there. */
void capture_add(struct capture *c, const char *text, size_t len);
/* Of what is kept already. */
void capture_hide(struct capture *c, const struct input *hidden, size_t n);
bool capture_truncated(const struct capture *c);
void capture_done(struct capture *c); /* zeroed structs are fine */

#endif
