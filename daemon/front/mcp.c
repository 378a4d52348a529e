/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /mcp/WORKSPACE/SESSION and /mcp/tools/ID by HTTP: who may speak, which era a request belongs to,
 * and where its answers go.
 *
 *	POST	one message, or several in 2025-03-26 and before
 *	GET	with Mcp-Session-Id: the session's own events, or, with Last-Event-ID, those of a stream
 *		that broke; without: the transport of 2024-11-05
 *	DELETE	the end of an MCP session
 *
 * A browser says by Origin which page asks. Pages of this machine may, and those the operator names:
 * any other one would be a stranger's that was led here by a name of its own (DNS rebinding).
 */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/text.h"
#include "daemon/front/front.h"
#include "daemon/front/json_reply.h"
#include "daemon/front/mcp.h"
#include "nsbox/util.h"
#include "policy/json_strict.h"

/* ------------------------------------------------------------------ life */

int mcp_new(struct front *f, struct mcp **ret, struct nsbox_error *err)
{
	struct mcp *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "MCP");
	m->f = f;
	m->sweep = (struct loop_timer){ .fn = mcp_sweep, .ctx = m };
	r = mcp_tools_read(&m->tools, err);
	if (r < 0) {
		free(m);
		return r;
	}
	*ret = m;
	return 0;
}

void mcp_close(struct mcp *m)
{
	if (!m)
		return;
	while (m->sessions)
		mcp_session_end(m->sessions);
	for (struct mcp_stream *st = m->loose; st; st = st->next)
		if (st->keep) {
			st->over = true;
			if (st->reader)
				mcp_stream_end(st);
		}
}

void mcp_free(struct mcp *m)
{
	if (!m)
		return;
	mcp_close(m);
	while (m->loose)
		mcp_stream_free(m->loose);
	loop_timer_cancel(m->f->loop, &m->sweep);
	json_object_put(m->tools);
	free(m);
}

static bool gone_from(struct mcp_stream *list, const struct http_request *rq)
{
	for (struct mcp_stream *st = list; st; st = st->next)
		if (st->rq == rq) {
			st->rq = NULL;
			mcp_stream_free(st);
			return true;
		}
	return false;
}

bool mcp_gone(struct front *f, struct http_request *rq)
{
	if (!f->mcp)
		return false;
	for (struct mcp_session *s = f->mcp->sessions; s; s = s->next)
		if (gone_from(s->streams, rq))
			return true;
	return gone_from(f->mcp->loose, rq);
}

/* ------------------------------------------------------------------ refusing */

/* Of a message that stands for itself and could not be read there is no id to speak of. */
static void reply_rpc(struct http_request *rq, int status, struct json_object *error)
{
	api_reply(rq, status, error, NULL);
}

static void refuse(struct http_request *rq, int status, int code, const char *text)
{
	reply_rpc(rq, status, mcp_error_new(NULL, code, NULL, "%s", text));
}

static bool is_loopback(const char *host, size_t n)
{
	static const char *const names[] = { "localhost", "127.0.0.1", "[::1]" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strlen(names[i]) == n && strncasecmp(host, names[i], n) == 0)
			return true;
	return false;
}

static bool origin_good(const struct front *f, const char *origin)
{
	const char *host = strstr(origin, "://");
	size_t n;

	for (unsigned i = 0; i < f->opt->n_origins; i++)
		if (strcasecmp(f->opt->origins[i], origin) == 0)
			return true;
	if (!host)
		return false;
	host += 3;
	n = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/");
	return strlen(host) >= n && is_loopback(host, n);
}

static bool take_id(char *ret, size_t size, const char *s, size_t n)
{
	static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				   "0123456789._:@-";

	if (n == 0 || n >= size || s[0] == '.' || strspn(s, good) < n)
		return false;
	memcpy(ret, s, n);
	ret[n] = 0;
	return true;
}

/* "/mcp/" WORKSPACE "/" SESSION */
static bool read_place(const char *path, struct mcp_place *ret)
{
	const char *first = path + strlen("/mcp/"), *second = strchr(first, '/');
	size_t n;

	*ret = (struct mcp_place){ 0 };
	if (!second || second == first || strchr(second + 1, '/'))
		return false;
	n = (size_t)(second - first);
	if (n >= sizeof(ret->workspace))
		return false;
	ret->functions = n == strlen("tools") && strncmp(first, "tools", n) == 0;
	if (!ret->functions)
		memcpy(ret->workspace, first, n);
	return take_id(ret->id, sizeof(ret->id), second + 1, strlen(second + 1));
}

/* What is asked of all methods; false: answered. */
static bool enter(struct front *f, struct http_request *rq, struct mcp_turn *t,
		  struct mcp_place *place, struct mcp_client *client)
{
	const char *origin = http_header(rq, "Origin"), *workspace = http_workspace(rq);

	if (origin && !origin_good(f, origin)) {
		f->metrics.counter[METRIC_DENIED]++;
		refuse(rq, 403, MCP_E_REQUEST,
		       "pages of this Origin may not use the service (mcpOrigins)");
		return false;
	}
	if (!read_place(http_path(rq), place)) {
		refuse(rq, 404, MCP_E_REQUEST,
		       "the path is /mcp/WORKSPACE/SESSION or /mcp/tools/ID");
		return false;
	}
	*client = (struct mcp_client){ .uid = http_peer(rq), .tied = workspace != NULL };
	if (workspace)
		snprintf(client->workspace, sizeof(client->workspace), "%s", workspace);
	*t = (struct mcp_turn){ .m = f->mcp, .place = place, .client = client };
	if (!place->functions || mcp_functions_there(f->mcp, place, client))
		return true;
	refuse(rq, 404, MCP_E_REQUEST, "no tool has this id");
	return false;
}

/* The MCP session that a request names; false: answered. */
static bool take_session(struct http_request *rq, struct mcp_turn *t, const char *id)
{
	t->session = mcp_session_find(t->m, id, t->place, t->client);
	if (t->session)
		return true;
	refuse(rq, 404, MCP_E_REQUEST, "there is no such MCP session: initialize again");
	return false;
}

/* ------------------------------------------------------------------ the modern era */

/* A header's value as it was meant: "=?base64?...?=" stands for what it encodes. */
static bool header_is(const struct http_request *rq, const char *name, const char *want)
{
	static const char begin[] = "=?base64?", end[] = "?=";
	const char *v = http_header(rq, name);
	size_t n = v ? strlen(v) : 0, len = 0;
	auto_free unsigned char *raw = NULL;

	if (!v || n < sizeof(begin) - 1 + sizeof(end) - 1 ||
	    strncmp(v, begin, sizeof(begin) - 1) != 0 || strcmp(v + n - 2, end) != 0)
		return v && strcmp(v, want) == 0;
	return base64_decode(v + sizeof(begin) - 1, n - (sizeof(begin) - 1) - 2, &raw, &len) == 0 &&
	       len == strlen(want) && memcmp(raw, want, len) == 0;
}

/* Headers repeat what the body says: what they say has to be the same. NULL: it is. */
static struct json_object *check_headers(const struct http_request *rq,
					 const struct mcp_message *msg)
{
	const char *name = mcp_text(msg->params, "name");
	struct json_object *meta = mcp_member(msg->params, "_meta");

	if (!msg->version)
		return mcp_error_new(msg->id, MCP_E_PARAMS, NULL,
				     "_meta lacks io.modelcontextprotocol/protocolVersion");
	if (!header_is(rq, "MCP-Protocol-Version", msg->version))
		return mcp_error_new(msg->id, MCP_E_HEADER, NULL,
				     "Header mismatch: MCP-Protocol-Version is not '%.40s'",
				     msg->version);
	if (mcp_version_of(msg->version) != MCP_2026_07_28)
		return mcp_version_error(msg->id, msg->version);
	if (!header_is(rq, "Mcp-Method", msg->method))
		return mcp_error_new(msg->id, MCP_E_HEADER, NULL,
				     "Header mismatch: Mcp-Method is not '%.64s'", msg->method);
	if (strcmp(msg->method, "tools/call") == 0 && name && !header_is(rq, "Mcp-Name", name))
		return mcp_error_new(msg->id, MCP_E_HEADER, NULL,
				     "Header mismatch: Mcp-Name is not '%.128s'", name);
	if (!json_object_is_type(mcp_member(meta, "io.modelcontextprotocol/clientCapabilities"),
				 json_type_object))
		return mcp_error_new(msg->id, MCP_E_PARAMS, NULL,
				     "_meta lacks io.modelcontextprotocol/clientCapabilities");
	return NULL;
}

static bool accepts(const struct http_request *rq, const char *type)
{
	const char *accept = http_header(rq, "Accept");

	return accept && strstr(accept, type);
}

/* Of one message a client that wants to hear of progress, or of changes, gets events. */
static enum mcp_form form_of(const struct mcp_turn *t, const struct http_request *rq,
			     const struct mcp_message *msg)
{
	bool progress = mcp_member(mcp_member(msg->params, "_meta"), "progressToken");

	if (!msg->method || !accepts(rq, "text/event-stream"))
		return MCP_BODY;
	if (strcmp(msg->method, "tools/call") == 0)
		return t->session || progress ? MCP_EVENTS : MCP_BODY;
	return strcmp(msg->method, "subscriptions/listen") == 0 && !t->session ? MCP_EVENTS
									       : MCP_BODY;
}

/* ------------------------------------------------------------------ answering */

static struct mcp_stream *open_stream(struct mcp_turn *t, struct http_request *rq,
				      enum mcp_form form)
{
	struct mcp_stream *st = mcp_stream_new(t->m, t->session, form, t->place, t->client);

	if (!st) {
		http_reply_error(rq, 503, "nomem", "out of memory");
		return NULL;
	}
	t->stream = st;
	if (!t->session)
		http_needs_whole(rq);
	st->pending = 1; /* until all was handled */
	if (form == MCP_BODY) {
		mcp_stream_wait(st, rq);
	} else if (!mcp_stream_attach(st, rq, 0)) {
		mcp_stream_free(st);
		return NULL;
	}
	return st;
}

static void handle_one(struct mcp_turn *t, struct http_request *rq, const struct mcp_message *msg)
{
	struct mcp_stream *st = open_stream(t, rq, form_of(t, rq, msg));

	if (!st)
		return;
	mcp_handle(t, msg);
	mcp_stream_answer(st, NULL, msg->id ? st->status : 202);
}

/* Up to 2025-03-26 a body may hold several. */
static void handle_batch(struct mcp_turn *t, struct http_request *rq, struct json_object *list)
{
	size_t n = json_object_array_length(list);
	bool asks = false;
	struct mcp_stream *st;
	struct mcp_message msg;
	const char *why;
	int code;

	if (t->version > MCP_2025_03_26 || n == 0 || n > MCP_BATCH_MAX) {
		refuse(rq, 400, MCP_E_REQUEST,
		       n ? "several messages at once are of 2025-03-26 and before, 32 at most"
			 : "the list of messages is empty");
		return;
	}
	for (size_t i = 0; i < n; i++)
		asks |= mcp_member(json_object_array_get_idx(list, i), "id") != NULL;
	st = open_stream(t, rq, asks && accepts(rq, "text/event-stream") ? MCP_EVENTS : MCP_BODY);
	if (!st)
		return;
	st->batch = true;
	for (size_t i = 0; i < n; i++) {
		code = mcp_message_read(json_object_array_get_idx(list, i), &msg, &why);
		if (code == 0 && msg.method && strcmp(msg.method, "initialize") != 0) {
			mcp_handle(t, &msg);
		} else if (code || msg.method) {
			st->pending++;
			mcp_stream_answer(st,
					  mcp_error_new(msg.id, code ? code : MCP_E_REQUEST, NULL,
							"%s",
							code ? why : "initialize stands alone"),
					  200);
		}
	}
	mcp_stream_answer(st, NULL, st->status);
}

static void handle_modern(struct mcp_turn *t, struct http_request *rq,
			  const struct mcp_message *msg)
{
	struct json_object *error = check_headers(rq, msg);

	if (error) {
		reply_rpc(rq, 400, error);
		return;
	}
	t->session = NULL;
	t->version = MCP_2026_07_28;
	handle_one(t, rq, msg);
}

static void handle_initialize(struct mcp_turn *t, struct http_request *rq,
			      const struct mcp_message *msg)
{
	const char *why;

	if (!msg->id) {
		refuse(rq, 400, MCP_E_REQUEST, "initialize is a request: it has an id");
		return;
	}
	t->session = mcp_session_new(t->m, t->place, t->client, &why);
	if (!t->session) {
		refuse(rq, 429, MCP_E_INTERNAL, why);
		return;
	}
	handle_one(t, rq, msg);
	if (!t->session->initialized)
		mcp_session_end(t->session);
}

/* The version that a header names has to be one of those that have sessions. */
static bool check_version(struct http_request *rq)
{
	const char *v = http_header(rq, "MCP-Protocol-Version");

	if (!v || mcp_version_of(v) <= MCP_LEGACY_LAST)
		return true;
	reply_rpc(rq, 400, mcp_version_error(NULL, v));
	return false;
}

static void handle_legacy(struct mcp_turn *t, struct http_request *rq, struct json_object *body)
{
	const char *id = http_header(rq, "Mcp-Session-Id"), *why = "";
	struct mcp_message msg = { 0 };
	bool batch = json_object_is_type(body, json_type_array);
	int code = batch ? 0 : mcp_message_read(body, &msg, &why);

	if (code) {
		reply_rpc(rq, 400, mcp_error_new(NULL, code, NULL, "%s", why));
	} else if (!id && msg.method && strcmp(msg.method, "initialize") == 0) {
		handle_initialize(t, rq, &msg);
	} else if (!id) {
		refuse(rq, 400, MCP_E_REQUEST,
		       "Mcp-Session-Id is missing: initialize first, or speak 2026-07-28");
	} else if (check_version(rq) && take_session(rq, t, id)) {
		t->version = t->session->version;
		if (batch)
			handle_batch(t, rq, body);
		else if (msg.method && strcmp(msg.method, "initialize") == 0)
			refuse(rq, 400, MCP_E_REQUEST, "this MCP session is initialized");
		else
			handle_one(t, rq, &msg);
	}
}

/* ------------------------------------------------------------------ 2024-11-05 */

/* The answers come on the session's one stream; each message may be of either era. */
static void handle_sse(struct mcp_turn *t, struct http_request *rq, struct json_object *body)
{
	struct mcp_session *s = t->session;
	struct mcp_message msg;
	const char *why;
	int code = mcp_message_read(body, &msg, &why);

	if (code) {
		reply_rpc(rq, 400, mcp_error_new(msg.id, code, NULL, "%s", why));
		return;
	}
	http_reply(rq, 202, strdup(""), 0, NULL);
	t->stream = s->streams;
	t->version = s->version;
	if (msg.version) {
		t->version = mcp_version_of(msg.version);
		if (t->version != MCP_2026_07_28) {
			t->stream->pending++;
			mcp_stream_answer(t->stream, mcp_version_error(msg.id, msg.version), 400);
			return;
		}
	}
	mcp_handle(t, &msg);
}

static void begin_sse(struct mcp_turn *t, struct http_request *rq)
{
	char place[sizeof(t->place->workspace) + sizeof(t->place->id) + 96];
	auto_free char *path = path_encode(http_path(rq));
	const char *why = "out of memory";
	struct mcp_session *s = path ? mcp_session_new(t->m, t->place, t->client, &why) : NULL;
	struct mcp_stream *st = NULL;

	if (s) {
		s->sse = true;
		st = mcp_stream_new(t->m, s, MCP_EVENTS, t->place, t->client);
	}
	if (!st) {
		if (s)
			mcp_session_end(s);
		refuse(rq, 429, MCP_E_INTERNAL, why);
		return;
	}
	st->keep = true;
	snprintf(place, sizeof(place), "%s?sessionId=%s", path, s->id);
	mcp_stream_event(st, "endpoint", place);
	if (!mcp_stream_attach(st, rq, 0))
		mcp_session_end(s);
}

/* ------------------------------------------------------------------ methods */

void mcp_post(struct front *f, struct http_request *rq, const char *rest)
{
	const struct json_limits lim = { .max_size = REQUEST_BODY_MAX,
					 .max_depth = MCP_DEPTH_MAX,
					 .max_nodes = MCP_NODES_MAX,
					 .code = NSBOX_E_INVALID };
	const char *sse = http_argument(rq, "sessionId"), *named, *why;
	struct json_object *body = NULL;
	struct nsbox_error err = { 0 };
	struct mcp_place place;
	struct mcp_client client;
	struct mcp_message msg;
	struct mcp_turn t;
	const char *text;
	size_t len;

	if (!enter(f, rq, &t, &place, &client))
		return;
	text = http_body(rq, &len);
	if (json_strict_parse(text, len, &lim, &body, &err) < 0) {
		refuse(rq, 400, MCP_E_PARSE, err.msg);
		return;
	}
	named = http_header(rq, "MCP-Protocol-Version");
	if (sse) {
		if (take_session(rq, &t, sse) && t.session->sse)
			handle_sse(&t, rq, body);
		else if (t.session)
			refuse(rq, 404, MCP_E_REQUEST, "this MCP session has another transport");
	} else if (mcp_message_read(body, &msg, &why) == 0 && msg.method &&
		   (msg.version || (named && mcp_version_of(named) > MCP_LEGACY_LAST &&
				    !http_header(rq, "Mcp-Session-Id") &&
				    strcmp(msg.method, "initialize") != 0))) {
		handle_modern(&t, rq, &msg);
	} else {
		handle_legacy(&t, rq, body);
	}
	json_object_put(body);
}

/* "STREAM-EVENT" */
static bool read_event_id(const char *text, uint64_t *stream, uint64_t *event)
{
	const char *dash = strchr(text, '-');
	char first[24];

	if (!dash || (size_t)(dash - text) >= sizeof(first))
		return false;
	snprintf(first, sizeof(first), "%.*s", (int)(dash - text), text);
	return parse_u64(first, stream) && parse_u64(dash + 1, event);
}

/* The session's own stream is number 0. */
static void get_events(struct mcp_turn *t, struct http_request *rq)
{
	const char *last = http_header(rq, "Last-Event-ID");
	uint64_t number = 0, after = 0;
	struct mcp_stream *st;

	if (last && !read_event_id(last, &number, &after)) {
		refuse(rq, 400, MCP_E_REQUEST, "Last-Event-ID is not one of ours");
		return;
	}
	st = mcp_stream_find(t->session, number);
	if (!st && !number) {
		st = mcp_stream_new(t->m, t->session, MCP_EVENTS, t->place, t->client);
		if (st) {
			st->number = 0;
			st->keep = true;
		}
	} else if (st && !last) {
		after = st->seq;
	}
	if (!st || st->form != MCP_EVENTS)
		refuse(rq, 404, MCP_E_REQUEST, "the stream of this Last-Event-ID is no more");
	else if (st->reader)
		refuse(rq, 409, MCP_E_REQUEST, "this stream is being read by another connection");
	else
		mcp_stream_attach(st, rq, after);
}

void mcp_get(struct front *f, struct http_request *rq, const char *rest)
{
	static const char *const allow[] = { "Allow", "POST, GET, DELETE", NULL };
	const char *id = http_header(rq, "Mcp-Session-Id");
	struct mcp_place place;
	struct mcp_client client;
	struct mcp_turn t;

	if (!enter(f, rq, &t, &place, &client))
		return;
	if (!accepts(rq, "text/event-stream"))
		api_reply(rq, 406,
			  mcp_error_new(NULL, MCP_E_REQUEST, NULL,
					"GET gives events: Accept: text/event-stream"),
			  allow);
	else if (!id)
		begin_sse(&t, rq);
	else if (check_version(rq) && take_session(rq, &t, id))
		get_events(&t, rq);
}

void mcp_delete(struct front *f, struct http_request *rq, const char *rest)
{
	const char *id = http_header(rq, "Mcp-Session-Id");
	struct mcp_place place;
	struct mcp_client client;
	struct mcp_turn t;

	if (!enter(f, rq, &t, &place, &client))
		return;
	if (!id) {
		refuse(rq, 400, MCP_E_REQUEST, "Mcp-Session-Id says which MCP session is to end");
	} else if (check_version(rq) && take_session(rq, &t, id)) {
		mcp_session_end(t.session);
		http_reply(rq, 200, strdup(""), 0, NULL);
	}
}
