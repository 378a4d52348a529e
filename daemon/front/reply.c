/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client hears of a finished job.
 *
 * One object for all kinds: what the code gave (code, data, msg, streams, outputs), how it ended
 * (cause, exit_code, signal, times, peaks), and what held it (enforced, notEnforced, tier, witness,
 * limits). A job that was refused before anything ran has `error`, cause "none" or "sandbox", and
 * an HTTP status that is not 200.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/denials.h"
#include "daemon/common/media_type.h"
#include "daemon/common/text.h"
#include "daemon/front/job.h"
#include "daemon/front/json_reply.h"
#include "nsbox/util.h"
#include "policy/skill/skill.h"

/* ------------------------------------------------------------------ small pieces */

int http_status_of(const struct nsbox_error *e)
{
	/* clang-format off */
	static const int status[NSBOX_E_CODE_MAX] = {
		[NSBOX_E_INVALID] = 400,     [NSBOX_E_MANIFEST] = 400,
		[NSBOX_E_UNSUPPORTED] = 501, [NSBOX_E_LIMIT] = 400,
		[NSBOX_E_NOMEM] = 503,
	};
	/* clang-format on */
	int s = e->code >= 0 && e->code < NSBOX_E_CODE_MAX ? status[e->code] : 0;

	return s ? s : 500;
}

/* ------------------------------------------------------------------ streams and files */

/* told: what it holds was told before, as events. */
static int put_stream(struct json_object *o, const char *name, const struct capture *c, bool told)
{
	char key[32];
	int r = told ? 0 : json_put(o, name, json_text_new(c->data, c->len));

	if (r == 0 && !told && !utf8_valid(c->data, c->len)) {
		auto_free char *text = base64_encode(c->data, c->len);

		snprintf(key, sizeof(key), "%s_base64", name);
		r = json_put(o, key, text ? json_object_new_string(text) : NULL);
	}
	snprintf(key, sizeof(key), "%s_truncated", name);
	return r == 0 ? json_put(o, key, json_object_new_boolean(capture_truncated(c))) : r;
}

/* Where the file is to be had as it is; what is not kept has no place. */
static void put_place(struct json_object *o, const struct job *j, const char *path)
{
	auto_free char *encoded = j->sync ? NULL : path_encode(path);
	auto_free char *url = NULL;

	if (encoded && asprintf(&url, "/v1/jobs/%s/outputs/%s", j->id, encoded) > 0)
		json_put_text(o, "url", url);
}

static struct json_object *output_new(const struct job *j, const struct output_file *f)
{
	struct json_object *o = json_object_new_object();
	auto_free char *text = f->note ? NULL : base64_encode(f->data, f->size);

	if (!o)
		return NULL;
	json_put_text(o, "path", f->path);
	if (f->note) {
		json_put_text(o, "note", f->note);
		return o;
	}
	json_put_u64(o, "size", f->size);
	json_put_text(o, "sha256", f->sha256);
	json_put_text(o, "media_type", media_type_of(f->path));
	put_place(o, j, f->path);
	json_put(o, "content_base64", text ? json_object_new_string(text) : NULL);
	return o;
}

/* Files that came whole are in `outputs`, those that did not are named with the reason. */
static int put_outputs(struct json_object *reply, const struct job *j)
{
	const struct outputs *o = &j->run->outputs;
	struct json_object *sent = json_object_new_array(), *kept = json_object_new_array();

	for (size_t i = 0; sent && kept && i < o->n; i++) {
		const struct output_file *f = &o->files[i];

		if (f->sha256[0])
			json_object_array_add(f->note ? kept : sent, output_new(j, f));
	}
	if (json_put(reply, "outputs", sent) < 0) {
		json_object_put(kept);
		return -ENOMEM;
	}
	if (kept && json_object_array_length(kept) == 0)
		json_object_put(take_ptr(&kept));
	else if (json_put(reply, "outputs_omitted", kept) < 0)
		return -ENOMEM;
	return o->error.code ? json_put(reply, "outputs_error", json_error_new(&o->error)) : 0;
}

static struct result_json result_of(const struct job *j)
{
	return (struct result_json){ .result = &j->run->res,
				     .host = &j->sv->host,
				     .limits = j->run->plan ? &j->run->plan->limits : NULL,
				     .wall_ms = j->run->wall_ms,
				     .is_python = j->kind == JOB_PYTHON };
}

int job_put_held(struct json_object *o, const struct job *j)
{
	const struct result_json r = result_of(j);

	return result_put_held(o, &r);
}

/* ------------------------------------------------------------------ what came of it */

static struct json_object *shown_value(const struct job *j, struct json_object *v)
{
	struct json_object *shown, *parsed;

	if (!job_redacts(j))
		return json_object_get(v);
	/* It is kept as text, so that numbers come out as they went in. */
	parsed = json_tokener_parse(json_object_to_json_string_ext(v, JSON_C_TO_STRING_PLAIN));
	shown = redact_json(j->run->inputs.hidden, j->run->inputs.n_hidden, parsed);
	json_object_put(parsed);
	return shown ? shown : json_object_new_string("***");
}

static int put_shown(struct json_object *o, const char *key, const struct job *j, const char *text)
{
	size_t len = 0;
	auto_free char *shown =
		job_redacts(j) ? redact_text(j->run->inputs.hidden, j->run->inputs.n_hidden, text,
					     strlen(text), &len)
			       : NULL;

	return json_put_text(o, key, shown ? shown : job_redacts(j) ? "" : text);
}

static int put_outcome(struct json_object *reply, const struct job *j)
{
	struct pycall_outcome o = { 0 };
	struct nsbox_error err = { 0 };
	struct pycall call = { .memory = j->run->plan ? j->run->plan->limits.memory : 0,
			       .wall_ms = j->run->wall_ms };
	char text[80];
	int r;

	if (j->kind != JOB_PYTHON) {
		bool good = j->run->res.cause == NSBOX_CAUSE_EXIT;

		snprintf(text, sizeof(text), "%s%s%d", nsbox_cause_name((int)j->run->res.cause),
			 good ? " status " : ", exit status ", j->run->res.exit_status);
		json_put_u64(reply, "code", good ? 200 : 500);
		json_put_null(reply, "data");
		return json_put_text(reply, "msg", text);
	}
	r = pycall_judge(&call, &j->run->res, j->run->result.data, j->run->result.len,
			 capture_truncated(&j->run->result), j->run->out.data, j->run->out.len,
			 j->run->err.data, j->run->err.len, &o, &err);
	if (r == 0) {
		json_put_u64(reply, "code", (uint64_t)o.code);
		r = o.data ? json_put(reply, "data", shown_value(j, o.data))
			   : json_put_null(reply, "data");
	}
	if (r == 0)
		r = put_shown(reply, "msg", j, o.msg);
	pycall_outcome_done(&o);
	return r;
}

/* What the program may not have known how to say of itself. */
static void add_notes(struct json_object *notes, const struct job *j)
{
	const struct nsbox_result *res = &j->run->res;
	const size_t tail = MIN(j->run->err.len, (size_t)2048);
	char text[512];

	if (res->error.msg[0])
		json_object_array_add(notes, json_text_new(res->error.msg, strlen(res->error.msg)));
	if (res->cause == NSBOX_CAUSE_EXIT && res->exit_status == 127 && tail &&
	    skill_missing_library(j->run->err.data + j->run->err.len - tail, tail, text,
				  sizeof(text)))
		json_object_array_add(notes, json_text_new(text, strlen(text)));
	if (res->cause == NSBOX_CAUSE_DISK) {
		static const char full[] = "it failed, and left its disk full (resources.disk)";

		json_object_array_add(notes, json_text_new(full, sizeof(full) - 1));
	}
	if (res->pids_limit_hits) {
		snprintf(text, sizeof(text),
			 "the limit of processes and threads was met (resources.pids): %u refused",
			 res->pids_limit_hits);
		json_object_array_add(notes, json_text_new(text, strlen(text)));
	}
	if (denials_lack(res))
		json_object_array_add(notes,
				      json_text_new(denials_lack(res), strlen(denials_lack(res))));
	for (const char *p = j->run->staged.notices; p && *p;) {
		size_t n = strcspn(p, "\n");

		json_object_array_add(notes, json_text_new(p, n));
		p += n + (p[n] == '\n');
	}
}

/* Why and how it ended; the library's remarks are notes where they are no error. */
static int put_end(struct json_object *reply, const struct job *j)
{
	const struct nsbox_result *res = &j->run->res;
	struct json_object *notes = json_object_new_array();

	json_put_text(reply, "cause", nsbox_cause_name((int)res->cause));
	json_put(reply, "exit_code", json_object_new_int(res->exit_status));
	if (res->signal)
		json_put(reply, "signal", json_object_new_int(res->signal));
	else
		json_put_null(reply, "signal");
	json_put_u64(reply, "duration_ms", (j->finished_us - j->started_us + 999) / 1000);
	json_put_u64(reply, "queued_ms", (j->started_us - j->queued_us) / 1000);
	json_put_u64(reply, "setup_ms", res->setup_us / 1000);
	json_put_u64(reply, "wall_ms", res->wall_us / 1000);
	json_put_u64(reply, "cpu_ms", res->cpu_us / 1000);
	json_put_u64(reply, "memory_peak", res->memory_peak);
	json_put_u64(reply, "oom_kills", res->oom_kills);
	json_put_u64(reply, "pids_limit_hits", res->pids_limit_hits);
	add_notes(notes, j);
	if (res->error.code)
		json_put(reply, "error", json_error_new(&res->error));
	return json_put(reply, "notes", notes);
}

/* Names in them are the program's, and may hold what it was given. */
static struct json_object *shown_denials(const struct job *j)
{
	struct json_object *all = denials_json(&j->run->network, &j->run->res, &j->run->trace);
	struct json_object *shown;

	if (!job_redacts(j))
		return all;
	shown = redact_json(j->run->inputs.hidden, j->run->inputs.n_hidden, all);
	json_object_put(all);
	return shown ? shown : json_object_new_array();
}

static int put_run(struct json_object *reply, const struct job *j)
{
	int r = put_outcome(reply, j);

	if (r == 0)
		r = put_stream(reply, "stdout", &j->run->out, j->interactive);
	if (r == 0)
		r = put_stream(reply, "stderr", &j->run->err, j->interactive);
	if (r == 0)
		r = put_end(reply, j);
	if (r == 0)
		r = json_put(reply, "denials", shown_denials(j));
	if (r == 0)
		r = job_put_held(reply, j);
	if (r == 0 && j->run->network.used)
		r = json_put(reply, "network", egress_log_json(&j->run->network, false));
	if (r == 0 && j->run->plan)
		r = json_put_text(reply, "policy_sha256", j->run->plan->digest);
	return r == 0 ? put_outputs(reply, j) : r;
}

/* A session was made, or has ended before it was. */
static int put_made(struct json_object *reply, const struct job *j)
{
	struct json_object *o = session_object(j->session);
	int r;

	/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): jobs that make one have it */
	json_put_u64(o, "running", j->session->held - 1); /* but us */
	r = json_put(reply, "session", o);
	if (r == 0 && j->run->res.cause != NSBOX_CAUSE_NONE)
		r = json_put_text(reply, "cause", nsbox_cause_name((int)j->run->res.cause));
	return r == 0 ? job_put_held(reply, j) : r;
}

/* Nothing ran, or what ran is not to be trusted. */
static int put_refusal(struct json_object *reply, const struct job *j, const struct nsbox_error *e)
{
	bool set_up = e->code == NSBOX_E_SETUP || e->code == NSBOX_E_SANDBOX;

	json_put_u64(reply, "code", 500);
	json_put_null(reply, "data");
	json_put_text(reply, "msg", e->msg);
	json_put_text(reply, "cause",
		      nsbox_cause_name(set_up ? NSBOX_CAUSE_SANDBOX : NSBOX_CAUSE_NONE));
	json_put_u64(reply, "duration_ms", (j->finished_us - j->started_us + 999) / 1000);
	return json_put(reply, "error", json_error_new(e));
}

static const struct nsbox_error *refusal(const struct job *j)
{
	if (j->run->error.code)
		return &j->run->error;
	return j->has_result && j->run->res.cause == NSBOX_CAUSE_SANDBOX ? &j->run->res.error
									 : NULL;
}

void job_make_reply(struct job *j)
{
	struct json_object *o = json_object_new_object();
	const struct nsbox_error *e = refusal(j);
	const char *text = NULL;
	char sandbox[40];
	int r;

	snprintf(sandbox, sizeof(sandbox), "sb-%llu",
		 (unsigned long long)(j->session ? j->session->number : j->number));
	j->http_status = e			  ? (j->refused ? j->refused : http_status_of(e))
			 : j->kind == JOB_SESSION ? 201
						  : 200;
	r = !o			     ? -ENOMEM
	    : e			     ? put_refusal(o, j, e)
	    : j->kind == JOB_SESSION ? put_made(o, j)
				     : put_run(o, j);
	if (r == 0 && j->session && j->kind != JOB_SESSION)
		r = json_put(o, "session", session_note(j->session, j));
	if (r == 0)
		r = json_put_text(o, "job_id", j->id);
	if (r == 0)
		r = json_put_text(o, "receipt_id", j->id);
	if (r == 0)
		r = json_put_text(o, "sandbox_id", sandbox);
	if (r == 0 && j->trace_id[0])
		r = json_put_text(o, "trace_id", j->trace_id);
	if (r == 0)
		text = json_object_to_json_string_length(
			o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &j->reply_len);
	j->reply = text ? strdup(text) : NULL;
	if (!j->reply) {
		j->http_status = 503;
		j->reply_len = 0;
	}
	json_object_put(o);
}
