/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See session_narrow.h.
 *
 * A manifest of a request is compiled like any other, in a process of its own, which also compares it
 * with that of the session and refuses what is wider, or what no single command can have
 * (policy/narrower.c). That is for the client's sake: what holds is the kernel's, since all that a
 * command gets of it comes on top of what the sandbox has. The network is the session's as a whole
 * (session_network.c).
 */
#include "daemon/front/session_narrow.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "daemon/front/evidence.h"
#include "daemon/front/front.h"
#include "daemon/front/job_parts.h"
#include "daemon/front/manifest.h"
#include "daemon/front/snapshot.h"
#include "nsbox/util.h"

/* A request that waits for its policy to be compiled. */
struct narrowing {
	struct narrowing *next;
	struct front *f;
	struct http_request *rq;
	struct compile_ticket *ticket;
	struct job_spec *wish;
	char *text;	  /* of the manifest, where there is one */
	uint64_t session; /* its number */
};

/* ------------------------------------------------------------------ compiling */

/* The manifest of the session, then that of the request: what the worker takes apart again. */
static int both_texts(const struct session *s, const struct job_spec *spec, char **ret,
		      size_t *ret_len, size_t *ret_base, struct nsbox_error *err)
{
	size_t base = s->recipe->manifest_len, len;
	auto_free char *text = NULL;
	int r = manifest_over(spec, s->manifest, base, &text, &len, err);

	if (r < 0)
		return r;
	*ret = malloc(base + len + 1);
	if (!*ret)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "join the manifests");
	if (base)
		memcpy(*ret, s->manifest, base);
	memcpy(*ret + base, text, len);
	(*ret)[base + len] = 0;
	*ret_len = base + len;
	*ret_base = base;
	return 0;
}

int session_compile(const struct session *s, const struct job_spec *spec, uint32_t flags,
		    compile_done_fn *done, void *ctx, struct compile_ticket **ret, char **ret_text,
		    struct nsbox_error *err)
{
	auto_free char *both = NULL;
	struct compile_request q;
	size_t len = 0, base = 0;
	int r = both_texts(s, spec, &both, &len, &base, err);

	if (r < 0)
		return r;
	*ret_text = strdup(both + base);
	if (!*ret_text)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "keep a manifest");
	memset(&q, 0, sizeof(q));
	memcpy(&q.host, &s->f->services.host, sizeof(q.host));
	memcpy(&q.ceiling, &s->f->services.ceiling, sizeof(q.ceiling));
	q.flags = flags | COMPILE_NARROWER | (s->recipe->as_operator ? COMPILE_OPERATOR : 0);
	q.base_len = base;
	memcpy(q.skill_dir, s->recipe->skill_dir, sizeof(q.skill_dir));
	if (spec->entrypoint)
		snprintf(q.entrypoint, sizeof(q.entrypoint), "%s", spec->entrypoint);
	return compiler_start(s->f->compiler, &q, both, len, done, ctx, ret, err);
}

int session_compared(const struct session *s, const struct compile_reply *reply,
		     struct nsbox_error *err)
{
	if (strcmp(reply->base_digest, s->policy_sha256) == 0)
		return 0;
	nsbox_fail(
		err, NSBOX_E_MANIFEST, 0,
		"/: what session '%.64s' was made with gives another policy now (it was narrowed "
		"meanwhile, or the operator's limits have changed): ask again, or make a new one",
		s->id);
	return -EEXIST;
}

/* ------------------------------------------------------------------ for all that come */

/* In force for commands that start from now on. Nothing fails once the network was narrowed. */
static int tighten(struct session *s, struct narrowing *n, const struct compile_reply *reply,
		   int plan_fd, struct nsbox_error *err)
{
	auto_free void *rules = NULL;
	auto_free struct wire_output *outputs = NULL;
	struct nsbox_plan *plan = NULL;
	char plan_sha256[65];
	uint32_t n_outputs = 0;
	size_t len = 0;
	int r = session_compared(s, reply, err);

	if (r == 0)
		r = job_plan_facts(plan_fd, plan_sha256, &outputs, &n_outputs, err);
	if (r == 0)
		r = session_network_rules(plan_fd, &rules, &len, err);
	if (r == 0)
		r = nsbox_plan_open(plan_fd, &plan, err);
	if (r == 0)
		r = session_network_narrow(s, rules, len, n->wish->manifest, err);
	if (r < 0) {
		nsbox_plan_close(plan);
		return r;
	}
	nsbox_plan_close(s->narrower);
	s->narrower = plan;
	*s->plan = *reply;
	free(s->rules);
	s->rules = take_ptr(&outputs);
	s->n_rules = n_outputs;
	free(s->manifest);
	s->manifest = take_ptr(&n->text);
	s->recipe->manifest_len = (uint32_t)strlen(s->manifest);
	job_hash_manifest(n->wish->manifest, s->manifest_sha256);
	memcpy(s->recipe->manifest_sha256, s->manifest_sha256, sizeof(s->manifest_sha256));
	memcpy(s->policy_sha256, reply->digest, sizeof(s->policy_sha256));
	memcpy(s->plan_sha256, plan_sha256, sizeof(plan_sha256));
	s->terms[0] = 0; /* whoever says again what it was made with says something wider */
	evidence_note(s->f, "session-tighten", s->uid, s->id, s->policy_sha256);
	return 0;
}

static void narrowing_free(struct narrowing *n)
{
	for (struct narrowing **p = &n->f->narrowings; *p; p = &(*p)->next)
		if (*p == n) {
			*p = n->next;
			break;
		}
	compiler_cancel(&n->ticket);
	job_spec_free(n->wish);
	free(n->text);
	free(n);
}

static void answer(struct narrowing *n, bool conflict, int r, struct nsbox_error *err)
{
	const struct session *s = session_by_number(n->f, n->session);
	struct http_request *rq = n->rq;

	manifest_locate(n->wish, err);
	narrowing_free(n);
	if (r < 0)
		api_reply_error(rq, conflict || r == -EEXIST ? 409 : 0, err);
	else if (s)
		api_reply(rq, 200, session_object(s), NULL);
}

static int carry_out(struct narrowing *n, const struct compile_reply *reply, int plan_fd,
		     struct nsbox_error *err)
{
	struct session *s = session_by_number(n->f, n->session);
	auto_free void *rules = NULL;
	size_t len = 0;
	int r;

	if (!s) {
		nsbox_fail(err, NSBOX_E_INVALID, 0, "the session has ended meanwhile");
		return -EEXIST;
	}
	if (reply && n->wish->manifest)
		return tighten(s, n, reply, plan_fd, err);
	r = plan_fd >= 0 ? session_network_rules(plan_fd, &rules, &len, err) : 0;
	return r == 0 ? session_network_narrow(s, rules, len, n->wish->network, err) : r;
}

static void on_compiled(void *ctx, const struct compile_reply *reply, int plan_fd)
{
	struct narrowing *n = ctx;
	struct nsbox_error err = reply->error;
	int r = err.code ? -EINVAL : carry_out(n, reply, plan_fd, &err);

	n->ticket = NULL;
	answer(n, n->wish->manifest && reply->base_digest[0], r, &err);
}

/* The rules of the network alone: a manifest that says nothing else. */
static int compile_network(struct narrowing *n, struct compile_ticket **ret,
			   struct nsbox_error *err)
{
	struct compile_request q;
	auto_free char *text = NULL;
	size_t len;
	int r = manifest_for(n->wish, NULL, 0, &text, &len, err);

	if (r < 0)
		return r;
	memset(&q, 0, sizeof(q));
	memcpy(&q.host, &n->f->services.host, sizeof(q.host));
	memcpy(&q.ceiling, &n->f->services.ceiling, sizeof(q.ceiling));
	return compiler_start(n->f->compiler, &q, text, len, on_compiled, n, ret, err);
}

/* on_compiled() may run, and n be gone, before this returns. */
static void start(struct narrowing *n, const struct session *s)
{
	struct compile_ticket *ticket = NULL;
	struct nsbox_error err = { 0 };
	int r = n->wish->manifest
			? session_compile(s, n->wish, 0, on_compiled, n, &ticket, &n->text, &err)
			: compile_network(n, &ticket, &err);

	if (r < 0)
		answer(n, false, r, &err);
	else if (ticket)
		n->ticket = ticket;
}

static bool is_none(struct json_object *wish)
{
	return wish &&
	       strcmp(json_object_get_string(json_object_object_get(wish, "mode")), "none") == 0;
}

/* ------------------------------------------------------------------ PATCH /v1/sessions/ID */

void api_patch_session(struct front *f, struct http_request *rq, const char *id)
{
	const struct session *s = api_find_session(f, rq, id);
	struct nsbox_error err = { 0 };
	struct job_spec *wish = NULL;
	struct narrowing *n;
	size_t len;
	const char *body = http_body(rq, &len);
	int r;

	if (!s)
		return;
	if (request_parse_narrowing(body, len, &wish, &err) < 0) {
		api_reply_error(rq, 0, &err);
		return;
	}
	n = s->ready ? calloc(1, sizeof(*n)) : NULL;
	if (!n) {
		job_spec_free(wish);
		http_reply_error(rq, s->ready ? 503 : 409, s->ready ? "no_memory" : "conflict",
				 "session '%.64s' is not up yet", id);
		return;
	}
	*n = (struct narrowing){ f->narrowings, f, rq, NULL, wish, NULL, s->number };
	f->narrowings = n;
	if (wish->manifest || !is_none(wish->network)) {
		start(n, s);
		return;
	}
	r = carry_out(n, NULL, -1, &err);
	answer(n, false, r, &err);
}

bool session_narrow_gone(struct front *f, const struct http_request *rq)
{
	for (struct narrowing *n = f->narrowings; n; n = n->next)
		if (n->rq == rq) {
			narrowing_free(n);
			return true;
		}
	return false;
}

void session_narrow_close(struct front *f)
{
	while (f->narrowings) {
		struct http_request *rq = f->narrowings->rq;

		narrowing_free(f->narrowings);
		http_reply_error(rq, 503, "io", "the service is stopping");
	}
}
