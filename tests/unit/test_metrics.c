/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers: buckets and their sums, and the form that Prometheus reads. */
#include <check.h>
#include <string.h>

#include "daemon/front/metrics.c" /* NOLINT(bugprone-suspicious-include): not in a library */

static struct metrics m;

static char *text(void)
{
	static const struct metric_gauge gauges[] = { { "nsbox_queue_waiting", "Waiting.", 7 } };
	size_t len = 0;
	char *s;

	s = metrics_text(&m, gauges, 1, &len);
	ck_assert_ptr_nonnull(s);
	ck_assert_uint_eq(strlen(s), len);
	return s;
}

static void has(const char *s, const char *line)
{
	ck_assert_msg(strstr(s, line) != NULL, "'%s' is missing in\n%s", line, s);
}

START_TEST(test_histogram)
{
	auto_free char *s = NULL;

	memset(&m, 0, sizeof(m));
	metrics_observe(&m, METRIC_H_RUN, 0);
	metrics_observe(&m, METRIC_H_RUN, 1000); /* a bound belongs to its bucket */
	metrics_observe(&m, METRIC_H_RUN, 1001);
	metrics_observe(&m, METRIC_H_RUN, UINT64_C(700) * 1000000);
	s = text();
	has(s, "# TYPE nsbox_run_seconds histogram\n");
	has(s, "nsbox_run_seconds_bucket{le=\"0.001\"} 2\n");
	has(s, "nsbox_run_seconds_bucket{le=\"0.005\"} 3\n");
	has(s, "nsbox_run_seconds_bucket{le=\"600\"} 3\n");
	has(s, "nsbox_run_seconds_bucket{le=\"+Inf\"} 4\n");
	has(s, "nsbox_run_seconds_sum 700.002001\n");
	has(s, "nsbox_run_seconds_count 4\n");
}
END_TEST

START_TEST(test_phases)
{
	auto_free char *s = NULL;

	memset(&m, 0, sizeof(m));
	metrics_phase(&m, METRIC_P_SETUP, 20000);
	metrics_phase(&m, METRIC_P_SETUP, 30000);
	metrics_stage(&m, NSBOX_STAGE_OVERLAY, 700);
	s = text();
	has(s, "# TYPE nsbox_job_phase_seconds histogram\n");
	has(s, "nsbox_job_phase_seconds_bucket{phase=\"setup\",le=\"0.025\"} 1\n");
	has(s, "nsbox_job_phase_seconds_bucket{phase=\"setup\",le=\"+Inf\"} 2\n");
	has(s, "nsbox_job_phase_seconds_sum{phase=\"setup\"} 0.050000\n");
	has(s, "nsbox_job_phase_seconds_count{phase=\"program\"} 0\n");
	has(s, "# TYPE nsbox_setup_stage_seconds summary\n");
	has(s, "nsbox_setup_stage_seconds_sum{stage=\"overlay\"} 0.000700\n");
	has(s, "nsbox_setup_stage_seconds_count{stage=\"overlay\"} 1\n");
	ck_assert_ptr_null(strstr(s, "stage=\"pivot\""));
}
END_TEST

START_TEST(test_names)
{
	auto_free char *s = NULL;

	memset(&m, 0, sizeof(m));
	m.counter[METRIC_FULL] = 3;
	m.cause[NSBOX_CAUSE_MEMORY] = 2;
	s = text();
	has(s, "# HELP nsbox_queue_waiting Waiting.\n# TYPE nsbox_queue_waiting gauge\n"
	       "nsbox_queue_waiting 7\n");
	has(s, "nsbox_jobs_refused_full_total 3\n");
	has(s, "nsbox_jobs_ended_total{cause=\"memory\"} 2\n");
	has(s, "nsbox_jobs_ended_total{cause=\"exit\"} 0\n");
}
END_TEST

START_TEST(test_buckets_rise)
{
	for (size_t i = 1; i < METRIC_BUCKETS; i++)
		ck_assert_uint_gt(buckets[i].us, buckets[i - 1].us);
	for (size_t i = 0; i < METRIC_BUCKETS; i++)
		ck_assert_double_eq_tol(strtod(buckets[i].le, NULL), (double)buckets[i].us / 1e6,
					1e-9);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("metrics");
	TCase *tc = tcase_create("metrics");
	SRunner *sr = srunner_create(s);
	int failed;

	suite_add_tcase(s, tc);
	tcase_add_test(tc, test_histogram);
	tcase_add_test(tc, test_phases);
	tcase_add_test(tc, test_names);
	tcase_add_test(tc, test_buckets_rise);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
