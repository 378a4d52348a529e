/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /v1/tools: registering Python source as tools of the Model Context Protocol.
 *
 * The source is parsed by a run of its own, never here: a request of our own calls
 * tools_describe.py's function with it, in the image that the tool is to run in, so that its Python
 * is the judge of its syntax. What comes back is that run's word, and is checked for its form.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/common/digest.h"
#include "daemon/front/evidence.h"
#include "daemon/front/front.h"
#include "daemon/front/json_reply.h"
#include "daemon/front/mcp.h"
#include "daemon/front/tools.h"
#include "nsbox/util.h"
#include "policy/json_strict.h"

#define PUTS_MAX     16 /* under way */
#define FUNCTION_MAX 64 /* of one tool */

extern const char tools_describe_py_start[];
extern const uint64_t tools_describe_py_size;

__asm__(".pushsection .rodata, \"a\"\n"
	".hidden tools_describe_py_start\n"
	".hidden tools_describe_py_size\n"
	".global tools_describe_py_start\n"
	"tools_describe_py_start:\n"
	".incbin \"daemon/front/tools_describe.py\"\n"
	".Ltools_describe_py_end:\n"
	".balign 8\n"
	".global tools_describe_py_size\n"
	"tools_describe_py_size:\n"
	".quad .Ltools_describe_py_end - tools_describe_py_start\n"
	".popsection\n");

/* A source that is being looked at. */
struct tool_put {
	struct tool_put *next;
	struct front *f;
	struct http_request *rq, *inner;
	char id[TOOL_ID_MAX + 1], workspace[WHO_WORKSPACE_MAX + 1];
	char *token; /* the workspace of the client's token */
	uid_t uid;
	struct json_object *run, *params;
};

/* ------------------------------------------------------------------ objects */

static struct json_object *tool_object(const struct tool *t, bool whole)
{
	struct json_object *o = json_object_new_object(), *v;
	static const char *const keys[] = { "code_sha256", "updated_ms", "functions", "left_out" };

	json_put_text(o, "id", t->id);
	json_put_text(o, "workspace_id", t->workspace);
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if ((v = mcp_member(t->record, keys[i])))
			json_put(o, keys[i], json_object_get(v));
	if (!whole)
		return o;
	json_object_object_foreach (mcp_member(t->record, "run"), key, value) {
		if (strcmp(key, "workspace_id") != 0)
			json_put(o, key, json_object_get(value));
	}
	json_put(o, "params", json_object_get(mcp_member(t->record, "params")));
	return o;
}

static const struct tool *find(struct front *f, struct http_request *rq, const char *id)
{
	const struct tool *t = tools_find(f->tools, id);
	struct who who;

	api_who(f, rq, &who);
	if (t && who_sees(&who, t->uid, t->workspace))
		return t;
	http_reply_error(rq, 404, "not_found", "no tool has the id '%.64s'", id);
	return NULL;
}

void api_list_tools(struct front *f, struct http_request *rq, const char *rest)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();
	struct who who;

	api_who(f, rq, &who);
	for (const struct tool *t = tools_first(f->tools); t; t = t->next)
		if (who_sees(&who, t->uid, t->workspace))
			json_object_array_add(list, tool_object(t, false));
	json_put(o, "tools", list);
	json_put_u64(o, "max", TOOLS_MAX);
	api_reply(rq, 200, o, NULL);
}

void api_get_tool(struct front *f, struct http_request *rq, const char *id)
{
	const struct tool *t = find(f, rq, id);

	if (t)
		api_reply(rq, 200, tool_object(t, true), NULL);
}

void api_delete_tool(struct front *f, struct http_request *rq, const char *id)
{
	const struct tool *t = find(f, rq, id);
	struct nsbox_error err = { 0 };
	struct json_object *o;

	if (!t)
		return;
	o = tool_object(t, false);
	if (tools_drop(f->tools, id, &err) < 0) {
		json_object_put(o);
		api_reply_error(rq, 503, &err);
		return;
	}
	evidence_note(f, "tool-delete", http_peer(rq), id, "");
	mcp_tool_changed(f->mcp, id);
	api_reply(rq, 200, o, NULL);
}

/* ------------------------------------------------------------------ reading a request */

struct wish {
	struct json_object *v[16]; /* in the order of `fields` */
};

#define AT(n) (offsetof(struct wish, v) + (n) * sizeof(struct json_object *))
enum { CODE, SCHEMA, PARAMS, WISH_RUN };

/* What the interface judges itself is passed on as it is. */
static const struct json_field fields[] = {
	{ "code", json_take_any, AT(CODE), .min = 1, .required = true },
	{ "schema", json_take_object, AT(SCHEMA), .nullable = true },
	{ "params", json_take_object, AT(PARAMS), .nullable = true },
	{ "workspace_id", json_take_any, AT(3), .nullable = true },
	{ "image", json_take_any, AT(4), .nullable = true },
	{ "manifest", json_take_any, AT(5), .nullable = true },
	{ "timeout_seconds", json_take_any, AT(6), .nullable = true },
	{ "resources", json_take_any, AT(7), .nullable = true },
	{ "network_policy", json_take_any, AT(8), .nullable = true },
	{ "python", json_take_any, AT(9), .nullable = true },
	{ "compat", json_take_any, AT(10), .nullable = true },
	{ "env", json_take_any, AT(11), .nullable = true },
	{ "files", json_take_any, AT(12), .nullable = true },
	{ "archive_base64", json_take_any, AT(13), .nullable = true },
};

static void wish_done(struct wish *w)
{
	for (size_t i = 0; i < ARRAY_SIZE(w->v); i++)
		json_object_put(w->v[i]);
}

/* As a request to run it, which has to be right now already. */
static int make_run(const struct wish *w, struct json_object **ret, struct nsbox_error *err)
{
	struct json_object *run = json_object_new_object();
	struct job_spec *spec = NULL;
	const char *text;
	size_t len = 0;
	int r;

	json_put(run, "code", json_object_get(w->v[CODE]));
	for (size_t i = PARAMS + 1; i < ARRAY_SIZE(fields); i++)
		if (w->v[i])
			json_put(run, fields[i].name, json_object_get(w->v[i]));
	text = json_object_to_json_string_length(run, JSON_C_TO_STRING_PLAIN, &len);
	r = text ? request_parse(text, len, JOB_PYTHON, &spec, err)
		 : nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read a tool");
	job_spec_free(spec);
	if (r < 0)
		json_object_put(run);
	else
		*ret = run;
	return r;
}

static int read_wish(struct http_request *rq, struct wish *w, struct json_object **ret_run,
		     struct nsbox_error *err)
{
	const struct json_limits lim = { .max_size = REQUEST_BODY_MAX,
					 .max_depth = MCP_DEPTH_MAX,
					 .max_nodes = MCP_NODES_MAX,
					 .code = NSBOX_E_INVALID };
	struct json_object *body = NULL;
	struct json_reader r;
	const char *text;
	size_t len;
	int rc;

	text = http_body(rq, &len);
	rc = json_strict_parse(text, len, &lim, &body, err);
	if (rc < 0)
		return rc;
	json_reader_init(&r, NSBOX_E_INVALID, err);
	rc = json_read_object(&r, body, fields, ARRAY_SIZE(fields), false, w);
	if (rc == 0 && (!json_object_is_type(w->v[CODE], json_type_string) ||
			json_object_get_string_len(w->v[CODE]) > (int)TOOL_CODE_MAX)) {
		r.len = 0;
		json_enter(&r, "code");
		rc = json_fail(&r, "expected a string of at most %u bytes", TOOL_CODE_MAX);
	}
	if (rc == 0)
		rc = make_run(w, ret_run, err);
	json_object_put(body);
	return rc;
}

/* ------------------------------------------------------------------ the end */

static void put_free(struct tool_put *p)
{
	struct tool_put **at = &p->f->tool_puts;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	p->f->n_tool_puts--;
	json_object_put(p->run);
	json_object_put(p->params);
	free(p->token);
	free(p);
}

bool api_tools_gone(struct front *f, struct http_request *rq)
{
	for (struct tool_put *p = f->tool_puts; p; p = p->next)
		if (p->rq == rq) {
			http_inner_drop(p->inner);
			put_free(p);
			return true;
		}
	return false;
}

/* The run's word for it. */
static bool functions_good(struct json_object *list)
{
	size_t n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;

	for (size_t i = 0; i < n; i++) {
		struct json_object *o = json_object_array_get_idx(list, i);
		const char *name = mcp_text(o, "name");

		if (!name || !*name || strlen(name) > 128 || !mcp_text(o, "description") ||
		    !json_object_is_type(mcp_member(o, "inputSchema"), json_type_object) ||
		    !json_object_is_type(mcp_member(o, "outputSchema"), json_type_object))
			return false;
	}
	return n > 0 && n <= FUNCTION_MAX;
}

static uint64_t unix_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static struct json_object *record_new(const struct tool_put *p, struct json_object *data)
{
	struct json_object *o = json_object_new_object(), *code = mcp_member(p->run, "code");
	struct json_object *left_out = mcp_member(data, "left_out");
	char sha256[65] = "";

	digest_hex(json_object_get_string(code), (size_t)json_object_get_string_len(code), sha256,
		   NULL);
	json_put_text(o, "code_sha256", sha256);
	json_put_u64(o, "updated_ms", unix_ms());
	json_put(o, "functions", json_object_get(mcp_member(data, "functions")));
	json_put(o, "left_out",
		 json_object_is_type(left_out, json_type_array) ? json_object_get(left_out)
								: json_object_new_array());
	json_put(o, "run", json_object_get(p->run));
	json_put(o, "params", p->params ? json_object_get(p->params) : json_object_new_object());
	return o;
}

static void keep(struct tool_put *p, struct json_object *data)
{
	struct json_object *record = record_new(p, data);
	const struct tool *old = tools_find(p->f->tools, p->id);
	struct nsbox_error err = { 0 };
	int r = tools_put(p->f->tools, p->id, p->workspace, p->uid, record, &err);

	if (r < 0) {
		api_reply_error(p->rq, r == -EDQUOT ? 429 : 503, &err);
		return;
	}
	evidence_note(p->f, "tool-put", p->uid, p->id,
		      mcp_text(tools_find(p->f->tools, p->id)->record, "code_sha256"));
	mcp_tool_changed(p->f->mcp, p->id);
	api_reply(p->rq, old ? 200 : 201, tool_object(tools_find(p->f->tools, p->id), false), NULL);
}

static void on_described(void *ctx, int status, const char *body, size_t len)
{
	struct tool_put *p = ctx;
	struct json_object *reply = body && len ? json_tokener_parse(body) : NULL;
	struct json_object *data = mcp_member(reply, "data");
	const char *wrong = mcp_text(data, "error");

	p->inner = NULL;
	if (status == 429 || status == 503)
		http_reply_error(p->rq, status, "limit", "%s", mcp_reply_error(reply));
	else if (status != 200 || (!wrong && !functions_good(mcp_member(data, "functions"))))
		http_reply_error(p->rq, status == 200 ? 400 : status, "invalid",
				 "/code: it could not be looked at: %s", mcp_reply_error(reply));
	else if (wrong)
		http_reply_error(p->rq, 400, "invalid", "/code: %s", wrong);
	else
		keep(p, data);
	json_object_put(reply);
	put_free(p);
}

/* ------------------------------------------------------------------ the beginning */

static struct json_object *describe_request(const struct wish *w, struct json_object *run)
{
	static const char *const same[] = { "workspace_id", "image", "python" };
	struct json_object *o = json_object_new_object(), *params = json_object_new_object(), *v;

	for (size_t i = 0; i < ARRAY_SIZE(same); i++)
		if ((v = mcp_member(run, same[i])))
			json_put(o, same[i], json_object_get(v));
	json_put(o, "code",
		 json_object_new_string_len(tools_describe_py_start, (int)tools_describe_py_size));
	json_put_text(o, "function_name", "describe");
	json_put(params, "source", json_object_get(w->v[CODE]));
	json_put(params, "given",
		 w->v[PARAMS] ? json_object_get(w->v[PARAMS]) : json_object_new_object());
	json_put(params, "schemas",
		 w->v[SCHEMA] ? json_object_get(w->v[SCHEMA]) : json_object_new_object());
	json_put(o, "params", params);
	json_put_u64(o, "timeout_seconds", 60);
	return o;
}

static void describe(struct tool_put *p, const struct wish *w)
{
	struct json_object *o = describe_request(w, p->run);
	struct http_inner in = { .method = "POST",
				 .path = "/v1/execute/python-function",
				 .peer = http_peer(p->rq),
				 .workspace = p->token,
				 .answered = on_described,
				 .ctx = p };
	const char *text = json_object_to_json_string_length(
		o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &in.len);

	in.body = text ? strdup(text) : NULL;
	json_object_put(o);
	p->inner = in.body ? http_inner(p->f->http, &in) : NULL;
	if (p->inner)
		return;
	http_reply_error(p->rq, 503, "nomem", "out of memory");
	put_free(p);
}

/* NULL: answered. */
static struct tool_put *put_new(struct front *f, struct http_request *rq, const char *id,
				struct json_object *run)
{
	const char *asked = mcp_text(run, "workspace_id"), *token = http_workspace(rq), *workspace;
	struct tool_put *p;
	struct who who;

	api_who(f, rq, &who);
	workspace = who_workspace(&f->opt->ties, &who, asked ? asked : "");
	if (!workspace) {
		api_deny(f, rq, "this client may not use this workspace");
		return NULL;
	}
	p = f->n_tool_puts < PUTS_MAX ? calloc(1, sizeof(*p)) : NULL;
	if (!p || (token && !(p->token = strdup(token)))) {
		http_reply_error(rq, 429, "limit", "%u tools are being looked at", f->n_tool_puts);
		free(p);
		return NULL;
	}
	p->f = f;
	p->rq = rq;
	p->uid = who.uid;
	snprintf(p->id, sizeof(p->id), "%s", id);
	snprintf(p->workspace, sizeof(p->workspace), "%s", workspace);
	p->run = json_object_get(run);
	p->next = f->tool_puts;
	f->tool_puts = p;
	f->n_tool_puts++;
	return p;
}

static bool id_good(struct front *f, struct http_request *rq, const char *id)
{
	static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				   "0123456789._:@-";
	const struct tool *old = tools_find(f->tools, id);
	struct who who;

	api_who(f, rq, &who);
	if (strlen(id) > TOOL_ID_MAX || id[0] == '.' || strspn(id, good) != strlen(id)) {
		http_reply_error(rq, 400, "invalid",
				 "a tool's id has 1 to %d letters, digits and \"._:@-\", and no "
				 "'.' first",
				 TOOL_ID_MAX);
		return false;
	}
	if (!old || who_sees(&who, old->uid, old->workspace))
		return true;
	http_reply_error(rq, 409, "conflict", "the id '%.64s' is taken", id);
	return false;
}

void api_put_tool(struct front *f, struct http_request *rq, const char *id)
{
	struct json_object *run = NULL;
	struct nsbox_error err = { 0 };
	struct wish w = { 0 };
	struct tool_put *p;

	if (!id_good(f, rq, id))
		return;
	if (read_wish(rq, &w, &run, &err) < 0) {
		f->metrics.counter[METRIC_INVALID]++;
		api_reply_error(rq, 0, &err);
	} else if ((p = put_new(f, rq, id, run))) {
		p->params = json_object_get(w.v[PARAMS]);
		describe(p, &w);
	}
	json_object_put(run);
	wish_done(&w);
}
