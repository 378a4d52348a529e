/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers: profile defaults, what the manifest asks, the operator's ceiling; and the layers. */
#include <stdio.h>
#include <string.h>

#include "nsbox/process_tier.h"
#include "nsbox/util.h"
#include "policy/resolve.h"

#define MI UINT64_C(1048576)
#define GI (1024 * MI)

/* Where the operator says nothing: generous, but never without a bound. */
static const struct nsbox_ceiling built_in = {
	.memory = 16 * GI,
	.disk = 16 * GI,
	.wall_ms = UINT64_C(24) * 3600 * 1000,
	.pids = 4096,
	.cpu_milli = 64000,
	.open_files = 65536,
};

enum amount { AMOUNT_COUNT, AMOUNT_BYTES, AMOUNT_MS, AMOUNT_MILLI };

/* As a person would write it: 536870912 -> 512Mi. */
static void amount_text(char *buf, size_t size, enum amount kind, uint64_t v)
{
	static const struct {
		enum amount kind;
		uint64_t unit;
		const char *suffix;
	} units[] = {
		{ AMOUNT_BYTES, GI, "Gi" },   { AMOUNT_BYTES, MI, "Mi" },
		{ AMOUNT_BYTES, 1024, "Ki" }, { AMOUNT_MS, 3600000, "h" },
		{ AMOUNT_MS, 60000, "m" },    { AMOUNT_MS, 1000, "s" },
		{ AMOUNT_MS, 1, "ms" },	      { AMOUNT_MILLI, 1000, "" },
		{ AMOUNT_MILLI, 1, "m" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (units[i].kind == kind && v && v % units[i].unit == 0) {
			snprintf(buf, size, "%llu%s", (unsigned long long)(v / units[i].unit),
				 units[i].suffix);
			return;
		}
	snprintf(buf, size, "%llu", (unsigned long long)v);
}

struct wish {
	const char *object, *key; /* place in the manifest */
	enum amount kind;
	uint64_t asked; /* 0: not */
	uint64_t preset;
	uint64_t ceiling; /* of the operator, 0: built-in */
	uint64_t built_in;
};

static int record(struct resolve *rs, const struct wish *w)
{
	size_t mark = json_enter(&rs->r, w->object);
	char text[32];
	int r;

	json_enter(&rs->r, w->key);
	amount_text(text, sizeof(text), w->kind, w->asked);
	r = resolve_grant(rs, "%s", text);
	json_leave(&rs->r, mark);
	return r;
}

static int grant(struct resolve *rs, const struct wish *w, uint64_t *ret)
{
	uint64_t ceiling = w->ceiling ? w->ceiling : w->built_in;
	char asked[32], limit[32];

	if (w->asked > ceiling) {
		amount_text(asked, sizeof(asked), w->kind, w->asked);
		amount_text(limit, sizeof(limit), w->kind, ceiling);
		json_enter(&rs->r, w->object);
		json_enter(&rs->r, w->key);
		return json_fail(&rs->r, "%s is more than the operator's ceiling of %s", asked,
				 limit);
	}
	*ret = w->asked ? w->asked : MIN(w->preset, ceiling);
	return w->asked ? record(rs, w) : 0;
}

/* Up to the memory's limit what a run writes is kept there; beyond it, in a file system on disk. */
static int resolve_disk(struct resolve *rs, const struct nsbox_ceiling *c)
{
	struct plan_limits *l = &rs->p->limits;
	const struct wish disk = { "resources",	  "disk",  AMOUNT_BYTES, rs->m->res.disk,
				   l->memory / 2, c->disk, built_in.disk };
	int ret = grant(rs, &disk, &l->disk);

	if (ret < 0)
		return ret;
	if (l->disk > l->memory && rs->p->profile->root_rdonly) {
		json_enter(&rs->r, "resources");
		json_enter(&rs->r, "disk");
		return json_fail(&rs->r, "is more than the memory limit, and under a root that is "
					 "read-only what a run writes is kept in memory");
	}
	/* Small files dominate trees like node_modules; an inode of tmpfs is about 1 KiB. */
	l->disk_inodes = MAX(MIN(l->disk / 2048, UINT64_C(1) << 20), UINT64_C(4096));
	/* Shared memory and memfds are files too: the limit must not be below the memory's. */
	l->file_size = rs->m->res.file_size ? rs->m->res.file_size : MAX(l->memory, l->disk);
	return 0;
}

int resolve_limits(struct resolve *rs)
{
	const struct nsbox_ceiling *c = rs->ceiling;
	const struct manifest_resources *res = &rs->m->res;
	const struct profile *pr = rs->p->profile;
	struct plan_limits *l = &rs->p->limits;
	uint64_t pids = 0, cpu = 0, files = 0;
	const struct {
		struct wish wish;
		uint64_t *ret;
	} wishes[] = {
		{ { "resources", "memory", AMOUNT_BYTES, res->memory, pr->memory, c->memory,
		    built_in.memory },
		  &l->memory },
		{ { "resources", "pids", AMOUNT_COUNT, res->pids, pr->pids, c->pids,
		    built_in.pids },
		  &pids },
		{ { "resources", "cpu", AMOUNT_MILLI, res->cpu_milli, pr->cpu_milli, c->cpu_milli,
		    built_in.cpu_milli },
		  &cpu },
		{ { "resources", "openFiles", AMOUNT_COUNT, res->open_files, 1024, c->open_files,
		    built_in.open_files },
		  &files },
		{ { "timeouts", "wall", AMOUNT_MS, rs->m->timeouts.wall_ms, pr->wall_ms, c->wall_ms,
		    built_in.wall_ms },
		  &l->wall_ms },
	};

	for (size_t i = 0; i < ARRAY_SIZE(wishes); i++) {
		int ret = grant(rs, &wishes[i].wish, wishes[i].ret);

		if (ret < 0)
			return ret;
	}
	l->pids = (uint32_t)pids;
	l->cpu_milli = (uint32_t)cpu;
	l->open_files = (uint32_t)files;
	l->cpu_ms = rs->m->timeouts.cpu_ms;
	l->grace_ms = rs->m->timeouts.grace_ms ? rs->m->timeouts.grace_ms : 1000;
	l->stdout_max = res->stdout_max ? res->stdout_max : MI;
	l->stderr_max = res->stderr_max ? res->stderr_max : MI;
	l->result_max = res->result_max ? res->result_max : 64 * MI;
	return resolve_disk(rs, c);
}

/* ------------------------------------------------------------------ layers */

/* Landlock without REFER (ABI 1) refuses renames between directories: only where it is demanded. */
static void resolve_landlock(struct resolve *rs)
{
	struct nsbox_policy *p = rs->p;
	uint32_t abi = (uint32_t)MAX(rs->opt->host->landlock_abi, 0);
	bool demanded = p->layer[NSBOX_LAYER_LANDLOCK_FS] == NSBOX_REQUIRE;

	/* What holds "skill": only that what the run wrote cannot be executed, which is Landlock's
	 * work wherever the writable places are not noexec mounts. */
	if (p->subprocess == SUBPROCESS_SKILL && (p->profile->exec_writable || p->exec[0]))
		demanded = true;
	if (demanded)
		p->layer[NSBOX_LAYER_LANDLOCK_FS] = NSBOX_REQUIRE;
	if (p->layer[NSBOX_LAYER_LANDLOCK_FS] == NSBOX_OFF || (abi == 1 && !demanded))
		abi = 0;
	p->landlock_abi = MIN(abi, 6u); /* later ABIs add nothing that is asked for here */
}

/* What namespaces make, a run without them says that it lacks; and the rest is what it has. */
static uint8_t layer_preset(const struct nsbox_policy *p, int layer)
{
	const uint32_t bit = NSBOX_LAYER_BIT(layer);

	if (!policy_is_process(p))
		return (uint8_t)nsbox_layer_default(layer);
	if (PROCESS_FOUNDATION & bit)
		return NSBOX_REQUIRE;
	return layer == NSBOX_LAYER_LANDLOCK_TCP ? NSBOX_OFF : NSBOX_PREFER;
}

static int raise_layers(struct resolve *rs)
{
	size_t mark = json_enter(&rs->r, "require");

	for (int i = 0; i < NSBOX_LAYER_MAX; i++) {
		uint32_t asked = rs->m->require[i];
		uint8_t preset = layer_preset(rs->p, i);

		rs->p->layer[i] = preset;
		if (asked == UNSET)
			continue;
		if (asked == NSBOX_REQUIRE && policy_is_process(rs->p) &&
		    (PROCESS_ABSENT & NSBOX_LAYER_BIT(i))) {
			json_enter(&rs->r, nsbox_layer_name(i));
			return json_fail(&rs->r,
					 "the tier \"process\" has no such layer: run it where the "
					 "tier \"namespace\" is reached (nsbox doctor)");
		}
		if (asked < preset) {
			json_enter(&rs->r, nsbox_layer_name(i));
			return json_fail(&rs->r, "a manifest can only raise what is required; "
						 "lowering it is the operator's to decide");
		}
		rs->p->layer[i] = (uint8_t)asked;
	}
	json_leave(&rs->r, mark);
	return 0;
}

static int check_host(struct resolve *rs)
{
	uint32_t have = nsbox_host_layers(rs->opt->host);
	char buf[256];

	for (int i = 0; i < NSBOX_LAYER_MAX; i++) {
		const char *remedy;

		if (rs->p->layer[i] != NSBOX_REQUIRE || (have & NSBOX_LAYER_BIT(i)))
			continue;
		remedy = nsbox_host_remedy(rs->opt->host, i, buf, sizeof(buf));
		return nsbox_fail_at(rs->r.err, NSBOX_STAGE_RESOLVE, NSBOX_E_UNSUPPORTED, 0,
				     "this host lacks the required layer '%s' (%s)%s%s",
				     nsbox_layer_name(i), nsbox_layer_text(i), remedy ? ": " : "",
				     remedy ? remedy : "");
	}
	return 0;
}

/* A host without namespaces could refuse all of a network, or none of it by name. */
#define OWN_NETWORK(key) "/network/" key ": takes a network namespace of the run's own"

static int check_tier(struct resolve *rs)
{
	int have = nsbox_host_tier(rs->opt->host);

	if (rs->p->tier == NSBOX_TIER_CGROUP)
		rs->p->layer[NSBOX_LAYER_CGROUP] = NSBOX_REQUIRE;
	if (have >= (int)rs->p->tier)
		return 0;
	/* The missing layer with its remedy says more than the name of the tier. */
	if (check_host(rs) < 0) {
		nsbox_error_prefix(rs->r.err, "tier '%s'", nsbox_tier_name((int)rs->p->tier));
		if (policy_has_egress(rs->p) && have < NSBOX_TIER_NAMESPACE)
			nsbox_error_prefix(rs->r.err, "%s",
					   rs->p->network.n_allow ? OWN_NETWORK("allow")
								  : OWN_NETWORK("mode"));
		return -EINVAL;
	}
	return nsbox_fail_at(rs->r.err, NSBOX_STAGE_RESOLVE, NSBOX_E_UNSUPPORTED, 0,
			     "this host reaches the tier '%s', and '%s' is required",
			     nsbox_tier_name(have), nsbox_tier_name((int)rs->p->tier));
}

int resolve_layers(struct resolve *rs)
{
	int ret = raise_layers(rs);

	if (ret < 0)
		return ret;
	resolve_landlock(rs);
	/* What is not redirected is refused by the packet filter: with egress it has to be there. */
	if (policy_has_egress(rs->p) && !policy_is_process(rs->p))
		rs->p->layer[NSBOX_LAYER_NFTABLES] = NSBOX_REQUIRE;
	ret = check_tier(rs);
	if (ret == 0)
		ret = check_host(rs);
	return ret;
}
