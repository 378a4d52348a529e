/* SPDX-License-Identifier: Apache-2.0 */
/* Registered tools in the SQLite file that is the journal. */
#include "daemon/front/journal_sqlite.h"

int journal_tool_put(struct journal *j, const struct journal_tool *row, struct nsbox_error *err)
{
	struct sqlite_journal *s = journal_sqlite(j);
	sqlite3_stmt *st = journal_statement(s, S_TOOL_PUT);

	if (st) {
		journal_bind_text(st, 1, row->id);
		journal_bind_text(st, 2, row->workspace);
		journal_bind_u64(st, 3, row->uid);
		journal_bind_text(st, 4, row->record);
	}
	return journal_step(s, st, "keep a tool", err);
}

int journal_tool_drop(struct journal *j, const char *id, struct nsbox_error *err)
{
	struct sqlite_journal *s = journal_sqlite(j);
	sqlite3_stmt *st = journal_statement(s, S_TOOL_DROP);

	if (st)
		journal_bind_text(st, 1, id);
	return journal_step(s, st, "remove a tool", err);
}

int journal_tools(struct journal *j, journal_tool_fn *fn, void *ctx, struct nsbox_error *err)
{
	struct sqlite_journal *s = journal_sqlite(j);
	sqlite3_stmt *st = journal_statement(s, S_TOOLS);
	int r;

	if (!st)
		return journal_failed(s, "read the tools", err);
	while ((r = sqlite3_step(st)) == SQLITE_ROW) {
		const struct journal_tool row = {
			.id = (const char *)sqlite3_column_text(st, 0),
			.workspace = (const char *)sqlite3_column_text(st, 1),
			.uid = (uid_t)sqlite3_column_int64(st, 2),
			.record = (const char *)sqlite3_column_text(st, 3),
		};

		if (row.id && row.workspace && row.record)
			fn(ctx, &row);
	}
	r = r == SQLITE_DONE ? 0 : journal_failed(s, "read the tools", err);
	journal_release(st);
	return r;
}
