/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the journal has, and the disk not yet.
 *
 * A transaction is held until a sync that began after its commit is over. One sync is under way at a
 * time, in the syncer's thread; what further turns of the loop commit meanwhile waits together for
 * the next one (group commit).
 *
 * A sync that fails cannot be taken back, nor tried again, since the kernel forgets what it could
 * not write: it ends the front, and the next one finds what there is.
 */
#include "daemon/front/hold.h"

#include <string.h>

#include "nsbox/util.h"

/* What was committed up to this number is on disk. */
static void release_held(struct front *f, uint64_t number)
{
	while (f->held && f->held->number <= number) {
		struct held *h = f->held;

		f->held = h->next;
		if (!f->held)
			f->last_held = &f->held;
		record_act(f, h);
		free(h);
	}
}

static void sync_next(struct front *f)
{
	if (!f->held || f->syncing || f->lost)
		return;
	f->syncing = f->held_numbers;
	syncer_start(f->syncer);
}

static void lose(struct front *f, const struct nsbox_error *why)
{
	f->lost = true;
	record_trouble(f, why);
	front_close(f, 1);
}

void hold_synced(void *ctx, const struct nsbox_error *why)
{
	struct front *f = ctx;
	uint64_t number = f->syncing;

	f->syncing = 0;
	if (why) {
		lose(f, why);
		return;
	}
	f->metrics.counter[METRIC_SYNCS]++;
	release_held(f, number);
	sync_next(f);
}

void hold_settle(struct front *f)
{
	struct nsbox_error err = { 0 };

	int r = 0;

	if (!f->held || f->lost)
		return;
	if (f->syncing)
		r = syncer_wait(f->syncer, &err);
	f->syncing = 0;
	if (r == 0)
		r = f->journal->ops->sync(f->journal, &err);
	f->lost = r < 0;
	if (r == 0)
		release_held(f, f->held_numbers);
	else
		record_trouble(f, &err);
}

/* Takes what is in h, where there is memory to hold it; without, the disk is waited for here. */
void hold_add(struct front *f, const struct held *h)
{
	struct held *copy = malloc(sizeof(*copy)), here = *h;
	struct nsbox_error err = { 0 };

	if (!copy && f->journal->ops->sync(f->journal, &err) < 0) {
		lose(f, &err);
	} else if (!copy) {
		release_held(f, f->held_numbers);
		record_act(f, &here);
	} else {
		*copy = *h;
		copy->next = NULL;
		copy->number = ++f->held_numbers;
		*f->last_held = copy;
		f->last_held = &copy->next;
		sync_next(f);
	}
}

struct job *hold_find(struct front *f, const char *workspace, const char *key)
{
	for (struct job *j = f->first; j; j = j->next)
		if (!j->told && !j->sync && strcmp(j->workspace, workspace) == 0 &&
		    strcmp(j->key, key) == 0)
			return j;
	return NULL;
}

void hold_done(struct front *f)
{
	while (f->held) {
		struct held *h = f->held;

		f->held = h->next;
		for (struct job *j = h->popped, *next; j; j = next) {
			next = j->next_popped;
			job_unref(j);
		}
		free(h);
	}
}
