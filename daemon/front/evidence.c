/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said of jobs for later. Nothing of what a job is to run, or gave, is in any of it but
 * hashes: code, parameters, environment, files and streams may hold secrets.
 */
#include "daemon/front/evidence.h"

#include <json-c/json.h>
#include <stdio.h>

#include "daemon/common/digest.h"
#include "daemon/front/json_reply.h"
#include "daemon/front/log.h"
#include "nsbox/util.h"

static void put_known(struct json_object *o, const char *key, const char *value)
{
	if (*value)
		json_put_text(o, key, value);
}

int evidence_accept(struct front *f, const struct job *j, struct nsbox_error *err)
{
	struct json_object *o = audit_event(&f->audit, "accept");

	if (!o)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "write to the audit");
	json_put_text(o, "job", j->id);
	json_put_text(o, "kind", job_kind_names[j->kind]);
	json_put_text(o, "workspace", j->workspace);
	if (j->uid != WHO_NO_UID)
		json_put_u64(o, "uid", j->uid);
	json_put(o, "waits", json_object_new_boolean(j->sync));
	put_known(o, "trace_id", j->trace_id);
	put_known(o, "traceparent", j->traceparent);
	json_put_text(o, "request_sha256", j->body_sha256);
	json_put_u64(o, "request_bytes", j->asked_bytes);
	return audit_add(&f->audit, o, err);
}

int evidence_start(struct front *f, const struct job *j, struct nsbox_error *err)
{
	struct json_object *o = audit_event(&f->audit, "start");

	if (!o)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "write to the audit");
	json_put_text(o, "job", j->id);
	return audit_add(&f->audit, o, err);
}

/* A line for each decision of nsbox-egress about a job or session: names, no content. */
static int put_network(struct front *f, const char *key, const char *id, const struct egress_log *l,
		       struct nsbox_error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < l->n_kept; i++) {
		struct json_object *o = audit_event(&f->audit, "network");

		if (!o)
			return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "write to the audit");
		json_put_text(o, key, id);
		json_put(o, "decision", egress_event_json(&l->kept[i]));
		r = audit_add(&f->audit, o, err);
	}
	return r;
}

int evidence_finish(struct front *f, const struct job *j, struct nsbox_error *err)
{
	struct json_object *o;
	char hex[DIGEST_HEX] = "";
	int r = put_network(f, "job", j->id, &j->run->network, err);

	if (r < 0)
		return r;
	o = audit_event(&f->audit, "finish");

	if (!o)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "write to the audit");
	json_put_text(o, "job", j->id);
	json_put_text(o, "cause", job_cause(j));
	json_put(o, "exit_code", json_object_new_int(j->run->res.exit_status));
	put_known(o, "policy_sha256", j->run->policy_sha256);
	if (j->receipt && digest_hex(j->receipt, j->receipt_len, hex, NULL) == 0)
		json_put_text(o, "receipt_sha256", hex);
	return audit_add(&f->audit, o, err);
}

/* Lines in a transaction of their own; put() adds them, or fails. */
static void write_alone(struct front *f,
			int (*put)(struct front *f, const void *arg, struct nsbox_error *err),
			const void *arg, const char *kind, const char *what)
{
	const struct journal_ops *op = f->journal->ops;
	struct nsbox_error err = { 0 };
	int r = op->begin(f->journal, &err);

	if (r == 0) {
		r = put(f, arg, &err);
		if (r == 0)
			r = op->commit(f->journal, &err);
		else
			op->rollback(f->journal);
	}
	if (r == 0)
		r = audit_commit(&f->audit, &err);
	else
		audit_rollback(&f->audit);
	if (r < 0)
		log_line(3, "audit", "event", kind, "what", what, "err", err.msg, NULL);
}

struct note {
	const char *kind, *what, *why;
	uid_t uid;
};

static int put_note(struct front *f, const void *arg, struct nsbox_error *err)
{
	const struct note *n = arg;
	struct json_object *o = audit_event(&f->audit, n->kind);
	char text[256];

	if (!o)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "write to the audit");
	if (n->uid == WHO_NO_UID)
		json_put_text(o, "by", "token");
	else
		json_put_u64(o, "uid", n->uid);
	snprintf(text, sizeof(text), "%.255s", n->what);
	put_known(o, "what", text);
	put_known(o, "why", n->why);
	return audit_add(&f->audit, o, err);
}

void evidence_note(struct front *f, const char *kind, uid_t uid, const char *what, const char *why)
{
	const struct note n = { kind, what, why, uid };

	write_alone(f, put_note, &n, kind, what);
}

struct session_lines {
	const char *session;
	const struct egress_log *log;
};

static int put_session(struct front *f, const void *arg, struct nsbox_error *err)
{
	const struct session_lines *s = arg;

	return put_network(f, "session", s->session, s->log, err);
}

void evidence_session_network(struct front *f, const char *session, const struct egress_log *l)
{
	const struct session_lines s = { session, l };

	if (l->n_kept)
		write_alone(f, put_session, &s, "network", session);
}

/* ------------------------------------------------------------------ numbers */

static const char *decimal(char buf[24], uint64_t v)
{
	snprintf(buf, 24, "%llu", (unsigned long long)v);
	return buf;
}

static void count_denials(struct metrics *m, const struct job *j)
{
	m->counter[METRIC_CALLS_REFUSED] += j->run->res.denied_untold;
	for (uint32_t i = 0; i < j->run->res.denied_calls && i < NSBOX_DENIED_MAX; i++)
		m->counter[METRIC_CALLS_REFUSED] += j->run->res.denied[i].times;
	for (size_t i = 0; i < j->run->network.n_denials; i++)
		m->counter[METRIC_NETWORK_REFUSED] += j->run->network.denials[i].times;
}

/* Commands of a session have no set-up of their own. */
static void count_phases(struct metrics *m, const struct job *j)
{
	const struct nsbox_result *r = &j->run->res;
	const bool made = r->setup_us && j->compiled_us;
	const struct {
		bool there;
		uint64_t us;
	} spent[METRIC_PHASES_MAX] = {
		[METRIC_P_QUEUED] = { true, j->started_us - j->queued_us },
		[METRIC_P_FILES] = { j->staged_us, j->staged_us - j->started_us },
		[METRIC_P_POLICY] = { j->compiled_us, j->compiled_us - j->staged_us },
		[METRIC_P_SETUP] = { made, r->setup_us },
		[METRIC_P_START] = { r->start_us, r->start_us },
		[METRIC_P_PROGRAM] = { r->wall_us, r->wall_us },
		[METRIC_P_OUTPUTS] = { j->exited_us, j->finished_us - j->exited_us },
	};

	for (int p = 0; p < METRIC_PHASES_MAX; p++)
		if (spent[p].there)
			metrics_phase(m, p, spent[p].us);
	for (int i = 0; made && i <= NSBOX_STAGE_READY; i++)
		if (r->stage_us[i])
			metrics_stage(m, i, r->stage_us[i]);
}

void evidence_ended(struct front *f, const struct job *j)
{
	struct metrics *m = &f->metrics;
	char ms[24], status[24];

	for (int c = 0; c < NSBOX_CAUSE_MAX; c++)
		if (nsbox_cause_name(c) == job_cause(j))
			m->cause[c]++;
	metrics_observe(m, METRIC_H_WAIT, j->started_us - j->queued_us);
	metrics_observe(m, METRIC_H_TOTAL, j->finished_us - j->started_us);
	if (j->run->res.setup_us && j->compiled_us)
		metrics_observe(m, METRIC_H_SETUP, j->run->res.setup_us);
	if (j->run->res.wall_us)
		metrics_observe(m, METRIC_H_RUN, j->run->res.wall_us);
	count_phases(m, j);
	count_denials(m, j);
	m->counter[METRIC_WITNESS] += j->run->res.witness_tried != j->run->res.witness_held ||
				      j->run->error.code == NSBOX_E_SANDBOX;
	log_line(6, "job", "id", j->id, "workspace", j->workspace, "cause", job_cause(j), "status",
		 decimal(status, (uint64_t)j->http_status), "ms",
		 decimal(ms, (j->finished_us - j->started_us) / 1000), "trace", j->trace_id,
		 "error", j->run->error.code ? nsbox_error_code_name(j->run->error.code) : "",
		 NULL);
}

char *evidence_metrics(struct front *f, size_t *ret_len)
{
	uint64_t alive = 0;

	for (const struct job *j = f->first; j; j = j->next)
		alive += j->in_spawn && !j->session;
	for (const struct session *s = f->sessions; s; s = s->next)
		alive += s->plan != NULL;
	alive += pool_alive(f->pool);
	const struct metric_gauge gauges[] = {
		{ "nsbox_queue_waiting", "Jobs and calls that wait.", queue_length(f->queue) },
		{ "nsbox_sessions", "Sandboxes that are kept between commands.", f->n_sessions },
		{ "nsbox_queue_max", "How many may wait.", queue_max(f->queue) },
		{ "nsbox_queue_bytes", "Requests of what waits and runs.", f->asked_bytes },
		{ "nsbox_jobs_running", "Jobs and calls that run.", f->running },
		{ "nsbox_runners", "How many may run.", f->runners },
		{ "nsbox_sandboxes_alive", "Sandboxes that are there.", alive },
		{ "nsbox_pool_waiting", "Runs made ahead that wait for a call.",
		  pool_waiting(f->pool) },
		{ "nsbox_journal_trouble", "1 while the journal takes nothing.",
		  f->trouble.code != 0 },
	};

	f->metrics.counter[METRIC_AUDIT] = f->audit.lines;
	return metrics_text(&f->metrics, gauges, ARRAY_SIZE(gauges), ret_len);
}
