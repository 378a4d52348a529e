/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors and their formatter. libc's snprintf is the judge of the formatter: where ours knows a
 * conversion, both must write the same.
 */
#include <check.h>
#include <errno.h>
#include <limits.h>
#include <nsbox/error.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"

/* ------------------------------------------------------------------ against snprintf */

/* A macro, so that each row keeps the compiler's own check of format and arguments. */
#define SAME(...)                                                                                  \
	do {                                                                                       \
		char ours[512], theirs[512];                                                       \
		int n = nsbox_format(ours, sizeof(ours), __VA_ARGS__);                             \
                                                                                                   \
		snprintf(theirs, sizeof(theirs), __VA_ARGS__);                                     \
		ck_assert_str_eq(ours, theirs);                                                    \
		ck_assert_int_eq(n, (int)strlen(theirs));                                          \
	} while (0)

START_TEST(numbers)
{
	SAME("no conversion at all");
	SAME("%d %i", 0, -1);
	SAME("%d %d", INT_MIN, INT_MAX);
	SAME("%u %u", 0U, UINT_MAX);
	SAME("%x %x %o %o", 0xdeadbeefU, 0U, 0755U, UINT_MAX);
	SAME("%ld %ld %lu %lx", LONG_MIN, LONG_MAX, ULONG_MAX, ULONG_MAX);
	SAME("%lld %lld %llu %llo", LLONG_MIN, LLONG_MAX, ULLONG_MAX, ULLONG_MAX);
	SAME("%jd %ju %jx", INTMAX_MIN, UINTMAX_MAX, UINTMAX_MAX);
	SAME("%zu %zx", SIZE_MAX, (size_t)4096);
}
END_TEST

START_TEST(widths)
{
	SAME("[%4u] [%1u] [%10x]", 42U, 12345U, 0xabcU);
	SAME("[%04o] [%08x] [%03d]", 0644U, 0xbeefU, 7);
	SAME("[%5d] [%05d] [%2d]", 42, 42, -42);
	SAME("[%020llu]", 1ULL);
	SAME("[%6d] [%06d] [%3d]", -42, -42, -42);
}
END_TEST

START_TEST(strings)
{
	SAME("%s", "");
	SAME("%s and %s", "one", "two");
	SAME("%c%c%c %%", 'a', '/', '~');
	SAME("[%.3s] [%.0s] [%.9s]", "abcdef", "abcdef", "abc");
	SAME("[%.*s] [%.*s]", 2, "abcdef", 0, "abcdef");
	/* A negative precision counts as none. */
	SAME("[%.*s]", -1, "abcdef");
	SAME("%s %d %s %lu %s", "a", 1, "b", 2UL, "c");
	SAME("'%s': %u of %u, %c", "/etc/passwd", 3U, 4U, 'x');
}
END_TEST

START_TEST(unterminated_with_precision)
{
	const char raw[4] = { 'a', 'b', 'c', 'd' };
	char buf[16];

	/* As for snprintf, a precision must keep the reader inside: ASan is the judge. */
	ck_assert_int_eq(nsbox_format(buf, sizeof(buf), "%.*s", 4, raw), 4);
	ck_assert_str_eq(buf, "abcd");
}
END_TEST

START_TEST(null_string)
{
	const char *volatile none = NULL;
	char buf[16];

	ck_assert_int_eq(nsbox_format(buf, sizeof(buf), "<%s>", none), 2);
	ck_assert_str_eq(buf, "<>");
}
END_TEST

/* ------------------------------------------------------------------ truncation */

START_TEST(cut)
{
	char buf[16];

	for (int size = 1; size <= (int)sizeof(buf); size++) {
		char want[16];

		memset(buf, 'Z', sizeof(buf));
		snprintf(want, (size_t)size, "%s-%05d-%x", "abc", 42, 0xffU);
		ck_assert_int_eq(nsbox_format(buf, size, "%s-%05d-%x", "abc", 42, 0xffU),
				 (int)strlen(want));
		ck_assert_str_eq(buf, want);
		for (int i = size; i < (int)sizeof(buf); i++)
			ck_assert_int_eq(buf[i], 'Z');
	}
}
END_TEST

START_TEST(no_room)
{
	char buf[2] = "Z";

	ck_assert_int_eq(nsbox_format(buf, 0, "abc"), 0);
	ck_assert_int_eq(nsbox_format(buf, -5, "abc"), 0);
	ck_assert_str_eq(buf, "Z");
}
END_TEST

START_TEST(half_a_conversion)
{
	/* Wrong formats are the compiler's to find; this one must end where the string does. */
	static const char *const broken[] = { "a%", "a%0", "a%12", "a%.", "a%l", "a%.3" };
	char buf[16];

	for (unsigned i = 0; i < ARRAY_SIZE(broken); i++) {
		const char *volatile fmt = broken[i];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
		ck_assert_int_eq(nsbox_format(buf, sizeof(buf), fmt), 1);
#pragma GCC diagnostic pop
		ck_assert_str_eq(buf, "a");
	}
}
END_TEST

/* ------------------------------------------------------------------ nsbox_fail */

START_TEST(fail_returns)
{
	static const struct {
		int errnum, ret;
	} rows[] = { { ENOENT, -ENOENT }, { -ENOENT, -ENOENT }, { 0, -EINVAL }, { 1, -1 } };

	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		struct nsbox_error err;

		memset(&err, 0x5a, sizeof(err));
		ck_assert_int_eq(nsbox_fail(&err, NSBOX_E_IO, rows[i].errnum, "read '%s'", "x"),
				 rows[i].ret);
		ck_assert_int_eq(err.code, NSBOX_E_IO);
		ck_assert_int_eq(err.stage, NSBOX_STAGE_NONE);
		ck_assert_int_eq(err.errnum, rows[i].errnum < 0 ? -rows[i].errnum : rows[i].errnum);
		/* The same without an error to fill. */
		ck_assert_int_eq(nsbox_fail(NULL, NSBOX_E_IO, rows[i].errnum, "read '%s'", "x"),
				 rows[i].ret);
	}
}
END_TEST

START_TEST(fail_message)
{
	struct nsbox_error err;

	ck_assert_int_eq(nsbox_fail_at(&err, NSBOX_STAGE_OVERLAY, NSBOX_E_SETUP, ENOENT,
				       "mount '%s' %u times", "/x", 2U),
			 -ENOENT);
	ck_assert_str_eq(err.msg, "mount '/x' 2 times: No such file or directory");
	ck_assert_int_eq(err.stage, NSBOX_STAGE_OVERLAY);
	nsbox_fail(&err, NSBOX_E_INVALID, 0, "no number");
	ck_assert_str_eq(err.msg, "no number");
	nsbox_fail(&err, NSBOX_E_INVALID, 99999, "odd");
	ck_assert_str_eq(err.msg, "odd: unknown error");
}
END_TEST

/* Nothing of an earlier message, nor of the stack, travels to a peer in the tail. */
START_TEST(fail_leaves_no_tail)
{
	struct nsbox_error err;
	size_t n;

	memset(&err, 'S', sizeof(err));
	nsbox_fail(&err, NSBOX_E_IO, EIO, "x");
	n = strlen(err.msg);
	for (size_t i = n; i < sizeof(err.msg); i++)
		ck_assert_int_eq(err.msg[i], 0);
}
END_TEST

static const char *long_text(void)
{
	static char text[2 * NSBOX_ERROR_MSG_MAX];

	memset(text, 'm', sizeof(text) - 1);
	return text;
}

START_TEST(fail_cuts)
{
	struct {
		struct nsbox_error err;
		char after[8];
	} x;

	memset(&x, 'G', sizeof(x));
	ck_assert_int_eq(nsbox_fail(&x.err, NSBOX_E_IO, EIO, "%s", long_text()), -EIO);
	ck_assert_uint_eq(strlen(x.err.msg), NSBOX_ERROR_MSG_MAX - 1);
	ck_assert_mem_eq(x.after, "GGGGGGGG", 8);
	ck_assert_int_eq(x.err.errnum, EIO);
}
END_TEST

/* ------------------------------------------------------------------ prefix */

START_TEST(prefix)
{
	struct nsbox_error err = { 0 };

	nsbox_fail_at(&err, NSBOX_STAGE_PIVOT, NSBOX_E_SETUP, EPERM, "pivot");
	nsbox_error_prefix(&err, "job %d", 17);
	ck_assert_str_eq(err.msg, "job 17: pivot: Operation not permitted");
	nsbox_error_prefix(&err, "%s", "worker");
	ck_assert_str_eq(err.msg, "worker: job 17: pivot: Operation not permitted");
	ck_assert_int_eq(err.code, NSBOX_E_SETUP);
	ck_assert_int_eq(err.errnum, EPERM);
	ck_assert_int_eq(err.stage, NSBOX_STAGE_PIVOT);
}
END_TEST

START_TEST(prefix_of_nothing)
{
	struct nsbox_error err = { 0 };

	nsbox_error_prefix(NULL, "job %d", 17);
	nsbox_error_prefix(&err, "job %d", 17);
	ck_assert_str_eq(err.msg, "");
}
END_TEST

START_TEST(prefix_cuts_the_tail)
{
	struct nsbox_error err = { 0 };

	nsbox_fail(&err, NSBOX_E_IO, 0, "%s", long_text());
	nsbox_error_prefix(&err, "job %d", 17);
	ck_assert_uint_eq(strlen(err.msg), NSBOX_ERROR_MSG_MAX - 1);
	ck_assert_mem_eq(err.msg, "job 17: mmm", 11);
	nsbox_error_prefix(&err, "%s", long_text());
	ck_assert_uint_eq(strlen(err.msg), NSBOX_ERROR_MSG_MAX - 1);
	ck_assert_mem_eq(err.msg, "mmm", 3);
}
END_TEST

/* ------------------------------------------------------------------ names */

static void check_names(const char *(*name)(int), int max)
{
	for (int i = 0; i < max; i++) {
		const char *n = name(i);

		ck_assert_str_ne(n, "unknown");
		ck_assert_str_ne(n, "");
		for (int j = 0; j < i; j++)
			ck_assert_msg(strcmp(n, name(j)) != 0, "%d and %d are both '%s'", i, j, n);
	}
	ck_assert_str_eq(name(-1), "unknown");
	ck_assert_str_eq(name(max), "unknown");
	ck_assert_str_eq(name(INT_MAX), "unknown");
	ck_assert_str_eq(name(INT_MIN), "unknown");
}

START_TEST(names)
{
	check_names(nsbox_error_code_name, NSBOX_E_CODE_MAX);
	check_names(nsbox_stage_name, NSBOX_STAGE_MAX);
}
END_TEST

/* One write(2) to a pipe, one packet: whole or not at all. */
_Static_assert(sizeof(struct nsbox_error) <= PIPE_BUF, "an error is one atomic write");

static Suite *suite(void)
{
	const TTest *const tests[] = {
		numbers,
		widths,
		strings,
		unterminated_with_precision,
		null_string,
		cut,
		no_room,
		half_a_conversion,
		fail_returns,
		fail_message,
		fail_leaves_no_tail,
		fail_cuts,
		prefix,
		prefix_of_nothing,
		prefix_cuts_the_tail,
		names,
	};
	Suite *s = suite_create("error");
	TCase *tc = tcase_create("error");

	for (unsigned i = 0; i < ARRAY_SIZE(tests); i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(suite());
	int failed;

	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
