/* SPDX-License-Identifier: Apache-2.0 */
/* See report.h. */
#include "policy/report.h"

#include <string.h>

#include "nsbox/util.h"

struct json_object *report_put(struct json_object *o, const char *key, struct json_object *v)
{
	if (o && json_object_object_add(o, key, v) < 0)
		json_object_put(v);
	return v;
}

void report_str(struct json_object *o, const char *key, const char *v)
{
	report_put(o, key, v ? json_object_new_string(v) : NULL);
}

void report_u64(struct json_object *o, const char *key, uint64_t v)
{
	report_put(o, key, json_object_new_uint64(v));
}

void report_bool(struct json_object *o, const char *key, bool v)
{
	report_put(o, key, json_object_new_boolean(v));
}

struct json_object *report_add_to(struct json_object *array, struct json_object *v)
{
	if (array && json_object_array_add(array, v) < 0)
		json_object_put(v);
	return v;
}

void report_add_str(struct json_object *array, const char *v)
{
	report_add_to(array, json_object_new_string(v));
}

struct json_object *report_at(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	return o && json_object_object_get_ex(o, key, &v) ? v : NULL;
}

const char *report_get(struct json_object *o, const char *key)
{
	struct json_object *v = report_at(o, key);

	return v ? json_object_get_string(v) : "";
}

static int to_text(struct json_object *o, report_text_fn *text, char **ret)
{
	size_t len = 0;
	FILE *to = open_memstream(ret, &len);
	bool failed;

	if (!to)
		return -ENOMEM;
	text(o, to);
	failed = ferror(to);
	if (fclose(to) != 0 || failed) {
		free(*ret);
		return -ENOMEM;
	}
	return 0;
}

static int to_json(struct json_object *o, char **ret)
{
	const char *s = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
								  JSON_C_TO_STRING_NOSLASHESCAPE);

	return s && asprintf(ret, "%s\n", s) >= 0 ? 0 : -ENOMEM;
}

int report_finish(struct json_object *o, enum nsbox_report form, report_text_fn *text, char **ret,
		  struct nsbox_error *err)
{
	char *out = NULL;
	int r = !o			    ? -ENOMEM
		: form == NSBOX_REPORT_JSON ? to_json(o, &out)
					    : to_text(o, text, &out);

	json_object_put(o);
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "write a report");
	*ret = out;
	return 0;
}

struct unit {
	uint64_t of;
	const char *name;
};

static const char *amount(uint64_t v, const struct unit *units, size_t n, char *buf, int size)
{
	for (size_t i = 0; i < n; i++)
		if (v && v % units[i].of == 0) {
			nsbox_format(buf, size, "%llu%s", (unsigned long long)(v / units[i].of),
				     units[i].name);
			return buf;
		}
	nsbox_format(buf, size, "%llu", (unsigned long long)v);
	return buf;
}

const char *report_bytes(uint64_t v, char *buf, int size)
{
	static const struct unit units[] = { { UINT64_C(1) << 30, "Gi" },
					     { UINT64_C(1) << 20, "Mi" },
					     { 1024, "Ki" } };

	return amount(v, units, ARRAY_SIZE(units), buf, size);
}

const char *report_ms(uint64_t v, char *buf, int size)
{
	static const struct unit units[] = {
		{ 3600000, "h" }, { 60000, "m" }, { 1000, "s" }, { 1, "ms" }
	};

	return amount(v, units, ARRAY_SIZE(units), buf, size);
}

const char *report_milli(uint64_t v, char *buf, int size)
{
	static const struct unit units[] = { { 1000, "" }, { 1, "m" } };

	return amount(v, units, ARRAY_SIZE(units), buf, size);
}
