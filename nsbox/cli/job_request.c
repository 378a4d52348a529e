/* SPDX-License-Identifier: Apache-2.0 */
/* See job_request.h. */
#include "nsbox/cli/job_request.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/text.h"
#include "nsbox/cli/job_files.h"
#include "nsbox/cli/pack.h"
#include "nsbox/util.h"
#include "policy/json_strict.h"

#define SETTER(field)                                                                              \
	static int set_##field(void *ctx, const char *v)                                           \
	{                                                                                          \
		((struct job_options *)ctx)->field = v;                                            \
		return 0;                                                                          \
	}
SETTER(socket)
SETTER(manifest)
SETTER(skill)
SETTER(entry)
SETTER(python)
SETTER(function)
SETTER(params)
SETTER(cwd)
SETTER(workspace)
SETTER(input)
SETTER(output)

static int seconds(double *ret, const char *option, const char *v)
{
	char *end;
	double s = strtod(v, &end);

	if (end == v || *end || !(s > 0) || s > 31536000)
		return cli_usage("--%s takes seconds (a number above 0), not '%s'", option, v);
	*ret = s;
	return 0;
}

static int set_timeout(void *ctx, const char *v)
{
	return seconds(&((struct job_options *)ctx)->timeout, "timeout", v);
}

static int set_idle(void *ctx, const char *v)
{
	return seconds(&((struct job_options *)ctx)->idle, "idle", v);
}

static int set_ttl(void *ctx, const char *v)
{
	return seconds(&((struct job_options *)ctx)->ttl, "ttl", v);
}

static int set_max_commands(void *ctx, const char *v)
{
	uint64_t n;

	if (!parse_u64(v, &n) || !n || n > UINT32_MAX)
		return cli_usage("--max-commands takes a number above 0, not '%s'", v);
	((struct job_options *)ctx)->max_commands = n;
	return 0;
}

static int set_env(void *ctx, const char *v)
{
	struct job_options *o = ctx;

	if (!strchr(v, '=') || *v == '=')
		return cli_usage("--env takes NAME=VALUE, not '%s'", v);
	if (o->envs == JOB_ENVS_MAX)
		return cli_usage("--env may be given %d times at most", JOB_ENVS_MAX);
	o->env[o->envs++] = v;
	return 0;
}

static int set_put(void *ctx, const char *v)
{
	struct job_options *o = ctx;

	if (o->puts == JOB_ENVS_MAX)
		return cli_usage("--put may be given %d times at most", JOB_ENVS_MAX);
	o->put[o->puts++] = v;
	return 0;
}

static int set_collect(void *ctx, const char *v)
{
	struct job_options *o = ctx;

	if (o->collects == ARRAY_SIZE(o->collect))
		return cli_usage("--collect may be given %zu times at most",
				 ARRAY_SIZE(o->collect));
	o->collect[o->collects++] = v;
	return 0;
}

static int set_secret(void *ctx, const char *v)
{
	return cli_secret(&((struct job_options *)ctx)->inputs, v);
}

static int set_config(void *ctx, const char *v)
{
	return cli_config(&((struct job_options *)ctx)->inputs, v);
}

static int set_redact(void *ctx, const char *v)
{
	((struct job_options *)ctx)->redact = true;
	return 0;
}

static int set_allow(void *ctx, const char *v)
{
	struct job_options *o = ctx;

	if (o->allows == JOB_ALLOW_MAX)
		return cli_usage("--allow may be given %d times at most", JOB_ALLOW_MAX);
	o->allow[o->allows++] = v;
	return 0;
}

static int set_no_network(void *ctx, const char *v)
{
	((struct job_options *)ctx)->no_network = true;
	return 0;
}

static int set_json(void *ctx, const char *v)
{
	((struct job_options *)ctx)->json = true;
	return 0;
}

#define SOCKET_ROW                                                                                 \
	{                                                                                          \
		"socket", 'S', "PATH",                                                             \
			"the daemon's socket (default: $NSBOX_SOCKET, else " SOCKET_DEFAULT ")",   \
			set_socket                                                                 \
	}
#define JSON_ROW                                                                                   \
	{                                                                                          \
		"json", 'j', NULL, "print the daemon's answer as it is", set_json                  \
	}

#define OUTPUT_ROW                                                                                 \
	{                                                                                          \
		"output", 'o', "DIR", "write its outputs there", set_output                        \
	}

#define FUNCTION_ROWS                                                                              \
	{ "python", 'P', "FILE", "call a Python function of this file", set_python },              \
		{ "function", 'f', "NAME", "which one (default: the last defined)",                \
		  set_function },                                                                  \
	{                                                                                          \
		"params", 'a', "JSON|@FILE", "its keyword arguments, a JSON object", set_params    \
	}

const struct option_row job_submit_rows[] = {
	SOCKET_ROW,
	JSON_ROW,
	{ "manifest", 'm', "FILE", "policy: a skill.json", set_manifest },
	{ "skill", 's', "DIR", "send a skill directory; its skill.json is the policy", set_skill },
	{ "entry", 'e', "ID", "entry point of the skill", set_entry },
	FUNCTION_ROWS,
	{ "stdin", 'i', "FILE", "what it reads on standard input, - for ours (default: nothing)",
	  set_input },
	{ "env", 'E', "NAME=VALUE", "set a variable", set_env },
	{ "put", 'p', "SRC[:DST]", "a file or directory for its working directory", set_put },
	{ "collect", 'c', "GLOB", "an output, besides those of the manifest", set_collect },
	OUTPUT_ROW,
	SECRET_ROW(set_secret),
	CONFIG_ROW(set_config),
	{ "redact", 0, NULL, "show no value of a secret in its output", set_redact },
	{ "cwd", 'C', "DIR", "working directory inside", set_cwd },
	{ "workspace", 'w', "ID", "whose turn in the queue it takes", set_workspace },
	{ "timeout", 't', "SECONDS", "end it after so long", set_timeout },
	{ NULL, 0, NULL, NULL, NULL },
};

const struct option_row job_show_rows[] = {
	SOCKET_ROW,
	JSON_ROW,
	OUTPUT_ROW,
	{ NULL, 0, NULL, NULL, NULL },
};

const struct option_row job_plain_rows[] = {
	SOCKET_ROW,
	JSON_ROW,
	{ NULL, 0, NULL, NULL, NULL },
};

#define TALK_ROWS                                                                                  \
	SOCKET_ROW,                                                                                \
		{ "manifest", 'm', "FILE",                                                         \
		  "policy of a new session, or a narrower one for this command: a skill.json",     \
		  set_manifest },                                                                  \
		{ "skill", 's', "DIR", "put a skill directory into a new session", set_skill },    \
	{                                                                                          \
		"workspace", 'w', "ID", "the workspace that it belongs to", set_workspace          \
	}

#define SESSION_ROWS JSON_ROW, TALK_ROWS

#define LIFE_ROWS                                                                                  \
	{ "idle", 'i', "SECONDS", "it ends after so long without a command", set_idle },           \
		{ "ttl", 'l', "SECONDS", "it ends after so long", set_ttl },                       \
	{                                                                                          \
		"max-commands", 'c', "N", "it ends after so many commands", set_max_commands       \
	}

const struct option_row session_create_rows[] = {
	SESSION_ROWS,
	SECRET_ROW(set_secret),
	CONFIG_ROW(set_config),
	{ "timeout", 't', "SECONDS", "the most that a command of it may take", set_timeout },
	LIFE_ROWS,
	{ NULL, 0, NULL, NULL, NULL },
};

/* One that begins with the files of another has that one's policy. */
const struct option_row session_again_rows[] = {
	SOCKET_ROW,
	JSON_ROW,
	{ "workspace", 'w', "ID", "the workspace that it belongs to", set_workspace },
	SECRET_ROW(set_secret),
	CONFIG_ROW(set_config),
	LIFE_ROWS,
	{ NULL, 0, NULL, NULL, NULL },
};

const struct option_row session_place_rows[] = {
	SOCKET_ROW,
	JSON_ROW,
	{ "workspace", 'w', "ID", "the session's workspace, where two have the name",
	  set_workspace },
	{ NULL, 0, NULL, NULL, NULL },
};

const struct option_row session_exec_rows[] = {
	SESSION_ROWS,
	FUNCTION_ROWS,
	{ "stdin", 'i', "FILE", "what it reads on standard input, - for ours (default: nothing)",
	  set_input },
	{ "env", 'E', "NAME=VALUE", "set a variable", set_env },
	SECRET_ROW(set_secret),
	CONFIG_ROW(set_config),
	{ "redact", 0, NULL, "show no value of a secret in its output", set_redact },
	{ "cwd", 'C', "DIR", "working directory inside", set_cwd },
	{ "timeout", 't', "SECONDS", "end it after so long", set_timeout },
	{ NULL, 0, NULL, NULL, NULL },
};

const struct option_row session_shell_rows[] = {
	TALK_ROWS,
	{ "env", 'E', "NAME=VALUE", "set a variable", set_env },
	SECRET_ROW(set_secret),
	CONFIG_ROW(set_config),
	{ "cwd", 'C', "DIR", "working directory inside", set_cwd },
	{ "timeout", 't', "SECONDS", "end it after so long", set_timeout },
	{ NULL, 0, NULL, NULL, NULL },
};

const struct option_row session_narrow_rows[] = {
	SOCKET_ROW,
	JSON_ROW,
	{ "manifest", 'm', "FILE", "a narrower skill.json, for all that starts from now on",
	  set_manifest },
	{ "allow", 'a', "HOST[:PORT][/udp]", "what it may still reach (default ports: 80 and 443)",
	  set_allow },
	{ "no-network", 0, NULL, "it may reach nothing any more", set_no_network },
	{ NULL, 0, NULL, NULL, NULL },
};

/* ------------------------------------------------------------------ asking */

int job_ask(const struct job_options *o, const char *method, const char *path,
	    struct json_object *body, struct answer *ret)
{
	int r = ask_daemon(o->socket, method, path, body, ret);

	if (r >= 0 && o->json && ret->len)
		printf("%s\n", ret->text);
	return r < 0 ? EXIT_NSBOX : r;
}

/* ------------------------------------------------------------------ the request */

void job_add_str(struct json_object *o, const char *key, const char *v)
{
	if (v)
		json_object_object_add(o, key, json_object_new_string(v));
}

static int add_json(struct json_object *o, const char *key, const char *text, size_t len,
		    const char *what)
{
	const struct json_limits lim = { .max_size = 64u << 20,
					 .max_depth = JSON_DEPTH_MAX,
					 .code = NSBOX_E_INVALID };
	struct nsbox_error err = { 0 };
	struct json_object *v;

	if (json_strict_parse(text, len, &lim, &v, &err) < 0) {
		nsbox_error_prefix(&err, "%s", what);
		return cli_error(&err);
	}
	json_object_object_add(o, key, v);
	return 0;
}

static int add_file(struct json_object *o, const char *key, const char *path, bool as_json)
{
	struct nsbox_error err = { 0 };
	auto_free char *text = NULL;
	size_t len;

	if (cli_read_file(path, 64u << 20, &text, &len, &err) < 0)
		return cli_error(&err);
	if (as_json)
		return add_json(o, key, text, len, path);
	json_object_object_add(o, key, json_object_new_string_len(text, (int)len));
	return 0;
}

int job_add_file(struct json_object *o, const char *key, const char *path)
{
	return add_file(o, key, path, true);
}

/* Its directory inside is called as it is here, as far as the daemon takes such names. */
static void add_skill_name(struct json_object *skill, const char *dir)
{
	static const char good[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
	auto_free char *real = realpath(dir, NULL);
	const char *base = real ? strrchr(real, '/') + 1 : "";

	if (*base && *base != '.' && strlen(base) <= 64 && strspn(base, good) == strlen(base))
		job_add_str(skill, "name", base);
}

static int add_params(struct json_object *body, const char *params)
{
	if (*params == '@')
		return add_file(body, "params", params + 1, true);
	return add_json(body, "params", params, strlen(params), "--params");
}

static int add_stdin(struct json_object *body, const char *path)
{
	struct nsbox_error err = { 0 };
	auto_free char *data = NULL, *text = NULL;
	size_t len;

	if (cli_read_file(path, 48u << 20, &data, &len, &err) < 0)
		return cli_error(&err);
	text = base64_encode(data, len);
	job_add_str(body, "stdin_base64", text);
	return 0;
}

static void add_env(struct json_object *body, const struct job_options *o)
{
	struct json_object *env = json_object_new_object();

	for (unsigned i = 0; i < o->envs; i++) {
		const char *equals = strchr(o->env[i], '=');
		auto_free char *name = strndup(o->env[i], (size_t)(equals - o->env[i]));

		if (name)
			job_add_str(env, name, equals + 1);
	}
	json_object_object_add(body, "env", env);
}

/* The daemon's parameters have types: what reads as a number or a truth is sent as such. */
static struct json_object *typed(const char *text)
{
	const struct json_limits lim = { .max_size = INPUT_VALUE_MAX,
					 .max_depth = 1,
					 .code = NSBOX_E_INVALID };
	struct json_object *v = NULL;

	if (json_strict_parse(text, strlen(text), &lim, &v, NULL) == 0 && v &&
	    !json_object_is_type(v, json_type_string))
		return v;
	json_object_put(v);
	return json_object_new_string(text);
}

static int add_files(struct json_object *body, const struct job_options *o)
{
	struct json_object *files = json_object_new_array(), *globs = json_object_new_array();
	struct nsbox_error err = { 0 };
	int r = 0;

	for (unsigned i = 0; r == 0 && i < o->puts; i++)
		r = job_files_add(files, o->put[i], &err);
	for (unsigned i = 0; i < o->collects; i++)
		json_object_array_add(globs, json_object_new_string(o->collect[i]));
	json_object_object_add(body, "files", files);
	json_object_object_add(body, "outputs", globs);
	return r < 0 ? cli_error(&err) : 0;
}

static void add_inputs(struct json_object *body, const struct job_options *o)
{
	struct json_object *secrets = json_object_new_object(), *config = json_object_new_object();

	for (size_t i = 0; i < o->inputs.n_secrets; i++)
		json_object_object_add(secrets, o->inputs.secrets[i].name,
				       json_object_new_string_len(o->inputs.secrets[i].value,
								  (int)o->inputs.secrets[i].len));
	if (o->inputs.config) {
		json_object_object_foreach (o->inputs.config, id, value) {
			json_object_object_add(config, id, typed(json_object_get_string(value)));
		}
	}
	json_object_object_add(body, "secrets", secrets);
	json_object_object_add(body, "user_config", config);
	if (o->redact)
		json_object_object_add(body, "redact", json_object_new_boolean(true));
}

static int add_skill(struct json_object *o, const struct job_options *opt)
{
	struct json_object *skill = json_object_new_object();
	struct nsbox_error err = { 0 };
	struct pack pack;
	char *text;

	json_object_object_add(o, "skill", skill);
	if (pack_dir(opt->skill, &pack, &err) < 0)
		return cli_error(&err);
	text = base64_encode(pack.data, pack.len);
	free(pack.data);
	job_add_str(skill, "archive_base64", text);
	job_add_str(skill, "entrypoint", opt->entry);
	add_skill_name(skill, opt->skill);
	free(text);
	return 0;
}

/* What is not about the program. */
static int add_wishes(const struct job_options *o, struct json_object *body)
{
	int r = 0;

	add_inputs(body, o);
	job_add_str(body, "workspace_id", o->workspace);
	job_add_str(body, "session_id", o->session);
	if (o->timeout > 0)
		json_object_object_add(body, "timeout_seconds", json_object_new_double(o->timeout));
	if (o->manifest)
		r = add_file(body, "manifest", o->manifest, true);
	return r == 0 && o->skill ? add_skill(body, o) : r;
}

static int add_python(const struct job_options *o, struct json_object *body)
{
	int r = add_file(body, "code", o->python, false);

	job_add_str(body, "function_name", o->function);
	return r == 0 && o->params ? add_params(body, o->params) : r;
}

static void add_argv(struct json_object *body, char **argv)
{
	struct json_object *list = json_object_new_array();

	for (; *argv; argv++)
		json_object_array_add(list, json_object_new_string(*argv));
	json_object_object_add(body, "argv", list);
}

int job_build(const struct job_options *o, char **argv, bool wait, struct json_object *body)
{
	int r;

	if (!o->python && !o->skill && !*argv)
		return cli_usage("what is to be run? See --help");
	if (o->python && (*argv || o->skill))
		return cli_usage("--python takes neither a program nor --skill");
	if (!wait) /* the synchronous calls say it by their path */
		job_add_str(body, "kind",
			    o->python  ? "python-function"
			    : o->skill ? "skill"
				       : "command");
	job_add_str(body, "cwd", o->cwd);
	r = add_wishes(o, body);
	if (r == 0 && o->python)
		r = add_python(o, body);
	if (r == 0 && o->input)
		r = add_stdin(body, o->input);
	if (r == 0 && (o->puts || o->collects))
		r = add_files(body, o);
	if (o->envs)
		add_env(body, o);
	if (r == 0 && *argv)
		add_argv(body, argv);
	return r;
}

int session_build(const struct job_options *o, struct json_object *body)
{
	if (o->idle > 0)
		json_object_object_add(body, "idle_timeout_seconds",
				       json_object_new_double(o->idle));
	if (o->ttl > 0)
		json_object_object_add(body, "ttl_seconds", json_object_new_double(o->ttl));
	if (o->max_commands)
		json_object_object_add(body, "max_commands",
				       json_object_new_int64((int64_t)o->max_commands));
	return add_wishes(o, body);
}

/* ------------------------------------------------------------------ the answer */

static int integer(struct json_object *o, const char *key, int otherwise)
{
	struct json_object *v = NULL;

	if (!json_object_is_type(o, json_type_object) || !json_object_object_get_ex(o, key, &v) ||
	    !json_object_is_type(v, json_type_int))
		return otherwise;
	return json_object_get_int(v);
}

static bool is_true(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	return json_object_object_get_ex(o, key, &v) && json_object_get_boolean(v);
}

int job_show_result(struct json_object *result)
{
	const char *out = answer_text(result, "stdout"), *err = answer_text(result, "stderr");
	const char *cause = answer_text(result, "cause"), *msg = answer_text(result, "msg");
	struct json_object *data = NULL;
	int code = integer(result, "code", 0), status = integer(result, "exit_code", EXIT_NSBOX);

	if (out)
		fputs(out, stdout);
	if (err)
		fputs(err, stderr);
	if (json_object_object_get_ex(result, "data", &data) && data)
		printf("%s\n",
		       json_object_to_json_string_ext(
			       data, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
	if (is_true(result, "stdout_truncated") || is_true(result, "stderr_truncated"))
		fprintf(stderr, "nsbox: output was cut at the policy's limit\n");
	if (msg && *msg && code != 200)
		fprintf(stderr, "nsbox: %s\n", msg);
	else if (cause && strcmp(cause, "exit") != 0)
		fprintf(stderr, "nsbox: ended: %s\n", cause);
	return status == 0 && code != 200 ? 1 : status;
}
