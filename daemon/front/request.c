/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client asks for: JSON to struct job_spec, by tables.
 *
 * Nothing is guessed: an unknown key, a wrong type, two ways of saying the same thing at once are
 * errors that name their place. What the tables accept is complete: later steps fail only for
 * reasons outside the request's form.
 */
#include "daemon/front/request.h"

#include <json-c/json.h>
#include <nsbox/files.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/pycall.h"
#include "daemon/common/text.h"
#include "daemon/front/queue.h"
#include "daemon/front/session.h"
#include "nsbox/util.h"
#include "overlay/image/store.h"
#include "policy/env_names.h"
#include "policy/json_strict.h"

#define FILES_MAX 4096
#define ARGS_MAX  4096
#define ARG_BYTES (128 * 1024 - 1) /* the kernel's limit for one argument */
#define NODES_MAX 1000000

#define AT(member)   offsetof(struct job_spec, member)
#define TARGET(type) ((type *)(void *)((char *)dst + f->offset))

const char *const job_kind_names[] = { "python-function", "command", "skill", "session", NULL };
const char *const job_priority_names[] = { "low", "normal", "high", NULL }; /* queue_priority */

/* ------------------------------------------------------------------ readers */

static int take_base64(struct json_reader *r, struct json_object *v, const struct json_field *f,
		       void *dst)
{
	struct bytes *b = TARGET(struct bytes);
	const char *s = json_string(r, v);
	int ret;

	if (!s)
		return -EINVAL;
	if (b->data)
		return json_fail(r, "is given twice, as text and as base64");
	ret = base64_decode(s, (size_t)json_object_get_string_len(v), &b->data, &b->len);
	if (ret == -ENOMEM)
		return json_nomem(r);
	return ret < 0 ? json_fail(r, "is not base64 (RFC 4648, padded, no white space)") : 0;
}

static int take_text(struct json_reader *r, struct json_object *v, const struct json_field *f,
		     void *dst)
{
	struct bytes *b = TARGET(struct bytes);
	const char *s = json_string(r, v);

	if (!s)
		return -EINVAL;
	if (b->data)
		return json_fail(r, "is given twice, as text and as base64");
	b->len = (size_t)json_object_get_string_len(v);
	b->data = malloc(b->len + 1);
	if (!b->data)
		return json_nomem(r);
	memcpy(b->data, s, b->len);
	return 0;
}

/* Whole or fractional seconds. */
static int take_seconds(struct json_reader *r, struct json_object *v, const struct json_field *f,
			void *dst)
{
	double s = json_object_get_double(v);

	if (!json_object_is_type(v, json_type_int) && !json_object_is_type(v, json_type_double))
		return json_fail(r, "expected a number of seconds, found %s", json_type_text(v));
	if (!(s >= 0.001 && s <= 1e9))
		return json_fail(r, "must be a number of seconds above 0");
	*TARGET(uint64_t) = (uint64_t)(s * 1000 + 0.5);
	return 0;
}

static int take_cpus(struct json_reader *r, struct json_object *v, const struct json_field *f,
		     void *dst)
{
	uint64_t milli = 0;
	struct json_field whole = *f;
	int ret;

	whole.offset = 0;
	ret = json_take_cpu(r, v, &whole, &milli);
	if (ret == 0)
		*TARGET(uint32_t) = (uint32_t)milli;
	return ret;
}

static const struct json_field resource_fields[] = {
	{ "cpu", take_cpus, AT(cpu_milli), .min = 10, .max = 1024000 },
	{ "memory_mb", json_take_u64, AT(memory_mb), .min = 16, .max = 1 << 20 },
	{ "pids", json_take_u32, AT(pids), .min = 2, .max = 1 << 20 },
};

static int take_resources(struct json_reader *r, struct json_object *v, const struct json_field *f,
			  void *dst)
{
	return json_read_object(r, v, resource_fields, ARRAY_SIZE(resource_fields), false, dst);
}

/* ------------------------------------------------------------------ network_policy */

struct network_wish {
	uint32_t mode;
	char **allow;
};

static const char *const network_modes[] = { "none", "allowlist", "open", NULL };
static const struct json_field network_fields[] = {
	{ "mode", json_take_choice, offsetof(struct network_wish, mode), .choices = network_modes,
	  .required = true },
	{ "allow", json_take_strings, offsetof(struct network_wish, allow), .max = 64,
	  .nullable = true },
};

/* "host", "host:443", "[2001:db8::1]:443" as an entry of a manifest's network.allow. */
static struct json_object *allow_entry(const char *text)
{
	const char *colon = strrchr(text, ':'), *end = strchr(text, ']');
	bool bracket = text[0] == '[' && end;
	bool port = colon && (bracket ? end < colon : strchr(text, ':') == colon);
	struct json_object *o = json_object_new_object(), *ports = json_object_new_array();
	size_t len = bracket ? (size_t)(end - text) - 1
		     : port  ? (size_t)(colon - text)
			     : strlen(text);

	json_object_object_add(o, "host", json_object_new_string_len(text + bracket, (int)len));
	if (port) {
		json_object_array_add(ports, json_object_new_int64(strtol(colon + 1, NULL, 10)));
	} else {
		json_object_array_add(ports, json_object_new_int(80));
		json_object_array_add(ports, json_object_new_int(443));
	}
	json_object_object_add(o, "ports", ports);
	json_object_object_add(o, "description", json_object_new_string("network_policy"));
	return o;
}

static int take_network(struct json_reader *r, struct json_object *v, const struct json_field *f,
			void *dst)
{
	struct job_spec *s = dst;
	struct network_wish w = { 0 };
	struct json_object *o, *allow;
	int ret = json_read_object(r, v, network_fields, ARRAY_SIZE(network_fields), false, &w);

	if (ret == 0 && w.mode == 0 && w.allow && *w.allow) {
		json_enter(r, "allow");
		ret = json_fail(r, "no host can be allowed in mode \"none\"");
	}
	if (ret == 0) {
		o = json_object_new_object();
		allow = json_object_new_array();
		for (char *const *a = w.allow; a && *a; a++)
			json_object_array_add(allow, allow_entry(*a));
		json_object_object_add(o, "mode", json_object_new_string(network_modes[w.mode]));
		if (w.mode)
			json_object_object_add(o, "allow", allow);
		else
			json_object_put(allow);
		s->network = o;
	}
	json_strings_free(w.allow);
	return ret;
}

/* "debian", "org/tool:1.2", or the first digits of an id; whether there is one, spawn says. */
static int take_image(struct json_reader *r, struct json_object *v, const struct json_field *f,
		      void *dst)
{
	struct nsbox_error why = { 0 };
	int ret = json_take_string(r, v, f, dst);
	const char *s = ret == 0 ? *TARGET(char *) : NULL;

	if (s && strcmp(s, "host") != 0 && image_name_check(s, &why) < 0)
		return json_fail(r, "%s", why.msg);
	return ret;
}

/* A skill's name becomes part of paths: letters, digits and "._-" alone. */
static int take_name(struct json_reader *r, struct json_object *v, const struct json_field *f,
		     void *dst)
{
	static const char good[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
	int ret = json_take_string(r, v, f, dst);
	const char *s;

	if (ret < 0)
		return ret;
	s = *TARGET(char *);
	if (s[0] == '.' || strspn(s, good) != strlen(s))
		return json_fail(r, "may have lower-case letters, digits, '.', '_' and '-' only");
	return 0;
}

static int add_variable(struct json_reader *r, const char *name, struct json_object *v, char **ret)
{
	const char *s = json_string(r, v);

	if (!s)
		return -EINVAL;
	if (!env_name_valid(name))
		return json_fail(r, "is no name of a variable: letters, digits and '_', %d at most",
				 ENV_NAME_MAX);
	if (strlen(name) + strlen(s) > ARG_BYTES)
		return json_fail(r, "is longer than a variable can be");
	return asprintf(ret, "%s=%s", name, s) < 0 ? json_nomem(r) : 0;
}

static int take_env(struct json_reader *r, struct json_object *v, const struct json_field *f,
		    void *dst)
{
	char ***env = TARGET(char **);
	size_t n = 0;

	if (!json_object_is_type(v, json_type_object))
		return json_fail(r, "expected an object, found %s", json_type_text(v));
	*env = calloc((size_t)json_object_object_length(v) + 1, sizeof(**env));
	if (!*env)
		return json_nomem(r);
	json_object_object_foreach (v, name, value) {
		size_t mark = json_enter(r, name);
		int ret = add_variable(r, name, value, &(*env)[n]);

		if (ret < 0)
			return ret;
		n++;
		json_leave(r, mark);
	}
	return 0;
}

/* {"NAME": "value"} */
static int take_secrets(struct json_reader *r, struct json_object *v, const struct json_field *f,
			void *dst)
{
	struct own_secrets *own = TARGET(struct own_secrets);

	if (!json_object_is_type(v, json_type_object))
		return json_fail(r, "expected an object, found %s", json_type_text(v));
	if (json_object_object_length(v) > INPUTS_GIVEN_MAX)
		return json_fail(r, "has more than %d entries", INPUTS_GIVEN_MAX);
	own->v = calloc((size_t)json_object_object_length(v) + 1, sizeof(*own->v));
	if (!own->v)
		return json_nomem(r);
	json_object_object_foreach (v, name, value) {
		size_t mark = json_enter(r, name), len;
		const char *s = json_string(r, value);

		if (!s)
			return -EINVAL;
		len = (size_t)json_object_get_string_len(value);
		if (len > INPUT_VALUE_MAX)
			return json_fail(r, "has more than %d bytes", INPUT_VALUE_MAX);
		if (input_set(&own->v[own->n], name, s, len) < 0)
			return json_nomem(r);
		own->n++;
		json_leave(r, mark);
	}
	return 0;
}

/* Arguments, unlike other lists, may be empty and long. */
static int take_argv(struct json_reader *r, struct json_object *v, const struct json_field *f,
		     void *dst)
{
	char ***argv = TARGET(char **);
	size_t n = json_object_is_type(v, json_type_array) ? json_object_array_length(v) : 0;

	if (!json_object_is_type(v, json_type_array))
		return json_fail(r, "expected an array of strings, found %s", json_type_text(v));
	if (*argv)
		return json_fail(r, "\"command\" and \"argv\" exclude each other");
	if (n == 0 || n > ARGS_MAX)
		return json_fail(r, "needs 1 to %d entries", ARGS_MAX);
	*argv = calloc(n + 1, sizeof(**argv));
	if (!*argv)
		return json_nomem(r);
	for (size_t i = 0; i < n; i++) {
		size_t mark = json_enter_index(r, i);
		const char *s = json_string(r, json_object_array_get_idx(v, i));

		if (!s)
			return -EINVAL;
		if (strlen(s) > ARG_BYTES)
			return json_fail(r, "is longer than an argument can be; pass it as a file");
		(*argv)[i] = strdup(s);
		if (!(*argv)[i])
			return json_nomem(r);
		json_leave(r, mark);
	}
	return (*argv)[0][0] ? 0 : json_fail(r, "the program's name is empty");
}

/* A string is for the sandbox's own shell: nothing outside reads it. */
static int take_command(struct json_reader *r, struct json_object *v, const struct json_field *f,
			void *dst)
{
	char ***argv = TARGET(char **);
	const char *s;

	if (json_object_is_type(v, json_type_array))
		return take_argv(r, v, f, dst);
	s = json_string(r, v);
	if (!s)
		return -EINVAL;
	if (*argv)
		return json_fail(r, "\"command\" and \"argv\" exclude each other");
	if (!*s)
		return json_fail(r, "is empty");
	if (strlen(s) > ARG_BYTES)
		return json_fail(r, "is longer than an argument can be; pass it as a file");
	*argv = calloc(4, sizeof(**argv));
	if (!*argv || !((*argv)[0] = strdup("sh")) || !((*argv)[1] = strdup("-c")) ||
	    !((*argv)[2] = strdup(s)))
		return json_nomem(r);
	return 0;
}

/* ------------------------------------------------------------------ files */

static int take_mode(struct json_reader *r, struct json_object *v, const struct json_field *f,
		     void *dst)
{
	const char *s = json_string(r, v);

	if (!s)
		return -EINVAL;
	if (strspn(s, "01234567") != strlen(s) || strlen(s) < 3 || strlen(s) > 4 ||
	    strtoul(s, NULL, 8) > 0777)
		return json_fail(r, "expected octal digits such as \"0644\"");
	*TARGET(uint32_t) = (uint32_t)strtoul(s, NULL, 8);
	return 0;
}

static int take_path(struct json_reader *r, struct json_object *v, const struct json_field *f,
		     void *dst)
{
	struct nsbox_error why = { 0 };
	int ret = json_take_string(r, v, f, dst);

	if (ret < 0)
		return ret;
	if (nsbox_files_check_path(*TARGET(char *), strlen(*TARGET(char *)), &why) < 0)
		return json_fail(r, "%s", why.msg);
	return 0;
}

#define FILE_AT(member) offsetof(struct spec_file, member)
static const struct json_field file_fields[] = {
	{ "path", take_path, FILE_AT(path), .min = 1, .required = true },
	{ "content_base64", take_base64, FILE_AT(content) },
	{ "content", take_text, FILE_AT(content) },
	{ "symlink", json_take_string, FILE_AT(symlink), .min = 1, .max = 4095 },
	{ "mode", take_mode, FILE_AT(mode) },
};

static int take_file(struct json_reader *r, struct json_object *v, struct spec_file *file)
{
	int ret;

	file->mode = 0644;
	ret = json_read_object(r, v, file_fields, ARRAY_SIZE(file_fields), false, file);
	if (ret == 0 && !!file->symlink == !!file->content.data)
		return json_fail(r, "needs one of content, content_base64 and symlink");
	return ret;
}

static int take_files(struct json_reader *r, struct json_object *v, const struct json_field *f,
		      void *dst)
{
	struct job_spec *spec = dst;
	size_t n = json_object_is_type(v, json_type_array) ? json_object_array_length(v) : 0;

	if (!json_object_is_type(v, json_type_array))
		return json_fail(r, "expected an array, found %s", json_type_text(v));
	if (n > FILES_MAX)
		return json_fail(r, "has more than %d entries; send an archive", FILES_MAX);
	spec->files = calloc(n + 1, sizeof(*spec->files));
	if (!spec->files)
		return json_nomem(r);
	for (size_t i = 0; i < n; i++) {
		size_t mark = json_enter_index(r, i);
		int ret;

		spec->n_files++;
		ret = take_file(r, json_object_array_get_idx(v, i), &spec->files[i]);
		if (ret < 0)
			return ret;
		json_leave(r, mark);
	}
	return 0;
}

static const struct json_field skill_fields[] = {
	{ "archive_base64", take_base64, AT(skill_archive), .required = true },
	{ "name", take_name, AT(skill_name), .min = 1, .max = 64 },
	{ "entrypoint", json_take_string, AT(entrypoint), .min = 1, .max = 127 },
};

static int take_skill(struct json_reader *r, struct json_object *v, const struct json_field *f,
		      void *dst)
{
	((struct job_spec *)dst)->has_skill = true;
	return json_read_object(r, v, skill_fields, ARRAY_SIZE(skill_fields), false, dst);
}

/* ------------------------------------------------------------------ functions */

static int take_inside(struct json_reader *r, struct json_object *v, const struct json_field *f,
		       void *dst)
{
	int ret = json_take_string(r, v, f, dst);

	if (ret == 0 && **TARGET(char *) != '/')
		return json_fail(r,
				 "must be an absolute path inside, such as \"/usr/bin/python3\"");
	return ret;
}

static const struct json_field interpreter_fields[] = {
	{ "interpreter", take_inside, AT(python.interpreter), .max = 4095, .nullable = true },
	{ "path", json_take_strings, AT(python.path), .max = 64, .nullable = true },
};

static int take_python(struct json_reader *r, struct json_object *v, const struct json_field *f,
		       void *dst)
{
	return json_read_object(r, v, interpreter_fields, ARRAY_SIZE(interpreter_fields), false,
				dst);
}

static int take_word(struct json_reader *r, struct json_object *v, unsigned *compat)
{
	static const struct json_field word = { .choices = pycall_compat_names };
	uint32_t bit = 0;
	int ret = json_take_choice(r, v, &word, &bit);

	if (ret == 0)
		*compat |= 1u << bit;
	return ret;
}

/* true is all of it; a list names what is wanted. */
static int take_compat(struct json_reader *r, struct json_object *v, const struct json_field *f,
		       void *dst)
{
	struct job_spec *s = dst;

	if (json_object_is_type(v, json_type_boolean)) {
		s->compat = json_object_get_boolean(v) ? PYCALL_COMPAT_ALL : 0;
		return 0;
	}
	if (!json_object_is_type(v, json_type_array))
		return json_fail(r, "expected true, false or an array of words, found %s",
				 json_type_text(v));
	for (size_t i = 0; i < json_object_array_length(v); i++) {
		size_t mark = json_enter_index(r, i);
		int ret = take_word(r, json_object_array_get_idx(v, i), &s->compat);

		if (ret < 0)
			return ret;
		json_leave(r, mark);
	}
	return 0;
}

/* The caller's own name for it; it is part of paths and of lines that people read. */
static int take_session(struct json_reader *r, struct json_object *v, const struct json_field *f,
			void *dst)
{
	static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				   "0123456789._:@-";
	int ret = json_take_string(r, v, f, dst);
	const char *s = ret == 0 ? *TARGET(char *) : NULL;

	if (s && (s[0] == '.' || strspn(s, good) != strlen(s)))
		return json_fail(r,
				 "may have letters, digits and \"._:@-\" only, and no '.' first");
	return ret;
}

/* ------------------------------------------------------------------ tables */

#define NO_SESSION "a session runs commands; a Python function has a sandbox of its own"

/* clang-format off */
#define COMMON_FIELDS                                                                             \
	{ "workspace_id",    json_take_string,  AT(workspace_id), .max = 128, .nullable = true }, \
	{ "trace_id",        json_take_string,  AT(trace_id), .max = 256, .nullable = true },     \
	{ "image",           take_image,        AT(image), .min = 1, .max = 127, .nullable = true }, \
	{ "timeout_seconds", take_seconds,      AT(timeout_ms), .nullable = true },               \
	{ "resources",       take_resources,    .nullable = true },                               \
	{ "network_policy",  take_network,      .nullable = true },                               \
	{ "manifest",        json_take_object,  AT(manifest), .nullable = true },                 \
	{ "stdin",           take_text,         AT(stdin_data), .nullable = true },               \
	{ "stdin_base64",    take_base64,       AT(stdin_data), .nullable = true },               \
	{ "files",           take_files,        .nullable = true },                               \
	{ "archive_base64",  take_base64,       AT(archive), .nullable = true },                  \
	{ "outputs",         json_take_strings, AT(outputs), .max = 16, .nullable = true },       \
	{ "env",             take_env,          AT(env), .nullable = true },                      \
	{ "secrets",         take_secrets,      AT(own), .nullable = true },                      \
	{ "user_config",     json_take_object,  AT(config), .nullable = true },                   \
	{ "redact",          json_take_bool,    AT(redact) },                                     \
	{ "trace",           json_take_bool,    AT(trace) },                                      \
	{ "cwd",             json_take_string,  AT(cwd), .min = 1, .max = 255, .nullable = true }, \
	{ "operator",        json_take_bool,    AT(as_operator) },                                   \
	{ "priority",        json_take_choice,  AT(priority), .choices = job_priority_names },    \
	{ "kind",            json_take_choice,  AT(kind), .choices = job_kind_names }

static const struct json_field python_fields[] = {
	COMMON_FIELDS,
	{ "session_id",    .absent = NO_SESSION },
	{ "code",          json_take_string, AT(code), .max = REQUEST_BODY_MAX, .required = true },
	{ "function_name", json_take_string, AT(function), .max = 1024, .nullable = true },
	{ "params",        json_take_object, AT(params), .nullable = true },
	{ "params_python", json_take_string, AT(expression), .max = REQUEST_BODY_MAX, .nullable = true },
	{ "python",        take_python,      .nullable = true },
	{ "compat",        take_compat },
};

static const struct json_field command_fields[] = {
	COMMON_FIELDS,
	{ "session_id", take_session, AT(session_id), .min = 1, .max = SESSION_ID_MAX, .nullable = true },
	{ "command", take_command,   AT(argv) },
	{ "argv",    take_argv,      AT(argv) },
	{ "skill",   take_skill },
	{ "tty",     json_take_bool, AT(tty) },
	{ "interactive", json_take_bool, AT(interactive) },
};

/* What fixes a session's policy and life, and what is there when it begins. */
static const struct json_field session_fields[] = {
	{ "session_id",      take_session,      AT(session_id), .min = 1, .max = SESSION_ID_MAX, .required = true },
	{ "workspace_id",    json_take_string,  AT(workspace_id), .max = 128, .nullable = true },
	{ "trace_id",        json_take_string,  AT(trace_id), .max = 256, .nullable = true },
	{ "image",           take_image,        AT(image), .min = 1, .max = 127, .nullable = true },
	{ "timeout_seconds", take_seconds,      AT(timeout_ms), .nullable = true },
	{ "resources",       take_resources,    .nullable = true },
	{ "network_policy",  take_network,      .nullable = true },
	{ "manifest",        json_take_object,  AT(manifest), .nullable = true },
	{ "files",           take_files,        .nullable = true },
	{ "archive_base64",  take_base64,       AT(archive), .nullable = true },
	{ "skill",           take_skill },
	{ "operator",        json_take_bool,    AT(as_operator) },
	{ "secrets",         take_secrets,      AT(own), .nullable = true },
	{ "user_config",     json_take_object,  AT(config), .nullable = true },
	{ "priority",        json_take_choice,  AT(priority), .choices = job_priority_names },
	{ "idle_timeout_seconds", take_seconds, AT(idle_ms), .nullable = true },
	{ "ttl_seconds",     take_seconds,      AT(ttl_ms), .nullable = true },
	{ "max_commands",    json_take_u32,     AT(max_commands), .min = 1, .max = UINT32_MAX },
	{ "snapshot_id",     take_session,      AT(snapshot_id), .min = 1, .max = SESSION_ID_MAX, .nullable = true },
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
	if (s->interactive && (s->tty || s->stdin_data.data)) {
		json_enter(r, "interactive");
		return json_fail(r, "excludes %s", s->tty ? "\"tty\"" : "other standard input");
	}
	if (s->tty && s->stdin_data.data) {
		json_enter(r, "tty");
		return json_fail(r, "a terminal has no other standard input");
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
	{ "network_policy", take_network, .required = true },
};

int request_parse_network(const char *body, size_t len, struct json_object **ret,
			  struct nsbox_error *err)
{
	const struct json_limits lim = { .max_size = 64u << 10,
					 .max_depth = 8,
					 .code = NSBOX_E_INVALID };
	struct job_spec s = { 0 };
	struct json_object *v = NULL;
	struct json_reader r;
	int rc = json_strict_parse(body, len, &lim, &v, err);

	if (rc < 0)
		return rc;
	json_reader_init(&r, NSBOX_E_INVALID, err);
	rc = json_read_object(&r, v, narrow_fields, ARRAY_SIZE(narrow_fields), true, &s);
	json_object_put(v);
	if (rc < 0)
		json_object_put(s.network);
	else
		*ret = s.network;
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
