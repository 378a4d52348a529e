/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/front/secrets.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/json_strict.h"

#define FILE_MAX (1u << 20)

struct kept_workspace {
	struct kept_workspace *next;
	char *name;
	struct input *v;
	size_t n;
};

struct kept_secrets {
	struct kept_workspace *first;
};

/* ------------------------------------------------------------------ the operator's file */

void kept_free(struct kept_secrets *k)
{
	while (k && k->first) {
		struct kept_workspace *w = k->first;

		k->first = w->next;
		for (size_t i = 0; i < w->n; i++)
			input_done(&w->v[i]);
		free(w->v);
		free(w->name);
		free(w);
	}
	free(k);
}

static int take_workspace(struct kept_secrets *k, struct json_reader *r, const char *name,
			  struct json_object *o)
{
	struct kept_workspace *w;

	if (!json_object_is_type(o, json_type_object))
		return json_fail(r, "expected an object, found %s", json_type_text(o));
	w = calloc(1, sizeof(*w));
	if (!w)
		return json_nomem(r);
	w->next = k->first;
	k->first = w;
	w->name = strdup(name);
	w->v = calloc((size_t)json_object_object_length(o) + 1, sizeof(*w->v));
	if (!w->name || !w->v)
		return json_nomem(r);
	json_object_object_foreach (o, source, value) {
		size_t mark = json_enter(r, source);
		const char *s = json_string(r, value);

		if (!s)
			return -EINVAL;
		if (json_object_get_string_len(value) > INPUT_VALUE_MAX)
			return json_fail(r, "has more than %d bytes", INPUT_VALUE_MAX);
		if (input_set(&w->v[w->n], source, s, (size_t)json_object_get_string_len(value)) <
		    0)
			return json_nomem(r);
		w->n++;
		json_leave(r, mark);
	}
	return 0;
}

static int take_file(const char *text, size_t len, struct kept_secrets *k, struct nsbox_error *err)
{
	const struct json_limits lim = { .max_size = FILE_MAX,
					 .max_depth = 3,
					 .code = NSBOX_E_INVALID };
	struct json_object *o = NULL;
	struct json_reader r;
	int rc = json_strict_parse(text, len, &lim, &o, err);

	if (rc < 0)
		return rc;
	json_reader_init(&r, NSBOX_E_INVALID, err);
	if (!json_object_is_type(o, json_type_object)) {
		json_object_put(o);
		return json_fail(&r, "expected an object by workspace");
	}
	json_object_object_foreach (o, name, value) {
		size_t mark = json_enter(&r, name);

		rc = take_workspace(k, &r, name, value);
		if (rc < 0)
			break;
		json_leave(&r, mark);
	}
	json_object_put(o);
	return rc;
}

int kept_read(int fd, const char *name, struct kept_secrets **ret, struct nsbox_error *err)
{
	struct kept_secrets *k = calloc(1, sizeof(*k));
	char *text = malloc(FILE_MAX + 1);
	size_t len = 0;
	ssize_t n = 0;
	int r;

	while (text && len <= FILE_MAX && (n = read(fd, text + len, FILE_MAX + 1 - len)) > 0)
		len += (size_t)n;
	if (!k || !text)
		r = nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read '%s'", name);
	else if (n < 0 || len > FILE_MAX)
		r = nsbox_fail(err, NSBOX_E_INVALID, n < 0 ? errno : EFBIG, "read '%s'", name);
	else if ((r = take_file(text, len, k, err)) < 0)
		nsbox_error_prefix(err, "%s", name);
	if (text)
		explicit_bzero(text, FILE_MAX + 1);
	free(text);
	if (r < 0)
		kept_free(k);
	else
		*ret = k;
	return r;
}

/* ------------------------------------------------------------------ a job's */

void own_done(struct own_secrets *o)
{
	for (size_t i = 0; i < o->n; i++)
		input_done(&o->v[i]);
	free(o->v);
	*o = (struct own_secrets){ 0 };
}

struct place {
	const struct kept_secrets *k;
	const char *workspace;
};

static const struct input *find_in(const struct kept_secrets *k, const char *workspace,
				   const char *source)
{
	for (const struct kept_workspace *w = k ? k->first : NULL; w; w = w->next)
		for (size_t i = 0; strcmp(w->name, workspace) == 0 && i < w->n; i++)
			if (strcmp(w->v[i].name, source) == 0)
				return &w->v[i];
	return NULL;
}

static const struct input *on_kept(void *ctx, const char *source)
{
	const struct place *p = ctx;
	const struct input *v = find_in(p->k, p->workspace, source);

	return v ? v : find_in(p->k, "*", source);
}

int secrets_settle(const struct kept_secrets *k, const char *workspace, const char *described,
		   const struct own_secrets *own, struct json_object *config, struct inputs *ret,
		   struct nsbox_error *err)
{
	struct place place = { k, workspace };
	const struct inputs_given given = { .secrets = own->v,
					    .n_secrets = own->n,
					    .config = config,
					    .kept = on_kept,
					    .ctx = &place,
					    .at_secrets = "/secrets/",
					    .at_config = "/user_config/" };

	return inputs_settle(described, &given, ret, err);
}
