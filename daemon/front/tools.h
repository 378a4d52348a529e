/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registered tools: Python source whose public functions are tools of the Model Context Protocol.
 *
 *	tools.c		which there are: in memory, and in the journal's file
 *	api_tools.c	/v1/tools
 *	tools_describe.py	runs inside a sandbox, and says what functions a source has
 */
#ifndef FRONT_TOOLS_H
#define FRONT_TOOLS_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/front/who.h"

struct front;
struct http_request;
struct json_object;
struct journal;

#define TOOLS_MAX	256
#define TOOL_CODE_MAX	(1u << 20)
#define TOOLS_BYTES_MAX (UINT64_C(64) << 20) /* of all */
#define TOOL_ID_MAX	127

struct tool {
	struct tool *next;
	char id[TOOL_ID_MAX + 1];
	char workspace[WHO_WORKSPACE_MAX + 1];
	uid_t uid;
	size_t bytes;
	/*
	 * "run": a request to POST /v1/execute/python-function but for function and arguments;
	 * "params": values of arguments that a call need not give; "functions" as tools/list has them;
	 * "left_out", "code_sha256", "updated_ms"
	 */
	struct json_object *record;
};

struct tools;
int tools_open(struct journal *j, struct tools **ret, struct nsbox_error *err);
void tools_free(struct tools *t);
const struct tool *tools_find(const struct tools *t, const char *id);
const struct tool *tools_first(const struct tools *t);
/*
 * A new one, or another in its place; in the journal when it returns. The record is taken, also
 * where it fails. -EDQUOT: there are too many, or too much of them.
 */
int tools_put(struct tools *t, const char *id, const char *workspace, uid_t uid,
	      struct json_object *record, struct nsbox_error *err);
int tools_drop(struct tools *t, const char *id, struct nsbox_error *err);

/* api_tools.c */
void api_list_tools(struct front *f, struct http_request *rq, const char *rest);
void api_get_tool(struct front *f, struct http_request *rq, const char *id);
void api_put_tool(struct front *f, struct http_request *rq, const char *id);
void api_delete_tool(struct front *f, struct http_request *rq, const char *id);
bool api_tools_gone(struct front *f, struct http_request *rq);

#endif
