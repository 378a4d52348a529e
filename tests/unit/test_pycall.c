/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of Python functions seen from outside: requests, verdicts, and the text helpers of both. */
#include <check.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <string.h>

#include "daemon/common/pycall.h"
#include "daemon/common/text.h"
#include "nsbox/util.h"

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): columns in the order they are read */
static const struct {
	uint32_t cause;
	int status;
	const char *frame;
	bool cut;
	const char *out, *errout;
	int code;
	const char *data; /* NULL: null */
	const char *msg;
} verdicts[] = {
	/* clang-format off */
	{ NSBOX_CAUSE_EXIT, 0, "{\"ok\":true,\"value\":2}", 0, "", "", 200, "2", "success" },
	{ NSBOX_CAUSE_EXIT, 0, "{\"ok\":true,\"value\":null}", 0, "", "", 200, NULL, "success" },
	{ NSBOX_CAUSE_EXIT, 0, "{\"ok\":true,\"value\":[NaN, -Infinity, 123456789012345678901234567890]}", 0,
	  "", "", 200, "[NaN, -Infinity, 123456789012345678901234567890]", "success" },
	{ NSBOX_CAUSE_EXIT, 0, "{\"ok\":true,\"value\":\"\\ud800\"}", 0, "x", "warn\n", 200,
	  "\"\\ud800\"", "success" },
	{ NSBOX_CAUSE_EXIT, 0, "{\"ok\":false,\"msg\":\"bad \\u9519\\u8bef\"}", 0, "", "", 500, NULL, "bad 错误" },
	{ NSBOX_CAUSE_EXIT, 0, "{\"ok\":false,\"msg\":\"bad\"}", 0, "out", "warn\n", 500, NULL, "bad\nwarn\n" },
	{ NSBOX_CAUSE_EXIT, 0, "{\"ok\":false,\"msg\":\"\"}", 0, "", "", 500, NULL, "" },
	/* Forged or broken frames are no result, and nothing worse. */
	{ NSBOX_CAUSE_EXIT, 0, "{\"ok\":true,\"value\":2}}", 0, "", "", 500, NULL, "No result found." },
	{ NSBOX_CAUSE_EXIT, 0, "{\"ok\":true,\"value\":1},\"msg\":{}", 0, "", "", 500, NULL, "No result found." },
	{ NSBOX_CAUSE_EXIT, 0, "{\"ok\":true,\"value\":\"\x80\"}", 0, "", "", 500, NULL, "No result found." },
	{ NSBOX_CAUSE_EXIT, 0, "{\"ok\":false,\"msg\":1}", 0, "", "", 500, NULL, "No result found." },
	{ NSBOX_CAUSE_EXIT, 0, "garbage", 0, "", "", 500, NULL, "No result found." },
	{ NSBOX_CAUSE_EXIT, 0, "{\"ok\":true,\"value\":\"xx", 1, "", "", 500, NULL,
	  "The result is larger than the limit of 22 bytes." },
	/* No frame: exit status and streams. */
	{ NSBOX_CAUSE_EXIT, 0, "", 0, "x", "y", 500, NULL, "Execution interrupted or tampered" },
	{ NSBOX_CAUSE_EXIT, 3, "", 0, "", "", 500, NULL, "Unknown exception occurred" },
	{ NSBOX_CAUSE_EXIT, 3, "", 0, "said\n", "", 500, NULL, "said\n" },
	{ NSBOX_CAUSE_EXIT, 1, "", 0, "said\n", "bye\n", 500, NULL, "bye\n" },
	{ NSBOX_CAUSE_EXIT, 1, "{\"ok\":true,\"value\":2}", 0, "", "late\n", 500, NULL, "late\n" },
	{ NSBOX_CAUSE_SIGNAL, 137, "", 0, "", "", 500, NULL, "Unknown exception occurred" },
	/* The cause comes first. */
	{ NSBOX_CAUSE_WALL_TIME, 143, "{\"ok\":true,\"value\":2}", 0, "", "z", 500, NULL,
	  "Process execution timed out after 60 seconds." },
	{ NSBOX_CAUSE_MEMORY, 137, "", 0, "", "", 500, NULL,
	  "Cannot allocate more memory: exceeded the limit of 256 MB." },
	{ NSBOX_CAUSE_CANCELLED, 143, "", 0, "", "", 500, NULL, "The call was cancelled." },
	{ NSBOX_CAUSE_INTERRUPTED, 0, "", 0, "", "", 500, NULL,
	  "The call was interrupted: its sandbox went away." },
	{ NSBOX_CAUSE_SANDBOX, 0, "", 0, "", "", 500, NULL, "why" },
	/* clang-format on */
};

START_TEST(test_judge)
{
	typeof(&verdicts[0]) v = &verdicts[_i];
	struct nsbox_result res = { .cause = v->cause, .exit_status = v->status };
	struct pycall c = { .memory = 256 << 20, .wall_ms = 60000 };
	struct pycall_outcome o;

	strcpy(res.error.msg, "why");
	ck_assert_int_eq(pycall_judge(&c, &res, v->frame, strlen(v->frame), v->cut, v->out,
				      strlen(v->out), v->errout, strlen(v->errout), &o, NULL),
			 0);
	ck_assert_str_eq(o.msg, v->msg);
	ck_assert_int_eq(o.code, v->code);
	if (v->data)
		ck_assert_str_eq(json_object_to_json_string_ext(o.data, 0), v->data);
	else
		ck_assert_ptr_null(o.data);
	pycall_outcome_done(&o);
}
END_TEST

START_TEST(test_encode)
{
	struct json_object *params = json_tokener_parse("{\"键\": 1.50}"), *got;
	struct pycall c = { .code = "def f(): pass\n",
			    .function = "f",
			    .params = params,
			    .noexec = "\1\2\3",
			    .noexec_len = 3,
			    .memory = 512 << 20 };
	char buf[1024] = { 0 };
	int fd;

	ck_assert_int_eq(pycall_encode(&c, &fd, NULL), 0);
	ck_assert_int_ne(fcntl(fd, F_GET_SEALS) & F_SEAL_WRITE, 0);
	ck_assert_int_gt(pread(fd, buf, sizeof(buf) - 1, 0), 0);
	/* Read from the start: whoever gets it must not have to seek. */
	ck_assert_int_eq(lseek(fd, 0, SEEK_CUR), 0);
	close(fd);
	got = json_tokener_parse(buf);
	ck_assert_str_eq(json_object_get_string(json_object_object_get(got, "function")), "f");
	ck_assert_str_eq(json_object_get_string(json_object_object_get(got, "noexec")), "AQID");
	ck_assert_int_eq(json_object_get_int(json_object_object_get(got, "memory_mb")), 512);
	ck_assert_ptr_nonnull(strstr(buf, "\"键\":1.50"));
	ck_assert_ptr_nonnull(strstr(buf, "\"compat\":[]"));
	json_object_put(got);
	json_object_put(params);
}
END_TEST

START_TEST(test_encode_maxkb)
{
	const char *const path[] = { "/opt/a", "/opt/b", NULL };
	struct pycall c = { .code = "",
			    .expression = "{'a': (1,)}",
			    .path = path,
			    .compat = 1u << PYCALL_COMPAT_RECURSION |
				      1u << PYCALL_COMPAT_ENVIRONMENT };
	char buf[1024] = { 0 };
	int fd;

	ck_assert_int_eq(pycall_encode(&c, &fd, NULL), 0);
	ck_assert_int_gt(pread(fd, buf, sizeof(buf) - 1, 0), 0);
	close(fd);
	ck_assert_str_eq(buf, "{\"code\":\"\",\"expression\":\"{'a': (1,)}\",\"memory_mb\":0,"
			      "\"path\":[\"\\/opt\\/a\",\"\\/opt\\/b\"],"
			      "\"compat\":[\"recursion\",\"environment\"]}");
}
END_TEST

START_TEST(test_base64)
{
	static const char *const good[] = { "", "AA==", "AQI=", "AQID", "+/+/" };
	static const char *const bad[] = { "A",
					   "AA",
					   "AAA",
					   "AB==",
					   "AQJ=",
					   "AA=A",
					   "=AAA",
					   "AA\nA",
					   "A===",
					   "AAAA=",
					   "\xff\xff\xff\xff",
					   "AA==AAAA" };
	unsigned char *data;
	char *text;
	size_t len;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		ck_assert_int_eq(base64_decode(good[i], strlen(good[i]), &data, &len), 0);
		text = base64_encode(data, len);
		ck_assert_str_eq(text, good[i]);
		free(text);
		free(data);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_int_eq(base64_decode(bad[i], strlen(bad[i]), &data, &len), -EINVAL);
}
END_TEST

START_TEST(test_text)
{
	static const struct {
		const char *in, *out;
	} rows[] = {
		{ "", "\"\"" },
		{ "é😀", "\"é😀\"" },
		{ "a\xff"
		  "b",
		  "\"a\xef\xbf\xbd"
		  "b\"" },
		{ "\xc0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\"" },
		{ "\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
		{ "x\xe2\x82", "\"x\xef\xbf\xbd\xef\xbf\xbd\"" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct json_object *o = json_text_new(rows[i].in, strlen(rows[i].in));

		ck_assert_str_eq(json_object_to_json_string_ext(o, 0), rows[i].out);
		json_object_put(o);
	}
}
END_TEST

START_TEST(test_value)
{
	static const char *const good[] = {
		"1",   "-0.5e+3",   "\"\\u00e9\\n\"",
		"[]",  "{}",	    " [1 , {\"a\" : [ ] } ] ",
		"NaN", "-Infinity", "{\"a\":{\"b\":[true,false,null]}}"
	};
	static const char *const bad[] = { "",	       " ",	   "01",	 "1.",
					   "-",	       "[1,]",	   "[,1]",	 "{\"a\"}",
					   "{\"a\":}", "{a:1}",	   "[1}",	 "]",
					   "1 2",      "\"\x01\"", "\"\\x\"",	 "\"\\u12g4\"",
					   "\"abc",    "[",	   "{\"a\":1,}", "nul",
					   "+1",       "\"\\",	   "\"\\u1",	 "{\"a\":1" };
	char deep[600];

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		ck_assert_msg(json_value_check(good[i], strlen(good[i]), 8), "%s", good[i]);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(!json_value_check(bad[i], strlen(bad[i]), 8), "%s", bad[i]);
	memset(deep, '[', 300);
	memset(deep + 300, ']', 300);
	ck_assert(json_value_check(deep, 600, 300));
	ck_assert(!json_value_check(deep, 600, 299));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("pycall");
	TCase *tc = tcase_create("pycall");
	SRunner *sr = srunner_create(s);
	int failed;

	suite_add_tcase(s, tc);
	tcase_add_loop_test(tc, test_judge, 0, ARRAY_SIZE(verdicts));
	tcase_add_test(tc, test_encode);
	tcase_add_test(tc, test_encode_maxkb);
	tcase_add_test(tc, test_base64);
	tcase_add_test(tc, test_text);
	tcase_add_test(tc, test_value);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
