/* SPDX-License-Identifier: Apache-2.0 */
/* A rollback is a copy of the whole state put back: slow, and obviously right. */
#include "tests/support/journal_ram.h"

#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"

#define JOBS_MAX  64
#define LINES_MAX 64
#define OWNED_MAX 1024
#define TOOLS_MAX 8

struct bytes {
	char *data;
	size_t len;
};

struct entry {
	char id[64], workspace[132], trace_id[260], traceparent[64], key[600], sha[65], cause[32];
	struct journal_row row; /* its strings are made to point here when it is shown */
	struct bytes parts[3];	/* enum journal_part */
};

struct state {
	struct entry jobs[JOBS_MAX];
	size_t n;
	struct journal_chain chain;
	struct {
		uint64_t seq;
		struct bytes text;
	} lines[LINES_MAX];
	size_t n_lines, bytes;
	struct {
		char id[132], workspace[132];
		uid_t uid;
		struct bytes record;
	} tools[TOOLS_MAX];
	size_t n_tools;
};

struct ram_journal {
	struct journal base;
	struct state now, before;
	bool open;
	size_t max_bytes;
	char *owned[OWNED_MAX]; /* all that was ever kept: the two states share it */
	size_t n_owned;
};

static struct ram_journal *self(struct journal *j)
{
	return (struct ram_journal *)j;
}

static struct bytes copy(const void *data, size_t len)
{
	struct bytes b = { malloc(len + 1), len };

	if (!b.data)
		abort();
	if (len)
		memcpy(b.data, data, len);
	b.data[len] = 0;
	return b;
}

/* Freed with the journal. */
static struct bytes keep(struct ram_journal *m, const void *data, size_t len)
{
	struct bytes b = copy(data, len);

	if (m->n_owned == OWNED_MAX)
		abort();
	m->owned[m->n_owned++] = b.data;
	return b;
}

static int room(struct ram_journal *m, size_t n, struct nsbox_error *err)
{
	if (m->max_bytes && m->now.bytes + n > m->max_bytes) {
		nsbox_fail(err, NSBOX_E_IO, ENOSPC, "journal");
		return -ENOSPC;
	}
	m->now.bytes += n;
	return 0;
}

static int refuse(int why, struct nsbox_error *err)
{
	nsbox_fail(err, NSBOX_E_INVALID, -why, "journal");
	return why;
}

static struct entry *entry_of(struct ram_journal *m, const char *id)
{
	for (size_t i = 0; i < m->now.n; i++)
		if (strcmp(m->now.jobs[i].id, id) == 0)
			return &m->now.jobs[i];
	return NULL;
}

static int op_begin(struct journal *j, struct nsbox_error *err)
{
	self(j)->before = self(j)->now;
	self(j)->open = true;
	return 0;
}

static int op_commit(struct journal *j, struct nsbox_error *err)
{
	if (!self(j)->open)
		return refuse(-EINVAL, err);
	self(j)->open = false;
	return 0;
}

static int op_sync(struct journal *j, struct nsbox_error *err)
{
	return 0;
}

static void op_rollback(struct journal *j)
{
	if (self(j)->open)
		self(j)->now = self(j)->before;
	self(j)->open = false;
}

static int op_add(struct journal *j, const struct journal_row *row, const void *body, size_t len,
		  struct nsbox_error *err)
{
	struct ram_journal *m = self(j);
	struct entry *e = &m->now.jobs[m->now.n];

	for (size_t i = 0; i < m->now.n; i++) {
		const struct entry *o = &m->now.jobs[i];

		if (strcmp(o->id, row->id) == 0 || (*row->key && strcmp(o->key, row->key) == 0 &&
						    strcmp(o->workspace, row->workspace) == 0))
			return refuse(-EEXIST, err);
	}
	if (m->now.n == JOBS_MAX || room(m, body ? len : 0, err) < 0)
		return -ENOSPC;
	memset(e, 0, sizeof(*e));
	e->row = *row;
	snprintf(e->id, sizeof(e->id), "%s", row->id);
	snprintf(e->workspace, sizeof(e->workspace), "%s", row->workspace);
	snprintf(e->trace_id, sizeof(e->trace_id), "%s", row->trace_id);
	snprintf(e->traceparent, sizeof(e->traceparent), "%s", row->traceparent);
	snprintf(e->key, sizeof(e->key), "%s", row->key);
	snprintf(e->sha, sizeof(e->sha), "%s", row->body_sha256);
	if (body)
		e->parts[JOURNAL_REQUEST] = keep(m, body, len);
	m->now.n++;
	return 0;
}

static int op_take(struct journal *j, const char *id, uint64_t now_ms, struct nsbox_error *err)
{
	struct entry *e = entry_of(self(j), id);

	if (!e || e->row.state != JOURNAL_QUEUED)
		return refuse(-ENOENT, err);
	e->row.state = JOURNAL_RUNNING;
	e->row.started_ms = now_ms;
	return 0;
}

static int op_give_back(struct journal *j, const char *id, struct nsbox_error *err)
{
	struct entry *e = entry_of(self(j), id);

	if (!e || e->row.state != JOURNAL_RUNNING)
		return refuse(-ENOENT, err);
	e->row.state = JOURNAL_QUEUED;
	e->row.started_ms = 0;
	return 0;
}

static int op_done(struct journal *j, const char *id, const struct journal_end *end,
		   struct nsbox_error *err)
{
	struct ram_journal *m = self(j);
	struct entry *e = entry_of(m, id);

	if (!e || e->row.state == JOURNAL_FINISHED)
		return refuse(-ENOENT, err);
	if (room(m, end->reply_len + end->receipt_len, err) < 0)
		return -ENOSPC;
	m->now.bytes -= e->parts[JOURNAL_REQUEST].len;
	e->parts[JOURNAL_REQUEST] = (struct bytes){ 0 };
	if (end->reply)
		e->parts[JOURNAL_REPLY] = keep(m, end->reply, end->reply_len);
	if (end->receipt)
		e->parts[JOURNAL_RECEIPT] = keep(m, end->receipt, end->receipt_len);
	e->row.state = JOURNAL_FINISHED;
	e->row.finished_ms = end->finished_ms;
	e->row.status = end->status;
	snprintf(e->cause, sizeof(e->cause), "%s", end->cause);
	return 0;
}

static int op_audit(struct journal *j, const struct journal_chain *c, const char *line, size_t len,
		    struct nsbox_error *err)
{
	struct ram_journal *m = self(j);

	if (m->now.n_lines == LINES_MAX || room(m, len, err) < 0)
		return -ENOSPC;
	m->now.lines[m->now.n_lines].seq = c->seq;
	m->now.lines[m->now.n_lines++].text = keep(m, line, len);
	m->now.chain = *c;
	return 0;
}

static int op_audit_drop(struct journal *j, uint64_t seq, struct nsbox_error *err)
{
	struct state *s = &self(j)->now;
	size_t n = 0;

	for (size_t i = 0; i < s->n_lines; i++)
		if (s->lines[i].seq > seq)
			s->lines[n++] = s->lines[i];
	s->n_lines = n;
	return 0;
}

static size_t cost(const struct entry *e)
{
	return e->parts[JOURNAL_REPLY].len + e->parts[JOURNAL_RECEIPT].len + 512;
}

static int op_sweep(struct journal *j, uint64_t before_ms, uint64_t max_bytes,
		    struct nsbox_error *err)
{
	struct state *s = &self(j)->now;
	bool drop[JOBS_MAX] = { 0 };
	size_t n = 0, total = 0;

	for (size_t i = s->n; i-- > 0;) {
		if (s->jobs[i].row.state != JOURNAL_FINISHED)
			continue;
		drop[i] = s->jobs[i].row.finished_ms < before_ms;
		if (!drop[i]) {
			total += cost(&s->jobs[i]);
			drop[i] = total > max_bytes;
		}
	}
	for (size_t i = 0; i < s->n; i++)
		if (!drop[i])
			s->jobs[n++] = s->jobs[i];
	s->n = n;
	return 0;
}

static void show(struct entry *e, journal_row_fn *fn, void *ctx)
{
	struct journal_row row = e->row;

	row.id = e->id;
	row.workspace = e->workspace;
	row.trace_id = e->trace_id;
	row.traceparent = e->traceparent;
	row.key = e->key;
	row.body_sha256 = e->sha;
	row.cause = e->cause;
	fn(ctx, &row);
}

static int op_find(struct journal *j, const char *id, journal_row_fn *fn, void *ctx,
		   struct nsbox_error *err)
{
	struct entry *e = entry_of(self(j), id);

	if (e)
		show(e, fn, ctx);
	return e != NULL;
}

static int op_find_key(struct journal *j, const char *workspace, const char *key,
		       journal_row_fn *fn, void *ctx, struct nsbox_error *err)
{
	struct state *s = &self(j)->now;

	for (size_t i = 0; i < s->n; i++) {
		if (strcmp(s->jobs[i].workspace, workspace) != 0 ||
		    strcmp(s->jobs[i].key, key) != 0)
			continue;
		show(&s->jobs[i], fn, ctx);
		return 1;
	}
	return 0;
}

static int op_read(struct journal *j, const char *id, enum journal_part part, char **ret,
		   size_t *ret_len, struct nsbox_error *err)
{
	struct entry *e = entry_of(self(j), id);

	if (!e || !e->parts[part].data)
		return 0;
	*ret = copy(e->parts[part].data, e->parts[part].len).data;
	*ret_len = e->parts[part].len;
	return 1;
}

static int op_open_jobs(struct journal *j, journal_row_fn *fn, void *ctx, struct nsbox_error *err)
{
	struct state *s = &self(j)->now;

	for (size_t i = 0; i < s->n; i++)
		if (s->jobs[i].row.state != JOURNAL_FINISHED)
			show(&s->jobs[i], fn, ctx);
	return 0;
}

static int op_ended_jobs(struct journal *j, unsigned max, journal_row_fn *fn, void *ctx,
			 struct nsbox_error *err)
{
	struct state *s = &self(j)->now;

	for (size_t i = s->n; i-- > 0 && max > 0;) {
		if (s->jobs[i].row.state != JOURNAL_FINISHED)
			continue;
		show(&s->jobs[i], fn, ctx);
		max--;
	}
	return 0;
}

static int op_audit_state(struct journal *j, struct journal_chain *ret, journal_line_fn *fn,
			  void *ctx, struct nsbox_error *err)
{
	struct state *s = &self(j)->now;

	*ret = s->chain;
	for (size_t i = 0; i < s->n_lines; i++)
		fn(ctx, s->lines[i].seq, s->lines[i].text.data, s->lines[i].text.len);
	return 0;
}

static int op_tool_drop(struct journal *j, const char *id, struct nsbox_error *err)
{
	struct state *s = &self(j)->now;

	for (size_t i = 0; i < s->n_tools; i++)
		if (strcmp(s->tools[i].id, id) == 0) {
			memmove(&s->tools[i], &s->tools[i + 1],
				(s->n_tools - i - 1) * sizeof(s->tools[0]));
			s->n_tools--;
			break;
		}
	return 0;
}

static int op_tool_put(struct journal *j, const struct journal_tool *row, struct nsbox_error *err)
{
	struct ram_journal *m = self(j);
	struct state *s = &m->now;
	size_t at = 0;

	op_tool_drop(j, row->id, err);
	if (s->n_tools == TOOLS_MAX || m->n_owned == OWNED_MAX)
		return nsbox_fail(err, NSBOX_E_IO, ENOSPC, "journal: keep a tool");
	while (at < s->n_tools && strcmp(s->tools[at].id, row->id) < 0)
		at++;
	memmove(&s->tools[at + 1], &s->tools[at], (s->n_tools - at) * sizeof(s->tools[0]));
	s->n_tools++;
	snprintf(s->tools[at].id, sizeof(s->tools[at].id), "%s", row->id);
	snprintf(s->tools[at].workspace, sizeof(s->tools[at].workspace), "%s", row->workspace);
	s->tools[at].uid = row->uid;
	s->tools[at].record = copy(row->record, strlen(row->record));
	m->owned[m->n_owned++] = s->tools[at].record.data;
	return 0;
}

static int op_tools(struct journal *j, journal_tool_fn *fn, void *ctx, struct nsbox_error *err)
{
	struct state *s = &self(j)->now;

	for (size_t i = 0; i < s->n_tools; i++) {
		const struct journal_tool row = { .id = s->tools[i].id,
						  .workspace = s->tools[i].workspace,
						  .uid = s->tools[i].uid,
						  .record = s->tools[i].record.data };

		fn(ctx, &row);
	}
	return 0;
}

static void op_free(struct journal *j)
{
	struct ram_journal *m = self(j);

	for (size_t i = 0; i < m->n_owned; i++)
		free(m->owned[i]);
	free(m);
}

static const struct journal_ops ram_ops = {
	.begin = op_begin,
	.sync = op_sync,
	.commit = op_commit,
	.rollback = op_rollback,
	.add = op_add,
	.take = op_take,
	.give_back = op_give_back,
	.done = op_done,
	.audit = op_audit,
	.audit_drop = op_audit_drop,
	.sweep = op_sweep,
	.find = op_find,
	.find_key = op_find_key,
	.read = op_read,
	.open_jobs = op_open_jobs,
	.ended_jobs = op_ended_jobs,
	.audit_state = op_audit_state,
	.tool_put = op_tool_put,
	.tool_drop = op_tool_drop,
	.tools = op_tools,
	.free = op_free,
};

int journal_ram_open(size_t max_bytes, struct journal **ret, struct nsbox_error *err)
{
	struct ram_journal *m = calloc(1, sizeof(*m));

	if (!m)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "journal");
	m->base.ops = &ram_ops;
	m->max_bytes = max_bytes;
	memset(m->now.chain.hash, '0', 64);
	*ret = &m->base;
	return 0;
}
