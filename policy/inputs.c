/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/inputs.h"

#include <json-c/json.h>
#include <nsbox/files.h>
#include <nsbox/policy.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/json_strict.h"

#define FILE_MODE 0400

static const char *const injections[] = { "env", "file", "header" };
static const char *const types[] = { "string", "integer", "number", "boolean" };

/* ------------------------------------------------------------------ what there is */

static int put(struct json_object *o, const char *key, struct json_object *v)
{
	if (v && json_object_object_add(o, key, v) == 0)
		return 0;
	json_object_put(v);
	return -ENOMEM;
}

static int put_known(struct json_object *o, const char *key, struct json_object *v)
{
	return v ? put(o, key, json_object_get(v)) : 0;
}

static struct json_object *describe_secret(const struct manifest_secret *s)
{
	struct json_object *o = json_object_new_object();

	put(o, "name", json_object_new_string(s->name));
	put(o, "source", json_object_new_string(s->source));
	put(o, "inject", json_object_new_string(injections[s->inject]));
	put(o, "optional", json_object_new_boolean(s->optional));
	return o;
}

static struct json_object *describe_parameter(const struct manifest_config *c)
{
	struct json_object *o = json_object_new_object();

	put(o, "type", json_object_new_string(types[c->type]));
	put(o, "required", json_object_new_boolean(c->required));
	put(o, "sensitive", json_object_new_boolean(c->sensitive));
	put_known(o, "default", c->preset);
	put_known(o, "enum", c->choices);
	put_known(o, "min", c->min);
	put_known(o, "max", c->max);
	return o;
}

int nsbox_manifest_inputs(const struct nsbox_manifest *m, char **ret, struct nsbox_error *err)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array(),
			   *map = json_object_new_object(), *files = json_object_new_object();
	const char *text;

	for (size_t i = 0; i < m->n_secrets; i++)
		json_object_array_add(list, describe_secret(&m->secrets[i]));
	for (size_t i = 0; i < m->n_config; i++)
		put(map, m->config[i].id, describe_parameter(&m->config[i]));
	for (size_t i = 0; i < m->n_digests; i++)
		put(files, m->digests[i].name, json_object_new_string(m->digests[i].value));
	if (m->n_digests)
		put(o, "digests", files);
	else
		json_object_put(files);
	put(o, "secrets", list);
	put(o, "userConfig", map);
	text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN |
							 JSON_C_TO_STRING_NOSLASHESCAPE);
	*ret = text ? strdup(text) : NULL;
	json_object_put(o);
	return *ret ? 0 : nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "describe the inputs");
}

/* ------------------------------------------------------------------ values */

int input_set(struct input *in, const char *name, const char *value, size_t len)
{
	*in = (struct input){ .name = strdup(name), .value = malloc(len + 1), .len = len };
	if (!in->name || !in->value) {
		input_done(in);
		return -ENOMEM;
	}
	memcpy(in->value, value, len);
	in->value[len] = 0;
	return 0;
}

void input_done(struct input *in)
{
	if (in->value)
		explicit_bzero(in->value, in->len);
	free(in->name);
	free(in->value);
	*in = (struct input){ 0 };
}

void inputs_done(struct inputs *in)
{
	for (char **v = in->env; v && *v; v++) {
		explicit_bzero(*v, strlen(*v));
		free(*v);
	}
	free(in->env);
	for (size_t i = 0; i < in->n_files; i++)
		input_done(&in->files[i]);
	for (size_t i = 0; i < in->n_hidden; i++)
		input_done(&in->hidden[i]);
	free(in->files);
	free(in->hidden);
	json_object_put(in->config);
	*in = (struct inputs){ 0 };
}

static bool is_hidden(const struct input *list, size_t n, const struct input *v)
{
	for (size_t i = 0; i < n; i++)
		if (list[i].len == v->len && memcmp(list[i].value, v->value, v->len) == 0)
			return true;
	return false;
}

/* The longest first: where one value begins another, the longer is found. */
int input_hide(struct input **list, size_t *n, const struct input *v)
{
	struct input copy = { 0 }, *grown;
	size_t at = *n;

	if (v->len == 0 || is_hidden(*list, *n, v))
		return 0;
	grown = reallocarray(*list, *n + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	*list = grown;
	if (input_set(&copy, v->name, v->value, v->len) < 0)
		return -ENOMEM;
	while (at > 0 && grown[at - 1].len < v->len) {
		grown[at] = grown[at - 1];
		at--;
	}
	grown[at] = copy;
	++*n;
	return 0;
}

/* A line's end is a carriage return and a line feed. */
static int with_returns(const struct input *v, struct input *ret)
{
	char *text = malloc(2 * v->len + 1);
	size_t n = 0;
	int r;

	if (!text)
		return -ENOMEM;
	for (size_t i = 0; i < v->len; i++) {
		if (v->value[i] == '\n' && (i == 0 || v->value[i - 1] != '\r'))
			text[n++] = '\r';
		text[n++] = v->value[i];
	}
	r = input_set(ret, v->name, text, n);
	explicit_bzero(text, n);
	free(text);
	return r;
}

struct settling {
	const struct inputs_given *given;
	struct inputs *ret;
	bool used[INPUTS_GIVEN_MAX]; /* of given->secrets */
	size_t n_env;
	struct nsbox_error *err;
};

static int nomem(const struct settling *s)
{
	return nsbox_fail(s->err, NSBOX_E_NOMEM, ENOMEM, "settle the inputs");
}

static int wrong(const struct settling *s, const char *at, const char *name, const char *why)
{
	return nsbox_fail(s->err, NSBOX_E_INVALID, 0, "%s%.128s: %s", at, name, why);
}

static const struct input *find_given(struct settling *s, const char *name)
{
	for (size_t i = 0; i < s->given->n_secrets; i++)
		if (strcmp(s->given->secrets[i].name, name) == 0) {
			s->used[i] = true;
			return &s->given->secrets[i];
		}
	return NULL;
}

/*
 * Its value is not to be shown. Programs drop a line's end where they read one, and a terminal
 * writes ends of lines of its own: these forms are hidden as well.
 */
static int hide(struct settling *s, const struct input *v)
{
	struct input bare = *v, wide = { 0 };
	int r;

	while (bare.len && strchr("\r\n", bare.value[bare.len - 1]))
		bare.len--;
	r = input_hide(&s->ret->hidden, &s->ret->n_hidden, &bare);
	if (r == 0 && memchr(bare.value, '\n', bare.len)) {
		r = with_returns(&bare, &wide);
		if (r == 0)
			r = input_hide(&s->ret->hidden, &s->ret->n_hidden, &wide);
		input_done(&wide);
	}
	return r < 0 ? nomem(s) : 0;
}

static int add_env(struct settling *s, const char *before, const char *name, const char *after,
		   const char *value)
{
	char *text = NULL;

	if (asprintf(&text, "%s%s%s=%s", before, name, after, value) < 0)
		return nomem(s);
	s->ret->env[s->n_env++] = text;
	return 0;
}

/* ------------------------------------------------------------------ secrets */

static const char *text_of(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	return json_object_object_get_ex(o, key, &v) && json_object_is_type(v, json_type_string)
		       ? json_object_get_string(v)
		       : "";
}

static bool is_true(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	return json_object_object_get_ex(o, key, &v) && json_object_get_boolean(v);
}

static int put_file(struct settling *s, const char *name, const struct input *v)
{
	auto_free char *path = NULL;

	if (input_set(&s->ret->files[s->ret->n_files], name, v->value, v->len) < 0 ||
	    asprintf(&path, SECRETS_DIR "/%s", name) < 0)
		return nomem(s);
	s->ret->n_files++;
	return add_env(s, "", name, "_FILE", path);
}

static int settle_secret(struct settling *s, struct json_object *o)
{
	const char *name = text_of(o, "name"), *source = text_of(o, "source");
	bool file = strcmp(text_of(o, "inject"), "file") == 0;
	const struct input *v = find_given(s, name);
	int r;

	if (!v && s->given->kept)
		v = s->given->kept(s->given->ctx, source);
	if (!v && is_true(o, "optional"))
		return 0;
	if (!v)
		return nsbox_fail(
			s->err, NSBOX_E_INVALID, 0,
			"%s%.128s: the run needs this secret, and it is neither given nor "
			"kept at '%.64s'",
			s->given->at_secrets, name, source);
	if (!file && strlen(v->value) != v->len)
		return wrong(s, s->given->at_secrets, name,
			     "holds a NUL, which no variable can; inject it as a file");
	r = hide(s, v);
	if (r < 0)
		return r;
	return file ? put_file(s, name, v) : add_env(s, "", name, "", v->value);
}

/* ------------------------------------------------------------------ parameters */

static bool has_type(struct json_object *v, const char *type)
{
	enum json_type t = json_object_get_type(v);

	return strcmp(type, "string") == 0    ? t == json_type_string
	       : strcmp(type, "integer") == 0 ? t == json_type_int
	       : strcmp(type, "boolean") == 0 ? t == json_type_boolean
					      : t == json_type_int || t == json_type_double;
}

/* NULL: it is right. */
static const char *judge(struct json_object *o, struct json_object *v)
{
	struct json_object *list = NULL, *bound = NULL;

	if (!has_type(v, text_of(o, "type")))
		return "is not of the type that the manifest says";
	if (json_object_object_get_ex(o, "min", &bound) &&
	    json_object_get_double(v) < json_object_get_double(bound))
		return "is less than the manifest's min";
	if (json_object_object_get_ex(o, "max", &bound) &&
	    json_object_get_double(v) > json_object_get_double(bound))
		return "is more than the manifest's max";
	if (!json_object_object_get_ex(o, "enum", &list))
		return NULL;
	for (size_t i = 0; i < json_object_array_length(list); i++)
		if (json_object_equal(json_object_array_get_idx(list, i), v))
			return NULL;
	return "is none of the values that the manifest lists";
}

/* Text of an option or a secret as a value of the parameter's type; NULL: it is none. */
static struct json_object *from_text(struct json_object *o, const char *text, size_t len)
{
	const struct json_limits lim = { .max_size = INPUT_VALUE_MAX,
					 .max_depth = 1,
					 .code = NSBOX_E_INVALID };
	struct json_object *v = NULL;

	if (strcmp(text_of(o, "type"), "string") == 0)
		return json_object_new_string_len(text, (int)len);
	return json_strict_parse(text, len, &lim, &v, NULL) == 0 ? v : NULL;
}

/* The value, a new reference; NULL with 0: there is none. */
static int find_value(struct settling *s, const char *id, struct json_object *o,
		      struct json_object **ret)
{
	struct json_object *v = NULL;
	const struct input *secret;
	bool sensitive = is_true(o, "sensitive");

	*ret = NULL;
	if (s->given->config && json_object_object_get_ex(s->given->config, id, &v)) {
		if (sensitive)
			return wrong(s, s->given->at_config, id,
				     "is sensitive: it comes with the secrets");
		*ret = s->given->config_is_text ? from_text(o, json_object_get_string(v),
							    (size_t)json_object_get_string_len(v))
						: json_object_get(v);
		return *ret ? 0
			    : wrong(s, s->given->at_config, id,
				    "is not of the type that the manifest says");
	}
	secret = sensitive ? find_given(s, id) : NULL;
	if (secret) {
		*ret = from_text(o, secret->value, secret->len);
		return *ret ? hide(s, secret)
			    : wrong(s, s->given->at_secrets, id,
				    "is not of the type that the manifest says");
	}
	if (json_object_object_get_ex(o, "default", &v))
		*ret = json_object_get(v);
	return 0;
}

static int settle_parameter(struct settling *s, const char *id, struct json_object *o)
{
	bool sensitive = is_true(o, "sensitive");
	const char *at = sensitive ? s->given->at_secrets : s->given->at_config, *why;
	struct json_object *v;
	int r = find_value(s, id, o, &v);

	if (r < 0)
		return r;
	if (!v)
		return is_true(o, "required") ? wrong(s, at, id, "the manifest requires it") : 0;
	why = judge(o, v);
	if (!why && json_object_is_type(v, json_type_string) &&
	    strlen(json_object_get_string(v)) != (size_t)json_object_get_string_len(v))
		why = "holds a NUL";
	if (why)
		r = wrong(s, at, id, why);
	else
		r = add_env(s, "CONFIG_", id, "",
			    json_object_is_type(v, json_type_string)
				    ? json_object_get_string(v)
				    : json_object_to_json_string_ext(v, JSON_C_TO_STRING_PLAIN));
	if (r == 0 && put(s->ret->config, id, json_object_get(v)) < 0)
		r = nomem(s);
	json_object_put(v);
	return r;
}

/* ------------------------------------------------------------------ the whole */

static int check_unknown(struct settling *s, struct json_object *parameters)
{
	for (size_t i = 0; i < s->given->n_secrets; i++)
		if (!s->used[i])
			return wrong(s, s->given->at_secrets, s->given->secrets[i].name,
				     "the manifest asks for no such secret");
	if (!s->given->config)
		return 0;
	json_object_object_foreach (s->given->config, id, value) {
		(void)value;
		if (!json_object_object_get_ex(parameters, id, NULL))
			return wrong(s, s->given->at_config, id,
				     "the manifest has no such parameter");
	}
	return 0;
}

static int settle_all(struct settling *s, struct json_object *secrets,
		      struct json_object *parameters)
{
	size_t n = json_object_array_length(secrets);
	size_t m = (size_t)json_object_object_length(parameters);

	s->ret->env = calloc(n + m + 1, sizeof(*s->ret->env));
	s->ret->files = calloc(n + 1, sizeof(*s->ret->files));
	s->ret->config = json_object_new_object();
	if (!s->ret->env || !s->ret->files || !s->ret->config)
		return nomem(s);
	for (size_t i = 0; i < n; i++) {
		int r = settle_secret(s, json_object_array_get_idx(secrets, i));

		if (r < 0)
			return r;
	}
	json_object_object_foreach (parameters, id, o) {
		int r = settle_parameter(s, id, o);

		if (r < 0)
			return r;
	}
	return check_unknown(s, parameters);
}

int inputs_settle(const char *described, const struct inputs_given *given, struct inputs *ret,
		  struct nsbox_error *err)
{
	struct json_object *o = json_tokener_parse(*described ? described : "{}"), *secrets = NULL,
			   *parameters = NULL, *none[2] = { NULL, NULL };
	struct settling s = { .given = given, .ret = ret, .err = err };
	int r;

	*ret = (struct inputs){ 0 };
	if (given->n_secrets > INPUTS_GIVEN_MAX) {
		json_object_put(o);
		return nsbox_fail(err, NSBOX_E_LIMIT, 0, "more than %d secrets", INPUTS_GIVEN_MAX);
	}
	if (!json_object_object_get_ex(o, "secrets", &secrets))
		secrets = none[0] = json_object_new_array();
	if (!json_object_object_get_ex(o, "userConfig", &parameters))
		parameters = none[1] = json_object_new_object();
	r = secrets && parameters ? settle_all(&s, secrets, parameters) : nomem(&s);
	json_object_put(none[0]);
	json_object_put(none[1]);
	json_object_put(o);
	if (r < 0)
		inputs_done(ret);
	return r;
}

/* ------------------------------------------------------------------ files */

/* A stream ends with a frame without path and content: the files go into its place. */
static int cut_end(int fd, struct nsbox_error *err)
{
	struct stat st;
	off_t at;

	if (fstat(fd, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "stage files");
	at = st.st_size - (off_t)sizeof(struct nsbox_frame);
	if (at < 0 || ftruncate(fd, at) < 0 || lseek(fd, at, SEEK_SET) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "stage files");
	return 0;
}

int inputs_put_files(const struct inputs *in, int *fd, struct nsbox_error *err)
{
	int r;

	if (in->n_files == 0)
		return 0;
	if (*fd < 0) {
		*fd = make_memfd("nsbox-files", NULL, 0, false);
		r = *fd < 0 ? nsbox_fail(err, NSBOX_E_NOMEM, -*fd, "stage files") : 0;
	} else {
		r = cut_end(*fd, err);
	}
	if (r == 0)
		r = nsbox_files_put_frame(*fd, NSBOX_FRAME_BASE, SECRETS_DIR, 0, NULL, 0, err);
	for (size_t i = 0; i < in->n_files && r == 0; i++)
		r = nsbox_files_put_frame(*fd, NSBOX_FRAME_FILE, in->files[i].name, FILE_MODE,
					  in->files[i].value, in->files[i].len, err);
	if (r == 0)
		r = nsbox_files_end(*fd, err);
	if (r == 0 && lseek(*fd, 0, SEEK_SET) < 0)
		r = nsbox_fail(err, NSBOX_E_IO, errno, "stage files");
	return r;
}
