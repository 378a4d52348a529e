/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What may be reached outside, and the rest of what this version reads without enforcing it: those
 * wishes become gaps, which keep the policy from being compiled, or refusals where optional.
 */
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/names.h"
#include "policy/resolve.h"

#define UDP_DNS                                                                                    \
	"port 53 over UDP is answered inside, for names that are granted, and cannot be granted"
#define CONNECTIONS 1024 /* to outside at the same time, unless the operator says otherwise */

/* ------------------------------------------------------------------ mode */

static uint32_t mode_ceiling(const struct resolve *rs)
{
	if (rs->ceiling->network != NSBOX_REACH_UNSET)
		return rs->ceiling->network - NSBOX_REACH_NONE;
	return rs->opt->as_operator ? NETWORK_OPEN : NETWORK_ALLOWLIST;
}

static int resolve_mode(struct resolve *rs)
{
	static const char *const words[] = { "none", "allowlist", "open" };
	uint32_t asked = rs->m->network.mode, ceiling = mode_ceiling(rs);
	size_t mark = json_enter(&rs->r, "mode");
	int r = 0;

	if (asked != UNSET && asked > ceiling)
		return json_fail(&rs->r, "\"%s\" is more than the operator's ceiling of \"%s\"",
				 words[asked], words[ceiling]);
	/* Not held to anything, so not given; with hosts it is they that are refused, each by itself. */
	if (asked == NETWORK_OPEN && policy_is_process(rs->p))
		return json_fail(&rs->r,
				 "the tier \"process\" has no network: leave it out, or set "
				 "\"none\"; " TIER_REMEDY);
	rs->p->network.mode = asked == UNSET ? MIN(rs->p->profile->network, ceiling) : asked;
	if (asked != UNSET && asked != NETWORK_NONE)
		r = resolve_grant(rs, "%s", words[asked]);
	if (r == 0)
		json_leave(&rs->r, mark);
	return r;
}

/* ------------------------------------------------------------------ hosts */

static bool ceiling_covers(const struct nsbox_ceiling *c, const char *host)
{
	const char *pattern = c->hosts;

	for (uint32_t i = 0; i < c->n_hosts; i++, pattern += strlen(pattern) + 1)
		if (host_covers(pattern, host))
			return true;
	return !c->hosts_listed;
}

static int compare_ports(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static uint32_t *sorted_ports(const uint32_t *ports)
{
	size_t n = 0, kept = 0;
	uint32_t *copy;

	while (ports[n])
		n++;
	copy = calloc(n + 1, sizeof(*copy));
	if (!copy)
		return NULL;
	memcpy(copy, ports, n * sizeof(*copy));
	qsort(copy, n, sizeof(*copy), compare_ports);
	for (size_t i = 0; i < n; i++)
		if (!kept || copy[kept - 1] != copy[i])
			copy[kept++] = copy[i];
	copy[kept] = 0;
	return copy;
}

static int add_host(struct resolve *rs, const struct manifest_host *h, const char *name)
{
	struct nsbox_policy *p = rs->p;
	struct policy_host *one = &p->network.allow[p->network.n_allow];

	*one = (struct policy_host){ strdup(name), sorted_ports(h->ports), h->protocol,
				     strdup(rs->r.pointer) };
	p->network.n_allow++;
	return one->host && one->ports && one->pointer ? 0 : json_nomem(&rs->r);
}

static int judge_host(struct resolve *rs, const struct manifest_host *h, const char *name)
{
	if (rs->p->network.mode == NETWORK_NONE)
		return json_fail(&rs->r, "network.mode is \"none\" here");
	if (policy_is_process(rs->p))
		return json_fail(&rs->r,
				 "the tier \"process\" has no network that could be held to "
				 "hosts: " TIER_REMEDY);
	if (!ceiling_covers(rs->ceiling, name))
		return json_fail(&rs->r, "\"%.80s\" is not among the operator's hosts", name);
	for (const uint32_t *p = h->ports; h->protocol == PROTOCOL_UDP && *p; p++)
		if (*p == 53)
			return json_fail(&rs->r, UDP_DNS);
	return 0;
}

static int resolve_host(struct resolve *rs, const struct manifest_host *h)
{
	struct resolve_attempt attempt;
	char name[HOST_MAX + 1], value[HOST_MAX + 64];
	int r, len;

	host_normalise(h->host, name, sizeof(name));
	len = snprintf(value, sizeof(value), "%s%s", name, h->protocol ? "/udp" : "");
	for (const uint32_t *p = h->ports; *p && len < (int)sizeof(value); p++)
		len += snprintf(value + len, sizeof(value) - (size_t)len, "%s%u",
				p == h->ports ? ":" : ",", *p);
	resolve_try(rs, &attempt);
	r = judge_host(rs, h, name);
	if (r < 0)
		return resolve_tried(rs, &attempt, r, h->optional, value);
	r = resolve_tried(rs, &attempt, r, false, value);
	if (r == 0)
		r = add_host(rs, h, name);
	return r == 0 ? resolve_grant(rs, "%s", value) : r;
}

static int compare_hosts(const void *a, const void *b)
{
	const struct policy_host *x = a, *y = b;
	int r = strcmp(x->host, y->host);

	if (r == 0)
		r = (int)x->protocol - (int)y->protocol;
	for (size_t i = 0; r == 0 && (x->ports[i] || y->ports[i]); i++)
		r = (x->ports[i] > y->ports[i]) - (x->ports[i] < y->ports[i]);
	return r;
}

static int resolve_hosts(struct resolve *rs)
{
	size_t start = json_enter(&rs->r, "allow");

	rs->p->network.allow = calloc(rs->m->network.n_allow + 1, sizeof(struct policy_host));
	if (!rs->p->network.allow)
		return json_nomem(&rs->r);
	for (size_t i = 0; i < rs->m->network.n_allow; i++) {
		size_t mark = json_enter_index(&rs->r, i);
		int r = resolve_host(rs, &rs->m->network.allow[i]);

		if (r < 0)
			return r;
		json_leave(&rs->r, mark);
	}
	qsort(rs->p->network.allow, rs->p->network.n_allow, sizeof(struct policy_host),
	      compare_hosts);
	json_leave(&rs->r, start);
	return 0;
}

/* ------------------------------------------------------------------ the operator's part */

static int split_bans(struct nsbox_policy *p, const char *list)
{
	auto_free char *copy = strdup(list);
	char *save = NULL;

	if (!copy)
		return -ENOMEM;
	for (char *t = strtok_r(copy, ",", &save); t; t = strtok_r(NULL, ",", &save)) {
		char text[64];
		bool net = ban_is_network(t, text, sizeof(text));

		if (strings_add_take(net ? &p->network.banned_nets : &p->network.banned_names,
				     strdup(net ? text : t)) < 0)
			return -ENOMEM;
	}
	strings_sort_unique(p->network.banned_nets);
	strings_sort_unique(p->network.banned_names);
	return 0;
}

int policy_take_egress(struct nsbox_policy *p, const struct nsbox_ceiling *c)
{
	const char *net = c->opened;

	p->network.opened = calloc(1, sizeof(char *));
	p->network.banned_nets = calloc(1, sizeof(char *));
	p->network.banned_names = calloc(1, sizeof(char *));
	if (!p->network.opened || !p->network.banned_nets || !p->network.banned_names)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->n_opened; i++, net += strlen(net) + 1)
		if (strings_add_take(&p->network.opened, strdup(net)) < 0)
			return -ENOMEM;
	strings_sort_unique(p->network.opened);
	for (size_t i = 0; c->tls_ports[i]; i++) {
		char port[8];

		snprintf(port, sizeof(port), "%u", c->tls_ports[i]);
		if (strings_add_take(&p->network.tls_ports, strdup(port)) < 0)
			return -ENOMEM;
	}
	p->network.connections = c->connections ? c->connections : CONNECTIONS;
	p->network.transfer = c->transfer;
	p->network.transfer_rate = c->transfer_rate;
	p->network.idle_ms = c->connection_idle_ms;
	p->network.open_ms = c->connection_ms;
	return split_bans(p, c->banned);
}

int resolve_network(struct resolve *rs)
{
	size_t start = json_enter(&rs->r, "network");
	char *const *deny = rs->m->network.deny_cidrs;
	int r = resolve_mode(rs);

	if (r == 0)
		r = resolve_hosts(rs);
	if (r == 0 && policy_take_egress(rs->p, rs->ceiling) < 0)
		r = json_nomem(&rs->r);
	if (r < 0)
		return r;
	rs->p->network.deny_cidrs = calloc(1, sizeof(char *));
	if (!rs->p->network.deny_cidrs)
		return json_nomem(&rs->r);
	for (; deny && *deny; deny++) {
		char text[64];

		cidr_normalise(*deny, text, sizeof(text));
		if (strings_add_take(&rs->p->network.deny_cidrs, strdup(text)) < 0)
			return json_nomem(&rs->r);
	}
	strings_sort_unique(rs->p->network.deny_cidrs);
	json_leave(&rs->r, start);
	return 0;
}

/* ------------------------------------------------------------------ later */

/* A wish of one place without parts. */
static int gap_at(struct resolve *rs, const char *object, const char *key, bool asked,
		  const char *why)
{
	size_t start = rs->r.len;
	int r;

	if (!asked)
		return 0;
	json_enter(&rs->r, object);
	if (key)
		json_enter(&rs->r, key);
	r = resolve_gap(rs, why);
	json_leave(&rs->r, start);
	return r;
}

static int later_places(struct resolve *rs)
{
	const struct nsbox_manifest *m = rs->m;
	const struct {
		const char *object, *key;
		bool asked;
		const char *why;
	} places[] = {
		{ "runtime", "packages", m->runtime.lockfile,
		  "this version has no layers of packages" },
		{ "resources", "swap", m->res.swap, "this version gives a run no swap" },
		{ "session", "warm", m->session.warm, "this version keeps no sandboxes ready" },
		{ "determinism", "time", m->determinism.time,
		  "this version cannot set the clocks" },
		{ "determinism", "seed", m->determinism.seed != UINT64_MAX,
		  "this version cannot seed random numbers" },
		{ "audit", "retain", m->audit.retain_ms,
		  "this version does not keep records for a time of the manifest's" },
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(places); i++)
		r = gap_at(rs, places[i].object, places[i].key, places[i].asked, places[i].why);
	return r;
}

static int session_limits(struct resolve *rs)
{
	const struct {
		const char *key;
		bool asked;
	} limits[] = {
		{ "idleTimeout", rs->m->session.idle_ms },
		{ "ttl", rs->m->session.ttl_ms },
		{ "maxCommands", rs->m->session.max_commands },
	};

	for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
		if (limits[i].asked && rs->m->session.mode != SESSION_SESSION) {
			json_enter(&rs->r, "session");
			json_enter(&rs->r, limits[i].key);
			return json_fail(&rs->r, "is of a session, and mode is \"oneshot\"");
		}
	return 0;
}

int resolve_later(struct resolve *rs)
{
	int r = later_places(rs);

	return r == 0 ? session_limits(rs) : r;
}
