/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of the SQLite file that is the journal. */
#include <stdio.h>
#include <string.h>

#include "daemon/front/journal_sqlite.h"
#include "nsbox/util.h"

static const char *column_text(sqlite3_stmt *st, int at)
{
	const unsigned char *s = sqlite3_column_text(st, at);

	return s ? (const char *)s : "";
}

static uint64_t column_u64(sqlite3_stmt *st, int at)
{
	return (uint64_t)sqlite3_column_int64(st, at);
}

/* The order is that of COLUMNS. */
static void read_row(sqlite3_stmt *st, struct journal_row *row)
{
	*row = (struct journal_row){
		.id = column_text(st, 0),
		.workspace = column_text(st, 1),
		.trace_id = column_text(st, 2),
		.traceparent = column_text(st, 3),
		.key = column_text(st, 4),
		.body_sha256 = column_text(st, 5),
		.kind = (uint32_t)column_u64(st, 6),
		.priority = (uint32_t)column_u64(st, 7),
		.state = (uint32_t)column_u64(st, 8),
		.sync = column_u64(st, 9) != 0,
		.uid = (uid_t)column_u64(st, 10),
		.size = column_u64(st, 11),
		.created_ms = column_u64(st, 12),
		.started_ms = column_u64(st, 13),
		.finished_ms = column_u64(st, 14),
		.status = (int)column_u64(st, 15),
		.cause = column_text(st, 16),
	};
}

/* Rows found, or the error. */
static int each(struct sqlite_journal *s, sqlite3_stmt *st, journal_row_fn *fn, void *ctx,
		struct nsbox_error *err)
{
	struct journal_row row;
	int r, n = 0;

	if (!st)
		return journal_failed(s, "ask", err);
	while ((r = sqlite3_step(st)) == SQLITE_ROW) {
		read_row(st, &row);
		fn(ctx, &row);
		n++;
	}
	r = r == SQLITE_DONE ? n : journal_failed(s, "ask", err);
	journal_release(st);
	return r;
}

int journal_ask_find(struct journal *j, const char *id, journal_row_fn *fn, void *ctx,
		     struct nsbox_error *err)
{
	struct sqlite_journal *s = journal_sqlite(j);
	sqlite3_stmt *st = journal_statement(s, S_FIND);

	if (st)
		journal_bind_text(st, 1, id);
	return each(s, st, fn, ctx, err);
}

int journal_ask_find_key(struct journal *j, const char *workspace, const char *key,
			 journal_row_fn *fn, void *ctx, struct nsbox_error *err)
{
	struct sqlite_journal *s = journal_sqlite(j);
	sqlite3_stmt *st = journal_statement(s, S_FIND_KEY);

	if (st) {
		journal_bind_text(st, 1, workspace);
		journal_bind_text(st, 2, key);
	}
	return each(s, st, fn, ctx, err);
}

int journal_ask_read(struct journal *j, const char *id, enum journal_part part, char **ret,
		     size_t *ret_len, struct nsbox_error *err)
{
	static const enum journal_statement which[] = { S_REQUEST, S_REPLY, S_RECEIPT };
	struct sqlite_journal *s = journal_sqlite(j);
	sqlite3_stmt *st = journal_statement(s, which[part]);
	const void *data;
	size_t n;
	int r = 0;

	if (!st)
		return journal_failed(s, "read", err);
	journal_bind_text(st, 1, id);
	r = sqlite3_step(st);
	if (r == SQLITE_ROW && sqlite3_column_type(st, 0) != SQLITE_NULL) {
		data = sqlite3_column_blob(st, 0);
		n = (size_t)sqlite3_column_bytes(st, 0);
		*ret = malloc(n + 1);
		r = *ret ? 1 : nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read the journal");
		if (*ret) {
			if (n)
				memcpy(*ret, data, n);
			(*ret)[n] = 0;
			*ret_len = n;
		}
	} else {
		r = r == SQLITE_ROW || r == SQLITE_DONE ? 0 : journal_failed(s, "read", err);
	}
	journal_release(st);
	return r;
}

int journal_ask_open_jobs(struct journal *j, journal_row_fn *fn, void *ctx, struct nsbox_error *err)
{
	int r = each(journal_sqlite(j), journal_statement(journal_sqlite(j), S_OPEN), fn, ctx, err);

	return MIN(r, 0);
}

int journal_ask_ended_jobs(struct journal *j, unsigned max, journal_row_fn *fn, void *ctx,
			   struct nsbox_error *err)
{
	sqlite3_stmt *st = journal_statement(journal_sqlite(j), S_ENDED);
	int r;

	if (st)
		journal_bind_u64(st, 1, max);
	r = each(journal_sqlite(j), st, fn, ctx, err);
	return MIN(r, 0);
}

int journal_ask_audit_state(struct journal *j, struct journal_chain *ret, journal_line_fn *fn,
			    void *ctx, struct nsbox_error *err)
{
	struct sqlite_journal *s = journal_sqlite(j);
	sqlite3_stmt *st = journal_statement(s, S_AUDIT_STATE);
	int r;

	if (!st || sqlite3_step(st) != SQLITE_ROW)
		return journal_failed(s, "find the end of the audit", err);
	ret->seq = column_u64(st, 0);
	snprintf(ret->hash, sizeof(ret->hash), "%s", column_text(st, 1));
	journal_release(st);
	st = journal_statement(s, S_AUDIT_LINES);
	if (!st)
		return journal_failed(s, "read lines of the audit", err);
	while ((r = sqlite3_step(st)) == SQLITE_ROW)
		fn(ctx, column_u64(st, 0), sqlite3_column_blob(st, 1),
		   (size_t)sqlite3_column_bytes(st, 1));
	r = r == SQLITE_DONE ? 0 : journal_failed(s, "read lines of the audit", err);
	journal_release(st);
	return r;
}
