/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs that wait: bounded, in turn between workspaces; within a workspace by priority, then first
 * in first out.
 */
#ifndef FRONT_QUEUE_H
#define FRONT_QUEUE_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct queue;
struct queue_lane;

enum queue_priority { QUEUE_LOW, QUEUE_NORMAL, QUEUE_HIGH, QUEUE_PRIORITIES };

/* Embedded in a job; zeroed when it neither waits nor runs. */
struct queue_entry {
	struct queue_entry *next;
	struct queue_lane *lane;
	void *owner;
	uint32_t priority;
	bool running; /* popped, and not yet given to queue_done() */
};

struct queue_limits {
	size_t waiting; /* in all */
	/* Of one workspace, 0: no limit of its own; NULL: there is none. Asked when it matters. */
	void (*of)(void *ctx, const char *workspace, size_t *waiting, size_t *running);
	void *ctx;
};

int queue_new(const struct queue_limits *limits, struct queue **ret, struct nsbox_error *err);
/* Others from now on; what waits or runs beyond them stays. */
void queue_set_limits(struct queue *q, const struct queue_limits *limits);
void queue_free(struct queue *q);
/* -EAGAIN: it is full; -EDQUOT: this workspace's part is. owner is what queue_pop() gives back. */
int queue_push(struct queue *q, const char *workspace, uint32_t priority, struct queue_entry *e,
	       void *owner);
/* As queue_push(), whatever the limits: what was accepted once has its place. */
int queue_restore(struct queue *q, const char *workspace, uint32_t priority, struct queue_entry *e,
		  void *owner);
/* NULL: empty, or all that wait belong to workspaces that run as much as they may. */
void *queue_pop(struct queue *q);
/* A popped entry goes back, before all others of its priority. */
void queue_unpop(struct queue *q, struct queue_entry *e);
/* It no longer waits or runs; nothing happens where it did neither. */
void queue_done(struct queue *q, struct queue_entry *e);
size_t queue_length(const struct queue *q);
size_t queue_max(const struct queue *q);

#endif
