/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seccomp profiles of Docker and of OCI runtimes as an operator's input: which calls of theirs have
 * to be allowed by name on top of ours?
 *
 * What comes out is never wider than what went in: a call is taken where the profile allows it
 * whatever its arguments are, for a process without capabilities, on every kernel, on this
 * architecture, and where no other rule refuses it. The rest is reported, not approximated. Calls
 * that our filter lets through by its own rules on arguments are left to these.
 */
#include <string.h>

#include "nsbox/util.h"
#include "policy/calls.h"
#include "policy/internal.h"
#include "policy/json_strict.h"
#include "policy/report.h"
#include "policy/resolve.h"
#include "policy/syscalls.h"

static const char *const actions[] = {
	"SCMP_ACT_ALLOW",	"SCMP_ACT_ERRNO",
	"SCMP_ACT_KILL",	"SCMP_ACT_KILL_PROCESS",
	"SCMP_ACT_KILL_THREAD", "SCMP_ACT_TRAP",
	"SCMP_ACT_LOG",		"SCMP_ACT_TRACE",
	"SCMP_ACT_NOTIFY",	NULL,
};
enum { ALLOW, LOG = 6, ACTION_UNSET = 0xff };

struct rule {
	char **names, *name, *comment;
	uint32_t action;
	uint64_t errno_ret;
	struct json_object *args, *includes, *excludes, *errno_name;
};

struct profile_text {
	uint32_t action;
	struct json_object *syscalls, *other;
};

struct import {
	struct json_reader r;
	struct json_object *allow, *left_out;
	char **refused; /* names that some rule of the source does not allow */
};

/* clang-format off */
static const struct json_field rule_fields[] = {
	{ "names",    json_take_strings, offsetof(struct rule, names), .max = 1024 },
	{ "name",     json_take_string,  offsetof(struct rule, name), .max = 64 },
	{ "action",   json_take_choice,  offsetof(struct rule, action), .required = true, .choices = actions },
	{ "errnoRet", json_take_u64,     offsetof(struct rule, errno_ret), .max = 4095, .nullable = true },
	{ "errno",    json_take_any,     offsetof(struct rule, errno_name) },
	{ "args",     json_take_any,     offsetof(struct rule, args), .nullable = true },
	{ "includes", json_take_any,     offsetof(struct rule, includes), .nullable = true },
	{ "excludes", json_take_any,     offsetof(struct rule, excludes), .nullable = true },
	{ "comment",  json_take_string,  offsetof(struct rule, comment), .max = 4096 },
};

static const struct json_field profile_fields[] = {
	{ "defaultAction",    json_take_choice, offsetof(struct profile_text, action), .required = true, .choices = actions },
	{ "defaultErrnoRet",  json_take_any, offsetof(struct profile_text, other) },
	{ "defaultErrno",     json_take_any, offsetof(struct profile_text, other) },
	{ "architectures",    json_take_any, offsetof(struct profile_text, other) },
	{ "archMap",          json_take_any, offsetof(struct profile_text, other) },
	{ "flags",            json_take_any, offsetof(struct profile_text, other) },
	{ "listenerPath",     .absent = "asks for a listener, which decides calls of other processes" },
	{ "listenerMetadata", .absent = "asks for a listener, which decides calls of other processes" },
	{ "syscalls",         json_take_any, offsetof(struct profile_text, syscalls), .required = true },
};
/* clang-format on */

static void rule_done(struct rule *k)
{
	json_strings_free(k->names);
	free(k->name);
	free(k->comment);
	json_object_put(k->args);
	json_object_put(k->includes);
	json_object_put(k->excludes);
	json_object_put(k->errno_name);
}

/* ------------------------------------------------------------------ conditions */

static size_t length(struct json_object *a)
{
	if (json_object_is_type(a, json_type_array))
		return json_object_array_length(a);
	return json_object_is_type(a, json_type_object) ? (size_t)json_object_object_length(a) : 0;
}

static bool names_this_arch(struct json_object *arches)
{
	static const char *const names[] = {
#ifdef __aarch64__
		"arm64", "aarch64", "SCMP_ARCH_AARCH64"
#else
		"amd64", "x86_64", "SCMP_ARCH_X86_64"
#endif
	};

	for (size_t i = 0; i < length(arches); i++) {
		const char *s = json_object_get_string(json_object_array_get_idx(arches, i));

		for (size_t k = 0; s && k < ARRAY_SIZE(names); k++)
			if (!strcmp(s, names[k]))
				return true;
	}
	return false;
}

/* Does the rule hold for a process without capabilities on this machine? NULL: yes; else why not,
 * or why that cannot be told. *never: it does not, for sure. */
static const char *condition(const struct rule *k, bool *never)
{
	static const char *const known[] = { "caps", "arches", "minKernel" };
	struct json_object *in = k->includes, *ex = k->excludes;

	*never = false;
	for (int side = 0; side < 2; side++) {
		struct json_object *o = side ? ex : in;

		if (!json_object_is_type(o, json_type_object))
			continue;
		json_object_object_foreach (o, key, value) {
			bool ok = false;

			(void)value;
			for (size_t i = 0; i < ARRAY_SIZE(known); i++)
				ok |= !strcmp(key, known[i]);
			if (!ok)
				return "has a condition that is not known here";
		}
	}
	*never = true;
	if (length(report_at(in, "caps")))
		return "is for processes with capabilities; a run has none";
	if (length(report_at(in, "arches")) && !names_this_arch(report_at(in, "arches")))
		return "is for other architectures";
	if (names_this_arch(report_at(ex, "arches")))
		return "is not for this architecture";
	*never = false;
	if (report_at(in, "minKernel") || report_at(ex, "minKernel"))
		return "depends on the version of the kernel";
	return NULL;
}

/* ------------------------------------------------------------------ calls */

static bool in_json_list(struct json_object *a, const char *name)
{
	for (size_t i = 0; i < json_object_array_length(a); i++)
		if (!strcmp(json_object_get_string(json_object_array_get_idx(a, i)), name))
			return true;
	return false;
}

static bool in_list(char *const *list, const char *name)
{
	for (; list && *list; list++)
		if (!strcmp(*list, name))
			return true;
	return false;
}

static void leave_out(struct import *im, const char *name, const char *why)
{
	struct json_object *o = report_add_to(im->left_out, json_object_new_object());

	report_str(o, "call", name);
	report_str(o, "why", why);
}

/* Does any policy's filter let it through, for some arguments at least? */
static bool is_ours(const char *name)
{
	for (size_t g = 0; g < syscall_n_allowed; g++)
		for (const char *const *n = syscall_allowed[g].names; *n; n++)
			if (!strcmp(*n, name))
				return true;
	for (size_t i = 0; i < syscall_n_newer; i++)
		if (syscall_newer[i].allowed && !strcmp(syscall_newer[i].name, name))
			return true;
	return false;
}

static void take_call(struct import *im, const char *name, const struct rule *k)
{
	bool never;
	const char *why = condition(k, &never);

	if (in_json_list(im->allow, name) || is_ours(name))
		return;
	if (why)
		leave_out(im, name, why);
	else if (length(k->args))
		leave_out(im, name, "is allowed for some arguments only");
	else if (in_list(im->refused, name))
		leave_out(im, name, "is refused by another rule of the profile");
	else if (!seccomp_name_known(name))
		leave_out(im, name, "is not known here");
	else if (call_number(name, SECCOMP_ARCH_NATIVE) >= 0)
		report_add_str(im->allow, name);
}

static int refuse_call(struct import *im, const char *name, const struct rule *k)
{
	bool never;

	condition(k, &never);
	/* In doubt it is refused. */
	if (never)
		return 0;
	return strings_add_take(&im->refused, strdup(name)) < 0 ? json_nomem(&im->r) : 0;
}

static int each_rule(struct import *im, struct json_object *list, bool refusals)
{
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct rule k = { .action = ACTION_UNSET };
		size_t mark = json_enter_index(&im->r, i);
		int r = json_read_object(&im->r, json_object_array_get_idx(list, i), rule_fields,
					 ARRAY_SIZE(rule_fields), false, &k);
		char *one[] = { k.name, NULL };

		if (r == 0 && !k.name && !k.names)
			r = json_fail(&im->r, "has neither names nor name");
		for (char **n = k.names ? k.names : one; r == 0 && *n; n++) {
			if (refusals && k.action != ALLOW)
				r = refuse_call(im, *n, &k);
			else if (!refusals && k.action == ALLOW)
				take_call(im, *n, &k);
		}
		rule_done(&k);
		if (r < 0)
			return r;
		json_leave(&im->r, mark);
	}
	return 0;
}

/* ------------------------------------------------------------------ the whole */

/* config.json of a bundle holds it at /linux/seccomp. */
static struct json_object *find_profile(struct import *im, struct json_object *root)
{
	struct json_object *linux_part = report_at(root, "linux");

	if (!json_object_is_type(linux_part, json_type_object))
		return root;
	json_enter(&im->r, "linux");
	json_enter(&im->r, "seccomp");
	return report_at(linux_part, "seccomp");
}

static int read_profile(struct import *im, struct json_object *root)
{
	struct profile_text t = { .action = ACTION_UNSET };
	struct json_object *profile = find_profile(im, root);
	int r;

	if (!json_object_is_type(profile, json_type_object))
		return json_fail(&im->r, "there is no seccomp profile here");
	r = json_read_object(&im->r, profile, profile_fields, ARRAY_SIZE(profile_fields), false,
			     &t);
	if (r == 0 && (t.action == ALLOW || t.action == LOG)) {
		json_enter(&im->r, "defaultAction");
		r = json_fail(&im->r,
			      "allows what is not listed; only a profile that refuses it can "
			      "be taken");
	}
	if (r == 0) {
		json_enter(&im->r, "syscalls");
		if (!json_object_is_type(t.syscalls, json_type_array))
			r = json_fail(&im->r, "expected an array");
	}
	if (r == 0)
		r = each_rule(im, t.syscalls, true);
	if (r == 0)
		r = each_rule(im, t.syscalls, false);
	json_object_put(t.other);
	json_object_put(t.syscalls);
	return r;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(json_object_get_string(*(struct json_object *const *)a),
		      json_object_get_string(*(struct json_object *const *)b));
}

static void print_import(struct json_object *o, FILE *to)
{
	struct json_object *left = report_at(o, "leftOut");

	fprintf(to, "%s\n",
		json_object_to_json_string_ext(report_at(o, "manifest"),
					       JSON_C_TO_STRING_PRETTY |
						       JSON_C_TO_STRING_NOSLASHESCAPE));
	for (size_t i = 0; i < json_object_array_length(left); i++) {
		struct json_object *f = json_object_array_get_idx(left, i);

		fprintf(to, "# left out: %s %s\n", report_get(f, "call"), report_get(f, "why"));
	}
}

int nsbox_seccomp_import(const char *json, size_t len, enum nsbox_report form, char **ret,
			 struct nsbox_error *err)
{
	const struct json_limits limits = { .max_size = 4u << 20,
					    .max_depth = 24,
					    .code = NSBOX_E_INVALID };
	struct import im = { .allow = json_object_new_array(),
			     .left_out = json_object_new_array() };
	struct json_object *root = NULL, *o, *manifest;
	int r = json_strict_parse(json, len, &limits, &root, err);

	json_reader_init(&im.r, NSBOX_E_INVALID, err);
	if (r == 0)
		r = read_profile(&im, root);
	json_object_put(root);
	json_strings_free(im.refused);
	if (r < 0) {
		json_object_put(im.allow);
		json_object_put(im.left_out);
		return r;
	}
	json_object_array_sort(im.allow, by_name);
	o = json_object_new_object();
	manifest = report_put(o, "manifest", json_object_new_object());
	report_u64(manifest, "manifestVersion", 1);
	report_put(report_put(manifest, "syscalls", json_object_new_object()), "allow", im.allow);
	report_put(o, "leftOut", im.left_out);
	return report_finish(o, form, print_import, ret, err);
}
