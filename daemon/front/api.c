/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's interface: one table of paths and methods, and what concerns no job. */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "daemon/front/evidence.h"
#include "daemon/front/json_reply.h"
#include "daemon/front/mcp.h"
#include "daemon/front/tools.h"
#include "daemon/front/ui.h"
#include "nsbox/util.h"

/* openapi.json as it is in the source: what the interface says of itself. */
extern const char openapi_json_start[];
extern const uint64_t openapi_json_size;

__asm__(".pushsection .rodata, \"a\"\n"
	".hidden openapi_json_start\n"
	".hidden openapi_json_size\n"
	".global openapi_json_start\n"
	"openapi_json_start:\n"
	".incbin \"daemon/front/openapi.json\"\n"
	".Lopenapi_json_end:\n"
	".balign 8\n"
	".global openapi_json_size\n"
	"openapi_json_size:\n"
	".quad .Lopenapi_json_end - openapi_json_start\n"
	".popsection\n");

/* ------------------------------------------------------------------ replies */

void api_reply(struct http_request *rq, int status, struct json_object *o,
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

/* When to come back: a place in the queue is soon free, a disk is not. */
static const char *retry_after(int status)
{
	return status == 429 ? "1" : status == 503 ? "5" : NULL;
}

static void reply_error(struct http_request *rq, int status, const struct nsbox_error *e,
			const char *when)
{
	struct json_object *o = json_object_new_object();
	const char *const headers[] = { "Retry-After", when, NULL };

	json_put(o, "error", json_error_new(e));
	api_reply(rq, status, o, when ? headers : NULL);
}

void api_reply_error(struct http_request *rq, int status, const struct nsbox_error *e)
{
	status = status ? status : http_status_of(e);
	reply_error(rq, status, e, retry_after(status));
}

void api_reply_busy(struct http_request *rq, const struct nsbox_error *e, uint64_t seconds)
{
	char when[24];

	snprintf(when, sizeof(when), "%llu", (unsigned long long)seconds);
	reply_error(rq, 429, e, when);
}

void api_deny(struct front *f, struct http_request *rq, const char *why)
{
	f->metrics.counter[METRIC_DENIED]++;
	evidence_note(f, "deny", http_peer(rq), http_path(rq), why);
	http_reply_error(rq, 403, "forbidden", "%s", why);
}

void api_who(const struct front *f, const struct http_request *rq, struct who *ret)
{
	const char *workspace = http_workspace(rq);

	if (workspace)
		*ret = (struct who){ .uid = WHO_NO_UID, .workspace = workspace };
	else
		who_find(&f->opt->ties, http_peer(rq), f->owner, ret);
}

/* ------------------------------------------------------------------ health and host */

static void on_health(struct front *f, struct http_request *rq, const char *rest)
{
	struct json_object *o = json_object_new_object();

	control_status(f, o);
	api_reply(rq, f->closing || f->draining || f->trouble.code ? 503 : 200, o, NULL);
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
	api_reply(rq, 200, o, NULL);
}

static void on_metrics(struct front *f, struct http_request *rq, const char *rest)
{
	static const char *const headers[] = { "Content-Type", "text/plain; version=0.0.4", NULL };
	size_t len = 0;
	char *text = evidence_metrics(f, &len);

	http_reply(rq, 200, text, len, headers);
}

static void on_openapi(struct front *f, struct http_request *rq, const char *rest)
{
	char *text = malloc((size_t)openapi_json_size);

	if (text)
		memcpy(text, openapi_json_start, (size_t)openapi_json_size);
	http_reply(rq, 200, text, (size_t)openapi_json_size, NULL);
}

/* ------------------------------------------------------------------ table */

#define ID_MAX 272

static const struct route {
	const char *method, *path;
	void (*handle)(struct front *f, struct http_request *rq, const char *rest);
	bool prefix;	    /* what follows is one path component, given as `rest` */
	const char *suffix; /* and this behind it */
	bool tail;	    /* and then anything, api_tail() */
	bool all;	    /* all that follows is `rest`, slashes included */
} routes[] = {
	{ "POST", "/v1/execute/python-function", api_python, false },
	{ "POST", "/v1/execute/command", api_command, false },
	{ "POST", "/v1/jobs", api_post_job, false },
	{ "GET", "/v1/jobs", api_list_jobs, false },
	{ "GET", "/v1/jobs/", api_get_job, true, NULL },
	{ "GET", "/v1/jobs/", api_get_events, true, "/events" },
	{ "POST", "/v1/jobs/", api_post_stdin, true, "/stdin" },
	{ "GET", "/v1/jobs/", api_get_output, true, "/outputs/", true },
	{ "DELETE", "/v1/jobs/", api_delete_job, true },
	{ "POST", "/v1/sessions", api_post_session, false },
	{ "GET", "/v1/sessions", api_list_sessions, false },
	{ "POST", "/v1/sessions/", api_post_snapshot, true, "/snapshot" },
	{ "POST", "/v1/sessions/", api_post_fork, true, "/fork" },
	{ "POST", "/v1/sessions/", api_post_commit, true, "/commit" },
	{ "GET", "/v1/sessions/", api_get_changes, true, "/changes" },
	{ "GET", "/v1/images", api_list_images, false },
	{ "GET", "/v1/images/", api_get_image, true, NULL, false, true },
	{ "GET", "/v1/snapshots", api_list_snapshots, false },
	{ "GET", "/v1/snapshots/", api_get_snapshot, true },
	{ "DELETE", "/v1/snapshots/", api_delete_snapshot, true },
	{ "GET", "/v1/sessions/", api_get_session, true, NULL },
	{ "DELETE", "/v1/sessions/", api_delete_session, true },
	{ "PATCH", "/v1/sessions/", api_patch_session, true, NULL },
	{ "GET", "/v1/sessions/", api_files_get, true, "/files/", true },
	{ "PUT", "/v1/sessions/", api_files_put, true, "/files/", true },
	{ "POST", "/v1/sessions/", api_files_post, true, "/files/", true },
	{ "DELETE", "/v1/sessions/", api_files_delete, true, "/files/", true },
	{ "GET", "/v1/receipts/", api_get_receipt, true },
	{ "GET", "/v1/tools", api_list_tools, false },
	{ "GET", "/v1/tools/", api_get_tool, true },
	{ "PUT", "/v1/tools/", api_put_tool, true },
	{ "DELETE", "/v1/tools/", api_delete_tool, true },
	{ "POST", "/mcp/", mcp_post, true, NULL, false, true },
	{ "GET", "/mcp/", mcp_get, true, NULL, false, true },
	{ "DELETE", "/mcp/", mcp_delete, true, NULL, false, true },
	{ "GET", "/metrics", on_metrics, false },
	{ "GET", "/ui", ui_get, false },
	{ "GET", "/ui/", ui_get, true },
	{ "GET", "/healthz", on_health, false },
	{ "GET", "/openapi.json", on_openapi, false },
	{ "GET", "/v1/capabilities", on_capabilities, false },
	{ "GET", "/v1/daemon", api_daemon_status, false },
	{ "POST", "/v1/daemon/drain", api_daemon_drain, false },
	{ "POST", "/v1/daemon/reload", api_daemon_reload, false },
};

/* Of a path with an id, the id is put into ret. */
static bool path_matches(const struct route *r, const char *path, char ret[ID_MAX])
{
	size_t n = strlen(r->path), len;

	*ret = 0;
	if (r->all && strncmp(path, r->path, n) == 0 && path[n] && strlen(path + n) < ID_MAX) {
		strcpy(ret, path + n);
		return true;
	}
	if (!r->prefix)
		return strcmp(path, r->path) == 0;
	if (strncmp(path, r->path, n) != 0)
		return false;
	len = strcspn(path + n, "/");
	if (len == 0 || len >= ID_MAX)
		return false;
	if (r->tail ? strncmp(path + n + len, r->suffix, strlen(r->suffix)) != 0
		    : strcmp(path + n + len, r->suffix ? r->suffix : "") != 0)
		return false;
	memcpy(ret, path + n, len);
	ret[len] = 0;
	return true;
}

/* Behind version, things, id and word: five slashes, then the rest. */
const char *api_tail(const struct http_request *rq)
{
	const char *p = http_path(rq);

	for (int i = 0; i < 5; i++)
		p += strcspn(p, "/") + 1;
	return p;
}

static void reply_no_route(struct http_request *rq, const char *allow)
{
	const char *const headers[] = { "Allow", allow, NULL };
	struct json_object *o = json_object_new_object(), *e = json_object_new_object();

	json_put_text(e, "code", *allow ? "method_not_allowed" : "not_found");
	json_put_text(e, "message",
		      *allow ? "this path has other methods" : "there is nothing at this path");
	json_put(o, "error", e);
	api_reply(rq, *allow ? 405 : 404, o, *allow ? headers : NULL);
}

void api_request(void *ctx, struct http_request *rq)
{
	const char *path = http_path(rq);
	char allow[64] = "", id[ID_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
		const struct route *r = &routes[i];

		if (!path_matches(r, path, id))
			continue;
		if (strcmp(http_method(rq), r->method) == 0) {
			r->handle(ctx, rq, id);
			return;
		}
		snprintf(allow + strlen(allow), sizeof(allow) - strlen(allow), "%s%s",
			 *allow ? ", " : "", r->method);
	}
	reply_no_route(rq, allow);
}
