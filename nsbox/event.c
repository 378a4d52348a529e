/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of events that the owner has not taken yet. */
#include <string.h>

#include "nsbox/sandbox_private.h"
#include "nsbox/util.h"

#define FIRST_ROOM 8

/* Callers take events as they come, so a few are enough; several programs that end at once need
 * more. Without memory the oldest gives way: results come last. */
static void make_room(struct nsbox_sandbox *sb)
{
	unsigned room = 2 * sb->room; /* there is one from the start: events_init() */
	struct nsbox_event *q = calloc(room, sizeof(*q));

	if (!q) {
		close_fd(&sb->queue[sb->head].fd);
		sb->head = (sb->head + 1) % sb->room;
		sb->count--;
		return;
	}
	for (unsigned i = 0; i < sb->count; i++)
		q[i] = sb->queue[(sb->head + i) % sb->room];
	free(sb->queue);
	sb->queue = q;
	sb->head = 0;
	sb->room = room;
}

struct nsbox_event *event_push(struct nsbox_sandbox *sb, uint32_t kind, uint32_t id)
{
	struct nsbox_event *e;

	if (sb->count == sb->room)
		make_room(sb);
	e = &sb->queue[(sb->head + sb->count++) % sb->room];
	memset(e, 0, sizeof(*e));
	e->kind = kind;
	e->id = id;
	e->fd = -1;
	return e;
}

bool event_take(struct nsbox_sandbox *sb, struct nsbox_event *ret)
{
	if (!sb->count)
		return false;
	*ret = sb->queue[sb->head];
	sb->head = (sb->head + 1) % sb->room;
	sb->count--;
	return true;
}

int events_init(struct nsbox_sandbox *sb)
{
	sb->queue = calloc(FIRST_ROOM, sizeof(*sb->queue));
	sb->room = FIRST_ROOM;
	return sb->queue ? 0 : -ENOMEM;
}

void events_free(struct nsbox_sandbox *sb)
{
	struct nsbox_event e;

	while (event_take(sb, &e))
		close_fd(&e.fd);
	free(sb->queue);
}
