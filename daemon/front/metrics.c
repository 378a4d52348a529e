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

static const char *const phases[] = {
#define X(sym, name) name,
	METRIC_PHASES(X)
#undef X
};

static void observe(struct metric_times *t, uint64_t us)
{
	size_t i = 0;

	while (i < METRIC_BUCKETS && us > buckets[i].us)
		i++;
	t->bucket[i]++;
	t->sum_us += us;
}

void metrics_observe(struct metrics *m, enum metric_histogram h, uint64_t us)
{
	observe(&m->histogram[h], us);
}

void metrics_phase(struct metrics *m, enum metric_phase p, uint64_t us)
{
	observe(&m->phase[p], us);
}

void metrics_stage(struct metrics *m, int stage, uint64_t us)
{
	m->stage[stage].count++;
	m->stage[stage].sum_us += us;
}

static void head(FILE *f, const char *name, const char *help, const char *type)
{
	fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_seconds(FILE *f, uint64_t us)
{
	fprintf(f, "%" PRIu64 ".%06" PRIu64 "\n", us / 1000000, us % 1000000);
}

/* phase: its label, or NULL. */
static void put_times(FILE *f, const char *name, const char *phase, const struct metric_times *t)
{
	char label[40] = "";
	uint64_t n = 0;

	if (phase)
		snprintf(label, sizeof(label), "phase=\"%s\"", phase);
	for (size_t i = 0; i <= METRIC_BUCKETS; i++) {
		n += t->bucket[i];
		fprintf(f, "%s_bucket{%s%sle=\"%s\"} %" PRIu64 "\n", name, label, phase ? "," : "",
			i < METRIC_BUCKETS ? buckets[i].le : "+Inf", n);
	}
	if (phase)
		snprintf(label, sizeof(label), "{phase=\"%s\"}", phase);
	fprintf(f, "%s_sum%s ", name, label);
	put_seconds(f, t->sum_us);
	fprintf(f, "%s_count%s %" PRIu64 "\n", name, label, n);
}

static void put_phases(FILE *f, const struct metrics *m)
{
	static const char name[] = "nsbox_job_phase_seconds";

	head(f, name, "What jobs spent their time with.", "histogram");
	for (size_t i = 0; i < METRIC_PHASES_MAX; i++)
		put_times(f, name, phases[i], &m->phase[i]);
}

static void put_stages(FILE *f, const struct metrics *m)
{
	static const char name[] = "nsbox_setup_stage_seconds";

	head(f, name, "Stages of making sandboxes.", "summary");
	for (int i = NSBOX_STAGE_NONE + 1; i <= NSBOX_STAGE_READY; i++) {
		if (!m->stage[i].count)
			continue;
		fprintf(f, "%s_sum{stage=\"%s\"} ", name, nsbox_stage_name(i));
		put_seconds(f, m->stage[i].sum_us);
		fprintf(f, "%s_count{stage=\"%s\"} %" PRIu64 "\n", name, nsbox_stage_name(i),
			m->stage[i].count);
	}
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
	for (size_t i = 0; i < METRIC_HISTOGRAMS_MAX; i++) {
		head(f, histograms[i].name, histograms[i].help, "histogram");
		put_times(f, histograms[i].name, NULL, &m->histogram[i]);
	}
	put_phases(f, m);
	put_stages(f, m);
	if (fclose(f) != 0)
		free_ptr(&text);
	return text;
}
