/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `nsbox policy lint`: the errors that a run would meet, then warnings. An error stops at the first:
 * what comes after it would be guessed.
 */
#include "policy/lint.h"

#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/json_strict.h"
#include "policy/skill/skill.h"

/* A text that is no JSON says itself where: "... (line 3, column 7)". */
static bool said_place(const char *text, unsigned *line, unsigned *column)
{
	const char *said = strstr(text, "(line ");
	char *end;

	if (!said)
		return false;
	*line = (unsigned)strtoul(said + 6, &end, 10);
	if (strncmp(end, ", column ", 9) != 0)
		return false;
	*column = (unsigned)strtoul(end + 9, &end, 10);
	return *end == ')';
}

static bool place(const struct lint *l, const char *text, const char *pointer, unsigned *line,
		  unsigned *column)
{
	if (!l->in->json)
		return false;
	return said_place(text, line, column) ||
	       lint_locate(l->in->json, l->in->len, pointer ? pointer : "", line, column);
}

void lint_add(struct lint *l, bool error, const char *id, const char *pointer, const char *fmt, ...)
{
	struct json_object *o = report_add_to(l->list, json_object_new_object());
	char text[640];
	unsigned line = 0, column = 0;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	report_str(o, "severity", error ? "error" : "warning");
	report_str(o, "id", id);
	report_str(o, "pointer", pointer);
	if (place(l, text, pointer, &line, &column)) {
		report_u64(o, "line", line);
		report_u64(o, "column", column);
	}
	report_str(o, "message", text);
	if (error)
		l->errors++;
	else
		l->warnings++;
}

/* "/resources/memory: must be ..." -> pointer and text. */
static void add_error(struct lint *l, const struct nsbox_error *err)
{
	const char *colon = strstr(err->msg, ": ");
	char pointer[256];

	if (err->msg[0] == '/' && colon && colon - err->msg < (int)sizeof(pointer)) {
		nsbox_format(pointer, sizeof(pointer), "%.*s", (int)(colon - err->msg), err->msg);
		lint_add(l, true, "manifest", pointer, "%s", colon + 2);
	} else {
		lint_add(l, true, "manifest", NULL, "%s", err->msg);
	}
}

/* Failures of the machine are not findings. */
static bool is_finding(const struct nsbox_error *err)
{
	return err->code == NSBOX_E_MANIFEST || err->code == NSBOX_E_INVALID ||
	       err->code == NSBOX_E_UNSUPPORTED;
}

static void check_document(struct lint *l, const struct nsbox_manifest *m)
{
	struct skill_report rep = { 0 };

	if (!l->in->document)
		return;
	skill_agree(m, l->in->json != NULL, l->in->document, l->in->document_len, &rep);
	for (size_t i = 0; i < rep.n; i++) {
		const struct skill_finding *f = &rep.list[i];

		lint_add(l, f->severity == SKILL_ERROR, skill_finding_name(f->id), NULL, "%s%s%s",
			 f->path, *f->path ? ": " : "", f->message);
	}
	report_done(&rep);
}

static int check_policy(struct lint *l, const struct nsbox_manifest *m, struct nsbox_error *err)
{
	struct nsbox_policy *p = NULL;
	struct json_object *json = NULL;
	int r = nsbox_policy_resolve(m, l->in->resolve, &p, err);

	if (r < 0) {
		if (!is_finding(err))
			return r;
		add_error(l, err);
		return 0;
	}
	if (l->in->json) {
		const struct json_limits limits = JSON_LIMITS_MANIFEST;

		r = json_strict_parse(l->in->json, l->in->len, &limits, &json, err);
		if (r == 0)
			r = lint_warn(l, json, p, err);
	}
	json_object_put(json);
	nsbox_policy_free(p);
	return r;
}

static void print_findings(struct json_object *o, FILE *to)
{
	struct json_object *list = report_at(o, "findings");
	const char *file = report_get(o, "file");

	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *f = json_object_array_get_idx(list, i);
		const char *line = report_get(f, "line"), *pointer = report_get(f, "pointer");

		fprintf(to, "%s%s%s%s%s: %s: %s%s%s [%s]\n", file, *line ? ":" : "", line,
			*line ? ":" : "", report_get(f, "column"), report_get(f, "severity"),
			pointer, *pointer ? ": " : "", report_get(f, "message"),
			report_get(f, "id"));
	}
	if (json_object_get_boolean(report_at(o, "default")))
		fprintf(to, "%s: no skill.json: it runs under the default profile, standard\n",
			file);
	fprintf(to, "%s: %s errors, %s warnings\n", file, report_get(o, "errors"),
		report_get(o, "warnings"));
}

int nsbox_manifest_lint(const struct nsbox_lint *in, enum nsbox_report form, char **ret,
			unsigned *ret_errors, struct nsbox_error *err)
{
	struct lint l = { .in = in, .list = json_object_new_array() };
	struct json_object *o = json_object_new_object();
	struct nsbox_manifest *m = NULL;
	int r = in->json ? nsbox_manifest_parse(in->json, in->len, &m, err)
			 : nsbox_manifest_default(&m, err);

	if (r < 0 && is_finding(err)) {
		add_error(&l, err);
		r = 0;
	}
	if (r == 0)
		check_document(&l, m);
	if (r == 0 && m)
		r = check_policy(&l, m, err);
	nsbox_manifest_free(m);
	report_str(o, "file", in->name);
	report_bool(o, "default", !in->json);
	report_u64(o, "errors", l.errors);
	report_u64(o, "warnings", l.warnings);
	report_put(o, "findings", l.list);
	if (r < 0) {
		json_object_put(o);
		return r;
	}
	*ret_errors = l.errors;
	return report_finish(o, form, print_findings, ret, err);
}
