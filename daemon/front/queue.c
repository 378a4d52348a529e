/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs that wait. Each workspace has a lane; the lanes form a ring, and each pop takes the first
 * job of the next lane that may run one more. So a workspace that sends a thousand jobs delays
 * another's single job by one run, not by a thousand; and since a priority counts within its lane
 * only, nobody gets ahead of another workspace by calling everything urgent.
 *
 * A lane lives as long as something in it waits or runs.
 */
#include "daemon/front/queue.h"

#include <string.h>

#include "nsbox/util.h"

struct list {
	struct queue_entry *first, **last;
};

struct queue_lane {
	struct queue_lane *next; /* ring */
	size_t waiting, running;
	struct list lists[QUEUE_PRIORITIES];
	char name[];
};

struct queue {
	struct queue_limits limits;
	size_t n;
	struct queue_lane *turn; /* the lane that was served last; NULL: there is none */
};

int queue_new(const struct queue_limits *limits, struct queue **ret, struct nsbox_error *err)
{
	struct queue *q = calloc(1, sizeof(*q));

	if (!q)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "queue");
	q->limits = *limits;
	*ret = q;
	return 0;
}

void queue_set_limits(struct queue *q, const struct queue_limits *limits)
{
	q->limits = *limits;
}

/* ------------------------------------------------------------------ lanes */

static struct queue_lane *find_lane(struct queue *q, const char *name)
{
	struct queue_lane *l = q->turn;

	if (!l)
		return NULL;
	do {
		if (strcmp(l->name, name) == 0)
			return l;
		l = l->next;
	} while (l != q->turn);
	return NULL;
}

/* Behind the lane that was served last of all, so that it waits for all others first. */
static struct queue_lane *add_lane(struct queue *q, const char *name)
{
	struct queue_lane *l = calloc(1, sizeof(*l) + strlen(name) + 1);

	if (!l)
		return NULL;
	strcpy(l->name, name);
	for (int p = 0; p < QUEUE_PRIORITIES; p++)
		l->lists[p].last = &l->lists[p].first;
	if (q->turn) {
		l->next = q->turn->next;
		q->turn->next = l;
	} else {
		l->next = l;
	}
	q->turn = l;
	return l;
}

static void drop_lane(struct queue *q, struct queue_lane *l)
{
	struct queue_lane *before = l;

	while (before->next != l)
		before = before->next;
	if (before == l)
		q->turn = NULL;
	else if (q->turn == l)
		q->turn = before;
	before->next = l->next;
	free(l);
}

/* ------------------------------------------------------------------ entries */

static void append(struct list *l, struct queue_entry *e)
{
	e->next = NULL;
	*l->last = e;
	l->last = &e->next;
}

static void take_out(struct list *l, struct queue_entry *e)
{
	struct queue_entry **p = &l->first;

	while (*p != e)
		p = &(*p)->next;
	*p = e->next;
	if (!*p)
		l->last = p;
	e->next = NULL;
}

static void limits_of(const struct queue *q, const char *workspace, size_t *waiting,
		      size_t *running)
{
	if (q->limits.of)
		q->limits.of(q->limits.ctx, workspace, waiting, running);
}

int queue_restore(struct queue *q, const char *workspace, uint32_t priority, struct queue_entry *e,
		  void *owner)
{
	struct queue_lane *l = find_lane(q, workspace);

	if (!l)
		l = add_lane(q, workspace);
	if (!l)
		return -ENOMEM;
	*e = (struct queue_entry){ .lane = l,
				   .owner = owner,
				   .priority = MIN(priority, (uint32_t)QUEUE_HIGH) };
	append(&l->lists[e->priority], e);
	l->waiting++;
	q->n++;
	return 0;
}

int queue_push(struct queue *q, const char *workspace, uint32_t priority, struct queue_entry *e,
	       void *owner)
{
	const struct queue_lane *l = find_lane(q, workspace);
	size_t waiting = 0, running = 0;

	if (q->n >= q->limits.waiting)
		return -EAGAIN;
	limits_of(q, workspace, &waiting, &running);
	if (waiting && l && l->waiting >= waiting)
		return -EDQUOT;
	return queue_restore(q, workspace, priority, e, owner);
}

static struct queue_entry *first_of(struct queue_lane *l)
{
	for (int p = QUEUE_PRIORITIES - 1; p >= 0; p--)
		if (l->lists[p].first)
			return l->lists[p].first;
	return NULL;
}

static bool may_run(const struct queue *q, const struct queue_lane *l)
{
	size_t waiting = 0, running = 0;

	if (!l->waiting)
		return false;
	limits_of(q, l->name, &waiting, &running);
	return running == 0 || l->running < running;
}

void *queue_pop(struct queue *q)
{
	struct queue_lane *l = q->turn;
	struct queue_entry *e;

	if (!l)
		return NULL;
	do
		l = l->next;
	while (!may_run(q, l) && l != q->turn);
	if (!may_run(q, l))
		return NULL;
	q->turn = l;
	e = first_of(l);
	take_out(&l->lists[e->priority], e);
	e->running = true;
	l->waiting--;
	l->running++;
	q->n--;
	return e->owner;
}

void queue_unpop(struct queue *q, struct queue_entry *e)
{
	struct list *list = &e->lane->lists[e->priority];

	e->running = false;
	e->next = list->first;
	if (!list->first)
		list->last = &e->next;
	list->first = e;
	e->lane->running--;
	e->lane->waiting++;
	q->n++;
}

void queue_done(struct queue *q, struct queue_entry *e)
{
	struct queue_lane *l = e->lane;

	if (!l)
		return;
	if (e->running) {
		l->running--;
	} else {
		take_out(&l->lists[e->priority], e);
		l->waiting--;
		q->n--;
	}
	*e = (struct queue_entry){ 0 };
	if (!l->waiting && !l->running)
		drop_lane(q, l);
}

/* ------------------------------------------------------------------ sizes, end */

size_t queue_length(const struct queue *q)
{
	return q->n;
}

size_t queue_max(const struct queue *q)
{
	return q->limits.waiting;
}

void queue_free(struct queue *q)
{
	if (!q)
		return;
	while (q->turn)
		drop_lane(q, q->turn);
	free(q);
}
