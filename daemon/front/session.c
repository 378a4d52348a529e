/* SPDX-License-Identifier: Apache-2.0 */
/* See session.h. */
#include "daemon/front/session.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/common/digest.h"
#include "daemon/front/box_files.h"
#include "daemon/front/evidence.h"
#include "daemon/front/json_reply.h"
#include "daemon/front/snapshot.h"
#include "nsbox/util.h"

static const char *const state_names[] = { "new", "making", "up", "over" };

/* ------------------------------------------------------------------ life */

static struct session *session_ref(struct session *s)
{
	s->refs++;
	return s;
}

static void session_unref(struct session *s)
{
	if (--s->refs)
		return;
	loop_timer_cancel(s->f->loop, &s->timer);
	free(s->workspace);
	snapshot_release(s->from);
	free(s->recipe);
	free(s->manifest);
	free(s->plan);
	free(s->rules);
	session_network_done(s);
	for (size_t i = 0; i < s->n_hidden; i++)
		input_done(&s->hidden[i]);
	free(s->hidden);
	free(s);
}

static void note(const struct session *s, const char *what, const char *why)
{
	evidence_note(s->f, what, s->uid, s->id, why);
}

/* Out of the list: nobody finds it any more, and its name is free. */
static void forget(struct session *s)
{
	for (struct session **p = &s->f->sessions; *p; p = &(*p)->next) {
		if (*p == s) {
			*p = s->next;
			break;
		}
	}
	s->f->n_sessions--;
	loop_timer_cancel(s->f->loop, &s->timer);
	session_unref(s);
}

static void over(struct session *s, const char *why)
{
	struct wire_request q = { .kind = WIRE_END, .sandbox = s->number };

	if (s->state == SESSION_OVER)
		return;
	session_network_over(s);
	if (s->plan)
		(void)link_send(s->f->link, &q, NULL, 0, NULL);
	if (s->state != SESSION_NEW)
		note(s, "session-end", why);
	s->state = SESSION_OVER;
	box_files_lost(s->f, s->number);
	snapshot_lost(s->f, s->number);
	forget(s);
}

/* Each of its jobs; fn may end the job. */
static void each_job(struct session *s, void (*fn)(struct job *j, void *arg), void *arg)
{
	for (struct job *j = s->f->first, *next; j; j = next) {
		next = j->next;
		if (j->session == s && j->phase != JOB_FINISHED)
			fn(j, arg);
	}
}

/* ------------------------------------------------------------------ time */

static void on_time(void *ctx);

/* The earlier of both: nothing happened for so long, and the end of its life. */
static void set_timer(struct session *s)
{
	uint64_t now = monotonic_us(), at = s->created_us + s->ttl_s * 1000000;
	uint64_t idle = s->used_us + s->idle_s * 1000000;

	if (!s->held)
		at = MIN(at, idle);
	s->timer = (struct loop_timer){ .fn = on_time,
					.ctx = s,
					.next = s->timer.next,
					.armed = s->timer.armed,
					.at = s->timer.at };
	loop_timer_set(s->f->loop, &s->timer, at > now ? at - now : 0);
}

static void on_time(void *ctx)
{
	struct session *s = ctx;
	uint64_t now = monotonic_us();

	if (now >= s->created_us + s->ttl_s * 1000000)
		session_end(s, NSBOX_CAUSE_CANCELLED, "its time is up");
	else if (!s->held && now >= s->used_us + s->idle_s * 1000000)
		session_end(s, NSBOX_CAUSE_CANCELLED, "nothing happened in it");
	else
		set_timer(s);
}

/* ------------------------------------------------------------------ terms */

/* The request's part that fixes the policy, as text; NULL: it has none, or no memory. */
static char *terms_text(const struct job_spec *s)
{
	char skill[65] = "", *ret = NULL;

	if (!s->manifest && !s->image && !s->cpu_milli && !s->memory_mb && !s->pids &&
	    !s->network && !s->has_skill)
		return NULL;
	if (s->has_skill &&
	    digest_hex(s->skill_archive.data, s->skill_archive.len, skill, NULL) < 0)
		return NULL;
	if (asprintf(&ret, "%s|%u|%llu|%u|%d|%s|%s|%s|%s", s->image ? s->image : "", s->cpu_milli,
		     (unsigned long long)s->memory_mb, s->pids, s->as_operator, skill,
		     s->skill_name ? s->skill_name : "",
		     s->network ? json_object_to_json_string_ext(s->network, JSON_C_TO_STRING_PLAIN)
				: "",
		     s->manifest
			     ? json_object_to_json_string_ext(s->manifest, JSON_C_TO_STRING_PLAIN)
			     : "") < 0)
		return NULL;
	return ret;
}

/* "": it says nothing about the policy. */
static int terms_of(const struct job_spec *spec, char ret[65], struct nsbox_error *err)
{
	auto_free char *text = terms_text(spec);

	*ret = 0;
	return text ? digest_hex(text, strlen(text), ret, err) : 0;
}

/* ------------------------------------------------------------------ joining */

/* Whole seconds, one at least; 0: no wish. */
static void lower(uint64_t *limit, uint64_t ms)
{
	if (ms)
		*limit = MIN(*limit, MAX(ms / 1000, UINT64_C(1)));
}

/* What it is to begin with, if that is asked for. The policy is then that of the snapshot. */
static int hold_snapshot(struct front *f, const struct who *who, const char *workspace,
			 const struct job_spec *spec, struct snapshot **ret,
			 struct nsbox_error *err)
{
	struct snapshot *n =
		spec->snapshot_id ? snapshot_find(f->snapshots, who, spec->snapshot_id) : NULL;

	*ret = NULL;
	if (!spec->snapshot_id)
		return 0;
	if (!n || strcmp(n->workspace, workspace) != 0) {
		nsbox_fail(err, NSBOX_E_INVALID, 0,
			   "/snapshot_id: the workspace has no snapshot '%.64s'",
			   spec->snapshot_id);
		return -ENOENT;
	}
	if (n->recipe.as_operator && !spec->as_operator)
		return nsbox_fail(
			err, NSBOX_E_INVALID, 0,
			"/operator: the snapshot's session was made with it, and needs it "
			"again");
	snapshot_hold(n);
	*ret = n;
	return 0;
}

static int make_new(struct front *f, const struct who *who, const char *workspace,
		    const struct job_spec *spec, struct session **ret, struct nsbox_error *err)
{
	const struct front_options *o = f->opt;
	struct snapshot *from;
	struct session *s;
	struct timespec now;
	int r;

	if (f->n_sessions >= o->sessions) {
		nsbox_fail(err, NSBOX_E_LIMIT, 0, "%u sessions are alive", f->n_sessions);
		return -EAGAIN;
	}
	r = hold_snapshot(f, who, workspace, spec, &from, err);
	if (r < 0)
		return r;
	s = calloc(1, sizeof(*s));
	if (!s || !(s->workspace = strdup(workspace))) {
		snapshot_release(from);
		free(s);
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "make a session");
	}
	clock_gettime(CLOCK_REALTIME, &now);
	s->f = f;
	s->from = from;
	s->refs = 1;
	s->number = ++f->numbers;
	snprintf(s->id, sizeof(s->id), "%s", spec->session_id);
	s->uid = who->uid;
	s->created_unix_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
	s->created_us = s->used_us = monotonic_us();
	s->idle_s = o->session_idle_s;
	s->ttl_s = o->session_ttl_s;
	lower(&s->idle_s, spec->idle_ms);
	lower(&s->ttl_s, spec->ttl_ms);
	s->max_commands = spec->max_commands;
	s->next = f->sessions;
	f->sessions = s;
	f->n_sessions++;
	*ret = s;
	return 0;
}

/* Why this job cannot run in a session that there is. */
static int check_fit(const struct session *s, const struct job_spec *spec, const char *terms,
		     struct nsbox_error *err)
{
	const char *what = NULL;

	if (*terms && strcmp(terms, s->terms) != 0)
		what = "image, manifest, resources, network_policy and skill are fixed when a "
		       "session is made, and "
		       "these are others";
	else if (spec->n_files || spec->archive.data)
		what = "files of a request are for the session's first";
	else if (spec->idle_ms || spec->ttl_ms || spec->max_commands)
		what = "a session's life is fixed when it is made";
	else if (spec->snapshot_id)
		what = "it is there already, and only a new one can begin with a snapshot";
	/* No errno in these messages: the refusals are ours. */
	if (what) {
		nsbox_fail(err, NSBOX_E_INVALID, 0, "session '%.64s': %s", s->id, what);
		return -EEXIST;
	}
	if (s->max_commands && s->promised >= s->max_commands) {
		nsbox_fail(err, NSBOX_E_LIMIT, 0, "session '%.64s' has had its %u commands", s->id,
			   s->max_commands);
		return -EEXIST;
	}
	if (s->held >= s->f->opt->session_commands) {
		nsbox_fail(err, NSBOX_E_LIMIT, 0, "%u commands wait or run in session '%.64s'",
			   s->held, s->id);
		return -EAGAIN;
	}
	return 0;
}

int session_join(struct front *f, const struct who *who, const char *workspace,
		 const struct job_spec *spec, struct session **ret, struct nsbox_error *err)
{
	struct session *s = NULL;
	char terms[65];
	int r = terms_of(spec, terms, err);

	if (r < 0)
		return r;
	(void)session_find(f, who, spec->session_id, workspace, &s);
	r = s ? check_fit(s, spec, terms, err) : make_new(f, who, workspace, spec, &s, err);
	if (r < 0 || !s)
		return r;
	if (!s->held && s->state == SESSION_NEW)
		memcpy(s->terms, s->from ? s->from->recipe.terms : terms, sizeof(terms));
	s->held++;
	s->promised += spec->kind != JOB_SESSION;
	*ret = session_ref(s);
	return 0;
}

void session_leave(struct session *s, struct job *j)
{
	struct nsbox_error why = { 0 };

	s->held--;
	s->used_us = monotonic_us();
	if (j && j->makes_session && s->state == SESSION_MAKING) {
		nsbox_fail(&why, NSBOX_E_INVALID, ECANCELED,
			   "session '%.64s' was not made: its first command came to an early end",
			   s->id);
		session_failed(s, j->error.code ? &j->error : &why);
	} else if (s->state == SESSION_NEW && !s->held) {
		over(s, "");
	} else if (s->state != SESSION_OVER) {
		if (s->max_commands && s->promised >= s->max_commands && !s->held)
			over(s, "it has had its commands");
		else
			set_timer(s);
	}
	session_unref(s);
}

/* ------------------------------------------------------------------ making */

enum session_turn session_begin(struct session *s, struct job *j)
{
	if (s->state == SESSION_UP && !s->frozen)
		return SESSION_ENTER;
	if (s->state == SESSION_UP || s->state == SESSION_MAKING)
		return SESSION_WAIT;
	s->state = SESSION_MAKING;
	j->makes_session = true;
	set_timer(s);
	note(s, "session-open", s->workspace);
	return SESSION_MAKE;
}

static void enter(struct job *j, void *arg)
{
	if (!j->makes_session && j->phase == JOB_STAGING)
		job_enter(j);
}

void session_freeze(struct session *s)
{
	session_ref(s);
	s->frozen++;
}

/* Commands that came meanwhile run. */
void session_thaw(struct session *s)
{
	s->used_us = monotonic_us();
	if (--s->frozen == 0 && s->state == SESSION_UP)
		each_job(s, enter, NULL);
	session_unref(s);
}

/* What others need to be made like it. */
static int keep_recipe(struct session *s, const struct job *j, struct nsbox_error *err)
{
	struct recipe *r = s->recipe = calloc(1, sizeof(*r));

	s->manifest = j->policy_text ? strdup(j->policy_text) : NULL;
	if (!r || (j->policy_text && !s->manifest))
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "keep what a session is made of");
	if (s->from)
		*r = s->from->recipe;
	r->manifest_len = s->manifest ? (uint32_t)strlen(s->manifest) : 0;
	if (!s->from) {
		snprintf(r->image, sizeof(r->image), "%s",
			 j->spec->image ? j->spec->image : j->plan->image);
		memcpy(r->manifest_sha256, j->manifest_sha256, sizeof(r->manifest_sha256));
		memcpy(r->skill_dir, j->staged.skill_dir, sizeof(r->skill_dir));
		r->as_operator = j->spec->as_operator;
	}
	snapshot_release(take_ptr(&s->from));
	return 0;
}

int session_made(struct session *s, const struct job *j, int plan_fd, struct nsbox_error *err)
{
	uint32_t n = j->n_rules;
	int r = session_network_take(s, plan_fd, err);

	if (r == 0)
		r = keep_recipe(s, j, err);
	if (r < 0)
		return r;
	s->plan = malloc(sizeof(*s->plan));
	s->rules = calloc(j->n_rules + 1, sizeof(*s->rules));
	if (!s->plan || !s->rules) {
		free_ptr(&s->plan);
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "keep the plan of a session");
	}
	*s->plan = *j->plan;
	/* The request's own are the last, and of this command alone. */
	for (char *const *own = j->spec->outputs; n && own && *own; own++)
		n--;
	if (n)
		memcpy(s->rules, j->rules, n * sizeof(*s->rules));
	s->n_rules = n;
	memcpy(s->manifest_sha256, j->manifest_sha256, sizeof(s->manifest_sha256));
	memcpy(s->policy_sha256, j->policy_sha256, sizeof(s->policy_sha256));
	memcpy(s->plan_sha256, j->plan_sha256, sizeof(s->plan_sha256));
	lower(&s->idle_s, s->plan->limits.session_idle_ms);
	lower(&s->ttl_s, s->plan->limits.session_ttl_ms);
	if (s->plan->limits.session_commands)
		s->max_commands = s->max_commands
					  ? MIN(s->max_commands, s->plan->limits.session_commands)
					  : s->plan->limits.session_commands;
	s->state = SESSION_UP;
	set_timer(s);
	each_job(s, enter, NULL);
	return 0;
}

static void fail_job(struct job *j, void *arg)
{
	job_refuse(j, arg);
}

void session_failed(struct session *s, const struct nsbox_error *why)
{
	struct nsbox_error copy = *why;

	if (s->state == SESSION_OVER)
		return;
	session_ref(s);
	over(s, copy.msg);
	each_job(s, fail_job, &copy);
	session_unref(s);
}

/* ------------------------------------------------------------------ events and the end */

static void ready(struct job *j, void *arg)
{
	struct wire_event *w = arg;

	memcpy(j->image_digest, w->image, sizeof(j->image_digest));
	job_event(j, &w->event);
}

static void pass_on(struct job *j, void *arg)
{
	job_event(j, arg);
}

void session_event(struct session *s, struct wire_event *w)
{
	session_ref(s);
	if (w->event.kind == NSBOX_EVENT_READY) {
		s->ready = true;
		s->set_up = w->event.result;
		session_network_ready(s);
		memcpy(s->image_digest, w->image, sizeof(s->image_digest));
		each_job(s, ready, w);
	} else if (w->event.kind == NSBOX_EVENT_FILES) {
		s->used_us = monotonic_us();
		if (!snapshot_event(s->f, s->number, &w->event))
			box_files_event(s->f, s->number, &w->event);
	} else if (w->event.kind == NSBOX_EVENT_FAILED) {
		session_failed(s, &w->event.error);
	} else if (w->event.kind == NSBOX_EVENT_GONE) {
		over(s, "its init ended");
		each_job(s, pass_on, &w->event);
	}
	session_unref(s);
}

static void end_job(struct job *j, void *arg)
{
	job_end(j, *(uint32_t *)arg);
}

void session_end(struct session *s, uint32_t cause, const char *why)
{
	session_ref(s);
	over(s, why);
	each_job(s, end_job, &cause);
	session_unref(s);
}

void sessions_close(struct front *f)
{
	while (f->sessions)
		session_end(f->sessions, NSBOX_CAUSE_INTERRUPTED, "the service ends");
}

/* ------------------------------------------------------------------ looking */

struct session *session_by_number(struct front *f, uint64_t number)
{
	for (struct session *s = f->sessions; s; s = s->next)
		if (s->number == number)
			return s;
	return NULL;
}

unsigned session_find(struct front *f, const struct who *who, const char *id, const char *workspace,
		      struct session **ret)
{
	unsigned n = 0;

	for (struct session *s = f->sessions; s; s = s->next) {
		if (strcmp(s->id, id) != 0 || !who_sees(who, s->uid, s->workspace) ||
		    (workspace && strcmp(s->workspace, workspace) != 0))
			continue;
		*ret = s;
		n++;
	}
	return n;
}

struct json_object *session_object(const struct session *s)
{
	struct json_object *o = json_object_new_object();
	uint64_t now = monotonic_us();

	json_put_text(o, "id", s->id);
	json_put_text(o, "workspace_id", s->workspace);
	json_put_text(o, "state", state_names[s->state]);
	json_put_u64(o, "created_ms", s->created_unix_ms);
	json_put_u64(o, "commands", s->commands);
	json_put_u64(o, "running", s->held);
	if (s->max_commands)
		json_put_u64(o, "max_commands", s->max_commands);
	json_put_u64(o, "idle_seconds", s->held ? 0 : (now - s->used_us) / 1000000);
	json_put_u64(o, "idle_timeout_seconds", s->idle_s);
	json_put_u64(o, "age_seconds", (now - s->created_us) / 1000000);
	json_put_u64(o, "ttl_seconds", s->ttl_s);
	if (s->plan) {
		json_put_u64(o, "command_timeout_ms", s->plan->limits.wall_ms);
		json_put_u64(o, "memory_limit", s->plan->limits.memory);
		json_put_u64(o, "pids_limit", s->plan->limits.pids);
		json_put_text(o, "policy_sha256", s->policy_sha256);
	}
	if (s->ready) {
		json_put_text(o, "image_digest", s->image_digest);
		session_network_put(s, o);
	}
	return o;
}

struct json_object *session_note(const struct session *s, const struct job *j)
{
	struct json_object *o = json_object_new_object();

	json_put_text(o, "id", s->id);
	json_put(o, "created", json_object_new_boolean(j->makes_session));
	json_put_u64(o, "commands", s->commands);
	return o;
}
