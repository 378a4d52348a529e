/* SPDX-License-Identifier: Apache-2.0 */
/* Processor time within an hour. */
#include <check.h>

#include "daemon/front/usage.c" /* NOLINT(bugprone-suspicious-include): not in a library */

#define SECOND UINT64_C(1000000)

static struct usage *u;

static void setup(void)
{
	u = usage_new();
}

static void teardown(void)
{
	usage_free(u);
}

START_TEST(test_below)
{
	ck_assert_uint_eq(usage_wait(u, "a", 10, 5000), 0);
	usage_add(u, "a", 9 * SECOND, 5000);
	ck_assert_uint_eq(usage_wait(u, "a", 10, 5001), 0);
	usage_add(u, "a", 1 * SECOND, 5002);
	ck_assert_uint_gt(usage_wait(u, "a", 10, 5003), 0);
	ck_assert_uint_eq(usage_wait(u, "b", 10, 5003), 0);
}
END_TEST

/* After what usage_wait() says it is free again, and a second before that it is not. */
static void check_wait(uint64_t limit, uint64_t now)
{
	uint64_t wait = usage_wait(u, "a", limit, now);

	ck_assert_uint_gt(wait, 0);
	ck_assert_uint_gt(usage_wait(u, "a", limit, now + wait - 1), 0);
	ck_assert_uint_eq(usage_wait(u, "a", limit, now + wait), 0);
}

START_TEST(test_wait_for_the_only)
{
	usage_add(u, "a", 20 * SECOND, 6007);
	check_wait(10, 6030);
}
END_TEST

START_TEST(test_wait_for_the_oldest)
{
	usage_add(u, "a", 6 * SECOND, 6007);
	usage_add(u, "a", 6 * SECOND, 7200);
	check_wait(10, 7260);
}
END_TEST

START_TEST(test_wait_for_several)
{
	for (uint64_t i = 0; i < 20; i++)
		usage_add(u, "a", 1 * SECOND, 7200 + i * 60);
	check_wait(5, 7200 + 19 * 60);
}
END_TEST

START_TEST(test_an_hour_later)
{
	usage_add(u, "a", 100 * SECOND, 6000);
	ck_assert_uint_eq(usage_wait(u, "a", 1, 6000 + 3600), 0);
	usage_add(u, "b", 1, 6000 + 3600);
	ck_assert_ptr_null(u->first->next); /* nothing is left of "a" */
}
END_TEST

int main(void)
{
	Suite *s = suite_create("usage");
	TCase *tc = tcase_create("hour");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_below);
	tcase_add_test(tc, test_wait_for_the_only);
	tcase_add_test(tc, test_wait_for_the_oldest);
	tcase_add_test(tc, test_wait_for_several);
	tcase_add_test(tc, test_an_hour_later);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
