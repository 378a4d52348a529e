/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a policy means, for people. Nothing is read off the manifest: places are found in the
 * compiled plan and each is put to the same judge as a question of `--why` (why.h); calls are
 * counted by walking the filter; amounts, grants and layers come from the resolved policy.
 */
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/calls.h"
#include "policy/explain.h"
#include "policy/prove_walk.h"
#include "policy/report.h"
#include "policy/why.h"

/* ------------------------------------------------------------------ places */

struct places {
	char **list; /* sorted, without duplicates */
	size_t n, room;
	bool failed;
};

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add_place(struct places *p, const char *path)
{
	for (size_t i = 0; i < p->n; i++)
		if (!strcmp(p->list[i], path))
			return;
	if (p->n == p->room) {
		size_t room = p->room ? 2 * p->room : 64;
		char **list = reallocarray(p->list, room, sizeof(*list));

		if (!list) {
			p->failed = true;
			return;
		}
		p->list = list;
		p->room = room;
	}
	p->list[p->n] = strdup(path);
	p->failed |= !p->list[p->n];
	p->n += p->list[p->n] != NULL;
}

/* Every directory that an operation or a rule of the plan names, and the root. */
static void find_places(const struct blob *plan, struct places *p)
{
	size_t n = 0;
	const struct landlock_rule *r = blob_get(plan, SEC_LANDLOCK, sizeof(*r), &n);
	const struct mount_op *ops;

	add_place(p, "/");
	for (size_t i = 0; i < n; i++)
		if (!r[i].port)
			add_place(p, blob_get_str(plan, r[i].path));
	ops = blob_get(plan, SEC_OPS, sizeof(*ops), &n);
	for (size_t i = 0; i < n; i++)
		if (ops[i].kind == OP_DIR || ops[i].kind == OP_TMPFS || ops[i].kind == OP_SHARED)
			add_place(p, blob_get_str(plan, ops[i].dst));
	if (p->n)
		qsort(p->list, p->n, sizeof(*p->list), by_text);
}

static void places_done(struct places *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->list[i]);
	free(p->list);
}

static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !strcmp(dir, "/") || (!strncmp(path, dir, n) && (path[n] == '/' || !path[n]));
}

static bool may(const struct why_world *w, enum why_verb verb, const char *dir)
{
	struct why_question q = { .verb = verb };
	struct why y;

	/* /dev as a whole is neither: its nodes are judged one by one. */
	snprintf(q.path, sizeof(q.path), "%s%s", strcmp(dir, "/") ? dir : "",
		 strcmp(dir, "/dev") ? "/x" : "/null");
	return why_judge(w, &q, &y, NULL) == 0 && why_verdict(&y) == WHY_PASSES;
}

/* Those where a file can be read (written, executed), and no directory above is in the list. */
static struct json_object *list_places(const struct why_world *w, const struct places *p,
				       enum why_verb verb)
{
	struct json_object *a = json_object_new_array();
	const char *last = NULL;

	for (size_t i = 0; i < p->n; i++) {
		if (last && is_below(p->list[i], last))
			continue;
		if (!may(w, verb, p->list[i]))
			continue;
		last = p->list[i];
		report_add_str(a, last);
	}
	return a;
}

/* Places below one that is listed, for which it does not hold. */
static struct json_object *list_exceptions(const struct why_world *w, const struct places *p,
					   enum why_verb verb)
{
	struct json_object *a = json_object_new_array();
	const char *last = NULL;

	for (size_t i = 0; i < p->n; i++) {
		bool yes = may(w, verb, p->list[i]);

		if (last && is_below(p->list[i], last)) {
			if (!yes)
				report_add_str(a, p->list[i]);
		} else if (yes) {
			last = p->list[i];
		}
	}
	return a;
}

/* ------------------------------------------------------------------ hidden */

static struct json_object *list_ops(const struct blob *plan, unsigned kind, bool proc)
{
	struct json_object *a = json_object_new_array();
	size_t n = 0;
	const struct mount_op *ops = blob_get(plan, SEC_OPS, sizeof(*ops), &n);

	for (size_t i = 0; i < n; i++) {
		const char *dst = blob_get_str(plan, ops[i].dst);

		if (ops[i].kind == kind && proc == is_below(dst, "/proc"))
			report_add_str(a, dst);
	}
	return a;
}

static struct json_object *list_sizes(const struct blob *plan)
{
	struct json_object *o = json_object_new_object();
	size_t n = 0;
	const struct mount_op *ops = blob_get(plan, SEC_OPS, sizeof(*ops), &n);

	for (size_t i = 0; i < n; i++)
		if (ops[i].kind == OP_TMPFS)
			report_u64(o, blob_get_str(plan, ops[i].dst), ops[i].size);
	return o;
}

static bool explain_files(struct json_object *o, const struct why_world *w)
{
	struct places p = { .n = 0 };
	bool ok;

	find_places(w->plan, &p);
	ok = !p.failed;
	report_put(o, "read", list_places(w, &p, WHY_READ));
	report_put(o, "write", list_places(w, &p, WHY_WRITE));
	report_put(o, "notWritten", list_exceptions(w, &p, WHY_WRITE));
	report_put(o, "execute", list_places(w, &p, WHY_EXEC));
	report_put(o, "notExecuted", list_exceptions(w, &p, WHY_EXEC));
	report_put(o, "masked", list_ops(w->plan, OP_MASK, false));
	report_put(o, "maskedProc", list_ops(w->plan, OP_MASK, true));
	report_put(o, "readOnly", list_ops(w->plan, OP_READONLY, false));
	report_put(o, "sizes", list_sizes(w->plan));
	places_done(&p);
	return ok;
}

/* ------------------------------------------------------------------ calls */

struct tally {
	bool allowed, other;
};

static int note(void *ctx, const struct walk_path *path)
{
	struct tally *t = ctx;

	if (path->action == SECCOMP_RET_ALLOW)
		t->allowed = true;
	else
		t->other = true;
	return 0;
}

static void explain_calls(struct json_object *o, const struct blob *plan)
{
	uint64_t allowed = 0, judged = 0, refused = 0;
	struct program prog;

	prog.insn = blob_get(plan, SEC_BPF, sizeof(*prog.insn), &prog.n);
	for (uint32_t nr = 0; nr < 512; nr++) {
		struct tally t = { false, false };
		const struct walk w = { .prog = prog,
					.nr = nr,
					.arch = call_audit_arch(SECCOMP_ARCH_NATIVE),
					.each = note,
					.ctx = &t };
		char buf[64];

		if (!call_name(nr, SECCOMP_ARCH_NATIVE, buf, sizeof(buf)) ||
		    walk_program(&w, NULL) < 0)
			continue;
		allowed += t.allowed && !t.other;
		judged += t.allowed && t.other;
		refused += !t.allowed;
	}
	report_u64(o, "allowed", allowed);
	report_u64(o, "judgedByArguments", judged);
	report_u64(o, "refused", refused);
	report_u64(o, "instructions", prog.n);
}

/* ------------------------------------------------------------------ layers */

static struct json_object *explain_layers(const struct nsbox_policy *p,
					  const struct nsbox_host *host)
{
	static const char *const words[] = { "off", "prefer", "require" };
	struct json_object *a = json_object_new_array();
	uint32_t have = nsbox_host_layers(host);

	for (int i = 0; i < NSBOX_LAYER_MAX; i++) {
		struct json_object *o = report_add_to(a, json_object_new_object());
		char buf[400];

		report_str(o, "layer", nsbox_layer_name(i));
		report_str(o, "requirement", words[p->layer[i]]);
		report_bool(o, "available", have & NSBOX_LAYER_BIT(i));
		report_str(o, "holds", nsbox_layer_text(i));
		if (p->layer[i] != NSBOX_OFF)
			report_str(o, "remedy", nsbox_host_remedy(host, i, buf, sizeof(buf)));
	}
	return a;
}

/* ------------------------------------------------------------------ the whole */

static struct json_object *env_names(const struct blob *plan)
{
	struct json_object *a = json_object_new_array();
	size_t n = 0;
	const str_off *off = blob_get(plan, SEC_ENV, sizeof(*off), &n);

	for (size_t i = 0; i < n; i++) {
		const char *v = blob_get_str(plan, off[i]);

		report_add_to(a, json_object_new_string_len(v, (int)strcspn(v, "=")));
	}
	return a;
}

/* Parts of the canonical form that need no explanation. */
static void copy_resolved(struct json_object *o, struct json_object *resolved)
{
	static const char *const keys[] = { "name",    "profile", "manifest",	 "minTier",
					    "process", "network", "limits",	 "syscalls",
					    "outputs", "refused", "unsupported", "landlockLost",
					    "granted", "image" };

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		report_put(o, keys[i], json_object_get(report_at(resolved, keys[i])));
}

/* NULL only without memory. */
static struct json_object *explain(const struct nsbox_policy *p, const struct nsbox_host *host,
				   const struct blob *plan, struct json_object *resolved)
{
	const struct why_world w = { p, host, plan, NULL, NULL };
	struct json_object *o = json_object_new_object();

	copy_resolved(o, resolved);
	if (!explain_files(report_put(o, "files", json_object_new_object()), &w)) {
		json_object_put(o);
		return NULL;
	}
	report_str(o, "workdir", p->workdir);
	report_put(o, "env", env_names(plan));
	report_put(o, "envPass", json_object_get(report_at(report_at(resolved, "env"), "pass")));
	explain_calls(report_put(o, "calls", json_object_new_object()), plan);
	report_str(o, "kernel", host->kernel);
	report_u64(o, "landlockAbi", p->landlock_abi);
	report_put(o, "layers", explain_layers(p, host));
	return o;
}

int nsbox_policy_explain(const struct nsbox_policy *p, const struct nsbox_host *host,
			 enum nsbox_report form, char **ret, struct nsbox_error *err)
{
	auto_free char *text = NULL;
	struct json_object *resolved = NULL;
	char digest[65];
	struct blob plan;
	int r = why_compile(p, &plan, err);

	if (r < 0)
		return r;
	r = nsbox_policy_json(p, &text, err);
	if (r == 0)
		r = nsbox_policy_digest(p, digest, err);
	if (r == 0) {
		struct json_object *o;

		resolved = json_tokener_parse(text);
		o = explain(p, host, &plan, resolved);
		if (o)
			report_str(o, "digest", digest);
		r = report_finish(o, form, explain_print, ret, err);
	}
	json_object_put(resolved);
	blob_unmap(&plan);
	return r;
}
