/* SPDX-License-Identifier: Apache-2.0 */
/* How the fields of a request are read: the functions of the tables in request.c. */
#include "daemon/front/request_read.h"

#include <json-c/json.h>
#include <nsbox/files.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/pycall.h"
#include "daemon/common/text.h"
#include "nsbox/util.h"
#include "overlay/image/store.h"
#include "policy/env_names.h"

#define FILES_MAX 4096
#define ARGS_MAX  4096
#define ARG_BYTES (128 * 1024 - 1) /* the kernel's limit for one argument */

#define TARGET(type) ((type *)(void *)((char *)dst + f->offset))

int rq_base64(struct json_reader *r, struct json_object *v, const struct json_field *f, void *dst)
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

int rq_text(struct json_reader *r, struct json_object *v, const struct json_field *f, void *dst)
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
int rq_seconds(struct json_reader *r, struct json_object *v, const struct json_field *f, void *dst)
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

int rq_resources(struct json_reader *r, struct json_object *v, const struct json_field *f,
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

/* 0, which no grant may have, for what is none up to there. */
static int64_t port_number(const char *text, const char *end)
{
	char *rest;
	long port = strtol(text, &rest, 10);

	return rest == end && port > 0 ? port : 0;
}

/* "host", "host:443", "[2001:db8::1]:443" as an entry of a manifest's network.allow; over UDP where
 * "/udp" follows. */
static struct json_object *allow_entry(const char *text)
{
	const char *colon = strrchr(text, ':'),
		   *bracket = text[0] == '[' ? strchr(text, ']') : NULL;
	const char *end = text + strlen(text), *udp = end - MIN(strlen(text), strlen("/udp"));
	bool datagrams = strcmp(udp, "/udp") == 0;
	bool port = colon && (bracket ? bracket < colon : strchr(text, ':') == colon);
	struct json_object *o = json_object_new_object(), *ports = json_object_new_array();
	const char *host = text + (bracket != NULL), *host_end;

	end = datagrams ? udp : end;
	host_end = bracket ? bracket : port ? colon : end;
	json_object_object_add(o, "host", json_object_new_string_len(host, (int)(host_end - host)));
	if (port) {
		json_object_array_add(ports, json_object_new_int64(port_number(colon + 1, end)));
	} else {
		json_object_array_add(ports, json_object_new_int(80));
		json_object_array_add(ports, json_object_new_int(443));
	}
	json_object_object_add(o, "ports", ports);
	if (datagrams)
		json_object_object_add(o, "protocol", json_object_new_string("udp"));
	json_object_object_add(o, "description", json_object_new_string("network_policy"));
	return o;
}

int rq_network(struct json_reader *r, struct json_object *v, const struct json_field *f, void *dst)
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
int rq_image(struct json_reader *r, struct json_object *v, const struct json_field *f, void *dst)
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

int rq_env(struct json_reader *r, struct json_object *v, const struct json_field *f, void *dst)
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
int rq_secrets(struct json_reader *r, struct json_object *v, const struct json_field *f, void *dst)
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
int rq_argv(struct json_reader *r, struct json_object *v, const struct json_field *f, void *dst)
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
int rq_command(struct json_reader *r, struct json_object *v, const struct json_field *f, void *dst)
{
	char ***argv = TARGET(char **);
	const char *s;

	if (json_object_is_type(v, json_type_array))
		return rq_argv(r, v, f, dst);
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
	{ "content_base64", rq_base64, FILE_AT(content) },
	{ "content", rq_text, FILE_AT(content) },
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

int rq_files(struct json_reader *r, struct json_object *v, const struct json_field *f, void *dst)
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
	{ "archive_base64", rq_base64, AT(skill_archive), .required = true },
	{ "name", take_name, AT(skill_name), .min = 1, .max = 64 },
	{ "entrypoint", json_take_string, AT(entrypoint), .min = 1, .max = 127 },
};

int rq_skill(struct json_reader *r, struct json_object *v, const struct json_field *f, void *dst)
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

int rq_python(struct json_reader *r, struct json_object *v, const struct json_field *f, void *dst)
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
int rq_compat(struct json_reader *r, struct json_object *v, const struct json_field *f, void *dst)
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
int rq_session(struct json_reader *r, struct json_object *v, const struct json_field *f, void *dst)
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
