/* SPDX-License-Identifier: Apache-2.0 */
/* JSON-RPC 2.0 as MCP has it: reading one message, making answers and notifications. */
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/front/json_reply.h"
#include "daemon/front/mcp.h"
#include "nsbox/util.h"

#define META_VERSION "io.modelcontextprotocol/protocolVersion"

const char *const mcp_versions[MCP_VERSION_MAX] = {
	[MCP_2024_11_05] = "2024-11-05", [MCP_2025_03_26] = "2025-03-26",
	[MCP_2025_06_18] = "2025-06-18", [MCP_2025_11_25] = "2025-11-25",
	[MCP_2026_07_28] = "2026-07-28",
};

enum mcp_version mcp_version_of(const char *text)
{
	int v = 0;

	while (v < MCP_VERSION_MAX && strcmp(mcp_versions[v], text) != 0)
		v++;
	return (enum mcp_version)v;
}

struct json_object *mcp_member(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	if (json_object_is_type(o, json_type_object))
		json_object_object_get_ex(o, key, &v);
	return v;
}

const char *mcp_text(struct json_object *o, const char *key)
{
	struct json_object *v = mcp_member(o, key);

	return json_object_is_type(v, json_type_string) ? json_object_get_string(v) : NULL;
}

static struct json_object *message_new(void)
{
	struct json_object *o = json_object_new_object();

	json_put_text(o, "jsonrpc", "2.0");
	return o;
}

struct json_object *mcp_result_new(struct json_object *id, struct json_object *result)
{
	struct json_object *o = message_new();

	json_object_object_add(o, "id", json_object_get(id));
	json_object_object_add(o, "result", result);
	return o;
}

struct json_object *mcp_error_new(struct json_object *id, int code, struct json_object *data,
				  const char *fmt, ...)
{
	struct json_object *o = message_new(), *e = json_object_new_object();
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	json_put(e, "code", json_object_new_int(code));
	json_object_object_add(e, "message", json_object_new_string(text));
	if (data)
		json_object_object_add(e, "data", data);
	json_object_object_add(o, "id", json_object_get(id));
	json_object_object_add(o, "error", e);
	return o;
}

struct json_object *mcp_notification_new(const char *method, struct json_object *params)
{
	struct json_object *o = message_new();

	json_put_text(o, "method", method);
	if (params)
		json_object_object_add(o, "params", params);
	return o;
}

static bool is_id(struct json_object *id)
{
	return json_object_is_type(id, json_type_string) || json_object_is_type(id, json_type_int);
}

int mcp_message_read(struct json_object *o, struct mcp_message *ret, const char **why)
{
	const char *rpc = mcp_text(o, "jsonrpc");
	struct json_object *id = NULL;
	bool has_id;

	*ret = (struct mcp_message){ 0 };
	*why = "a message is an object with \"jsonrpc\": \"2.0\"";
	if (!json_object_is_type(o, json_type_object) || !rpc || strcmp(rpc, "2.0") != 0)
		return MCP_E_REQUEST;
	has_id = json_object_object_get_ex(o, "id", &id);
	*why = "an id is a string or a whole number";
	if (has_id && !is_id(id) && !(id == NULL && mcp_member(o, "error")))
		return MCP_E_REQUEST;
	if (mcp_member(o, "result") || mcp_member(o, "error"))
		return 0;
	*why = "a message has a method, or is an answer";
	ret->method = mcp_text(o, "method");
	if (!ret->method)
		return MCP_E_REQUEST;
	ret->id = id;
	ret->params = mcp_member(o, "params");
	*why = "params are an object";
	if (ret->params && !json_object_is_type(ret->params, json_type_object))
		return MCP_E_PARAMS;
	ret->version = mcp_text(mcp_member(ret->params, "_meta"), META_VERSION);
	return 0;
}

struct json_object *mcp_server_info(void)
{
	struct json_object *o = json_object_new_object();

	json_put_text(o, "name", "nsbox");
	json_put_text(o, "title", "nsbox: code in a sandbox");
	json_put_text(o, "version", NSBOX_VERSION);
	return o;
}

const char *mcp_reply_error(struct json_object *reply)
{
	const char *text = mcp_text(mcp_member(reply, "error"), "message");

	if (!text)
		text = mcp_text(reply, "msg");
	return text ? text : "the service did not say why";
}
