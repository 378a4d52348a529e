/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects within objects, lists and maps of them: what a table of tables describes. The same
 * description frees what was read.
 */
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/json_strict.h"

#define ENTRIES_MAX_DEFAULT 64

#define TARGET(type) ((type *)(void *)((char *)dst + f->offset))

int json_take_flag(struct json_reader *r, struct json_object *v, const struct json_field *f,
		   void *dst)
{
	const struct json_field plain = { .name = f->name };
	bool flag = false;
	int ret = json_take_bool(r, v, &plain, &flag);

	if (ret == 0)
		*TARGET(uint32_t) = flag;
	return ret;
}

int json_take_u32s(struct json_reader *r, struct json_object *v, const struct json_field *f,
		   void *dst)
{
	const struct json_field one = { .name = f->name, .min = f->min, .max = f->max };
	uint32_t **target = TARGET(uint32_t *);
	size_t n;

	if (!json_object_is_type(v, json_type_array))
		return json_fail(r, "expected an array of numbers, found %s", json_type_text(v));
	n = json_object_array_length(v);
	if (!n)
		return json_fail(r, "needs at least 1 entries");
	if (n > ENTRIES_MAX_DEFAULT)
		return json_fail(r, "has more than %d entries", ENTRIES_MAX_DEFAULT);
	free(*target);
	*target = calloc(n + 1, sizeof(**target));
	if (!*target)
		return json_nomem(r);
	for (size_t i = 0; i < n; i++) {
		size_t mark = json_enter_index(r, i);
		int ret = json_take_u32(r, json_object_array_get_idx(v, i), &one, *target + i);

		if (ret < 0)
			return ret;
		json_leave(r, mark);
	}
	return 0;
}

/* ------------------------------------------------------------------ objects */

static int take_entry(struct json_reader *r, struct json_object *v, const struct json_table *t,
		      void *dst)
{
	const struct json_field *first = &t->fields[0];
	bool object = json_object_is_type(v, json_type_object);
	int ret;

	if (t->form == JSON_FORM_VALUE || (t->form == JSON_FORM_EITHER && !object))
		ret = first->take(r, v, first, dst);
	else
		ret = json_read_object(r, v, t->fields, t->n, false, dst);
	return ret == 0 && t->finish ? t->finish(r, dst) : ret;
}

int json_take_members(struct json_reader *r, struct json_object *v, const struct json_field *f,
		      void *dst)
{
	return take_entry(r, v, f->table, dst);
}

/* ------------------------------------------------------------------ lists and maps */

/* Room for n entries; the count grows as they are read, so that a half-read list can be freed. */
static int make_room(struct json_reader *r, const struct json_field *f, size_t n, void *dst)
{
	size_t max = f->max ? (size_t)f->max : ENTRIES_MAX_DEFAULT;
	void **target = TARGET(void *);

	if (n < f->min)
		return json_fail(r, "needs at least %zu entries", (size_t)f->min);
	if (n > max)
		return json_fail(r, "has more than %zu entries", max);
	*target = calloc(n + 1, f->table->size);
	return *target ? 0 : json_nomem(r);
}

static void *next_entry(const struct json_field *f, void *dst)
{
	size_t *count = (size_t *)(void *)((char *)dst + f->table->count);
	void *entry = *TARGET(char *) + f->table->size * (*count)++;

	if (f->table->init)
		f->table->init(entry);
	return entry;
}

int json_take_list(struct json_reader *r, struct json_object *v, const struct json_field *f,
		   void *dst)
{
	size_t n;
	int ret;

	if (!json_object_is_type(v, json_type_array))
		return json_fail(r, "expected an array, found %s", json_type_text(v));
	n = json_object_array_length(v);
	ret = make_room(r, f, n, dst);
	for (size_t i = 0; ret == 0 && i < n; i++) {
		size_t mark = json_enter_index(r, i);

		ret = take_entry(r, json_object_array_get_idx(v, i), f->table, next_entry(f, dst));
		if (ret == 0)
			json_leave(r, mark);
	}
	return ret;
}

int json_take_map(struct json_reader *r, struct json_object *v, const struct json_field *f,
		  void *dst)
{
	int ret;

	if (!json_object_is_type(v, json_type_object))
		return json_fail(r, "expected an object, found %s", json_type_text(v));
	ret = make_room(r, f, (size_t)json_object_object_length(v), dst);
	if (ret < 0)
		return ret;
	json_object_object_foreach (v, key, value) {
		char *entry = next_entry(f, dst), **name = (char **)(void *)(entry + f->table->key);
		size_t mark = json_enter(r, key);

		*name = strdup(key);
		ret = *name ? f->table->check_key(r, key) : json_nomem(r);
		if (ret == 0)
			ret = take_entry(r, value, f->table, entry);
		if (ret < 0)
			return ret;
		json_leave(r, mark);
	}
	return 0;
}

/* ------------------------------------------------------------------ freeing */

static void free_entries(const struct json_field *f, void *dst)
{
	const struct json_table *t = f->table;
	size_t n = *(size_t *)(void *)((char *)dst + t->count);
	char *entries = *TARGET(char *);

	for (size_t i = 0; entries && i < n; i++) {
		json_free_fields(t->fields, t->n, entries + t->size * i);
		if (f->take == json_take_map)
			free(*(char **)(void *)(entries + t->size * i + t->key));
	}
	free(entries);
}

void json_free_fields(const struct json_field *fields, size_t n, void *dst)
{
	for (const struct json_field *f = fields; f < fields + n; f++) {
		if (f->take == json_take_string || f->take == json_take_u32s)
			free(*TARGET(void *));
		else if (f->take == json_take_strings)
			json_strings_free(*TARGET(char **));
		else if (f->take == json_take_any || f->take == json_take_object)
			json_object_put(*TARGET(struct json_object *));
		else if (f->take == json_take_members)
			json_free_fields(f->table->fields, f->table->n, dst);
		else if (f->take == json_take_list || f->take == json_take_map)
			free_entries(f, dst);
	}
}
