/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See session_network.h.
 *
 * Rules of a request are compiled like any others, in a process of their own, then compared with
 * those in force: wider ones are refused by name. That is for the client's sake. What holds is
 * nsbox-egress's, for which all rules that it ever got for a sandbox have to agree; this says only
 * that it has the new ones once nsbox-egress said so, and ends the session where it does not.
 */
#include "daemon/front/session_network.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "daemon/front/compiler.h"
#include "daemon/front/evidence.h"
#include "daemon/front/json_reply.h"
#include "daemon/front/manifest.h"
#include "daemon/front/network.h"
#include "daemon/front/session.h"
#include "nsbox/plan_build.h"
#include "nsbox/plan_format.h"
#include "nsbox/util.h"
#include "policy/egress.h"

#define NARROWINGS_MAX 64 /* each stays in force, and in memory */

/* A request that waits for its rules to be compiled. */
struct narrowing {
	struct narrowing *next;
	struct front *f;
	struct http_request *rq;
	struct compile_ticket *ticket;
	struct json_object *wish;
	uint64_t session; /* its number */
};

/* ------------------------------------------------------------------ rules */

/* Of a plan; *ret NULL: it grants nothing. */
static int rules_of(int plan_fd, void **ret, size_t *ret_len, struct nsbox_error *err)
{
	struct blob b;
	const void *rules;
	int r = blob_map(plan_fd, PLAN_MAGIC, &b, err);

	if (r < 0)
		return r;
	rules = blob_get(&b, SEC_EGRESS, 1, ret_len);
	*ret = *ret_len ? malloc(*ret_len) : NULL;
	if (*ret)
		memcpy(*ret, rules, *ret_len);
	else if (*ret_len)
		r = nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "keep the rules of a session");
	blob_unmap(&b);
	return r;
}

/* Rules that grant nothing, with the limits of others. */
static void *no_rules(const void *like, size_t *ret_len)
{
	struct egress_head *h = calloc(1, sizeof(*h) + 1);

	if (!h)
		return NULL;
	*h = (struct egress_head){ .magic = EGRESS_MAGIC,
				   .size = sizeof(*h) + 1,
				   .strings = 1,
				   .limits = ((const struct egress_head *)like)->limits };
	*ret_len = h->size;
	return h;
}

int session_network_take(struct session *s, int plan_fd, struct nsbox_error *err)
{
	return rules_of(plan_fd, &s->network.rules, &s->network.len, err);
}

/* ------------------------------------------------------------------ decisions */

static bool runs_in(const struct job *j, const struct session *s)
{
	return j->session == s && j->in_spawn && j->phase != JOB_FINISHED;
}

/* The inside is one: what was decided while several commands ran is told with each of them. */
void session_network_event(struct session *s, const struct egress_event *e)
{
	bool told = false;

	if (e->kind == EGRESS_TOTALS)
		egress_log_take(&s->network.log, e);
	if (e->kind != EGRESS_DECISION)
		return;
	for (struct job *j = s->f->first; j; j = j->next)
		if (runs_in(j, s)) {
			egress_log_count(&j->network, e);
			told = true;
		}
	if (!told)
		egress_log_take(&s->network.log, e);
}

void session_network_over(struct session *s)
{
	if (!s->network.rules || !s->ready)
		return;
	network_settle(s->f->network, s->number);
	job_hide_events(s->hidden, s->n_hidden, &s->network.log);
	evidence_session_network(s->f, s->id, &s->network.log);
}

void session_network_done(struct session *s)
{
	free(s->network.rules);
	egress_log_done(&s->network.log);
}

/* ------------------------------------------------------------------ telling of it */

static void put_rule(struct json_object *list, const struct egress_rules *r,
		     const struct egress_rule *rule)
{
	const char *host = r->strings + rule->host;
	char text[320], addr[64];

	if (!*host) {
		egress_net_text(&rule->net, addr, sizeof(addr));
		host = addr;
	}
	for (unsigned i = 0; i < rule->ports; i++) {
		snprintf(text, sizeof(text), strchr(host, ':') ? "[%s]:%u%s" : "%s:%u%s", host,
			 r->port[rule->port + i], rule->protocol == EGRESS_UDP ? "/udp" : "");
		json_object_array_add(list, json_object_new_string(text));
	}
}

void session_network_put(const struct session *s, struct json_object *o)
{
	struct json_object *policy = json_object_new_object(), *list;
	struct egress_rules r;
	bool some =
		s->network.rules && egress_check(s->network.rules, s->network.len, &r, NULL) == 0;

	json_put_text(policy, "mode",
		      !some	      ? "none"
		      : r.head->open  ? "open"
		      : r.head->rules ? "allowlist"
				      : "none");
	if (some && !r.head->open && r.head->rules) {
		list = json_object_new_array();
		for (unsigned i = 0; i < r.head->rules; i++)
			put_rule(list, &r, &r.rule[i]);
		json_put(policy, "allow", list);
	}
	json_put(o, "network_policy", policy);
}

/* ------------------------------------------------------------------ narrowing */

/* In force, or the session has ended. */
static int enforce(struct session *s, const void *rules, size_t len, struct nsbox_error *err)
{
	int r = network_narrow(s->f->network, s->number, rules, len, err);

	if (r < 0)
		session_end(s, NSBOX_CAUSE_INTERRUPTED, "its network could not be narrowed");
	return r;
}

static int apply_ceiling(struct session *s, struct nsbox_error *err)
{
	auto_free void *rules = NULL;
	size_t len;
	int r = ceiling_egress(&s->f->services.ceiling, &rules, &len, err);

	if (r < 0) {
		session_end(s, NSBOX_CAUSE_INTERRUPTED, "its network could not be narrowed");
		return r;
	}
	return enforce(s, rules, len, err);
}

void session_network_reload(struct front *f)
{
	for (struct session *s = f->sessions, *next; s; s = next) {
		next = s->next;
		if (!s->ready)
			s->network.late = true;
		else if (s->network.rules)
			(void)apply_ceiling(s, NULL);
	}
}

void session_network_ready(struct session *s)
{
	if (s->network.late && s->network.rules)
		(void)apply_ceiling(s, NULL);
}

/* Does the session reach all of it already? Else err says what is more. */
static int check_narrower(const struct session *s, const void *rules, size_t len,
			  struct nsbox_error *err)
{
	struct egress_rules now, then;
	const char *pointer;

	if (egress_check(s->network.rules, s->network.len, &now, err) < 0 ||
	    egress_check(rules, len, &then, err) < 0)
		return -EINVAL;
	if (egress_within(&then, &now, &pointer))
		return 0;
	nsbox_fail(err, NSBOX_E_MANIFEST, 0,
		   "%s: session '%.64s' may not reach this now, and what a live session may reach "
		   "can only become less: make a new one",
		   pointer, s->id);
	return -EEXIST;
}

static int narrow(struct session *s, const void *rules, size_t len, struct json_object *wish,
		  struct nsbox_error *err)
{
	auto_free void *nothing = NULL;
	void *copy;
	int r;

	if (!s->network.rules && !rules)
		return 0; /* it has none, and is to have none */
	if (!s->network.rules) {
		nsbox_fail(err, NSBOX_E_MANIFEST, 0,
			   "/network/mode: session '%.64s' was made without a network, and cannot "
			   "get one: make a new one",
			   s->id);
		return -EEXIST;
	}
	if (!rules) {
		nothing = no_rules(s->network.rules, &len);
		rules = nothing;
	}
	r = rules ? check_narrower(s, rules, len, err) : -ENOMEM;
	if (r == 0 && s->network.narrowings >= NARROWINGS_MAX) {
		nsbox_fail(err, NSBOX_E_LIMIT, 0, "session '%.64s' has been narrowed %u times",
			   s->id, s->network.narrowings);
		return -EEXIST;
	}
	if (r < 0)
		return r;
	copy = malloc(len);
	if (!copy)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "keep the rules of a session");
	memcpy(copy, rules, len);
	r = enforce(s, rules, len, err);
	if (r < 0) {
		free(copy);
		return r;
	}
	free(s->network.rules);
	s->network.rules = copy;
	s->network.len = len;
	s->network.narrowings++;
	evidence_note(s->f, "session-narrow", s->uid, s->id,
		      json_object_to_json_string_ext(wish, JSON_C_TO_STRING_PLAIN));
	return 0;
}

/* ------------------------------------------------------------------ PATCH /v1/sessions/ID */

static void narrowing_free(struct narrowing *n)
{
	for (struct narrowing **p = &n->f->narrowings; *p; p = &(*p)->next)
		if (*p == n) {
			*p = n->next;
			break;
		}
	compiler_cancel(&n->ticket);
	json_object_put(n->wish);
	free(n);
}

static void answer(struct narrowing *n, int r, struct nsbox_error *err)
{
	struct job_spec spec = { .network = n->wish };
	const struct session *s = session_by_number(n->f, n->session);
	struct http_request *rq = n->rq;

	manifest_locate(&spec, err);
	narrowing_free(n);
	if (r < 0)
		api_reply_error(rq, r == -EEXIST ? 409 : 0, err);
	else if (s)
		api_reply(rq, 200, session_object(s), NULL);
}

static void carry_out(struct narrowing *n, const void *rules, size_t len)
{
	struct session *s = session_by_number(n->f, n->session);
	struct nsbox_error err = { 0 };
	int r = s ? narrow(s, rules, len, n->wish, &err) : -EEXIST;

	if (!s)
		nsbox_fail(&err, NSBOX_E_INVALID, 0, "the session has ended meanwhile");
	answer(n, r, &err);
}

static void on_compiled(void *ctx, const struct compile_reply *reply, int plan_fd)
{
	struct narrowing *n = ctx;
	struct nsbox_error err = reply->error;
	auto_free void *rules = NULL;
	size_t len = 0;
	int r = err.code ? -EINVAL : rules_of(plan_fd, &rules, &len, &err);

	n->ticket = NULL;
	if (r < 0)
		answer(n, r, &err);
	else
		carry_out(n, rules, len);
}

static void compile(struct narrowing *n)
{
	struct job_spec spec = { .network = n->wish };
	struct compile_request q;
	struct compile_ticket *ticket = NULL;
	struct nsbox_error err = { 0 };
	auto_free char *text = NULL;
	size_t len;

	memset(&q, 0, sizeof(q));
	memcpy(&q.host, &n->f->services.host, sizeof(q.host));
	memcpy(&q.ceiling, &n->f->services.ceiling, sizeof(q.ceiling));
	/* on_compiled() may run before this returns. */
	if (manifest_for(&spec, NULL, 0, &text, &len, &err) < 0 ||
	    compiler_start(n->f->compiler, &q, text, len, on_compiled, n, &ticket, &err) < 0)
		answer(n, -EINVAL, &err);
	else if (ticket)
		n->ticket = ticket;
}

static bool is_none(struct json_object *wish)
{
	return strcmp(json_object_get_string(json_object_object_get(wish, "mode")), "none") == 0;
}

void api_patch_session(struct front *f, struct http_request *rq, const char *id)
{
	const struct session *s = api_find_session(f, rq, id);
	struct nsbox_error err = { 0 };
	struct json_object *wish = NULL;
	struct narrowing *n;
	size_t len;
	const char *body = http_body(rq, &len);

	if (!s)
		return;
	if (request_parse_network(body, len, &wish, &err) < 0) {
		api_reply_error(rq, 0, &err);
		return;
	}
	n = s->ready ? calloc(1, sizeof(*n)) : NULL;
	if (!n) {
		json_object_put(wish);
		http_reply_error(rq, s->ready ? 503 : 409, s->ready ? "no_memory" : "conflict",
				 "session '%.64s' is not up yet", id);
		return;
	}
	*n = (struct narrowing){ f->narrowings, f, rq, NULL, wish, s->number };
	f->narrowings = n;
	if (is_none(wish))
		carry_out(n, NULL, 0);
	else
		compile(n);
}

bool session_network_gone(struct front *f, const struct http_request *rq)
{
	for (struct narrowing *n = f->narrowings; n; n = n->next)
		if (n->rq == rq) {
			narrowing_free(n);
			return true;
		}
	return false;
}

void session_network_close(struct front *f)
{
	while (f->narrowings) {
		struct http_request *rq = f->narrowings->rq;

		narrowing_free(f->narrowings);
		http_reply_error(rq, 503, "io", "the service is stopping");
	}
}
