/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: from a request to a reply. */
#ifndef FRONT_JOB_H
#define FRONT_JOB_H

#include "daemon/common/compile.h"
#include "daemon/common/pycall.h"
#include "daemon/front/capture.h"
#include "daemon/front/compiler.h"
#include "daemon/front/link.h"
#include "daemon/front/outputs.h"
#include "daemon/front/queue.h"
#include "daemon/front/request.h"
#include "daemon/front/stage.h"

struct job;

/* What jobs need of the front; lives as long as it. */
struct job_services {
	struct loop *loop;
	struct link *link;
	struct compiler *compiler;
	const char *unpacker;
	struct nsbox_host host;
	/* The job is over: its reply is there. Called once per job that was started or cancelled. */
	void (*finished)(void *ctx, struct job *job);
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

struct job {
	const struct job_services *sv;
	unsigned refs;
	uint64_t number; /* of the sandbox on the wire, too */
	char id[40];
	enum job_phase phase;
	struct job_spec *spec; /* NULL once finished */
	uint64_t asked_bytes;  /* of the request */
	uint32_t kind;
	char *workspace, *trace_id;
	struct queue_entry wait;
	struct job *prev, *next; /* the front's list, oldest first */

	uint64_t created_unix_ms, queued_us, started_us, finished_us;
	struct stage *stage;
	struct compile_ticket *ticket;
	struct staged staged;
	struct compile_reply *plan; /* what the compiler said */
	uint64_t wall_ms;
	struct capture out, err, result;
	struct outputs outputs;
	struct wire_output *rules;
	uint32_t n_rules;
	struct loop_timer backstop;
	bool in_spawn; /* nsbox-spawn knows the number: END is due */
	bool started;
	uint32_t want_cause; /* why it was killed, NSBOX_CAUSE_NONE: it was not */
	bool has_result;
	struct nsbox_result res;
	struct nsbox_error error; /* code 0: the run took place */

	/* When finished: */
	int http_status;
	char *reply;
	size_t reply_len;
	/* Who waits for it; cleared before it is called. */
	void (*done)(void *ctx, struct job *job);
	void *done_ctx;
};

/* Takes the spec. The caller holds the one reference. */
int job_new(const struct job_services *sv, uint64_t number, struct job_spec *spec, struct job **ret,
	    struct nsbox_error *err);
struct job *job_ref(struct job *j);
void job_unref(struct job *j);
void job_start(struct job *j);
/* End it, wherever it is; cause is an enum nsbox_cause. Finished jobs stay as they are. */
void job_cancel(struct job *j, uint32_t cause);
/* nsbox-spawn is gone, or the front is about to be. */
void job_interrupt(struct job *j);
void job_event(struct job *j, struct nsbox_event *ev);

const char *job_state_name(const struct job *j);

/* reply.c: make j->reply and j->http_status of everything that is known. */
void job_make_reply(struct job *j);

#endif
