/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's interface: one table of paths and methods.
 *
 * A synchronous call is a job whose reply goes to the caller that waits; an asynchronous one is the
 * same job, whose reply is kept until it is fetched or falls out of the front's memory.
 */
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/text.h"
#include "daemon/front/front.h"
#include "daemon/front/json_reply.h"
#include "nsbox/util.h"

/* ------------------------------------------------------------------ replies */

static void reply_object(struct http_request *rq, int status, struct json_object *o,
			 const char *const *headers)
{
	size_t len = 0;
	const char *text =
		o ? json_object_to_json_string_length(
			    o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &len)
		  : NULL;

	http_reply(rq, status, text ? strdup(text) : NULL, len, headers);
	json_object_put(o);
}

static void reply_error(struct http_request *rq, const struct nsbox_error *e)
{
	struct json_object *o = json_object_new_object();

	json_put(o, "error", json_error_new(e));
	reply_object(rq, http_status_of(e), o, NULL);
}

static void reply_full(struct front *f, struct http_request *rq)
{
	static const char *const headers[] = { "Retry-After", "1", NULL };
	struct json_object *o = json_object_new_object();
	struct nsbox_error e = { 0 };

	nsbox_fail(&e, NSBOX_E_LIMIT, 0, "the queue is full: %zu jobs wait, of %llu MB in all",
		   queue_length(f->queue), (unsigned long long)(f->asked_bytes >> 20));
	json_put(o, "error", json_error_new(&e));
	reply_object(rq, 429, o, headers);
}

static struct json_object *job_object(const struct job *j, bool whole)
{
	struct json_object *o = json_object_new_object();

	if (!o)
		return NULL;
	json_put_text(o, "id", j->id);
	json_put_text(o, "kind", job_kind_names[j->kind]);
	json_put_text(o, "state", job_state_name(j));
	json_put_text(o, "workspace_id", j->workspace);
	json_put_text(o, "trace_id", j->trace_id);
	json_put_u64(o, "created_ms", j->created_unix_ms);
	if (j->phase == JOB_FINISHED) {
		json_put(o, "status", json_object_new_int(j->http_status));
		if (j->has_result && !j->error.code)
			json_put_text(o, "cause", nsbox_cause_name((int)j->res.cause));
		if (whole && j->reply)
			json_put(o, "result", json_raw_new(j->reply, j->reply_len));
	}
	return o;
}

/* ------------------------------------------------------------------ running */

static struct job *submit(struct front *f, struct http_request *rq, uint32_t kind)
{
	struct nsbox_error err = { 0 };
	struct job_spec *spec = NULL;
	struct job *j = NULL;
	const char *body;
	size_t len;
	int r;

	if (f->closing) {
		http_reply_error(rq, 503, "unavailable", "the service is restarting");
		return NULL;
	}
	body = http_body(rq, &len);
	r = request_parse(body, len, kind, &spec, &err);
	if (r == 0 && spec->as_operator && http_peer(rq) != 0 && http_peer(rq) != f->owner) {
		job_spec_free(spec);
		http_reply_error(rq, 403, "forbidden",
				 "only root and the service's owner are operators");
		return NULL;
	}
	if (r == 0)
		r = front_submit(f, spec, len, &j, &err);
	if (r == 0)
		return j;
	if (r == -EAGAIN)
		reply_full(f, rq);
	else
		reply_error(rq, &err);
	return NULL;
}

static void on_done(void *ctx, struct job *j)
{
	struct http_request *rq = ctx;

	*http_data(rq) = NULL;
	/* The reply is the waiting caller's: it is not kept a second time. */
	http_reply(rq, j->http_status, take_ptr(&j->reply), j->reply_len, NULL);
	j->reply_len = 0;
}

static void execute(struct front *f, struct http_request *rq, uint32_t kind)
{
	struct job *j = submit(f, rq, kind);

	if (!j)
		return;
	j->done = on_done;
	j->done_ctx = rq;
	*http_data(rq) = j;
}

void api_gone(void *ctx, struct http_request *rq)
{
	struct job *j = *http_data(rq);

	if (!j)
		return;
	*http_data(rq) = NULL;
	j->done = NULL;
	job_cancel(j, NSBOX_CAUSE_CANCELLED);
}

static void on_python(struct front *f, struct http_request *rq, const char *rest)
{
	execute(f, rq, JOB_PYTHON);
}

static void on_command(struct front *f, struct http_request *rq, const char *rest)
{
	execute(f, rq, JOB_COMMAND);
}

/* ------------------------------------------------------------------ jobs */

static void on_post_job(struct front *f, struct http_request *rq, const char *rest)
{
	struct job *j = submit(f, rq, JOB_KIND_MAX);
	char place[80];
	const char *const headers[] = { "Location", place, NULL };

	if (!j)
		return;
	snprintf(place, sizeof(place), "/v1/jobs/%s", j->id);
	reply_object(rq, 202, job_object(j, false), headers);
}

static void on_list_jobs(struct front *f, struct http_request *rq, const char *rest)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	for (const struct job *j = f->first; j; j = j->next)
		json_object_array_add(list, job_object(j, false));
	json_put(o, "jobs", list);
	reply_object(rq, 200, o, NULL);
}

static struct job *find(struct front *f, struct http_request *rq, const char *id)
{
	struct job *j = front_find(f, id);

	if (!j)
		http_reply_error(rq, 404, "not_found", "no job has the id '%.64s'", id);
	return j;
}

static void on_get_job(struct front *f, struct http_request *rq, const char *id)
{
	struct job *j = find(f, rq, id);

	if (j)
		reply_object(rq, 200, job_object(j, true), NULL);
}

static void on_delete_job(struct front *f, struct http_request *rq, const char *id)
{
	struct job *j = find(f, rq, id);

	if (!j)
		return;
	job_ref(j); /* finishing it may let the front forget it */
	job_cancel(j, NSBOX_CAUSE_CANCELLED);
	reply_object(rq, j->phase == JOB_FINISHED ? 200 : 202, job_object(j, true), NULL);
	job_unref(j);
}

/* ------------------------------------------------------------------ health and host */

static void on_health(struct front *f, struct http_request *rq, const char *rest)
{
	struct json_object *o = json_object_new_object(), *q = json_object_new_object();

	json_put_text(o, "status", f->closing ? "stopping" : "ok");
	json_put_text(o, "version", NSBOX_VERSION);
	json_put_text(o, "tier", nsbox_tier_name(nsbox_host_tier(&f->services.host)));
	json_put_u64(q, "waiting", queue_length(f->queue));
	json_put_u64(q, "max", queue_max(f->queue));
	json_put_u64(q, "running", f->running);
	json_put_u64(q, "runners", f->runners);
	json_put(o, "queue", q);
	reply_object(rq, f->closing ? 503 : 200, o, NULL);
}

static struct json_object *layers_object(const struct nsbox_host *h)
{
	struct json_object *list = json_object_new_array();
	char buf[400];

	for (int l = 0; l < NSBOX_LAYER_MAX; l++) {
		struct json_object *o = json_object_new_object();
		bool there = nsbox_host_layers(h) & NSBOX_LAYER_BIT(l);
		const char *why = there ? NULL : nsbox_host_remedy(h, l, buf, sizeof(buf));

		json_put_text(o, "layer", nsbox_layer_name(l));
		json_put_text(o, "meaning", nsbox_layer_text(l));
		json_put(o, "available", json_object_new_boolean(there));
		if (why)
			json_put_text(o, "remedy", why);
		json_object_array_add(list, o);
	}
	return list;
}

static void on_capabilities(struct front *f, struct http_request *rq, const char *rest)
{
	static const char *const cgroups[] = { "none", "cgroup1", "cgroup2" };
	const struct nsbox_host *h = &f->services.host;
	struct json_object *o = json_object_new_object(), *kinds = json_object_new_array();

	json_put_text(o, "version", NSBOX_VERSION);
	json_put_text(o, "tier", nsbox_tier_name(nsbox_host_tier(h)));
	json_put_text(o, "kernel", h->kernel);
	json_put_text(o, "machine", h->machine);
	json_put(o, "landlock_abi", json_object_new_int(h->landlock_abi));
	json_put_text(o, "cgroup", h->cgroup_kind < 3 ? cgroups[h->cgroup_kind] : "none");
	if (h->cgroup_note[0])
		json_put_text(o, "cgroup_note", h->cgroup_note);
	json_put_text(o, "ids", h->ids_kind == NSBOX_IDS_PRIVILEGED ? "own" : "single");
	json_put(o, "cpus", json_object_new_int(h->cpus));
	json_put(o, "layers", layers_object(h));
	for (size_t i = 0; job_kind_names[i]; i++)
		json_object_array_add(kinds, json_object_new_string(job_kind_names[i]));
	json_put(o, "kinds", kinds);
	json_put_u64(o, "body_max", REQUEST_BODY_MAX);
	reply_object(rq, 200, o, NULL);
}

/* ------------------------------------------------------------------ table */

static const struct route {
	const char *method, *path;
	void (*handle)(struct front *f, struct http_request *rq, const char *rest);
	bool prefix; /* what follows is one path component, given as `rest` */
} routes[] = {
	{ "POST", "/v1/execute/python-function", on_python, false },
	{ "POST", "/v1/execute/command", on_command, false },
	{ "POST", "/v1/jobs", on_post_job, false },
	{ "GET", "/v1/jobs", on_list_jobs, false },
	{ "GET", "/v1/jobs/", on_get_job, true },
	{ "DELETE", "/v1/jobs/", on_delete_job, true },
	{ "GET", "/healthz", on_health, false },
	{ "GET", "/v1/capabilities", on_capabilities, false },
};

static bool path_matches(const struct route *r, const char *path)
{
	size_t n = strlen(r->path);

	if (!r->prefix)
		return strcmp(path, r->path) == 0;
	return strncmp(path, r->path, n) == 0 && path[n] && !strchr(path + n, '/');
}

static void reply_no_route(struct http_request *rq, const char *allow)
{
	const char *const headers[] = { "Allow", allow, NULL };
	struct json_object *o = json_object_new_object(), *e = json_object_new_object();

	json_put_text(e, "code", *allow ? "method_not_allowed" : "not_found");
	json_put_text(e, "message",
		      *allow ? "this path has other methods" : "there is nothing at this path");
	json_put(o, "error", e);
	reply_object(rq, *allow ? 405 : 404, o, *allow ? headers : NULL);
}

void api_request(void *ctx, struct http_request *rq)
{
	const char *path = http_path(rq);
	char allow[64] = "";

	for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
		const struct route *r = &routes[i];

		if (!path_matches(r, path))
			continue;
		if (strcmp(http_method(rq), r->method) == 0) {
			r->handle(ctx, rq, path + strlen(r->path));
			return;
		}
		snprintf(allow + strlen(allow), sizeof(allow) - strlen(allow), "%s%s",
			 *allow ? ", " : "", r->method);
	}
	reply_no_route(rq, allow);
}
