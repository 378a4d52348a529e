/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of manifest fields, printed: for people, as JSON, as the reference section of
 * skill.json(5). The schema is fields_schema.c's.
 *
 * What a field is (fields_kind()) follows from the function that reads it, so that nothing is said
 * twice.
 */
#include "policy/fields.h"

#include <ctype.h>
#include <json-c/json.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/fields_private.h"
#include "policy/internal.h"
#include "policy/manifest_check.h"

/* ------------------------------------------------------------------ kinds */

static const struct {
	json_take_fn *take;
	enum fields_kind kind;
} kinds[] = {
	{ json_take_string, KIND_STRING },
	{ json_take_strings, KIND_STRINGS },
	{ json_take_bool, KIND_BOOL },
	{ json_take_flag, KIND_BOOL },
	{ json_take_u32, KIND_NUMBER },
	{ json_take_u64, KIND_NUMBER },
	{ json_take_u32s, KIND_NUMBERS },
	{ json_take_choice, KIND_CHOICE },
	{ json_take_bytes, KIND_BYTES },
	{ json_take_cpu, KIND_CPU },
	{ json_take_ms, KIND_MS },
	{ json_take_members, KIND_MEMBERS },
	{ json_take_list, KIND_LIST },
	{ json_take_map, KIND_MAP },
	{ json_take_object, KIND_ANYOBJECT },
	{ json_take_any, KIND_ANY },
};

enum fields_kind fields_kind(const struct json_field *f)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (kinds[i].take == f->take)
			return kinds[i].kind;
	return KIND_ANY;
}

/* ------------------------------------------------------------------ words */

struct text {
	char s[400];
	int len;
};

static void say(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct text *t, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	t->len += vsnprintf(t->s + t->len, sizeof(t->s) - (size_t)t->len, fmt, ap);
	va_end(ap);
	if (t->len >= (int)sizeof(t->s))
		t->len = (int)sizeof(t->s) - 1;
}

static void say_range(struct text *t, const struct json_field *f)
{
	if (f->min && f->min == f->max)
		say(t, ", %llu", (unsigned long long)f->min);
	else if (f->max)
		say(t, ", %llu to %llu", (unsigned long long)f->min, (unsigned long long)f->max);
	else if (f->min > 1)
		say(t, ", at least %llu", (unsigned long long)f->min);
}

static void say_choices(struct text *t, const struct json_field *f)
{
	for (size_t i = 0; f->choices[i]; i++)
		say(t, "%s%s", i == 0 ? "" : f->choices[i + 1] ? ", " : " or ", f->choices[i]);
}

static const char *string_text(const struct json_field *f, const char *otherwise)
{
	const struct string_form *form = string_form(f->check);

	return form ? form->text : otherwise;
}

/* "list of hosts": the words are such that an s is enough, or are plural by themselves. */
static void say_plural(struct text *t, const struct json_field *f)
{
	const char *one = string_text(f, "string");

	say(t, "%s%s", one, one[strlen(one) - 1] == 's' ? "" : "s");
}

static void say_type(struct text *t, const struct json_field *f)
{
	static const char *const plain[] = {
		[KIND_BOOL] = "true or false",
		[KIND_BYTES] = "bytes",
		[KIND_CPU] = "processors",
		[KIND_MS] = "time",
		[KIND_ANY] = "any",
		[KIND_ANYOBJECT] = "object",
	};
	const struct json_table *sub = f->table;

	switch (fields_kind(f)) {
	case KIND_STRING: say(t, "%s", string_text(f, "string")); break;
	case KIND_STRINGS:
		say(t, "list of ");
		say_plural(t, f);
		break;
	case KIND_NUMBER:
		say(t, "number");
		say_range(t, f);
		break;
	case KIND_NUMBERS:
		say(t, "list of numbers");
		say_range(t, f);
		break;
	case KIND_CHOICE: say_choices(t, f); break;
	case KIND_MEMBERS:
		if (sub->form == JSON_FORM_EITHER) {
			say_type(t, &sub->fields[0]);
			say(t, ", or an object");
		} else {
			say(t, "object");
		}
		break;
	case KIND_LIST:
		say(t, "list of ");
		if (sub->form == JSON_FORM_EITHER)
			say_plural(t, &sub->fields[0]);
		say(t, sub->form == JSON_FORM_EITHER ? ", or of objects" : "objects");
		break;
	case KIND_MAP: say(t, "object by %s", sub->key_name); break;
	case KIND_BOOL:
	case KIND_BYTES:
	case KIND_CPU:
	case KIND_MS:
	case KIND_ANY:
	case KIND_ANYOBJECT: say(t, "%s", plain[fields_kind(f)]);
	}
}

static const struct {
	unsigned mark;
	const char *word;
} mark_words[] = {
	{ JSON_OPERATOR, "operators" },
	{ JSON_DECLARATIVE, "information" },
	{ JSON_LATER, "later" },
};

static void say_whole_type(struct text *t, const struct json_field *f)
{
	say_type(t, f);
	if (f->required)
		say(t, ", required");
	if (f->preset)
		say(t, ", default %s", f->preset);
	for (size_t i = 0; i < ARRAY_SIZE(mark_words); i++)
		if (f->marks & mark_words[i].mark)
			say(t, "; %s", mark_words[i].word);
}

/* ------------------------------------------------------------------ walking */

struct walk {
	FILE *to;
	struct json_object *array; /* FIELDS_JSON */
	bool failed;
	void (*field)(struct walk *w, const char *path, const struct json_field *f);
};

static void walk_table(struct walk *w, const char *path, const struct json_table *t)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct json_field *f = &t->fields[i];
		const char *link = "";
		char name[256], below[300];

		if (t->form == JSON_FORM_VALUE)
			return; /* said by the field itself */
		snprintf(name, sizeof(name), "%s%s%s", path, *path ? "." : "", f->name);
		w->field(w, name, f);
		if (!f->table)
			continue;
		if (fields_kind(f) == KIND_LIST)
			link = "[]";
		snprintf(below, sizeof(below), "%s%s%s%s%s", name, link,
			 fields_kind(f) == KIND_MAP ? ".<" : "",
			 fields_kind(f) == KIND_MAP ? f->table->key_name : "",
			 fields_kind(f) == KIND_MAP ? ">" : "");
		walk_table(w, below, f->table);
	}
}

static void text_field(struct walk *w, const char *path, const struct json_field *f)
{
	struct text t = { .len = 0 };

	say_whole_type(&t, f);
	fprintf(w->to, "%s (%s)\n    %s\n", path, t.s, f->help);
}

/* ------------------------------------------------------------------ JSON */

static void put(struct walk *w, struct json_object *o, const char *key, struct json_object *v)
{
	if (!o || !v || json_object_object_add(o, key, v) < 0) {
		json_object_put(v);
		w->failed = true;
	}
}

static void json_field_out(struct walk *w, const char *path, const struct json_field *f)
{
	struct json_object *o = json_object_new_object();
	struct text t = { .len = 0 };

	say_type(&t, f);
	put(w, o, "path", json_object_new_string(path));
	put(w, o, "type", json_object_new_string(t.s));
	put(w, o, "required", json_object_new_boolean(f->required));
	if (f->preset)
		put(w, o, "default", json_object_new_string(f->preset));
	put(w, o, "who", json_object_new_string(f->marks & JSON_OPERATOR ? "operator" : "author"));
	put(w, o, "since", json_object_new_string(f->since ? f->since : "0.1"));
	put(w, o, "declarative", json_object_new_boolean(!!(f->marks & JSON_DECLARATIVE)));
	put(w, o, "enforced",
	    json_object_new_boolean(!(f->marks & (JSON_LATER | JSON_DECLARATIVE))));
	put(w, o, "live", json_object_new_boolean(!!(f->marks & JSON_LIVE)));
	put(w, o, "help", json_object_new_string(f->help));
	if (!o || json_object_array_add(w->array, o) < 0) {
		json_object_put(o);
		w->failed = true;
	}
}

int fields_write(FILE *to, struct json_object *o, bool failed, struct nsbox_error *err)
{
	const char *text = failed ? NULL
				  : json_object_to_json_string_ext(
					    o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
						       JSON_C_TO_STRING_NOSLASHESCAPE);

	if (text)
		fprintf(to, "%s\n", text);
	json_object_put(o);
	return text ? 0 : nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "print the fields");
}

/* ------------------------------------------------------------------ mdoc */

/* One argument of a macro: in quotes, so that no word of it is taken for a macro. */
static void mdoc_argument(FILE *to, const char *s)
{
	fputc('"', to);
	for (; *s; s++) {
		if (*s == '"')
			fputs("\\(dq", to);
		else if (*s == '\\')
			fputs("\\e", to);
		else
			fputc(*s, to);
	}
	fputc('"', to);
}

static void mdoc_sentence(FILE *to, const char *s)
{
	if (*s == '.' || *s == '\'')
		fputs("\\&", to);
	fputc(toupper((unsigned char)*s), to);
	for (s++; *s; s++)
		fputs(*s == '\\' ? "\\e" : (char[]){ *s, '\0' }, to);
	fputs(".\n", to);
}

static void mdoc_table(FILE *to, const struct json_table *t)
{
	fputs(".Bl -tag -width Ds\n", to);
	for (size_t i = 0; i < t->n; i++) {
		const struct json_field *f = &t->fields[i];
		struct text type = { .len = 0 };

		say_whole_type(&type, f);
		fprintf(to, ".It Cm %s Pq ", f->name);
		mdoc_argument(to, type.s);
		fputc('\n', to);
		mdoc_sentence(to, f->help);
		if (f->table && f->table->form != JSON_FORM_VALUE)
			mdoc_table(to, f->table);
	}
	fputs(".El\n", to);
}

/* ------------------------------------------------------------------ the whole */

int policy_fields_print(FILE *to, enum fields_format format, struct nsbox_error *err)
{
	struct walk w = { .to = to, .field = text_field };

	switch (format) {
	case FIELDS_TEXT: walk_table(&w, "", &manifest_table); return 0;
	case FIELDS_JSON:
		w.field = json_field_out;
		w.array = json_object_new_array();
		if (!w.array)
			return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "print the fields");
		walk_table(&w, "", &manifest_table);
		return fields_write(to, w.array, w.failed, err);
	case FIELDS_SCHEMA: return fields_schema(to, err);
	case FIELDS_MDOC: mdoc_table(to, &manifest_table); return 0;
	}
	return nsbox_fail(err, NSBOX_E_INVALID, EINVAL, "unknown format of fields");
}
