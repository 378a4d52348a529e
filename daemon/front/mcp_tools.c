/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tools of a session: programs and files of its sandbox. What a model is told of them is
 * mcp_tools.json; here is what they do.
 *
 * isError means that it did not go well: a program that did not end with status 0, a file that is
 * not there. What was seen until then is in the result all the same.
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

#define LINES_MAX 1000000000
#define FIND_MAX  500 /* entries of one answer */

extern const char mcp_tools_json_start[];
extern const uint64_t mcp_tools_json_size;

__asm__(".pushsection .rodata, \"a\"\n"
	".hidden mcp_tools_json_start\n"
	".hidden mcp_tools_json_size\n"
	".global mcp_tools_json_start\n"
	"mcp_tools_json_start:\n"
	".incbin \"daemon/front/mcp_tools.json\"\n"
	".Lmcp_tools_json_end:\n"
	".balign 8\n"
	".global mcp_tools_json_size\n"
	"mcp_tools_json_size:\n"
	".quad .Lmcp_tools_json_end - mcp_tools_json_start\n"
	".popsection\n");

int mcp_tools_read(struct json_object **ret, struct nsbox_error *err)
{
	const struct json_limits lim = { .max_size = 1u << 20,
					 .max_depth = 16,
					 .code = NSBOX_E_INVALID };

	return json_strict_parse(mcp_tools_json_start, (size_t)mcp_tools_json_size, &lim, ret, err);
}

/* ------------------------------------------------------------------ arguments */

struct tool_args {
	char *path, *content, *encoding, *old_text, *new_text, *text, *glob;
	uint64_t offset, limit;
	bool replace_all, recursive, ignore_case;
	struct json_object *code, *command, *cwd, *env, *input, *timeout; /* the interface judges */
};

#define AT(member) offsetof(struct tool_args, member)
#define PATH_FIELD                                                                                 \
	{                                                                                          \
		"path", json_take_string, AT(path), .min = 1, .max = 4095, .required = true        \
	}

/* clang-format off */
#define RUN_FIELDS                                                                  \
	{ "cwd",             json_take_any, AT(cwd), .nullable = true },            \
	{ "env",             json_take_any, AT(env), .nullable = true },            \
	{ "stdin",           json_take_any, AT(input), .nullable = true },          \
	{ "timeout_seconds", json_take_any, AT(timeout), .nullable = true }

static const struct json_field python_fields[] = {
	{ "code", json_take_any, AT(code), .min = 1, .required = true },
	RUN_FIELDS,
};
static const struct json_field command_fields[] = {
	{ "command", json_take_any, AT(command), .min = 1, .required = true },
	RUN_FIELDS,
};
static const struct json_field read_fields[] = {
	PATH_FIELD,
	{ "offset", json_take_u64, AT(offset), .min = 1, .max = LINES_MAX, .nullable = true },
	{ "limit",  json_take_u64, AT(limit), .min = 1, .max = LINES_MAX, .nullable = true },
};
static const struct json_field write_fields[] = {
	PATH_FIELD,
	{ "content",  json_take_string, AT(content), .max = MCP_WRITE_MAX, .required = true },
	{ "encoding", json_take_string, AT(encoding), .max = 16, .nullable = true },
};
static const struct json_field edit_fields[] = {
	PATH_FIELD,
	{ "old_text",    json_take_string, AT(old_text), .min = 1, .max = MCP_READ_MAX, .required = true },
	{ "new_text",    json_take_string, AT(new_text), .max = MCP_READ_MAX, .required = true },
	{ "replace_all", json_take_bool,   AT(replace_all) },
};
static const struct json_field list_fields[] = {
	{ "path",      json_take_string, AT(path), .min = 1, .max = 4095, .nullable = true },
	{ "recursive", json_take_bool,   AT(recursive) },
};
static const struct json_field search_fields[] = {
	{ "path",        json_take_string, AT(path), .min = 1, .max = 4095, .nullable = true },
	{ "text",        json_take_string, AT(text), .min = 1, .max = 4095, .nullable = true },
	{ "glob",        json_take_string, AT(glob), .min = 1, .max = 4095, .nullable = true },
	{ "ignore_case", json_take_bool,   AT(ignore_case) },
};
/* clang-format on */

static void args_done(struct tool_args *a)
{
	free(a->path);
	free(a->content);
	free(a->encoding);
	free(a->old_text);
	free(a->new_text);
	free(a->text);
	free(a->glob);
	json_object_put(a->code);
	json_object_put(a->command);
	json_object_put(a->cwd);
	json_object_put(a->env);
	json_object_put(a->input);
	json_object_put(a->timeout);
}

/* false: it has failed. */
static bool read_args(struct mcp_call *c, struct tool_args *ret)
{
	struct json_object *args = c->args ? json_object_get(c->args) : json_object_new_object();
	struct nsbox_error err = { 0 };
	struct json_reader r;
	int rc;

	*ret = (struct tool_args){ 0 };
	json_reader_init(&r, NSBOX_E_INVALID, &err);
	rc = json_read_object(&r, args, c->tool->fields, c->tool->n_fields, false, ret);
	json_object_put(args);
	if (rc == 0)
		return true;
	args_done(ret);
	mcp_call_fail(c, "the arguments of %s are not right: %s", c->tool->name, err.msg);
	return false;
}

/* ------------------------------------------------------------------ programs */

static void copy(struct json_object *to, struct json_object *from, const char *key)
{
	struct json_object *v = NULL;

	if (json_object_object_get_ex(from, key, &v))
		json_object_object_add(to, key, json_object_get(v));
}

static void on_ran(struct mcp_call *c, int status, struct json_object *reply, const char *body,
		   size_t len)
{
	static const char *const keys[] = { "exit_code",
					    "cause",
					    "stdout",
					    "stdout_base64",
					    "stderr",
					    "stderr_base64",
					    "stdout_truncated",
					    "stderr_truncated",
					    "duration_ms",
					    "denials",
					    "notes",
					    "job_id" };
	struct json_object *o;
	const char *cause = mcp_text(reply, "cause");

	if (status != 200 || !cause) {
		mcp_call_fail_reply(c, reply, status);
		return;
	}
	o = json_object_new_object();
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		copy(o, reply, keys[i]);
	mcp_call_done(c, o,
		      strcmp(cause, "exit") != 0 ||
			      json_object_get_int(mcp_member(reply, "exit_code")) != 0);
}

static void add(struct json_object *o, const char *key, struct json_object *v)
{
	if (v)
		json_object_object_add(o, key, json_object_get(v));
}

static void ask_command(struct mcp_call *c, struct json_object *o, const struct tool_args *a)
{
	struct mcp_ask ask = { .method = "POST", .path = "/v1/execute/command", .body = o };

	json_put_text(o, "workspace_id", c->stream->place.workspace);
	json_put_text(o, "session_id", c->stream->place.id);
	add(o, "cwd", a->cwd);
	add(o, "env", a->env);
	add(o, "timeout_seconds", a->timeout);
	mcp_call_ask(c, &ask, on_ran);
}

static void run_command(struct mcp_call *c)
{
	struct json_object *o;
	struct tool_args a;

	if (!read_args(c, &a))
		return;
	if (!json_object_is_type(a.command, json_type_string)) {
		mcp_call_fail(c, "the arguments of run_command are not right: /command: expected a "
				 "string");
	} else {
		o = json_object_new_object();
		add(o, "command", a.command);
		add(o, "stdin", a.input);
		ask_command(c, o, &a);
	}
	args_done(&a);
}

/*
 * The program is the interpreter's standard input where it has no other, so that it may be longer
 * than an argument; code that reads gets it as an argument.
 */
static void run_python(struct mcp_call *c)
{
	struct json_object *o, *argv;
	struct tool_args a;

	if (!read_args(c, &a))
		return;
	if (!json_object_is_type(a.code, json_type_string)) {
		mcp_call_fail(c, "the arguments of run_python are not right: /code: expected a "
				 "string");
		args_done(&a);
		return;
	}
	o = json_object_new_object();
	argv = json_object_new_array();
	json_object_array_add(argv, json_object_new_string("python3"));
	json_object_array_add(argv, json_object_new_string(a.input ? "-c" : "-"));
	if (a.input)
		json_object_array_add(argv, json_object_get(a.code));
	json_put(o, "argv", argv);
	add(o, "stdin", a.input ? a.input : a.code);
	ask_command(c, o, &a);
	args_done(&a);
}

/* ------------------------------------------------------------------ files */

/* Relative paths are those of commands: below the working directory. */
static void file_path(const struct mcp_call *c, const char *path, char *ret, size_t size)
{
	snprintf(ret, size, "/v1/sessions/%s/files%s%s", c->stream->place.id,
		 !path || *path != '/' ? "/workspace/" : "", path ? path : "");
}

static void ask_file(struct mcp_call *c, const char *method, const char *path,
		     const char *const *query, const char *const *headers, const char *raw,
		     size_t len, mcp_answered_fn *answered)
{
	const char *all[16] = { "workspace_id", c->stream->place.workspace };
	char full[4600];
	size_t n = 2;
	const struct mcp_ask ask = { .method = method,
				     .path = full,
				     .query = all,
				     .headers = headers,
				     .raw = raw,
				     .len = len };

	for (; query && *query && n + 1 < ARRAY_SIZE(all); n++)
		all[n] = *query++;
	file_path(c, path, full, sizeof(full));
	mcp_call_ask(c, &ask, answered);
}

static const char *const first_part[] = { "Range", "bytes=0-" MCP_READ_LAST, NULL };

struct lines {
	size_t from, len;
	uint64_t total;
};

/* Where `limit` lines (0: all) from line `offset` on (0: the first) are. */
static void find_lines(const char *s, size_t len, uint64_t offset, uint64_t limit,
		       struct lines *ret)
{
	uint64_t line = 1;

	offset = offset ? offset : 1;
	*ret = (struct lines){ .from = offset == 1 ? 0 : len };
	for (size_t i = 0; i < len; i++) {
		if (s[i] != '\n')
			continue;
		line++;
		if (line == offset)
			ret->from = i + 1;
		if (limit && line == offset + limit && !ret->len)
			ret->len = i + 1 - ret->from;
	}
	if (!ret->len)
		ret->len = len - ret->from;
	ret->total = len == 0 ? 0 : line - (s[len - 1] == '\n');
}

static void on_read(struct mcp_call *c, int status, struct json_object *reply, const char *body,
		    size_t len)
{
	struct json_object *o;
	auto_free char *base64 = NULL;
	struct tool_args a;
	struct lines at;

	if (status == 416)
		len = 0; /* an empty file has no first byte */
	else if (status != 206 && status != 200) {
		mcp_call_fail_reply(c, reply, status);
		return;
	}
	if (!read_args(c, &a))
		return;
	o = json_object_new_object();
	json_put_text(o, "path", a.path);
	if (utf8_valid(body, len)) {
		find_lines(body, len, a.offset, a.limit, &at);
		json_put(o, "content", json_text_new(body + at.from, at.len));
		json_put_text(o, "encoding", "utf-8");
		json_put_u64(o, "lines", at.total);
	} else {
		base64 = base64_encode(body, len);
		json_put_text(o, "content", base64 ? base64 : "");
		json_put_text(o, "encoding", "base64");
	}
	json_put(o, "truncated", json_object_new_boolean(len >= MCP_READ_MAX));
	args_done(&a);
	mcp_call_done(c, o, false);
}

static void read_file(struct mcp_call *c)
{
	struct tool_args a;

	if (!read_args(c, &a))
		return;
	ask_file(c, "GET", a.path, NULL, first_part, NULL, 0, on_read);
	args_done(&a);
}

static void on_written(struct mcp_call *c, int status, struct json_object *reply, const char *body,
		       size_t len)
{
	struct json_object *entry, *o;

	if (status != 201) {
		mcp_call_fail_reply(c, reply, status);
		return;
	}
	entry = json_object_array_get_idx(mcp_member(reply, "entries"), 0);
	o = json_object_new_object();
	json_put_text(o, "path", mcp_text(c->args, "path"));
	add(o, "size", mcp_member(entry, "size"));
	add(o, "replaced", c->kept);
	mcp_call_done(c, o, false);
}

static void put_file(struct mcp_call *c, const char *path, const char *data, size_t len)
{
	static const char *const parents[] = { "parents", "", NULL };

	ask_file(c, "PUT", path, parents, NULL, data, len, on_written);
}

static void write_file(struct mcp_call *c)
{
	auto_free unsigned char *raw = NULL;
	struct tool_args a;
	size_t len = 0;

	if (!read_args(c, &a))
		return;
	if (!a.encoding || strcmp(a.encoding, "utf-8") == 0)
		put_file(c, a.path, a.content, strlen(a.content));
	else if (strcmp(a.encoding, "base64") != 0)
		mcp_call_fail(c, "/encoding: \"utf-8\" or \"base64\"");
	else if (base64_decode(a.content, strlen(a.content), &raw, &len) < 0)
		mcp_call_fail(c, "/content: is not base64 (RFC 4648, padded, no white space)");
	else
		put_file(c, a.path, (const char *)raw, len);
	args_done(&a);
}

static size_t count(const char *s, const char *what)
{
	size_t n = 0;

	for (s = strstr(s, what); s; s = strstr(s + strlen(what), what))
		n++;
	return n;
}

/* malloc'd; each `what` is there n times. */
static char *replaced(const char *s, const char *what, const char *with, size_t n)
{
	size_t size = strlen(s) + n * strlen(with) - n * strlen(what) + 1;
	char *text = malloc(size), *to = text;
	const char *next;

	for (; text && (next = strstr(s, what)); s = next + strlen(what)) {
		memcpy(to, s, (size_t)(next - s));
		to += next - s;
		memcpy(to, with, strlen(with));
		to += strlen(with);
	}
	if (text)
		strcpy(to, s);
	return text;
}

static void edit(struct mcp_call *c, const struct tool_args *a, const char *text)
{
	size_t n = count(text, a->old_text);
	auto_free char *after = NULL;

	if (n == 0 || (n > 1 && !a->replace_all)) {
		mcp_call_fail(c,
			      n ? "old_text is there %zu times: give more of what surrounds it, "
				  "or replace_all"
				: "old_text is there %zu times: read the file again",
			      n);
		return;
	}
	after = replaced(text, a->old_text, a->new_text, n);
	if (!after) {
		mcp_call_fail(c, "out of memory");
		return;
	}
	c->kept = json_object_new_int64((int64_t)n);
	put_file(c, a->path, after, strlen(after));
}

static void on_edit(struct mcp_call *c, int status, struct json_object *reply, const char *body,
		    size_t len)
{
	auto_free char *text = NULL;
	struct tool_args a;

	if (status == 416)
		len = 0;
	else if (status != 206 && status != 200) {
		mcp_call_fail_reply(c, reply, status);
		return;
	}
	if (!read_args(c, &a))
		return;
	if (len >= MCP_READ_MAX)
		mcp_call_fail(c, "the file has %u bytes or more: edit it by a command",
			      MCP_READ_MAX);
	else if (memchr(body, 0, len) || !utf8_valid(body, len))
		mcp_call_fail(c, "the file is no text");
	else if (!(text = strndup(body, len)))
		mcp_call_fail(c, "out of memory");
	else
		edit(c, &a, text);
	args_done(&a);
}

static void edit_file(struct mcp_call *c)
{
	struct tool_args a;

	if (!read_args(c, &a))
		return;
	ask_file(c, "GET", a.path, NULL, first_part, NULL, 0, on_edit);
	args_done(&a);
}

/* ------------------------------------------------------------------ looking for files */

static struct json_object *first_of(struct json_object *list, bool *cut)
{
	struct json_object *some = json_object_new_array();
	size_t n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;

	for (size_t i = 0; i < MIN(n, (size_t)FIND_MAX); i++)
		json_object_array_add(some, json_object_get(json_object_array_get_idx(list, i)));
	*cut |= n > FIND_MAX;
	return some;
}

static void on_found(struct mcp_call *c, int status, struct json_object *reply, const char *body,
		     size_t len)
{
	struct json_object *o, *matches = mcp_member(reply, "matches");
	struct json_object *left_out = mcp_member(reply, "left_out");
	bool cut = false;

	if (status != 200) {
		mcp_call_fail_reply(c, reply, status);
		return;
	}
	o = json_object_new_object();
	if (matches || mcp_member(c->args, "text"))
		json_put(o, "matches", first_of(matches, &cut));
	else
		json_put(o, "entries", first_of(mcp_member(reply, "entries"), &cut));
	add(o, "left_out", left_out);
	json_put(o, "truncated", json_object_new_boolean(cut));
	mcp_call_done(c, o, false);
}

static void list_files(struct mcp_call *c)
{
	struct tool_args a;

	if (!read_args(c, &a))
		return;
	ask_file(c, "GET", a.path,
		 (const char *const[]){ "list", "", a.recursive ? "recursive" : NULL, "", NULL },
		 NULL, NULL, 0, on_found);
	args_done(&a);
}

static void search_files(struct mcp_call *c)
{
	const char *query[8] = { NULL };
	struct tool_args a;
	size_t n = 0;

	if (!read_args(c, &a))
		return;
	if (!a.text && !a.glob) {
		mcp_call_fail(c, "search_files needs text, or a glob, or both");
		args_done(&a);
		return;
	}
	if (a.text) {
		query[n++] = "grep";
		query[n++] = a.text;
	}
	if (a.glob) {
		query[n++] = "glob";
		query[n++] = a.glob;
	}
	if (a.ignore_case) {
		query[n++] = "ignore_case";
		query[n++] = "";
	}
	ask_file(c, "GET", a.path, query, NULL, NULL, 0, on_found);
	args_done(&a);
}

/* ------------------------------------------------------------------ table */

#define FIELDS(list) list, ARRAY_SIZE(list)

static const struct mcp_tool tools[] = {
	{ "run_python", FIELDS(python_fields), false, run_python },
	{ "run_command", FIELDS(command_fields), false, run_command },
	{ "read_file", FIELDS(read_fields), true, read_file },
	{ "write_file", FIELDS(write_fields), true, write_file },
	{ "edit_file", FIELDS(edit_fields), true, edit_file },
	{ "list_files", FIELDS(list_fields), true, list_files },
	{ "search_files", FIELDS(search_fields), true, search_files },
};

const struct mcp_tool *mcp_tool_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(tools); i++)
		if (strcmp(tools[i].name, name) == 0)
			return &tools[i];
	return NULL;
}
