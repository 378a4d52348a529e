/* SPDX-License-Identifier: Apache-2.0 */
/* Findings, and the one place where text of a skill becomes text that may be shown. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/skill/skill.h"
#include "policy/skill/text.h"

static const struct {
	const char *name, *text;
	int severity;
} table[] = {
#define X(sym, id, severity, text) { id, text, SKILL_##severity },
	SKILL_FINDINGS(X)
#undef X
};

const char *skill_finding_name(int id)
{
	return id >= 0 && id < SKILL_F_MAX ? table[id].name : "?";
}

const char *skill_finding_text(int id)
{
	return id >= 0 && id < SKILL_F_MAX ? table[id].text : "?";
}

int skill_finding_severity(int id)
{
	return id >= 0 && id < SKILL_F_MAX ? table[id].severity : SKILL_ERROR;
}

const char *skill_severity_name(int severity)
{
	return severity == SKILL_ERROR ? "error" : "warning";
}

static size_t *counter(struct skill_report *rep, const struct skill_finding *f)
{
	return f->fixed ? &rep->fixed : f->severity == SKILL_ERROR ? &rep->errors : &rep->warnings;
}

static char *shown(const char *s)
{
	return text_shown(s, strlen(s));
}

static struct skill_finding *append(struct skill_report *rep)
{
	struct skill_finding *list;

	if (rep->n >= SKILL_REPORT_MAX)
		return NULL;
	/* All at once: callers hold pointers to findings while more are added. */
	list = rep->list ? rep->list : calloc(SKILL_REPORT_MAX, sizeof(*list));
	rep->list = list;
	return list ? &list[rep->n] : NULL;
}

static void drop(struct skill_finding *f)
{
	free(f->path);
	free(f->message);
	free(f->remedy);
	memset(f, 0, sizeof(*f));
}

/* A library that several programs load lacks the same thing each time. */
static bool said(const struct skill_report *rep, const struct skill_finding *f)
{
	for (size_t i = 0; i < rep->n; i++)
		if (rep->list[i].id == f->id && !strcmp(rep->list[i].path, f->path) &&
		    !strcmp(rep->list[i].message, f->message))
			return true;
	return false;
}

struct skill_finding *report_add(struct skill_report *rep, int id, const char *path,
				 const char *remedy, const char *fmt, ...)
{
	struct skill_finding *f = append(rep);
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (f)
		*f = (struct skill_finding){ .id = id,
					     .severity = skill_finding_severity(id),
					     .path = shown(path),
					     .message = shown(text),
					     .remedy = remedy ? shown(remedy) : NULL };
	if (f && f->path && f->message && said(rep, f)) {
		drop(f);
		return NULL;
	}
	if (!f || !f->path || !f->message || (remedy && !f->remedy)) {
		/* What cannot be told still counts: a report with holes must not look clean. */
		rep->left_out++;
		if (skill_finding_severity(id) == SKILL_ERROR)
			rep->errors++;
		else
			rep->warnings++;
		if (f)
			drop(f);
		return NULL;
	}
	rep->n++;
	++*counter(rep, f);
	return f;
}

void report_lower(struct skill_report *rep, struct skill_finding *f)
{
	if (!f)
		return;
	--*counter(rep, f);
	f->severity = SKILL_WARNING;
	++*counter(rep, f);
}

void report_fixed(struct skill_report *rep, struct skill_finding *f)
{
	if (!f)
		return;
	--*counter(rep, f);
	f->fixed = true;
	++*counter(rep, f);
}

void report_done(struct skill_report *rep)
{
	for (size_t i = 0; i < rep->n; i++)
		drop(&rep->list[i]);
	free(rep->list);
	memset(rep, 0, sizeof(*rep));
}
