/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy from a manifest: profile, then what the manifest asks, within the operator's ceiling and
 * what the host has. A pure function of its arguments.
 *
 * What an author asks above the ceiling is an error that names the place; a profile's default above
 * it is lowered, since nobody asked. What this version cannot enforce is never accepted.
 */
#include "policy/resolve.h"

#include <stdio.h>
#include <string.h>

#include "nsbox/plan_format.h"
#include "nsbox/util.h"

/* ------------------------------------------------------------------ lists of strings */

static int compare_strings(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void strings_sort_unique(char **list)
{
	size_t n = 0, kept = 0;

	while (list && list[n])
		n++;
	if (n < 2)
		return;
	qsort(list, n, sizeof(*list), compare_strings);
	for (size_t i = 0; i < n; i++) {
		if (kept && !strcmp(list[kept - 1], list[i]))
			free(list[i]);
		else
			list[kept++] = list[i];
	}
	list[kept] = NULL;
}

int strings_add_take(char ***list, char *s)
{
	size_t n = 0;
	char **grown;

	while (*list && (*list)[n])
		n++;
	grown = s ? reallocarray(*list, n + 2, sizeof(*grown)) : NULL;
	if (!grown) {
		free(s);
		return -ENOMEM;
	}
	grown[n] = s;
	grown[n + 1] = NULL;
	*list = grown;
	return 0;
}

char **strings_sorted_copy(char *const *list)
{
	char **copy = calloc(1, sizeof(*copy));

	for (; copy && list && *list; list++)
		if (strings_add_take(&copy, strdup(*list)) < 0) {
			json_strings_free(copy);
			return NULL;
		}
	strings_sort_unique(copy);
	return copy;
}

/* ------------------------------------------------------------------ identity */

static int resolve_profile(struct resolve *rs)
{
	const struct profile *pr = profile_get(rs->m->profile);

	rs->p->profile = pr;
	memcpy(rs->p->manifest_sha256, rs->m->sha256, sizeof(rs->p->manifest_sha256));
	rs->p->name = strdup(nsbox_manifest_name(rs->m));
	rs->p->hostname =
		strdup(rs->m->determinism.hostname ? rs->m->determinism.hostname : "sandbox");
	rs->p->image = rs->m->runtime.rootfs ? strdup(rs->m->runtime.rootfs) : NULL;
	if (rs->m->runtime.rootfs && !rs->p->image)
		return json_nomem(&rs->r);
	rs->p->session.kept = rs->m->session.mode == SESSION_SESSION;
	rs->p->session.idle_ms = rs->m->session.idle_ms;
	rs->p->session.ttl_ms = rs->m->session.ttl_ms;
	rs->p->session.max_commands = rs->m->session.max_commands;
	return rs->p->name && rs->p->hostname ? 0 : json_nomem(&rs->r);
}

static const char *platform_of(const char *machine)
{
	static const char *const known[][2] = { { "x86_64", "linux/amd64" },
						{ "aarch64", "linux/arm64" } };

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (!strcmp(machine, known[i][0]))
			return known[i][1];
	return "";
}

static int resolve_platform(struct resolve *rs)
{
	const char *here = platform_of(rs->opt->host->machine);

	if (!*here)
		return nsbox_fail_at(rs->r.err, NSBOX_STAGE_RESOLVE, NSBOX_E_UNSUPPORTED, 0,
				     "this version runs on x86_64 and aarch64, not on '%s'",
				     rs->opt->host->machine);
	for (size_t i = 0; rs->m->platforms && rs->m->platforms[i]; i++)
		if (!strcmp(rs->m->platforms[i], here))
			return 0;
	if (!rs->m->platforms)
		return 0;
	return nsbox_fail_at(rs->r.err, NSBOX_STAGE_RESOLVE, NSBOX_E_UNSUPPORTED, 0,
			     "/platforms: this host is %s, which the manifest does not list", here);
}

static int copy_output(struct resolve *rs, const struct manifest_output *from)
{
	struct manifest_output *o = &rs->p->outputs[rs->p->n_outputs];

	*o = (struct manifest_output){
		.glob = strdup(from->glob),
		.max_bytes = from->max_bytes ? from->max_bytes : OUTPUT_DEFAULT_BYTES,
		.max_files = from->max_files ? from->max_files : OUTPUT_DEFAULT_FILES,
	};
	if (!o->glob)
		return json_nomem(&rs->r);
	rs->p->n_outputs++;
	return 0;
}

/* The same shape that the plan's check demands: relative, no empty, "." or ".." component. */
static bool glob_is_sane(const char *g)
{
	for (const char *p = g;; p++) {
		size_t len = strcspn(p, "/");

		if (!len || (len == 1 && *p == '.') || (len == 2 && p[0] == '.' && p[1] == '.'))
			return false;
		p += len;
		if (!*p)
			return true;
	}
}

static int resolve_outputs(struct resolve *rs)
{
	size_t outputs = json_enter(&rs->r, "outputs");

	rs->p->outputs = calloc(rs->m->n_outputs + 1, sizeof(*rs->p->outputs));
	if (!rs->p->outputs)
		return json_nomem(&rs->r);
	for (size_t i = 0; i < rs->m->n_outputs; i++) {
		size_t mark = json_enter_index(&rs->r, i);
		int ret;

		if (!glob_is_sane(rs->m->outputs[i].glob)) {
			json_enter(&rs->r, "glob");
			return json_fail(&rs->r, "must be relative, without empty, \".\" or \"..\" "
						 "parts");
		}
		ret = copy_output(rs, &rs->m->outputs[i]);
		if (ret < 0)
			return ret;
		json_leave(&rs->r, mark);
	}
	json_leave(&rs->r, outputs);
	return 0;
}

/* ------------------------------------------------------------------ least host */

/* Kernel releases begin with numbers: "6.1.0-18-amd64". Missing parts are 0. */
static void read_version(const char *s, unsigned long ret[3])
{
	char *end = NULL;

	memset(ret, 0, 3 * sizeof(*ret));
	for (int i = 0; i < 3; i++) {
		ret[i] = strtoul(s, &end, 10);
		if (end == s || *end != '.')
			return;
		s = end + 1;
	}
}

static bool kernel_is_new_enough(const char *have, const char *least)
{
	unsigned long h[3], l[3];

	read_version(have, h);
	read_version(least + 2, l); /* behind ">=" */
	for (int i = 0; i < 3; i++)
		if (h[i] != l[i])
			return h[i] > l[i];
	return true;
}

static int host_lacks(struct resolve *rs, const char *key, const char *what, const char *wanted,
		      const char *have)
{
	return nsbox_fail_at(rs->r.err, NSBOX_STAGE_RESOLVE, NSBOX_E_UNSUPPORTED, 0,
			     "/compatibility/%s: the skill needs %s %s, this host has %s", key,
			     what, wanted, have);
}

static int resolve_compatibility(struct resolve *rs)
{
	const struct nsbox_host *h = rs->opt->host;
	const struct nsbox_manifest *m = rs->m;
	char wanted[16], have[16];

	if (m->compatibility.kernel && !kernel_is_new_enough(h->kernel, m->compatibility.kernel))
		return host_lacks(rs, "kernel", "Linux", m->compatibility.kernel, h->kernel);
	if (m->compatibility.landlock_abi && h->landlock_abi < (int)m->compatibility.landlock_abi) {
		nsbox_format(wanted, sizeof(wanted), ">=%u", m->compatibility.landlock_abi);
		nsbox_format(have, sizeof(have), "%d", h->landlock_abi);
		return host_lacks(rs, "landlockAbi", "Landlock ABI", wanted, have);
	}
	for (char *const *f = m->compatibility.features; f && *f; f++)
		if (!(nsbox_host_layers(h) & NSBOX_LAYER_BIT(nsbox_layer_by_name(*f))))
			return host_lacks(rs, "features", "the layer", *f, "none");
	return 0;
}

/* ------------------------------------------------------------------ the whole */

int nsbox_policy_resolve(const struct nsbox_manifest *m, const struct nsbox_resolve_options *opt,
			 struct nsbox_policy **ret, struct nsbox_error *err)
{
	static int (*const steps[])(struct resolve *) = {
		resolve_profile, resolve_tier,	   resolve_platform, resolve_compatibility,
		resolve_process, resolve_limits,   resolve_paths,    resolve_env,
		resolve_outputs, resolve_syscalls, resolve_network,  resolve_trust,
		resolve_inputs,	 resolve_later,	   resolve_layers,   resolve_process_tier,
	};
	static const struct nsbox_ceiling none;
	struct resolve rs = { .m = m, .opt = opt, .ceiling = opt->ceiling ? opt->ceiling : &none };
	int rc = 0;

	json_reader_init(&rs.r, NSBOX_E_MANIFEST, err);
	rs.p = calloc(1, sizeof(*rs.p));
	if (!rs.p)
		return json_nomem(&rs.r);
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(steps); i++)
		rc = steps[i](&rs);
	json_strings_free(rs.required);
	if (rc < 0) {
		nsbox_policy_free(rs.p);
		return rc;
	}
	*ret = rs.p;
	return 0;
}

static void free_records(struct nsbox_policy *p)
{
	for (size_t i = 0; i < p->n_grants; i++) {
		free(p->grants[i].pointer);
		free(p->grants[i].value);
		free(p->grants[i].refused);
	}
	for (size_t i = 0; i < p->n_gaps; i++) {
		free(p->gaps[i].pointer);
		free(p->gaps[i].why);
	}
	for (size_t i = 0; i < p->network.n_allow; i++) {
		free(p->network.allow[i].host);
		free(p->network.allow[i].ports);
		free(p->network.allow[i].pointer);
	}
	free(p->grants);
	free(p->gaps);
	free(p->network.allow);
}

void nsbox_policy_free(struct nsbox_policy *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n_outputs; i++)
		free(p->outputs[i].glob);
	free(p->outputs);
	for (size_t i = 0; i < p->n_taken; i++)
		free(p->taken[i].path);
	free(p->taken);
	char **const lists[] = {
		p->read,
		p->write,
		p->exec,
		p->mask,
		p->read_only,
		p->optional,
		p->make_exec,
		p->env,
		p->env_pass,
		p->syscalls,
		p->network.deny_cidrs,
		p->network.opened,
		p->network.banned_nets,
		p->network.banned_names,
		p->network.tls_ports,
	};
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		json_strings_free(lists[i]);
	free_records(p);
	free(p->network.certificates);
	free(p->name);
	free(p->hostname);
	free(p->image);
	free(p->skill_dir);
	free(p->workdir);
	free(p);
}

const char *nsbox_policy_image(const struct nsbox_policy *p)
{
	return p->image;
}

void nsbox_policy_limits(const struct nsbox_policy *p, struct nsbox_policy_limits *ret)
{
	const struct plan_limits *l = &p->limits;

	*ret = (struct nsbox_policy_limits){
		.memory = l->memory,
		.disk = l->disk,
		.wall_ms = l->wall_ms,
		.grace_ms = l->grace_ms,
		.stdout_max = l->stdout_max,
		.stderr_max = l->stderr_max,
		.result_max = l->result_max,
		.pids = l->pids,
		.cpu_milli = l->cpu_milli,
		.session_idle_ms = p->session.idle_ms,
		.session_ttl_ms = p->session.ttl_ms,
		.session_commands = p->session.max_commands,
	};
}

const void *nsbox_policy_noexec_filter(const struct nsbox_policy *p, size_t *ret_len)
{
	*ret_len = p->n_noexec * sizeof(p->noexec[0]);
	return p->n_noexec ? p->noexec : NULL;
}

const char *const *nsbox_policy_env_pass(const struct nsbox_policy *p)
{
	return (const char *const *)p->env_pass;
}
