/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which change of the manifest would allow it? Not guessed: each candidate, the smallest first, is
 * made in a copy of the manifest, which is then parsed, resolved, compiled and asked again. What is
 * reported has worked.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "overlay/root.h"
#include "policy/calls.h"
#include "policy/report.h"
#include "policy/why.h"

/* ------------------------------------------------------------------ one world */

struct built {
	struct nsbox_policy *policy;
	struct blob plan;
};

static void built_done(struct built *b)
{
	if (b->plan.base)
		blob_unmap(&b->plan);
	nsbox_policy_free(b->policy);
}

/* A policy that asks for what cannot be enforced here has no plan; it can be asked about. */
int why_compile(const struct nsbox_policy *p, struct blob *ret, struct nsbox_error *err)
{
	struct nsbox_policy as_if = *p;
	auto_close int fd = -1;
	int r;

	as_if.n_gaps = 0;
	r = nsbox_policy_compile(&as_if, &fd, err);
	return r < 0 ? r : blob_map(fd, PLAN_MAGIC, ret, err);
}

static int build(const char *json, size_t len, const struct nsbox_resolve_options *opt,
		 struct built *ret, struct nsbox_error *err)
{
	struct nsbox_manifest *m = NULL;
	int r = json ? nsbox_manifest_parse(json, len, &m, err) : nsbox_manifest_default(&m, err);

	*ret = (struct built){ .policy = NULL };
	if (r < 0)
		return r;
	r = nsbox_policy_resolve(m, opt, &ret->policy, err);
	nsbox_manifest_free(m);
	if (r == 0)
		r = why_compile(ret->policy, &ret->plan, err);
	if (r < 0)
		built_done(ret);
	return r;
}

struct asker {
	const char *json;
	size_t len;
	const struct nsbox_resolve_options *opt;
	const struct blob *root;
	struct view *view;
	struct why_question q;
};

static int ask(const struct asker *a, const struct built *b, struct why *ret,
	       struct nsbox_error *err)
{
	const struct why_world w = { b->policy, a->opt->host, &b->plan, a->root, a->view };

	return why_judge(&w, &a->q, ret, err);
}

/* ------------------------------------------------------------------ candidates */

struct candidate {
	char pointer[96];
	struct json_object *value; /* NULL: the entry is taken out */
	bool operator_only;
};

#define CANDIDATES_MAX 64
struct candidates {
	struct candidate v[CANDIDATES_MAX];
	size_t n;
};

static void suggest(struct candidates *c, const char *pointer, struct json_object *value)
{
	struct candidate *k = &c->v[c->n];

	if (c->n == CANDIDATES_MAX) {
		json_object_put(value);
		return;
	}
	*k = (struct candidate){ .value = value };
	nsbox_format(k->pointer, sizeof(k->pointer), "%s", pointer);
	c->n++;
}

static void suggest_text(struct candidates *c, const char *pointer, const char *value)
{
	suggest(c, pointer, json_object_new_string(value));
}

/* Entries of a list that hides or holds; taking the right one out may be enough. */
static void suggest_removals(struct candidates *c, struct json_object *manifest, const char *key)
{
	struct json_object *list = report_at(report_at(manifest, "filesystem"), key);
	char pointer[96];

	if (!json_object_is_type(list, json_type_array))
		return;
	for (size_t i = 0; i < json_object_array_length(list) && i < CANDIDATES_MAX; i++) {
		nsbox_format(pointer, sizeof(pointer), "/filesystem/%s/%zu", key, i);
		suggest(c, pointer, NULL);
	}
}

static void suggest_path(struct candidates *c, const struct asker *a, struct json_object *manifest)
{
	char dir[PATH_MAX];
	char *slash;

	suggest_removals(c, manifest, "mask");
	if (a->q.verb == WHY_READ) {
		suggest_text(c, "/filesystem/read/-", a->q.path);
		return;
	}
	if (a->q.verb == WHY_EXEC) {
		suggest_text(c, "/filesystem/exec/-", a->q.path);
		suggest_text(c, "/process/subprocess", "skill");
		suggest_text(c, "/process/subprocess", "any");
		suggest_text(c, "/profile", "standard");
		return;
	}
	suggest_removals(c, manifest, "readOnly");
	snprintf(dir, sizeof(dir), "%s", a->q.path);
	slash = strrchr(dir, '/');
	if (slash && slash != dir)
		*slash = '\0';
	suggest_text(c, "/filesystem/skill", "overlay");
	suggest_text(c, "/filesystem/write/-", dir);
	suggest_text(c, "/profile", "standard");
}

static void suggest_network(struct candidates *c, const struct asker *a,
			    struct json_object *manifest)
{
	struct json_object *host = json_object_new_object(), *ports = json_object_new_array();
	struct json_object *network = report_at(manifest, "network");

	report_str(host, "host", a->q.host);
	report_put(host, "ports", ports);
	report_add_to(ports, json_object_new_uint64(a->q.port));
	report_str(host, "description", "why the skill needs it");
	if (network && strcmp(report_get(network, "mode"), "none") != 0) {
		suggest(c, "/network/allow/-", host);
	} else {
		struct json_object *whole = json_object_new_object();

		report_str(whole, "mode", "allowlist");
		report_add_to(report_put(whole, "allow", json_object_new_array()), host);
		suggest(c, "/network", whole);
	}
}

static void suggest_call(struct candidates *c, const struct asker *a)
{
	static const char *const words[] = { "/process/ptrace", "/process/jit", "/process/threads",
					     "/process/netlink", "/process/listen" };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		suggest(c, words[i], json_object_new_boolean(true));
	suggest_text(c, "/process/subprocess", "any");
	suggest_text(c, "/syscalls/allow/-", a->q.call);
	c->v[c->n - 1].operator_only = true;
}

static void candidates_done(struct candidates *c)
{
	for (size_t i = 0; i < c->n; i++)
		json_object_put(c->v[i].value);
}

/* ------------------------------------------------------------------ trying them */

/* The member or element of o that `token` names, made where it is missing. */
static struct json_object *step_into(struct json_object *o, const char *token, bool list)
{
	struct json_object *v;

	if (json_object_is_type(o, json_type_array))
		return json_object_array_get_idx(o, strtoul(token, NULL, 10));
	v = report_at(o, token);
	return v ? v
		 : report_put(o, token, list ? json_object_new_array() : json_object_new_object());
}

/* False where it does not fit this manifest's form. */
static bool apply(struct json_object *manifest, const struct candidate *k)
{
	char buf[96], *save = NULL, *token, *next;
	struct json_object *o = manifest;

	nsbox_format(buf, sizeof(buf), "%s", k->pointer);
	for (token = strtok_r(buf, "/", &save); o; token = next) {
		next = strtok_r(NULL, "/", &save);
		if (!next)
			break;
		o = step_into(o, token, !strcmp(next, "-"));
	}
	if (!o || !token)
		return false;
	if (json_object_is_type(o, json_type_array)) {
		if (!k->value)
			return json_object_array_del_idx(o, strtoul(token, NULL, 10), 1) == 0;
		return json_object_array_add(o, json_object_get(k->value)) == 0;
	}
	if (!json_object_is_type(o, json_type_object) || !k->value)
		return false;
	return json_object_object_add(o, token, json_object_get(k->value)) == 0;
}

/* 1: this change allows it, 0: it does not. *gap: what this version lacks then. */
static int try_one(const struct asker *a, const struct nsbox_resolve_options *opt,
		   struct json_object *manifest, const struct candidate *k, char **gap)
{
	struct json_object *copy = NULL;
	struct nsbox_error err = { 0 };
	struct built b = { .policy = NULL };
	const char *text;
	struct why y;
	int r = 0;

	if (json_object_deep_copy(manifest, &copy, NULL) < 0)
		return -ENOMEM;
	text = apply(copy, k) ? json_object_to_json_string(copy) : NULL;
	if (text && build(text, strlen(text), opt, &b, &err) == 0) {
		r = ask(a, &b, &y, &err) == 0 && why_verdict(&y) == WHY_PASSES;
		if (r && b.policy->n_gaps)
			*gap = strdup(b.policy->gaps[b.policy->n_gaps - 1].why);
		built_done(&b);
	}
	json_object_put(copy);
	return err.code == NSBOX_E_NOMEM ? -ENOMEM : r;
}

static struct json_object *change_of(const struct candidate *k, bool above_ceiling, char *gap)
{
	struct json_object *o = json_object_new_object();

	report_str(o, "pointer", k->pointer);
	report_put(o, "value", json_object_get(k->value));
	report_str(o, "op", k->value ? "add" : "remove");
	report_str(o, "by", k->operator_only || above_ceiling ? "operator" : "author");
	if (above_ceiling)
		report_str(o, "note", "the operator's ceiling has to be raised as well");
	else if (gap)
		report_str(o, "note", gap);
	return o;
}

/* NULL: no manifest allows it. */
static struct json_object *find_change(const struct asker *a, struct json_object *manifest,
				       struct candidates *c)
{
	struct nsbox_resolve_options free_hand = *a->opt, author = *a->opt;

	free_hand.ceiling = NULL;
	free_hand.as_operator = true;
	author.as_operator = false;
	for (int round = 0; round < 2; round++)
		for (size_t i = 0; i < c->n; i++) {
			const bool mine = !c->v[i].operator_only;
			auto_free char *gap = NULL;
			int r;

			if (round == 0 && !mine)
				continue;
			r = try_one(a, round ? &free_hand : &author, manifest, &c->v[i], &gap);
			if (r > 0)
				return change_of(&c->v[i], round && mine, gap);
		}
	return NULL;
}

static struct json_object *suggest_change(const struct asker *a)
{
	const char *text = a->json ? a->json : "{\"manifestVersion\":1}";
	struct json_tokener *tok = json_tokener_new();
	struct json_object *manifest =
		tok ? json_tokener_parse_ex(tok, text, (int)(a->json ? a->len : strlen(text)))
		    : NULL;
	struct candidates c = { .n = 0 };
	struct json_object *change;

	if (tok)
		json_tokener_free(tok);
	if (a->q.verb == WHY_CONNECT)
		suggest_network(&c, a, manifest);
	else if (a->q.verb == WHY_SYSCALL)
		suggest_call(&c, a);
	else
		suggest_path(&c, a, manifest);
	change = manifest ? find_change(a, manifest, &c) : NULL;
	candidates_done(&c);
	json_object_put(manifest);
	return change;
}

/* ------------------------------------------------------------------ the report */

static const char *const verdicts[] = { "allowed", "refused", "hidden", "depends" };

static struct json_object *answer(const struct asker *a, const char *question, const struct why *y)
{
	struct json_object *o = json_object_new_object(), *steps = json_object_new_array();
	const struct why_step *no = why_refusal(y);
	char buf[32];

	report_str(o, "question", question);
	report_str(o, "verdict", verdicts[why_verdict(y)]);
	report_str(o, "layer", no ? no->layer : NULL);
	report_str(o, "errno",
		   no && no->errnum ? call_errno_name(no->errnum, buf, sizeof(buf)) : NULL);
	for (size_t i = 0; i < y->n; i++) {
		const struct why_step *s = &y->step[i];
		struct json_object *one = json_object_new_object();

		report_str(one, "layer", s->layer);
		report_str(one, "verdict", verdicts[s->verdict]);
		report_str(one, "errno",
			   s->errnum ? call_errno_name(s->errnum, buf, sizeof(buf)) : NULL);
		report_str(one, "text", s->text);
		report_add_to(steps, one);
	}
	report_put(o, "steps", steps);
	report_put(o, "change",
		   why_verdict(y) == WHY_PASSES || why_verdict(y) == WHY_DEPENDS
			   ? NULL
			   : suggest_change(a));
	return o;
}

static void print_change(struct json_object *o, FILE *to)
{
	struct json_object *change = report_at(o, "change");
	bool is_operator;

	if (!strcmp(report_get(o, "verdict"), "allowed") ||
	    !strcmp(report_get(o, "verdict"), "depends"))
		return;
	if (!change) {
		fprintf(to, "change   none: no manifest can allow this\n");
		return;
	}
	is_operator = !strcmp(report_get(change, "by"), "operator");
	if (!strcmp(report_get(change, "op"), "remove"))
		fprintf(to, "change   take out \"%s\"%s\n", report_get(change, "pointer"),
			is_operator ? " (operator only)" : "");
	else
		fprintf(to, "change   \"%s\": %s%s\n", report_get(change, "pointer"),
			json_object_to_json_string_ext(report_at(change, "value"),
						       JSON_C_TO_STRING_NOSLASHESCAPE),
			is_operator ? " (operator only)" : "");
	if (report_at(change, "note"))
		fprintf(to, "         %s\n", report_get(change, "note"));
}

static void print_answer(struct json_object *o, FILE *to)
{
	struct json_object *steps = report_at(o, "steps");
	const char *errnum = report_get(o, "errno");

	fprintf(to, "%s: %s", report_get(o, "question"), report_get(o, "verdict"));
	if (*report_get(o, "layer"))
		fprintf(to, " by %s%s%s", report_get(o, "layer"), *errnum ? ", " : "", errnum);
	fputc('\n', to);
	for (size_t i = 0; i < json_object_array_length(steps); i++) {
		struct json_object *s = json_object_array_get_idx(steps, i);

		fprintf(to, "  %-11s %-8s %s%s%s%s\n", report_get(s, "layer"),
			report_get(s, "verdict"), report_get(s, "text"),
			*report_get(s, "errno") ? " (" : "", report_get(s, "errno"),
			*report_get(s, "errno") ? ")" : "");
	}
	print_change(o, to);
}

int nsbox_manifest_why(const char *json, size_t len, const struct nsbox_resolve_options *opt,
		       const struct nsbox_root *root, const char *question, enum nsbox_report form,
		       char **ret, bool *ret_allowed, struct nsbox_error *err)
{
	struct asker a = { .json = json, .len = len, .opt = opt };
	struct built b;
	struct why y;
	int r = build(json, len, opt, &b, err);

	if (r < 0)
		return r;
	a.root = root ? nsbox_root_blob(root) : NULL;
	r = why_parse(question, b.policy->workdir, &a.q, err);
	if (r == 0 && a.root)
		r = view_new(a.root, &a.view, err);
	if (r == 0)
		r = ask(&a, &b, &y, err);
	if (r == 0) {
		*ret_allowed = why_verdict(&y) == WHY_PASSES;
		r = report_finish(answer(&a, question, &y), form, print_answer, ret, err);
	}
	if (a.view)
		view_free(a.view);
	built_done(&b);
	return r;
}
