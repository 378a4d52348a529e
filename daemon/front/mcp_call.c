/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tool that is being called: one request of our own after the other, until there is a result.
 *
 * Who gave a progressToken hears that it began, and then every second what it is at. A call that is
 * cancelled drops the request it waits for, which ends the job as if its client had gone.
 */
#include <json-c/json.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/front/front.h"
#include "daemon/front/json_reply.h"
#include "daemon/front/mcp.h"
#include "nsbox/util.h"

#define TICK_US UINT64_C(1000000)

static void call_free(struct mcp_call *c)
{
	struct mcp_call **p = &c->stream->calls;

	while (*p != c)
		p = &(*p)->next;
	*p = c->next;
	loop_timer_cancel(c->m->f->loop, &c->tick);
	json_object_put(c->id);
	json_object_put(c->token);
	json_object_put(c->args);
	json_object_put(c->kept);
	free(c->text);
	free(c);
}

void mcp_call_drop(struct mcp_call *c)
{
	struct http_request *inner = take_ptr(&c->inner);

	if (inner)
		http_inner_drop(inner);
	call_free(c);
}

unsigned mcp_calls_of(const struct mcp *m, const struct mcp_client *client)
{
	unsigned n = 0;

	for (const struct mcp_session *s = m->sessions; s; s = s->next)
		for (const struct mcp_stream *st = s->streams; st; st = st->next)
			for (const struct mcp_call *c = st->calls; c; c = c->next)
				n += mcp_client_same(&s->client, client);
	for (const struct mcp_stream *st = m->loose; st; st = st->next)
		for (const struct mcp_call *c = st->calls; c; c = c->next)
			n += mcp_client_same(&st->client, client);
	return n;
}

/* ------------------------------------------------------------------ progress */

/* The job that it waits for, if it is one. */
static const struct job *job_of(const struct mcp_call *c)
{
	const struct call *waits = c->inner ? *http_data(c->inner) : NULL;

	return waits ? waits->job : NULL;
}

static void tell(struct mcp_call *c)
{
	const struct job *j = job_of(c);
	struct json_object *o = json_object_new_object();
	unsigned s = (unsigned)((monotonic_us() - c->began_us) / 1000000);
	char text[96];

	if (!j)
		snprintf(text, sizeof(text), "at work for %u s", s);
	else if (!j->started)
		snprintf(text, sizeof(text), "%s for %u s",
			 j->phase == JOB_QUEUED ? "queued" : "being set up", s);
	else
		snprintf(text, sizeof(text), "running for %u s, %zu bytes of output", s,
			 j->run->out.len + j->run->err.len);
	json_put(o, "progressToken", json_object_get(c->token));
	json_put_u64(o, "progress", ++c->told);
	if (c->version >= MCP_2025_03_26)
		json_put_text(o, "message", text);
	mcp_stream_send(c->stream, mcp_notification_new("notifications/progress", o));
}

static void on_tick(void *ctx)
{
	struct mcp_call *c = ctx;

	tell(c);
	loop_timer_set(c->m->f->loop, &c->tick, TICK_US);
}

/* ------------------------------------------------------------------ asking */

/* NULL where it is no JSON: a file's content comes this way, too, and need not end with a NUL. */
static struct json_object *parse(const char *s, size_t len)
{
	struct json_tokener *tok = json_tokener_new_ex(MCP_DEPTH_MAX * 2);
	struct json_object *o = NULL;

	if (tok && len <= INT_MAX)
		o = json_tokener_parse_ex(tok, s, (int)len);
	if (tok)
		json_tokener_free(tok);
	return o;
}

static void on_answered(void *ctx, int status, const char *body, size_t len)
{
	struct mcp_call *c = ctx;
	struct json_object *reply = NULL;

	c->inner = NULL;
	if (body && len && body[0] == '{')
		reply = parse(body, len);
	c->answered(c, status, reply, body ? body : "", len);
	json_object_put(reply);
}

static char *body_text(struct json_object *body, size_t *ret_len)
{
	const char *text = json_object_to_json_string_length(
		body, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, ret_len);

	return text ? strdup(text) : NULL;
}

void mcp_call_ask(struct mcp_call *c, const struct mcp_ask *ask, mcp_answered_fn *answered)
{
	const struct mcp_client *client = &c->stream->client;
	struct http_inner in = { .method = ask->method,
				 .path = ask->path,
				 .query = ask->query,
				 .headers = ask->headers,
				 .peer = client->uid,
				 .workspace = client->tied ? client->workspace : NULL,
				 .answered = on_answered,
				 .ctx = c };

	if (ask->body) {
		in.body = body_text(ask->body, &in.len);
		json_object_put(ask->body);
	} else if (ask->raw) {
		in.body = malloc(ask->len + 1);
		in.len = ask->len;
		if (in.body)
			memcpy(in.body, ask->raw, ask->len);
	}
	c->answered = answered;
	c->inner = (ask->body || ask->raw) && !in.body ? NULL : http_inner(c->m->f->http, &in);
	if (!c->inner)
		mcp_call_fail(c, "out of memory");
}

/* ------------------------------------------------------------------ the end */

static void finish(struct mcp_call *c, struct json_object *message)
{
	struct mcp_stream *st = c->stream;

	call_free(c);
	mcp_stream_answer(st, message, 200);
}

void mcp_call_done(struct mcp_call *c, struct json_object *structured, bool is_error)
{
	finish(c, mcp_result_new(c->id, mcp_tool_result(c->version, structured, is_error)));
}

void mcp_call_fail(struct mcp_call *c, const char *fmt, ...)
{
	struct json_object *result;
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	result = mcp_tool_result(c->version, json_object_new_string(text), true);
	finish(c, mcp_result_new(c->id, result));
}

void mcp_call_fail_reply(struct mcp_call *c, struct json_object *reply, int status)
{
	mcp_call_fail(c, "%s%s", mcp_reply_error(reply),
		      status == 429 ? " (busy: try again later)" : "");
}

bool mcp_call_cancel(struct mcp_stream *st, struct json_object *id)
{
	for (struct mcp_call *c = st->calls; c; c = c->next) {
		if (!json_object_equal(c->id, id))
			continue;
		mcp_call_drop(c);
		mcp_stream_answer(st, NULL, 202);
		return true;
	}
	return false;
}

/* ------------------------------------------------------------------ the beginning */

static void on_made(struct mcp_call *c, int status, struct json_object *reply, const char *body,
		    size_t len)
{
	if (status == 201)
		c->tool->start(c);
	else
		mcp_call_fail_reply(c, reply, status);
}

/* Commands make their session; requests about files need one that is there. */
static bool is_there(const struct mcp_call *c)
{
	const struct mcp_place *p = &c->stream->place;
	struct session *s = NULL;
	struct who who;

	mcp_who(c->m, &c->stream->client, &who);
	return session_find(c->m->f, &who, p->id, p->workspace, &s) == 1 &&
	       s->state == SESSION_UP && s->ready;
}

static void make_session(struct mcp_call *c)
{
	struct json_object *o = json_object_new_object();
	struct mcp_ask ask = { .method = "POST", .path = "/v1/sessions", .body = o };

	json_put_text(o, "workspace_id", c->stream->place.workspace);
	json_put_text(o, "session_id", c->stream->place.id);
	mcp_call_ask(c, &ask, on_made);
}

void mcp_call_start(const struct mcp_turn *t, const struct mcp_message *msg,
		    const struct mcp_tool *tool, struct json_object *args, struct json_object *kept)
{
	struct mcp_call *c = calloc(1, sizeof(*c));

	t->stream->pending++;
	if (!c) {
		mcp_stream_answer(t->stream,
				  mcp_error_new(msg->id, MCP_E_INTERNAL, NULL, "out of memory"),
				  200);
		return;
	}
	*c = (struct mcp_call){ .next = t->stream->calls,
				.stream = t->stream,
				.m = t->m,
				.version = t->version,
				.id = json_object_get(msg->id),
				.token = json_object_get(mcp_member(
					mcp_member(msg->params, "_meta"), "progressToken")),
				.tool = tool,
				.args = json_object_get(args),
				.kept = json_object_get(kept),
				.began_us = monotonic_us() };
	c->tick = (struct loop_timer){ .fn = on_tick, .ctx = c };
	t->stream->calls = c;
	if (c->token && t->stream->form == MCP_EVENTS)
		on_tick(c);
	if (tool->in_session && !is_there(c))
		make_session(c);
	else
		tool->start(c);
}
