/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proof of a policy: payload's and init's filter on each architecture, and that init's lets
 * through what the payload's does. The filters of this machine are those of the compiled plan.
 */
#include <inttypes.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/calls.h"
#include "policy/prove.h"
#include "policy/report.h"
#include "policy/syscalls.h"
#include "policy/why.h"

static const char *const kinds[PROVE_KIND_MAX] = {
	[PROVE_FOREIGN] = "foreignAbi",	   [PROVE_REFUSED] = "refusedCall",
	[PROVE_UNKNOWN] = "unknownCall",   [PROVE_ACTION] = "action",
	[PROVE_NOT_IN_INIT] = "notInInit",
};

static struct json_object *violation(const struct prove_violation *v, enum seccomp_arch arch)
{
	struct json_object *o = json_object_new_object(), *args = json_object_new_array();
	char buf[64], value[32];
	const char *name = NULL;

	if (v->call.arch == call_audit_arch(arch))
		name = call_name((uint32_t)v->call.nr, arch, buf, sizeof(buf));
	report_str(o, "kind", kinds[v->kind]);
	report_str(o, "text", prove_kind_text(v->kind));
	report_str(o, "why", v->rule ? v->rule->why : NULL);
	report_str(o, "call", name);
	report_u64(o, "nr", (uint32_t)v->call.nr);
	report_str(o, "arch", call_arch_name(v->call.arch, value, sizeof(value)));
	for (int i = 0; i < 6; i++) {
		nsbox_format(value, sizeof(value), "0x%llx", (unsigned long long)v->call.args[i]);
		report_add_str(args, value);
	}
	report_put(o, "args", args);
	report_str(o, "verdict", call_action_text(v->action, value, sizeof(value)));
	return o;
}

static struct json_object *program_report(const char *what, enum seccomp_arch arch,
					  const struct prove_report *r)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();
	struct json_object *unreached = json_object_new_array();
	char buf[32];

	report_str(o, "filter", what);
	report_str(o, "arch", call_arch_name(call_audit_arch(arch), buf, sizeof(buf)));
	report_u64(o, "classes", r->classes);
	report_u64(o, "paths", r->paths);
	report_u64(o, "checks", r->checks);
	report_u64(o, "instructions", r->instructions);
	report_u64(o, "reached", r->reached);
	for (size_t i = 0; i < MIN(r->n_unreached, ARRAY_SIZE(r->unreached)); i++)
		report_add_to(unreached, json_object_new_uint64(r->unreached[i]));
	report_put(o, "unreached", unreached);
	report_u64(o, "violations", r->n_violations);
	for (size_t i = 0; i < MIN(r->n_violations, (size_t)PROVE_VIOLATIONS_MAX); i++)
		report_add_to(list, violation(&r->violation[i], arch));
	report_put(o, "counterexamples", list);
	return o;
}

/* ------------------------------------------------------------------ one policy */

struct filters {
	struct seccomp_program own[2]; /* malloc'd, of another architecture */
	struct blob plan;	       /* of this one */
	struct program payload, init;
};

static void filters_done(struct filters *f)
{
	free(f->own[0].insn);
	free(f->own[1].insn);
	if (f->plan.base)
		blob_unmap(&f->plan);
}

static int filters_make(const struct nsbox_policy *p, enum seccomp_arch arch, struct filters *ret,
			struct nsbox_error *err)
{
	const struct seccomp_spec spec = { .arch = arch, .extra = p->syscalls };
	const unsigned traits[] = { seccomp_traits(p), SC_PAYLOAD | SC_INIT };
	int r;

	*ret = (struct filters){ .payload = { NULL, 0 } };
	if (arch == SECCOMP_ARCH_NATIVE) {
		r = why_compile(p, &ret->plan, err);
		if (r < 0)
			return r;
		ret->payload.insn =
			blob_get(&ret->plan, SEC_BPF, sizeof(*ret->payload.insn), &ret->payload.n);
		ret->init.insn =
			blob_get(&ret->plan, SEC_BPF_INIT, sizeof(*ret->init.insn), &ret->init.n);
		return 0;
	}
	r = seccomp_compile(&spec, traits, ARRAY_SIZE(traits), ret->own, err);
	if (r < 0) {
		memset(ret->own, 0, sizeof(ret->own));
		return r;
	}
	ret->payload = (struct program){ ret->own[0].insn, ret->own[0].n };
	ret->init = (struct program){ ret->own[1].insn, ret->own[1].n };
	return 0;
}

static int prove_one(const struct program *prog, const struct prove_spec *spec, const char *what,
		     struct json_object *list, unsigned *total, struct nsbox_error *err)
{
	struct prove_report rep = { 0 };
	int r = prove_filter(prog, spec, &rep, err);

	if (r < 0) {
		nsbox_error_prefix(err, "%s", what);
		return r;
	}
	*total += (unsigned)rep.n_violations;
	report_add_to(list, program_report(what, spec->arch, &rep));
	return 0;
}

static int prove_arch(const struct nsbox_policy *p, enum seccomp_arch arch,
		      struct json_object *list, unsigned *total, struct nsbox_error *err)
{
	struct prove_spec spec = { arch, seccomp_traits(p), p->syscalls };
	struct prove_report rep = { 0 };
	struct filters f;
	int r = filters_make(p, arch, &f, err);

	if (r < 0)
		return r;
	r = prove_one(&f.payload, &spec, "payload", list, total, err);
	spec.traits = SC_PAYLOAD | SC_INIT;
	if (r == 0)
		r = prove_one(&f.init, &spec, "init", list, total, err);
	if (r == 0)
		r = prove_superset(&f.init, &f.payload, arch, &rep, err);
	if (r == 0) {
		*total += (unsigned)rep.n_violations;
		report_add_to(list, program_report("payload within init", arch, &rep));
	}
	filters_done(&f);
	return r;
}

/* ------------------------------------------------------------------ text */

static void print_counterexamples(struct json_object *f, FILE *to)
{
	struct json_object *list = report_at(f, "counterexamples");

	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *v = json_object_array_get_idx(list, i);
		const char *why = report_get(v, "why"), *call = report_get(v, "call");

		fprintf(to, "  VIOLATION %s%s%s: %s%s%s %s on %s -> %s\n", report_get(v, "text"),
			*why ? ": " : "", why, call, *call ? " " : "", report_get(v, "nr"),
			report_get(v, "args"), report_get(v, "arch"), report_get(v, "verdict"));
	}
}

static void print_proof(struct json_object *o, FILE *to)
{
	struct json_object *list = report_at(o, "filters");

	fprintf(to, "profile %s\n", report_get(o, "profile"));
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *f = json_object_array_get_idx(list, i);
		struct json_object *dead = report_at(f, "unreached");

		fprintf(to, "  %-7s %-20s %s classes, %s ways, %s checks", report_get(f, "arch"),
			report_get(f, "filter"), report_get(f, "classes"), report_get(f, "paths"),
			report_get(f, "checks"));
		if (json_object_get_uint64(report_at(f, "instructions")))
			fprintf(to, ", %s of %s instructions reached", report_get(f, "reached"),
				report_get(f, "instructions"));
		fprintf(to, ": %s\n",
			json_object_get_uint64(report_at(f, "violations")) ? "BROKEN" : "holds");
		if (json_object_array_length(dead))
			fprintf(to, "  %-28s never reached: %s\n", "",
				json_object_to_json_string_ext(dead, JSON_C_TO_STRING_PLAIN));
		print_counterexamples(f, to);
	}
}

int nsbox_policy_prove(const struct nsbox_policy *p, enum nsbox_report form, char **ret,
		       unsigned *ret_violations, struct nsbox_error *err)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();
	unsigned total = 0;
	int r = 0;

	report_str(o, "profile", p->profile->name);
	report_put(o, "filters", list);
	for (int arch = SECCOMP_ARCH_X86_64; r == 0 && arch <= SECCOMP_ARCH_ARM64; arch++)
		r = prove_arch(p, (enum seccomp_arch)arch, list, &total, err);
	if (r < 0) {
		json_object_put(o);
		return r;
	}
	report_u64(o, "violations", total);
	*ret_violations = total;
	return report_finish(o, form, print_proof, ret, err);
}
