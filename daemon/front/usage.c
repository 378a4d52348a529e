/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/front/usage.h"

#include <stdbool.h>
#include <string.h>

#include "nsbox/util.h"

#define MINUTES 60

struct entry {
	struct entry *next;
	uint64_t last; /* minute of the newest */
	uint64_t us[MINUTES];
	char name[];
};

struct usage {
	struct entry *first;
};

struct usage *usage_new(void)
{
	return calloc(1, sizeof(struct usage));
}

void usage_free(struct usage *u)
{
	while (u && u->first) {
		struct entry *e = u->first;

		u->first = e->next;
		free(e);
	}
	free(u);
}

/* Minutes that have gone by since the newest hold nothing. */
static void advance(struct entry *e, uint64_t minute)
{
	for (int i = 0; i < MINUTES && e->last < minute; i++) {
		e->last++;
		e->us[e->last % MINUTES] = 0;
	}
	e->last = MAX(e->last, minute);
}

static uint64_t sum(const struct entry *e)
{
	uint64_t all = 0;

	for (int i = 0; i < MINUTES; i++)
		all += e->us[i];
	return all;
}

/* The entry, with those dropped on the way that nothing is left of. */
static struct entry *find(struct usage *u, const char *workspace, uint64_t minute)
{
	struct entry **p = &u->first, *found = NULL;

	while (*p) {
		struct entry *e = *p;

		advance(e, minute);
		if (strcmp(e->name, workspace) == 0)
			found = e;
		if (sum(e) > 0 || e == found) {
			p = &e->next;
			continue;
		}
		*p = e->next;
		free(e);
	}
	return found;
}

void usage_add(struct usage *u, const char *workspace, uint64_t cpu_us, uint64_t now_s)
{
	uint64_t minute = now_s / 60;
	struct entry *e = find(u, workspace, minute);

	if (!e) {
		e = calloc(1, sizeof(*e) + strlen(workspace) + 1);
		if (!e)
			return;
		strcpy(e->name, workspace);
		e->last = minute;
		e->next = u->first;
		u->first = e;
	}
	e->us[minute % MINUTES] += cpu_us;
}

uint64_t usage_wait(struct usage *u, const char *workspace, uint64_t limit_s, uint64_t now_s)
{
	uint64_t minute = now_s / 60, over, age = MINUTES;
	const struct entry *e = find(u, workspace, minute);

	if (!e || sum(e) < limit_s * 1000000)
		return 0;
	over = sum(e) - limit_s * 1000000;
	/* The oldest go first: the minute with which enough is gone decides. */
	while (--age > 0) {
		uint64_t us = e->us[(minute + MINUTES - age) % MINUTES];

		if (minute >= age && us > over)
			break;
		over -= minute >= age ? MIN(us, over) : 0;
	}
	return (MINUTES - age) * 60 - now_s % 60;
}
