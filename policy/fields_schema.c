/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of manifest fields as a JSON Schema (2020-12), for editors and other checkers. It never
 * refuses what the reader takes; the reader refuses more (amounts, paths, what contradicts itself).
 */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/fields_private.h"
#include "policy/internal.h"
#include "policy/manifest_check.h"

#define STRING_MAX_DEFAULT 4096
#define LIST_MAX_DEFAULT   1024
#define ENTRIES_MAX	   64

#define AMOUNT "^(0|[1-9][0-9]*)(\\.[0-9]+)?"

/* A failed allocation anywhere fails the whole. */
struct schema {
	bool failed;
};

static struct json_object *new_object(struct schema *s)
{
	struct json_object *o = json_object_new_object();

	s->failed |= !o;
	return o;
}

static void put(struct schema *s, struct json_object *o, const char *key, struct json_object *v)
{
	if (!o || !v || json_object_object_add(o, key, v) < 0) {
		json_object_put(v);
		s->failed = true;
	}
}

static void put_str(struct schema *s, struct json_object *o, const char *key, const char *v)
{
	put(s, o, key, json_object_new_string(v));
}

static void put_u64(struct schema *s, struct json_object *o, const char *key, uint64_t v)
{
	put(s, o, key, json_object_new_uint64(v));
}

static void add(struct schema *s, struct json_object *array, struct json_object *v)
{
	if (!array || !v || json_object_array_add(array, v) < 0) {
		json_object_put(v);
		s->failed = true;
	}
}

/* ------------------------------------------------------------------ plain values */

static struct json_object *of_string(struct schema *s, uint64_t min, uint64_t max,
				     json_check_fn *check)
{
	const struct string_form *form = string_form(check);
	struct json_object *o = new_object(s);

	put_str(s, o, "type", "string");
	if (min)
		put_u64(s, o, "minLength", min);
	put_u64(s, o, "maxLength", max ? max : STRING_MAX_DEFAULT);
	if (form && form->pattern)
		put_str(s, o, "pattern", form->pattern);
	return o;
}

static struct json_object *of_number(struct schema *s, const struct json_field *f)
{
	struct json_object *o = new_object(s);

	put_str(s, o, "type", "integer");
	put_u64(s, o, "minimum", f->min);
	put_u64(s, o, "maximum", f->max ? f->max : UINT32_MAX);
	return o;
}

static struct json_object *of_choice(struct schema *s, const struct json_field *f)
{
	struct json_object *o = new_object(s), *words = json_object_new_array();

	for (size_t i = 0; f->choices[i]; i++)
		add(s, words, json_object_new_string(f->choices[i]));
	put(s, o, "enum", words);
	return o;
}

static struct json_object *of_amount(struct schema *s, enum fields_kind kind)
{
	static const char *const units[] = {
		[KIND_BYTES] = AMOUNT "(Ki|Mi|Gi|Ti|k|M|G|T)?$",
		[KIND_CPU] = AMOUNT "m?$",
		[KIND_MS] = AMOUNT "(ms|s|m|h|d)$",
	};
	struct json_object *o = new_object(s), *types;

	if (kind == KIND_MS) {
		put_str(s, o, "type", "string");
	} else {
		types = json_object_new_array();
		add(s, types, json_object_new_string("number"));
		add(s, types, json_object_new_string("string"));
		put(s, o, "type", types);
		put_u64(s, o, "minimum", 0);
	}
	put_str(s, o, "pattern", units[kind]);
	return o;
}

static struct json_object *of_list(struct schema *s, struct json_object *items, uint64_t min,
				   uint64_t max)
{
	struct json_object *o = new_object(s);

	put_str(s, o, "type", "array");
	put(s, o, "items", items);
	if (min)
		put_u64(s, o, "minItems", min);
	put_u64(s, o, "maxItems", max);
	return o;
}

static struct json_object *of_type(struct schema *s, const char *type)
{
	struct json_object *o = new_object(s);

	put_str(s, o, "type", type);
	return o;
}

static struct json_object *not_null(struct schema *s)
{
	struct json_object *o = new_object(s);

	put(s, o, "not", of_type(s, "null"));
	return o;
}

/* ------------------------------------------------------------------ objects */

static struct json_object *of_field(struct schema *s, const struct json_field *f);

static void put_members(struct schema *s, struct json_object *o, const struct json_table *t)
{
	struct json_object *properties = new_object(s), *required = json_object_new_array();
	bool any = false;

	for (size_t i = 0; i < t->n; i++) {
		put(s, properties, t->fields[i].name, of_field(s, &t->fields[i]));
		if (t->fields[i].required) {
			add(s, required, json_object_new_string(t->fields[i].name));
			any = true;
		}
	}
	put_str(s, o, "type", "object");
	put(s, o, "properties", properties);
	if (any)
		put(s, o, "required", required);
	else
		json_object_put(required);
	put(s, o, "additionalProperties", json_object_new_boolean(0));
}

/* An entry of a table: an object, a plain value, or either. */
static struct json_object *of_table(struct schema *s, const struct json_table *t)
{
	struct json_object *o, *either;

	if (t->form == JSON_FORM_VALUE)
		return of_field(s, &t->fields[0]);
	o = new_object(s);
	put_members(s, o, t);
	if (t->form == JSON_FORM_OBJECT)
		return o;
	either = json_object_new_array();
	add(s, either, of_field(s, &t->fields[0]));
	add(s, either, o);
	o = new_object(s);
	put(s, o, "anyOf", either);
	return o;
}

static struct json_object *of_map(struct schema *s, const struct json_field *f)
{
	const struct string_form *form = string_form(f->table->check_key);
	struct json_object *o = of_type(s, "object"), *names;

	if (form && form->pattern) {
		names = new_object(s);
		put_str(s, names, "pattern", form->pattern);
		put(s, o, "propertyNames", names);
	}
	put_u64(s, o, "maxProperties", f->max ? f->max : ENTRIES_MAX);
	put(s, o, "additionalProperties", of_table(s, f->table));
	return o;
}

/* ------------------------------------------------------------------ fields */

static struct json_object *of_kind(struct schema *s, const struct json_field *f)
{
	uint64_t max = f->max ? f->max : LIST_MAX_DEFAULT;
	enum fields_kind kind = fields_kind(f);

	switch (kind) {
	case KIND_STRING: return of_string(s, f->min, f->max, f->check);
	case KIND_STRINGS: return of_list(s, of_string(s, 1, 0, f->check), f->min, max);
	case KIND_BOOL: return of_type(s, "boolean");
	case KIND_NUMBER: return of_number(s, f);
	case KIND_NUMBERS: return of_list(s, of_number(s, f), 1, ENTRIES_MAX);
	case KIND_CHOICE: return of_choice(s, f);
	case KIND_BYTES:
	case KIND_CPU:
	case KIND_MS: return of_amount(s, kind);
	case KIND_MEMBERS: return of_table(s, f->table);
	case KIND_LIST:
		return of_list(s, of_table(s, f->table), f->min, f->max ? f->max : ENTRIES_MAX);
	case KIND_MAP: return of_map(s, f);
	case KIND_ANYOBJECT: return of_type(s, "object");
	case KIND_ANY: break;
	}
	return f->min ? not_null(s) : new_object(s);
}

/* Defaults that are JSON; others ("by profile") are words for people. */
static void put_default(struct schema *s, struct json_object *o, const char *preset)
{
	const struct json_limits limits = { .max_size = 256,
					    .max_depth = 2,
					    .code = NSBOX_E_INVALID };
	struct json_object *v = NULL;

	if (json_strict_parse(preset, strlen(preset), &limits, &v, NULL) == 0)
		put(s, o, "default", v);
}

static struct json_object *of_field(struct schema *s, const struct json_field *f)
{
	struct json_object *o = of_kind(s, f);
	char text[300];

	snprintf(text, sizeof(text), "%s%s%s%s", f->help,
		 f->marks & JSON_OPERATOR ? " (operators only)" : "",
		 f->marks & JSON_DECLARATIVE ? " (information: no effect on a run)" : "",
		 f->marks & JSON_LATER ? " (what needs it cannot be run by this version)" : "");
	put_str(s, o, "description", text);
	if (f->preset)
		put_default(s, o, f->preset);
	return o;
}

int fields_schema(FILE *to, struct nsbox_error *err)
{
	struct schema s = { false };
	struct json_object *o = new_object(&s), *extensions = new_object(&s), *properties = NULL;

	put_str(&s, o, "$schema", "https://json-schema.org/draft/2020-12/schema");
	put_str(&s, o, "$id", "https://nsbox.example/schema/skill-1.json");
	put_str(&s, o, "title", "skill.json");
	put_str(&s, o, "description",
		"what a skill, a command or a function asks for; generated, see "
		"skill.json(5)");
	put_members(&s, o, &manifest_table);
	put(&s, extensions, "^x-", new_object(&s));
	put(&s, o, "patternProperties", extensions);
	if (json_object_object_get_ex(o, "properties", &properties))
		put(&s, properties, "_meta", new_object(&s));
	return fields_write(to, o, s.failed, err);
}
