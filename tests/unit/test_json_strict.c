/* SPDX-License-Identifier: Apache-2.0 */
/* Strict JSON: what parsers agree on passes, all else is refused at a place that is named. */
#include <check.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/json_strict.h"

static const struct json_limits limits = {
	.max_size = 1 << 20,
	.max_depth = 16,
	.code = NSBOX_E_INVALID,
};

/* ------------------------------------------------------------------ texts */

static const struct {
	const char *text;
	const char *canonical; /* what json-c then holds */
} good[] = {
	{ "{}", "{}" },
	{ " \t\r\n{ } \n", "{}" },
	{ "[]", "[]" },
	{ "null", "null" },
	{ "true", "true" },
	{ "0", "0" },
	{ "7", "7" },
	{ "-0", "0" },
	{ "\"\"", "\"\"" },
	{ "-12.5e+3", "-12.5e+3" },
	{ "9223372036854775807", "9223372036854775807" },
	{ "18446744073709551615", "18446744073709551615" },
	{ "-9223372036854775808", "-9223372036854775808" },
	{ "[1,[2,[3]],{\"a\":[]}]", "[1,[2,[3]],{\"a\":[]}]" },
	{ "{\"a\":{\"a\":1},\"b\":{\"a\":2}}", "{\"a\":{\"a\":1},\"b\":{\"a\":2}}" },
	{ "{\"a\":1,\"A\":2,\"\":3,\"aa\":4}", "{\"a\":1,\"A\":2,\"\":3,\"aa\":4}" },
	{ "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\\"\\\\/\\b\\f\\n\\r\\t\"" },
	{ "\"\\u00e9\\ud83d\\ude00\"", "\"\xc3\xa9\xf0\x9f\x98\x80\"" },
	{ "\"\x7f \xc2\x80 \xef\xbf\xbf \xf4\x8f\xbf\xbf\"",
	  "\"\x7f \xc2\x80 \xef\xbf\xbf \xf4\x8f\xbf\xbf\"" },
	{ "\"\xef\xbb\xbf\"", "\"\xef\xbb\xbf\"" }, /* inside a string it is a character */
};

START_TEST(good_text)
{
	struct nsbox_error err = { 0 };
	struct json_object *v = NULL;
	const char *text = good[_i].text;

	ck_assert_msg(json_strict_parse(text, strlen(text), &limits, &v, &err) == 0, "%s: %s", text,
		      err.msg);
	ck_assert_str_eq(json_object_to_json_string_ext(v, JSON_C_TO_STRING_PLAIN |
								   JSON_C_TO_STRING_NOSLASHESCAPE),
			 good[_i].canonical);
	json_object_put(v);
}
END_TEST

#define TEXT(s) s, sizeof(s) - 1
static const struct {
	const char *text;
	size_t len;
	const char *where; /* beginning of the message */
	const char *why;   /* part of it */
} bad[] = {
	{ TEXT(""), "", "empty text" },
	{ TEXT("   "), "", "empty text" },
	{ TEXT("\xef\xbb\xbf{}"), "", "byte order mark" },
	{ TEXT("{}x"), "", "after the end" },
	{ TEXT("{} {}"), "", "after the end" },
	{ TEXT("{}\0"), "", "after the end" },
	{ TEXT("1 2"), "", "after the end" },
	{ TEXT("{"), "", "expected a key" },
	{ TEXT("["), "", "too early" },
	{ TEXT("[1"), "/0", "too early" },
	{ TEXT("[1,"), "/1", "too early" },
	{ TEXT("[1,]"), "/1", "unexpected" },
	{ TEXT("[,1]"), "/0", "unexpected" },
	{ TEXT("[1 2]"), "/0", "expected ','" },
	{ TEXT("{\"a\":1,}"), "/a: expected a key", "line 1" },
	{ TEXT("{\"a\" 1}"), "/a", "expected ':'" },
	{ TEXT("{\"a\":}"), "/a", "unexpected" },
	{ TEXT("{a:1}"), "", "expected a key" },
	{ TEXT("{'a':1}"), "", "expected a key" },
	{ TEXT("{1:1}"), "", "expected a key" },
	{ TEXT("[1}"), "/0", "expected ','" },
	{ TEXT("{\"a\":1]"), "/a", "expected ','" },
	{ TEXT("// c\n{}"), "", "unexpected" },
	{ TEXT("/* c */{}"), "", "unexpected" },
	{ TEXT("{} # c"), "", "after the end" },
	{ TEXT("'a'"), "", "unexpected" },
	{ TEXT("True"), "", "unexpected" },
	{ TEXT("nul"), "", "unexpected" },
	{ TEXT("nullx"), "", "after the end" },
	{ TEXT("NaN"), "", "unexpected" },
	{ TEXT("-NaN"), "", "malformed number" },
	{ TEXT("Infinity"), "", "unexpected" },
	{ TEXT("-Infinity"), "", "malformed number" },
	{ TEXT("+1"), "", "unexpected" },
	{ TEXT(".5"), "", "unexpected" },
	{ TEXT("1."), "", "malformed number" },
	{ TEXT("1.e3"), "", "malformed number" },
	{ TEXT("1e"), "", "malformed number" },
	{ TEXT("1e+"), "", "malformed number" },
	{ TEXT("01"), "", "begin with 0" },
	{ TEXT("-01"), "", "begin with 0" },
	{ TEXT("0x10"), "", "after the end" },
	{ TEXT("1_000"), "", "after the end" },
	{ TEXT("1e999"), "", "out of range" },
	{ TEXT("-1e999"), "", "out of range" },
	{ TEXT("18446744073709551616"), "", "out of range" },
	{ TEXT("-9223372036854775809"), "", "out of range" },
	{ TEXT("{\"n\":1234567890123456789012345678901234567890}"), "/n", "out of range" },
	/* duplicate keys, whatever their spelling and depth */
	{ TEXT("{\"a\":1,\"a\":2}"), "duplicate key \"a\"", "column 8" },
	{ TEXT("{\"a\":1,\"\\u0061\":2}"), "duplicate key \"a\"", "column 8" },
	{ TEXT("{\"x\":{\"b\":[{\"a\":1,\"c\":2,\"a\":3}]}}"), "/x/b/0: duplicate key \"a\"", "" },
	{ TEXT("{\"\":1,\"\":2}"), "duplicate key \"\"", "" },
	{ TEXT("{\"a\":{\"k\":1},\"b\":2,\"a\":{}}"), "duplicate key \"a\"", "" },
	{ TEXT("{\"a~/\":{\"k\":1,\"k\":2}}"), "/a~0~1: duplicate", "" },
	/* strings */
	{ TEXT("\"a"), "", "does not end" },
	{ TEXT("\"a\\"), "", "does not end" },
	{ TEXT("\"a\\\""), "", "does not end" },
	{ TEXT("\"\\x41\""), "", "unknown escape" },
	{ TEXT("\"\\'\""), "", "unknown escape" },
	{ TEXT("\"\\u12\""), "", "four hexadecimal" },
	{ TEXT("\"\\u12g4\""), "", "four hexadecimal" },
	{ TEXT("\"a\nb\""), "", "control character" },
	{ TEXT("\"a\tb\""), "", "control character" },
	{ TEXT("\"a\0b\""), "", "NUL byte" },
	{ TEXT("[\"a\0b\"]"), "/0", "NUL byte" },
	{ TEXT("[\0]"), "/0", "NUL byte" },
	{ TEXT("{\"a\\u0000b\":1}"), "", "\\u0000" },
	{ TEXT("{\"k\":\"a\\u0000b\"}"), "/k", "\\u0000" },
	{ TEXT("\"\\ud800\""), "", "lone high" },
	{ TEXT("\"\\ud800x\""), "", "lone high" },
	{ TEXT("\"\\ud800\\u0041\""), "", "lone high" },
	{ TEXT("\"\\ud800\\ud800\""), "", "lone high" },
	{ TEXT("\"\\udc00\""), "", "lone low" },
	{ TEXT("\"\\ude00\\ud83d\""), "", "lone low" },
	/* UTF-8: stray, cut, overlong, surrogates, beyond the last plane */
	{ TEXT("\"\x80\""), "", "invalid UTF-8" },
	{ TEXT("\"\xff\""), "", "invalid UTF-8" },
	{ TEXT("\"\xc3\""), "", "invalid UTF-8" },
	{ TEXT("\"\xe2\x82\""), "", "invalid UTF-8" },
	{ TEXT("\"\xe2\x82"), "", "invalid UTF-8" },
	{ TEXT("\"\xc0\xaf\""), "", "invalid UTF-8" },
	{ TEXT("\"\xc1\xbf\""), "", "invalid UTF-8" },
	{ TEXT("\"\xe0\x9f\xbf\""), "", "invalid UTF-8" },
	{ TEXT("\"\xf0\x8f\xbf\xbf\""), "", "invalid UTF-8" },
	{ TEXT("\"\xed\xa0\x80\""), "", "invalid UTF-8" },
	{ TEXT("\"\xf4\x90\x80\x80\""), "", "invalid UTF-8" },
	{ TEXT("\"\xf8\x88\x80\x80\x80\""), "", "invalid UTF-8" },
	{ TEXT("{\"\xff\":1}"), "", "invalid UTF-8" },
	{ TEXT("\xff\xfe{\0}\0"), "", "unexpected" },
	{ TEXT("{\"a\":\n  \x01}"), "/a", "line 2, column 3" },
};

START_TEST(bad_text)
{
	struct nsbox_error err = { 0 };
	struct json_object *v = NULL;

	ck_assert_msg(json_strict_parse(bad[_i].text, bad[_i].len, &limits, &v, &err) == -EINVAL,
		      "accepted: %s", bad[_i].text);
	ck_assert_ptr_null(v);
	ck_assert_int_eq(err.code, NSBOX_E_INVALID);
	ck_assert_msg(!strncmp(err.msg, bad[_i].where, strlen(bad[_i].where)), "%s: %s",
		      bad[_i].text, err.msg);
	ck_assert_msg(strstr(err.msg, bad[_i].why) != NULL, "%s: %s", bad[_i].text, err.msg);
}
END_TEST

/* ------------------------------------------------------------------ limits */

static int parse_n(const char *text, size_t len, const struct json_limits *lim,
		   struct nsbox_error *err)
{
	struct json_object *v = NULL;
	int r = json_strict_parse(text, len, lim, &v, err);

	json_object_put(v);
	return r;
}

START_TEST(depth_is_limited)
{
	char text[200];
	struct nsbox_error err = { 0 };

	memset(text, '[', 16);
	memset(text + 16, ']', 16);
	ck_assert_int_eq(parse_n(text, 32, &limits, &err), 0);
	memset(text, '[', 17);
	memset(text + 17, ']', 17);
	ck_assert_int_lt(parse_n(text, 34, &limits, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.msg, "too deeply"));
}
END_TEST

START_TEST(a_million_brackets_are_cheap)
{
	size_t n = 1 << 20;
	auto_free char *text = malloc(n);
	struct nsbox_error err = { 0 };

	memset(text, '[', n);
	ck_assert_int_lt(parse_n(text, n, &limits, &err), 0);
	memset(text, '{', n);
	ck_assert_int_lt(parse_n(text, n, &limits, &err), 0);
}
END_TEST

START_TEST(size_is_limited)
{
	const struct json_limits small = { .max_size = 4,
					   .max_depth = 2,
					   .code = NSBOX_E_MANIFEST };
	struct nsbox_error err = { 0 };

	ck_assert_int_eq(parse_n("[10]", 4, &small, &err), 0);
	ck_assert_int_lt(parse_n("[100]", 5, &small, &err), 0);
	ck_assert_int_eq(err.code, NSBOX_E_MANIFEST);
	/* len rules, not a NUL */
	ck_assert_int_eq(parse_n("[10]garbage", 4, &small, &err), 0);
}
END_TEST

START_TEST(values_are_counted)
{
	const struct json_limits few = {
		.max_size = 100, .max_depth = 4, .max_nodes = 5, .code = NSBOX_E_INVALID
	};
	struct nsbox_error err = { 0 };

	ck_assert_int_eq(parse_n(TEXT("[1,2,3,4]"), &few, &err), 0);
	ck_assert_int_lt(parse_n(TEXT("[1,2,3,4,5]"), &few, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.msg, "too many values"));
	ck_assert_int_eq(parse_n(TEXT("{\"a\":1,\"b\":2}"), &few, &err), 0);
	ck_assert_int_lt(parse_n(TEXT("{\"a\":1,\"b\":2,\"c\":3}"), &few, &err), 0);
}
END_TEST

/* 100,000 keys, the last a duplicate of the first: found, and without a quadratic search. */
START_TEST(many_keys)
{
	const int n = 100000;
	const struct json_limits big = { .max_size = 4u << 20,
					 .max_depth = 2,
					 .code = NSBOX_E_INVALID };
	auto_free char *text = malloc(4u << 20);
	struct nsbox_error err = { 0 };
	size_t len = 0;

	text[len++] = '{';
	for (int i = 0; i < n; i++)
		len += (size_t)sprintf(text + len, "%s\"key%d\":%d", i ? "," : "", i, i);
	text[len] = '}';
	ck_assert_int_eq(parse_n(text, len + 1, &big, &err), 0);
	len += (size_t)sprintf(text + len, ",\"key0\":0}");
	ck_assert_int_lt(parse_n(text, len, &big, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.msg, "duplicate key \"key0\""));
}
END_TEST

/* Each prefix of a rich text is refused (never read past its end: run under valgrind and ASan). */
START_TEST(every_prefix_is_refused)
{
	const char *text =
		"{\"a\\u00e9\":[1,-2.5e3,true,null,\"x\\ud83d\\ude00\xc3\xa9\"],\"b\":{}}";
	size_t whole = strlen(text);
	struct nsbox_error err = { 0 };

	for (size_t len = 0; len < whole; len++) {
		auto_free char *copy = malloc(len ? len : 1);

		memcpy(copy, text, len);
		ck_assert_msg(parse_n(copy, len, &limits, &err) < 0, "%zu bytes accepted", len);
	}
	ck_assert_int_eq(parse_n(text, whole, &limits, &err), 0);
}
END_TEST

START_TEST(messages_are_one_line)
{
	struct nsbox_error err = { 0 };

	ck_assert_int_lt(parse_n(TEXT("{\"a\\nb\\u001b[2J\":{\"k\":1,\"k\":2}}"), &limits, &err),
			 0);
	for (const char *p = err.msg; *p; p++)
		ck_assert_int_ge(*p, 0x20);
	ck_assert_msg(!strncmp(err.msg, "/a\\u000ab\\u001b[2J: duplicate", 29), "%s", err.msg);
}
END_TEST

/* ------------------------------------------------------------------ fields */

struct thing {
	char *name;
	char **tags;
	bool on;
	uint64_t big;
	uint32_t small, color;
	struct json_object *any;
};

static const char *const colors[] = { "red", "green", NULL };
static const struct json_field fields[] = {
	{ "name", json_take_string, offsetof(struct thing, name), .min = 1, .max = 5 },
	{ "tags", json_take_strings, offsetof(struct thing, tags), .max = 2 },
	{ "on", json_take_bool, offsetof(struct thing, on), .nullable = true },
	{ "big", json_take_u64, offsetof(struct thing, big), .min = 1 },
	{ "small", json_take_u32, offsetof(struct thing, small) },
	{ "color", json_take_choice, offsetof(struct thing, color), .choices = colors },
	{ "any", json_take_object, offsetof(struct thing, any) },
	{ "later", .absent = "is for later" },
	{ "needed", json_take_u32, offsetof(struct thing, small), .required = true },
};

static int read_thing(const char *text, struct thing *t, struct nsbox_error *err)
{
	struct json_object *v = NULL;
	struct json_reader r;
	int ret = json_strict_parse(text, strlen(text), &limits, &v, err);

	ck_assert_msg(ret == 0, "%s", err->msg);
	memset(t, 0, sizeof(*t));
	json_reader_init(&r, NSBOX_E_INVALID, err);
	ret = json_read_object(&r, v, fields, ARRAY_SIZE(fields), true, t);
	json_object_put(v);
	return ret;
}

static void thing_done(struct thing *t)
{
	free(t->name);
	json_strings_free(t->tags);
	json_object_put(t->any);
}

START_TEST(fields_are_read)
{
	struct nsbox_error err = { 0 };
	struct thing t;

	ck_assert_int_eq(read_thing("{\"name\":\"n\",\"tags\":[\"a\",\"b\"],\"on\":true,\"big\":"
				    "18446744073709551615,\"color\":\"green\",\"any\":{\"k\":1},"
				    "\"x-other\":[1],\"_meta\":2,\"needed\":4294967295}",
				    &t, &err),
			 0);
	ck_assert_str_eq(t.name, "n");
	ck_assert_str_eq(t.tags[1], "b");
	ck_assert_ptr_null(t.tags[2]);
	ck_assert(t.on);
	ck_assert(t.big == UINT64_MAX);
	ck_assert_uint_eq(t.small, UINT32_MAX);
	ck_assert_uint_eq(t.color, 1);
	ck_assert_int_eq(json_object_object_length(t.any), 1);
	thing_done(&t);
	ck_assert_int_eq(read_thing("{\"on\":null,\"needed\":1}", &t, &err), 0);
	thing_done(&t);
}
END_TEST

static const struct {
	const char *text, *message;
} refusals[] = {
	{ "[]", "/: expected an object, found an array" },
	{ "{}", "/needed: is required" },
	{ "{\"nam\":1}", "/nam: unknown key, did you mean \"name\"?" },
	{ "{\"Name\":1}", "/Name: unknown key, did you mean \"name\"?" },
	{ "{\"zzz\":1}", "/zzz: unknown key" },
	{ "{\"x\":1}", "/x: unknown key" },
	{ "{\"later\":1}", "/later: is for later" },
	{ "{\"name\":1}", "/name: expected a string, found a number" },
	{ "{\"name\":null}", "/name: expected a string, found null" },
	{ "{\"name\":\"\"}", "/name: is empty" },
	{ "{\"name\":\"abcdef\"}", "/name: is longer than 5 bytes" },
	{ "{\"tags\":\"a\"}", "/tags: expected an array of strings, found a string" },
	{ "{\"tags\":[\"a\",7]}", "/tags/1: expected a string, found a number" },
	{ "{\"tags\":[\"a\",\"\"]}", "/tags/1: is empty" },
	{ "{\"tags\":[\"a\",\"b\",\"c\"]}", "/tags: has more than 2 entries" },
	{ "{\"on\":\"true\"}", "/on: expected true or false, found a string" },
	{ "{\"on\":1}", "/on: expected true or false, found a number" },
	{ "{\"big\":true}", "/big: expected a whole number, found true or false" },
	{ "{\"big\":\"5\"}", "/big: expected a whole number, found a string" },
	{ "{\"big\":1.0}", "/big: expected a whole number, found a fraction" },
	{ "{\"big\":1e3}", "/big: expected a whole number, found a fraction" },
	{ "{\"big\":-1}", "/big: must not be negative" },
	{ "{\"big\":0}", "/big: must be at least 1" },
	{ "{\"small\":4294967296}", "/small: is too large" },
	{ "{\"color\":\"gren\"}", "/color: \"gren\" is not known, did you mean \"green\"?" },
	{ "{\"color\":\"blue\"}", "/color: \"blue\" is not one of \"red\", \"green\"" },
	{ "{\"any\":[]}", "/any: expected an object, found an array" },
	{ "{\"a/b~c\":1}", "/a~1b~0c: unknown key" },
};

START_TEST(fields_are_refused)
{
	struct nsbox_error err = { 0 };
	struct thing t;

	ck_assert_int_lt(read_thing(refusals[_i].text, &t, &err), 0);
	ck_assert_str_eq(err.msg, refusals[_i].message);
	ck_assert_int_eq(err.code, NSBOX_E_INVALID);
	thing_done(&t);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("json_strict");
	TCase *tc = tcase_create("json");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_loop_test(tc, good_text, 0, (int)ARRAY_SIZE(good));
	tcase_add_loop_test(tc, bad_text, 0, (int)ARRAY_SIZE(bad));
	tcase_add_test(tc, depth_is_limited);
	tcase_add_test(tc, a_million_brackets_are_cheap);
	tcase_add_test(tc, size_is_limited);
	tcase_add_test(tc, values_are_counted);
	tcase_add_test(tc, many_keys);
	tcase_add_test(tc, every_prefix_is_refused);
	tcase_add_test(tc, messages_are_one_line);
	tcase_add_test(tc, fields_are_read);
	tcase_add_loop_test(tc, fields_are_refused, 0, (int)ARRAY_SIZE(refusals));
	suite_add_tcase(s, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
