/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface's part about jobs that are there: telling of them, cancelling. api_submit.c takes
 * them.
 *
 * Jobs of others do not exist for a client: an id it may not see is answered as one that is
 * unknown.
 */
#include <json-c/json.h>
#include <string.h>

#include "daemon/front/call.h"
#include "daemon/front/evidence.h"
#include "daemon/front/json_reply.h"
#include "nsbox/util.h"

#define LIST_MAX 1000
#define WAIT_MAX 300 /* seconds, of a long poll */

/* ------------------------------------------------------------------ looking and cancelling */

struct listing {
	struct front *f;
	const struct who *who;
	struct json_object *list;
};

static void on_listed(void *ctx, const struct journal_row *row)
{
	struct listing *l = ctx;

	/* One whose end is held is among those that run. */
	if (who_sees(l->who, row->uid, row->workspace) &&
	    !(l->f->held && front_find(l->f, row->id)))
		json_object_array_add(l->list, call_row_object(row));
}

/* Finished ones, newest first, behind those that wait or run, oldest first. */
void api_list_jobs(struct front *f, struct http_request *rq, const char *rest)
{
	struct json_object *o = json_object_new_object();
	struct who who;
	struct listing l = { f, &who, json_object_new_array() };
	struct nsbox_error err = { 0 };

	api_who(f, rq, &who);
	for (const struct job *j = f->first; j; j = j->next)
		if (j->told && who_sees(&who, j->uid, j->workspace))
			json_object_array_add(l.list, call_job_object(j));
	json_put(o, "jobs", l.list);
	if (f->journal->ops->ended_jobs(f->journal, LIST_MAX, on_listed, &l, &err) == 0) {
		api_reply(rq, 200, o, NULL);
		return;
	}
	json_object_put(o);
	api_reply_error(rq, 503, &err);
}

static void reply_unknown(struct http_request *rq, const char *id)
{
	http_reply_error(rq, 404, "not_found", "no job has the id '%.64s'", id);
}

struct lookup {
	struct who who;
	struct json_object *o;
};

static void on_found(void *ctx, const struct journal_row *row)
{
	struct lookup *l = ctx;

	if (who_sees(&l->who, row->uid, row->workspace))
		l->o = call_row_object(row);
}

/* One that has ended: from the journal. */
static void reply_ended(struct front *f, struct http_request *rq, const char *id)
{
	const struct journal_ops *op = f->journal->ops;
	struct lookup l = { 0 };
	auto_free char *reply = NULL;
	struct nsbox_error err = { 0 };
	size_t len = 0;
	int r;

	api_who(f, rq, &l.who);
	r = op->find(f->journal, id, on_found, &l, &err);
	if (r >= 0 && l.o)
		r = op->read(f->journal, id, JOURNAL_REPLY, &reply, &len, &err);
	if (r < 0) {
		json_object_put(l.o);
		api_reply_error(rq, 503, &err);
	} else if (!l.o) {
		reply_unknown(rq, id);
	} else {
		if (reply)
			json_put(l.o, "result", api_result_object(reply, len));
		api_reply(rq, 200, l.o, NULL);
	}
}

/* One that waits or runs; NULL where there is none that this client may see. */
static struct job *find_alive(struct front *f, struct http_request *rq, const char *id)
{
	struct job *j = front_find(f, id);
	struct who who;

	api_who(f, rq, &who);
	return j && j->told && who_sees(&who, j->uid, j->workspace) ? j : NULL;
}

/* It has not ended yet: that, too, is an answer. */
static void on_patience(void *ctx)
{
	struct call *c = ctx;

	api_reply(c->rq, 200, call_job_object(c->job), NULL);
	call_free(c);
}

static void wait_at_most(struct call *c, uint64_t seconds)
{
	c->patience = (struct loop_timer){ .fn = on_patience, .ctx = c };
	loop_timer_set(c->job->sv->loop, &c->patience, seconds * 1000000);
}

void api_get_job(struct front *f, struct http_request *rq, const char *id)
{
	struct job *j = find_alive(f, rq, id);
	uint64_t seconds;

	if (!http_query_u64(rq, "wait", 0, &seconds) || seconds > WAIT_MAX)
		http_reply_error(rq, 400, "invalid", "?wait= takes seconds, up to %d", WAIT_MAX);
	else if (!j)
		reply_ended(f, rq, id);
	else if (seconds == 0)
		api_reply(rq, 200, call_job_object(j), NULL);
	else if (call_add(j, rq, CALL_ENDED) < 0)
		http_reply_error(rq, 503, "nomem", "out of memory");
	else
		wait_at_most(*http_data(rq), seconds);
}

void api_delete_job(struct front *f, struct http_request *rq, const char *id)
{
	struct job *j = find_alive(f, rq, id);

	if (!j) {
		reply_ended(f, rq, id);
		return;
	}
	evidence_note(f, "cancel", http_peer(rq), id, "");
	job_cancel(j, NSBOX_CAUSE_CANCELLED);
	if (j->phase != JOB_FINISHED)
		api_reply(rq, 202, call_job_object(j), NULL);
	else if (call_add(j, rq, CALL_ENDED) < 0)
		http_reply_error(rq, 503, "nomem", "out of memory");
}

/* ------------------------------------------------------------------ standard input */

/* A piece for standard input; nothing is its end. */
void api_post_stdin(struct front *f, struct http_request *rq, const char *id)
{
	struct job *j = find_alive(f, rq, id);
	size_t len;
	int r;

	(void)http_body(rq, &len);
	if (!j) {
		reply_unknown(rq, id);
		return;
	}
	if (!j->interactive) {
		http_reply_error(rq, 409, "conflict", "this job's standard input was given before");
		return;
	}
	r = feed_push(&j->feed, http_take_body(rq), len);
	if (r == 0)
		api_reply(rq, 200, json_object_new_object(), NULL);
	else if (r == -EAGAIN)
		http_reply_error(rq, 429, "limit", "the program has not read the last input yet");
	else
		http_reply_error(rq, r == -ENOMEM ? 503 : 409, r == -ENOMEM ? "nomem" : "closed",
				 r == -ENOMEM ? "out of memory" : "nobody reads it any more");
}

/* ------------------------------------------------------------------ events */

struct past {
	struct front *f;
	struct http_request *rq;
	struct who who;
	const char *reply;
	bool seen;
};

static void on_past(void *ctx, const struct journal_row *row)
{
	struct past *p = ctx;
	struct json_object *o;

	if (!who_sees(&p->who, row->uid, row->workspace))
		return;
	p->seen = true;
	o = call_row_object(row);
	events_past(p->f, p->rq, row, o, p->reply);
	json_object_put(o);
}

void api_get_events(struct front *f, struct http_request *rq, const char *id)
{
	const struct journal_ops *op = f->journal->ops;
	struct job *j = find_alive(f, rq, id);
	struct past p = { .f = f, .rq = rq };
	auto_free char *reply = NULL;
	struct nsbox_error err = { 0 };
	size_t len = 0;
	int r;

	if (j) {
		events_alive(f, rq, j, false);
		return;
	}
	api_who(f, rq, &p.who);
	r = op->read(f->journal, id, JOURNAL_REPLY, &reply, &len, &err);
	p.reply = reply;
	if (r >= 0)
		r = op->find(f->journal, id, on_past, &p, &err);
	if (r < 0)
		api_reply_error(rq, 503, &err);
	else if (!p.seen)
		reply_unknown(rq, id);
}

/* ------------------------------------------------------------------ receipts */

void api_get_receipt(struct front *f, struct http_request *rq, const char *id)
{
	const struct journal_ops *op = f->journal->ops;
	struct lookup l = { 0 };
	struct nsbox_error err = { 0 };
	char *text = NULL;
	size_t len = 0;
	int r;

	api_who(f, rq, &l.who);
	r = find_alive(f, rq, id) ? 0 : op->find(f->journal, id, on_found, &l, &err);
	if (r >= 0 && l.o)
		r = op->read(f->journal, id, JOURNAL_RECEIPT, &text, &len, &err);
	json_object_put(l.o);
	if (r < 0)
		api_reply_error(rq, 503, &err);
	else if (!text)
		http_reply_error(rq, 404, "not_found", "no receipt has the id '%.64s'", id);
	else
		http_reply(rq, 200, text, len, NULL);
}

/* ------------------------------------------------------------------ outputs */

void api_get_output(struct front *f, struct http_request *rq, const char *id)
{
	const struct journal_ops *op = f->journal->ops;
	struct lookup l = { 0 };
	auto_free char *reply = NULL;
	struct nsbox_error err = { 0 };
	size_t len = 0;
	int r;

	if (find_alive(f, rq, id)) {
		http_reply_error(rq, 409, "conflict", "the job has not ended yet");
		return;
	}
	api_who(f, rq, &l.who);
	r = op->find(f->journal, id, on_found, &l, &err);
	if (r >= 0 && l.o)
		r = op->read(f->journal, id, JOURNAL_REPLY, &reply, &len, &err);
	if (r < 0)
		api_reply_error(rq, 503, &err);
	else if (!l.o)
		reply_unknown(rq, id);
	else
		api_reply_output(rq, reply, api_tail(rq));
	json_object_put(l.o);
}
