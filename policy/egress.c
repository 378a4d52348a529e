/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network part of a policy as rules for nsbox-egress (nsbox/egress_format.h), and the file that
 * sends programs to it. policy/nftables.c makes the kernel's half of the same.
 */
#include <string.h>

#include "nsbox/egress_format.h"
#include "nsbox/util.h"
#include "policy/egress.h"
#include "policy/internal.h"
#include "policy/names.h"

#define LOOKUPS_PER_S 100
#define IDLE_S	      3600
#define CONNECT_S     20
#define TOTAL_S	      86400

static const char resolver_text[] =
	"# nsbox-egress answers for the names that this run may reach.\n"
	"nameserver 198.18.0.2\n"
	"options timeout:5 attempts:2\n";

bool policy_has_egress(const struct nsbox_policy *p)
{
	return p->network.mode == NETWORK_OPEN ||
	       (p->network.mode == NETWORK_ALLOWLIST && p->network.n_allow > 0);
}

/* ------------------------------------------------------------------ parts that grow */

struct part {
	void *data;
	size_t n, elem; /* elements, bytes of one */
	bool failed;
};

static void add(struct part *p, const void *elem)
{
	void *grown = reallocarray(p->data, p->n + 1, p->elem);

	if (!grown) {
		p->failed = true;
		return;
	}
	p->data = grown;
	memcpy((char *)grown + p->n++ * p->elem, elem, p->elem);
}

struct section {
	struct part rules, nets, bans, ports, strings;
	uint32_t tls; /* of the ports, the first */
};

static uint32_t add_string(struct section *s, const char *text)
{
	uint32_t at = (uint32_t)s->strings.n;

	if (!*text && at)
		return 0;
	for (;; text++) {
		add(&s->strings, text);
		if (!*text)
			return s->strings.failed ? 0 : at;
	}
}

static void add_net(struct section *s, unsigned kind, const char *cidr, const char *pointer)
{
	struct egress_net net;

	if (!host_net(cidr, &net))
		return;
	net.kind = (uint8_t)kind;
	net.pointer = add_string(s, pointer);
	add(&s->nets, &net);
}

static void add_rule(struct section *s, const struct policy_host *h)
{
	struct egress_rule rule = { .pointer = add_string(s, h->pointer),
				    .port = (uint16_t)s->ports.n,
				    .protocol =
					    h->protocol == PROTOCOL_UDP ? EGRESS_UDP : EGRESS_TCP };

	if (!host_net(h->host, &rule.net))
		rule.host = add_string(s, h->host);
	for (const uint32_t *p = h->ports; *p; p++, rule.ports++) {
		uint16_t port = (uint16_t)*p;

		add(&s->ports, &port);
	}
	add(&s->rules, &rule);
}

static void add_all(struct section *s, const struct nsbox_policy *p)
{
	add_string(s, "");
	for (char *const *t = p->network.tls_ports; t && *t; t++) { /* the first ones */
		uint16_t port = (uint16_t)strtoul(*t, NULL, 10);

		add(&s->ports, &port);
		s->tls++;
	}
	for (size_t i = 0; i < p->network.n_allow; i++)
		add_rule(s, &p->network.allow[i]);
	for (char *const *n = p->network.deny_cidrs; n && *n; n++)
		add_net(s, EGRESS_NET_DENIED, *n, "/network/denyCidrs");
	for (char *const *n = p->network.banned_nets; n && *n; n++)
		add_net(s, EGRESS_NET_BANNED, *n, "");
	for (char *const *n = p->network.opened; n && *n; n++)
		add_net(s, EGRESS_NET_OPENED, *n, "");
	for (char *const *n = p->network.banned_names; n && *n; n++) {
		uint32_t at = add_string(s, *n);

		add(&s->bans, &at);
	}
}

/* ------------------------------------------------------------------ the section */

static uint32_t seconds(uint64_t ms, uint32_t otherwise)
{
	return ms ? (uint32_t)((ms + 999) / 1000) : otherwise;
}

static struct egress_head head_of(const struct nsbox_policy *p, const struct section *s)
{
	return (struct egress_head){
		.magic = EGRESS_MAGIC,
		.open = p->network.mode == NETWORK_OPEN,
		.rules = (uint16_t)s->rules.n,
		.nets = (uint16_t)s->nets.n,
		.bans = (uint16_t)s->bans.n,
		.ports = (uint32_t)s->ports.n,
		.strings = (uint32_t)s->strings.n,
		.tls = s->tls,
		.limits = { .connections = p->network.connections,
			    .lookups_per_s = LOOKUPS_PER_S,
			    .bytes = p->network.transfer,
			    .bytes_per_s = p->network.transfer_rate,
			    .idle_s = seconds(p->network.idle_ms, IDLE_S),
			    .connect_s = CONNECT_S,
			    .total_s = seconds(p->network.open_ms, TOTAL_S) },
	};
}

static int join(struct section *s, const struct nsbox_policy *p, void **ret, size_t *ret_len,
		struct nsbox_error *err)
{
	const struct part *parts[] = { &s->rules, &s->nets, &s->bans, &s->ports, &s->strings };
	struct egress_head head = head_of(p, s);
	size_t size = sizeof(head), at = sizeof(head);
	auto_free char *all = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		size += parts[i]->n * parts[i]->elem;
	head.size = (uint32_t)size;
	all = calloc(1, size);
	if (!all)
		return nsbox_fail_at(err, NSBOX_STAGE_COMPILE, NSBOX_E_NOMEM, ENOMEM,
				     "build the rules of egress");
	memcpy(all, &head, sizeof(head));
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		if (parts[i]->n)
			memcpy(all + at, parts[i]->data, parts[i]->n * parts[i]->elem);
		at += parts[i]->n * parts[i]->elem;
	}
	if (egress_check(all, size, NULL, err) < 0)
		return -EINVAL;
	*ret = take_ptr(&all);
	*ret_len = size;
	return 0;
}

static int build(const struct nsbox_policy *p, void **ret, size_t *ret_len, struct nsbox_error *err)
{
	struct section s = { .rules.elem = sizeof(struct egress_rule),
			     .nets.elem = sizeof(struct egress_net),
			     .bans.elem = sizeof(uint32_t),
			     .ports.elem = sizeof(uint16_t),
			     .strings.elem = 1 };
	int r;

	add_all(&s, p);
	if (s.rules.failed || s.nets.failed || s.bans.failed || s.ports.failed || s.strings.failed)
		r = nsbox_fail_at(err, NSBOX_STAGE_COMPILE, NSBOX_E_NOMEM, ENOMEM,
				  "build the rules of egress");
	else if (s.ports.n > UINT16_MAX)
		r = nsbox_fail_at(err, NSBOX_STAGE_COMPILE, NSBOX_E_LIMIT, 0,
				  "/network/allow: more than 65535 ports");
	else
		r = join(&s, p, ret, ret_len, err);
	free(s.rules.data);
	free(s.nets.data);
	free(s.bans.data);
	free(s.ports.data);
	free(s.strings.data);
	return r;
}

int compile_egress(const struct nsbox_policy *p, struct blob_builder *b, struct nsbox_error *err)
{
	auto_free void *all = NULL;
	size_t len;
	int r;

	if (!policy_has_egress(p))
		return 0;
	r = build(p, &all, &len, err);
	if (r < 0)
		return r;
	blob_set(b, SEC_EGRESS, all, len);
	blob_file(b, "/etc/resolv.conf", 0, 0644, resolver_text, sizeof(resolver_text) - 1);
	return 0;
}

/* ------------------------------------------------------------------ of a ceiling */

/* Its hosts, each at any port by either protocol, as a list; all of it is borrowed. */
static int take_hosts(struct nsbox_policy *p, const struct nsbox_ceiling *c)
{
	static uint32_t any;
	const char *host = c->hosts;

	p->network.allow = calloc(2 * c->n_hosts + 1, sizeof(*p->network.allow));
	if (!p->network.allow)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->n_hosts; i++, host += strlen(host) + 1)
		for (uint32_t protocol = PROTOCOL_TCP; protocol <= PROTOCOL_UDP; protocol++)
			p->network.allow[p->network.n_allow++] =
				(struct policy_host){ (char *)host, &any, protocol,
						      (char *)"hosts of the ceiling" };
	return 0;
}

int ceiling_egress(const struct nsbox_ceiling *c, void **ret, size_t *ret_len,
		   struct nsbox_error *err)
{
	struct nsbox_policy p = { 0 };
	bool none = c->network == NSBOX_REACH_NONE;
	int r = policy_take_egress(&p, c);

	p.network.mode = none || c->hosts_listed ? NETWORK_ALLOWLIST : NETWORK_OPEN;
	p.network.connections = MAX(p.network.connections, 1u);
	if (r == 0 && c->hosts_listed && !none)
		r = take_hosts(&p, c);
	if (r < 0)
		nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "build the rules of a ceiling");
	else
		r = build(&p, ret, ret_len, err);
	free(p.network.allow);
	json_strings_free(p.network.opened);
	json_strings_free(p.network.tls_ports);
	json_strings_free(p.network.banned_nets);
	json_strings_free(p.network.banned_names);
	return r;
}
