/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job's way into its sandbox: what the plan says is read, secrets are settled, descriptors made,
 * and nsbox-spawn is told to make the sandbox and to start the program.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/digest.h"
#include "daemon/common/text.h"
#include "daemon/front/job_parts.h"
#include "daemon/front/snapshot.h"
#include "nsbox/plan_build.h"
#include "nsbox/util.h"

#define TTY_ROWS    24
#define TTY_COLS    80
#define FLOOD_BYTES (UINT64_C(1) << 30) /* output that ends a run, kept or not */

static void on_flood(void *ctx)
{
	job_cancel(ctx, NSBOX_CAUSE_OUTPUT);
}

static void on_grew(void *ctx)
{
	struct job *j = ctx;

	j->sv->news(j->sv->ctx, j);
}

void job_session_ready(struct job *j, const struct nsbox_result *set_up)
{
	j->has_result = true;
	j->run->res = *set_up;
	job_finish(j);
}

static int plan_outputs(const struct blob *b, struct wire_output **ret, uint32_t *ret_n,
			struct nsbox_error *err)
{
	size_t n;
	const struct output_rule *rule = blob_get(b, SEC_OUTPUTS, sizeof(*rule), &n);
	auto_free struct wire_output *list = NULL;

	if (n > WIRE_OUTPUTS_MAX)
		return nsbox_fail(err, NSBOX_E_LIMIT, 0, "more than %d outputs", WIRE_OUTPUTS_MAX);
	list = n ? calloc(n, sizeof(*list)) : NULL;
	if (n && !list)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read outputs");
	for (size_t i = 0; i < n; i++) {
		const char *glob = blob_get_str(b, rule[i].glob);

		if (strlen(glob) >= sizeof(list[i].glob))
			return nsbox_fail(err, NSBOX_E_LIMIT, 0, "an output's pattern is too long");
		strcpy(list[i].glob, glob);
		list[i].max_bytes = rule[i].max_bytes;
		list[i].max_files = rule[i].max_files;
	}
	*ret = take_ptr(&list);
	*ret_n = (uint32_t)n;
	return 0;
}

int job_plan_facts(int plan_fd, char sha256[65], struct wire_output **ret, uint32_t *ret_n,
		   struct nsbox_error *err)
{
	struct blob b;
	int r = blob_map(plan_fd, PLAN_MAGIC, &b, err);

	if (r < 0)
		return r;
	r = digest_hex(b.base, b.size, sha256, err);
	if (r == 0)
		r = plan_outputs(&b, ret, ret_n, err);
	blob_unmap(&b);
	return r;
}

/*
 * The plan's hash, for the receipt, and what is to be collected: that is in the plan, from the
 * manifest and from the request alike.
 */
static int read_plan(struct job *j, int plan_fd, struct nsbox_error *err)
{
	auto_free void *rules = NULL;
	size_t n = 0;
	int r = job_plan_facts(plan_fd, j->run->plan_sha256, &j->run->rules, &j->run->n_rules, err);

	if (r == 0)
		r = session_network_rules(plan_fd, &rules, &n, err);
	j->run->network.used = n > 0;
	return r;
}

const char *job_image(const struct job *j)
{
	return j->spec->image ? j->spec->image : j->run->plan->image;
}

static int send_new(struct job *j, int plan_fd, struct nsbox_error *err)
{
	struct wire_request q = { .kind = WIRE_NEW, .sandbox = job_sandbox(j) };
	const struct snapshot *from = j->session ? j->session->from : NULL;
	const char *image = from ? from->recipe.image : job_image(j);
	int fds[3] = { plan_fd }, r = 0;
	auto_close int upper = -1;
	unsigned n = 1;

	if (image)
		snprintf(q.image, sizeof(q.image), "%s", image);
	snprintf(q.base, sizeof(q.base), "%s", j->workspace);
	/* Without mounts there is no upper layer that could be listed or kept. */
	if (j->session && nsbox_host_tier(&j->sv->host) >= NSBOX_TIER_NAMESPACE)
		q.arg |= WIRE_NEW_TRACK;
	else if (j->sv->template && j->kind == JOB_PYTHON && !j->spec->trace)
		q.arg |= WIRE_NEW_TEMPLATE;
	if (j->run->staged.fd >= 0) {
		q.arg |= WIRE_NEW_FILES;
		fds[n++] = j->run->staged.fd;
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
	close_fd(&j->run->staged.fd);
	return r;
}

void job_set_captures(struct job *j)
{
	const struct nsbox_policy_limits *lim = &j->run->plan->limits;

	j->run->out.flood = j->run->err.flood = on_flood;
	j->run->out.grew = j->run->err.grew = on_grew;
	j->run->out.ctx = j->run->err.ctx = j;
	if (job_redacts(j)) {
		const struct redact hide = { .hidden = j->run->inputs.hidden,
					     .n = j->run->inputs.n_hidden };

		j->run->out.redact = j->run->err.redact = hide; /* each with its own buffer */
	}
	j->run->out.flood_at = lim->stdout_max + FLOOD_BYTES;
	j->run->err.flood_at = lim->stderr_max + FLOOD_BYTES;
}

/* The descriptors of the run; those of `io` that are not -1 are the caller's to close. */
static int make_io(struct job *j, struct nsbox_io *io, struct nsbox_error *err)
{
	const struct nsbox_policy_limits *lim = &j->run->plan->limits;
	int r = 0;

	job_set_captures(j);
	if (j->spec->stdin_data.data) {
		io->in = make_memfd("nsbox-stdin", j->spec->stdin_data.data,
				    j->spec->stdin_data.len, true);
		if (io->in < 0)
			return nsbox_fail(err, NSBOX_E_NOMEM, -io->in, "pass on standard input");
	}
	if (j->interactive && !j->spec->tty) /* what is for a terminal waits for it */
		r = feed_open(&j->feed, &io->in, err);
	if (r == 0 && !j->spec->tty)
		r = capture_pipe(&j->run->out, j->sv->loop, lim->stdout_max, &io->out, err);
	if (r == 0 && !j->spec->tty)
		r = capture_pipe(&j->run->err, j->sv->loop, lim->stderr_max, &io->err, err);
	if (r == 0 && j->kind == JOB_PYTHON)
		r = capture_pipe(&j->run->result, j->sv->loop, lim->result_max, &io->result, err);
	if (r == 0 && j->spec->trace)
		r = trace_file_open(&j->run->trace, err);
	io->trace = j->run->trace.table ? j->run->trace.fd : -1;
	return r;
}

void job_describe_call(const struct job *j, struct pycall *c)
{
	*c = (struct pycall){ .code = j->spec->code,
			      .function = j->spec->function,
			      .params = j->spec->params,
			      .noexec = j->run->plan->noexec_len ? j->run->plan->noexec : NULL,
			      .noexec_len = j->run->plan->noexec_len,
			      .memory = j->run->plan->limits.memory,
			      .wall_ms = j->run->wall_ms,
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
	char *const *lists[] = { j->run->inputs.env, j->spec->env };
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

int job_encode_exec(const struct job *j, bool waits, int *ret_fd, struct nsbox_error *err)
{
	auto_free const char **entry = NULL, **env = joined_env(j);
	auto_free char *noexec = NULL;
	const char *python[PYCALL_ARGV + 2] = { 0 };
	struct nsbox_exec ex = { .env = env,
				 .cwd = j->spec->cwd,
				 .wall_ms = j->run->wall_ms,
				 .keep_rest = j->session != NULL,
				 .narrower = j->narrower  ? j->narrower
					     : j->session ? j->session->narrower
							  : NULL,
				 .waits = waits,
				 .tty = j->spec->tty,
				 .tty_rows = (uint16_t)(j->spec->tty_rows ?: TTY_ROWS),
				 .tty_cols = (uint16_t)(j->spec->tty_cols ?: TTY_COLS) };

	if (!env)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "the run's variables");
	if (j->kind == JOB_PYTHON) {
		memcpy(python, pycall_argv, sizeof(pycall_argv[0]) * PYCALL_ARGV);
		if (waits && j->run->plan->noexec_len) {
			noexec = base64_encode(j->run->plan->noexec, j->run->plan->noexec_len);
			if (!noexec)
				return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM,
						  "the filter of a call");
		}
		if (waits)
			python[PYCALL_ARGV - 1] = "ahead";
		python[PYCALL_ARGV] = noexec;
		if (j->spec->python.interpreter)
			python[0] = j->spec->python.interpreter;
		ex.argv = python;
	} else if (j->spec->argv) {
		ex.argv = (const char *const *)j->spec->argv;
	} else {
		entry = entry_argv(j->run->plan);
		if (!entry)
			return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "the entry point's command");
		ex.argv = entry;
		if (!ex.cwd && j->run->plan->cwd[0])
			ex.cwd = j->run->plan->cwd;
	}
	return nsbox_exec_encode(&ex, ret_fd, err);
}

static int send_exec(struct job *j, const struct nsbox_io *io, struct nsbox_error *err)
{
	const int have[] = { io->in, io->out, io->err, io->request, io->result, io->trace };
	struct wire_request q = { .kind = WIRE_EXEC, .sandbox = job_sandbox(j), .exec = j->number };
	auto_close int blob = -1;
	int fds[WIRE_FDS_MAX], r;
	unsigned n = 1;

	r = job_encode_exec(j, false, &blob, err);
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
	json_object_object_foreach (j->run->inputs.config, id, value) {
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
int job_settle(struct job *j, struct nsbox_error *err)
{
	int r = secrets_settle(j->sv->kept, j->workspace, j->run->plan->inputs, &j->own,
			       j->spec->config, &j->run->inputs, err);

	if (r == 0 && j->session)
		r = job_hide_in_session(j, err);
	if (r == 0 && (!j->session || j->makes_session))
		r = inputs_put_files(&j->run->inputs, &j->run->staged.fd, err);
	if (r == 0 && j->kind == JOB_PYTHON && json_object_object_length(j->run->inputs.config))
		r = add_parameters(j, err);
	return r;
}

void job_limit_wait(struct job *j)
{
	if (j->run->wall_ms)
		job_set_backstop(j, j->run->wall_ms + j->run->plan->limits.grace_ms + BACKSTOP_MS);
}

/* The program: where its sandbox is, or is being made. */
static int run_program(struct job *j, struct nsbox_error *err)
{
	struct nsbox_io io = NSBOX_IO_NONE;
	struct pycall call;
	int r = make_io(j, &io, err);

	if (r == 0 && j->kind == JOB_PYTHON) {
		job_describe_call(j, &call);
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
	if (r == 0)
		job_limit_wait(j);
	return r;
}

static int check_timeout(const struct job *j, struct nsbox_error *err)
{
	uint64_t most = j->run->plan->limits.wall_ms;

	if (j->session && most && j->spec->timeout_ms > most)
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "/timeout_seconds: this command may take %llu ms at most, by the "
				  "policy of its session or its own",
				  (unsigned long long)most);
	return 0;
}

/* A job that only makes its session is over when that is ready. */
int job_run(struct job *j, struct nsbox_error *err)
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
		job_session_ready(j, &j->session->set_up);
	else
		job_set_backstop(j, BACKSTOP_MS);
	return 0;
}

int job_start_run(struct job *j, int plan_fd, struct nsbox_error *err)
{
	const struct snapshot *from = j->session ? j->session->from : NULL;
	int r = read_plan(j, plan_fd, err);

	/* What a snapshot has of the skill was looked at when it came. */
	if (r == 0 && !from)
		r = digests_check(j->run->plan->inputs, j->run->staged.fd, j->run->staged.skill_dir,
				  err);
	if (r == 0)
		r = job_settle(j, err);
	if (r == 0)
		r = job_take_from_pool(j, plan_fd, err);
	if (r > 0)
		return 0; /* it runs */
	if (r == 0)
		r = send_new(j, plan_fd, err);
	if (r == 0 && j->session)
		r = session_made(j->session, j, plan_fd, err);
	return r == 0 ? job_run(j, err) : r;
}
