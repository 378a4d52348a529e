/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Typed reading of JSON objects, driven by tables of struct json_field. A key that no table names
 * is an error; so is a value of another type: nothing is converted, nothing ignored.
 */
#include <ctype.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/json_strict.h"
#include "policy/quantity.h"

#define STRING_MAX_DEFAULT 4096
#define LIST_MAX_DEFAULT   1024

/* ------------------------------------------------------------------ place and errors */

void json_reader_init(struct json_reader *r, int code, struct nsbox_error *err)
{
	*r = (struct json_reader){ .code = code, .err = err };
}

static void put(struct json_reader *r, const char *s)
{
	size_t n = strlen(s);

	if (r->len + n >= sizeof(r->pointer))
		return;
	memcpy(r->pointer + r->len, s, n + 1);
	r->len += n;
}

size_t json_enter(struct json_reader *r, const char *key)
{
	size_t mark = r->len;

	put(r, "/");
	for (; *key; key++) {
		unsigned char c = (unsigned char)*key;
		char text[8] = { (char)c };

		if (c == '~' || c == '/')
			snprintf(text, sizeof(text), "~%d", c == '/');
		else if (c < 0x20 || c == 0x7f)
			snprintf(text, sizeof(text), "\\u%04x", c);
		put(r, text);
	}
	return mark;
}

size_t json_enter_index(struct json_reader *r, size_t index)
{
	char text[24];

	snprintf(text, sizeof(text), "%zu", index);
	return json_enter(r, text);
}

void json_leave(struct json_reader *r, size_t mark)
{
	r->len = mark;
	r->pointer[mark] = '\0';
}

int json_fail(struct json_reader *r, const char *fmt, ...)
{
	char text[NSBOX_ERROR_MSG_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (char *p = text; *p; p++) /* an error is one line, whatever was quoted in it */
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	return nsbox_fail(r->err, r->code, 0, "%s: %s", r->len ? r->pointer : "/", text);
}

int json_nomem(struct json_reader *r)
{
	return nsbox_fail(r->err, NSBOX_E_NOMEM, ENOMEM, "read JSON");
}

const char *json_type_text(struct json_object *v)
{
	static const char *const text[] = {
		[json_type_null] = "null",	   [json_type_boolean] = "true or false",
		[json_type_double] = "a fraction", [json_type_int] = "a number",
		[json_type_object] = "an object",  [json_type_array] = "an array",
		[json_type_string] = "a string",
	};

	return text[json_object_get_type(v)];
}

static int fail_type(struct json_reader *r, struct json_object *v, const char *expected)
{
	return json_fail(r, "expected %s, found %s", expected, json_type_text(v));
}

/* ------------------------------------------------------------------ did you mean */

/* Edit distance with case ignored, cut off at long words: only small distances matter. */
static size_t distance(const char *a, const char *b)
{
	size_t row[33], n = strlen(b), m = strlen(a);

	if (n > 32 || m > 32)
		return SIZE_MAX;
	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; i <= m; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			bool same = tolower((unsigned char)a[i - 1]) ==
				    tolower((unsigned char)b[j - 1]);
			size_t change = diagonal + !same;

			diagonal = row[j];
			row[j] = MIN(change, MIN(row[j], row[j - 1]) + 1);
		}
	}
	return row[n];
}

const char *json_did_you_mean(const char *word, const char *(*next)(void *ctx, size_t i), void *ctx)
{
	const char *best = NULL, *c;
	size_t least = strlen(word) > 5 ? 3 : 2; /* further away is another word */

	for (size_t i = 0; (c = next(ctx, i)); i++) {
		size_t d = distance(word, c);

		if (d < least || (d == least && d < 3 && !best && strlen(word) > 2)) {
			best = c;
			least = d;
		}
	}
	return best;
}

struct field_list {
	const struct json_field *fields;
	size_t n;
};

static const char *next_field(void *ctx, size_t i)
{
	const struct field_list *l = ctx;

	return i < l->n ? l->fields[i].name : NULL;
}

static const char *next_choice(void *ctx, size_t i)
{
	const char *const *list = ctx;

	return list[i];
}

/* ------------------------------------------------------------------ objects */

static const struct json_field *find_field(const struct json_field *fields, size_t n,
					   const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(fields[i].name, name))
			return &fields[i];
	return NULL;
}

static int unknown_key(struct json_reader *r, const struct json_field *fields, size_t n)
{
	struct field_list l = { fields, n };
	const char *key = strrchr(r->pointer, '/');
	const char *near = key ? json_did_you_mean(key + 1, next_field, &l) : NULL;

	if (near)
		return json_fail(r, "unknown key, did you mean \"%s\"?", near);
	return json_fail(r, "unknown key");
}

static int read_member(struct json_reader *r, const char *key, struct json_object *v,
		       const struct json_field *fields, size_t n, void *dst)
{
	const struct json_field *f = find_field(fields, n, key);

	if (!f)
		return unknown_key(r, fields, n);
	if (!f->take)
		return json_fail(r, "%s",
				 f->absent ? f->absent : "is not supported by this version");
	if (!v && f->nullable)
		return 0;
	return f->take(r, v, f, dst);
}

int json_read_object(struct json_reader *r, struct json_object *v, const struct json_field *fields,
		     size_t n, bool extensions, void *dst)
{
	if (!json_object_is_type(v, json_type_object))
		return fail_type(r, v, "an object");
	json_object_object_foreach (v, key, member) {
		size_t mark;
		int ret;

		if (extensions && (!strncmp(key, "x-", 2) || !strcmp(key, "_meta")))
			continue;
		mark = json_enter(r, key);
		ret = read_member(r, key, member, fields, n, dst);
		if (ret < 0)
			return ret;
		json_leave(r, mark);
	}
	for (size_t i = 0; i < n; i++)
		if (fields[i].required && !json_object_object_get_ex(v, fields[i].name, NULL)) {
			json_enter(r, fields[i].name);
			return json_fail(r, "is required");
		}
	return 0;
}

/* ------------------------------------------------------------------ readers */

#define TARGET(type) ((type *)(void *)((char *)dst + f->offset))

const char *json_string(struct json_reader *r, struct json_object *v)
{
	if (json_object_is_type(v, json_type_string))
		return json_object_get_string(v);
	fail_type(r, v, "a string");
	return NULL;
}

static int copy_string(struct json_reader *r, struct json_object *v, uint64_t min, uint64_t max,
		       char **ret)
{
	const char *s = json_string(r, v);
	size_t len;

	if (!s)
		return -EINVAL;
	len = strlen(s);
	if (len < min)
		return json_fail(r, len ? "is too short" : "is empty");
	if (len > (max ? max : STRING_MAX_DEFAULT))
		return json_fail(r, "is longer than %zu bytes",
				 (size_t)(max ? max : STRING_MAX_DEFAULT));
	free(*ret);
	*ret = strdup(s);
	return *ret ? 0 : json_nomem(r);
}

int json_take_string(struct json_reader *r, struct json_object *v, const struct json_field *f,
		     void *dst)
{
	int ret = copy_string(r, v, f->min, f->max, TARGET(char *));

	return ret == 0 && f->check ? f->check(r, *TARGET(char *)) : ret;
}

void json_strings_free(char **list)
{
	for (size_t i = 0; list && list[i]; i++)
		free(list[i]);
	free(list);
}

/* min and max are those of the number of entries; an entry is never empty. */
int json_take_strings(struct json_reader *r, struct json_object *v, const struct json_field *f,
		      void *dst)
{
	char ***target = TARGET(char **);
	size_t n;

	if (!json_object_is_type(v, json_type_array))
		return fail_type(r, v, "an array of strings");
	n = json_object_array_length(v);
	if (n < f->min)
		return json_fail(r, "needs at least %zu entries", (size_t)f->min);
	if (n > (f->max ? f->max : LIST_MAX_DEFAULT))
		return json_fail(r, "has more than %zu entries",
				 (size_t)(f->max ? f->max : LIST_MAX_DEFAULT));
	json_strings_free(*target);
	*target = calloc(n + 1, sizeof(**target));
	if (!*target)
		return json_nomem(r);
	for (size_t i = 0; i < n; i++) {
		size_t mark = json_enter_index(r, i);
		int ret = copy_string(r, json_object_array_get_idx(v, i), 1, 0, &(*target)[i]);

		if (ret == 0 && f->check)
			ret = f->check(r, (*target)[i]);
		if (ret < 0)
			return ret;
		json_leave(r, mark);
	}
	return 0;
}

int json_take_bool(struct json_reader *r, struct json_object *v, const struct json_field *f,
		   void *dst)
{
	if (!json_object_is_type(v, json_type_boolean))
		return fail_type(r, v, "true or false");
	*TARGET(bool) = json_object_get_boolean(v);
	return 0;
}

static int in_range(struct json_reader *r, const struct json_field *f, uint64_t value)
{
	if (f->max && f->min == f->max && value != f->min)
		return json_fail(r, "must be %llu", (unsigned long long)f->min);
	if (value < f->min)
		return json_fail(r, "must be at least %llu", (unsigned long long)f->min);
	if (f->max && value > f->max)
		return json_fail(r, "must be at most %llu", (unsigned long long)f->max);
	return 0;
}

static int read_uint(struct json_reader *r, struct json_object *v, const struct json_field *f,
		     uint64_t *ret)
{
	if (!json_object_is_type(v, json_type_int))
		return fail_type(r, v, "a whole number");
	if (json_object_get_int64(v) < 0) /* values past INT64_MAX read as INT64_MAX here */
		return json_fail(r, "must not be negative");
	*ret = json_object_get_uint64(v);
	return in_range(r, f, *ret);
}

int json_take_u64(struct json_reader *r, struct json_object *v, const struct json_field *f,
		  void *dst)
{
	uint64_t n;
	int ret = read_uint(r, v, f, &n);

	if (ret == 0)
		*TARGET(uint64_t) = n;
	return ret;
}

int json_take_u32(struct json_reader *r, struct json_object *v, const struct json_field *f,
		  void *dst)
{
	uint64_t n;
	int ret = read_uint(r, v, f, &n);

	if (ret < 0)
		return ret;
	if (n > UINT32_MAX)
		return json_fail(r, "is too large");
	*TARGET(uint32_t) = (uint32_t)n;
	return 0;
}

int json_take_choice(struct json_reader *r, struct json_object *v, const struct json_field *f,
		     void *dst)
{
	const char *s = json_string(r, v), *near;
	char all[160] = "";
	size_t len = 0;

	if (!s)
		return -EINVAL;
	for (size_t i = 0; f->choices[i]; i++)
		if (!strcmp(s, f->choices[i])) {
			*TARGET(uint32_t) = (uint32_t)i;
			return 0;
		}
	near = json_did_you_mean(s, next_choice, (void *)(uintptr_t)f->choices);
	if (near)
		return json_fail(r, "\"%.60s\" is not known, did you mean \"%s\"?", s, near);
	for (size_t i = 0; f->choices[i] && len < sizeof(all); i++)
		len += (size_t)snprintf(all + len, sizeof(all) - len, "%s\"%s\"", i ? ", " : "",
					f->choices[i]);
	return json_fail(r, "\"%.60s\" is not one of %s", s, all);
}

int json_take_any(struct json_reader *r, struct json_object *v, const struct json_field *f,
		  void *dst)
{
	if (!v && f->min)
		return json_fail(r, "must not be null");
	json_object_put(*TARGET(struct json_object *));
	*TARGET(struct json_object *) = json_object_get(v);
	return 0;
}

int json_take_object(struct json_reader *r, struct json_object *v, const struct json_field *f,
		     void *dst)
{
	if (!json_object_is_type(v, json_type_object))
		return fail_type(r, v, "an object");
	return json_take_any(r, v, f, dst);
}

/* ------------------------------------------------------------------ quantities */

/* `plain`: a JSON number may stand for the text without a unit. */
static int take_quantity(struct json_reader *r, struct json_object *v, const struct json_field *f,
			 void *dst, quantity_fn *parse, bool plain, const char *expected)
{
	const char *text, *why = NULL;
	uint64_t n;
	int ret;

	if (json_object_is_type(v, json_type_string))
		text = json_object_get_string(v);
	else if (plain && (json_object_is_type(v, json_type_int) ||
			   json_object_is_type(v, json_type_double)))
		text = json_object_to_json_string_ext(v, JSON_C_TO_STRING_PLAIN);
	else
		return fail_type(r, v, expected);
	if (!text)
		return json_nomem(r);
	if (!parse(text, &n, &why))
		return json_fail(r, "\"%.40s\" %s", text, why);
	ret = in_range(r, f, n);
	if (ret == 0)
		*TARGET(uint64_t) = n;
	return ret;
}

int json_take_bytes(struct json_reader *r, struct json_object *v, const struct json_field *f,
		    void *dst)
{
	return take_quantity(r, v, f, dst, quantity_bytes, true, "an amount like \"512Mi\"");
}

int json_take_cpu(struct json_reader *r, struct json_object *v, const struct json_field *f,
		  void *dst)
{
	return take_quantity(r, v, f, dst, quantity_cpu, true, "a number of CPUs like \"1.5\"");
}

int json_take_ms(struct json_reader *r, struct json_object *v, const struct json_field *f,
		 void *dst)
{
	return take_quantity(r, v, f, dst, quantity_ms, false, "a time like \"30s\"");
}
