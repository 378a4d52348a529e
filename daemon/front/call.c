/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that wait to hear of a job, and what they hear. What is told was written first: a
 * request waits as a `call` of its job until record.c says so.
 */
#include "daemon/front/call.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/text.h"
#include "daemon/front/box_files.h"
#include "daemon/front/images.h"
#include "daemon/front/json_reply.h"
#include "daemon/front/mcp.h"
#include "daemon/front/session_narrow.h"
#include "daemon/front/snapshot.h"
#include "daemon/front/tools.h"
#include "nsbox/util.h"

/* ------------------------------------------------------------------ objects */

struct json_object *call_row_object(const struct journal_row *row)
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

struct json_object *call_job_object(const struct job *j)
{
	struct journal_row row;

	job_row(j, &row);
	return call_row_object(&row);
}

/* ------------------------------------------------------------------ who waits */

int call_add(struct job *j, struct http_request *rq, enum call_kind kind)
{
	struct call *c = malloc(sizeof(*c));

	if (!c)
		return -ENOMEM;
	*c = (struct call){ .next = j->calls, .job = j, .rq = rq, .kind = kind };
	j->calls = c;
	*http_data(rq) = c;
	return 0;
}

void call_free(struct call *c)
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
		if (!mcp_gone(ctx, rq) && !api_tools_gone(ctx, rq) && !box_files_gone(ctx, rq) &&
		    !session_narrow_gone(ctx, rq) && !snapshot_gone(ctx, rq) &&
		    !images_gone(ctx, rq))
			control_gone(ctx, rq);
		return;
	}
	j = c->job;
	kind = c->kind;
	call_free(c);
	if (kind == CALL_RESULT || kind == CALL_EVENTS)
		job_cancel(j, NSBOX_CAUSE_CANCELLED);
}

void call_reply_place(struct http_request *rq, int status, const char *id, struct json_object *o)
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
			call_reply_place(c->rq, 202, j->id, call_job_object(j));
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
	o = call_row_object(&row);
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
