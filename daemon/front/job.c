/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs: from a request to a reply.
 *
 *	queued -> staging -> compiling -> running -> collecting -> finished
 *
 * Every step is asynchronous and ends in a callback that starts the next. Any step may fail, and a
 * job may be cancelled in any of them; both end in job_finish(), which is the only way out: it
 * undoes what is under way, makes the reply and tells who waits. Here is a job's life and the way
 * to a plan; job_run.c hands it to nsbox-spawn, job_event.c hears what became of it.
 *
 * Time limits are nsbox-spawn's; the backstop here is for a spawn that lives but does not answer.
 */
#include "daemon/front/job.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/common/digest.h"
#include "daemon/front/box_files.h"
#include "daemon/front/job_parts.h"
#include "daemon/front/manifest.h"
#include "daemon/front/session_narrow.h"
#include "daemon/front/snapshot.h"
#include "nsbox/plan_build.h"
#include "nsbox/util.h"

#define CANCEL_MS 15000

/* ------------------------------------------------------------------ life */

/* To where `at` is, and beyond it; NULL is "". */
static const char *copy(char **at, const char *s)
{
	char *here = *at;

	*at = stpcpy(here, s ? s : "") + 1;
	return here;
}

static size_t room(const char *s)
{
	return (s ? strlen(s) : 0) + 1;
}

static uint64_t unix_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Of all for whom there is no memory: they end at once, with this error, and nothing of it is anybody's. */
static struct job_run no_memory;

static void begin_run(struct job_run *run)
{
	run->staged.fd = run->out.fd = run->err.fd = run->result.fd = -1;
}

bool job_has_run(struct job *j)
{
	if (!j->run && (j->run = calloc(1, sizeof(*j->run)))) {
		begin_run(j->run);
	} else if (!j->run) {
		j->run = &no_memory;
		begin_run(j->run);
		nsbox_fail(&j->run->error, NSBOX_E_NOMEM, ENOMEM, "run a job");
	}
	return j->run != &no_memory;
}

int job_new(const struct job_services *sv, uint64_t number, const struct job_ident *ident,
	    struct job **ret, struct nsbox_error *err)
{
	/* In one piece: thousands of them leave no holes between what comes and goes. */
	struct job *j = calloc(1, sizeof(*j) + room(ident->workspace) + room(ident->trace_id) +
					  room(ident->traceparent) + room(ident->key));
	char *at = j ? j->text : NULL;

	if (!j)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "make a job");
	j->sv = sv;
	j->refs = 1;
	j->workspace = copy(&at, ident->workspace);
	j->trace_id = copy(&at, ident->trace_id);
	j->traceparent = copy(&at, ident->traceparent);
	j->key = copy(&at, ident->key);
	j->number = number;
	j->kind = MIN(ident->kind, (uint32_t)JOB_KIND_MAX - 1);
	j->priority = ident->priority;
	j->uid = ident->uid;
	j->sync = ident->sync;
	j->interactive = ident->interactive;
	feed_init(&j->feed, sv->loop);
	j->feed.terminal = ident->tty;
	j->asked_bytes = ident->size;
	snprintf(j->body_sha256, sizeof(j->body_sha256), "%s",
		 ident->body_sha256 ? ident->body_sha256 : "");
	j->created_unix_ms = ident->created_ms ? ident->created_ms : unix_ms();
	j->queued_us = monotonic_us();
	if (ident->id)
		snprintf(j->id, sizeof(j->id), "%s", ident->id);
	else
		snprintf(j->id, sizeof(j->id), "job-%llx-%llu",
			 (unsigned long long)j->created_unix_ms, (unsigned long long)number);
	*ret = j;
	return 0;
}

struct job *job_ref(struct job *j)
{
	j->refs++;
	return j;
}

static void release_run(struct loop *loop, struct job_run *run)
{
	loop_timer_cancel(loop, &run->backstop);
	capture_done(&run->result);
	outputs_done(&run->outputs);
	close_fd(&run->staged.fd);
	free_ptr(&run->staged.manifest);
	free_ptr(&run->staged.notices);
	free_ptr(&run->policy_text);
	free_ptr(&run->plan);
	free_ptr(&run->rules);
	inputs_done(&run->inputs);
}

static void release(struct job *j)
{
	stage_cancel(&j->stage);
	box_files_forget(&j->putting);
	compiler_cancel(&j->ticket);
	if (j->run)
		release_run(j->sv->loop, j->run);
	nsbox_plan_close(take_ptr(&j->narrower));
	job_spec_free(take_ptr(&j->spec));
}

static void free_run(struct job *j)
{
	struct job_run *run = take_ptr(&j->run);

	if (!run || run == &no_memory)
		return;
	capture_done(&run->out);
	capture_done(&run->err);
	egress_log_done(&run->network);
	trace_file_close(&run->trace);
	free(run);
}

void job_unref(struct job *j)
{
	if (!j || --j->refs)
		return;
	release(j);
	feed_done(&j->feed);
	own_done(&j->own);
	if (j->session)
		session_leave(take_ptr(&j->session), NULL);
	free_run(j); /* only here: a stream may still read its output */
	free(j->body);
	free(j->reply);
	free(j->receipt);
	free(j);
}

uint64_t job_sandbox(const struct job *j)
{
	return j->session ? j->session->number : j->number;
}

static int tell_spawn(struct job *j, uint32_t kind, uint32_t arg)
{
	struct wire_request q = {
		.kind = kind, .sandbox = job_sandbox(j), .exec = j->number, .arg = arg
	};

	return link_send(j->sv->link, &q, NULL, 0, NULL);
}

void job_hear_network(struct job *j)
{
	if (j->in_spawn && j->run->network.used)
		(j->session ? network_flush : network_settle)(j->sv->network, job_sandbox(j));
}

/* The only way to JOB_FINISHED. */
void job_finish(struct job *j)
{
	if (j->phase == JOB_FINISHED)
		return;
	(void)job_has_run(j); /* where not, it says so */
	job_hear_network(j);
	if (j->in_spawn && !j->session)
		tell_spawn(j, WIRE_END, 0);
	else if (j->in_spawn && j->session->state == SESSION_UP)
		tell_spawn(j, WIRE_KILL, NSBOX_CAUSE_CANCELLED); /* it did not end when told to */
	j->in_spawn = false;
	capture_finish(&j->run->out);
	capture_finish(&j->run->err);
	capture_finish(&j->run->result);
	feed_done(&j->feed);
	j->finished_us = monotonic_us();
	j->finished_unix_ms = unix_ms();
	if (!j->started_us)
		j->started_us = j->finished_us;
	j->run->network.refused_at_once = j->run->network.used ? j->run->res.refused : 0;
	job_hide(j);
	job_make_reply(j);
	job_hide_names(j);
	job_make_receipt(j);
	j->phase = JOB_FINISHED;
	own_done(&j->own);
	release(j);
	if (j->session)
		session_leave(take_ptr(&j->session), j);
	j->sv->finished(j->sv->ctx, j);
}

void job_fail(struct job *j, const struct nsbox_error *why)
{
	if (job_has_run(j) && j->run->error.code == 0)
		j->run->error = *why;
	job_finish(j);
}

/* It was ended before it had a result of its own. */
void job_finish_as(struct job *j, uint32_t cause)
{
	j->has_result = job_has_run(j);
	if (j->has_result)
		j->run->res = (struct nsbox_result){ .cause = cause };
	job_finish(j);
}

static void on_backstop(void *ctx)
{
	struct job *j = ctx;
	struct nsbox_error err = { 0 };

	if (j->want_cause != NSBOX_CAUSE_NONE) {
		job_finish_as(j, j->want_cause); /* it did not end when told to: END makes it */
		return;
	}
	nsbox_fail(&err, NSBOX_E_PROTOCOL, ETIMEDOUT, "nsbox-spawn did not answer in time");
	job_fail(j, &err);
}

void job_set_backstop(struct job *j, uint64_t ms)
{
	j->run->backstop.fn = on_backstop;
	j->run->backstop.ctx = j;
	loop_timer_set(j->sv->loop, &j->run->backstop, ms * 1000);
}

void job_cancel(struct job *j, uint32_t cause)
{
	if (j->phase == JOB_FINISHED || j->want_cause != NSBOX_CAUSE_NONE)
		return;
	j->want_cause = cause;
	if (j->phase == JOB_COLLECTING) {
		job_finish(j); /* it has a result, and keeps it */
		return;
	}
	if (j->phase != JOB_RUNNING || !j->started) {
		job_finish_as(j, cause);
		return;
	}
	tell_spawn(j, WIRE_KILL, cause);
	job_set_backstop(j, CANCEL_MS + (j->run->plan ? j->run->plan->limits.grace_ms : 0));
}

void job_end(struct job *j, uint32_t cause)
{
	if (j->phase != JOB_FINISHED)
		job_finish_as(j, cause);
}

void job_interrupt(struct job *j)
{
	job_end(j, NSBOX_CAUSE_INTERRUPTED);
}

void job_refuse(struct job *j, const struct nsbox_error *why)
{
	if (j->phase != JOB_FINISHED)
		job_fail(j, why);
}

bool job_give_back(struct job *j)
{
	if ((j->phase != JOB_STAGING && j->phase != JOB_COMPILING) || j->session)
		return false; /* a session ends with this service */
	release(j);
	free_run(j);
	j->phase = JOB_QUEUED;
	j->started_us = j->started_unix_ms = j->staged_us = j->compiled_us = 0;
	return true;
}

/* ------------------------------------------------------------------ to a plan */

void job_hash_manifest(struct json_object *manifest, char ret[65])
{
	size_t len;
	const char *text =
		manifest ? json_object_to_json_string_length(
				   manifest,
				   JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &len)
			 : NULL;

	*ret = 0;
	if (text)
		(void)digest_hex(text, len, ret, NULL);
}

static void hash_manifest(struct job *j)
{
	const struct snapshot *from = j->session ? j->session->from : NULL;

	if (from)
		memcpy(j->run->manifest_sha256, from->recipe.manifest_sha256,
		       sizeof(j->run->manifest_sha256));
	else if (j->run->staged.manifest)
		(void)digest_hex(j->run->staged.manifest, j->run->staged.manifest_len,
				 j->run->manifest_sha256, NULL);
	else
		job_hash_manifest(j->spec->manifest, j->run->manifest_sha256);
}

/* What is compiled: of the request, or of what its session begins with. */
static int policy_text(struct job *j, size_t *ret_len, struct nsbox_error *err)
{
	const struct snapshot *from = j->session ? j->session->from : NULL;
	int r;

	free_ptr(&j->run->policy_text);
	if (!from)
		return manifest_for(j->spec, j->run->staged.manifest, j->run->staged.manifest_len,
				    &j->run->policy_text, ret_len, err);
	memcpy(j->run->staged.skill_dir, from->recipe.skill_dir, sizeof(j->run->staged.skill_dir));
	r = snapshot_manifest(from, &j->run->policy_text, err);
	*ret_len = j->run->policy_text ? from->recipe.manifest_len : 0;
	return r;
}

static uint64_t wall_of(const struct job *j)
{
	uint64_t policy = j->run->plan->limits.wall_ms;

	/* The policy is the session's; a command may only be shorter. */
	if (j->session)
		return j->spec->timeout_ms ? j->spec->timeout_ms : policy;
	/* The request's own wish is in the policy already; an entry point may only be shorter. */
	if (!j->spec->timeout_ms && j->run->plan->timeout_ms &&
	    (policy == 0 || j->run->plan->timeout_ms < policy))
		return j->run->plan->timeout_ms;
	return policy;
}

static void fail_run(struct job *j, const struct nsbox_error *why)
{
	if (why->code == NSBOX_E_PROTOCOL)
		job_interrupt(j); /* nsbox-spawn is gone, and the front will hear of it next */
	else
		job_fail(j, why);
}

static void on_compiled(void *ctx, const struct compile_reply *reply, int plan_fd)
{
	struct job *j = ctx;
	struct nsbox_error err = { 0 };

	j->ticket = NULL;
	if (reply->error.code != 0) {
		err = reply->error;
		manifest_locate(j->spec, &err);
		job_fail(j, &err);
		return;
	}
	j->run->plan = malloc(sizeof(*j->run->plan));
	if (!j->run->plan) {
		nsbox_fail(&err, NSBOX_E_NOMEM, ENOMEM, "keep a plan");
		job_fail(j, &err);
		return;
	}
	*j->run->plan = *reply;
	j->compiled_us = monotonic_us();
	memcpy(j->run->policy_sha256, reply->digest, sizeof(j->run->policy_sha256));
	j->run->wall_ms = wall_of(j);
	j->phase = JOB_RUNNING;
	if (job_start_run(j, plan_fd, &err) < 0)
		fail_run(j, &err);
}

static void compile(struct job *j)
{
	struct compile_request q;
	struct compile_ticket *ticket = NULL;
	struct nsbox_error err = { 0 };
	size_t len = 0;

	j->staged_us = monotonic_us();
	hash_manifest(j);
	if (policy_text(j, &len, &err) < 0) {
		job_fail(j, &err);
		return;
	}
	memset(&q, 0, sizeof(q));
	memcpy(&q.host, &j->sv->host, sizeof(q.host));
	memcpy(&q.ceiling, &j->sv->ceiling, sizeof(q.ceiling));
	/* What makes a session makes it for commands, too: its policy is theirs. */
	if (j->kind == JOB_PYTHON && !j->session)
		q.flags |= COMPILE_PYTHON;
	else if (j->kind != JOB_PYTHON && !j->spec->argv && j->kind != JOB_SESSION)
		q.flags |= COMPILE_ENTRYPOINT;
	if (j->spec->stdin_data.data || j->interactive)
		q.flags |= COMPILE_STDIN;
	if (j->spec->as_operator)
		q.flags |= COMPILE_OPERATOR;
	strcpy(q.skill_dir, j->run->staged.skill_dir);
	if (j->spec->entrypoint)
		snprintf(q.entrypoint, sizeof(q.entrypoint), "%s", j->spec->entrypoint);
	j->phase = JOB_COMPILING;
	/* on_compiled() may run, and even finish the job, before this returns. */
	job_ref(j);
	if (compiler_start(j->sv->compiler, &q, j->run->policy_text, len, on_compiled, j, &ticket,
			   &err) < 0)
		job_fail(j, &err);
	else if (ticket)
		j->ticket = ticket;
	job_unref(j);
}

static void on_staged(void *ctx, const struct nsbox_error *why, struct staged *what)
{
	struct job *j = ctx;

	j->stage = NULL;
	if (why) {
		job_fail(j, why);
		return;
	}
	j->run->staged = *what;
	job_spec_drop_files(j->spec); /* they are in the stream now, and a run may be long */
	compile(j);
}

void job_start(struct job *j)
{
	struct nsbox_error err = { 0 };

	enum session_turn turn;

	j->started_us = monotonic_us();
	j->phase = JOB_STAGING;
	if (!job_has_run(j)) {
		job_finish(j);
		return;
	}
	turn = j->session ? session_begin(j->session, j) : SESSION_MAKE;
	if (turn == SESSION_ENTER)
		job_enter(j);
	if (turn != SESSION_MAKE)
		return;
	if (stage_start(j->sv->loop, j->sv->unpacker, j->spec, on_staged, j, &j->stage, &err) < 0)
		job_fail(j, &err);
}

/* ------------------------------------------------------------------ in a session that is there */

/* What a later command of a session wants handed back, besides what the policy says. */
static int add_own_outputs(struct job *j, struct nsbox_error *err)
{
	for (char *const *glob = j->spec->outputs; glob && *glob; glob++) {
		struct wire_output *rule = &j->run->rules[j->run->n_rules];

		if (j->run->n_rules == WIRE_OUTPUTS_MAX)
			return nsbox_fail(err, NSBOX_E_LIMIT, 0, "more than %d outputs",
					  WIRE_OUTPUTS_MAX);
		if (!**glob || strlen(*glob) >= sizeof(rule->glob))
			return nsbox_fail(err, NSBOX_E_INVALID, 0,
					  "/outputs: a pattern has 1 to %zu bytes",
					  sizeof(rule->glob) - 1);
		strcpy(rule->glob, *glob);
		rule->max_bytes = OUTPUT_DEFAULT_BYTES;
		rule->max_files = OUTPUT_DEFAULT_FILES;
		j->run->n_rules++;
	}
	return 0;
}

static void enter(struct job *j);

static void on_put(void *ctx, const struct nsbox_error *why)
{
	struct job *j = ctx;
	struct nsbox_error err = { 0 };

	j->putting = NULL;
	if (j->session->state == SESSION_OVER || (why && why->code == NSBOX_E_CANCELLED))
		return; /* what ends its sandbox ends it, and says why */
	if (!why) {
		enter(j);
		return;
	}
	err = *why;
	nsbox_error_prefix(&err, "/files");
	j->refused = box_files_status(why);
	job_fail(j, &err);
}

static void on_put_staged(void *ctx, const struct nsbox_error *why, struct staged *what)
{
	struct job *j = ctx;

	j->stage = NULL;
	if (why) {
		job_fail(j, why);
		return;
	}
	j->run->staged = *what;
	job_spec_drop_files(j->spec);
	j->staged_us = monotonic_us();
	enter(j);
}

/* Its files, before it runs; false: there are none, or none any more. */
static bool put_files(struct job *j)
{
	struct nsbox_error err = { 0 };
	int r;

	if (j->spec->n_files || j->spec->archive.data)
		r = stage_start(j->sv->loop, j->sv->unpacker, j->spec, on_put_staged, j, &j->stage,
				&err);
	else if (j->run->staged.fd >= 0)
		r = box_files_put(j->session->f, j->session->number, &j->run->staged.fd, on_put, j,
				  &j->putting, &err);
	else
		return false;
	j->phase = JOB_STAGING;
	if (r < 0) {
		j->refused = box_files_status(&err);
		job_fail(j, &err);
	}
	return true;
}

/* It is there; how this command runs in it is settled. Where its files are being taken, the thaw asks
 * again (job_enter()). */
static void enter(struct job *j)
{
	struct nsbox_error err = { 0 };

	if (j->session->frozen) {
		j->phase = JOB_STAGING;
		return;
	}
	if (put_files(j))
		return;
	j->run->wall_ms = wall_of(j);
	j->phase = JOB_RUNNING;
	if (job_settle(j, &err) < 0 || job_run(j, &err) < 0)
		fail_run(j, &err);
}

static void enter_refused(struct job *j, int r, struct nsbox_error *err)
{
	j->refused = r == -EEXIST ? 409 : 0;
	manifest_locate(j->spec, err);
	job_fail(j, err);
}

/* A manifest of its own, and no wider than the session's: what it says of outputs is all there is. */
static int take_narrower(struct job *j, const struct compile_reply *reply, int plan_fd,
			 struct nsbox_error *err)
{
	const struct session *s = j->session;
	int r = session_compared(s, reply, err);

	if (r == 0)
		r = session_network_same(s, plan_fd, err);
	if (r == 0)
		r = nsbox_plan_open(plan_fd, &j->narrower, err);
	if (r == 0)
		r = job_plan_facts(plan_fd, j->run->plan_sha256, &j->run->rules, &j->run->n_rules,
				   err);
	if (r < 0)
		return r;
	j->run->plan = malloc(sizeof(*j->run->plan));
	if (!j->run->plan)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "keep a plan");
	*j->run->plan = *reply;
	j->run->network.used = s->network.rules != NULL;
	job_hash_manifest(j->spec->manifest, j->run->manifest_sha256);
	if (!*j->run->manifest_sha256)
		memcpy(j->run->manifest_sha256, s->manifest_sha256,
		       sizeof(j->run->manifest_sha256));
	memcpy(j->run->policy_sha256, reply->digest, sizeof(j->run->policy_sha256));
	memcpy(j->run->image_digest, s->image_digest, sizeof(j->run->image_digest));
	return 0;
}

static void on_narrower(void *ctx, const struct compile_reply *reply, int plan_fd)
{
	struct job *j = ctx;
	struct nsbox_error err = reply->error;
	int r = err.code ? (reply->base_digest[0] ? -EEXIST : -EINVAL) : 0;

	j->ticket = NULL;
	j->compiled_us = monotonic_us();
	if (r == 0 && j->session->frozen) {
		j->phase = JOB_STAGING; /* the thaw asks again, of the cache */
		return;
	}
	if (r == 0)
		r = take_narrower(j, reply, plan_fd, &err);
	if (r < 0)
		enter_refused(j, r, &err);
	else
		enter(j);
}

/* on_narrower() may run, and even finish the job, before this returns. */
static void compile_narrower(struct job *j)
{
	struct compile_ticket *ticket = NULL;
	struct nsbox_error err = { 0 };
	uint32_t flags = j->kind == JOB_COMMAND && !j->spec->argv ? COMPILE_ENTRYPOINT : 0;
	int r;

	if (j->spec->stdin_data.data || j->interactive)
		flags |= COMPILE_STDIN;
	free_ptr(&j->run->policy_text);
	j->phase = JOB_COMPILING;
	job_ref(j);
	r = session_compile(j->session, j->spec, flags, on_narrower, j, &ticket,
			    &j->run->policy_text, &err);
	if (r < 0)
		enter_refused(j, r, &err);
	else if (ticket)
		j->ticket = ticket;
	job_unref(j);
}

/* What the session's commands have. */
static int take_common(struct job *j, struct nsbox_error *err)
{
	const struct session *s = j->session;

	j->run->plan = malloc(sizeof(*j->run->plan));
	j->run->rules = calloc(WIRE_OUTPUTS_MAX, sizeof(*j->run->rules));
	if (!j->run->plan || !j->run->rules)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "keep a plan");
	*j->run->plan = *s->plan;
	if (s->n_rules)
		memcpy(j->run->rules, s->rules, s->n_rules * sizeof(*j->run->rules));
	j->run->n_rules = s->n_rules;
	j->run->network.used = s->network.rules != NULL;
	memcpy(j->run->manifest_sha256, s->manifest_sha256, sizeof(j->run->manifest_sha256));
	memcpy(j->run->policy_sha256, s->policy_sha256, sizeof(j->run->policy_sha256));
	memcpy(j->run->plan_sha256, s->plan_sha256, sizeof(j->run->plan_sha256));
	memcpy(j->run->image_digest, s->image_digest, sizeof(j->run->image_digest));
	return add_own_outputs(j, err);
}

void job_enter(struct job *j)
{
	struct nsbox_error err = { 0 };

	if (j->stage || j->putting)
		return; /* on its way: it was a thaw that asked */
	if (j->run->plan)
		enter(j);
	else if (session_differs(j->session, j->spec))
		compile_narrower(j);
	else if (take_common(j, &err) < 0)
		job_fail(j, &err);
	else
		enter(j);
}
