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

#include "daemon/front/evidence.h"
#include "daemon/front/json_reply.h"
#include "daemon/front/network.h"
#include "daemon/front/session.h"
#include "nsbox/plan_build.h"
#include "nsbox/plan_format.h"
#include "nsbox/util.h"
#include "policy/egress.h"

#define NARROWINGS_MAX 64 /* each stays in force, and in memory */

/* ------------------------------------------------------------------ rules */

int session_network_rules(int plan_fd, void **ret, size_t *ret_len, struct nsbox_error *err)
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
	return session_network_rules(plan_fd, &s->network.rules, &s->network.len, err);
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
			egress_log_count(&j->run->network, e);
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

/* The rules are those in force: neither more nor less. */
static bool same_rules(const struct session *s, const void *rules, size_t len,
		       const char **ret_pointer)
{
	struct egress_rules now, then;

	*ret_pointer = "/network/mode";
	if (!s->network.rules || !rules)
		return !s->network.rules && !rules;
	return egress_check(s->network.rules, s->network.len, &now, NULL) == 0 &&
	       egress_check(rules, len, &then, NULL) == 0 &&
	       egress_within(&now, &then, ret_pointer) && egress_within(&then, &now, ret_pointer);
}

int session_network_same(const struct session *s, int plan_fd, struct nsbox_error *err)
{
	auto_free void *rules = NULL;
	const char *pointer;
	size_t len;
	int r = session_network_rules(plan_fd, &rules, &len, err);

	if (r == 0 && s->network.rules && rules)
		r = check_narrower(s, rules, len, err);
	if (r < 0 || same_rules(s, rules, len, &pointer))
		return r;
	nsbox_fail(
		err, NSBOX_E_UNSUPPORTED, 0,
		"%s: what session '%.64s' may reach is one for all its commands: say it as it is, "
		"or narrow that of the session (PATCH /v1/sessions/ID)",
		pointer, s->id);
	return -EEXIST;
}

int session_network_narrow(struct session *s, const void *rules, size_t len,
			   struct json_object *wish, struct nsbox_error *err)
{
	auto_free void *nothing = NULL;
	const char *pointer;
	void *copy;
	int r;

	if (same_rules(s, rules, len, &pointer))
		return 0; /* also where it has none, and is to have none */
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
