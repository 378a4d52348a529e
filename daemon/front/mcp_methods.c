/* SPDX-License-Identifier: Apache-2.0 */
/* What a client of MCP can ask for, by one table; and what results look like. */
#include <json-c/json.h>
#include <string.h>

#include "daemon/front/front.h"
#include "daemon/front/json_reply.h"
#include "daemon/front/mcp.h"
#include "nsbox/util.h"

#define META(name)  "io.modelcontextprotocol/" name
#define LIST_TTL_MS 0 /* a list is as old as it is: clients with a stream hear of changes */

/* ------------------------------------------------------------------ results */

/* What each result says since 2026-07-28. */
static struct json_object *stamp(enum mcp_version v, struct json_object *result)
{
	struct json_object *meta;

	if (v < MCP_2026_07_28)
		return result;
	meta = json_object_new_object();
	json_put_text(result, "resultType", "complete");
	json_put(meta, META("serverInfo"), mcp_server_info());
	json_put(result, "_meta", meta);
	return result;
}

static void answer(const struct mcp_turn *t, const struct mcp_message *msg,
		   struct json_object *result)
{
	t->stream->pending++;
	mcp_stream_answer(t->stream, mcp_result_new(msg->id, stamp(t->version, result)), 200);
}

static void answer_error(const struct mcp_turn *t, struct json_object *error, int status)
{
	t->stream->pending++;
	mcp_stream_answer(t->stream, error, t->version >= MCP_2026_07_28 ? status : 200);
}

struct json_object *mcp_tool_result(enum mcp_version v, struct json_object *structured,
				    bool is_error)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();
	struct json_object *text = json_object_new_object();

	json_put_text(text, "type", "text");
	json_put_text(text, "text",
		      json_object_is_type(structured, json_type_string)
			      ? json_object_get_string(structured)
			      : json_object_to_json_string_ext(
					structured,
					JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_array_add(list, text);
	json_put(o, "content", list);
	if (v >= MCP_2025_06_18 && json_object_is_type(structured, json_type_object))
		json_put(o, "structuredContent", json_object_get(structured));
	json_object_put(structured);
	json_put(o, "isError", json_object_new_boolean(is_error));
	return stamp(v, o);
}

struct json_object *mcp_version_error(struct json_object *id, const char *asked)
{
	struct json_object *data = json_object_new_object(), *list = json_object_new_array();

	for (int v = MCP_VERSION_MAX - 1; v >= 0; v--)
		json_object_array_add(list, json_object_new_string(mcp_versions[v]));
	json_put(data, "supported", list);
	json_put_text(data, "requested", asked);
	return mcp_error_new(id, MCP_E_VERSION, data, "Unsupported protocol version");
}

/* ------------------------------------------------------------------ who we are */

static struct json_object *capabilities(const struct mcp_place *place)
{
	struct json_object *o = json_object_new_object(), *tools = json_object_new_object();

	if (place->functions)
		json_put(tools, "listChanged", json_object_new_boolean(1));
	json_put(o, "tools", tools);
	return o;
}

static const char *instructions(const struct mcp_place *place)
{
	return place->functions
		       ? "Each tool is a Python function; each call runs in a sandbox of its own."
		       : "The tools share one sandbox: a Linux system of its own whose files live "
			 "as long as the session. The working directory is /workspace. There is no "
			 "network unless the operator grants it; what is refused is told in "
			 "`denials`.";
}

static void on_initialize(const struct mcp_turn *t, const struct mcp_message *msg)
{
	const char *asked = mcp_text(msg->params, "protocolVersion");
	struct json_object *o;
	enum mcp_version v;

	if (!asked || !mcp_member(msg->params, "capabilities") ||
	    !mcp_text(mcp_member(msg->params, "clientInfo"), "name")) {
		answer_error(t,
			     mcp_error_new(msg->id, MCP_E_PARAMS, NULL,
					   "initialize needs protocolVersion, capabilities and "
					   "clientInfo"),
			     400);
		return;
	}
	/* What we do not know is answered with the newest that such a client can speak. */
	v = mcp_version_of(asked);
	if (v > MCP_LEGACY_LAST)
		v = MCP_LEGACY_LAST;
	t->session->version = v;
	t->session->initialized = true;
	o = json_object_new_object();
	json_put_text(o, "protocolVersion", mcp_versions[v]);
	json_put(o, "capabilities", capabilities(t->place));
	json_put(o, "serverInfo", mcp_server_info());
	json_put_text(o, "instructions", instructions(t->place));
	answer(t, msg, o);
}

/* How long, and for whom, an answer may be kept. */
static void put_cache(const struct mcp_turn *t, struct json_object *o)
{
	if (t->version < MCP_2026_07_28)
		return;
	json_put_u64(o, "ttlMs", LIST_TTL_MS);
	json_put_text(o, "cacheScope", t->place->functions ? "private" : "public");
}

static void on_discover(const struct mcp_turn *t, const struct mcp_message *msg)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	for (int v = MCP_VERSION_MAX - 1; v >= 0; v--)
		json_object_array_add(list, json_object_new_string(mcp_versions[v]));
	json_put(o, "supportedVersions", list);
	json_put(o, "capabilities", capabilities(t->place));
	json_put_text(o, "instructions", instructions(t->place));
	put_cache(t, o);
	answer(t, msg, o);
}

static void on_ping(const struct mcp_turn *t, const struct mcp_message *msg)
{
	answer(t, msg, json_object_new_object());
}

/* ------------------------------------------------------------------ tools */

static void on_list(const struct mcp_turn *t, const struct mcp_message *msg)
{
	struct json_object *o, *list;

	if (mcp_member(msg->params, "cursor")) {
		answer_error(t,
			     mcp_error_new(msg->id, MCP_E_PARAMS, NULL,
					   "there is one page: no cursor is ours"),
			     400);
		return;
	}
	list = t->place->functions ? mcp_functions_list(t->m, t->place, t->client)
				   : json_object_get(t->m->tools);
	if (!list)
		list = json_object_new_array();
	o = json_object_new_object();
	json_put(o, "tools", list);
	put_cache(t, o);
	answer(t, msg, o);
}

static void on_call(const struct mcp_turn *t, const struct mcp_message *msg)
{
	const char *name = mcp_text(msg->params, "name");
	struct json_object *args = mcp_member(msg->params, "arguments");
	const struct mcp_tool *tool;

	if (!name || (args && !json_object_is_type(args, json_type_object))) {
		answer_error(t,
			     mcp_error_new(msg->id, MCP_E_PARAMS, NULL,
					   "tools/call needs a name, and arguments that are an "
					   "object"),
			     400);
		return;
	}
	if (mcp_calls_of(t->m, t->client) >= MCP_CALLS_MAX) {
		answer_error(t,
			     mcp_error_new(msg->id, MCP_E_INTERNAL, NULL,
					   "%d calls of this client go on: wait for one",
					   MCP_CALLS_MAX),
			     429);
		return;
	}
	if (t->place->functions ? mcp_functions_call(t, msg, name, args) : false)
		return;
	tool = t->place->functions ? NULL : mcp_tool_find(name);
	if (tool)
		mcp_call_start(t, msg, tool, args, NULL);
	else
		answer_error(t,
			     mcp_error_new(msg->id, MCP_E_PARAMS, NULL, "no tool is called '%.64s'",
					   name),
			     400);
}

/* ------------------------------------------------------------------ changes */

/* An open stream, whose first message says what will be told. */
static void on_listen(const struct mcp_turn *t, const struct mcp_message *msg)
{
	struct json_object *wanted = mcp_member(msg->params, "notifications");
	struct json_object *o = json_object_new_object(), *meta = json_object_new_object();
	struct json_object *granted = json_object_new_object();

	if (t->place->functions &&
	    json_object_get_boolean(mcp_member(wanted, "toolsListChanged"))) {
		json_put(granted, "toolsListChanged", json_object_new_boolean(1));
		t->stream->listen = json_object_get(msg->id);
	}
	json_put(meta, META("subscriptionId"), json_object_get(msg->id));
	json_put(o, "_meta", meta);
	json_put(o, "notifications", granted);
	t->stream->keep = true;
	mcp_stream_send(t->stream,
			mcp_notification_new("notifications/subscriptions/acknowledged", o));
}

static void tell_change(struct mcp_stream *st)
{
	struct json_object *o = NULL, *meta;

	if (st->listen) {
		o = json_object_new_object();
		meta = json_object_new_object();
		json_put(meta, META("subscriptionId"), json_object_get(st->listen));
		json_put(o, "_meta", meta);
	}
	mcp_stream_send(st, mcp_notification_new("notifications/tools/list_changed", o));
}

/* Once to each client: on its open stream. */
void mcp_tool_changed(struct mcp *m, const char *id)
{
	for (struct mcp_session *s = m->sessions; s; s = s->next)
		for (struct mcp_stream *st = s->streams; st; st = st->next)
			if (st->keep && (s->initialized || st->listen) && s->place.functions &&
			    strcmp(s->place.id, id) == 0)
				tell_change(st);
	for (struct mcp_stream *st = m->loose; st; st = st->next)
		if (st->listen && strcmp(st->place.id, id) == 0)
			tell_change(st);
}

static void on_cancelled(const struct mcp_turn *t, const struct mcp_message *msg)
{
	struct json_object *id = mcp_member(msg->params, "requestId");

	for (struct mcp_stream *st = t->session ? t->session->streams : NULL; id && st;
	     st = st->next) {
		if (mcp_call_cancel(st, id))
			return;
		if (st->listen && json_object_equal(st->listen, id)) {
			json_object_put(st->listen);
			st->listen = NULL;
			return;
		}
	}
}

/* ------------------------------------------------------------------ table */

enum era { LEGACY = 1, MODERN = 2 };

static const struct {
	const char *name;
	unsigned eras;
	bool notification;
	void (*handle)(const struct mcp_turn *t, const struct mcp_message *msg);
} methods[] = {
	{ "initialize", LEGACY, false, on_initialize },
	{ "ping", LEGACY, false, on_ping },
	{ "server/discover", MODERN, false, on_discover },
	{ "tools/list", LEGACY | MODERN, false, on_list },
	{ "tools/call", LEGACY | MODERN, false, on_call },
	{ "subscriptions/listen", MODERN, false, on_listen },
	{ "notifications/cancelled", LEGACY | MODERN, true, on_cancelled },
};

void mcp_handle(const struct mcp_turn *t, const struct mcp_message *msg)
{
	unsigned era = t->version >= MCP_2026_07_28 ? MODERN : LEGACY;

	for (size_t i = 0; msg->method && i < ARRAY_SIZE(methods); i++)
		if (strcmp(methods[i].name, msg->method) == 0 && (methods[i].eras & era) &&
		    methods[i].notification == !msg->id) {
			methods[i].handle(t, msg);
			return;
		}
	if (msg->id)
		answer_error(t,
			     mcp_error_new(msg->id, MCP_E_METHOD, NULL,
					   "no method is called '%.64s'",
					   msg->method ? msg->method : ""),
			     404);
}
