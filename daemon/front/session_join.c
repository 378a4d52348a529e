/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a job comes to its session: the one that it names, if the job is as that one wants it, or a new
 * one. Nothing is made here but the record of it.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/common/digest.h"
#include "daemon/front/front.h"
#include "daemon/front/session.h"
#include "daemon/front/snapshot.h"
#include "nsbox/util.h"

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
	if (!s || !(s->workspace = strdup(workspace)) ||
	    !(s->image = strdup(spec->image ? spec->image : ""))) {
		snapshot_release(from);
		free(s ? s->workspace : NULL);
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
	session_lower(&s->idle_s, spec->idle_ms);
	session_lower(&s->ttl_s, spec->ttl_ms);
	s->max_commands = spec->max_commands;
	s->next = f->sessions;
	f->sessions = s;
	f->n_sessions++;
	*ret = s;
	return 0;
}

/* What no later command can have: files of another image or skill. A narrower policy it can. */
static bool is_another(const struct session *s, const struct job_spec *spec)
{
	const char *image = s->from	? s->from->recipe.image
			    : s->recipe ? s->recipe->image
					: s->image;

	return spec->has_skill || (spec->image && strcmp(spec->image, s->image) != 0 &&
				   strcmp(spec->image, image) != 0);
}

bool session_differs(const struct session *s, const struct job_spec *spec)
{
	char terms[65];

	/* Without memory for the hash it is another one, which is compiled and compared. */
	return terms_of(spec, terms, NULL) < 0 || (*terms && strcmp(terms, s->terms) != 0);
}

/* Why this job cannot run in a session that there is. */
static int check_fit(const struct session *s, const struct job_spec *spec, const char *terms,
		     struct nsbox_error *err)
{
	const char *what = NULL;

	if (*terms && strcmp(terms, s->terms) != 0 && spec->kind == JOB_SESSION)
		what = "it is there already, with another policy (PATCH /v1/sessions/ID narrows "
		       "it)";
	else if (*terms && strcmp(terms, s->terms) != 0 && is_another(s, spec))
		what = "image and skill are fixed when a session is made, and these are others";
	else if (spec->kind == JOB_SESSION && (spec->n_files || spec->archive.data))
		what = "it is there already, and only a new one begins with files";
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
	if (!s && spec->session_must_exist) {
		nsbox_fail(err, NSBOX_E_INVALID, 0, "no session has the id '%.64s'",
			   spec->session_id);
		return -ENOENT;
	}
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
