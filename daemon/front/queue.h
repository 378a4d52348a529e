/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that wait: bounded, first in first out within a workspace, in turn between workspaces. */
#ifndef FRONT_QUEUE_H
#define FRONT_QUEUE_H

#include <nsbox/error.h>
#include <stddef.h>

struct queue;
struct queue_lane;

/* Embedded in a job; zeroed when it waits nowhere. */
struct queue_entry {
	struct queue_entry *next;
	struct queue_lane *lane;
	void *owner;
};

int queue_new(size_t max, struct queue **ret, struct nsbox_error *err);
void queue_free(struct queue *q);
/* -EAGAIN where it is full. owner is what queue_pop() gives back. */
int queue_push(struct queue *q, const char *workspace, struct queue_entry *e, void *owner);
void *queue_pop(struct queue *q); /* NULL: empty */
void queue_remove(struct queue *q, struct queue_entry *e);
size_t queue_length(const struct queue *q);
size_t queue_max(const struct queue *q);

#endif
