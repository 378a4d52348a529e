/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the journal has from before: jobs that another front left, at a start; old results, every
 * now and then.
 */
#include <stdio.h>

#include "daemon/front/evidence.h"
#include "daemon/front/log.h"
#include "daemon/front/snapshot.h"
#include "nsbox/util.h"

#define SWEEP_S 60

static int recover_one(struct front *f, const struct journal_row *row, struct nsbox_error *err)
{
	const struct job_ident ident = { .id = row->id,
					 .workspace = row->workspace,
					 .trace_id = row->trace_id,
					 .traceparent = row->traceparent,
					 .key = row->key,
					 .body_sha256 = row->body_sha256,
					 .kind = row->kind,
					 .priority = row->priority,
					 .uid = row->uid,
					 .sync = row->sync,
					 .size = row->size,
					 .created_ms = row->created_ms };
	struct job *j;
	int r = job_new(&f->services, ++f->numbers, &ident, &j, err);

	if (r < 0)
		return r;
	j->recorded = j->told = true;
	front_list_add(f, j);
	f->asked_bytes += j->asked_bytes;
	j->started_unix_ms = row->started_ms;
	if (row->state != JOURNAL_QUEUED || row->sync) {
		job_interrupt(j);
		return 0;
	}
	r = queue_restore(f->queue, j->workspace, j->priority, &j->wait, j);
	return r < 0 ? nsbox_fail(err, NSBOX_E_NOMEM, -r, "queue a job") : 0;
}

struct recovery {
	struct front *f;
	struct nsbox_error *err;
	int r;
};

static void on_row(void *ctx, const struct journal_row *row)
{
	struct recovery *c = ctx;

	if (c->r == 0)
		c->r = recover_one(c->f, row, c->err);
}

int record_recover(struct front *f, struct nsbox_error *err)
{
	struct recovery c = { f, err, 0 };
	char waiting[24], gone[24];
	size_t interrupted = 0;
	int r = f->journal->ops->open_jobs(f->journal, on_row, &c, err);

	if (r < 0 || c.r < 0)
		return MIN(r, c.r);
	for (const struct job *j = f->ended.first; j; j = j->next_ended)
		interrupted++;
	if (f->first) {
		snprintf(waiting, sizeof(waiting), "%zu", queue_length(f->queue));
		snprintf(gone, sizeof(gone), "%zu", interrupted);
		log_line(5, "recovered", "waiting", waiting, "interrupted", gone, NULL);
	}
	record_sweep(f);
	front_soon(f);
	return 0;
}

void record_sweep(struct front *f)
{
	const struct journal_ops *op = f->journal->ops;
	uint64_t now = record_now_ms(), keep = f->opt->keep_s * 1000;
	struct nsbox_error err = { 0 };
	int r = op->begin(f->journal, &err);

	if (r == 0)
		r = op->sweep(f->journal, now - MIN(keep, now), f->opt->keep_mb << 20, &err);
	if (r == 0)
		r = audit_sync(&f->audit, &err);
	if (r == 0)
		r = op->commit(f->journal, &err);
	else
		op->rollback(f->journal);
	if (r < 0)
		log_line(4, "sweep", "err", err.msg, NULL);
	snapshots_sweep(f->snapshots, f->opt->snapshot_keep_s);
	loop_timer_set(f->loop, &f->sweep,
		       MIN(MIN(f->opt->keep_s, f->opt->snapshot_keep_s), (uint64_t)SWEEP_S) *
			       1000000);
}
