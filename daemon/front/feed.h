/* SPDX-License-Identifier: Apache-2.0 */
/* Standard input that comes piece by piece, as its sender has it. */
#ifndef FRONT_FEED_H
#define FRONT_FEED_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/front/loop.h"

struct feed_piece;
struct feed {
	struct loop *loop;
	struct loop_source *source;
	int fd; /* write end, ours; -1: not open yet, or closed */
	struct feed_piece *first, **last;
	size_t waiting; /* bytes that are not written yet */
	bool terminal;	/* its end is typed: ^D */
	bool ended, dead;
};

void feed_init(struct feed *f, struct loop *l);
/* A pipe; its read end goes to *ret_fd (the caller's). */
int feed_open(struct feed *f, int *ret_fd, struct nsbox_error *err);
/* Instead: a terminal's master, which stays the caller's. */
int feed_terminal(struct feed *f, int master, struct nsbox_error *err);
/*
 * Takes data (malloc'd, may be NULL where len is 0); nothing at all is the end. -EPIPE: it ended,
 * or nobody reads any more; -EAGAIN: too much waits already.
 */
int feed_push(struct feed *f, char *data, size_t len);
void feed_done(struct feed *f); /* may be called twice */

#endif
