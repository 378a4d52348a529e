/* SPDX-License-Identifier: Apache-2.0 */
/* Processor time of workspaces within the last hour, counted in minutes, in memory. */
#ifndef FRONT_USAGE_H
#define FRONT_USAGE_H

#include <stdint.h>

struct usage;

/* NULL without memory. `now_s` of the others: any clock that only goes on. */
struct usage *usage_new(void);
void usage_free(struct usage *u);
/* Best effort: without memory a run is not counted. */
void usage_add(struct usage *u, const char *workspace, uint64_t cpu_us, uint64_t now_s);
/* Seconds until less than limit_s of it is within the hour; 0: it is. */
uint64_t usage_wait(struct usage *u, const char *workspace, uint64_t limit_s, uint64_t now_s);

#endif
