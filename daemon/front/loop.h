/* SPDX-License-Identifier: Apache-2.0 */
/* The front's event loop: descriptors and timers, one thread. */
#ifndef FRONT_LOOP_H
#define FRONT_LOOP_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <stdint.h>

struct loop;
struct loop_source;
typedef void loop_fn(void *ctx, uint32_t events);

int loop_new(struct loop **ret, struct nsbox_error *err);
void loop_free(struct loop *l);
int loop_run(struct loop *l, struct nsbox_error *err); /* until loop_stop() */
void loop_stop(struct loop *l);

/* The descriptor is borrowed and has to stay open until loop_del(). */
int loop_add(struct loop *l, int fd, uint32_t events, loop_fn *fn, void *ctx,
	     struct loop_source **ret, struct nsbox_error *err);
int loop_change(struct loop *l, struct loop_source *s, uint32_t events);
/* NULL is fine; allowed from any callback. Leaves *s NULL. */
void loop_del(struct loop *l, struct loop_source **s);
/* The same where the descriptor is closed before the loop goes on: there is no other for its file. */
void loop_forget(struct loop *l, struct loop_source **s);

/* Embedded in its owner, who cancels it before going away. */
struct loop_timer {
	void (*fn)(void *ctx);
	void *ctx;
	uint64_t at; /* monotonic_us() */
	struct loop_timer *next;
	bool armed;
};
void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t after_us);
void loop_timer_cancel(struct loop *l, struct loop_timer *t);

#endif
