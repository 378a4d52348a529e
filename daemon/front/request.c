/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client asks for: JSON to struct job_spec, by tables.
 *
 * Nothing is guessed: an unknown key, a wrong type, two ways of saying the same thing at once are
 * errors that name their place. What the tables accept is complete: later steps fail only for
 * reasons outside the request's form. How one field is read, request_read.c says.
 */
#include "daemon/front/request.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "daemon/front/queue.h"
#include "daemon/front/request_read.h"
#include "daemon/front/session.h"
#include "nsbox/util.h"
#include "overlay/image/store.h"
#include "policy/env_names.h"
#include "policy/json_strict.h"

#define NODES_MAX    1000000
#define TTY_SIZE_MAX 9999

const char *const job_kind_names[] = { "python-function", "command", "skill", "session", NULL };
const char *const job_priority_names[] = { "low", "normal", "high", NULL }; /* queue_priority */

/* ------------------------------------------------------------------ tables */

/* clang-format off */
#define COMMON_FIELDS                                                                             \
	{ "workspace_id",    json_take_string,  AT(workspace_id), .max = 128, .nullable = true }, \
	{ "trace_id",        json_take_string,  AT(trace_id), .max = 256, .nullable = true },     \
	{ "image",           rq_image,          AT(image), .min = 1, .max = 127, .nullable = true }, \
	{ "timeout_seconds", rq_seconds,        AT(timeout_ms), .nullable = true },               \
	{ "resources",       rq_resources,      .nullable = true },                               \
	{ "network_policy",  rq_network,        .nullable = true },                               \
	{ "manifest",        json_take_object,  AT(manifest), .nullable = true },                 \
	{ "stdin",           rq_text,           AT(stdin_data), .nullable = true },               \
	{ "stdin_base64",    rq_base64,         AT(stdin_data), .nullable = true },               \
	{ "files",           rq_files,          .nullable = true },                               \
	{ "archive_base64",  rq_base64,         AT(archive), .nullable = true },                  \
	{ "outputs",         json_take_strings, AT(outputs), .max = 16, .nullable = true },       \
	{ "env",             rq_env,            AT(env), .nullable = true },                      \
	{ "secrets",         rq_secrets,        AT(own), .nullable = true },                      \
	{ "user_config",     json_take_object,  AT(config), .nullable = true },                   \
	{ "redact",          json_take_bool,    AT(redact) },                                     \
	{ "trace",           json_take_bool,    AT(trace) },                                      \
	{ "cwd",             json_take_string,  AT(cwd), .min = 1, .max = 255, .nullable = true }, \
	{ "operator",        json_take_bool,    AT(as_operator) },                                   \
	{ "priority",        json_take_choice,  AT(priority), .choices = job_priority_names },    \
	{ "kind",            json_take_choice,  AT(kind), .choices = job_kind_names }

static const struct json_field python_fields[] = {
	COMMON_FIELDS,
	{ "session_id", rq_session,   AT(session_id), .min = 1, .max = SESSION_ID_MAX, .nullable = true },
	{ "session_must_exist", json_take_bool, AT(session_must_exist) },
	{ "code",          json_take_string, AT(code), .max = REQUEST_BODY_MAX, .required = true },
	{ "function_name", json_take_string, AT(function), .max = 1024, .nullable = true },
	{ "params",        json_take_object, AT(params), .nullable = true },
	{ "params_python", json_take_string, AT(expression), .max = REQUEST_BODY_MAX, .nullable = true },
	{ "python",        rq_python,        .nullable = true },
	{ "compat",        rq_compat },
};

static const struct json_field command_fields[] = {
	COMMON_FIELDS,
	{ "session_id", rq_session,   AT(session_id), .min = 1, .max = SESSION_ID_MAX, .nullable = true },
	{ "session_must_exist", json_take_bool, AT(session_must_exist) },
	{ "command", rq_command,     AT(argv) },
	{ "argv",    rq_argv,        AT(argv) },
	{ "skill",   rq_skill },
	{ "tty",     json_take_bool, AT(tty) },
	{ "tty_rows", json_take_u32, AT(tty_rows), .min = 1, .max = TTY_SIZE_MAX },
	{ "tty_cols", json_take_u32, AT(tty_cols), .min = 1, .max = TTY_SIZE_MAX },
	{ "interactive", json_take_bool, AT(interactive) },
};

/* What fixes a session's policy and life, and what is there when it begins. */
static const struct json_field session_fields[] = {
	{ "session_id",      rq_session,        AT(session_id), .min = 1, .max = SESSION_ID_MAX, .required = true },
	{ "workspace_id",    json_take_string,  AT(workspace_id), .max = 128, .nullable = true },
	{ "trace_id",        json_take_string,  AT(trace_id), .max = 256, .nullable = true },
	{ "image",           rq_image,          AT(image), .min = 1, .max = 127, .nullable = true },
	{ "timeout_seconds", rq_seconds,        AT(timeout_ms), .nullable = true },
	{ "resources",       rq_resources,      .nullable = true },
	{ "network_policy",  rq_network,        .nullable = true },
	{ "manifest",        json_take_object,  AT(manifest), .nullable = true },
	{ "files",           rq_files,          .nullable = true },
	{ "archive_base64",  rq_base64,         AT(archive), .nullable = true },
	{ "skill",           rq_skill },
	{ "operator",        json_take_bool,    AT(as_operator) },
	{ "secrets",         rq_secrets,        AT(own), .nullable = true },
	{ "user_config",     json_take_object,  AT(config), .nullable = true },
	{ "priority",        json_take_choice,  AT(priority), .choices = job_priority_names },
	{ "idle_timeout_seconds", rq_seconds,   AT(idle_ms), .nullable = true },
	{ "ttl_seconds",     rq_seconds,        AT(ttl_ms), .nullable = true },
	{ "max_commands",    json_take_u32,     AT(max_commands), .min = 1, .max = UINT32_MAX },
	{ "snapshot_id",     rq_session,        AT(snapshot_id), .min = 1, .max = SESSION_ID_MAX, .nullable = true },
};
/* clang-format on */

static const struct {
	const struct json_field *fields;
	size_t n;
} tables[JOB_KIND_MAX] = {
	[JOB_PYTHON] = { python_fields, ARRAY_SIZE(python_fields) },
	[JOB_COMMAND] = { command_fields, ARRAY_SIZE(command_fields) },
	[JOB_SKILL] = { command_fields, ARRAY_SIZE(command_fields) },
	[JOB_SESSION] = { session_fields, ARRAY_SIZE(session_fields) },
};

/* The same rule as for the manifest's variables: see policy/resolve_env.c. */
static int check_env(struct json_reader *r, const struct job_spec *s)
{
	for (char **v = s->env; v && *v && !s->as_operator; v++) {
		char name[ENV_NAME_MAX + 1];

		snprintf(name, sizeof(name), "%.*s", (int)strcspn(*v, "="), *v);
		if (!env_name_is_loader(name))
			continue;
		json_enter(r, "env");
		json_enter(r, name);
		return json_fail(r,
				 "decides what a program loads or runs first; only an operator may "
				 "set it");
	}
	return 0;
}

/* What a session was made of it has again when it begins with a snapshot. */
static int check_snapshot(struct json_reader *r, const struct job_spec *s)
{
	const struct {
		bool there;
		const char *name;
	} fixed[] = { { s->image, "image" },
		      { s->manifest, "manifest" },
		      { s->has_skill, "skill" },
		      { s->network, "network_policy" },
		      { s->timeout_ms, "timeout_seconds" },
		      { s->cpu_milli || s->memory_mb || s->pids, "resources" } };

	for (size_t i = 0; s->snapshot_id && i < ARRAY_SIZE(fixed); i++) {
		if (!fixed[i].there)
			continue;
		json_enter(r, fixed[i].name);
		return json_fail(r, "the snapshot brings what fixes the policy");
	}
	return 0;
}

/* Rules that concern more than one field. */
static int check(struct json_reader *r, const struct job_spec *s)
{
	int ret = check_snapshot(r, s);

	if (ret < 0)
		return ret;
	if (s->kind == JOB_SKILL && !s->has_skill) {
		json_enter(r, "skill");
		return json_fail(r, "is required");
	}
	if (s->kind == JOB_COMMAND && !s->argv && !s->has_skill) {
		json_enter(r, "command");
		return json_fail(r, "is required");
	}
	if (s->argv && s->entrypoint) {
		json_enter(r, "skill");
		json_enter(r, "entrypoint");
		return json_fail(r, "a command is given as well");
	}
	if (s->cwd && s->cwd[0] != '/') {
		json_enter(r, "cwd");
		return json_fail(r, "must be an absolute path inside, such as \"/workspace/x\"");
	}
	if (s->params && s->expression) {
		json_enter(r, "params_python");
		return json_fail(r, "params are given as well");
	}
	if (s->has_skill && s->manifest) {
		json_enter(r, "manifest");
		return json_fail(r, "the skill brings its own");
	}
	if (s->interactive && s->stdin_data.data) {
		json_enter(r, "interactive");
		return json_fail(r, "excludes other standard input");
	}
	if (s->tty && s->stdin_data.data) {
		json_enter(r, "tty");
		return json_fail(r, "a terminal has no other standard input");
	}
	if (!s->tty && (s->tty_rows || s->tty_cols)) {
		json_enter(r, s->tty_rows ? "tty_rows" : "tty_cols");
		return json_fail(r, "is the size of a terminal: say \"tty\": true");
	}
	return check_env(r, s);
}

static int read_kind(struct json_reader *r, struct json_object *v, struct job_spec *s)
{
	static const struct json_field kind = { "kind", json_take_choice, AT(kind),
						.choices = job_kind_names };
	struct json_object *k = NULL;
	size_t mark;
	int ret;

	if (!json_object_is_type(v, json_type_object))
		return json_fail(r, "expected an object, found %s", json_type_text(v));
	mark = json_enter(r, "kind");
	if (!json_object_object_get_ex(v, "kind", &k))
		return json_fail(r, "is required");
	ret = json_take_choice(r, k, &kind, s);
	if (ret == 0 && s->kind == JOB_SESSION)
		return json_fail(r, "sessions are made by POST /v1/sessions");
	json_leave(r, mark);
	return ret;
}

static int read_spec(struct json_object *v, uint32_t kind, struct job_spec *s,
		     struct nsbox_error *err)
{
	struct json_reader r;
	int ret;

	json_reader_init(&r, NSBOX_E_INVALID, err);
	if (kind == JOB_KIND_MAX) {
		ret = read_kind(&r, v, s);
		if (ret < 0)
			return ret;
		kind = s->kind;
	}
	ret = json_read_object(&r, v, tables[kind].fields, tables[kind].n, false, s);
	if (ret < 0)
		return ret;
	r.len = 0;
	if (json_object_object_get(v, "kind") && s->kind != kind) {
		json_enter(&r, "kind");
		return json_fail(&r, "is \"%s\" at this place", job_kind_names[kind]);
	}
	s->kind = kind;
	return check(&r, s);
}

/* What may be kept of a request that brought secrets. */
static int leave_out(struct json_object *v, struct job_spec *s, struct nsbox_error *err)
{
	const char *text;

	json_object_object_del(v, "secrets");
	text = json_object_to_json_string_ext(v, JSON_C_TO_STRING_PLAIN |
							 JSON_C_TO_STRING_NOSLASHESCAPE);
	s->without = text ? strdup(text) : NULL;
	return s->without ? 0 : nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read a request");
}

int request_parse(const char *body, size_t len, uint32_t kind, struct job_spec **ret,
		  struct nsbox_error *err)
{
	const struct json_limits lim = { .max_size = REQUEST_BODY_MAX,
					 .max_depth = JSON_DEPTH_MAX,
					 .max_nodes = NODES_MAX,
					 .code = NSBOX_E_INVALID };
	struct json_object *v = NULL;
	struct job_spec *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read a request");
	s->priority = QUEUE_NORMAL;
	r = json_strict_parse(body, len, &lim, &v, err);
	if (r == 0)
		r = read_spec(v, kind, s, err);
	if (r == 0 && s->own.n)
		r = leave_out(v, s, err);
	json_object_put(v);
	if (r < 0) {
		job_spec_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

static const struct json_field narrow_fields[] = {
	{ "network_policy", rq_network, .nullable = true },
	{ "manifest", json_take_object, AT(manifest), .nullable = true },
};

int request_parse_narrowing(const char *body, size_t len, struct job_spec **ret,
			    struct nsbox_error *err)
{
	const struct json_limits lim = { .max_size = 512u << 10,
					 .max_depth = JSON_DEPTH_MAX,
					 .max_nodes = NODES_MAX,
					 .code = NSBOX_E_INVALID };
	struct job_spec *s = calloc(1, sizeof(*s));
	struct json_object *v = NULL;
	struct json_reader r;
	int rc;

	if (!s)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read a request");
	rc = json_strict_parse(body, len, &lim, &v, err);
	json_reader_init(&r, NSBOX_E_INVALID, err);
	if (rc == 0)
		rc = json_read_object(&r, v, narrow_fields, ARRAY_SIZE(narrow_fields), true, s);
	if (rc == 0 && !s->network && !s->manifest)
		rc = nsbox_fail(err, NSBOX_E_INVALID, 0,
				"/: network_policy or manifest has to say what becomes narrower");
	json_object_put(v);
	if (rc < 0)
		job_spec_free(s);
	else
		*ret = s;
	return rc;
}

void job_spec_drop_files(struct job_spec *s)
{
	for (size_t i = 0; i < s->n_files; i++) {
		free(s->files[i].path);
		free(s->files[i].symlink);
		free(s->files[i].content.data);
	}
	s->n_files = 0;
	free_ptr(&s->files);
	free_ptr(&s->archive.data);
	free_ptr(&s->skill_archive.data);
}

void job_spec_free(struct job_spec *s)
{
	if (!s)
		return;
	job_spec_drop_files(s);
	json_strings_free(s->outputs);
	json_strings_free(s->env);
	json_strings_free(s->argv);
	json_object_put(s->manifest);
	json_object_put(s->network);
	json_object_put(s->params);
	json_object_put(s->config);
	own_done(&s->own);
	free(s->without);
	free(s->stdin_data.data);
	free(s->workspace_id);
	free(s->trace_id);
	free(s->image);
	free(s->session_id);
	free(s->snapshot_id);
	free(s->cwd);
	free(s->code);
	free(s->function);
	free(s->expression);
	free(s->python.interpreter);
	json_strings_free(s->python.path);
	free(s->skill_name);
	free(s->entrypoint);
	free(s);
}
