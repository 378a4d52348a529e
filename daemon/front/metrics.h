/* SPDX-License-Identifier: Apache-2.0 */
/* What is counted, and its text for Prometheus. */
#ifndef FRONT_METRICS_H
#define FRONT_METRICS_H

#include <nsbox/sandbox.h>
#include <stddef.h>
#include <stdint.h>

/* clang-format off */
#define METRIC_COUNTERS(X)                                                                        \
	X(ACCEPTED, "nsbox_jobs_accepted_total", "Jobs and calls that were taken.")               \
	X(FULL, "nsbox_jobs_refused_full_total", "Requests answered with 429.")                   \
	X(DENIED, "nsbox_requests_denied_total", "Requests answered with 403.")                   \
	X(INVALID, "nsbox_requests_invalid_total", "Requests that could not be understood.")      \
	X(NO_JOURNAL, "nsbox_requests_no_journal_total", "Requests refused because the journal takes nothing.") \
	X(POOLED, "nsbox_pool_taken_total", "Calls that found a run made ahead.")                  \
	X(COMMITS, "nsbox_journal_commits_total", "Transactions of the journal.")                 \
	X(SYNCS, "nsbox_journal_syncs_total", "Times that jobs were held until the disk had them.") \
	X(AUDIT, "nsbox_audit_lines_total", "Lines written to the audit.")                        \
	X(WITNESS, "nsbox_witness_failures_total", "Runs ended because a layer did not hold.")    \
	X(CALLS_REFUSED, "nsbox_denied_calls_total", "System calls that runs were refused.")      \
	X(NETWORK_REFUSED, "nsbox_denied_network_total", "Connections and names that runs were refused.")

#define METRIC_HISTOGRAMS(X)                                                                      \
	X(WAIT, "nsbox_queue_wait_seconds", "From being taken to its start.")                     \
	X(SETUP, "nsbox_sandbox_setup_seconds", "Making a sandbox.")                              \
	X(RUN, "nsbox_run_seconds", "The program itself.")                                        \
	X(TOTAL, "nsbox_job_seconds", "From its start to its end, files included.")

/* Of one job, one after the other; what a job had no part of is not counted. */
#define METRIC_PHASES(X)                                                                          \
	X(QUEUED, "queued")   /* until its turn */                                                \
	X(FILES, "files")     /* its files are made into a stream */                              \
	X(POLICY, "policy")   /* manifest and limits become a plan, or the plan is there */       \
	X(SETUP, "setup")     /* the sandbox, until its init is ready */                          \
	X(START, "start")     /* until the program runs, witness included */                      \
	X(PROGRAM, "program")                                                                     \
	X(OUTPUTS, "outputs") /* what it left is collected, and told */

enum metric_counter {
#define X(sym, name, help) METRIC_##sym,
	METRIC_COUNTERS(X)
#undef X
	METRIC_COUNTERS_MAX
};

enum metric_phase {
#define X(sym, name) METRIC_P_##sym,
	METRIC_PHASES(X)
#undef X
	METRIC_PHASES_MAX
};

enum metric_histogram {
#define X(sym, name, help) METRIC_H_##sym,
	METRIC_HISTOGRAMS(X)
#undef X
	METRIC_HISTOGRAMS_MAX
};
/* clang-format on */

#define METRIC_BUCKETS 13

struct metric_times {
	uint64_t bucket[METRIC_BUCKETS + 1], sum_us; /* the last: beyond all */
};

struct metrics {
	uint64_t counter[METRIC_COUNTERS_MAX];
	struct metric_times histogram[METRIC_HISTOGRAMS_MAX], phase[METRIC_PHASES_MAX];
	struct {
		uint64_t count, sum_us;
	} stage[NSBOX_STAGE_READY + 1]; /* of set-ups, by enum nsbox_stage */
	uint64_t cause[NSBOX_CAUSE_MAX];
};

/* What is looked up when it is asked for. */
struct metric_gauge {
	const char *name, *help;
	uint64_t value;
};

void metrics_observe(struct metrics *m, enum metric_histogram h, uint64_t us);
void metrics_phase(struct metrics *m, enum metric_phase p, uint64_t us);
void metrics_stage(struct metrics *m, int stage, uint64_t us);
/* malloc'd; NULL without memory. */
char *metrics_text(const struct metrics *m, const struct metric_gauge *gauges, size_t n,
		   size_t *ret_len);

#endif
