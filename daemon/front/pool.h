/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs made ahead: sandboxes in which the interpreter has started and waits for its one call, and
 * sandboxes alone, for one command.
 *
 * A run of the pool is made as any other, from the same plan and exec request, by nsbox-spawn; its
 * layers are set up and its witness has tried them before it waits. It has seen nothing of any
 * request, and serves one. What differs is only when it was made. Which one fits a call is a matter
 * of the key, a hash of everything that it was made of.
 *
 * Kinds of runs are learnt from calls that found none; what nobody has asked for in a while ends.
 * New ones are made one after the other, while processors are idle, and not beside a call that has just
 * begun: making one takes longer than most calls that find one. While the machine is short of memory
 * there are none: what waits for nobody yet is the first that can go.
 */
#ifndef FRONT_POOL_H
#define FRONT_POOL_H

#include "daemon/common/digest.h"
#include "daemon/front/link.h"
#include "daemon/front/loop.h"

struct pool;

/* Descriptors of a run that was taken are the taker's. */
struct pool_run {
	uint64_t number;      /* of its sandbox and of its program, on the wire */
	int out, err, result; /* these and the next are -1 in a sandbox alone */
	int request;	      /* write end, non-blocking; what it is to read, to the end */
	char image_digest[80];
	bool forked; /* of a template */
};
#define POOL_RUN_NONE ((struct pool_run){ 0, -1, -1, -1, -1, "", false })

struct pool_uses {
	struct loop *loop;
	struct link *link;
	uint64_t *numbers;	 /* of sandboxes; the last that was given */
	bool (*idle)(void *ctx); /* there is a processor for what nobody waits for */
	bool (*busy)(void *ctx); /* somebody waits for something */
	bool template;		 /* interpreters are forks of it: cheap to make */
	void *ctx;
};

int pool_new(const struct pool_uses *uses, struct pool **ret, struct nsbox_error *err);
void pool_free(struct pool *p); /* NULL is fine, for all that follow, too */
/* How many runs there may be, of all kinds; 0: none. And none while the machine has less than so much
 * memory to spare. */
void pool_resize(struct pool *p, uint64_t size, uint64_t spare_mb);

/* The hash of all that a run of the pool is made of; exec_fd -1: a sandbox alone. */
int pool_key(const char *plan_sha256, int exec_fd, char ret[DIGEST_HEX], struct nsbox_error *err);
/* One that waits for a call, whose time begins now. False: none; see pool_learn(). */
bool pool_take(struct pool *p, const char *key, struct pool_run *ret);
/* A call would have liked one. exec: made with `waits`, or -1. Both descriptors are borrowed. */
void pool_learn(struct pool *p, const char *key, int plan_fd, int exec_fd);
/* End a run that was taken and could not be used. */
void pool_spoil(struct pool *p, struct pool_run *run);

/* True: it was about a run of the pool. */
bool pool_event(struct pool *p, const struct wire_event *w);
/* Something has ended: there may be time now. */
void pool_wake(struct pool *p);
unsigned pool_waiting(const struct pool *p); /* runs that can be taken */
unsigned pool_alive(const struct pool *p);   /* and with those that are being made */

#endif
