/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The receipt of a run: what was to run, under what, what held it, how it ended and what came out,
 * by hashes. It is made for every job that ended, also for one that never ran, and holds nothing
 * of code, parameters, streams or files but their hashes.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/denials.h"
#include "daemon/common/digest.h"
#include "daemon/front/job.h"
#include "daemon/front/json_reply.h"
#include "daemon/front/who.h"
#include "nsbox/util.h"

static void put_known(struct json_object *o, const char *key, const char *value)
{
	if (*value)
		json_put_text(o, key, value);
}

static int put_digest(struct json_object *o, const void *data, size_t len)
{
	char hex[DIGEST_HEX];
	int r = digest_hex(data ? data : "", len, hex, NULL);

	return r == 0 ? json_put_text(o, "sha256", hex) : r;
}

static int put_stream(struct json_object *receipt, const char *key, const struct capture *c)
{
	struct json_object *o = json_object_new_object();

	if (!o || put_digest(o, c->data, c->len) < 0) {
		json_object_put(o);
		return -ENOMEM;
	}
	json_put_u64(o, "bytes", c->seen);
	json_put_u64(o, "kept", c->len);
	return json_put(receipt, key, o);
}

static int put_files(struct json_object *receipt, const struct outputs *files)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; list && i < files->n; i++) {
		const struct output_file *f = &files->files[i];
		struct json_object *o;

		if (!f->sha256[0] || f->note)
			continue;
		o = json_object_new_object();
		json_put_text(o, "path", f->path);
		json_put_u64(o, "size", f->size);
		json_put_text(o, "sha256", f->sha256);
		json_object_array_add(list, o);
	}
	return json_put(receipt, "outputs", list);
}

/* Messages may quote what a client sent; codes do not. */
static void put_error(struct json_object *receipt, const struct nsbox_error *e)
{
	struct json_object *o = json_object_new_object();

	json_put_text(o, "code", nsbox_error_code_name(e->code));
	if (e->stage != NSBOX_STAGE_NONE)
		json_put_text(o, "stage", nsbox_stage_name(e->stage));
	json_put(receipt, "error", o);
}

static void put_asked(struct json_object *o, const struct job *j)
{
	json_put_text(o, "receipt_id", j->id);
	json_put_text(o, "job_id", j->id);
	json_put_text(o, "kind", job_kind_names[j->kind]);
	json_put_text(o, "workspace_id", j->workspace);
	if (j->uid != WHO_NO_UID)
		json_put_u64(o, "uid", j->uid);
	if (j->session)
		json_put_text(o, "session_id", j->session->id);
	put_known(o, "trace_id", j->trace_id);
	put_known(o, "traceparent", j->traceparent);
	put_known(o, "request_sha256", j->body_sha256);
	put_known(o, "manifest_sha256", j->run->manifest_sha256);
	put_known(o, "policy_sha256", j->run->policy_sha256);
	put_known(o, "plan_sha256", j->run->plan_sha256);
	put_known(o, "image_digest", j->run->image_digest);
}

static void put_host(struct json_object *receipt, const struct nsbox_host *h)
{
	struct json_object *o = json_object_new_object();

	json_put_text(o, "kernel", h->kernel);
	json_put_text(o, "machine", h->machine);
	json_put_text(o, "tier", nsbox_tier_name(nsbox_host_tier(h)));
	json_put_text(o, "nsbox", NSBOX_VERSION);
	json_put(receipt, "host", o);
}

static void put_end(struct json_object *o, const struct job *j)
{
	json_put_text(o, "cause", job_cause(j));
	json_put(o, "status", json_object_new_int(j->http_status));
	json_put(o, "exit_code", json_object_new_int(j->run->res.exit_status));
	json_put(o, "signal", json_object_new_int(j->run->res.signal));
	json_put_u64(o, "created_ms", j->created_unix_ms);
	json_put_u64(o, "started_ms", j->started_unix_ms);
	json_put_u64(o, "finished_ms", j->finished_unix_ms);
	if (j->ahead) /* its sandbox was made before it was asked for */
		json_put(o, "ahead", json_object_new_boolean(true));
	if (j->forked) /* its memory is laid out as that of others is */
		json_put(o, "shared_layout", json_object_new_boolean(true));
	json_put_u64(o, "setup_us", j->run->res.setup_us);
	json_put_u64(o, "wall_us", j->run->res.wall_us);
	json_put_u64(o, "cpu_us", j->run->res.cpu_us);
	json_put_u64(o, "memory_peak", j->run->res.memory_peak);
	json_put_u64(o, "oom_kills", j->run->res.oom_kills);
	json_put_u64(o, "pids_limit_hits", j->run->res.pids_limit_hits);
	if (j->run->error.code || j->run->res.error.code)
		put_error(o, j->run->error.code ? &j->run->error : &j->run->res.error);
}

static int put_all(struct json_object *o, const struct job *j)
{
	int r;

	put_asked(o, j);
	put_host(o, &j->sv->host);
	put_end(o, j);
	r = json_put(o, "denials", denials_json(&j->run->network, &j->run->res, NULL));
	if (r == 0)
		r = job_put_held(o, j);
	if (r == 0 && j->run->network.used)
		r = json_put(o, "network", egress_log_json(&j->run->network, true));
	if (r == 0)
		r = put_stream(o, "stdout", &j->run->out);
	if (r == 0)
		r = put_stream(o, "stderr", &j->run->err);
	if (r == 0 && j->kind == JOB_PYTHON)
		r = put_stream(o, "result", &j->run->result);
	return r == 0 ? put_files(o, &j->run->outputs) : r;
}

void job_make_receipt(struct job *j)
{
	struct json_object *o = json_object_new_object();
	const char *text = NULL;

	if (o && put_all(o, j) == 0)
		text = json_object_to_json_string_length(
			o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE,
			&j->receipt_len);
	j->receipt = text ? strdup(text) : NULL;
	if (!j->receipt)
		j->receipt_len = 0;
	json_object_put(o);
}
