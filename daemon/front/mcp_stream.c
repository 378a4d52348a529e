/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the answers to one POST go, and what a GET reads: one JSON body, or server-sent events.
 *
 * Events of an MCP session are kept until the stream is over and something newer needs the room, so
 * that a client whose connection broke comes back with Last-Event-ID, "STREAM-EVENT", and gets what
 * it has missed. A connection that breaks ends nothing there: what a call was for is still due, and
 * notifications/cancelled says where it is not. A request that stands for itself has no such place:
 * there the end of the connection is the cancellation.
 */
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "daemon/front/front.h"
#include "daemon/front/mcp.h"
#include "nsbox/util.h"

struct mcp_reader {
	struct mcp_stream *st; /* NULL: it is gone */
	struct mcp *m;
	struct http_request *rq;
	uint64_t seq; /* the last event that was taken */
	char *text;   /* one that is being sent, from `from` on */
	size_t len, from;
};

/* ------------------------------------------------------------------ life */

struct mcp_stream *mcp_stream_new(struct mcp *m, struct mcp_session *s, enum mcp_form form,
				  const struct mcp_place *place, const struct mcp_client *client)
{
	struct mcp_stream *st = calloc(1, sizeof(*st));
	struct mcp_stream **p = s ? &s->streams : &m->loose;

	if (!st)
		return NULL;
	st->m = m;
	st->session = s;
	st->form = form;
	st->place = *place;
	st->client = *client;
	st->status = 200;
	st->number = s ? ++s->numbers : 0;
	st->ids = s && !s->sse && form == MCP_EVENTS;
	if (form == MCP_BODY)
		st->answers = json_object_new_array();
	while (*p)
		p = &(*p)->next;
	*p = st;
	return st;
}

static void events_free(struct mcp_stream *st)
{
	for (struct mcp_event *e = st->first, *next; e; e = next) {
		next = e->next;
		free(e);
	}
	st->first = st->last = NULL;
	st->n_events = 0;
	st->bytes = 0;
}

void mcp_stream_free(struct mcp_stream *st)
{
	struct mcp_stream **p = st->session ? &st->session->streams : &st->m->loose;

	while (*p != st)
		p = &(*p)->next;
	*p = st->next;
	while (st->calls)
		mcp_call_drop(st->calls);
	if (st->reader) {
		st->reader->st = NULL;
		http_wake(st->reader->rq);
	}
	if (st->rq)
		http_reply_error(st->rq, 404, "not_found", "the MCP session has ended");
	events_free(st);
	json_object_put(st->answers);
	json_object_put(st->listen);
	free(st);
}

struct mcp_stream *mcp_stream_find(struct mcp_session *s, uint64_t number)
{
	struct mcp_stream *st = s->streams;

	while (st && st->number != number)
		st = st->next;
	return st;
}

void mcp_stream_trim(struct mcp_session *s)
{
	unsigned n = 0;
	size_t bytes = 0;

	for (const struct mcp_stream *st = s->streams; st; st = st->next) {
		n += st->over;
		bytes += st->bytes;
	}
	for (struct mcp_stream *st = s->streams, *next; st; st = next) {
		next = st->next;
		if (n <= MCP_KEPT_STREAMS_MAX && bytes <= MCP_KEPT_BYTES_MAX)
			break;
		if (!st->over || st->reader)
			continue;
		n--;
		bytes -= st->bytes;
		mcp_stream_free(st);
	}
}

/* ------------------------------------------------------------------ reading */

static bool next_text(struct mcp_reader *r)
{
	const struct mcp_event *e = r->st->first;

	while (e && e->seq <= r->seq)
		e = e->next;
	if (!e)
		return false;
	r->text = malloc(e->len + 1);
	if (!r->text)
		return false;
	memcpy(r->text, e->text, e->len);
	r->len = e->len;
	r->from = 0;
	r->seq = e->seq;
	return true;
}

static ssize_t on_read(void *ctx, char *buf, size_t max)
{
	struct mcp_reader *r = ctx;
	size_t n;

	if (!r->text && !(r->st && next_text(r)))
		return !r->st || r->st->over ? -1 : 0;
	n = MIN(max, r->len - r->from);
	memcpy(buf, r->text + r->from, n);
	r->from += n;
	if (r->from == r->len)
		free_ptr(&r->text);
	return (ssize_t)n;
}

static void on_done(void *ctx)
{
	struct mcp_reader *r = ctx;
	struct mcp_stream *st = r->st;

	r->m->open_streams--;
	if (st) {
		st->reader = NULL;
		if (st->session && st->session->sse)
			mcp_session_end(st->session);
		else if (!st->session)
			mcp_stream_free(st);
	}
	free(r->text);
	free(r);
}

/* Tells a client that comes back from where; older ones take an empty event for a broken one. */
static void prime(struct mcp_reader *r)
{
	const struct mcp_session *s = r->st->session;
	int n;

	if (!s || !r->st->ids || s->version < MCP_2025_11_25 || r->seq)
		return;
	n = asprintf(&r->text, "id: %" PRIu64 "-0\ndata: \n\n", r->st->number);
	if (n < 0)
		r->text = NULL;
	r->len = n < 0 ? 0 : (size_t)n;
}

bool mcp_stream_attach(struct mcp_stream *st, struct http_request *rq, uint64_t after)
{
	static const struct http_stream stream = { on_read, on_done };
	const char *const headers[] = { "Content-Type",
					"text/event-stream",
					"Cache-Control",
					"no-store",
					"X-Accel-Buffering",
					"no",
					"Mcp-Session-Id",
					st->session && !st->session->sse ? st->session->id : NULL,
					NULL };
	const char *const loose[] = { "Content-Type",
				      "text/event-stream",
				      "Cache-Control",
				      "no-store",
				      "X-Accel-Buffering",
				      "no",
				      NULL };
	struct mcp_reader *r = st->m->open_streams < MCP_STREAMS_MAX ? calloc(1, sizeof(*r)) : NULL;

	if (!r) {
		http_reply_error(rq, 503, "limit", "%u event streams are open",
				 st->m->open_streams);
		return false;
	}
	*r = (struct mcp_reader){ .st = st, .m = st->m, .rq = rq, .seq = after };
	st->m->open_streams++;
	st->reader = r;
	prime(r);
	http_reply_stream(rq, &stream, r, headers[7] ? headers : loose);
	return true;
}

void mcp_stream_wait(struct mcp_stream *st, struct http_request *rq)
{
	st->rq = rq;
}

/* ------------------------------------------------------------------ writing */

static void push(struct mcp_stream *st, const char *name, const char *data)
{
	char id[64] = "";
	struct mcp_event *e;
	int n;

	st->seq++;
	if (st->ids)
		snprintf(id, sizeof(id), "id: %" PRIu64 "-%" PRIu64 "\n", st->number, st->seq);
	n = snprintf(NULL, 0, "%sevent: %s\ndata: %s\n\n", id, name, data);
	e = n > 0 ? malloc(sizeof(*e) + (size_t)n + 1) : NULL;
	if (!e)
		return; /* the client sees a stream without its answer, and asks again */
	snprintf(e->text, (size_t)n + 1, "%sevent: %s\ndata: %s\n\n", id, name, data);
	e->next = NULL;
	e->seq = st->seq;
	e->len = (size_t)n;
	*(st->last ? &st->last->next : &st->first) = e;
	st->last = e;
	st->n_events++;
	st->bytes += e->len;
}

static bool is_too_much(const struct mcp_stream *st)
{
	return st->n_events > MCP_EVENTS_MAX || st->bytes > MCP_KEPT_BYTES_MAX;
}

/*
 * The oldest go first. Of a stream that cannot be resumed those that were taken go, and one that is
 * not read comes to its end.
 */
static void forget(struct mcp_stream *st)
{
	while (st->first && st->first != st->last &&
	       (st->ids ? is_too_much(st) : st->reader && st->first->seq <= st->reader->seq)) {
		struct mcp_event *e = st->first;

		st->first = e->next;
		st->n_events--;
		st->bytes -= e->len;
		free(e);
	}
	if (!st->ids && st->first != st->last && is_too_much(st))
		st->over = true;
}

void mcp_stream_event(struct mcp_stream *st, const char *name, const char *data)
{
	if (st->over)
		return;
	push(st, name, data);
	forget(st);
	if (st->reader)
		http_wake(st->reader->rq);
}

static void send_text(struct mcp_stream *st, struct json_object *message)
{
	const char *text = json_object_to_json_string_ext(
		message, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);

	if (text)
		mcp_stream_event(st, "message", text);
}

void mcp_stream_send(struct mcp_stream *st, struct json_object *message)
{
	if (st->form == MCP_EVENTS)
		send_text(st, message);
	json_object_put(message);
}

static void reply_body(struct mcp_stream *st)
{
	struct http_request *rq = take_ptr(&st->rq);
	size_t n = json_object_array_length(st->answers);
	const char *const headers[] = { "Mcp-Session-Id",
					st->session && !st->session->sse ? st->session->id : NULL,
					NULL };

	if (!rq)
		return;
	if (n == 0)
		http_reply(rq, 202, strdup(""), 0, headers[1] ? headers : NULL);
	else
		api_reply(rq, st->status,
			  json_object_get(st->batch ? st->answers
						    : json_object_array_get_idx(st->answers, 0)),
			  headers[1] ? headers : NULL);
}

void mcp_stream_end(struct mcp_stream *st)
{
	struct mcp_session *s = st->session;

	st->over = true;
	if (st->form == MCP_BODY) {
		reply_body(st);
		mcp_stream_free(st);
		return;
	}
	if (st->reader)
		http_wake(st->reader->rq);
	if (s)
		mcp_stream_trim(s);
}

void mcp_stream_answer(struct mcp_stream *st, struct json_object *message, int status)
{
	if (message && st->form == MCP_BODY)
		json_object_array_add(st->answers, json_object_get(message));
	else if (message)
		send_text(st, message);
	json_object_put(message);
	st->status = status;
	if (--st->pending == 0 && !st->keep)
		mcp_stream_end(st);
}
