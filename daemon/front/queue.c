/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs that wait. Each workspace has a lane; lanes with something in them form a ring, and each
 * pop takes the first job of the next lane. So a workspace that sends a thousand jobs delays
 * another's single job by one run, not by a thousand.
 */
#include "daemon/front/queue.h"

#include <string.h>

#include "nsbox/util.h"

struct queue_lane {
	struct queue_lane *next; /* ring */
	struct queue_entry *first, **last;
	char name[];
};

struct queue {
	size_t n, max;
	struct queue_lane *turn; /* the lane that was served last; NULL: empty */
};

int queue_new(size_t max, struct queue **ret, struct nsbox_error *err)
{
	struct queue *q = calloc(1, sizeof(*q));

	if (!q)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "queue");
	q->max = max;
	*ret = q;
	return 0;
}

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
	l->last = &l->first;
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

int queue_push(struct queue *q, const char *workspace, struct queue_entry *e, void *owner)
{
	struct queue_lane *l;

	if (q->n >= q->max)
		return -EAGAIN;
	l = find_lane(q, workspace);
	if (!l)
		l = add_lane(q, workspace);
	if (!l)
		return -ENOMEM;
	*e = (struct queue_entry){ .lane = l, .owner = owner };
	*l->last = e;
	l->last = &e->next;
	q->n++;
	return 0;
}

void queue_remove(struct queue *q, struct queue_entry *e)
{
	struct queue_lane *l = e->lane;
	struct queue_entry **p;

	if (!l)
		return;
	for (p = &l->first; *p != e; p = &(*p)->next)
		;
	*p = e->next;
	if (!*p)
		l->last = p;
	*e = (struct queue_entry){ 0 };
	q->n--;
	if (!l->first)
		drop_lane(q, l);
}

void *queue_pop(struct queue *q)
{
	struct queue_entry *e;
	void *owner;

	if (!q->turn)
		return NULL;
	q->turn = q->turn->next;
	e = q->turn->first;
	owner = e->owner;
	queue_remove(q, e);
	return owner;
}

size_t queue_length(const struct queue *q)
{
	return q->n;
}

size_t queue_max(const struct queue *q)
{
	return q->max;
}

void queue_free(struct queue *q)
{
	if (!q)
		return;
	while (queue_pop(q))
		;
	free(q);
}
