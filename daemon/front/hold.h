/* SPDX-License-Identifier: Apache-2.0 */
/* What the journal has, and the disk not yet: it has not happened for clients. */
#ifndef FRONT_HOLD_H
#define FRONT_HOLD_H

#include "daemon/front/front.h"

/* All of a transaction that waits for the disk; popped ones are counted references. */
struct held {
	struct held *next;
	uint64_t number;
	struct job_list fresh, ended;
	struct job *popped;
};

static inline void held_init(struct held *h)
{
	h->fresh.last = &h->fresh.first;
	h->ended.last = &h->ended.first;
}

static inline bool held_empty(const struct held *h)
{
	return !h->fresh.first && !h->ended.first && !h->popped;
}

/* Takes what is in h. */
void hold_add(struct front *f, const struct held *h);
/* A syncer_fn: what was held for the sync is acted on. */
void hold_synced(void *ctx, const struct nsbox_error *why);
/* Wait for the disk here and now: the front is about to end. */
void hold_settle(struct front *f);
/* Forget what is still held. */
void hold_done(struct front *f);
/* A job that no client has heard of yet. */
struct job *hold_find(struct front *f, const char *workspace, const char *key);

/* record.c: those who wait hear of it, and jobs start. */
void record_act(struct front *f, struct held *h);

#endif
