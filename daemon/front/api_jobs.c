/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface's part about jobs: taking them, telling of them, cancelling.
 *
 * A synchronous call is a job whose reply goes to the caller that waits; an asynchronous one is the
 * same job, whose reply the journal keeps. Either way what is told was written first: a request
 * waits as a `call` of its job until record.c says so.
 *
 * Jobs of others do not exist for a client: an id it may not see is answered as one that is
 * unknown.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/digest.h"
#include "daemon/common/text.h"
#include "daemon/front/box_files.h"
#include "daemon/front/evidence.h"
#include "daemon/front/images.h"
#include "daemon/front/json_reply.h"
#include "daemon/front/session_network.h"
#include "daemon/front/snapshot.h"
#include "nsbox/util.h"

#define LIST_MAX	1000
#define KEY_MAX		255
#define SESSION_RETRY_S 5   /* sessions end by being left alone: not at once */
#define WAIT_MAX	300 /* seconds, of a long poll */

/* ------------------------------------------------------------------ objects */

static struct json_object *row_object(const struct journal_row *row)
{
	static const char *const states[] = { "queued", "running", "finished" };
	struct json_object *o = json_object_new_object();

	if (!o)
		return NULL;
	json_put_text(o, "id", row->id);
	json_put_text(o, "kind", job_kind_names[MIN(row->kind, (uint32_t)JOB_KIND_MAX - 1)]);
	json_put_text(o, "state", states[MIN(row->state, 2u)]);
	json_put_text(o, "workspace_id", row->workspace);
	json_put_text(o, "trace_id", row->trace_id);
	json_put_text(o, "priority", job_priority_names[MIN(row->priority, (uint32_t)QUEUE_HIGH)]);
	if (*row->traceparent)
		json_put_text(o, "traceparent", row->traceparent);
	json_put_u64(o, "created_ms", row->created_ms);
	if (row->started_ms)
		json_put_u64(o, "started_ms", row->started_ms);
	if (row->state == JOURNAL_FINISHED) {
		json_put_u64(o, "finished_ms", row->finished_ms);
		json_put(o, "status", json_object_new_int(row->status));
		if (strcmp(row->cause, "none") != 0)
			json_put_text(o, "cause", row->cause);
	}
	return o;
}

static struct json_object *job_object(const struct job *j)
{
	struct journal_row row;

	job_row(j, &row);
	return row_object(&row);
}

/* ------------------------------------------------------------------ who waits */

static int call_add(struct job *j, struct http_request *rq, enum call_kind kind)
{
	struct call *c = malloc(sizeof(*c));

	if (!c)
		return -ENOMEM;
	*c = (struct call){ .next = j->calls, .job = j, .rq = rq, .kind = kind };
	j->calls = c;
	*http_data(rq) = c;
	return 0;
}

static void call_free(struct call *c)
{
	struct call **p = &c->job->calls;

	while (*p != c)
		p = &(*p)->next;
	*p = c->next;
	loop_timer_cancel(c->job->sv->loop, &c->patience);
	*http_data(c->rq) = NULL;
	free(c);
}

void api_gone(void *ctx, struct http_request *rq)
{
	struct call *c = *http_data(rq);
	struct job *j;
	enum call_kind kind;

	if (!c) {
		if (!box_files_gone(ctx, rq) && !session_network_gone(ctx, rq) &&
		    !snapshot_gone(ctx, rq) && !images_gone(ctx, rq))
			control_gone(ctx, rq);
		return;
	}
	j = c->job;
	kind = c->kind;
	call_free(c);
	if (kind == CALL_RESULT || kind == CALL_EVENTS)
		job_cancel(j, NSBOX_CAUSE_CANCELLED);
}

static void reply_place(struct http_request *rq, int status, const char *id, struct json_object *o)
{
	char place[80];
	const char *const headers[] = { "Location", place, NULL };

	snprintf(place, sizeof(place), "/v1/jobs/%s", id);
	api_reply(rq, status, o, headers);
}

/* The call first: the stream puts itself into the request's place. */
static void start_events(struct front *f, struct call *c)
{
	struct http_request *rq = c->rq;
	struct job *j = c->job;

	call_free(c);
	events_alive(f, rq, j, true);
}

void api_tell_accepted(struct front *f, struct job *j)
{
	for (struct call *c = j->calls, *next; c; c = next) {
		next = c->next;
		if (c->kind == CALL_EVENTS) {
			start_events(f, c);
		} else if (c->kind == CALL_ACCEPTED) {
			reply_place(c->rq, 202, j->id, job_object(j));
			call_free(c);
		}
	}
}

static struct json_object *ended_object(const struct job *j, bool whole)
{
	struct json_object *o;
	struct journal_row row;

	job_row(j, &row);
	row.state = JOURNAL_FINISHED;
	row.finished_ms = j->finished_unix_ms;
	row.status = j->http_status;
	row.cause = job_cause(j);
	o = row_object(&row);
	if (o && whole && j->reply)
		json_put(o, "result", json_raw_new(j->reply, j->reply_len));
	return o;
}

void api_tell_ended(struct job *j)
{
	struct json_object *o = j->streams ? ended_object(j, j->interactive) : NULL;

	events_ended(j, o);
	json_object_put(o);
	for (struct call *c = j->calls, *next; c; c = next) {
		next = c->next;
		if (c->kind == CALL_RESULT) {
			http_reply(c->rq, j->http_status, take_ptr(&j->reply), j->reply_len, NULL);
			j->reply_len = 0;
		} else {
			api_reply(c->rq, 200, ended_object(j, true), NULL);
		}
		call_free(c);
	}
}

void api_tell_refused(struct job *j, const struct nsbox_error *why)
{
	while (j->calls) {
		api_reply_error(j->calls->rq, 503, why);
		call_free(j->calls);
	}
}

/* ------------------------------------------------------------------ taking jobs */

static void reply_full(struct front *f, struct http_request *rq, int why, const char *workspace)
{
	struct nsbox_error e = { 0 };

	f->metrics.counter[METRIC_FULL]++;
	if (why == -EDQUOT)
		nsbox_fail(&e, NSBOX_E_LIMIT, 0,
			   "the queue of workspace '%s' is full: %u of its jobs wait", workspace,
			   options_limits_of(f->opt, workspace).queue);
	else
		nsbox_fail(&e, NSBOX_E_LIMIT, 0,
			   "the queue is full: %zu jobs wait, of %llu MB in all",
			   queue_length(f->queue), (unsigned long long)(f->asked_bytes >> 20));
	api_reply_error(rq, 429, &e);
}

/* NULL: it may, as *ret_workspace; else why not. */
static const char *may_submit(struct front *f, const struct who *who, const struct job_spec *spec,
			      const char **ret_workspace)
{
	const char *asked = spec->workspace_id ? spec->workspace_id : "";

	if (spec->as_operator && !who->all)
		return "only root and the service's owner are operators";
	*ret_workspace = who_workspace(&f->opt->ties, who, asked);
	if (!who->all && !who->workspace && tokens_own(f->tokens, asked))
		*ret_workspace = NULL;
	return *ret_workspace ? NULL : "this client may not use this workspace";
}

/*
 * What makes two requests the same job: what the client's header says; else the trace_id, as far
 * as the whole request is the same. Clients that see only their own jobs share no keys.
 */
static int make_key(const struct who *who, const struct job_spec *spec, const char *header,
		    const char *sha256, char **ret)
{
	char whose[32] = "";

	*ret = NULL;
	if (!who->all && !who->workspace)
		snprintf(whose, sizeof(whose), "%u", who->uid);
	if (header)
		return asprintf(ret, "%s/key/%s", whose, header) < 0 ? -ENOMEM : 0;
	if (!spec->trace_id || !*spec->trace_id)
		return 0;
	return asprintf(ret, "%s/trace/%s/%s", whose, spec->trace_id, sha256) < 0 ? -ENOMEM : 0;
}

struct asked {
	struct http_request *rq;
	struct who who;
	struct job_spec *spec;
	const char *workspace;
	char *key;
	char sha256[65];
	size_t size;
};

static void asked_done(struct asked *a)
{
	job_spec_free(a->spec);
	free(a->key);
}

/* Read a request; false: it is answered. */
static bool ask(struct front *f, struct http_request *rq, uint32_t kind, struct asked *a)
{
	const char *header = http_header(rq, "Idempotency-Key"), *why;
	struct nsbox_error err = { 0 };
	const char *body = http_body(rq, &a->size);
	int r;

	a->rq = rq;
	api_who(f, rq, &a->who);
	if (header && (kind != JOB_KIND_MAX || !*header || strlen(header) > KEY_MAX)) {
		f->metrics.counter[METRIC_INVALID]++;
		http_reply_error(rq, 400, "invalid",
				 "Idempotency-Key is for POST /v1/jobs, and has 1 to %d bytes",
				 KEY_MAX);
		return false;
	}
	r = request_parse(body, a->size, kind, &a->spec, &err);
	if (r == 0 && a->spec->without) {
		http_set_body(rq, take_ptr(&a->spec->without));
		body = http_body(rq, &a->size);
	}
	if (r == 0)
		r = digest_hex(body, a->size, a->sha256, &err);
	if (r < 0) {
		f->metrics.counter[METRIC_INVALID]++;
		api_reply_error(rq, 0, &err);
		return false;
	}
	why = may_submit(f, &a->who, a->spec, &a->workspace);
	if (why) {
		api_deny(f, rq, why);
		return false;
	}
	if (kind == JOB_KIND_MAX && make_key(&a->who, a->spec, header, a->sha256, &a->key) < 0) {
		http_reply_error(rq, 503, "nomem", "out of memory");
		return false;
	}
	return true;
}

/* True: answered, for the workspace has had its processor time. */
static bool is_used_up(struct front *f, const struct asked *a)
{
	uint64_t limit = options_limits_of(f->opt, a->workspace).cpu_s, wait;
	struct nsbox_error e = { 0 };

	wait = limit ? usage_wait(f->usage, a->workspace, limit, monotonic_us() / 1000000) : 0;
	if (!wait)
		return false;
	f->metrics.counter[METRIC_FULL]++;
	nsbox_fail(&e, NSBOX_E_LIMIT, 0,
		   "workspace '%s' has used the %llu s of processor time that it has within an "
		   "hour",
		   a->workspace, (unsigned long long)limit);
	api_reply_busy(a->rq, &e, wait);
	return true;
}

/* The session that it names, if it does; false: answered. */
static bool join(struct front *f, struct asked *a, struct session **ret)
{
	struct nsbox_error err = { 0 };
	int r;

	if (!a->spec->session_id)
		return true;
	r = session_join(f, &a->who, a->workspace, a->spec, ret, &err);
	if (r == -EAGAIN) {
		f->metrics.counter[METRIC_FULL]++;
		api_reply_busy(a->rq, &err, SESSION_RETRY_S);
	} else if (r < 0) {
		api_reply_error(a->rq, r == -EEXIST ? 409 : r == -ENOENT ? 404 : 0, &err);
	}
	return r == 0;
}

static struct job *submit(struct front *f, struct asked *a, bool sync, enum call_kind kind)
{
	struct job_ident ident = { .workspace = a->workspace,
				   .trace_id = a->spec->trace_id,
				   .traceparent = http_traceparent(a->rq),
				   .key = a->key,
				   .body_sha256 = a->sha256,
				   .kind = a->spec->kind,
				   .priority = a->spec->priority,
				   .uid = a->who.uid,
				   .sync = sync,
				   .interactive = a->spec->interactive,
				   .size = a->size };
	struct nsbox_error err = { 0 };
	struct session *session = NULL;
	struct job *j = NULL;
	int r;

	if (is_used_up(f, a) || !join(f, a, &session))
		return NULL;
	r = front_submit(f, &ident, &a->spec, sync ? NULL : http_take_body(a->rq), &j, &err);
	if (r == 0)
		j->session = session;
	else if (session)
		session_leave(session, NULL);
	if (r == 0 && call_add(j, a->rq, kind) == 0)
		return j;
	if (r == 0) {
		job_cancel(j, NSBOX_CAUSE_CANCELLED);
		http_reply_error(a->rq, 503, "nomem", "out of memory");
	} else if (r == -EAGAIN || r == -EDQUOT) {
		reply_full(f, a->rq, r, a->workspace);
	} else {
		f->metrics.counter[METRIC_NO_JOURNAL] += r == -ENOSPC;
		api_reply_error(a->rq, r == -ENOSPC ? 503 : 0, &err);
	}
	return NULL;
}

static bool is_closing(struct front *f, struct http_request *rq)
{
	bool ends = f->closing || f->draining;

	if (ends)
		http_reply_error(rq, 503, "unavailable", "the service is about to end");
	return ends;
}

static void execute(struct front *f, struct http_request *rq, uint32_t kind)
{
	struct asked a = { 0 };

	if (!is_closing(f, rq) && ask(f, rq, kind, &a))
		submit(f, &a, true, a.spec->interactive ? CALL_EVENTS : CALL_RESULT);
	asked_done(&a);
}

void api_python(struct front *f, struct http_request *rq, const char *rest)
{
	execute(f, rq, JOB_PYTHON);
}

void api_command(struct front *f, struct http_request *rq, const char *rest)
{
	execute(f, rq, JOB_COMMAND);
}

void api_post_session(struct front *f, struct http_request *rq, const char *rest)
{
	execute(f, rq, JOB_SESSION);
}

/* ------------------------------------------------------------------ the same job again */

struct answer {
	struct front *f;
	struct asked *a;
	bool found;
	struct json_object *o;
	char id[48];
};

static void on_same(void *ctx, const struct journal_row *row)
{
	struct answer *s = ctx;

	s->found = true;
	if (strcmp(row->body_sha256, s->a->sha256) != 0)
		return;
	s->o = row_object(row);
	snprintf(s->id, sizeof(s->id), "%s", row->id);
}

static struct job *same_fresh(struct front *f, const struct asked *a)
{
	for (struct job *j = f->fresh.first; j; j = j->next_fresh)
		if (!j->sync && strcmp(j->workspace, a->workspace) == 0 &&
		    strcmp(j->key, a->key) == 0)
			return j;
	return NULL;
}

static void reply_conflict(struct http_request *rq)
{
	http_reply_error(rq, 409, "conflict",
			 "this Idempotency-Key belongs to another request of this workspace");
}

/* True: answered, or on its way. */
static bool again(struct front *f, struct asked *a)
{
	struct answer s = { .f = f, .a = a };
	struct nsbox_error err = { 0 };
	struct job *j = same_fresh(f, a);
	int r;

	if (j) {
		if (strcmp(j->body_sha256, a->sha256) != 0)
			reply_conflict(a->rq);
		else if (call_add(j, a->rq, CALL_ACCEPTED) < 0)
			http_reply_error(a->rq, 503, "nomem", "out of memory");
		return true;
	}
	r = f->journal->ops->find_key(f->journal, a->workspace, a->key, on_same, &s, &err);
	if (r < 0)
		api_reply_error(a->rq, 503, &err);
	else if (s.found && !s.o)
		reply_conflict(a->rq);
	else if (s.found)
		reply_place(a->rq, 200, s.id, s.o);
	return r < 0 || s.found;
}

void api_post_job(struct front *f, struct http_request *rq, const char *rest)
{
	struct asked a = { 0 };

	if (is_closing(f, rq) || !ask(f, rq, JOB_KIND_MAX, &a))
		;
	else if (a.spec->interactive)
		http_reply_error(rq, 400, "invalid",
				 "/interactive: needs a caller that stays, at /v1/execute/command");
	else if (!(a.key && again(f, &a)))
		submit(f, &a, false, CALL_ACCEPTED);
	asked_done(&a);
}

/* ------------------------------------------------------------------ looking and cancelling */

struct listing {
	const struct who *who;
	struct json_object *list;
};

static void on_listed(void *ctx, const struct journal_row *row)
{
	struct listing *l = ctx;

	if (who_sees(l->who, row->uid, row->workspace))
		json_object_array_add(l->list, row_object(row));
}

/* Finished ones, newest first, behind those that wait or run, oldest first. */
void api_list_jobs(struct front *f, struct http_request *rq, const char *rest)
{
	struct json_object *o = json_object_new_object();
	struct who who;
	struct listing l = { &who, json_object_new_array() };
	struct nsbox_error err = { 0 };

	api_who(f, rq, &who);
	for (const struct job *j = f->first; j; j = j->next)
		if (j->recorded && who_sees(&who, j->uid, j->workspace))
			json_object_array_add(l.list, job_object(j));
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
		l->o = row_object(row);
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
	return j && j->recorded && who_sees(&who, j->uid, j->workspace) ? j : NULL;
}

/* It has not ended yet: that, too, is an answer. */
static void on_patience(void *ctx)
{
	struct call *c = ctx;

	api_reply(c->rq, 200, job_object(c->job), NULL);
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
		api_reply(rq, 200, job_object(j), NULL);
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
		api_reply(rq, 202, job_object(j), NULL);
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
	o = row_object(row);
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
	r = op->find(f->journal, id, on_found, &l, &err);
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
