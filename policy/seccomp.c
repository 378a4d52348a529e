/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filters from the tables in syscalls.c: a prologue of our own (bpf_prologue.c) for what depends on
 * arguments, then libseccomp's binary tree over the numbers.
 *
 * The tree is most of the work and the same for all profiles; what differs between them is in the
 * prologue. So one tree serves the payload's filter and init's.
 *
 * Order of judgement: foreign architecture ends the process; x32 numbers do not exist; calls newer
 * than libseccomp by number; argument rules; allowed, refused, ENOSYS by number.
 *
 * The init filter passes everything any payload of the same sandbox may do, because a payload's
 * filter is stacked on top of it: its traits are a payload's most generous ones plus SC_INIT.
 */
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stdlib.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/bpf_prologue.h"
#include "policy/internal.h"
#include "policy/json_strict.h"
#include "policy/syscalls.h"

#define BPF_MAXINSNS   4096 /* BPF_MAXINSNS: the kernel takes no more in one program */
#define RULES_PER_CALL 32

static const struct {
	uint32_t token, audit;
} archs[] = {
	[SECCOMP_ARCH_X86_64] = { SCMP_ARCH_X86_64, AUDIT_ARCH_X86_64 },
	[SECCOMP_ARCH_ARM64] = { SCMP_ARCH_AARCH64, AUDIT_ARCH_AARCH64 },
};

/* ------------------------------------------------------------------ names and numbers */

static const struct syscall_number *find_newer(const char *name)
{
	for (size_t i = 0; i < syscall_n_newer; i++)
		if (!strcmp(syscall_newer[i].name, name))
			return &syscall_newer[i];
	return NULL;
}

/* Negative where the architecture has no such call, or nobody knows it. */
static int number_of(const char *name, enum seccomp_arch arch)
{
	const struct syscall_number *newer = find_newer(name);

	if (newer)
		return (int)newer->nr;
	return seccomp_syscall_resolve_name_arch(archs[arch].token, name);
}

bool seccomp_name_known(const char *name)
{
	return find_newer(name) || seccomp_syscall_resolve_name(name) != __NR_SCMP_ERROR;
}

static const char *next_name(void *ctx, size_t i)
{
	for (size_t g = 0; g < syscall_n_allowed + syscall_n_refused; g++) {
		const char *const *names = g < syscall_n_allowed
						   ? syscall_allowed[g].names
						   : syscall_refused[g - syscall_n_allowed].names;

		for (; *names; names++)
			if (i-- == 0)
				return *names;
	}
	return NULL;
}

const char *seccomp_name_near(const char *name)
{
	return json_did_you_mean(name, next_name, NULL);
}

static bool in_list(char *const *list, const char *name)
{
	for (; list && *list; list++)
		if (!strcmp(*list, name))
			return true;
	return false;
}

/* By any profile: what this one's traits lack is refused in the prologue. */
static bool is_allowed(const struct seccomp_spec *spec, const char *name)
{
	if (in_list(spec->extra, name))
		return true;
	for (size_t g = 0; g < syscall_n_allowed; g++)
		for (const char *const *n = syscall_allowed[g].names; *n; n++)
			if (!strcmp(*n, name))
				return true;
	return false;
}

/* ------------------------------------------------------------------ prologue */

static void add_newer(struct bpf_code *c, const struct seccomp_spec *spec)
{
	for (size_t i = 0; i < syscall_n_newer; i++) {
		const struct syscall_number *n = &syscall_newer[i];

		if (n->allowed || in_list(spec->extra, n->name))
			bpf_return_for(c, n->nr, SECCOMP_RET_ALLOW);
	}
}

/* Groups that the policy's traits do not reach. */
static void refuse_groups(struct bpf_code *c, const struct seccomp_spec *spec)
{
	for (size_t g = 0; g < syscall_n_allowed; g++) {
		if ((spec->traits & syscall_allowed[g].needs) == syscall_allowed[g].needs)
			continue;
		for (const char *const *name = syscall_allowed[g].names; *name; name++) {
			int nr = number_of(*name, spec->arch);

			if (nr >= 0 && !in_list(spec->extra, *name))
				bpf_return_for(c, (uint32_t)nr, SECCOMP_RET_ERRNO | EPERM);
		}
	}
}

/* Rules of one call stand together in the table; returns where the next call's begin. */
static size_t add_call_rules(struct bpf_code *c, const struct seccomp_spec *spec, size_t first)
{
	const struct arg_rule *rules[RULES_PER_CALL];
	const char *name = syscall_rules[first].name;
	int nr = number_of(name, spec->arch);
	size_t n = 0, i;

	for (i = first; i < syscall_n_rules && !strcmp(syscall_rules[i].name, name); i++) {
		/* Behind one without conditions none is reached. */
		bool decided = n && rules[n - 1]->cond[0].op == COND_NONE;

		if (!(syscall_rules[i].unless & spec->traits) && n < RULES_PER_CALL && !decided)
			rules[n++] = &syscall_rules[i];
	}
	/* What an operator allows by name is allowed whatever its arguments are. */
	if (n && nr >= 0 && !in_list(spec->extra, name))
		bpf_rules(c, (uint32_t)nr, rules, n);
	return i;
}

static int make_prologue(const struct seccomp_spec *spec, struct bpf_code *c)
{
	int r;

	c->n = 0;
	bpf_check_arch(c, archs[spec->arch].audit);
	if (spec->arch == SECCOMP_ARCH_X86_64)
		bpf_refuse_x32(c);
	refuse_groups(c, spec);
	for (size_t i = 0; i < syscall_n_rules;)
		i = add_call_rules(c, spec, i);
	r = bpf_finish(c);
	/* Behind the rules, which newer calls can have, too: libseccomp's part does not know them. */
	bpf_load_number(c);
	add_newer(c, spec);
	return r == 0 ? bpf_finish(c) : r;
}

/* ------------------------------------------------------------------ libseccomp's part */

static int add_call(scmp_filter_ctx ctx, const struct seccomp_spec *spec, uint32_t action,
		    const char *name)
{
	int r;

	/* A call that this architecture lacks needs no rule; its number means something else. */
	if (find_newer(name) || number_of(name, spec->arch) < 0)
		return 0;
	r = seccomp_rule_add(ctx, action, seccomp_syscall_resolve_name(name), 0);
	return r == -EEXIST ? 0 : r; /* an operator may name what is allowed anyway */
}

static int add_groups(scmp_filter_ctx ctx, const struct seccomp_spec *spec, uint32_t action,
		      const struct syscall_group *groups, size_t n)
{
	for (size_t g = 0; g < n; g++)
		for (const char *const *name = groups[g].names; *name; name++) {
			int r = 0;

			if (action == SCMP_ACT_ALLOW || !is_allowed(spec, *name))
				r = add_call(ctx, spec, action, *name);
			if (r < 0)
				return r;
		}
	return 0;
}

static int fill(scmp_filter_ctx ctx, const struct seccomp_spec *spec)
{
	uint32_t token = archs[spec->arch].token;
	int r = 0;

	if (token != seccomp_arch_native()) {
		r = seccomp_arch_add(ctx, token);
		if (r == 0)
			r = seccomp_arch_remove(ctx, SCMP_ARCH_NATIVE);
	}
	if (r == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	if (r == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (r == 0)
		r = add_groups(ctx, spec, SCMP_ACT_ALLOW, syscall_allowed, syscall_n_allowed);
	for (char *const *x = spec->extra; r == 0 && x && *x; x++)
		r = add_call(ctx, spec, SCMP_ACT_ALLOW, *x);
	if (r == 0)
		r = add_groups(ctx, spec, SCMP_ACT_ERRNO(EPERM), syscall_refused,
			       syscall_n_refused);
	return r;
}

/* libseccomp 2.5 exports to a descriptor only. */
static int export_body(scmp_filter_ctx ctx, struct sock_filter *ret, size_t *n)
{
	auto_close int fd = make_memfd("nsbox-bpf", NULL, 0, false);
	ssize_t len;
	int r;

	if (fd < 0)
		return fd;
	r = seccomp_export_bpf(ctx, fd);
	if (r < 0)
		return r;
	len = pread(fd, ret, BPF_MAXINSNS * sizeof(*ret), 0);
	if (len <= 0 || len % (ssize_t)sizeof(*ret))
		return -EIO;
	*n = (size_t)len / sizeof(*ret);
	return 0;
}

static int make_body(const struct seccomp_spec *spec, struct sock_filter *ret, size_t *n)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
	int r;

	if (!ctx)
		return -ENOMEM;
	r = fill(ctx, spec);
	if (r == 0)
		r = export_body(ctx, ret, n);
	seccomp_release(ctx);
	return r;
}

static int join(const struct seccomp_spec *spec, const struct sock_filter *body, size_t n_body,
		struct seccomp_program *ret)
{
	auto_free struct bpf_code *prologue = calloc(1, sizeof(*prologue));
	int r = prologue ? make_prologue(spec, prologue) : -ENOMEM;

	if (r < 0)
		return r;
	if (prologue->n + n_body > BPF_MAXINSNS)
		return -E2BIG;
	ret->insn = calloc(prologue->n + n_body, sizeof(*body));
	if (!ret->insn)
		return -ENOMEM;
	memcpy(ret->insn, prologue->insn, prologue->n * sizeof(*body));
	memcpy(ret->insn + prologue->n, body, n_body * sizeof(*body));
	ret->n = prologue->n + n_body;
	return 0;
}

int seccomp_compile(const struct seccomp_spec *spec, const unsigned *traits, size_t n,
		    struct seccomp_program *ret, struct nsbox_error *err)
{
	auto_free struct sock_filter *body = calloc(BPF_MAXINSNS, sizeof(*body));
	struct seccomp_spec one = *spec;
	size_t n_body = 0;
	int r = body ? make_body(spec, body, &n_body) : -ENOMEM;

	memset(ret, 0, n * sizeof(*ret));
	for (size_t i = 0; r == 0 && i < n; i++) {
		one.traits = traits[i];
		r = join(&one, body, n_body, &ret[i]);
	}
	if (r == 0)
		return 0;
	for (size_t i = 0; i < n; i++)
		free(ret[i].insn);
	return nsbox_fail_at(err, NSBOX_STAGE_COMPILE, r == -ENOMEM ? NSBOX_E_NOMEM : NSBOX_E_SETUP,
			     -r, "compile the system call filter");
}

/* ------------------------------------------------------------------ of a policy */

unsigned seccomp_traits(const struct nsbox_policy *p)
{
	return (p->ptrace ? SC_PTRACE : 0u) | (p->jit ? SC_JIT : 0u) |
	       (p->threads ? SC_THREADS : 0u) | (p->memfd_exec ? SC_MEMFD_EXEC : 0u) |
	       (p->netlink ? SC_NETLINK : 0u) | (p->listen ? SC_LISTEN : 0u) |
	       (p->tmpfs[TMPFS_WORKSPACE].shared ? 0u : SC_SETID) |
	       (policy_is_process(p) ? 0u : SC_OWN_NET);
}

unsigned seccomp_noexec(struct sock_filter *ret, unsigned max)
{
	struct bpf_code c = { .n = 0 };

	bpf_check_arch(&c, archs[SECCOMP_ARCH_NATIVE].audit);
	if (SECCOMP_ARCH_NATIVE == SECCOMP_ARCH_X86_64)
		bpf_refuse_x32(&c); /* x32 has its own numbers of both calls */
	bpf_return_for(&c, (uint32_t)number_of("execve", SECCOMP_ARCH_NATIVE),
		       SECCOMP_RET_ERRNO | EPERM);
	bpf_return_for(&c, (uint32_t)number_of("execveat", SECCOMP_ARCH_NATIVE),
		       SECCOMP_RET_ERRNO | EPERM);
	bpf_emit(&c, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
	if (c.n > max)
		return 0;
	memcpy(ret, c.insn, c.n * sizeof(*ret));
	return (unsigned)c.n;
}
