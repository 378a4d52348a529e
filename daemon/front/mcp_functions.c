/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registered functions as tools: each call is a run of its own, in a sandbox of its own. A result
 * is {"result", "tool_id"}, which is what MaxKB reads of a tool's.
 */
#include <json-c/json.h>
#include <string.h>

#include "daemon/front/front.h"
#include "daemon/front/json_reply.h"
#include "daemon/front/mcp.h"
#include "daemon/front/tools.h"
#include "nsbox/util.h"

static const struct tool *find(struct mcp *m, const struct mcp_place *place,
			       const struct mcp_client *client)
{
	const struct tool *t = tools_find(m->f->tools, place->id);
	struct who who;

	mcp_who(m, client, &who);
	return t && who_sees(&who, t->uid, t->workspace) ? t : NULL;
}

bool mcp_functions_there(struct mcp *m, const struct mcp_place *place,
			 const struct mcp_client *client)
{
	return find(m, place, client);
}

struct json_object *mcp_functions_list(struct mcp *m, const struct mcp_place *place,
				       const struct mcp_client *client)
{
	const struct tool *t = find(m, place, client);

	return t ? json_object_get(mcp_member(t->record, "functions")) : NULL;
}

/* ------------------------------------------------------------------ calling */

static void on_called(struct mcp_call *c, int status, struct json_object *reply, const char *body,
		      size_t len)
{
	static const char *const keys[] = { "msg",     "cause", "stdout", "stderr",
					    "denials", "notes", "job_id" };
	struct json_object *o = json_object_new_object(), *v;

	if (status == 200 && json_object_get_int(mcp_member(reply, "code")) == 200) {
		json_object_object_add(o, "result", json_object_get(mcp_member(reply, "data")));
		json_put_text(o, "tool_id", c->stream->place.id);
		mcp_call_done(c, o, false);
		return;
	}
	if (status != 200) {
		json_object_put(o);
		mcp_call_fail_reply(c, reply, status);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if ((v = mcp_member(reply, keys[i])))
			json_put(o, keys[i], json_object_get(v));
	/* Words alone: what is structured would have to be of the function's outputSchema. */
	v = json_object_new_string(json_object_to_json_string_ext(
		o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
	mcp_call_done(c, v, true);
}

static void call_function(struct mcp_call *c)
{
	struct mcp_ask ask = { .method = "POST",
			       .path = "/v1/execute/python-function",
			       .body = json_object_get(c->kept) };

	mcp_call_ask(c, &ask, on_called);
}

static const struct mcp_tool function_tool = { .name = "function", .start = call_function };

static bool has_function(const struct tool *t, const char *name)
{
	struct json_object *list = mcp_member(t->record, "functions");

	for (size_t i = 0; i < json_object_array_length(list); i++)
		if (strcmp(mcp_text(json_object_array_get_idx(list, i), "name"), name) == 0)
			return true;
	return false;
}

static void add_all(struct json_object *to, struct json_object *from)
{
	if (!from)
		return;
	json_object_object_foreach (from, key, value) {
		json_object_object_add(to, key, json_object_get(value));
	}
}

/* The parameters of this function among the tool's own: others would be arguments too many. */
static void add_given(struct json_object *to, const struct tool *t, const char *name)
{
	struct json_object *list = mcp_member(t->record, "functions"), *v;
	struct json_object *params = mcp_member(t->record, "params");
	struct json_object *properties = NULL;

	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *o = json_object_array_get_idx(list, i);

		if (strcmp(mcp_text(o, "name"), name) == 0)
			properties = mcp_member(mcp_member(o, "inputSchema"), "properties");
	}
	json_object_object_foreach (params, key, value) {
		if (json_object_is_type(properties, json_type_object) &&
		    json_object_object_get_ex(properties, key, &v))
			json_object_object_add(to, key, json_object_get(value));
	}
}

bool mcp_functions_call(const struct mcp_turn *t, const struct mcp_message *msg, const char *name,
			struct json_object *args)
{
	const struct tool *tool = find(t->m, t->place, t->client);
	struct json_object *o, *params;

	if (!tool || !has_function(tool, name))
		return false;
	o = json_object_new_object();
	params = json_object_new_object();
	add_all(o, mcp_member(tool->record, "run"));
	add_given(params, tool, name);
	add_all(params, args);
	json_put_text(o, "workspace_id", tool->workspace);
	json_put_text(o, "function_name", name);
	json_put(o, "params", params);
	mcp_call_start(t, msg, &function_tool, args, o);
	json_object_put(o);
	return true;
}
