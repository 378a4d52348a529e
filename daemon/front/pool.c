/* SPDX-License-Identifier: Apache-2.0 */
/* Runs made ahead (pool.h): what kinds there are, and making, taking and ending their runs. */
#include "daemon/front/pool.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/front/log.h"
#include "daemon/front/spare.h"
#include "nsbox/plan_build.h"
#include "nsbox/util.h"

#define KINDS_MAX    16
#define FAILURES_MAX 3	   /* in a row, then no more of that kind are tried */
#define QUIET_US     20000 /* for a call that has just got its run: few take longer */
#define ANSWER_US    2000  /* for the answer of one that has ended */
#define LOOK_US	     (5 * UINT64_C(1000000))
#define KIND_IDLE_US (300 * UINT64_C(1000000))
#define RUN_AGE_US   (3600 * UINT64_C(1000000)) /* the host's files change under it */

struct kind {
	struct kind *next; /* that was used before it */
	char key[DIGEST_HEX];
	int plan, exec; /* -1: a sandbox alone */
	uint64_t used_us;
	unsigned wanted; /* runs, by the calls that found none */
	unsigned failures;
};

struct waiting {
	struct waiting *next; /* made after it */
	struct kind *kind;
	struct pool_run run;
	uint64_t made_us;
	bool started;
};

struct pool {
	struct pool_uses uses;
	uint64_t size, spare_mb;
	bool was_short;	    /* of memory, when last looked */
	uint64_t taken_us;  /* the last one */
	struct kind *kinds; /* the one used last is the first */
	struct waiting *runs;
	struct loop_timer timer, look; /* make the next one; let go of what is old */
};

/* ------------------------------------------------------------------ ends */

static void close_run(struct pool_run *run)
{
	close_fd(&run->out);
	close_fd(&run->err);
	close_fd(&run->result);
	close_fd(&run->request);
}

void pool_spoil(struct pool *p, struct pool_run *run)
{
	struct wire_request q = { .kind = WIRE_END, .sandbox = run->number };

	(void)link_send(p->uses.link, &q, NULL, 0, NULL); /* without a link it has ended */
	close_run(run);
}

static struct waiting *unlink_run(struct pool *p, struct waiting *w)
{
	struct waiting **at = &p->runs;

	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	return w;
}

static void end_run(struct pool *p, struct waiting *w)
{
	unlink_run(p, w);
	pool_spoil(p, &w->run);
	free(w);
}

static void end_runs_of(struct pool *p, const struct kind *k)
{
	for (struct waiting *w = p->runs, *next; w; w = next) {
		next = w->next;
		if (w->kind == k)
			end_run(p, w);
	}
}

static void end_kind(struct pool *p, struct kind *k)
{
	struct kind **at = &p->kinds;

	end_runs_of(p, k);
	while (*at != k)
		at = &(*at)->next;
	*at = k->next;
	close_fd(&k->plan);
	close_fd(&k->exec);
	free(k);
}

/* ------------------------------------------------------------------ counting */

static unsigned count(const struct pool *p, const struct kind *k)
{
	unsigned n = 0;

	for (const struct waiting *w = p->runs; w; w = w->next)
		n += !k || w->kind == k;
	return n;
}

unsigned pool_alive(const struct pool *p)
{
	return p ? count(p, NULL) : 0;
}

unsigned pool_waiting(const struct pool *p)
{
	unsigned n = 0;

	for (const struct waiting *w = p ? p->runs : NULL; w; w = w->next)
		n += w->started;
	return n;
}

/* ------------------------------------------------------------------ making */

/* A pipe of which the program has one end, `ours` being 0 to read or 1 to write. */
static int make_pipe(int ours, int *ret_ours, int *ret_theirs)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	*ret_ours = fds[ours];
	*ret_theirs = fds[!ours];
	return fcntl(*ret_ours, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int make_pipes(struct pool_run *run, struct pool_run *theirs)
{
	int r = make_pipe(0, &run->out, &theirs->out);

	if (r == 0)
		r = make_pipe(0, &run->err, &theirs->err);
	if (r == 0)
		r = make_pipe(1, &run->request, &theirs->request);
	return r == 0 ? make_pipe(0, &run->result, &theirs->result) : r;
}

/* No workspace is named, so that a plan that shares a directory of one has no run here. */
static int ask_for(struct pool *p, const struct kind *k, const struct pool_run *run,
		   const struct pool_run *theirs)
{
	struct wire_request box = { .kind = WIRE_NEW,
				    .sandbox = run->number,
				    .arg = p->uses.template && k->exec >= 0 ? WIRE_NEW_TEMPLATE
									    : 0 };
	struct wire_request exec = { .kind = WIRE_EXEC,
				     .sandbox = run->number,
				     .exec = run->number,
				     .arg = WIRE_IO_OUT | WIRE_IO_ERR | WIRE_IO_REQUEST |
					    WIRE_IO_RESULT };
	const int fds[] = { k->exec, theirs->out, theirs->err, theirs->request, theirs->result };
	int r = link_send(p->uses.link, &box, &k->plan, 1, NULL);

	return r == 0 && k->exec >= 0 ? link_send(p->uses.link, &exec, fds, ARRAY_SIZE(fds), NULL)
				      : r;
}

static int make_run(struct pool *p, struct kind *k)
{
	struct pool_run theirs = POOL_RUN_NONE;
	struct waiting *w = calloc(1, sizeof(*w)), **end = &p->runs;
	int r;

	if (!w)
		return -ENOMEM;
	w->kind = k;
	w->made_us = monotonic_us();
	w->run = POOL_RUN_NONE;
	r = k->exec >= 0 ? make_pipes(&w->run, &theirs) : 0;
	if (r == 0) {
		w->run.number = ++*p->uses.numbers;
		r = ask_for(p, k, &w->run, &theirs);
	}
	close_run(&theirs);
	if (r < 0) {
		close_run(&w->run);
		free(w);
		return r;
	}
	while (*end)
		end = &(*end)->next;
	*end = w;
	return 0;
}

/*
 * What was asked for last comes first: each kind's share is what it wants of the room that those
 * before it leave. A kind that has less than its share; or, `surplus`, more.
 */
static struct kind *uneven(struct pool *p, bool surplus)
{
	struct kind *found = NULL;
	uint64_t room = p->size;

	for (struct kind *k = p->kinds; k; k = k->next) {
		uint64_t share = MIN(k->wanted, room);

		room -= share;
		if (surplus && count(p, k) > share)
			found = k; /* the last of them */
		if (!surplus && count(p, k) < share && k->failures < FAILURES_MAX)
			return k;
	}
	return found;
}

static void end_surplus(struct pool *p)
{
	struct kind *k = uneven(p, true);
	struct waiting *w = p->runs;

	while (w && w->kind != k)
		w = w->next;
	if (w)
		end_run(p, w);
}

static bool one_is_being_made(const struct pool *p)
{
	return pool_waiting(p) < pool_alive(p);
}

/* Making one takes a processor, and nsbox-spawn's attention, from a call that would be over by then. */
static uint64_t quiet_for(const struct pool *p)
{
	uint64_t now = monotonic_us(), until = p->taken_us + QUIET_US;

	return now < until && p->uses.busy(p->uses.ctx) ? until - now : 0;
}

static bool is_short(struct pool *p)
{
	uint64_t spare = spare_memory_mb();
	bool now = spare < p->spare_mb;

	if (now != p->was_short) {
		char mb[24];

		snprintf(mb, sizeof(mb), "%llu", (unsigned long long)spare);
		log_line(now ? 4 : 6, now ? "pool-short" : "pool", "spareMb", mb, NULL);
	}
	p->was_short = now;
	return now;
}

static void heed_memory(struct pool *p)
{
	if (is_short(p))
		while (p->runs)
			end_run(p, p->runs);
}

static void on_timer(void *ctx)
{
	struct pool *p = ctx;
	struct kind *k = uneven(p, false);
	uint64_t quiet = quiet_for(p);

	if (k && quiet) {
		loop_timer_set(p->uses.loop, &p->timer, quiet);
		return;
	}
	if (!k || one_is_being_made(p) || !p->uses.idle(p->uses.ctx) || is_short(p))
		return; /* pool_event(), pool_wake() */
	if (pool_alive(p) >= p->size)
		end_surplus(p);
	if (pool_alive(p) < p->size && make_run(p, k) < 0)
		k->failures++;
}

void pool_wake(struct pool *p)
{
	if (p && p->size)
		loop_timer_set(p->uses.loop, &p->timer, ANSWER_US);
}

/* ------------------------------------------------------------------ taking */

int pool_key(const char *plan_sha256, int exec_fd, char ret[DIGEST_HEX], struct nsbox_error *err)
{
	char both[2 * DIGEST_HEX];
	struct blob b;
	char exec[DIGEST_HEX];
	int r = 0;

	snprintf(exec, sizeof(exec), "sandbox");
	if (exec_fd >= 0) {
		r = blob_map(exec_fd, EXEC_MAGIC, &b, err);
		if (r < 0)
			return r;
		r = digest_hex(b.base, b.size, exec, err);
		blob_unmap(&b);
	}
	if (r < 0)
		return r;
	snprintf(both, sizeof(both), "%.64s%.64s", plan_sha256, exec);
	return digest_hex(both, strlen(both), ret, err);
}

static struct kind *find_kind(struct pool *p, const char *key)
{
	for (struct kind *k = p->kinds; k; k = k->next)
		if (strcmp(k->key, key) == 0)
			return k;
	return NULL;
}

static void use_kind(struct pool *p, struct kind *k)
{
	struct kind **at = &p->kinds;

	k->used_us = monotonic_us();
	while (*at && *at != k)
		at = &(*at)->next;
	if (*at)
		*at = k->next;
	k->next = p->kinds;
	p->kinds = k;
}

bool pool_take(struct pool *p, const char *key, struct pool_run *ret)
{
	struct kind *k = p ? find_kind(p, key) : NULL;
	struct waiting *w = p ? p->runs : NULL;
	struct wire_request q = { .kind = WIRE_BEGIN };

	while (w && (w->kind != k || !w->started))
		w = w->next; /* the oldest: its interpreter has come furthest */
	if (!k || !w)
		return false;
	use_kind(p, k);
	p->taken_us = k->used_us;
	*ret = w->run;
	free(unlink_run(p, w));
	q.sandbox = q.exec = ret->number;
	if (k->exec >= 0 && link_send(p->uses.link, &q, NULL, 0, NULL) < 0) {
		close_run(ret);
		return false;
	}
	pool_wake(p);
	return true;
}

static struct kind *new_kind(struct pool *p, const char *key, int plan_fd, int exec_fd)
{
	struct kind *k = calloc(1, sizeof(*k)), *last = p->kinds;
	unsigned n = 0;

	if (!k)
		return NULL;
	k->plan = fcntl(plan_fd, F_DUPFD_CLOEXEC, 3);
	k->exec = exec_fd >= 0 ? fcntl(exec_fd, F_DUPFD_CLOEXEC, 3) : -1;
	if (k->plan < 0 || (exec_fd >= 0 && k->exec < 0)) {
		close_fd(&k->plan);
		close_fd(&k->exec);
		free(k);
		return NULL;
	}
	memcpy(k->key, key, sizeof(k->key));
	for (; last; last = last->next)
		if (++n >= KINDS_MAX && !last->next) {
			end_kind(p, last);
			break;
		}
	return k;
}

void pool_learn(struct pool *p, const char *key, int plan_fd, int exec_fd)
{
	struct kind *k;

	if (!p || !p->size)
		return;
	k = find_kind(p, key);
	if (!k)
		k = new_kind(p, key, plan_fd, exec_fd);
	if (!k)
		return; /* the call takes the long way */
	use_kind(p, k);
	if (k->wanted < p->size)
		k->wanted++;
	pool_wake(p);
}

/* ------------------------------------------------------------------ events */

bool pool_event(struct pool *p, const struct wire_event *w)
{
	struct waiting *run = p ? p->runs : NULL;
	uint32_t last;

	while (run && run->run.number != w->sandbox)
		run = run->next;
	if (!run)
		return false;
	if (w->event.kind == NSBOX_EVENT_READY) {
		memcpy(run->run.image_digest, w->image, sizeof(run->run.image_digest));
		run->run.forked = w->forked;
		if (run->kind->exec >= 0)
			return true; /* its program is still to start */
	}
	last = run->kind->exec >= 0 ? NSBOX_EVENT_STARTED : NSBOX_EVENT_READY;
	if (w->event.kind == last) {
		run->started = true;
		run->kind->failures = 0;
	} else { /* whatever else it has to say, it is not what was wanted */
		run->kind->failures++;
		end_run(p, run);
	}
	pool_wake(p);
	return true;
}

static void on_look(void *ctx)
{
	struct pool *p = ctx;
	uint64_t now = monotonic_us();

	heed_memory(p);
	for (struct kind *k = p->kinds, *next; k; k = next) {
		next = k->next;
		if (now - k->used_us > KIND_IDLE_US)
			end_kind(p, k);
	}
	for (struct waiting *w = p->runs, *next; w; w = next) {
		next = w->next;
		if (now - w->made_us > RUN_AGE_US)
			end_run(p, w);
	}
	pool_wake(p);
	loop_timer_set(p->uses.loop, &p->look, LOOK_US);
}

/* ------------------------------------------------------------------ life */

int pool_new(const struct pool_uses *uses, struct pool **ret, struct nsbox_error *err)
{
	struct pool *p = calloc(1, sizeof(*p));

	if (!p)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "make the pool of runs");
	p->uses = *uses;
	p->timer = (struct loop_timer){ .fn = on_timer, .ctx = p };
	p->look = (struct loop_timer){ .fn = on_look, .ctx = p };
	*ret = p;
	return 0;
}

void pool_resize(struct pool *p, uint64_t size, uint64_t spare_mb)
{
	if (!p)
		return;
	p->size = size;
	p->spare_mb = spare_mb;
	for (struct kind *k = p->kinds; k; k = k->next)
		k->wanted = (unsigned)MIN(k->wanted, size);
	while (pool_alive(p) > size)
		end_surplus(p);
	if (size)
		heed_memory(p);
	if (size)
		loop_timer_set(p->uses.loop, &p->look, LOOK_US);
	else
		loop_timer_cancel(p->uses.loop, &p->look);
	pool_wake(p);
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	loop_timer_cancel(p->uses.loop, &p->timer);
	loop_timer_cancel(p->uses.loop, &p->look);
	while (p->kinds)
		end_kind(p, p->kinds);
	free(p);
}
