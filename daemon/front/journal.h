/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal: what the service has promised, so that it can be kept after any end of the front.
 *
 * Transactions are the caller's: begin, any number of changes, commit. All changes of a turn of
 * the loop travel in one transaction. What is committed survives the end of any process; that of
 * the machine it survives after a sync, which makes all durable that was committed before (group
 * commit). A failed change leaves the transaction to be rolled back; memory and file then agree on
 * the state before it.
 *
 * A job in the journal goes queued -> running -> finished; give_back is running -> queued, for a
 * job of which nothing ran. Who keeps all this is behind struct journal_ops: a SQLite file
 * (journal.c), or a list in memory for tests; a queue that several hosts share would be a third.
 */
#ifndef FRONT_JOURNAL_H
#define FRONT_JOURNAL_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum journal_state { JOURNAL_QUEUED, JOURNAL_RUNNING, JOURNAL_FINISHED };

/* One job. Strings are borrowed, "" where there is none. */
struct journal_row {
	const char *id, *workspace, *trace_id, *traceparent;
	const char *key; /* the same key in the same workspace is the same job */
	const char *body_sha256;
	uint32_t kind, priority, state;
	bool sync; /* somebody waits on a connection: no request is kept, and it never runs again */
	uid_t uid; /* who asked */
	uint64_t size;				      /* of the request */
	uint64_t created_ms, started_ms, finished_ms; /* Unix time, 0: not yet */
	int status;				      /* HTTP, once finished */
	const char *cause;
};

struct journal_end {
	uint64_t finished_ms;
	int status;
	const char *cause;
	const char *reply; /* NULL: not kept */
	size_t reply_len;
	const char *receipt;
	size_t receipt_len;
};

/* Where the audit stands: the number and the hash of its last line. */
struct journal_chain {
	uint64_t seq;
	char hash[65];
};

typedef void journal_row_fn(void *ctx, const struct journal_row *row);
typedef void journal_line_fn(void *ctx, uint64_t seq, const char *line, size_t len);

/* A registered tool; the record is JSON text. */
struct journal_tool {
	const char *id, *workspace, *record;
	uid_t uid;
};
typedef void journal_tool_fn(void *ctx, const struct journal_tool *row);

/* For journal_read(): what is kept of a job beside its row. */
enum journal_part { JOURNAL_REQUEST, JOURNAL_REPLY, JOURNAL_RECEIPT };

struct journal;

/*
 * -ENOSPC: no room; -EEXIST: the id or the key is there; -ENOENT: no such job in such a state;
 * -EIO: anything else of the file.
 */
struct journal_ops {
	int (*begin)(struct journal *j, struct nsbox_error *err);
	int (*commit)(struct journal *j, struct nsbox_error *err);
	/* What was committed is on disk when it returns. In any thread, beside anything else. */
	int (*sync)(struct journal *j, struct nsbox_error *err);
	void (*rollback)(struct journal *j);

	/* state is that of the row; the request is kept where body is not NULL */
	int (*add)(struct journal *j, const struct journal_row *row, const void *body, size_t len,
		   struct nsbox_error *err);
	int (*take)(struct journal *j, const char *id, uint64_t now_ms, struct nsbox_error *err);
	int (*give_back)(struct journal *j, const char *id, struct nsbox_error *err);
	int (*done)(struct journal *j, const char *id, const struct journal_end *end,
		    struct nsbox_error *err);
	/* The line and where the chain stands after it. */
	int (*audit)(struct journal *j, const struct journal_chain *c, const char *line, size_t len,
		     struct nsbox_error *err);
	/* Lines up to seq are safe where they belong. */
	int (*audit_drop)(struct journal *j, uint64_t seq, struct nsbox_error *err);
	/* Forget finished jobs: older than, and the oldest beyond so many bytes. */
	int (*sweep)(struct journal *j, uint64_t before_ms, uint64_t max_bytes,
		     struct nsbox_error *err);

	/* A tool is registered, in another's place where it has its id; or is no more. */
	int (*tool_put)(struct journal *j, const struct journal_tool *row, struct nsbox_error *err);
	int (*tool_drop)(struct journal *j, const char *id, struct nsbox_error *err);

	/* 1 found, 0 not. Without a transaction. */
	int (*find)(struct journal *j, const char *id, journal_row_fn *fn, void *ctx,
		    struct nsbox_error *err);
	int (*find_key)(struct journal *j, const char *workspace, const char *key,
			journal_row_fn *fn, void *ctx, struct nsbox_error *err);
	/* *ret is malloc'd and NUL-terminated beyond its length. */
	int (*read)(struct journal *j, const char *id, enum journal_part part, char **ret,
		    size_t *ret_len, struct nsbox_error *err);
	/* Unfinished ones, oldest first; finished ones, newest first, at most `max`. */
	int (*open_jobs)(struct journal *j, journal_row_fn *fn, void *ctx, struct nsbox_error *err);
	int (*ended_jobs)(struct journal *j, unsigned max, journal_row_fn *fn, void *ctx,
			  struct nsbox_error *err);
	int (*audit_state)(struct journal *j, struct journal_chain *ret, journal_line_fn *fn,
			   void *ctx, struct nsbox_error *err);
	int (*tools)(struct journal *j, journal_tool_fn *fn, void *ctx, struct nsbox_error *err);
	void (*free)(struct journal *j);
};

struct journal {
	const struct journal_ops *ops;
};

/*
 * The file "journal.db" in a directory of our own (borrowed). Made or migrated where needed; one
 * process has it at a time. max_pages: 0, or a limit of the file's size, for tests.
 */
int journal_open(int dir_fd, unsigned max_pages, struct journal **ret, struct nsbox_error *err);

static inline void journal_free(struct journal *j)
{
	if (j)
		j->ops->free(j);
}

#endif
