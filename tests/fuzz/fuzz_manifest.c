/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a manifest: parse, resolve, write the canonical form; and as an operator's ceiling,
 * under which a manifest that asks for much is resolved. Besides crashes and leaks, five promises
 * are checked: an error has a code and one line of text; the canonical form is strict JSON again;
 * the same input gives the same form; what resolves compiles to a plan that passes, unless the
 * policy says what it lacks; a ceiling never raises a limit.
 */
#include <json-c/json.h>
#include <nsbox/policy.h>
#include <stdlib.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/json_strict.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
	if (!ok)
		abort();
}

static void check_error(const struct nsbox_error *err)
{
	check(err->code > NSBOX_E_OK && err->code < NSBOX_E_CODE_MAX && err->msg[0]);
	for (const char *p = err->msg; *p; p++)
		check((unsigned char)*p >= 0x20 && *p != 0x7f);
}

static struct nsbox_host host(void)
{
	struct nsbox_host h = {
		.machine = "x86_64",
		.landlock_abi = 7,
		.overlay_userns = true,
		.proc_mountable = true,
		.nftables = true,
		.seccomp_filter = true,
		.cpus = 4,
	};

	for (int i = NSBOX_LAYER_USER; i <= NSBOX_LAYER_CGROUP_NS; i++)
		h.namespaces |= NSBOX_LAYER_BIT(i);
	return h;
}

/* What resolves compiles, to a plan that its receiver accepts. */
static void check_plan(const struct nsbox_policy *p)
{
	struct nsbox_error err = { 0 };
	struct nsbox_plan *plan = NULL;
	auto_close int fd = -1;

	if (p->n_gaps) {
		check(nsbox_policy_compile(p, &fd, &err) < 0 && err.code == NSBOX_E_UNSUPPORTED);
		check_error(&err);
		return;
	}
	check(nsbox_policy_compile(p, &fd, &err) == 0);
	check(nsbox_plan_open(fd, &plan, &err) == 0);
	nsbox_plan_close(plan);
}

/* NULL where the manifest is refused. */
static char *canonical(const struct nsbox_manifest *m, const struct nsbox_resolve_options *opt)
{
	struct nsbox_error err = { 0 };
	struct nsbox_policy *p = NULL;
	char *text = NULL;

	if (nsbox_policy_resolve(m, opt, &p, &err) < 0) {
		check_error(&err);
		return NULL;
	}
	check(nsbox_policy_json(p, &text, &err) == 0);
	if (opt->python_function)
		check_plan(p);
	nsbox_policy_free(p);
	return text;
}

static void try_ceiling(const uint8_t *data, size_t size, const struct nsbox_host *h)
{
	static const char ask[] = "{\"manifestVersion\":1,\"profile\":\"network\"}";
	struct nsbox_ceiling c;
	const struct nsbox_resolve_options opt = { .host = h, .ceiling = &c };
	struct nsbox_manifest *m = NULL;
	struct nsbox_policy *p = NULL;
	struct nsbox_policy_limits l;
	struct nsbox_error err = { 0 };

	if (nsbox_ceiling_parse((const char *)data, size, &c, &err) < 0) {
		check_error(&err);
		return;
	}
	check(nsbox_manifest_parse(ask, sizeof(ask) - 1, &m, &err) == 0);
	if (nsbox_policy_resolve(m, &opt, &p, &err) < 0) {
		check_error(&err);
	} else {
		nsbox_policy_limits(p, &l);
		check(!c.memory || l.memory <= c.memory);
		check(!c.pids || l.pids <= c.pids);
		check(!c.wall_ms || l.wall_ms <= c.wall_ms);
		check(c.jit != NSBOX_ALLOWANCE_NO || !p->jit);
		check(c.listen != NSBOX_ALLOWANCE_NO || !p->listen);
		check(c.network != NSBOX_REACH_NONE || p->network.mode == NETWORK_NONE);
		nsbox_policy_free(p);
	}
	nsbox_manifest_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct json_limits limits = { .max_size = 8u << 20,
						   .max_depth = 16,
						   .code = NSBOX_E_INVALID };
	const struct nsbox_host h = host();
	struct nsbox_resolve_options opt = { .host = &h };
	struct nsbox_manifest *m = NULL;
	struct nsbox_error err = { 0 };

	try_ceiling(data, size, &h);
	if (nsbox_manifest_parse((const char *)data, size, &m, &err) < 0) {
		check_error(&err);
		return 0;
	}
	for (int variant = 0; variant < 4; variant++) {
		struct json_object *v = NULL;
		auto_free char *a = NULL, *b = NULL;

		opt.skill_dir = variant & 1 ? "/skills/s" : NULL;
		opt.as_operator = variant & 2;
		opt.python_function = variant & 2;
		a = canonical(m, &opt);
		b = canonical(m, &opt);
		check(!a == !b);
		if (!a)
			continue;
		check(!strcmp(a, b));
		check(json_strict_parse(a, strlen(a), &limits, &v, &err) == 0);
		json_object_put(v);
	}
	nsbox_manifest_free(m);
	return 0;
}
