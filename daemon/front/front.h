/* SPDX-License-Identifier: Apache-2.0 */
/* The front: everything of nsboxd but the supervisor. */
#ifndef FRONT_FRONT_H
#define FRONT_FRONT_H

#include "daemon/front/audit.h"
#include "daemon/front/http.h"
#include "daemon/front/job.h"
#include "daemon/front/journal.h"
#include "daemon/front/metrics.h"
#include "daemon/front/options.h"
#include "daemon/front/syncer.h"
#include "daemon/front/tokens.h"
#include "daemon/front/usage.h"

struct json_object;
struct box_files_op;
struct narrowing;
struct held;
struct session;
struct images_op;
struct mcp;
struct tools;
struct tool_put;
struct snapshot_op;
struct snapshots;

/* A request that waits to hear of a job; it is the request's http_data(). */
enum call_kind {
	CALL_RESULT,   /* what the run gave */
	CALL_ACCEPTED, /* that it is in the journal */
	CALL_ENDED,    /* that it ended, as a job */
	CALL_EVENTS,   /* all of it, as it goes on */
};

struct call {
	struct call *next;
	struct job *job;
	struct http_request *rq;
	enum call_kind kind;
	struct loop_timer patience; /* how long it waits, where it does not wait for ever */
};

/* Jobs that something has to be written of, in order. */
struct job_list {
	struct job *first, **last;
};

struct front {
	struct job_services services;
	struct loop *loop;
	struct link *link;
	struct network *network;
	struct compiler *compiler;
	struct pool *pool;
	struct http *http;
	struct queue *queue;
	struct journal *journal;
	struct audit audit;
	struct metrics metrics;
	struct usage *usage;
	struct front_options *opt; /* another after a reload */
	struct tokens *tokens;	   /* NULL: no client over TCP */
	struct kept_secrets *kept; /* the operator's, NULL: none */
	int data_fd, order_fd;
	struct loop_source *orders;
	struct loop_timer drain;	/* the end of a runs' time, when the service is to end */
	struct http_request *reload_rq; /* who waits to hear how the reload went, NULL: nobody */
	uint64_t began_us, refused_second;
	unsigned refused; /* at the door, in that second */
	bool draining;
	struct loop_timer turn;	 /* write what has to be written, start what can be started */
	struct loop_timer mend;	 /* the journal failed: try again */
	struct loop_timer sweep; /* old results */
	struct loop_timer last;	 /* the end, after the last replies */
	uint64_t numbers, runners, running;
	struct job *first, *last_job; /* all that are alive, oldest first */
	struct job_list fresh, ended; /* not in the journal yet; not ended there yet */
	struct syncer *syncer;
	struct held *held, **last_held; /* in the journal, and not on disk yet, oldest first */
	bool lost;			/* a sync failed: nobody knows what is on disk */
	uint64_t held_numbers, syncing; /* the last one's; that of the sync under way, or 0 */
	struct nsbox_error trouble;	/* why the journal takes nothing; code 0: it does */
	uint64_t asked_bytes;		/* of the requests of all jobs that wait or run */
	uid_t owner;			/* whom the service belongs to: the supervisor's user */
	int streams;			/* open ones */
	struct box_files_op *file_ops;	/* requests about sessions' files */
	unsigned n_file_ops;
	uint32_t file_op_numbers;
	struct narrowing *narrowings; /* requests that wait to change a session's network */
	struct images_op *image_ops;  /* requests about images */
	struct mcp *mcp;
	struct tools *tools;
	struct tool_put *tool_puts; /* sources that are being looked at */
	unsigned n_tool_puts;
	struct snapshots *snapshots;
	struct snapshot_op *snapshot_ops; /* of sessions whose files are being taken */
	struct session *sessions;	  /* those that are alive */
	unsigned n_sessions;
	bool closing;
	int status; /* of the process */
};

/* Takes the descriptors. Returns the exit status of the process. */
int front_main(int listen_fd, int spawn_fd, int data_fd, int order_fd, int egress_fd);

/*
 * 0; -EAGAIN: the queue is full; -EDQUOT: the workspace's part of it is; -ENOSPC and others: the
 * journal takes nothing. Takes the body (the journal's copy) and, where it succeeds, the spec. *ret
 * is borrowed from the front's list, and not accepted before the journal has it: see enum
 * call_kind.
 */
int front_submit(struct front *f, const struct job_ident *ident, struct job_spec **spec, char *body,
		 struct job **ret, struct nsbox_error *err);
struct job *front_find(struct front *f, const char *id);
void front_soon(struct front *f);
void front_list_add(struct front *f, struct job *j);
void front_list_drop(struct front *f, struct job *j);
/* What the options say of queue and runners. */
void front_apply(struct front *f);
void front_close(struct front *f, int status);

/* control.c: what the supervisor says. The first options are waited for; *ret_tcp may be -1. */
int control_options(struct front *f, int *ret_tcp, struct nsbox_error *err);
int control_watch(struct front *f, struct nsbox_error *err);
/* It serves. */
void control_ready(struct front *f);
/* Something ended: was it the last that a drain waits for? */
void control_ended(struct front *f);
void control_status(struct front *f, struct json_object *o);
void control_gone(struct front *f, struct http_request *rq);
void api_daemon_status(struct front *f, struct http_request *rq, const char *rest);
void api_daemon_drain(struct front *f, struct http_request *rq, const char *rest);
void api_daemon_reload(struct front *f, struct http_request *rq, const char *rest);

/* record.c */
void record_init(struct front *f);
void record_fresh(struct front *f, struct job *j);
void record_ended(struct front *f, struct job *j);
/* One transaction of everything that is due; then those who wait hear of it, and jobs start. */
void record_turn(struct front *f);
/* Nothing is accepted until it is mended. */
void record_trouble(struct front *f, const struct nsbox_error *why);
uint64_t record_now_ms(void);
/* Room for a request of so many bytes, and all that follows from it? */
int record_room(struct front *f, uint64_t len, struct nsbox_error *err);

/* recover.c */
/* What the last front has left: jobs that wait do so again, those that ran are interrupted. */
int record_recover(struct front *f, struct nsbox_error *err);
void record_sweep(struct front *f);

/* api.c */
void api_request(void *ctx, struct http_request *rq);
void api_reply(struct http_request *rq, int status, struct json_object *o,
	       const char *const *headers);
void api_reply_error(struct http_request *rq, int status, const struct nsbox_error *e);
/* 429, and when to come back. */
void api_reply_busy(struct http_request *rq, const struct nsbox_error *e, uint64_t seconds);
/* A refusal that the audit has to know of. */
void api_deny(struct front *f, struct http_request *rq, const char *why);
void api_who(const struct front *f, const struct http_request *rq, struct who *ret);

/* call.c */
void api_gone(void *ctx, struct http_request *rq);
/* The journal has it; it ended, and the journal has that; it cannot be taken (NULL: it can). */
void api_tell_accepted(struct front *f, struct job *j);
void api_tell_ended(struct job *j);
void api_tell_refused(struct job *j, const struct nsbox_error *why);

/* api_submit.c */
void api_python(struct front *f, struct http_request *rq, const char *rest);
void api_post_session(struct front *f, struct http_request *rq, const char *rest);
void api_command(struct front *f, struct http_request *rq, const char *rest);
void api_post_job(struct front *f, struct http_request *rq, const char *rest);

/* api_jobs.c */
void api_list_jobs(struct front *f, struct http_request *rq, const char *rest);
void api_get_job(struct front *f, struct http_request *rq, const char *id);
void api_delete_job(struct front *f, struct http_request *rq, const char *id);
void api_post_stdin(struct front *f, struct http_request *rq, const char *id);
void api_get_events(struct front *f, struct http_request *rq, const char *id);
void api_get_receipt(struct front *f, struct http_request *rq, const char *id);
void api_get_output(struct front *f, struct http_request *rq, const char *id);

/* api_outputs.c: a result as clients get it; one file of a result (NULL: there is none). */
struct json_object *api_result_object(const char *reply, size_t len);
void api_reply_output(struct http_request *rq, const char *reply, const char *path);
/* api.c: what follows the id and the route's words in the path. */
const char *api_tail(const struct http_request *rq);

/* api_sessions.c */
void api_list_sessions(struct front *f, struct http_request *rq, const char *rest);
void api_get_session(struct front *f, struct http_request *rq, const char *id);
void api_patch_session(struct front *f, struct http_request *rq, const char *id);
void api_delete_session(struct front *f, struct http_request *rq, const char *id);
/* The session that a request names; NULL: answered. */
struct session *api_find_session(struct front *f, struct http_request *rq, const char *id);

/* api_files.c */
void api_files_get(struct front *f, struct http_request *rq, const char *id);
void api_files_put(struct front *f, struct http_request *rq, const char *id);
void api_files_post(struct front *f, struct http_request *rq, const char *id);
void api_files_delete(struct front *f, struct http_request *rq, const char *id);

/* images.c */
void api_list_images(struct front *f, struct http_request *rq, const char *rest);
void api_get_image(struct front *f, struct http_request *rq, const char *name);

/* api_snapshots.c */
void api_post_snapshot(struct front *f, struct http_request *rq, const char *id);
void api_post_commit(struct front *f, struct http_request *rq, const char *id);
void api_post_fork(struct front *f, struct http_request *rq, const char *id);
void api_get_changes(struct front *f, struct http_request *rq, const char *id);
void api_list_snapshots(struct front *f, struct http_request *rq, const char *rest);
void api_get_snapshot(struct front *f, struct http_request *rq, const char *id);
void api_delete_snapshot(struct front *f, struct http_request *rq, const char *id);
/* The second half of a fork: the files are there. */
struct snapshot;
void api_fork_from(struct front *f, struct http_request *rq, struct snapshot *n);

/*
 * events.c: a stream of a job that is alive, or of one that the journal has (borrowed). With the
 * stream of its owner the job ends, too.
 */
void events_alive(struct front *f, struct http_request *rq, struct job *j, bool owner);
void events_past(struct front *f, struct http_request *rq, const struct journal_row *row,
		 struct json_object *object, const char *reply);
/* There is more of it; it ended, and this is what is told of it. */
void events_news(struct job *j);
void events_ended(struct job *j, struct json_object *row);
/* The front is about to end. */
void events_close(struct job *j);

#endif
