/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules of egress: their check, and the two questions that decide everything: does a grant cover
 * this name or address and port, and is this address one that nobody is connected to.
 */
#include "nsbox/egress_format.h"

#include <arpa/inet.h>
#include <string.h>

#include "nsbox/util.h"

/* ------------------------------------------------------------------ denied to all */

/* clang-format off */
static const struct {
	struct egress_net net;
	const char *what;
} builtin[] = {
	{ { 4, 8,  0, 0, { 0 } },                    "this network (0.0.0.0/8)" },
	{ { 4, 8,  0, 0, { 10 } },                   "private (10.0.0.0/8)" },
	{ { 4, 10, 0, 0, { 100, 64 } },              "carrier-grade NAT (100.64.0.0/10)" },
	{ { 4, 8,  0, 0, { 127 } },                  "loopback (127.0.0.0/8)" },
	{ { 4, 16, 0, 0, { 169, 254 } },             "link-local and metadata (169.254.0.0/16)" },
	{ { 4, 12, 0, 0, { 172, 16 } },              "private (172.16.0.0/12)" },
	{ { 4, 24, 0, 0, { 192, 0, 0 } },            "special (192.0.0.0/24)" },
	{ { 4, 24, 0, 0, { 192, 0, 2 } },            "documentation (192.0.2.0/24)" },
	{ { 4, 24, 0, 0, { 192, 88, 99 } },          "6to4 relay (192.88.99.0/24)" },
	{ { 4, 16, 0, 0, { 192, 168 } },             "private (192.168.0.0/16)" },
	{ { 4, 15, 0, 0, { 198, 18 } },              "benchmarks (198.18.0.0/15)" },
	{ { 4, 24, 0, 0, { 198, 51, 100 } },         "documentation (198.51.100.0/24)" },
	{ { 4, 24, 0, 0, { 203, 0, 113 } },          "documentation (203.0.113.0/24)" },
	{ { 4, 32, 0, 0, { 168, 63, 129, 16 } },     "metadata (168.63.129.16)" },
	{ { 4, 4,  0, 0, { 224 } },                  "multicast (224.0.0.0/4)" },
	{ { 4, 4,  0, 0, { 240 } },                  "reserved (240.0.0.0/4)" },
	{ { 6, 96, 0, 0, { 0 } },                    "unspecified, loopback and IPv4-compatible (::/96)" },
	{ { 6, 96, 0, 0, { [10] = 0xff, 0xff } },    "IPv4-mapped (::ffff:0:0/96)" },
	{ { 6, 96, 0, 0, { [8] = 0xff, 0xff } },     "IPv4-translated (::ffff:0:0:0/96)" },
	{ { 6, 96, 0, 0, { 0, 0x64, 0xff, 0x9b } },  "NAT64 (64:ff9b::/96)" },
	{ { 6, 48, 0, 0, { 0, 0x64, 0xff, 0x9b, 0, 1 } }, "NAT64 (64:ff9b:1::/48)" },
	{ { 6, 64, 0, 0, { 1 } },                    "discard-only (100::/64)" },
	{ { 6, 23, 0, 0, { 0x20, 0x01 } },           "Teredo and protocol assignments (2001::/23)" },
	{ { 6, 32, 0, 0, { 0x20, 0x01, 0x0d, 0xb8 } }, "documentation (2001:db8::/32)" },
	{ { 6, 16, 0, 0, { 0x20, 0x02 } },           "6to4 (2002::/16)" },
	{ { 6, 20, 0, 0, { 0x3f, 0xff } },           "documentation (3fff::/20)" },
	{ { 6, 16, 0, 0, { 0x5f } },                 "segment routing (5f00::/16)" },
	{ { 6, 7,  0, 0, { 0xfc } },                 "private (fc00::/7)" },
	{ { 6, 10, 0, 0, { 0xfe, 0x80 } },           "link-local (fe80::/10)" },
	{ { 6, 10, 0, 0, { 0xfe, 0xc0 } },           "site-local (fec0::/10)" },
	{ { 6, 8,  0, 0, { 0xff } },                 "multicast (ff00::/8)" },
};
/* clang-format on */

const struct egress_net *egress_builtin(size_t i, const char **ret_what)
{
	if (i >= ARRAY_SIZE(builtin))
		return NULL;
	if (ret_what)
		*ret_what = builtin[i].what;
	return &builtin[i].net;
}

/* ------------------------------------------------------------------ matching */

bool egress_covers(const char *pattern, const char *name)
{
	size_t p = strlen(pattern), n = strlen(name);

	if (!strcmp(pattern, name))
		return true;
	/* From the dot on, so that ".good.com" is no tail of "evilgood.com". */
	return pattern[0] == '*' && n > p - 1 && !strcmp(name + n - (p - 1), pattern + 1);
}

bool egress_net_has(const struct egress_net *net, uint8_t family, const uint8_t *addr)
{
	unsigned whole = net->prefix / 8, rest = net->prefix % 8;

	if (net->family != family || memcmp(net->addr, addr, whole) != 0)
		return false;
	return !rest || ((net->addr[whole] ^ addr[whole]) & (0xff00 >> rest) & 0xff) == 0;
}

static bool has_port(const struct egress_rules *r, const struct egress_rule *rule,
		     unsigned protocol, uint16_t port)
{
	if (protocol != EGRESS_EITHER && protocol != rule->protocol)
		return false;
	if (!port || !rule->ports)
		return true;
	for (unsigned i = 0; i < rule->ports; i++)
		if (r->port[rule->port + i] == port)
			return true;
	return false;
}

const struct egress_rule *egress_find_name(const struct egress_rules *r, const char *name,
					   unsigned protocol, uint16_t port)
{
	for (unsigned i = 0; i < r->head->rules; i++) {
		const char *host = r->strings + r->rule[i].host;

		if (*host && egress_covers(host, name) && has_port(r, &r->rule[i], protocol, port))
			return &r->rule[i];
	}
	return NULL;
}

const struct egress_rule *egress_find_addr(const struct egress_rules *r, uint8_t family,
					   const uint8_t *addr, unsigned protocol, uint16_t port)
{
	for (unsigned i = 0; i < r->head->rules; i++)
		if (!r->strings[r->rule[i].host] && egress_net_has(&r->rule[i].net, family, addr) &&
		    has_port(r, &r->rule[i], protocol, port))
			return &r->rule[i];
	return NULL;
}

bool egress_has_udp(const struct egress_rules *r)
{
	for (unsigned i = 0; i < r->head->rules; i++)
		if (r->rule[i].protocol == EGRESS_UDP)
			return true;
	return r->head->open;
}

/* One rule of b that covers all of the network or pattern; b's may be wider, not parts of it. */
static bool covers_rule(const struct egress_rules *a, const struct egress_rule *x,
			const struct egress_rules *b, uint16_t port)
{
	const char *host = a->strings + x->host;

	for (unsigned i = 0; i < b->head->rules; i++) {
		const struct egress_rule *y = &b->rule[i];
		const char *pattern = b->strings + y->host;

		if (!port && y->ports)
			continue;
		if (!has_port(b, y, x->protocol, port))
			continue;
		if (*host ? *pattern && egress_covers(pattern, host)
			  : !*pattern && y->net.prefix <= x->net.prefix &&
				    egress_net_has(&y->net, x->net.family, x->net.addr))
			return true;
	}
	return false;
}

bool egress_within(const struct egress_rules *a, const struct egress_rules *b,
		   const char **ret_pointer)
{
	*ret_pointer = "/network/mode";
	if (b->head->open)
		return true;
	if (a->head->open)
		return false;
	for (unsigned i = 0; i < a->head->rules; i++) {
		const struct egress_rule *x = &a->rule[i];

		*ret_pointer = a->strings + x->pointer;
		if (!x->ports && !covers_rule(a, x, b, 0))
			return false;
		for (unsigned k = 0; k < x->ports; k++)
			if (!covers_rule(a, x, b, a->port[x->port + k]))
				return false;
	}
	return true;
}

/* ------------------------------------------------------------------ denials */

static const struct egress_net *find_net(const struct egress_rules *r, unsigned kind,
					 uint8_t family, const uint8_t *addr)
{
	for (unsigned i = 0; i < r->head->nets; i++)
		if (r->net[i].kind == kind && egress_net_has(&r->net[i], family, addr))
			return &r->net[i];
	return NULL;
}

/* Where forms of IPv6 addresses keep an IPv4 one: the prefix and the first byte of it. */
static const struct {
	struct egress_net net;
	uint8_t at;
} carriers[] = {
	{ { 6, 96, 0, 0, { [10] = 0xff, 0xff } }, 12 },
	{ { 6, 96, 0, 0, { [8] = 0xff, 0xff } }, 12 },
	{ { 6, 96, 0, 0, { 0, 0x64, 0xff, 0x9b } }, 12 },
	{ { 6, 48, 0, 0, { 0, 0x64, 0xff, 0x9b, 0, 1 } }, 12 },
	{ { 6, 16, 0, 0, { 0x20, 0x02 } }, 2 },
};

static bool denied_plain(const struct egress_rules *r, uint8_t family, const uint8_t *addr,
			 struct egress_denial *ret)
{
	const struct egress_net *net = find_net(r, EGRESS_NET_DENIED, family, addr);

	if (net) {
		*ret = (struct egress_denial){ "a network of network.denyCidrs",
					       r->strings + net->pointer };
		return true;
	}
	net = find_net(r, EGRESS_NET_BANNED, family, addr);
	if (net) {
		*ret = (struct egress_denial){ "banned by the operator",
					       r->strings + net->pointer };
		return true;
	}
	if (find_net(r, EGRESS_NET_OPENED, family, addr))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(builtin); i++)
		if (egress_net_has(&builtin[i].net, family, addr)) {
			*ret = (struct egress_denial){ builtin[i].what, "" };
			return true;
		}
	return false;
}

bool egress_denied(const struct egress_rules *r, uint8_t family, const uint8_t *addr,
		   struct egress_denial *ret)
{
	struct egress_denial ignored;

	if (!ret)
		ret = &ignored;
	if (denied_plain(r, family, addr, ret))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(carriers); i++)
		if (egress_net_has(&carriers[i].net, family, addr) &&
		    denied_plain(r, 4, addr + carriers[i].at, ret))
			return true;
	return false;
}

void egress_net_text(const struct egress_net *net, char *buf, size_t size)
{
	size_t len;

	*buf = '\0';
	if (!inet_ntop(net->family == 4 ? AF_INET : AF_INET6, net->addr, buf, (socklen_t)size))
		return;
	len = strlen(buf);
	if (net->prefix < (net->family == 4 ? 32 : 128))
		nsbox_format(buf + len, size - len, "/%u", net->prefix);
}

/* ------------------------------------------------------------------ inner addresses */

void egress_inner(uint8_t family, uint32_t place, uint8_t ret[16])
{
	static const uint8_t inner6[16] = EGRESS_INNER6;
	uint32_t v4 = EGRESS_INNER4 + place;
	uint8_t *tail = ret;

	memset(ret, 0, 16);
	if (family == 6) {
		memcpy(ret, inner6, 16);
		tail = ret + 12;
		v4 = place;
	}
	for (int i = 0; i < 4; i++)
		tail[i] = (uint8_t)(v4 >> (24 - 8 * i));
}

uint32_t egress_place_of(uint8_t family, const uint8_t *addr)
{
	const uint8_t *tail = family == 6 ? addr + 12 : addr;
	uint32_t v = (uint32_t)tail[0] << 24 | (uint32_t)tail[1] << 16 | (uint32_t)tail[2] << 8 |
		     tail[3];
	uint8_t back[16];

	if (family == 4)
		v -= EGRESS_INNER4;
	if (v == 0 || v >= EGRESS_PLACES)
		return 0;
	egress_inner(family, v, back);
	return memcmp(back, addr, family == 6 ? 16 : 4) == 0 ? v : 0;
}

/* ------------------------------------------------------------------ the check */

static int bad(struct nsbox_error *err, const char *what)
{
	return nsbox_fail_at(err, NSBOX_STAGE_PLAN, NSBOX_E_PROTOCOL, 0,
			     "malformed rules of egress: %s", what);
}

static bool net_ok(const struct egress_net *n, uint32_t strings)
{
	return (n->family == 4 || n->family == 6) && n->prefix <= (n->family == 4 ? 32 : 128) &&
	       n->kind < EGRESS_NET_KINDS && !n->reserved && n->pointer < strings;
}

/* A name of a grant: no longer than DNS has them. Its characters are compared, nothing more. */
static bool host_ok(const char *host)
{
	return strnlen(host, 256) < 256 && strcmp(host, "*") != 0;
}

static const char *check_parts(const struct egress_rules *r)
{
	const struct egress_head *h = r->head;
	const struct egress_net none = { 0 };

	for (unsigned i = 0; i < h->rules; i++) {
		const struct egress_rule *rule = &r->rule[i];

		if (rule->host >= h->strings || rule->pointer >= h->strings ||
		    !host_ok(r->strings + rule->host))
			return "string of a rule";
		if (rule->protocol > EGRESS_UDP || rule->reserved)
			return "protocol of a rule";
		if (rule->port > h->ports || rule->ports > h->ports - rule->port)
			return "ports of a rule";
		if (r->strings[rule->host] ? memcmp(&rule->net, &none, sizeof(none)) != 0
					   : !net_ok(&rule->net, h->strings))
			return "network of a rule";
	}
	for (unsigned i = 0; i < h->nets; i++)
		if (!net_ok(&r->net[i], h->strings))
			return "network";
	for (unsigned i = 0; i < h->bans; i++)
		if (r->ban[i] >= h->strings || !r->strings[r->ban[i]])
			return "pattern";
	return NULL;
}

static const char *check_limits(const struct egress_limits *l)
{
	if (!l->connections || l->connections > 65536 || !l->lookups_per_s ||
	    l->lookups_per_s > 100000)
		return "limit of connections or lookups";
	if (!l->idle_s || l->idle_s > 86400 * 7 || !l->connect_s || l->connect_s > 600 ||
	    !l->total_s || l->total_s > 86400 * 7 || l->reserved)
		return "limit of time";
	return NULL;
}

int egress_check(const void *base, size_t size, struct egress_rules *ret, struct nsbox_error *err)
{
	struct egress_rules r = { .head = base };
	const struct egress_head *h = base;
	const char *why;
	size_t need;

	if (size < sizeof(*h) || size > EGRESS_MAX || (uintptr_t)base % 8)
		return bad(err, "size");
	if (h->magic != EGRESS_MAGIC || h->size != size || h->open > 1)
		return bad(err, "head");
	if (h->tls > h->ports || h->reserved || h->ports > 65536 || h->strings > EGRESS_MAX)
		return bad(err, "size of a part");
	need = sizeof(*h) + h->rules * sizeof(*r.rule) + h->nets * sizeof(*r.net) +
	       h->bans * sizeof(*r.ban) + h->ports * sizeof(*r.port) + h->strings;
	if (need != size || !h->strings)
		return bad(err, "sizes of its parts");
	r.rule = (const struct egress_rule *)(h + 1);
	r.net = (const struct egress_net *)(r.rule + h->rules);
	r.ban = (const uint32_t *)(r.net + h->nets);
	r.port = (const uint16_t *)(r.ban + h->bans);
	r.strings = (const char *)(r.port + h->ports);
	if (r.strings[0] || r.strings[h->strings - 1])
		return bad(err, "strings without their ends");
	why = check_parts(&r);
	if (!why)
		why = check_limits(&h->limits);
	if (why)
		return bad(err, why);
	if (ret)
		*ret = r;
	return 0;
}
