/* SPDX-License-Identifier: Apache-2.0 */
/* What is not to be shown, and in however many pieces it comes. */
#include <check.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/redact.h"

static const struct input hidden[] = {
	{ (char *)"LONG", (char *)"secret-and-more", 15 },
	{ (char *)"SHORT", (char *)"secret", 6 },
	{ (char *)"B", (char *)"aab", 3 },
};
#define N 3

struct sink {
	char text[256];
	size_t len;
};

static void put(void *ctx, const char *buf, size_t len)
{
	struct sink *s = ctx;

	memcpy(s->text + s->len, buf, len);
	s->len += len;
	s->text[s->len] = 0;
}

static const struct {
	const char *in, *out;
} rows[] = {
	{ "", "" },
	{ "nothing here", "nothing here" },
	{ "a secret.", "a ***." },
	{ "secretsecret", "******" },
	{ "secret-and-more", "***" },
	{ "secret-and-mor", "***-and-mor" },
	{ "secret-", "***-" },
	{ "secre", "secre" },
	{ "aaab aaaab", "a*** aa***" },
	{ "sesecret", "se***" },
	{ "secret-and-moreaab", "******" },
};

/* However the text is cut, the same comes out. */
START_TEST(test_stream)
{
	const char *in = rows[_i].in;
	size_t len = strlen(in);

	for (size_t step = 1; step <= len + 1; step++) {
		struct redact r = { .hidden = hidden, .n = N };
		struct sink s = { 0 };

		for (size_t at = 0; at < len; at += step)
			redact_feed(&r, in + at, step < len - at ? step : len - at, false, put, &s);
		redact_feed(&r, NULL, 0, true, put, &s);
		ck_assert_str_eq(s.text, rows[_i].out);
		redact_done(&r);
	}
}
END_TEST

START_TEST(test_text)
{
	size_t len = 0;
	char *text = redact_text(hidden, N, rows[_i].in, strlen(rows[_i].in), &len);

	ck_assert_str_eq(text, rows[_i].out);
	ck_assert_uint_eq(len, strlen(rows[_i].out));
	free(text);
}
END_TEST

/* A program's prompt must not wait for what can no longer be a value. */
START_TEST(test_prompt)
{
	struct redact r = { .hidden = hidden, .n = N };
	struct sink s = { 0 };

	redact_feed(&r, "name? ", 6, false, put, &s);
	ck_assert_str_eq(s.text, "name? ");
	redact_done(&r);
}
END_TEST

START_TEST(test_json)
{
	static const struct input number = { (char *)"PIN", (char *)"1234", 4 };
	struct json_object *v = json_tokener_parse("{\"secret\":[\"my secret\",7,null,true]}");
	struct json_object *out = redact_json(hidden, N, v);

	ck_assert_str_eq(json_object_to_json_string_ext(out, 0),
			 "{\"***\":[\"my ***\",7,null,true]}");
	json_object_put(out);
	json_object_put(v);
	v = json_tokener_parse("[12345,\"x\"]");
	out = redact_json(&number, 1, v);
	ck_assert_str_eq(json_object_to_json_string_ext(out, 0), "[\"***5\",\"x\"]");
	json_object_put(out);
	json_object_put(v);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("redact");
	TCase *tc = tcase_create("redact");
	SRunner *sr;
	int failed;

	tcase_add_loop_test(tc, test_stream, 0, sizeof(rows) / sizeof(rows[0]));
	tcase_add_loop_test(tc, test_text, 0, sizeof(rows) / sizeof(rows[0]));
	tcase_add_test(tc, test_prompt);
	tcase_add_test(tc, test_json);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
