/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call of a Python function, seen from outside the sandbox: the request for the runner, and
 * the verdict on what came back. The verdict's texts are those that callers of MaxKB's executor
 * know; the cause of death, which that executor could only guess at, decides before the streams do.
 */
#include "daemon/common/pycall.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/text.h"
#include "nsbox/util.h"

const char *const pycall_compat_names[] = { "recursion", "subprocess", "environment", NULL };

/* -I: no PYTHON* variables, no user site directory, no script directory on the path. */
const char *const pycall_argv[PYCALL_ARGV] = { "python3", "-I", "/opt/nsbox/runner.py", NULL };

/* ------------------------------------------------------------------ request */

static int add(struct json_object *o, const char *key, struct json_object *value)
{
	if (value && json_object_object_add(o, key, value) == 0)
		return 0;
	json_object_put(value);
	return -ENOMEM;
}

static int add_noexec(struct json_object *o, const struct pycall *c)
{
	auto_free char *text = NULL;

	if (!c->noexec)
		return 0;
	text = base64_encode(c->noexec, c->noexec_len);
	return text ? add(o, "noexec", json_object_new_string(text)) : -ENOMEM;
}

static int add_path(struct json_object *o, const struct pycall *c)
{
	struct json_object *list = c->path ? json_object_new_array() : NULL;

	for (const char *const *p = c->path; list && *p; p++)
		json_object_array_add(list, json_object_new_string(*p));
	return c->path ? add(o, "path", list) : 0;
}

static int add_compat(struct json_object *o, const struct pycall *c)
{
	struct json_object *list = json_object_new_array();

	for (unsigned i = 0; list && i < PYCALL_COMPAT_MAX; i++)
		if (c->compat & 1u << i)
			json_object_array_add(list, json_object_new_string(pycall_compat_names[i]));
	return add(o, "compat", list);
}

static int add_arguments(struct json_object *o, const struct pycall *c)
{
	if (c->expression)
		return add(o, "expression", json_object_new_string(c->expression));
	return add(o, "params", c->params ? json_object_get(c->params) : json_object_new_object());
}

static int fill_request(struct json_object *o, const struct pycall *c)
{
	int r = add(o, "code", json_object_new_string(c->code));

	if (r == 0 && c->function)
		r = add(o, "function", json_object_new_string(c->function));
	if (r == 0)
		r = add_arguments(o, c);
	if (r == 0)
		r = add(o, "memory_mb", json_object_new_uint64(c->memory >> 20));
	if (r == 0)
		r = add_path(o, c);
	if (r == 0)
		r = add_compat(o, c);
	return r == 0 ? add_noexec(o, c) : r;
}

int pycall_text(const struct pycall *c, char **ret, size_t *ret_len, struct nsbox_error *err)
{
	struct json_object *o = json_object_new_object();
	const char *text = NULL;

	if (o && fill_request(o, c) == 0)
		text = json_object_to_json_string_length(o, JSON_C_TO_STRING_PLAIN, ret_len);
	*ret = text ? strdup(text) : NULL;
	json_object_put(o);
	return *ret ? 0 : nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "encode the call");
}

int pycall_encode(const struct pycall *c, int *ret_fd, struct nsbox_error *err)
{
	auto_free char *text = NULL;
	size_t len = 0;
	int fd, r = pycall_text(c, &text, &len, err);

	if (r < 0)
		return r;
	fd = make_memfd("nsbox-request", text, len, true);
	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, -fd, "encode the call");
	*ret_fd = fd;
	return 0;
}

/* ------------------------------------------------------------------ verdict */

static int say(struct pycall_outcome *o, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static int say(struct pycall_outcome *o, int code, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = vasprintf(&o->msg, fmt, ap);
	va_end(ap);
	if (r < 0) {
		o->msg = NULL;
		return -ENOMEM;
	}
	o->code = code;
	return 0;
}

static int say_timeout(const struct pycall *c, struct pycall_outcome *o)
{
	if (c->wall_ms % 1000 == 0)
		return say(o, 500, "Process execution timed out after %" PRIu64 " seconds.",
			   c->wall_ms / 1000);
	return say(o, 500, "Process execution timed out after %" PRIu64 ".%03" PRIu64 " seconds.",
		   c->wall_ms / 1000, c->wall_ms % 1000);
}

static int say_memory(const struct pycall *c, struct pycall_outcome *o)
{
	return say(o, 500, "Cannot allocate more memory: exceeded the limit of %" PRIu64 " MB.",
		   c->memory >> 20);
}

/* Causes that say all there is to say; the others go by exit status and streams. */
static const char *const cause_text[NSBOX_CAUSE_MAX] = {
	[NSBOX_CAUSE_NONE] = "The call did not start.",
	[NSBOX_CAUSE_CPU_TIME] = "The limit of CPU time was reached.",
	[NSBOX_CAUSE_PIDS] = "The limit of processes and threads was reached.",
	[NSBOX_CAUSE_OUTPUT] = "The output was larger than allowed.",
	[NSBOX_CAUSE_DISK] = "The limit of disk space was reached.",
	[NSBOX_CAUSE_POLICY] = "A system call that the policy forbids ended the call.",
	[NSBOX_CAUSE_CANCELLED] = "The call was cancelled.",
	[NSBOX_CAUSE_INTERRUPTED] = "The call was interrupted: its sandbox went away.",
};

static int judge_cause(const struct pycall *c, const struct nsbox_result *res,
		       struct pycall_outcome *o)
{
	if (res->cause == NSBOX_CAUSE_WALL_TIME)
		return say_timeout(c, o);
	if (res->cause == NSBOX_CAUSE_MEMORY)
		return say_memory(c, o);
	if (res->cause == NSBOX_CAUSE_EXEC || res->cause == NSBOX_CAUSE_SANDBOX)
		return say(o, 500, "%s", res->error.msg);
	return say(o, 500, "%s", cause_text[res->cause]);
}

static bool cause_decides(uint32_t cause)
{
	return cause != NSBOX_CAUSE_EXIT && cause != NSBOX_CAUSE_SIGNAL && cause < NSBOX_CAUSE_MAX;
}

/* The value between exactly this prefix and the closing brace, or NULL. */
static const char *frame_value(const char *frame, size_t len, const char *prefix, size_t *ret_len)
{
	size_t n = strlen(prefix);

	if (len <= n || memcmp(frame, prefix, n) != 0 || frame[len - 1] != '}')
		return NULL;
	*ret_len = len - n - 1;
	return json_value_check(frame + n, *ret_len, JSON_VALUE_DEPTH) ? frame + n : NULL;
}

/* The error's text, and behind it what the code wrote to standard error. */
static int judge_error(const char *text, size_t len, const char *errout, size_t errout_len,
		       struct pycall_outcome *o)
{
	struct json_tokener *tok = json_tokener_new();
	struct json_object *msg = tok ? json_tokener_parse_ex(tok, text, (int)len) : NULL;
	int r;

	r = say(o, 500, "%s%s%.*s", msg ? json_object_get_string(msg) : "", errout_len ? "\n" : "",
		(int)errout_len, errout_len ? errout : "");
	json_object_put(msg);
	json_tokener_free(tok);
	return r;
}

static int judge_frame(const char *frame, size_t len, const char *errout, size_t errout_len,
		       struct pycall_outcome *o)
{
	const char *value;
	size_t n;

	value = frame_value(frame, len, "{\"ok\":true,\"value\":", &n);
	if (value) {
		o->data = n == 4 && memcmp(value, "null", 4) == 0 ? NULL : json_raw_new(value, n);
		if (!o->data && n != 4)
			return -ENOMEM;
		return say(o, 200, "%s", "success");
	}
	value = frame_value(frame, len, "{\"ok\":false,\"msg\":", &n);
	if (value && *value == '"')
		return judge_error(value, n, errout, errout_len, o);
	return say(o, 500, "No result found.");
}

static int judge_status(const struct nsbox_result *res, const char *out, size_t out_len,
			const char *errout, size_t errout_len, struct pycall_outcome *o)
{
	if (res->exit_status == 0)
		return say(o, 500, "Execution interrupted or tampered");
	if (errout_len)
		return say(o, 500, "%.*s", (int)errout_len, errout);
	if (out_len)
		return say(o, 500, "%.*s", (int)out_len, out);
	return say(o, 500, "Unknown exception occurred");
}

int pycall_judge(const struct pycall *c, const struct nsbox_result *res, const void *result,
		 size_t result_len, bool result_truncated, const char *out, size_t out_len,
		 const char *errout, size_t errout_len, struct pycall_outcome *ret,
		 struct nsbox_error *err)
{
	struct pycall_outcome o = { 0 };
	int r;

	if (cause_decides(res->cause))
		r = judge_cause(c, res, &o);
	else if (result_truncated)
		r = say(&o, 500, "The result is larger than the limit of %zu bytes.", result_len);
	else if (res->exit_status == 0 && result_len > 0)
		r = judge_frame(result, result_len, errout, errout_len, &o);
	else
		r = judge_status(res, out, out_len, errout, errout_len, &o);
	if (r < 0) {
		pycall_outcome_done(&o);
		return nsbox_fail(err, NSBOX_E_NOMEM, -r, "judge the call");
	}
	*ret = o;
	return 0;
}

void pycall_outcome_done(struct pycall_outcome *o)
{
	json_object_put(take_ptr(&o->data));
	free_ptr(&o->msg);
}
