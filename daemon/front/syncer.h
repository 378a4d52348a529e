/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for the disk, in a thread of its own: the front's loop goes on meanwhile. One sync is
 * under way at a time, and makes all that was committed before it began durable.
 */
#ifndef FRONT_SYNCER_H
#define FRONT_SYNCER_H

#include "daemon/front/journal.h"
#include "daemon/front/loop.h"

struct syncer;
/* In the loop: the sync that was asked for is over; why is NULL where it succeeded. */
typedef void syncer_fn(void *ctx, const struct nsbox_error *why);

/* The journal is borrowed, and has to outlive it. */
int syncer_new(struct loop *l, struct journal *j, syncer_fn *done, void *ctx, struct syncer **ret,
	       struct nsbox_error *err);
/* None may be under way. */
void syncer_start(struct syncer *s);
/* Wait for the one that is under way; it is not told of any more. Its result. */
int syncer_wait(struct syncer *s, struct nsbox_error *err);
/* Waits for one that is under way, and does not tell of it. */
void syncer_free(struct syncer *s);

#endif
