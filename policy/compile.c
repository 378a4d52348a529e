/* SPDX-License-Identifier: Apache-2.0 */
/* A resolved policy becomes a plan: the fixed part, then each section by the file that knows it. */
#include <string.h>

#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/syscalls.h"

static int add_filters(const struct nsbox_policy *p, struct blob_builder *b,
		       struct nsbox_error *err)
{
	const struct seccomp_spec spec = { .arch = SECCOMP_ARCH_NATIVE, .extra = p->syscalls };
	const unsigned most =
		policy_is_process(p) ? SC_PAYLOAD & ~(unsigned)SC_OWN_NET : SC_PAYLOAD;
	const unsigned traits[] = {
		seccomp_traits(p),
		most | SC_INIT,
	};
	struct seccomp_program prog[ARRAY_SIZE(traits)];
	int r = seccomp_compile(&spec, traits, ARRAY_SIZE(traits), prog, err);

	if (r < 0)
		return r;
	blob_set(b, SEC_BPF, prog[0].insn, prog[0].n * sizeof(prog[0].insn[0]));
	blob_set(b, SEC_BPF_INIT, prog[1].insn, prog[1].n * sizeof(prog[1].insn[0]));
	free(prog[0].insn);
	free(prog[1].insn);
	return 0;
}

static void add_env(const struct nsbox_policy *p, struct blob_builder *b)
{
	for (char *const *v = p->env; *v; v++) {
		str_off off = blob_str(b, *v);

		blob_append(b, SEC_ENV, &off, sizeof(off));
	}
}

static void add_fixed(const struct nsbox_policy *p, struct blob_builder *b, struct plan_fixed *f)
{
	f->flags = p->profile->root_rdonly ? PLAN_ROOT_RDONLY : 0;
	if (p->limits.disk > p->limits.memory)
		f->flags |= PLAN_UPPER_DISK;
	if (policy_is_process(p))
		f->flags = PLAN_PROCESS;
	memcpy(f->layer, p->layer, sizeof(p->layer));
	f->uid = f->gid = p->uid;
	f->hostname = blob_str(b, p->hostname);
	f->profile = blob_str(b, p->profile->name);
	f->manifest_sha256 = blob_str(b, p->manifest_sha256);
	f->workdir = blob_str(b, p->workdir);
	f->home = blob_str(b, POLICY_HOME);
	f->subprocess = p->subprocess;
	f->limits = p->limits;
	blob_set(b, SEC_FIXED, f, sizeof(*f));
}

static int fill(const struct nsbox_policy *p, struct blob_builder *b, struct nsbox_error *err)
{
	struct plan_fixed fixed = { 0 };
	int r = add_filters(p, b, err);

	if (r == 0 && p->layer[NSBOX_LAYER_NFTABLES] != NSBOX_OFF && !policy_is_process(p))
		r = compile_nftables(p, b, err);
	if (r < 0)
		return r;
	if (policy_is_process(p))
		compile_places(p, b);
	else
		compile_mounts(p, b);
	r = compile_egress(p, b, err);
	if (r < 0)
		return r;
	compile_landlock(p, b, &fixed);
	add_env(p, b);
	for (size_t i = 0; i < p->n_outputs; i++)
		blob_output(b, p->outputs[i].glob, p->outputs[i].max_bytes,
			    p->outputs[i].max_files);
	add_fixed(p, b, &fixed);
	return 0;
}

int nsbox_policy_compile(const struct nsbox_policy *p, int *ret_plan_fd, struct nsbox_error *err)
{
	struct blob_builder *b;
	int r;

	if (p->n_gaps)
		return nsbox_fail_at(err, NSBOX_STAGE_COMPILE, NSBOX_E_UNSUPPORTED, 0, "%s: %s",
				     p->gaps[0].pointer, p->gaps[0].why);
	b = blob_new(PLAN_MAGIC);
	if (!b)
		return nsbox_fail_at(err, NSBOX_STAGE_COMPILE, NSBOX_E_NOMEM, ENOMEM,
				     "make a plan");
	r = fill(p, b, err);
	if (r == 0)
		r = blob_seal(b, "nsbox-plan", ret_plan_fd, err);
	blob_free(b);
	return r;
}
