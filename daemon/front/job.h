/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: from a request to a reply. */
#ifndef FRONT_JOB_H
#define FRONT_JOB_H

#include <sys/types.h>

#include "daemon/common/compile.h"
#include "daemon/common/pycall.h"
#include "daemon/common/trace_file.h"
#include "daemon/front/capture.h"
#include "daemon/front/compiler.h"
#include "daemon/front/feed.h"
#include "daemon/front/link.h"
#include "daemon/front/network.h"
#include "daemon/front/outputs.h"
#include "daemon/front/pool.h"
#include "daemon/front/queue.h"
#include "daemon/front/request.h"
#include "daemon/front/secrets.h"
#include "daemon/front/session.h"
#include "daemon/front/stage.h"

struct job;
struct box_files_op;
struct call;
struct events;
struct json_object;

/* What jobs need of the front; lives as long as it. */
struct job_services {
	struct loop *loop;
	struct link *link;
	struct network *network;
	struct compiler *compiler;
	struct pool *pool; /* NULL: none */
	bool template;	   /* nsbox-spawn has one, for interpreters */
	const char *unpacker;
	struct nsbox_host host;
	struct nsbox_ceiling ceiling;
	const struct kept_secrets *kept; /* the operator's, NULL: none */
	/* The job is over: its reply is there. Called once per job; nobody else has heard of it. */
	void (*finished)(void *ctx, struct job *job);
	/* It started, or wrote something. */
	void (*news)(void *ctx, struct job *job);
	void *ctx;
};

enum job_phase {
	JOB_QUEUED,
	JOB_STAGING, /* its files are made into a stream */
	JOB_COMPILING,
	JOB_RUNNING,	/* nsbox-spawn has it: set-up and program */
	JOB_COLLECTING, /* the program is over, files are read */
	JOB_FINISHED,
};

/* What is known of a job besides what it is to do. Strings are copied; NULL is "". */
struct job_ident {
	const char *id; /* NULL: a new one */
	const char *workspace, *trace_id, *traceparent, *key, *body_sha256;
	uint32_t kind, priority;
	uid_t uid;
	bool sync;	     /* somebody waits on a connection */
	bool interactive;    /* and writes to its standard input meanwhile */
	bool tty;	     /* which is a terminal's */
	uint64_t size;	     /* of the request */
	uint64_t created_ms; /* 0: now */
};

/* What a job has from its start on, or from its end where it did not start: most of it, and many wait. */
struct job_run {
	char manifest_sha256[65], policy_sha256[65], plan_sha256[65];
	char image_digest[80]; /* as nsbox-spawn said */
	struct staged staged;
	char *policy_text;	    /* the manifest as it was compiled, NULL for none */
	struct compile_reply *plan; /* what the compiler said */
	uint64_t wall_ms;
	struct inputs inputs; /* what it gets of its secrets, and of the operator's */
	struct capture out, err, result;
	struct outputs outputs;
	struct egress_log network; /* used: the plan grants one */
	struct trace_file trace;
	struct wire_output *rules;
	uint32_t n_rules;
	struct loop_timer backstop;
	struct nsbox_result res;
	struct nsbox_error error; /* code 0: the run took place */
};

struct job {
	const struct job_services *sv;
	unsigned refs;
	uint64_t
		number; /* of the sandbox on the wire, too; another once it has a run of the pool */
	char id[48];
	enum job_phase phase;
	struct job_spec *spec; /* NULL once finished, and while the journal alone has it */
	uint64_t asked_bytes;  /* of the request */
	uint32_t kind, priority;
	uid_t uid;
	bool sync, interactive;
	const char *workspace, *trace_id, *traceparent, *key; /* in `text` */
	char body_sha256[65];
	struct queue_entry wait;
	bool makes_session;
	struct session *session;      /* where it runs; NULL: in a sandbox of its own */
	struct nsbox_plan *narrower;  /* its own in there, or NULL */
	int refused;		      /* status of its error, where the code does not say; else 0 */
	struct box_files_op *putting; /* its files, into that session */

	/* The front's: */
	struct job *prev, *next;			   /* all that are alive, oldest first */
	struct job *next_fresh, *next_popped, *next_ended; /* what the journal has to hear */
	char *body;					   /* until the journal has it */
	struct call *calls;				   /* who waits to hear of it */
	struct events *streams;
	bool recorded, told; /* the journal has it; and so has the disk: it exists for clients */

	uint64_t created_unix_ms, started_unix_ms, finished_unix_ms;
	uint64_t queued_us, started_us, finished_us;
	uint64_t staged_us, compiled_us, exited_us; /* 0: it did not come so far */
	struct stage *stage;
	struct compile_ticket *ticket;
	struct own_secrets own; /* until its end */
	struct feed feed;	/* of an interactive one */
	struct job_run *run;	/* NULL: it waits, and nothing became of it yet */
	bool forked;		/* its interpreter is a fork of a template */
	bool ahead;		/* it has a run that was made before it came */
	bool in_spawn;		/* nsbox-spawn knows the number: END is due */
	bool started;
	uint32_t want_cause; /* why it was killed, NSBOX_CAUSE_NONE: it was not */
	bool has_result;

	/* When finished: */
	int http_status;
	char *reply;
	size_t reply_len;
	char *receipt; /* NULL without memory */
	size_t receipt_len;

	char text[];
};

/* The caller holds the one reference. The spec may come later, but before job_start(). */
int job_new(const struct job_services *sv, uint64_t number, const struct job_ident *ident,
	    struct job **ret, struct nsbox_error *err);
struct job *job_ref(struct job *j);
void job_unref(struct job *j);
void job_start(struct job *j);
/* Its session is made: run in it. */
void job_enter(struct job *j);
/* End it, wherever it is; cause is an enum nsbox_cause. Finished jobs stay as they are. */
void job_cancel(struct job *j, uint32_t cause);
/* Its session has ended under it. */
void job_end(struct job *j, uint32_t cause);
/* It could not be started: its request cannot be had. */
void job_refuse(struct job *j, const struct nsbox_error *why);
/* nsbox-spawn is gone, or the front is about to be. */
void job_interrupt(struct job *j);
/* Back to JOB_QUEUED, where nothing of it has run yet; false: too late. */
bool job_give_back(struct job *j);
/* Secrets are not to be in what is told of it. */
bool job_redacts(const struct job *j);
void job_hide_events(const struct input *hidden, size_t n, struct egress_log *l);
void job_event(struct job *j, struct wire_event *w);

struct journal_row;
void job_row(const struct job *j, struct journal_row *row); /* record.c */
const char *job_cause(const struct job *j);		    /* of a finished one */

/* reply.c: make j->reply and j->http_status of everything that is known. */
void job_make_reply(struct job *j);
/* Layers with their evidence, witness and limits, as replies and receipts say them. */
int job_put_held(struct json_object *o, const struct job *j);
/* receipt.c: make j->receipt, after the reply. */
void job_make_receipt(struct job *j);

#endif
