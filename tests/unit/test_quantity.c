/* SPDX-License-Identifier: Apache-2.0 */
/* Amounts as people write them, and every odd spelling that must not pass for one. */
#include <check.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/quantity.h"

#define MI UINT64_C(1048576)

struct good {
	quantity_fn *parse;
	const char *text;
	uint64_t value;
};

static const struct good goods[] = {
	{ quantity_bytes, "0", 0 },
	{ quantity_bytes, "1", 1 },
	{ quantity_bytes, "65536", 65536 },
	{ quantity_bytes, "64Ki", 65536 },
	{ quantity_bytes, "512Mi", 512 * MI },
	{ quantity_bytes, "1.5Gi", 1536 * MI },
	{ quantity_bytes, "0.5Ki", 512 },
	{ quantity_bytes, "2Ti", 2 * MI *MI },
	{ quantity_bytes, "64k", 64000 },
	{ quantity_bytes, "512M", 512000000 },
	{ quantity_bytes, "1.25G", 1250000000 },
	{ quantity_bytes, "18446744073709551615", UINT64_MAX },
	{ quantity_cpu, "1", 1000 },
	{ quantity_cpu, "1.5", 1500 },
	{ quantity_cpu, "0.25", 250 },
	{ quantity_cpu, "500m", 500 },
	{ quantity_cpu, "1500m", 1500 },
	{ quantity_cpu, "2.000", 2000 },
	{ quantity_ms, "250ms", 250 },
	{ quantity_ms, "30s", 30000 },
	{ quantity_ms, "1.5s", 1500 },
	{ quantity_ms, "2m", 120000 },
	{ quantity_ms, "1h", 3600000 },
	{ quantity_ms, "0.5h", 1800000 },
	{ quantity_ms, "1d", 86400000 },
	{ quantity_ms, "0s", 0 },
};

START_TEST(good_amounts)
{
	const struct good *g = &goods[_i];
	const char *why = NULL;
	uint64_t value = 12345;

	ck_assert_msg(g->parse(g->text, &value, &why), "'%s' %s", g->text, why);
	ck_assert_msg(value == g->value, "'%s' is %llu", g->text, (unsigned long long)value);
}
END_TEST

struct bad {
	quantity_fn *parse;
	const char *text;
	const char *why; /* part of it */
};

static const struct bad bads[] = {
	{ quantity_bytes, "", "plain decimal" },
	{ quantity_bytes, " 1", "plain decimal" },
	{ quantity_bytes, "1 ", "unit" },
	{ quantity_bytes, "1 Mi", "unit" },
	{ quantity_bytes, "+1", "plain decimal" },
	{ quantity_bytes, "-1", "plain decimal" },
	{ quantity_bytes, "01", "plain decimal" },
	{ quantity_bytes, "0x10", "unit" },
	{ quantity_bytes, "1e3", "unit" },
	{ quantity_bytes, "1E3", "unit" },
	{ quantity_bytes, ".5Gi", "plain decimal" },
	{ quantity_bytes, "1.Gi", "unit" },
	{ quantity_bytes, "1..5Gi", "unit" },
	{ quantity_bytes, "1.5.5Gi", "unit" },
	{ quantity_bytes, "1,5Gi", "unit" },
	{ quantity_bytes, "1.5", "whole" },
	{ quantity_bytes, "0.1Ki", "whole" },
	{ quantity_bytes, "512MB", "unit" },
	{ quantity_bytes, "512mi", "unit" },
	{ quantity_bytes, "512MI", "unit" },
	{ quantity_bytes, "512m", "unit" },
	{ quantity_bytes, "512K", "unit" },
	{ quantity_bytes, "512Mi\n", "unit" },
	{ quantity_bytes, "1Pi", "unit" },
	{ quantity_bytes, "NaN", "plain decimal" },
	{ quantity_bytes, "inf", "plain decimal" },
	{ quantity_bytes, "Mi", "plain decimal" },
	{ quantity_bytes, "18446744073709551616", "too many digits" },
	{ quantity_bytes, "99999999999999999999999999999", "too many digits" },
	{ quantity_bytes, "18446744073709551615Ki", "too large" },
	{ quantity_bytes, "16777216Ti", "too large" },
	{ quantity_bytes, "1.0000000000Gi", "too many digits" },
	{ quantity_bytes, "\xd9\xa1", "plain decimal" }, /* another script's digit */
	{ quantity_cpu, "1.5m", "whole" },
	{ quantity_cpu, "0.0001", "whole" },
	{ quantity_cpu, "1cpu", "number of CPUs" },
	{ quantity_cpu, "100%", "number of CPUs" },
	{ quantity_cpu, "500M", "number of CPUs" },
	{ quantity_ms, "30", "unit of time" },
	{ quantity_ms, "30 s", "unit of time" },
	{ quantity_ms, "30S", "unit of time" },
	{ quantity_ms, "30sec", "unit of time" },
	{ quantity_ms, "1h30m", "unit of time" },
	{ quantity_ms, "1us", "unit of time" },
	{ quantity_ms, "0.5ms", "whole" },
	{ quantity_ms, "-1s", "plain decimal" },
	{ quantity_ms, "18446744073709551615s", "too large" },
};

START_TEST(bad_amounts)
{
	const struct bad *b = &bads[_i];
	const char *why = NULL;
	uint64_t value = 12345;

	ck_assert_msg(!b->parse(b->text, &value, &why), "'%s' passed as %llu", b->text,
		      (unsigned long long)value);
	ck_assert_msg(value == 12345, "'%s' was written", b->text);
	ck_assert_msg(why && strstr(why, b->why), "'%s': %s", b->text, why ? why : "");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("quantity");
	TCase *tc = tcase_create("amounts");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_loop_test(tc, good_amounts, 0, (int)ARRAY_SIZE(goods));
	tcase_add_loop_test(tc, bad_amounts, 0, (int)ARRAY_SIZE(bads));
	suite_add_tcase(s, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
