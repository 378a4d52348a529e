/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/front/metrics.h"

#include <inttypes.h>
#include <stdio.h>

#include "nsbox/util.h"

static const struct {
	uint64_t us;
	const char *le;
} buckets[METRIC_BUCKETS] = {
	{ 1000, "0.001" },    { 5000, "0.005" }, { 10000, "0.01" },  { 25000, "0.025" },
	{ 50000, "0.05" },    { 100000, "0.1" }, { 250000, "0.25" }, { 500000, "0.5" },
	{ 1000000, "1" },     { 5000000, "5" },	 { 30000000, "30" }, { 120000000, "120" },
	{ 600000000, "600" },
};

static const struct {
	const char *name, *help;
} counters[] = {
#define X(sym, name, help) { name, help },
	METRIC_COUNTERS(X)
#undef X
}, histograms[] = {
#define X(sym, name, help) { name, help },
	METRIC_HISTOGRAMS(X)
#undef X
};

void metrics_observe(struct metrics *m, enum metric_histogram h, uint64_t us)
{
	size_t i = 0;

	while (i < METRIC_BUCKETS && us > buckets[i].us)
		i++;
	m->histogram[h].bucket[i]++;
	m->histogram[h].sum_us += us;
}

static void head(FILE *f, const char *name, const char *help, const char *type)
{
	fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_histogram(FILE *f, const struct metrics *m, size_t h)
{
	const char *name = histograms[h].name;
	uint64_t n = 0;

	head(f, name, histograms[h].help, "histogram");
	for (size_t i = 0; i < METRIC_BUCKETS; i++) {
		n += m->histogram[h].bucket[i];
		fprintf(f, "%s_bucket{le=\"%s\"} %" PRIu64 "\n", name, buckets[i].le, n);
	}
	n += m->histogram[h].bucket[METRIC_BUCKETS];
	fprintf(f, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, n);
	fprintf(f, "%s_sum %" PRIu64 ".%06" PRIu64 "\n", name, m->histogram[h].sum_us / 1000000,
		m->histogram[h].sum_us % 1000000);
	fprintf(f, "%s_count %" PRIu64 "\n", name, n);
}

static void put_causes(FILE *f, const struct metrics *m)
{
	static const char name[] = "nsbox_jobs_ended_total";

	head(f, name, "Jobs and calls that ended, by cause.", "counter");
	for (int c = 0; c < NSBOX_CAUSE_MAX; c++)
		fprintf(f, "%s{cause=\"%s\"} %" PRIu64 "\n", name, nsbox_cause_name(c),
			m->cause[c]);
}

char *metrics_text(const struct metrics *m, const struct metric_gauge *gauges, size_t n,
		   size_t *ret_len)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, ret_len);

	if (!f)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		head(f, gauges[i].name, gauges[i].help, "gauge");
		fprintf(f, "%s %" PRIu64 "\n", gauges[i].name, gauges[i].value);
	}
	for (size_t i = 0; i < METRIC_COUNTERS_MAX; i++) {
		head(f, counters[i].name, counters[i].help, "counter");
		fprintf(f, "%s %" PRIu64 "\n", counters[i].name, m->counter[i]);
	}
	put_causes(f, m);
	for (size_t i = 0; i < METRIC_HISTOGRAMS_MAX; i++)
		put_histogram(f, m, i);
	if (fclose(f) != 0)
		free_ptr(&text);
	return text;
}
