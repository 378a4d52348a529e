/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the journal hears of, and when.
 *
 * Events of a turn of the loop only put jobs on lists: fresh (accepted, not written yet) and ended
 * (over, not written yet). At the end of the turn record_turn() also takes from the queue what can
 * run, writes all of it in one transaction, and only then acts on it: whoever waits is told, and
 * the jobs that were taken start. So nothing is told or started that the journal does not know.
 *
 * With synchronous calls that is at once: who waits for one would see the machine's end. Other jobs
 * are held until the disk has them, too. To its client, and to all others, a job that is
 * held has not happened yet. See hold.c.
 *
 * Where the transaction fails nothing of it has happened: fresh jobs are refused, taken ones go
 * back, ended ones stay on their list with their results until the journal works again. Until
 * then nothing is accepted and nothing started.
 */
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

#include "daemon/front/evidence.h"
#include "daemon/front/hold.h"
#include "daemon/front/log.h"
#include "daemon/front/snapshot.h"
#include "nsbox/util.h"

#define MEND_US	  (UINT64_C(1) * 1000000)
#define FREE_MIN  (UINT64_C(16) << 20) /* kept free, for the results of what runs already */
#define FREE_FOLD 3 /* a request is written to the log and to the file, and then its result */

uint64_t record_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ------------------------------------------------------------------ lists */

static void on_mend(void *ctx)
{
	struct front *f = ctx;
	struct nsbox_error err = { 0 };

	f->trouble.code = 0;
	if (record_room(f, 0, &err) < 0 || audit_flush(&f->audit, &err) < 0) {
		f->trouble = err;
		loop_timer_set(f->loop, &f->mend, MEND_US);
	} else {
		log_line(5, "journal", "state", "works again", NULL);
	}
	front_soon(f); /* results that wait may fit all the same */
}

static void on_sweep(void *ctx)
{
	record_sweep(ctx);
}

void record_init(struct front *f)
{
	f->fresh.last = &f->fresh.first;
	f->ended.last = &f->ended.first;
	f->last_held = &f->held;
	f->mend = (struct loop_timer){ .fn = on_mend, .ctx = f };
	f->sweep = (struct loop_timer){ .fn = on_sweep, .ctx = f };
}

static void add_fresh(struct job_list *l, struct job *j)
{
	j->next_fresh = NULL;
	*l->last = j;
	l->last = &j->next_fresh;
}

static void add_ended(struct job_list *l, struct job *j)
{
	j->next_ended = NULL;
	*l->last = j;
	l->last = &j->next_ended;
}

void record_fresh(struct front *f, struct job *j)
{
	add_fresh(&f->fresh, j);
	front_soon(f);
}

void record_ended(struct front *f, struct job *j)
{
	add_ended(&f->ended, j);
	front_soon(f);
}

static struct job *detach(struct job_list *l)
{
	struct job *first = l->first;

	l->first = NULL;
	l->last = &l->first;
	return first;
}

/* ------------------------------------------------------------------ room */

int record_room(struct front *f, uint64_t len, struct nsbox_error *err)
{
	uint64_t need = FREE_MIN + FREE_FOLD * len, there;
	struct statvfs st;

	if (f->trouble.code) {
		*err = f->trouble;
		return -ENOSPC;
	}
	if (fstatvfs(f->data_fd, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "look at the data directory");
	there = (uint64_t)st.f_bavail * st.f_frsize;
	if (there >= need)
		return 0;
	nsbox_fail(err, NSBOX_E_IO, ENOSPC,
		   "nothing is accepted: %llu MB are free for the journal, %llu are needed",
		   (unsigned long long)(there >> 20), (unsigned long long)(need >> 20));
	return -ENOSPC;
}

/* ------------------------------------------------------------------ the transaction */

void job_row(const struct job *j, struct journal_row *row)
{
	*row = (struct journal_row){ .id = j->id,
				     .workspace = j->workspace,
				     .trace_id = j->trace_id,
				     .traceparent = j->traceparent,
				     .key = j->key,
				     .body_sha256 = j->body_sha256,
				     .kind = j->kind,
				     .priority = j->priority,
				     .state = j->phase == JOB_QUEUED ? JOURNAL_QUEUED
								     : JOURNAL_RUNNING,
				     .sync = j->sync,
				     .uid = j->uid,
				     .size = j->asked_bytes,
				     .created_ms = j->created_unix_ms,
				     .started_ms = j->started_unix_ms,
				     .cause = "" };
}

const char *job_cause(const struct job *j)
{
	if (!j->run->error.code)
		return nsbox_cause_name((int)j->run->res.cause);
	return nsbox_cause_name(j->run->error.code == NSBOX_E_SETUP ||
						j->run->error.code == NSBOX_E_SANDBOX
					? NSBOX_CAUSE_SANDBOX
					: NSBOX_CAUSE_NONE);
}

static int write_fresh(struct front *f, const struct job *j, struct nsbox_error *err)
{
	struct journal_row row;
	int r;

	job_row(j, &row);
	row.state = JOURNAL_QUEUED; /* also where it is cancelled already: its end follows */
	r = f->journal->ops->add(f->journal, &row, j->sync ? NULL : j->body, (size_t)j->asked_bytes,
				 err);
	return r == 0 ? evidence_accept(f, j, err) : r;
}

static int write_ended(struct front *f, const struct job *j, struct nsbox_error *err)
{
	const struct journal_end end = { .finished_ms = j->finished_unix_ms,
					 .status = j->http_status,
					 .cause = job_cause(j),
					 .reply = j->sync ? NULL : j->reply,
					 .reply_len = j->reply_len,
					 .receipt = j->receipt,
					 .receipt_len = j->receipt_len };
	int r = f->journal->ops->done(f->journal, j->id, &end, err);

	if (r == -ENOENT)
		log_line(3, "journal", "id", j->id, "err", "does not know a job that ended", NULL);
	else if (r < 0)
		return r;
	return evidence_finish(f, j, err);
}

static int write_start(struct front *f, const struct job *j, uint64_t now, struct nsbox_error *err)
{
	int r = f->journal->ops->take(f->journal, j->id, now, err);

	return r == 0 ? evidence_start(f, j, err) : r;
}

static int write_all(struct front *f, const struct job *fresh, const struct job *popped,
		     const struct job *ended, struct nsbox_error *err)
{
	const struct journal_ops *op = f->journal->ops;
	uint64_t now = record_now_ms();
	int r = op->begin(f->journal, err);

	for (const struct job *j = fresh; r == 0 && j; j = j->next_fresh)
		r = write_fresh(f, j, err);
	for (const struct job *j = popped; r == 0 && j; j = j->next_popped)
		r = write_start(f, j, now, err);
	for (const struct job *j = ended; r == 0 && j; j = j->next_ended)
		r = write_ended(f, j, err);
	if (r == 0)
		r = op->commit(f->journal, err);
	else
		op->rollback(f->journal);
	if (r < 0) {
		audit_rollback(&f->audit);
		return r;
	}
	f->metrics.counter[METRIC_COMMITS]++;
	return 0;
}

/* ------------------------------------------------------------------ afterwards */

/* As of the queue, the latest first. */
static struct job *take_waiting(struct front *f)
{
	struct job *list = NULL, *j;

	while (!f->closing && !f->draining && !f->trouble.code && f->running < f->runners &&
	       (j = queue_pop(f->queue))) {
		f->running++;
		j->started_unix_ms = record_now_ms();
		j->next_popped = list;
		list = j;
	}
	return list;
}

/* What waits is the journal's to keep; what runs, or is about to, needs what it was given. */
static void accepted(struct front *f, struct job *j)
{
	f->metrics.counter[METRIC_ACCEPTED]++;
	j->told = true;
	free_ptr(&j->body);
	api_tell_accepted(f, j);
	if (!j->sync && j->phase == JOB_QUEUED && !j->wait.running) {
		job_spec_free(j->spec);
		j->spec = NULL;
	}
}

static int load(struct front *f, struct job *j, struct nsbox_error *err)
{
	auto_free char *body = NULL;
	size_t len = 0;
	int r;

	if (j->spec)
		return 0;
	r = f->journal->ops->read(f->journal, j->id, JOURNAL_REQUEST, &body, &len, err);
	if (r == 0)
		return nsbox_fail(err, NSBOX_E_IO, 0, "the journal has lost the request");
	return r < 0 ? r : request_parse(body, len, JOB_KIND_MAX, &j->spec, err);
}

static void start(struct front *f, struct job *j)
{
	struct nsbox_error err = { 0 };

	if (j->phase != JOB_QUEUED)
		return; /* it was cancelled while it was held */
	if (load(f, j, &err) < 0)
		job_refuse(j, &err);
	else if (j->spec->session_id && !j->session)
		job_interrupt(j); /* its session ended with the front that had it */
	else
		job_start(j);
}

void record_trouble(struct front *f, const struct nsbox_error *why)
{
	if (!f->trouble.code)
		log_line(3, "journal", "err", why->msg, NULL);
	f->trouble = *why;
	loop_timer_set(f->loop, &f->mend, MEND_US);
}

void record_act(struct front *f, struct held *h)
{
	struct job *next;

	for (struct job *j = h->fresh.first; j; j = next) {
		next = j->next_fresh;
		accepted(f, j);
	}
	for (struct job *j = h->ended.first; j; j = next) {
		next = j->next_ended;
		evidence_ended(f, j);
		api_tell_ended(j);
		front_list_drop(f, j);
	}
	for (struct job *j = h->popped; j; j = next) {
		next = j->next_popped;
		start(f, j);
		job_unref(j);
	}
	control_ended(f);
}

static void succeed(struct front *f, struct job *popped)
{
	struct job *fresh = detach(&f->fresh), *ended = detach(&f->ended), *next;
	struct held held = { 0 }, now = { 0 };
	struct nsbox_error err = { 0 };

	held_init(&held);
	held_init(&now);
	/* Where the file takes no more its lines are safe in the journal, but they wait. */
	if (audit_commit(&f->audit, &err) < 0)
		record_trouble(f, &err);
	for (struct job *j = fresh; j; j = next) {
		next = j->next_fresh;
		j->recorded = true;
		add_fresh(j->sync ? &now.fresh : &held.fresh, j);
	}
	for (struct job *j = ended; j; j = next) {
		next = j->next_ended;
		add_ended(j->sync ? &now.ended : &held.ended, j);
	}
	for (struct job *j = popped; j; j = next) { /* the oldest first again */
		struct job **to = j->sync ? &now.popped : &held.popped;

		next = j->next_popped;
		j->next_popped = *to;
		*to = job_ref(j);
	}
	if (!held_empty(&held))
		hold_add(f, &held);
	record_act(f, &now);
}

/* Never accepted; those that are over already leave the other list, too. */
static void refuse_fresh(struct front *f, const struct nsbox_error *why)
{
	struct job *fresh = detach(&f->fresh), *ended = detach(&f->ended), *next;

	for (struct job *j = ended; j; j = next) {
		next = j->next_ended;
		if (j->recorded)
			record_ended(f, j);
	}
	for (struct job *j = fresh; j; j = next) {
		next = j->next_fresh;
		api_tell_refused(j, why);
		queue_done(f->queue, &j->wait);
		if (j->phase != JOB_FINISHED)
			f->asked_bytes -= j->asked_bytes;
		front_list_drop(f, j);
	}
}

static void fail(struct front *f, struct job *popped, const struct nsbox_error *why)
{
	record_trouble(f, why);
	for (struct job *j = popped, *next; j; j = next) {
		next = j->next_popped;
		j->started_unix_ms = 0;
		f->running--;
		queue_unpop(f->queue, &j->wait);
	}
	refuse_fresh(f, why);
}

void record_turn(struct front *f)
{
	struct job *popped = take_waiting(f);
	struct nsbox_error err = { 0 };
	bool more = f->fresh.first || popped;

	if (!more && !f->ended.first)
		return;
	if (write_all(f, f->fresh.first, popped, f->ended.first, &err) == 0) {
		succeed(f, popped);
		return;
	}
	fail(f, popped, &err);
	/* What has ended may fit alone. */
	if (more && f->ended.first && write_all(f, NULL, NULL, f->ended.first, &err) == 0)
		succeed(f, NULL);
}
