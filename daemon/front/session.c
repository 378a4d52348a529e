/* SPDX-License-Identifier: Apache-2.0 */
/* See session.h. */
#include "daemon/front/session.h"

#include <stdio.h>
#include <string.h>

#include "daemon/front/box_files.h"
#include "daemon/front/evidence.h"
#include "daemon/front/snapshot.h"
#include "nsbox/util.h"

/* ------------------------------------------------------------------ life */

struct session *session_ref(struct session *s)
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
	free(s->image);
	nsbox_plan_close(s->narrower);
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

/* ------------------------------------------------------------------ its jobs */

void session_leave(struct session *s, struct job *j)
{
	struct nsbox_error why = { 0 };

	s->held--;
	s->used_us = monotonic_us();
	if (j && j->makes_session && s->state == SESSION_MAKING) {
		nsbox_fail(&why, NSBOX_E_INVALID, ECANCELED,
			   "session '%.64s' was not made: its first command came to an early end",
			   s->id);
		session_failed(s, j->run->error.code ? &j->run->error : &why);
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

void session_lower(uint64_t *limit, uint64_t ms)
{
	if (ms)
		*limit = MIN(*limit, MAX(ms / 1000, UINT64_C(1)));
}

/* What others need to be made like it. */
static int keep_recipe(struct session *s, const struct job *j, struct nsbox_error *err)
{
	struct recipe *r = s->recipe = calloc(1, sizeof(*r));

	s->manifest = j->run->policy_text ? strdup(j->run->policy_text) : NULL;
	if (!r || (j->run->policy_text && !s->manifest))
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "keep what a session is made of");
	if (s->from)
		*r = s->from->recipe;
	r->manifest_len = s->manifest ? (uint32_t)strlen(s->manifest) : 0;
	if (!s->from) {
		snprintf(r->image, sizeof(r->image), "%s",
			 j->spec->image ? j->spec->image : j->run->plan->image);
		memcpy(r->manifest_sha256, j->run->manifest_sha256, sizeof(r->manifest_sha256));
		memcpy(r->skill_dir, j->run->staged.skill_dir, sizeof(r->skill_dir));
		r->as_operator = j->spec->as_operator;
	}
	snapshot_release(take_ptr(&s->from));
	return 0;
}

int session_made(struct session *s, const struct job *j, int plan_fd, struct nsbox_error *err)
{
	uint32_t n = j->run->n_rules;
	int r = session_network_take(s, plan_fd, err);

	if (r == 0)
		r = keep_recipe(s, j, err);
	if (r < 0)
		return r;
	s->plan = malloc(sizeof(*s->plan));
	s->rules = calloc(j->run->n_rules + 1, sizeof(*s->rules));
	if (!s->plan || !s->rules) {
		free_ptr(&s->plan);
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "keep the plan of a session");
	}
	*s->plan = *j->run->plan;
	/* The request's own are the last, and of this command alone. */
	for (char *const *own = j->spec->outputs; n && own && *own; own++)
		n--;
	if (n)
		memcpy(s->rules, j->run->rules, n * sizeof(*s->rules));
	s->n_rules = n;
	memcpy(s->manifest_sha256, j->run->manifest_sha256, sizeof(s->manifest_sha256));
	memcpy(s->policy_sha256, j->run->policy_sha256, sizeof(s->policy_sha256));
	memcpy(s->plan_sha256, j->run->plan_sha256, sizeof(s->plan_sha256));
	session_lower(&s->idle_s, s->plan->limits.session_idle_ms);
	session_lower(&s->ttl_s, s->plan->limits.session_ttl_ms);
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
		each_job(s, pass_on, w);
	} else if (w->event.kind == NSBOX_EVENT_FILES) {
		s->used_us = monotonic_us();
		if (!snapshot_event(s->f, s->number, &w->event))
			box_files_event(s->f, s->number, &w->event);
	} else if (w->event.kind == NSBOX_EVENT_FAILED) {
		session_failed(s, &w->event.error);
	} else if (w->event.kind == NSBOX_EVENT_GONE) {
		over(s, "its init ended");
		each_job(s, pass_on, w);
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
