/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs: from a request to a reply.
 *
 *	queued -> staging -> compiling -> running -> collecting -> finished
 *
 * Every step is asynchronous and ends in a callback that starts the next. Any step may fail, and a
 * job may be cancelled in any of them; both end in finish(), which is the only way out: it undoes
 * what is under way, makes the reply and tells who waits.
 *
 * Time limits are nsbox-spawn's; the backstop here is for a spawn that lives but does not answer.
 */
#include "daemon/front/job.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/common/digest.h"
#include "daemon/front/manifest.h"
#include "daemon/front/snapshot.h"
#include "nsbox/plan_build.h"
#include "nsbox/util.h"

#define FLOOD_BYTES (UINT64_C(1) << 30) /* output that ends a run, kept or not */
#define BACKSTOP_MS 30000
#define CANCEL_MS   15000
#define COLLECT_MS  60000

/* ------------------------------------------------------------------ life */

static char *copy(const char *s)
{
	return strdup(s ? s : "");
}

static uint64_t unix_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int job_new(const struct job_services *sv, uint64_t number, const struct job_ident *ident,
	    struct job **ret, struct nsbox_error *err)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "make a job");
	j->sv = sv;
	j->refs = 1;
	j->staged.fd = j->out.fd = j->err.fd = j->result.fd = -1;
	j->workspace = copy(ident->workspace);
	j->trace_id = copy(ident->trace_id);
	j->traceparent = copy(ident->traceparent);
	j->key = copy(ident->key);
	if (!j->workspace || !j->trace_id || !j->traceparent || !j->key) {
		job_unref(j);
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "make a job");
	}
	j->number = number;
	j->kind = MIN(ident->kind, (uint32_t)JOB_KIND_MAX - 1);
	j->priority = ident->priority;
	j->uid = ident->uid;
	j->sync = ident->sync;
	j->interactive = ident->interactive;
	feed_init(&j->feed, sv->loop);
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

static void release(struct job *j)
{
	stage_cancel(&j->stage);
	compiler_cancel(&j->ticket);
	loop_timer_cancel(j->sv->loop, &j->backstop);
	capture_done(&j->result);
	outputs_done(&j->outputs);
	close_fd(&j->staged.fd);
	free_ptr(&j->staged.manifest);
	free_ptr(&j->staged.notices);
	free_ptr(&j->policy_text);
	free_ptr(&j->plan);
	free_ptr(&j->rules);
	inputs_done(&j->inputs);
	job_spec_free(take_ptr(&j->spec));
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
	capture_done(&j->out); /* only here: a stream may still read it */
	capture_done(&j->err);
	free(j->workspace);
	free(j->trace_id);
	free(j->traceparent);
	free(j->key);
	free(j->body);
	free(j->reply);
	free(j->receipt);
	egress_log_done(&j->network);
	trace_file_close(&j->trace);
	free(j);
}

static uint64_t sandbox_of(const struct job *j)
{
	return j->session ? j->session->number : j->number;
}

static int tell_spawn(struct job *j, uint32_t kind, uint32_t arg)
{
	struct wire_request q = {
		.kind = kind, .sandbox = sandbox_of(j), .exec = j->number, .arg = arg
	};

	return link_send(j->sv->link, &q, NULL, 0, NULL);
}

/* A reply that is kept is kept without secrets; one that a caller waits for, as it wishes. */
bool job_redacts(const struct job *j)
{
	return j->inputs.n_hidden > 0 && (!j->sync || (j->spec && j->spec->redact));
}

/* Files cannot be redacted and stay what they are. */
static void hold_back(struct job *j)
{
	for (size_t i = 0; job_redacts(j) && i < j->outputs.n; i++) {
		struct output_file *f = &j->outputs.files[i];

		if (!f->note &&
		    redact_finds(j->inputs.hidden, j->inputs.n_hidden, f->data, f->size))
			f->note = (char *)"it holds a secret of the run";
	}
}

/* The only way to JOB_FINISHED. */
static void finish(struct job *j)
{
	if (j->phase == JOB_FINISHED)
		return;
	if (j->in_spawn && j->network.used)
		(j->session ? network_flush : network_settle)(j->sv->network, sandbox_of(j));
	if (j->in_spawn && !j->session)
		tell_spawn(j, WIRE_END, 0);
	else if (j->in_spawn && j->session->state == SESSION_UP)
		tell_spawn(j, WIRE_KILL, NSBOX_CAUSE_CANCELLED); /* it did not end when told to */
	j->in_spawn = false;
	capture_finish(&j->out);
	capture_finish(&j->err);
	capture_finish(&j->result);
	feed_done(&j->feed);
	j->finished_us = monotonic_us();
	j->finished_unix_ms = unix_ms();
	if (!j->started_us)
		j->started_us = j->finished_us;
	hold_back(j);
	job_make_reply(j);
	job_make_receipt(j);
	j->phase = JOB_FINISHED;
	own_done(&j->own);
	release(j);
	if (j->session)
		session_leave(take_ptr(&j->session), j);
	j->sv->finished(j->sv->ctx, j);
}

static void fail(struct job *j, const struct nsbox_error *why)
{
	if (j->error.code == 0)
		j->error = *why;
	finish(j);
}

/* It was ended before it had a result of its own. */
static void finish_as(struct job *j, uint32_t cause)
{
	j->has_result = true;
	j->res = (struct nsbox_result){ .cause = cause };
	finish(j);
}

static void on_backstop(void *ctx)
{
	struct job *j = ctx;
	struct nsbox_error err = { 0 };

	if (j->want_cause != NSBOX_CAUSE_NONE) {
		finish_as(j, j->want_cause); /* it did not end when told to: END makes it */
		return;
	}
	nsbox_fail(&err, NSBOX_E_PROTOCOL, ETIMEDOUT, "nsbox-spawn did not answer in time");
	fail(j, &err);
}

static void set_backstop(struct job *j, uint64_t ms)
{
	j->backstop.fn = on_backstop;
	j->backstop.ctx = j;
	loop_timer_set(j->sv->loop, &j->backstop, ms * 1000);
}

void job_cancel(struct job *j, uint32_t cause)
{
	if (j->phase == JOB_FINISHED || j->want_cause != NSBOX_CAUSE_NONE)
		return;
	j->want_cause = cause;
	if (j->phase == JOB_COLLECTING) {
		finish(j); /* it has a result, and keeps it */
		return;
	}
	if (j->phase != JOB_RUNNING || !j->started) {
		finish_as(j, cause);
		return;
	}
	tell_spawn(j, WIRE_KILL, cause);
	set_backstop(j, CANCEL_MS + (j->plan ? j->plan->limits.grace_ms : 0));
}

void job_end(struct job *j, uint32_t cause)
{
	if (j->phase != JOB_FINISHED)
		finish_as(j, cause);
}

void job_interrupt(struct job *j)
{
	job_end(j, NSBOX_CAUSE_INTERRUPTED);
}

void job_refuse(struct job *j, const struct nsbox_error *why)
{
	if (j->phase != JOB_FINISHED)
		fail(j, why);
}

bool job_give_back(struct job *j)
{
	if ((j->phase != JOB_STAGING && j->phase != JOB_COMPILING) || j->session)
		return false; /* a session ends with this service */
	release(j);
	j->phase = JOB_QUEUED;
	j->started_us = j->started_unix_ms = 0;
	return true;
}

static void on_flood(void *ctx)
{
	job_cancel(ctx, NSBOX_CAUSE_OUTPUT);
}

static void on_grew(void *ctx)
{
	struct job *j = ctx;

	j->sv->news(j->sv->ctx, j);
}

/* ------------------------------------------------------------------ running */

static void session_is_ready(struct job *j, const struct nsbox_result *set_up)
{
	j->has_result = true;
	j->res = *set_up;
	finish(j);
}

/*
 * The plan's hash, for the receipt, and what is to be collected: that is in the plan, from the
 * manifest and from the request alike.
 */
static int read_plan(struct job *j, int plan_fd, struct nsbox_error *err)
{
	const struct output_rule *rule;
	struct blob b;
	size_t n = 0;
	int r = blob_map(plan_fd, PLAN_MAGIC, &b, err);

	if (r < 0)
		return r;
	r = digest_hex(b.base, b.size, j->plan_sha256, err);
	if (r < 0) {
		blob_unmap(&b);
		return r;
	}
	blob_get(&b, SEC_EGRESS, 1, &n);
	j->network.used = n > 0;
	rule = blob_get(&b, SEC_OUTPUTS, sizeof(*rule), &n);
	if (n > WIRE_OUTPUTS_MAX)
		r = nsbox_fail(err, NSBOX_E_LIMIT, 0, "more than %d outputs", WIRE_OUTPUTS_MAX);
	j->rules = r == 0 && n ? calloc(n, sizeof(*j->rules)) : NULL;
	if (r == 0 && n && !j->rules)
		r = nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read outputs");
	for (size_t i = 0; j->rules && i < n; i++) {
		const char *glob = blob_get_str(&b, rule[i].glob);

		if (strlen(glob) >= sizeof(j->rules[i].glob)) {
			r = nsbox_fail(err, NSBOX_E_LIMIT, 0, "an output's pattern is too long");
			break;
		}
		strcpy(j->rules[i].glob, glob);
		j->rules[i].max_bytes = rule[i].max_bytes;
		j->rules[i].max_files = rule[i].max_files;
		j->n_rules++;
	}
	blob_unmap(&b);
	return r;
}

/* The caller's word goes before the manifest's. */
static const char *image_of(const struct job *j)
{
	return j->spec->image ? j->spec->image : j->plan->image;
}

static int send_new(struct job *j, int plan_fd, struct nsbox_error *err)
{
	struct wire_request q = { .kind = WIRE_NEW, .sandbox = sandbox_of(j) };
	const struct snapshot *from = j->session ? j->session->from : NULL;
	const char *image = from ? from->recipe.image : image_of(j);
	int fds[3] = { plan_fd }, r = 0;
	auto_close int upper = -1;
	unsigned n = 1;

	if (image)
		snprintf(q.image, sizeof(q.image), "%s", image);
	if (j->session)
		q.arg |= WIRE_NEW_TRACK;
	if (j->staged.fd >= 0) {
		q.arg |= WIRE_NEW_FILES;
		fds[n++] = j->staged.fd;
	}
	if (from) {
		memcpy(q.image_digest, from->recipe.image_digest, sizeof(q.image_digest));
		q.arg |= WIRE_NEW_UPPER;
		r = snapshot_stream(from, &upper, err);
		fds[n++] = upper;
	}
	if (r == 0)
		r = link_send(j->sv->link, &q, fds, n, err);
	if (r == 0 && !j->session)
		j->in_spawn = true;
	close_fd(&j->staged.fd);
	return r;
}

/* The descriptors of the run; those of `io` that are not -1 are the caller's to close. */
static int make_io(struct job *j, struct nsbox_io *io, struct nsbox_error *err)
{
	const struct nsbox_policy_limits *lim = &j->plan->limits;
	int r = 0;

	j->out.flood = j->err.flood = on_flood;
	j->out.grew = j->err.grew = on_grew;
	j->out.ctx = j->err.ctx = j;
	if (job_redacts(j)) {
		const struct redact hide = { .hidden = j->inputs.hidden, .n = j->inputs.n_hidden };

		j->out.redact = j->err.redact = hide; /* each with its own buffer */
	}
	j->out.flood_at = lim->stdout_max + FLOOD_BYTES;
	j->err.flood_at = lim->stderr_max + FLOOD_BYTES;
	if (j->spec->stdin_data.data) {
		io->in = make_memfd("nsbox-stdin", j->spec->stdin_data.data,
				    j->spec->stdin_data.len, true);
		if (io->in < 0)
			return nsbox_fail(err, NSBOX_E_NOMEM, -io->in, "pass on standard input");
	}
	if (j->interactive)
		r = feed_open(&j->feed, &io->in, err);
	if (r == 0 && !j->spec->tty)
		r = capture_pipe(&j->out, j->sv->loop, lim->stdout_max, &io->out, err);
	if (r == 0 && !j->spec->tty)
		r = capture_pipe(&j->err, j->sv->loop, lim->stderr_max, &io->err, err);
	if (r == 0 && j->kind == JOB_PYTHON)
		r = capture_pipe(&j->result, j->sv->loop, lim->result_max, &io->result, err);
	if (r == 0 && j->spec->trace)
		r = trace_file_open(&j->trace, err);
	io->trace = j->trace.table ? j->trace.fd : -1;
	return r;
}

static void describe_call(const struct job *j, struct pycall *c)
{
	*c = (struct pycall){ .code = j->spec->code,
			      .function = j->spec->function,
			      .params = j->spec->params,
			      .noexec = j->plan->noexec_len ? j->plan->noexec : NULL,
			      .noexec_len = j->plan->noexec_len,
			      .memory = j->plan->limits.memory,
			      .wall_ms = j->wall_ms,
			      .expression = j->spec->expression,
			      .path = (const char *const *)j->spec->python.path,
			      .compat = j->spec->compat };
}

/* NULL-terminated array into the reply's packed strings; the caller frees the array alone. */
static const char **entry_argv(const struct compile_reply *p)
{
	const char **argv = calloc(p->command_args + 1, sizeof(*argv));
	const char *s = p->command;

	for (uint32_t i = 0; argv && i < p->command_args && s < p->command + p->command_len; i++) {
		argv[i] = s;
		s += strlen(s) + 1;
	}
	return argv;
}

/* Of the inputs, then of the request; the strings are borrowed. */
static const char **joined_env(const struct job *j)
{
	char *const *lists[] = { j->inputs.env, j->spec->env };
	size_t n = 0, at = 0;
	const char **all;

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		for (char *const *v = lists[i]; v && *v; v++)
			n++;
	all = calloc(n + 1, sizeof(*all));
	for (size_t i = 0; all && i < ARRAY_SIZE(lists); i++)
		for (char *const *v = lists[i]; v && *v; v++)
			all[at++] = *v;
	return all;
}

static int encode_exec(struct job *j, int *ret_fd, struct nsbox_error *err)
{
	auto_free const char **entry = NULL, **env = joined_env(j);
	const char *python[PYCALL_ARGV];
	struct nsbox_exec ex = { .env = env,
				 .cwd = j->spec->cwd,
				 .wall_ms = j->wall_ms,
				 .keep_rest = j->session != NULL,
				 .tty = j->spec->tty,
				 .tty_rows = 24,
				 .tty_cols = 80 };

	if (!env)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "the run's variables");
	if (j->kind == JOB_PYTHON) {
		memcpy(python, pycall_argv, sizeof(python));
		if (j->spec->python.interpreter)
			python[0] = j->spec->python.interpreter;
		ex.argv = python;
	} else if (j->spec->argv) {
		ex.argv = (const char *const *)j->spec->argv;
	} else {
		entry = entry_argv(j->plan);
		if (!entry)
			return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "the entry point's command");
		ex.argv = entry;
		if (!ex.cwd && j->plan->cwd[0])
			ex.cwd = j->plan->cwd;
	}
	return nsbox_exec_encode(&ex, ret_fd, err);
}

static int send_exec(struct job *j, const struct nsbox_io *io, struct nsbox_error *err)
{
	const int have[] = { io->in, io->out, io->err, io->request, io->result, io->trace };
	struct wire_request q = { .kind = WIRE_EXEC, .sandbox = sandbox_of(j), .exec = j->number };
	auto_close int blob = -1;
	int fds[WIRE_FDS_MAX], r;
	unsigned n = 1;

	r = encode_exec(j, &blob, err);
	if (r < 0)
		return r;
	fds[0] = blob;
	for (unsigned i = 0; i < ARRAY_SIZE(have); i++) {
		if (have[i] < 0)
			continue;
		q.arg |= 1u << i;
		fds[n++] = have[i];
	}
	r = link_send(j->sv->link, &q, fds, n, err);
	if (r == 0)
		j->in_spawn = true;
	return r;
}

/* Parameters are keyword arguments that the request need not repeat. */
static int add_parameters(struct job *j, struct nsbox_error *err)
{
	struct json_object *all = json_object_new_object();

	if (!all)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "pass on parameters");
	json_object_object_foreach (j->inputs.config, id, value) {
		json_object_object_add(all, id, json_object_get(value));
	}
	if (j->spec->params) {
		json_object_object_foreach (j->spec->params, key, own) {
			json_object_object_add(all, key, json_object_get(own));
		}
	}
	json_object_put(j->spec->params);
	j->spec->params = all;
	return 0;
}

/*
 * Secrets and parameters: what the manifest asks for, from the request and from the operator. Files
 * of them are there since a session was made; its other commands get variables alone.
 */
static int settle(struct job *j, struct nsbox_error *err)
{
	int r = secrets_settle(j->sv->kept, j->workspace, j->plan->inputs, &j->own, j->spec->config,
			       &j->inputs, err);

	if (r == 0 && (!j->session || j->makes_session))
		r = inputs_put_files(&j->inputs, &j->staged.fd, err);
	if (r == 0 && j->kind == JOB_PYTHON && json_object_object_length(j->inputs.config))
		r = add_parameters(j, err);
	return r;
}

/* The program: where its sandbox is, or is being made. */
static int run_program(struct job *j, struct nsbox_error *err)
{
	struct nsbox_io io = NSBOX_IO_NONE;
	struct pycall call;
	int r = make_io(j, &io, err);

	if (r == 0 && j->kind == JOB_PYTHON) {
		describe_call(j, &call);
		r = pycall_encode(&call, &io.request, err);
	}
	if (r == 0)
		r = send_exec(j, &io, err);
	/* Ours must go: the end of a stream is when all its writers are gone. */
	close_fd(&io.in);
	close_fd(&io.out);
	close_fd(&io.err);
	close_fd(&io.request);
	close_fd(&io.result);
	if (r == 0 && j->wall_ms)
		set_backstop(j, j->wall_ms + j->plan->limits.grace_ms + BACKSTOP_MS);
	return r;
}

static int check_timeout(const struct job *j, struct nsbox_error *err)
{
	uint64_t most = j->plan->limits.wall_ms;

	if (j->session && most && j->spec->timeout_ms > most)
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "/timeout_seconds: a command of this session may take %.3f s at "
				  "most, which was fixed when it was made",
				  (double)most / 1000);
	return 0;
}

/* A job that only makes its session is over when that is ready. */
static int run(struct job *j, struct nsbox_error *err)
{
	int r = check_timeout(j, err);

	if (r < 0)
		return r;
	if (j->kind != JOB_SESSION || !j->session) {
		if (j->session)
			j->session->commands++;
		return run_program(j, err);
	}
	if (j->session->ready)
		session_is_ready(j, &j->session->set_up);
	else
		set_backstop(j, BACKSTOP_MS);
	return 0;
}

static int start_run(struct job *j, int plan_fd, struct nsbox_error *err)
{
	const struct snapshot *from = j->session ? j->session->from : NULL;
	int r = read_plan(j, plan_fd, err);

	/* What a snapshot has of the skill was looked at when it came. */
	if (r == 0 && !from)
		r = digests_check(j->plan->inputs, j->staged.fd, j->staged.skill_dir, err);
	if (r == 0)
		r = settle(j, err);
	if (r == 0)
		r = send_new(j, plan_fd, err);
	if (r == 0 && j->session)
		r = session_made(j->session, j, plan_fd, err);
	return r == 0 ? run(j, err) : r;
}

static uint64_t wall_of(const struct job *j)
{
	uint64_t policy = j->plan->limits.wall_ms;

	/* The policy is the session's; a command may only be shorter. */
	if (j->session)
		return j->spec->timeout_ms ? j->spec->timeout_ms : policy;
	/* The request's own wish is in the policy already; an entry point may only be shorter. */
	if (!j->spec->timeout_ms && j->plan->timeout_ms &&
	    (policy == 0 || j->plan->timeout_ms < policy))
		return j->plan->timeout_ms;
	return policy;
}

static void fail_run(struct job *j, const struct nsbox_error *why)
{
	if (why->code == NSBOX_E_PROTOCOL)
		job_interrupt(j); /* nsbox-spawn is gone, and the front will hear of it next */
	else
		fail(j, why);
}

static void on_compiled(void *ctx, const struct compile_reply *reply, int plan_fd)
{
	struct job *j = ctx;
	struct nsbox_error err = { 0 };

	j->ticket = NULL;
	if (reply->error.code != 0) {
		err = reply->error;
		manifest_locate(j->spec, &err);
		fail(j, &err);
		return;
	}
	j->plan = malloc(sizeof(*j->plan));
	if (!j->plan) {
		nsbox_fail(&err, NSBOX_E_NOMEM, ENOMEM, "keep a plan");
		fail(j, &err);
		return;
	}
	*j->plan = *reply;
	memcpy(j->policy_sha256, reply->digest, sizeof(j->policy_sha256));
	j->wall_ms = wall_of(j);
	j->phase = JOB_RUNNING;
	if (start_run(j, plan_fd, &err) < 0)
		fail_run(j, &err);
}

/* What a later command of a session wants handed back, besides what the policy says. */
static int add_own_outputs(struct job *j, struct nsbox_error *err)
{
	for (char *const *glob = j->spec->outputs; glob && *glob; glob++) {
		struct wire_output *rule = &j->rules[j->n_rules];

		if (j->n_rules == WIRE_OUTPUTS_MAX)
			return nsbox_fail(err, NSBOX_E_LIMIT, 0, "more than %d outputs",
					  WIRE_OUTPUTS_MAX);
		if (!**glob || strlen(*glob) >= sizeof(rule->glob))
			return nsbox_fail(err, NSBOX_E_INVALID, 0,
					  "/outputs: a pattern has 1 to %zu bytes",
					  sizeof(rule->glob) - 1);
		strcpy(rule->glob, *glob);
		rule->max_bytes = OUTPUT_DEFAULT_BYTES;
		rule->max_files = OUTPUT_DEFAULT_FILES;
		j->n_rules++;
	}
	return 0;
}

void job_enter(struct job *j)
{
	const struct session *s = j->session;
	struct nsbox_error err = { 0 };

	j->plan = malloc(sizeof(*j->plan));
	j->rules = calloc(WIRE_OUTPUTS_MAX, sizeof(*j->rules));
	if (!j->plan || !j->rules) {
		nsbox_fail(&err, NSBOX_E_NOMEM, ENOMEM, "keep a plan");
		fail(j, &err);
		return;
	}
	*j->plan = *s->plan;
	memcpy(j->rules, s->rules, s->n_rules * sizeof(*j->rules));
	j->n_rules = s->n_rules;
	j->network.used = s->network.rules != NULL;
	memcpy(j->manifest_sha256, s->manifest_sha256, sizeof(j->manifest_sha256));
	memcpy(j->policy_sha256, s->policy_sha256, sizeof(j->policy_sha256));
	memcpy(j->plan_sha256, s->plan_sha256, sizeof(j->plan_sha256));
	memcpy(j->image_digest, s->image_digest, sizeof(j->image_digest));
	j->wall_ms = wall_of(j);
	j->phase = JOB_RUNNING;
	if (add_own_outputs(j, &err) < 0 || settle(j, &err) < 0 || run(j, &err) < 0)
		fail_run(j, &err);
}

/* ------------------------------------------------------------------ before the run */

/* The manifest as it was given, before wishes of the request are joined to it. */
static void hash_manifest(struct job *j)
{
	const struct snapshot *from = j->session ? j->session->from : NULL;
	size_t len = j->staged.manifest_len;
	const char *text = j->staged.manifest;

	if (!text && j->spec->manifest)
		text = json_object_to_json_string_length(
			j->spec->manifest, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE,
			&len);
	if (from)
		memcpy(j->manifest_sha256, from->recipe.manifest_sha256,
		       sizeof(j->manifest_sha256));
	else if (text)
		(void)digest_hex(text, len, j->manifest_sha256, NULL);
}

/* What is compiled: of the request, or of what its session begins with. */
static int policy_text(struct job *j, size_t *ret_len, struct nsbox_error *err)
{
	const struct snapshot *from = j->session ? j->session->from : NULL;
	int r;

	free_ptr(&j->policy_text);
	if (!from)
		return manifest_for(j->spec, j->staged.manifest, j->staged.manifest_len,
				    &j->policy_text, ret_len, err);
	memcpy(j->staged.skill_dir, from->recipe.skill_dir, sizeof(j->staged.skill_dir));
	r = snapshot_manifest(from, &j->policy_text, err);
	*ret_len = j->policy_text ? from->recipe.manifest_len : 0;
	return r;
}

static void compile(struct job *j)
{
	struct compile_request q;
	struct compile_ticket *ticket = NULL;
	struct nsbox_error err = { 0 };
	size_t len = 0;

	hash_manifest(j);
	if (policy_text(j, &len, &err) < 0) {
		fail(j, &err);
		return;
	}
	memset(&q, 0, sizeof(q));
	memcpy(&q.host, &j->sv->host, sizeof(q.host));
	memcpy(&q.ceiling, &j->sv->ceiling, sizeof(q.ceiling));
	if (j->kind == JOB_PYTHON)
		q.flags |= COMPILE_PYTHON;
	else if (!j->spec->argv && j->kind != JOB_SESSION)
		q.flags |= COMPILE_ENTRYPOINT;
	if (j->spec->stdin_data.data || j->interactive)
		q.flags |= COMPILE_STDIN;
	if (j->spec->as_operator)
		q.flags |= COMPILE_OPERATOR;
	strcpy(q.skill_dir, j->staged.skill_dir);
	if (j->spec->entrypoint)
		snprintf(q.entrypoint, sizeof(q.entrypoint), "%s", j->spec->entrypoint);
	j->phase = JOB_COMPILING;
	/* on_compiled() may run, and even finish the job, before this returns. */
	job_ref(j);
	if (compiler_start(j->sv->compiler, &q, j->policy_text, len, on_compiled, j, &ticket,
			   &err) < 0)
		fail(j, &err);
	else if (ticket)
		j->ticket = ticket;
	job_unref(j);
}

static void on_staged(void *ctx, const struct nsbox_error *why, struct staged *what)
{
	struct job *j = ctx;

	j->stage = NULL;
	if (why) {
		fail(j, why);
		return;
	}
	j->staged = *what;
	job_spec_drop_files(j->spec); /* they are in the stream now, and a run may be long */
	compile(j);
}

void job_start(struct job *j)
{
	struct nsbox_error err = { 0 };

	enum session_turn turn;

	j->started_us = monotonic_us();
	j->phase = JOB_STAGING;
	turn = j->session ? session_begin(j->session, j) : SESSION_MAKE;
	if (turn == SESSION_ENTER)
		job_enter(j);
	if (turn != SESSION_MAKE)
		return;
	if (stage_start(j->sv->loop, j->sv->unpacker, j->spec, on_staged, j, &j->stage, &err) < 0)
		fail(j, &err);
}

/* ------------------------------------------------------------------ events of the sandbox */

/* Of a sandbox of its own, or of the session that it waits for. */
static void on_ready(struct job *j, struct nsbox_event *ev)
{
	if (j->kind == JOB_SESSION)
		session_is_ready(j, &ev->result);
}

static void on_started(struct job *j, struct nsbox_event *ev)
{
	j->started = true;
	j->sv->news(j->sv->ctx, j);
}

static void on_failed(struct job *j, struct nsbox_event *ev)
{
	fail(j, &ev->error);
}

static void on_terminal(struct job *j, struct nsbox_event *ev)
{
	/* One stream: a terminal does not tell standard output from standard error. */
	if (j->spec->tty && !j->out.loop)
		(void)capture_attach(&j->out, j->sv->loop, j->plan->limits.stdout_max,
				     take_fd(&ev->fd), NULL);
}

static int collect(struct job *j, struct nsbox_error *err)
{
	struct wire_request q = { .kind = WIRE_COLLECT,
				  .sandbox = sandbox_of(j),
				  .exec = j->number };
	auto_close int out = -1;
	int r = outputs_start(&j->outputs, j->sv->loop, &out, err);

	if (r < 0)
		return r;
	if (j->spec->cwd)
		snprintf(q.base, sizeof(q.base), "%s", j->spec->cwd);
	else if (!j->spec->argv && j->plan->cwd[0]) /* the entry point's own */
		snprintf(q.base, sizeof(q.base), "%.255s", j->plan->cwd);
	q.outputs = j->n_rules;
	memcpy(q.output, j->rules, j->n_rules * sizeof(q.output[0]));
	return link_send(j->sv->link, &q, &out, 1, err);
}

/* As a shell would, and the command line tool does: callers look at standard error. */
static void say_why(struct job *j)
{
	char text[NSBOX_ERROR_MSG_MAX + 16];

	snprintf(text, sizeof(text), "nsbox: %s\n", j->res.error.msg);
	capture_add(&j->err, text, strlen(text));
}

static void on_exited(struct job *j, struct nsbox_event *ev)
{
	struct nsbox_error err = { 0 };

	if (j->has_result)
		return;
	j->has_result = true;
	j->res = ev->result;
	if (j->session)
		j->in_spawn = false; /* the program, that is */
	capture_finish(&j->out);
	capture_finish(&j->err);
	capture_finish(&j->result);
	if (j->res.cause == NSBOX_CAUSE_EXEC)
		say_why(j);
	if (j->res.cause == NSBOX_CAUSE_SANDBOX || j->n_rules == 0) {
		finish(j);
		return;
	}
	j->phase = JOB_COLLECTING;
	set_backstop(j, COLLECT_MS);
	if (collect(j, &err) < 0) {
		j->outputs.error = err;
		finish(j);
	}
}

static void on_collected(struct job *j, struct nsbox_event *ev)
{
	if (j->phase != JOB_COLLECTING)
		return;
	outputs_finish(&j->outputs);
	if (ev->error.code != 0)
		j->outputs.error = ev->error;
	finish(j);
}

static void on_gone(struct job *j, struct nsbox_event *ev)
{
	if (j->phase == JOB_COLLECTING)
		on_collected(j, ev);
	else
		finish_as(j, NSBOX_CAUSE_INTERRUPTED);
}

static void (*const handlers[])(struct job *j, struct nsbox_event *ev) = {
	[NSBOX_EVENT_READY] = on_ready,	  [NSBOX_EVENT_STARTED] = on_started,
	[NSBOX_EVENT_FAILED] = on_failed, [NSBOX_EVENT_TERMINAL] = on_terminal,
	[NSBOX_EVENT_EXITED] = on_exited, [NSBOX_EVENT_COLLECTED] = on_collected,
	[NSBOX_EVENT_GONE] = on_gone,
};

void job_event(struct job *j, struct nsbox_event *ev)
{
	if (ev->kind < ARRAY_SIZE(handlers) && handlers[ev->kind] && j->phase != JOB_FINISHED)
		handlers[ev->kind](j, ev);
}
