/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names that a sandbox asked for. Each gets an inner address for the sandbox's life, so that every
 * connection says which name it is for, and what the name means outside is asked anew when its time
 * is over and checked whenever it is used: a name that changes its address gains nothing.
 */
#include <string.h>

#include "daemon/egress/egress.h"
#include "nsbox/util.h"

#define BUCKETS	  1024
#define NAMES_MAX 8192

static uint32_t hash(const char *text)
{
	uint32_t h = 2166136261u;

	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 16777619u;
	return h % BUCKETS;
}

static bool make_room(struct box *x)
{
	uint32_t room = x->room ? 2 * x->room : 64;
	struct name **grown;

	if (!x->by_text)
		x->by_text = calloc(BUCKETS, sizeof(struct name *));
	if (!x->by_text || x->n_names >= NAMES_MAX)
		return false;
	if (x->n_names < x->room)
		return true;
	grown = reallocarray(x->by_place, room, sizeof(struct name *));
	if (!grown)
		return false;
	x->by_place = grown;
	x->room = room;
	return true;
}

struct name *name_get(struct box *x, const char *text)
{
	uint32_t h = hash(text);
	struct name *n;

	if (!make_room(x))
		return NULL;
	for (n = x->by_text[h]; n; n = n->next)
		if (!strcmp(n->text, text))
			return n;
	n = calloc(1, sizeof(*n) + strlen(text) + 1);
	if (!n)
		return NULL;
	strcpy(n->text, text);
	n->box = x;
	n->place = EGRESS_FIRST_NAME + x->n_names;
	x->by_place[x->n_names++] = n;
	n->next = x->by_text[h];
	x->by_text[h] = n;
	return n;
}

struct name *name_at(struct box *x, uint32_t place)
{
	if (place < EGRESS_FIRST_NAME || place - EGRESS_FIRST_NAME >= x->n_names)
		return NULL;
	return x->by_place[place - EGRESS_FIRST_NAME];
}

void name_wait(struct name *n, struct waiter *w)
{
	if (n->state != NAME_UNKNOWN && !n->ask && monotonic_us() < n->fresh_until) {
		w->fn(w, n);
		return;
	}
	w->next = n->waiters;
	n->waiters = w;
	if (!n->ask)
		resolver_ask(n->box->broker->resolver, n);
}

void name_forget(struct name *n, struct waiter *w)
{
	for (struct waiter **p = &n->waiters; *p; p = &(*p)->next)
		if (*p == w) {
			*p = w->next;
			return;
		}
}

void name_answered(struct name *n)
{
	/* One at a time: each may end others. */
	while (n->waiters) {
		struct waiter *w = n->waiters;

		n->waiters = w->next;
		w->fn(w, n);
	}
}

void names_free(struct box *x)
{
	for (uint32_t i = 0; i < x->n_names; i++) {
		struct name *n = x->by_place[i];

		if (n->ask)
			n->ask->name = NULL; /* its answer is for nobody */
		for (unsigned k = 0; k < CHAIN_MAX; k++)
			free(n->chain[k]);
		free(n);
	}
	free(x->by_place);
	free(x->by_text);
	x->n_names = 0;
}
