/* SPDX-License-Identifier: Apache-2.0 */
/* What journal.c and journal_ask.c share. */
#ifndef FRONT_JOURNAL_SQLITE_H
#define FRONT_JOURNAL_SQLITE_H

#include <sqlite3.h>

#include "daemon/front/journal.h"

enum journal_statement {
	S_ADD,
	S_ADD_REQUEST,
	S_TAKE,
	S_GIVE_BACK,
	S_DONE,
	S_DROP_REQUEST,
	S_ADD_RESULT,
	S_FIND,
	S_FIND_KEY,
	S_OPEN,
	S_ENDED,
	S_REQUEST,
	S_REPLY,
	S_RECEIPT,
	S_AUDIT,
	S_CHAIN,
	S_AUDIT_DROP,
	S_AUDIT_LINES,
	S_AUDIT_STATE,
	S_SWEEP_AGE,
	S_SWEEP_SIZE,
	S_SWEEP_ORPHANS,
	S_TOOL_PUT,
	S_TOOL_DROP,
	S_TOOLS,
	S_MAX
};

struct sqlite_journal {
	struct journal base;
	sqlite3 *db;
	sqlite3_stmt *st[S_MAX];
	int wal_fd; /* the log, for syncs */
	bool open;  /* a transaction is */
};

static inline struct sqlite_journal *journal_sqlite(struct journal *j)
{
	return (struct sqlite_journal *)j; /* base is the first member */
}

/* Why SQLite said no, as an error of ours. */
int journal_failed(struct sqlite_journal *s, const char *what, struct nsbox_error *err);
/* Compiled once; NULL where it cannot be. Text is bound without a copy: it outlives the step. */
sqlite3_stmt *journal_statement(struct sqlite_journal *s, enum journal_statement which);
void journal_bind_text(sqlite3_stmt *st, int at, const char *s);
void journal_bind_u64(sqlite3_stmt *st, int at, uint64_t v);
void journal_release(sqlite3_stmt *st);
/* A statement without rows, which is released. */
int journal_step(struct sqlite_journal *s, sqlite3_stmt *st, const char *what,
		 struct nsbox_error *err);

/* The questions of struct journal_ops. */
int journal_ask_find(struct journal *j, const char *id, journal_row_fn *fn, void *ctx,
		     struct nsbox_error *err);
int journal_ask_find_key(struct journal *j, const char *workspace, const char *key,
			 journal_row_fn *fn, void *ctx, struct nsbox_error *err);
int journal_ask_read(struct journal *j, const char *id, enum journal_part part, char **ret,
		     size_t *ret_len, struct nsbox_error *err);
int journal_ask_open_jobs(struct journal *j, journal_row_fn *fn, void *ctx,
			  struct nsbox_error *err);
int journal_ask_ended_jobs(struct journal *j, unsigned max, journal_row_fn *fn, void *ctx,
			   struct nsbox_error *err);
int journal_ask_audit_state(struct journal *j, struct journal_chain *ret, journal_line_fn *fn,
			    void *ctx, struct nsbox_error *err);

/* journal_tools.c */
int journal_tool_put(struct journal *j, const struct journal_tool *row, struct nsbox_error *err);
int journal_tool_drop(struct journal *j, const char *id, struct nsbox_error *err);
int journal_tools(struct journal *j, journal_tool_fn *fn, void *ctx, struct nsbox_error *err);

#endif
