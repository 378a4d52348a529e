/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is generated from the table of fields is what is committed. After a change of the table:
 *
 *	NSBOX_REGENERATE=1 build/release/tests/unit/test_fields
 *
 * writes policy/skill.schema.json and the reference in docs/skill.json.5.
 */
#include <check.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/fields.h"
#include "policy/internal.h"

#define BEGIN ".\\\" BEGIN generated: nsbox policy fields --format mdoc\n"
#define END   ".\\\" END generated\n"

static void path_of(const char *name, char *buf, size_t size)
{
	snprintf(buf, size, "%.*s/../../%s", (int)(strrchr(__FILE__, '/') - __FILE__), __FILE__,
		 name);
}

static char *generate(enum fields_format format)
{
	struct nsbox_error err = { 0 };
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	ck_assert_ptr_nonnull(f);
	ck_assert_msg(policy_fields_print(f, format, &err) == 0, "%s", err.msg);
	ck_assert_int_eq(fclose(f), 0);
	return text;
}

static char *read_file(const char *name)
{
	char path[4096], *text = calloc(1, 1 << 20);
	FILE *f;
	size_t n;

	path_of(name, path, sizeof(path));
	f = fopen(path, "re");
	ck_assert_msg(f != NULL, "open %s (run from the top directory)", path);
	n = fread(text, 1, (1 << 20) - 1, f);
	ck_assert_uint_gt(n, 0);
	fclose(f);
	return text;
}

static void write_file(const char *name, const char *head, const char *body, const char *tail)
{
	char path[4096];
	FILE *f;

	path_of(name, path, sizeof(path));
	f = fopen(path, "we");
	ck_assert_ptr_nonnull(f);
	fprintf(f, "%s%s%s", head, body, tail);
	ck_assert_int_eq(fclose(f), 0);
}

START_TEST(the_schema_is_committed)
{
	auto_free char *made = generate(FIELDS_SCHEMA), *have = NULL;

	if (getenv("NSBOX_REGENERATE"))
		write_file("policy/skill.schema.json", "", made, "");
	have = read_file("policy/skill.schema.json");
	ck_assert_msg(!strcmp(made, have), "policy/skill.schema.json is stale: see the top of %s",
		      __FILE__);
}
END_TEST

START_TEST(the_reference_is_committed)
{
	auto_free char *made = generate(FIELDS_MDOC), *page = read_file("docs/skill.json.5");
	char *begin = strstr(page, BEGIN), *end = begin ? strstr(begin, END) : NULL;

	ck_assert_msg(begin && end, "docs/skill.json.5 has lost its markers");
	begin += strlen(BEGIN);
	if (getenv("NSBOX_REGENERATE")) {
		auto_free char *head = strndup(page, (size_t)(begin - page));

		write_file("docs/skill.json.5", head, made, end);
		return;
	}
	ck_assert_msg((size_t)(end - begin) == strlen(made) && !strncmp(begin, made, strlen(made)),
		      "the reference in docs/skill.json.5 is stale: see the top of %s", __FILE__);
}
END_TEST

/* ------------------------------------------------------------------ the table itself */

static unsigned judge_table(const struct json_table *t, const char *where)
{
	unsigned n = 0;

	for (size_t i = 0; i < t->n; i++) {
		const struct json_field *f = &t->fields[i];

		n++;
		ck_assert_msg(f->help && *f->help, "%s.%s has no help", where, f->name);
		ck_assert_msg(f->take != NULL, "%s.%s cannot be read", where, f->name);
		ck_assert_msg(f->help[strlen(f->help) - 1] != '.', "%s.%s: a dot too many", where,
			      f->name);
		for (size_t k = 0; k < i; k++)
			ck_assert_msg(strcmp(f->name, t->fields[k].name) != 0, "%s.%s twice", where,
				      f->name);
		if (f->table)
			n += judge_table(f->table, f->name);
	}
	return n;
}

START_TEST(each_field_is_described)
{
	ck_assert_uint_gt(judge_table(&manifest_table, ""), 120);
}
END_TEST

START_TEST(the_lists_agree)
{
	auto_free char *json = generate(FIELDS_JSON), *text = generate(FIELDS_TEXT);
	struct json_object *list = json_tokener_parse(json);
	unsigned lines = 0;

	ck_assert_ptr_nonnull(list);
	for (const char *p = text; (p = strchr(p, '\n')); p++)
		lines++;
	ck_assert_uint_eq(json_object_array_length(list) * 2, lines);
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *path, *one = json_object_array_get_idx(list, i);
		char line[300];

		ck_assert(json_object_object_get_ex(one, "path", &path));
		snprintf(line, sizeof(line), "%s (", json_object_get_string(path));
		ck_assert_msg(strstr(text, line) != NULL, "%s is in one list only", line);
	}
	ck_assert_ptr_nonnull(strstr(text, "network.allow[].host ("));
	ck_assert_ptr_nonnull(strstr(text, "entrypoints.<ID>.command ("));
	json_object_put(list);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fields");
	TCase *tc = tcase_create("fields");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_test(tc, the_schema_is_committed);
	tcase_add_test(tc, the_reference_is_committed);
	tcase_add_test(tc, each_field_is_described);
	tcase_add_test(tc, the_lists_agree);
	suite_add_tcase(s, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
