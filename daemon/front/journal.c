/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal as a SQLite file. The journal_*.c alone know SQLite: here is how it is opened, written
 * and migrated, in journal_ask.c what is asked of it, in journal_tools.c the table of tools.
 *
 * Write-ahead log, one connection that holds the file exclusively (so no shared memory is needed,
 * and a second service on the same directory is told). A commit appends to the log and does not
 * wait for the disk (synchronous=NORMAL): it survives the death of any process, but not that of the
 * machine. After an fdatasync of the log, by op_sync(), it does: the log is one file as long as it
 * is open, and what it holds counts up to the last frame that is whole. SQLite itself syncs log and
 * file when it moves the one into the other, once in a thousand pages.
 *
 * Requests and results have tables of their own, so that a change of state does not write them
 * again. Deleted content is overwritten (secure_delete): a request may hold secrets.
 *
 * The schema's version is in user_version. Each step of `steps` leads from one version to the
 * next; steps that were released never change.
 */
#include "daemon/front/journal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/front/journal_sqlite.h"
#include "nsbox/util.h"

/* How long a start waits for the journal: 2.5 s. */
#define BUSY_ROUNDS   25
#define BUSY_PAUSE_NS 100000000

#define COLUMNS                                                                                    \
	"id, workspace, trace_id, traceparent, coalesce(key, ''), body_sha256, kind, priority, "   \
	"state, sync, uid, size, created_ms, started_ms, finished_ms, status, cause"

static const char *const texts[S_MAX] = {
	[S_ADD] = "INSERT INTO job(id, workspace, trace_id, traceparent, key, body_sha256, kind,"
		  " priority, state, sync, uid, size, created_ms)"
		  " VALUES(?1,?2,?3,?4,nullif(?5,''),?6,?7,?8,?9,?10,?11,?12,?13)",
	[S_ADD_REQUEST] = "INSERT INTO request(seq, body) VALUES(last_insert_rowid(), ?1)",
	[S_TAKE] = "UPDATE job SET state = 1, started_ms = ?2 WHERE id = ?1 AND state = 0",
	[S_GIVE_BACK] = "UPDATE job SET state = 0, started_ms = 0 WHERE id = ?1 AND state = 1",
	[S_DONE] = "UPDATE job SET state = 2, finished_ms = ?2, status = ?3, cause = ?4"
		   " WHERE id = ?1 AND state < 2",
	[S_DROP_REQUEST] = "DELETE FROM request WHERE seq = (SELECT seq FROM job WHERE id = ?1)",
	[S_ADD_RESULT] = "INSERT INTO result(seq, reply, receipt)"
			 " SELECT seq, ?2, ?3 FROM job WHERE id = ?1",
	[S_FIND] = "SELECT " COLUMNS " FROM job WHERE id = ?1",
	[S_FIND_KEY] = "SELECT " COLUMNS " FROM job WHERE workspace = ?1 AND key = ?2",
	[S_OPEN] = "SELECT " COLUMNS " FROM job WHERE state < 2 ORDER BY seq",
	[S_ENDED] = "SELECT " COLUMNS " FROM job WHERE state = 2 ORDER BY seq DESC LIMIT ?1",
	[S_REQUEST] = "SELECT body FROM request JOIN job USING(seq) WHERE id = ?1",
	[S_REPLY] = "SELECT reply FROM result JOIN job USING(seq) WHERE id = ?1",
	[S_RECEIPT] = "SELECT receipt FROM result JOIN job USING(seq) WHERE id = ?1",
	[S_AUDIT] = "INSERT INTO audit(seq, line) VALUES(?1, ?2)",
	[S_CHAIN] = "UPDATE chain SET seq = ?1, hash = ?2",
	[S_AUDIT_DROP] = "DELETE FROM audit WHERE seq <= ?1",
	[S_AUDIT_LINES] = "SELECT seq, line FROM audit ORDER BY seq",
	[S_AUDIT_STATE] = "SELECT seq, hash FROM chain",
	[S_SWEEP_AGE] = "DELETE FROM job WHERE state = 2 AND finished_ms < ?1",
	/* The newest first, as long as their sum fits. */
	[S_SWEEP_SIZE] =
		"DELETE FROM job WHERE state = 2 AND seq <= (SELECT seq FROM (SELECT seq, sum("
		"length(coalesce(reply, '')) + length(coalesce(receipt, '')) + 512)"
		" OVER (ORDER BY seq DESC) AS total FROM result) WHERE total > ?1 LIMIT 1)",
	[S_SWEEP_ORPHANS] = "DELETE FROM result WHERE seq NOT IN (SELECT seq FROM job)",
	[S_TOOL_PUT] =
		"INSERT OR REPLACE INTO tool(id, workspace, uid, record) VALUES(?1,?2,?3,?4)",
	[S_TOOL_DROP] = "DELETE FROM tool WHERE id = ?1",
	[S_TOOLS] = "SELECT id, workspace, uid, record FROM tool ORDER BY id",
};

static const char *const steps[] = {
	/* 1: jobs, their requests and results */
	"CREATE TABLE job("
	" seq INTEGER PRIMARY KEY AUTOINCREMENT,"
	" id TEXT NOT NULL UNIQUE,"
	" workspace TEXT NOT NULL, trace_id TEXT NOT NULL, key TEXT, body_sha256 TEXT NOT NULL,"
	" kind INTEGER NOT NULL, priority INTEGER NOT NULL, state INTEGER NOT NULL,"
	" sync INTEGER NOT NULL, uid INTEGER NOT NULL, size INTEGER NOT NULL,"
	" created_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL DEFAULT 0,"
	" finished_ms INTEGER NOT NULL DEFAULT 0, status INTEGER NOT NULL DEFAULT 0,"
	" cause TEXT NOT NULL DEFAULT '') STRICT;"
	"CREATE UNIQUE INDEX job_key ON job(workspace, key) WHERE key IS NOT NULL;"
	"CREATE INDEX job_open ON job(seq) WHERE state < 2;"
	"CREATE INDEX job_ended ON job(finished_ms) WHERE state = 2;"
	"CREATE TABLE request(seq INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;"
	"CREATE TABLE result(seq INTEGER PRIMARY KEY, reply BLOB) STRICT;",
	/* 2: evidence: receipts, and lines of the audit until they are safe in its file */
	"ALTER TABLE job ADD COLUMN traceparent TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE result ADD COLUMN receipt BLOB;"
	"CREATE TABLE audit(seq INTEGER PRIMARY KEY, line BLOB NOT NULL) STRICT;"
	"CREATE TABLE chain(seq INTEGER NOT NULL, hash TEXT NOT NULL) STRICT;"
	"INSERT INTO chain VALUES(0, "
	"'0000000000000000000000000000000000000000000000000000000000000000');",
	/* 3: registered tools */
	"CREATE TABLE tool(id TEXT PRIMARY KEY, workspace TEXT NOT NULL, uid INTEGER NOT NULL,"
	" record TEXT NOT NULL) STRICT;",
};

/* ------------------------------------------------------------------ errors and statements */

int journal_failed(struct sqlite_journal *s, const char *what, struct nsbox_error *err)
{
	int code = sqlite3_errcode(s->db), sys = sqlite3_system_errno(s->db);
	bool full = code == SQLITE_FULL || ((code & 0xff) == SQLITE_IOERR &&
					    (sys == ENOSPC || sys == EDQUOT || sys == EFBIG));

	if ((code & 0xff) == SQLITE_CONSTRAINT) {
		nsbox_fail(err, NSBOX_E_INVALID, EEXIST, "journal: %s", what);
		return -EEXIST;
	}
	if (full) {
		nsbox_fail(err, NSBOX_E_IO, ENOSPC, "journal: %s", what);
		return -ENOSPC;
	}
	nsbox_fail(err, NSBOX_E_IO, 0, "journal: %s: %s", what, sqlite3_errmsg(s->db));
	return -EIO;
}

static int run_sql(struct sqlite_journal *s, const char *sql, struct nsbox_error *err)
{
	return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK
		       ? 0
		       : journal_failed(s, sql, err);
}

/* Compiled once. Text and blobs are bound without a copy: they outlive the step. */
sqlite3_stmt *journal_statement(struct sqlite_journal *s, enum journal_statement which)
{
	if (!s->st[which])
		sqlite3_prepare_v3(s->db, texts[which], -1, SQLITE_PREPARE_PERSISTENT,
				   &s->st[which], NULL);
	return s->st[which];
}

void journal_bind_text(sqlite3_stmt *st, int at, const char *s)
{
	sqlite3_bind_text(st, at, s ? s : "", -1, SQLITE_STATIC);
}

void journal_bind_u64(sqlite3_stmt *st, int at, uint64_t v)
{
	sqlite3_bind_int64(st, at, (sqlite3_int64)v);
}

static void bind_bytes(sqlite3_stmt *st, int at, const void *data, size_t len)
{
	if (data)
		sqlite3_bind_blob64(st, at, len ? data : "", len, SQLITE_STATIC);
	else
		sqlite3_bind_null(st, at);
}

void journal_release(sqlite3_stmt *st)
{
	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
}

int journal_step(struct sqlite_journal *s, sqlite3_stmt *st, const char *what,
		 struct nsbox_error *err)
{
	int r = st && sqlite3_step(st) == SQLITE_DONE ? 0 : journal_failed(s, what, err);

	if (st)
		journal_release(st);
	return r;
}

/* The same, and it has to have changed one row. */
static int step_one(struct sqlite_journal *s, sqlite3_stmt *st, const char *what,
		    struct nsbox_error *err)
{
	int r = journal_step(s, st, what, err);

	if (r == 0 && sqlite3_changes(s->db) != 1) {
		nsbox_fail(err, NSBOX_E_INVALID, ENOENT, "journal: %s", what);
		return -ENOENT;
	}
	return r;
}

/* ------------------------------------------------------------------ transactions */

static void op_rollback(struct journal *j)
{
	struct sqlite_journal *s = journal_sqlite(j);

	if (!sqlite3_get_autocommit(s->db))
		sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
	s->open = false;
}

static int op_begin(struct journal *j, struct nsbox_error *err)
{
	struct sqlite_journal *s = journal_sqlite(j);
	int r = run_sql(s, "BEGIN IMMEDIATE", err);

	s->open = r == 0;
	return r;
}

static int op_commit(struct journal *j, struct nsbox_error *err)
{
	struct sqlite_journal *s = journal_sqlite(j);
	int r;

	if (!s->open)
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "journal: no transaction");
	r = run_sql(s, "COMMIT", err);
	if (r < 0)
		op_rollback(j);
	s->open = false;
	return r;
}

static int op_sync(struct journal *j, struct nsbox_error *err)
{
	return fdatasync(journal_sqlite(j)->wal_fd) < 0
		       ? nsbox_fail(err, NSBOX_E_IO, errno, "journal: sync")
		       : 0;
}

/* ------------------------------------------------------------------ changes */

static int op_add(struct journal *j, const struct journal_row *row, const void *body, size_t len,
		  struct nsbox_error *err)
{
	struct sqlite_journal *s = journal_sqlite(j);
	sqlite3_stmt *st = journal_statement(s, S_ADD);
	const char *const strings[] = { row->id,	  row->workspace, row->trace_id,
					row->traceparent, row->key,	  row->body_sha256 };
	const uint64_t numbers[] = { row->kind, row->priority, row->state,     row->sync,
				     row->uid,	row->size,     row->created_ms };
	int r;

	for (int i = 0; st && i < (int)ARRAY_SIZE(strings); i++)
		journal_bind_text(st, 1 + i, strings[i]);
	for (int i = 0; st && i < (int)ARRAY_SIZE(numbers); i++)
		journal_bind_u64(st, 7 + i, numbers[i]);
	r = journal_step(s, st, "take a job in", err);
	if (r < 0 || !body)
		return r;
	st = journal_statement(s, S_ADD_REQUEST);
	if (st)
		bind_bytes(st, 1, body, len);
	return journal_step(s, st, "keep a request", err);
}

static int op_take(struct journal *j, const char *id, uint64_t now_ms, struct nsbox_error *err)
{
	struct sqlite_journal *s = journal_sqlite(j);
	sqlite3_stmt *st = journal_statement(s, S_TAKE);

	if (st) {
		journal_bind_text(st, 1, id);
		journal_bind_u64(st, 2, now_ms);
	}
	return step_one(s, st, "start a job", err);
}

static int op_give_back(struct journal *j, const char *id, struct nsbox_error *err)
{
	struct sqlite_journal *s = journal_sqlite(j);
	sqlite3_stmt *st = journal_statement(s, S_GIVE_BACK);

	if (st)
		journal_bind_text(st, 1, id);
	return step_one(s, st, "give a job back", err);
}

static int op_done(struct journal *j, const char *id, const struct journal_end *end,
		   struct nsbox_error *err)
{
	struct sqlite_journal *s = journal_sqlite(j);
	sqlite3_stmt *st = journal_statement(s, S_DONE);
	int r;

	if (st) {
		journal_bind_text(st, 1, id);
		journal_bind_u64(st, 2, end->finished_ms);
		journal_bind_u64(st, 3, (uint64_t)end->status);
		journal_bind_text(st, 4, end->cause);
	}
	r = step_one(s, st, "end a job", err);
	if (r < 0)
		return r;
	st = journal_statement(s, S_DROP_REQUEST);
	if (st)
		journal_bind_text(st, 1, id);
	r = journal_step(s, st, "forget a request", err);
	if (r < 0)
		return r;
	st = journal_statement(s, S_ADD_RESULT);
	if (st) {
		journal_bind_text(st, 1, id);
		bind_bytes(st, 2, end->reply, end->reply_len);
		bind_bytes(st, 3, end->receipt, end->receipt_len);
	}
	return journal_step(s, st, "keep a result", err);
}

static int op_audit(struct journal *j, const struct journal_chain *c, const char *line, size_t len,
		    struct nsbox_error *err)
{
	struct sqlite_journal *s = journal_sqlite(j);
	sqlite3_stmt *st = journal_statement(s, S_AUDIT);
	int r;

	if (st) {
		journal_bind_u64(st, 1, c->seq);
		bind_bytes(st, 2, line, len);
	}
	r = journal_step(s, st, "keep a line of the audit", err);
	if (r < 0)
		return r;
	st = journal_statement(s, S_CHAIN);
	if (st) {
		journal_bind_u64(st, 1, c->seq);
		journal_bind_text(st, 2, c->hash);
	}
	return step_one(s, st, "move the audit on", err);
}

static int op_audit_drop(struct journal *j, uint64_t seq, struct nsbox_error *err)
{
	struct sqlite_journal *s = journal_sqlite(j);
	sqlite3_stmt *st = journal_statement(s, S_AUDIT_DROP);

	if (st)
		journal_bind_u64(st, 1, seq);
	return journal_step(s, st, "forget lines of the audit", err);
}

static int op_sweep(struct journal *j, uint64_t before_ms, uint64_t max_bytes,
		    struct nsbox_error *err)
{
	struct sqlite_journal *s = journal_sqlite(j);
	const struct {
		enum journal_statement which;
		uint64_t value;
	} all[] = { { S_SWEEP_AGE, before_ms },
		    { S_SWEEP_SIZE, max_bytes },
		    { S_SWEEP_ORPHANS, 0 } };
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(all); i++) {
		sqlite3_stmt *st = journal_statement(s, all[i].which);

		if (st && all[i].which != S_SWEEP_ORPHANS)
			journal_bind_u64(st, 1, MIN(all[i].value, (uint64_t)INT64_MAX));
		r = journal_step(s, st, "sweep", err);
	}
	return r == 0 ? run_sql(s, "PRAGMA incremental_vacuum(2000)", err) : r;
}

/* ------------------------------------------------------------------ life */

static void op_free(struct journal *j)
{
	struct sqlite_journal *s = journal_sqlite(j);

	for (size_t i = 0; i < S_MAX; i++)
		sqlite3_finalize(s->st[i]);
	sqlite3_close(s->db);
	close_fd(&s->wal_fd);
	free(s);
}

static const struct journal_ops sqlite_ops = {
	.begin = op_begin,
	.commit = op_commit,
	.sync = op_sync,
	.rollback = op_rollback,
	.add = op_add,
	.take = op_take,
	.give_back = op_give_back,
	.done = op_done,
	.audit = op_audit,
	.audit_drop = op_audit_drop,
	.sweep = op_sweep,
	.find = journal_ask_find,
	.find_key = journal_ask_find_key,
	.read = journal_ask_read,
	.open_jobs = journal_ask_open_jobs,
	.ended_jobs = journal_ask_ended_jobs,
	.audit_state = journal_ask_audit_state,
	.tool_put = journal_tool_put,
	.tool_drop = journal_tool_drop,
	.tools = journal_tools,
	.free = op_free,
};

static int user_version(struct sqlite_journal *s, int *ret, struct nsbox_error *err)
{
	sqlite3_stmt *st = NULL;
	int r = sqlite3_prepare_v2(s->db, "PRAGMA user_version", -1, &st, NULL);

	if (r != SQLITE_OK || sqlite3_step(st) != SQLITE_ROW) {
		sqlite3_finalize(st);
		return journal_failed(s, "read its version", err);
	}
	*ret = sqlite3_column_int(st, 0);
	sqlite3_finalize(st);
	return 0;
}

/* All steps in one transaction: a file is of the old version, or of the new one. */
static int migrate(struct sqlite_journal *s, struct nsbox_error *err)
{
	char text[64];
	int version = 0, r;

	r = user_version(s, &version, err);
	if (r < 0)
		return r;
	if (version > (int)ARRAY_SIZE(steps))
		return nsbox_fail(err, NSBOX_E_UNSUPPORTED, 0,
				  "journal: its version is %d, this program knows %d: it was "
				  "written by a newer one",
				  version, (int)ARRAY_SIZE(steps));
	if (version == (int)ARRAY_SIZE(steps))
		return 0;
	r = op_begin(&s->base, err);
	for (; r == 0 && version < (int)ARRAY_SIZE(steps); version++)
		r = run_sql(s, steps[version], err);
	snprintf(text, sizeof(text), "PRAGMA user_version=%d", version);
	if (r == 0)
		r = run_sql(s, text, err);
	if (r == 0)
		return op_commit(&s->base, err);
	op_rollback(&s->base);
	return r;
}

static bool is_busy(const struct sqlite_journal *s)
{
	return (sqlite3_errcode(s->db) & 0xff) == SQLITE_BUSY;
}

/* A predecessor that was killed may take a moment to be gone, and holds the file until then. */
static int take_file(struct sqlite_journal *s, struct nsbox_error *err)
{
	const struct timespec pause = { 0, BUSY_PAUSE_NS };
	int r = -EBUSY;

	for (int i = 0; i < BUSY_ROUNDS; i++) {
		r = run_sql(s,
			    "PRAGMA locking_mode=EXCLUSIVE; PRAGMA auto_vacuum=INCREMENTAL;"
			    "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; "
			    "PRAGMA secure_delete=ON;"
			    "PRAGMA journal_size_limit=16777216; PRAGMA trusted_schema=OFF;"
			    "PRAGMA cell_size_check=ON; PRAGMA temp_store=MEMORY;"
			    "BEGIN EXCLUSIVE; COMMIT",
			    err);
		if (r == 0 || !is_busy(s))
			return r;
		nanosleep(&pause, NULL);
	}
	return r;
}

static int set_up(struct sqlite_journal *s, unsigned max_pages, struct nsbox_error *err)
{
	char text[64];
	int r;

	sqlite3_extended_result_codes(s->db, 1);
	sqlite3_limit(s->db, SQLITE_LIMIT_ATTACHED, 0);
	r = take_file(s, err);
	if (r < 0 && is_busy(s))
		return nsbox_fail(err, NSBOX_E_INVALID, EBUSY,
				  "the journal is in use by another service: each needs a "
				  "--data-dir of its own");
	if (r == 0)
		r = migrate(s, err);
	snprintf(text, sizeof(text), "PRAGMA max_page_count=%u", max_pages);
	return r == 0 && max_pages ? run_sql(s, text, err) : r;
}

/* Its name, and what was written so far, last as well. */
static int open_log(struct sqlite_journal *s, int dir_fd, struct nsbox_error *err)
{
	s->wal_fd = openat(dir_fd, "journal.db-wal", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (s->wal_fd < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "journal: open its log");
	if (fsync(dir_fd) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "journal: sync its directory");
	return op_sync(&s->base, err);
}

int journal_open(int dir_fd, unsigned max_pages, struct journal **ret, struct nsbox_error *err)
{
	struct sqlite_journal *s = calloc(1, sizeof(*s));
	char path[64];
	int r;

	if (!s)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "open the journal");
	s->base.ops = &sqlite_ops;
	s->wal_fd = -1;
	/* By the descriptor: the directory is the one that was checked. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d/journal.db", dir_fd);
	r = sqlite3_open_v2(path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);
	if (r != SQLITE_OK)
		r = journal_failed(s, "open", err);
	else
		r = set_up(s, max_pages, err);
	if (r == 0)
		r = open_log(s, dir_fd, err);
	if (r < 0) {
		op_free(&s->base);
		return r;
	}
	*ret = &s->base;
	return 0;
}
