/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface's part about jobs that comes first: taking them.
 *
 * A synchronous call is a job whose reply goes to the caller that waits; an asynchronous one is the
 * same job, whose reply the journal keeps.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/digest.h"
#include "daemon/front/call.h"
#include "daemon/front/hold.h"
#include "nsbox/util.h"

#define KEY_MAX		255
#define SESSION_RETRY_S 5 /* sessions end by being left alone: not at once */

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
	/* What is shared with a workspace is for those that belong to it. */
	if (!who->all && !who->workspace &&
	    (tokens_own(f->tokens, asked) || options_shares(f->opt, asked)))
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
				   .tty = a->spec->tty,
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
	s->o = call_row_object(row);
	snprintf(s->id, sizeof(s->id), "%s", row->id);
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
	struct job *j = hold_find(f, a->workspace, a->key);
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
		call_reply_place(a->rq, 200, s.id, s.o);
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
