/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The packet filter of a run, as one netlink batch. Without egress:
 *
 *   table inet nsbox {
 *     chain input   { type filter hook input priority 0;   policy drop; iif lo accept }
 *     chain forward { type filter hook forward priority 0; policy drop; }
 *     chain output  { type filter hook output priority 0;  policy drop; oif lo accept }
 *   }
 *
 * There is no route out anyway; this is the layer that still holds should one appear. With egress
 * there is a route for everything, to lo, and what is on lo is told apart by its address:
 *
 *     chain redirect { type nat hook output priority -100; policy accept;
 *       DNS to anywhere but loopback                 -> nsbox-egress, name server
 *       TCP to an inner address, a port of a grant   -> nsbox-egress
 *       (what the manifest and the operator deny)    return
 *       TCP to what is granted and opened            -> nsbox-egress
 *       (what is denied to all)                      return
 *       TCP to what is granted                       -> nsbox-egress
 *       (the same of UDP: another port at the same address)
 *     }
 *     chain mark { type filter hook output priority -150; where anything is granted over UDP
 *       UDP: the mark becomes the port it goes to, which nsbox-egress is told with the datagram }
 *     chain output { ...; own addresses accept; TCP counter reject with reset; counter reject }
 *
 * Which grant covers a connection is nsbox-egress's to say; here the rest is refused at once. `lo`
 * is matched by index, which is 1 in every network namespace, so that no name is looked up. The
 * child sends the bytes as they are; the last message alone asks for an acknowledgement, since the
 * kernel reports every failure and some hundred answers would not fit its queue.
 */
#include <arpa/inet.h>
#include <libmnl/libmnl.h>
#include <libnftnl/chain.h>
#include <libnftnl/common.h>
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>
#include <libnftnl/table.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter/nf_tables.h>
#include <netinet/in.h>
#include <string.h>

#include "nsbox/egress_format.h"
#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/names.h"

#define TABLE	       "nsbox"
#define LOOPBACK_INDEX 1
#define BATCH_MAX      (160u << 10) /* what a socket takes in one message, with room */
#define MESSAGE_MAX    1024

static const struct chain {
	const char *name, *type;
	uint32_t hook;
	int32_t priority;
	uint32_t policy;
} chains[] = {
	{ "input", "filter", NF_INET_LOCAL_IN, 0, NF_DROP },
	{ "forward", "filter", NF_INET_FORWARD, 0, NF_DROP },
	{ "output", "filter", NF_INET_LOCAL_OUT, 0, NF_DROP },
}, redirect = { "redirect", "nat", NF_INET_LOCAL_OUT, -100 /* before the filter */, NF_ACCEPT },
  mark = { "mark", "filter", NF_INET_LOCAL_OUT, -150 /* and before the port changes */, NF_ACCEPT };

struct batch {
	char buf[BATCH_MAX + MESSAGE_MAX];
	size_t len;
	uint32_t seq;
	size_t last; /* where the last message begins */
	bool full;
};

/* The message after the last; its attributes are put by the caller, who then calls end(). */
static struct nlmsghdr *begin(struct batch *bt, uint16_t type)
{
	bt->last = bt->len;
	return nftnl_nlmsg_build_hdr(bt->buf + bt->len, type, NFPROTO_INET, NLM_F_CREATE,
				     ++bt->seq);
}

static void end(struct batch *bt, const struct nlmsghdr *nlh)
{
	if (bt->len + NLMSG_ALIGN(nlh->nlmsg_len) <= BATCH_MAX)
		bt->len += NLMSG_ALIGN(nlh->nlmsg_len);
	else
		bt->full = true;
}

static int put_table(struct batch *bt)
{
	struct nftnl_table *t = nftnl_table_alloc();
	struct nlmsghdr *nlh;

	if (!t)
		return -ENOMEM;
	nftnl_table_set_u32(t, NFTNL_TABLE_FAMILY, NFPROTO_INET);
	nftnl_table_set_str(t, NFTNL_TABLE_NAME, TABLE);
	nlh = begin(bt, NFT_MSG_NEWTABLE);
	nftnl_table_nlmsg_build_payload(nlh, t);
	end(bt, nlh);
	nftnl_table_free(t);
	return 0;
}

static int put_chain(struct batch *bt, const struct chain *h)
{
	struct nftnl_chain *c = nftnl_chain_alloc();
	struct nlmsghdr *nlh;

	if (!c)
		return -ENOMEM;
	nftnl_chain_set_str(c, NFTNL_CHAIN_TABLE, TABLE);
	nftnl_chain_set_str(c, NFTNL_CHAIN_NAME, h->name);
	nftnl_chain_set_str(c, NFTNL_CHAIN_TYPE, h->type);
	nftnl_chain_set_u32(c, NFTNL_CHAIN_HOOKNUM, h->hook);
	nftnl_chain_set_s32(c, NFTNL_CHAIN_PRIO, h->priority);
	nftnl_chain_set_u32(c, NFTNL_CHAIN_POLICY, h->policy);
	nlh = begin(bt, NFT_MSG_NEWCHAIN);
	nftnl_chain_nlmsg_build_payload(nlh, c);
	end(bt, nlh);
	nftnl_chain_free(c);
	return 0;
}

/* ------------------------------------------------------------------ rules */

enum verdict { ACCEPT, RETURN, REJECT_TCP, REJECT, TO_RELAY, TO_NAMES, TO_DATAGRAMS, MARK };

/* What a rule looks at; 0 and NULL: not. */
struct match {
	const char *chain;
	int meta; /* key that must equal the loopback's index, -1: none */
	uint8_t family, protocol;
	const struct egress_net *dst;
	uint16_t port;
	enum verdict verdict;
};

static struct nftnl_expr *add_expr(struct nftnl_rule *r, const char *name)
{
	struct nftnl_expr *e = nftnl_expr_alloc(name);

	if (e)
		nftnl_rule_add_expr(r, e); /* the rule frees it */
	return e;
}

static int add_compare(struct nftnl_rule *r, const void *data, uint32_t len)
{
	struct nftnl_expr *e = add_expr(r, "cmp");

	if (!e)
		return -ENOMEM;
	nftnl_expr_set_u32(e, NFTNL_EXPR_CMP_SREG, NFT_REG_1);
	nftnl_expr_set_u32(e, NFTNL_EXPR_CMP_OP, NFT_CMP_EQ);
	nftnl_expr_set(e, NFTNL_EXPR_CMP_DATA, data, len);
	return 0;
}

static int add_meta(struct nftnl_rule *r, uint32_t key, const void *data, uint32_t len)
{
	struct nftnl_expr *e = add_expr(r, "meta");

	if (!e)
		return -ENOMEM;
	nftnl_expr_set_u32(e, NFTNL_EXPR_META_KEY, key);
	nftnl_expr_set_u32(e, NFTNL_EXPR_META_DREG, NFT_REG_1);
	return add_compare(r, data, len);
}

static int add_payload(struct nftnl_rule *r, uint32_t base, uint32_t offset, uint32_t len)
{
	struct nftnl_expr *e = add_expr(r, "payload");

	if (!e)
		return -ENOMEM;
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_DREG, NFT_REG_1);
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_BASE, base);
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_OFFSET, offset);
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_LEN, len);
	return 0;
}

static int add_mask(struct nftnl_rule *r, unsigned prefix, uint32_t len)
{
	struct nftnl_expr *e = add_expr(r, "bitwise");
	uint8_t mask[16], none[16] = { 0 };

	if (!e)
		return -ENOMEM;
	for (unsigned i = 0; i < len; i++)
		mask[i] = prefix >= 8 * (i + 1) ? 0xff
			  : prefix > 8 * i	? (uint8_t)(0xff << (8 - prefix % 8))
						: 0;
	nftnl_expr_set_u32(e, NFTNL_EXPR_BITWISE_SREG, NFT_REG_1);
	nftnl_expr_set_u32(e, NFTNL_EXPR_BITWISE_DREG, NFT_REG_1);
	nftnl_expr_set_u32(e, NFTNL_EXPR_BITWISE_LEN, len);
	nftnl_expr_set(e, NFTNL_EXPR_BITWISE_MASK, mask, len);
	nftnl_expr_set(e, NFTNL_EXPR_BITWISE_XOR, none, len);
	return 0;
}

static int add_destination(struct nftnl_rule *r, const struct egress_net *net)
{
	uint32_t len = net->family == 4 ? 4 : 16;
	int ret;

	if (!net->prefix)
		return 0;
	ret = add_payload(r, NFT_PAYLOAD_NETWORK_HEADER, net->family == 4 ? 16 : 24, len);
	if (ret == 0 && net->prefix < 8 * len)
		ret = add_mask(r, net->prefix, len);
	return ret == 0 ? add_compare(r, net->addr, len) : ret;
}

static int add_immediate(struct nftnl_rule *r, uint32_t reg, const void *data, uint32_t len)
{
	struct nftnl_expr *e = add_expr(r, "immediate");

	if (!e)
		return -ENOMEM;
	nftnl_expr_set_u32(e, NFTNL_EXPR_IMM_DREG, reg);
	nftnl_expr_set(e, NFTNL_EXPR_IMM_DATA, data, len);
	return 0;
}

static int add_redirect(struct nftnl_rule *r, uint8_t family, uint16_t port)
{
	uint16_t wire = htons(port);
	struct nftnl_expr *e;
	uint8_t to[16];
	int ret;

	egress_inner(family, EGRESS_BROKER, to);
	ret = add_immediate(r, NFT_REG_1, to, family == 4 ? 4 : 16);
	if (ret == 0)
		ret = add_immediate(r, NFT_REG_2, &wire, sizeof(wire));
	e = ret == 0 ? add_expr(r, "nat") : NULL;
	if (!e)
		return -ENOMEM;
	nftnl_expr_set_u32(e, NFTNL_EXPR_NAT_TYPE, NFT_NAT_DNAT);
	nftnl_expr_set_u32(e, NFTNL_EXPR_NAT_FAMILY, family == 4 ? NFPROTO_IPV4 : NFPROTO_IPV6);
	nftnl_expr_set_u32(e, NFTNL_EXPR_NAT_REG_ADDR_MIN, NFT_REG_1);
	nftnl_expr_set_u32(e, NFTNL_EXPR_NAT_REG_PROTO_MIN, NFT_REG_2);
	nftnl_expr_set_u32(e, NFTNL_EXPR_NAT_FLAGS,
			   NF_NAT_RANGE_MAP_IPS | NF_NAT_RANGE_PROTO_SPECIFIED);
	return 0;
}

/* The address stays: it says who is meant. */
static int add_other_port(struct nftnl_rule *r, uint16_t port)
{
	uint16_t wire = htons(port);
	int ret = add_immediate(r, NFT_REG_2, &wire, sizeof(wire));
	struct nftnl_expr *e = ret == 0 ? add_expr(r, "nat") : NULL;

	if (!e)
		return -ENOMEM;
	nftnl_expr_set_u32(e, NFTNL_EXPR_NAT_TYPE, NFT_NAT_DNAT);
	nftnl_expr_set_u32(e, NFTNL_EXPR_NAT_FAMILY, NFPROTO_INET);
	nftnl_expr_set_u32(e, NFTNL_EXPR_NAT_REG_PROTO_MIN, NFT_REG_2);
	nftnl_expr_set_u32(e, NFTNL_EXPR_NAT_FLAGS, NF_NAT_RANGE_PROTO_SPECIFIED);
	return 0;
}

static int add_mark(struct nftnl_rule *r)
{
	int ret = add_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2);
	struct nftnl_expr *e = ret == 0 ? add_expr(r, "meta") : NULL;

	if (!e)
		return -ENOMEM;
	nftnl_expr_set_u32(e, NFTNL_EXPR_META_KEY, NFT_META_MARK);
	nftnl_expr_set_u32(e, NFTNL_EXPR_META_SREG, NFT_REG_1);
	return 0;
}

static int add_verdict(struct nftnl_rule *r, const struct match *m)
{
	struct nftnl_expr *e;

	if (m->verdict == TO_DATAGRAMS)
		return add_other_port(r, EGRESS_PORT_UDP);
	if (m->verdict == MARK)
		return add_mark(r);

	if (m->verdict == TO_RELAY || m->verdict == TO_NAMES)
		return add_redirect(r, m->family,
				    m->verdict == TO_RELAY ? EGRESS_PORT_TCP : EGRESS_PORT_DNS);
	if ((m->verdict == REJECT || m->verdict == REJECT_TCP) && !add_expr(r, "counter"))
		return -ENOMEM;
	e = add_expr(r, m->verdict == REJECT || m->verdict == REJECT_TCP ? "reject" : "immediate");
	if (!e)
		return -ENOMEM;
	if (m->verdict == REJECT_TCP) {
		nftnl_expr_set_u32(e, NFTNL_EXPR_REJECT_TYPE, NFT_REJECT_TCP_RST);
		nftnl_expr_set_u8(e, NFTNL_EXPR_REJECT_CODE, 0);
	} else if (m->verdict == REJECT) {
		nftnl_expr_set_u32(e, NFTNL_EXPR_REJECT_TYPE, NFT_REJECT_ICMPX_UNREACH);
		nftnl_expr_set_u8(e, NFTNL_EXPR_REJECT_CODE, NFT_REJECT_ICMPX_ADMIN_PROHIBITED);
	} else {
		nftnl_expr_set_u32(e, NFTNL_EXPR_IMM_DREG, NFT_REG_VERDICT);
		nftnl_expr_set_u32(e, NFTNL_EXPR_IMM_VERDICT,
				   m->verdict == ACCEPT ? (uint32_t)NF_ACCEPT
							: (uint32_t)NFT_RETURN);
	}
	return 0;
}

static int fill_rule(struct nftnl_rule *r, const struct match *m)
{
	const uint32_t lo = LOOPBACK_INDEX;
	uint8_t family = m->family == 4 ? NFPROTO_IPV4 : NFPROTO_IPV6;
	uint16_t port = htons(m->port);
	int ret = 0;

	if (m->meta >= 0)
		ret = add_meta(r, (uint32_t)m->meta, &lo, sizeof(lo));
	if (ret == 0 && m->family)
		ret = add_meta(r, NFT_META_NFPROTO, &family, 1);
	if (ret == 0 && m->dst)
		ret = add_destination(r, m->dst);
	if (ret == 0 && m->protocol)
		ret = add_meta(r, NFT_META_L4PROTO, &m->protocol, 1);
	if (ret == 0 && m->port) {
		ret = add_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2);
		if (ret == 0)
			ret = add_compare(r, &port, sizeof(port));
	}
	return ret == 0 ? add_verdict(r, m) : ret;
}

static int put_rule(struct batch *bt, const struct match *m)
{
	struct nftnl_rule *r = nftnl_rule_alloc();
	struct nlmsghdr *nlh;
	int ret;

	if (!r)
		return -ENOMEM;
	nftnl_rule_set_u32(r, NFTNL_RULE_FAMILY, NFPROTO_INET);
	nftnl_rule_set_str(r, NFTNL_RULE_TABLE, TABLE);
	nftnl_rule_set_str(r, NFTNL_RULE_CHAIN, m->chain);
	ret = fill_rule(r, m);
	if (ret == 0) {
		nlh = begin(bt, NFT_MSG_NEWRULE);
		nlh->nlmsg_flags |= NLM_F_APPEND;
		nftnl_rule_nlmsg_build_payload(nlh, r);
		end(bt, nlh);
	}
	nftnl_rule_free(r);
	return ret;
}

/* ------------------------------------------------------------------ redirection */

/* The rules of the chain that redirects; `r` is the first failure. */
struct redirect {
	struct batch *bt;
	const struct nsbox_policy *p;
	int r;
};

static void put(struct redirect *to, const struct egress_net *dst, uint8_t protocol, uint16_t port,
		enum verdict verdict)
{
	const struct match m = { redirect.name, -1, dst->family, protocol, dst, port, verdict };

	if (to->r == 0)
		to->r = put_rule(to->bt, &m);
}

static struct egress_net inner_net(uint8_t family)
{
	struct egress_net net = { .family = family,
				  .prefix = family == 4 ? EGRESS_INNER4_PREFIX
							: EGRESS_INNER6_PREFIX };

	egress_inner(family, 0, net.addr);
	return net;
}

static struct egress_net inner_host(uint8_t family, uint32_t place)
{
	struct egress_net net = { .family = family, .prefix = family == 4 ? 32 : 128 };

	egress_inner(family, place, net.addr);
	return net;
}

static void put_names(struct redirect *to, uint8_t family)
{
	const struct egress_net loopback[] = {
		{ .family = 4, .prefix = 8, .addr = { 127 } },
		{ .family = 6, .prefix = 128, .addr = { [15] = 1 } }
	};
	const struct egress_net own = inner_host(family, EGRESS_OWN), all = { .family = family };

	put(to, &loopback[family == 6], 0, 0, RETURN);
	put(to, &own, 0, 0, RETURN);
	put(to, &all, IPPROTO_UDP, 53, TO_NAMES);
	put(to, &all, IPPROTO_TCP, 53, TO_NAMES);
}

static const struct relayed {
	uint32_t granted; /* as the manifest has it */
	uint8_t protocol;
	enum verdict verdict;
} relayed[] = {
	{ PROTOCOL_TCP, IPPROTO_TCP, TO_RELAY },
	{ PROTOCOL_UDP, IPPROTO_UDP, TO_DATAGRAMS },
};

static bool seen_before(const struct nsbox_policy *p, size_t host, uint32_t port)
{
	struct egress_net net;

	for (size_t i = 0; i <= host; i++) {
		if (host_net(p->network.allow[i].host, &net) ||
		    p->network.allow[i].protocol != p->network.allow[host].protocol)
			continue;
		for (const uint32_t *q = p->network.allow[i].ports; *q; q++)
			if (*q == port)
				return i < host;
	}
	return false;
}

/* Inner addresses stand for names: at each port that any name is granted at. */
static void put_inner(struct redirect *to, uint8_t family, const struct relayed *how)
{
	const struct egress_net inner = inner_net(family);
	struct egress_net net;

	if (to->p->network.mode == NETWORK_OPEN) {
		put(to, &inner, how->protocol, 0, how->verdict);
		return;
	}
	for (size_t i = 0; i < to->p->network.n_allow; i++) {
		const struct policy_host *h = &to->p->network.allow[i];

		if (h->protocol != how->granted || host_net(h->host, &net))
			continue;
		for (const uint32_t *port = h->ports; *port; port++)
			if (!seen_before(to->p, i, *port))
				put(to, &inner, how->protocol, (uint16_t)*port, how->verdict);
	}
}

/* The smaller of two networks where one holds the other. */
static bool common(const struct egress_net *a, const struct egress_net *b, struct egress_net *ret)
{
	const struct egress_net *inner = a->prefix >= b->prefix ? a : b;
	const struct egress_net *outer = inner == a ? b : a;

	*ret = *inner;
	return egress_net_has(outer, inner->family, inner->addr);
}

/* What is granted by address, within a network (NULL: anywhere). */
static void put_granted_over(struct redirect *to, uint8_t family, const struct egress_net *within,
			     const struct relayed *how)
{
	const struct egress_net all = { .family = family };
	const struct policy_host *allow = to->p->network.allow;
	struct egress_net net;

	if (!within)
		within = &all;
	if (to->p->network.mode == NETWORK_OPEN) {
		put(to, within, how->protocol, 0, how->verdict);
		return;
	}
	for (size_t i = 0; i < to->p->network.n_allow; i++) {
		if (allow[i].protocol != how->granted || !host_net(allow[i].host, &net) ||
		    net.family != family || !common(&net, within, &net))
			continue;
		for (const uint32_t *port = allow[i].ports; *port; port++)
			put(to, &net, how->protocol, (uint16_t)*port, how->verdict);
	}
}

static void put_granted(struct redirect *to, uint8_t family, const struct egress_net *within)
{
	for (size_t i = 0; i < ARRAY_SIZE(relayed); i++)
		put_granted_over(to, family, within, &relayed[i]);
}

static void put_returns(struct redirect *to, uint8_t family, char *const *nets)
{
	struct egress_net net;

	for (; nets && *nets; nets++)
		if (host_net(*nets, &net) && net.family == family)
			put(to, &net, 0, 0, RETURN);
}

static void put_family(struct redirect *to, uint8_t family)
{
	const struct egress_net *builtin;
	struct egress_net net;

	put_names(to, family);
	for (size_t i = 0; i < ARRAY_SIZE(relayed); i++)
		put_inner(to, family, &relayed[i]);
	put_returns(to, family, to->p->network.deny_cidrs);
	put_returns(to, family, to->p->network.banned_nets);
	for (char *const *o = to->p->network.opened; o && *o; o++)
		if (host_net(*o, &net) && net.family == family)
			put_granted(to, family, &net);
	for (size_t i = 0; (builtin = egress_builtin(i, NULL)); i++)
		if (builtin->family == family)
			put(to, builtin, 0, 0, RETURN);
	put_granted(to, family, NULL);
}

/* ------------------------------------------------------------------ the filter */

static bool has_udp(const struct nsbox_policy *p)
{
	for (size_t i = 0; i < p->network.n_allow; i++)
		if (p->network.allow[i].protocol == PROTOCOL_UDP)
			return true;
	return p->network.mode == NETWORK_OPEN;
}

static int put_datagrams(struct batch *bt)
{
	const struct match marks = {
		.chain = mark.name, .meta = -1, .protocol = IPPROTO_UDP, .verdict = MARK
	};
	const struct match accepts = { "output", NFT_META_OIF,	  0,	 IPPROTO_UDP,
				       NULL,	 EGRESS_PORT_UDP, ACCEPT };
	int r = put_chain(bt, &mark);

	if (r == 0)
		r = put_rule(bt, &marks);
	return r == 0 ? put_rule(bt, &accepts) : r;
}

static int put_accepts(struct batch *bt, bool udp)
{
	const struct egress_net nets[] = {
		{ .family = 4, .prefix = 8, .addr = { 127 } },
		{ .family = 6, .prefix = 128, .addr = { [15] = 1 } },
		inner_host(4, EGRESS_OWN),
		inner_host(4, EGRESS_BROKER),
		inner_host(6, EGRESS_OWN),
		inner_host(6, EGRESS_BROKER),
	};
	const struct match rejects[] = {
		{ .chain = "output", .meta = -1, .protocol = IPPROTO_TCP, .verdict = REJECT_TCP },
		{ .chain = "output", .meta = -1, .verdict = REJECT },
	};
	int r = udp ? put_datagrams(bt) : 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(nets); i++) {
		const struct match m = { "output", NFT_META_OIF, nets[i].family, 0, &nets[i],
					 0,	   ACCEPT };

		r = put_rule(bt, &m);
	}
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(rejects); i++)
		r = put_rule(bt, &rejects[i]);
	return r;
}

static int put_filter(struct batch *bt, const struct nsbox_policy *p)
{
	const struct match in = { .chain = "input", .meta = NFT_META_IIF, .verdict = ACCEPT };
	const struct match out = { .chain = "output", .meta = NFT_META_OIF, .verdict = ACCEPT };
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(chains); i++)
		r = put_chain(bt, &chains[i]);
	if (r == 0)
		r = put_rule(bt, &in);
	if (r == 0)
		r = policy_has_egress(p) ? put_accepts(bt, has_udp(p)) : put_rule(bt, &out);
	return r;
}

static int put_all(struct batch *bt, const struct nsbox_policy *p)
{
	struct redirect to = { bt, p, 0 };
	bool egress = policy_has_egress(p);
	int r = put_table(bt);

	if (r == 0)
		r = put_filter(bt, p);
	if (r < 0 || !egress)
		return r;
	to.r = put_chain(bt, &redirect);
	put_family(&to, 4);
	put_family(&to, 6);
	return to.r;
}

int compile_nftables(const struct nsbox_policy *p, struct blob_builder *b, struct nsbox_error *err)
{
	auto_free struct batch *bt = calloc(1, sizeof(*bt));
	int r = bt ? 0 : -ENOMEM;

	if (r == 0) {
		end(bt, nftnl_batch_begin(bt->buf, ++bt->seq));
		r = put_all(bt, p);
	}
	if (r < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_COMPILE, NSBOX_E_NOMEM, -r,
				     "build the packet filter");
	if (bt->full)
		return nsbox_fail_at(
			err, NSBOX_STAGE_COMPILE, NSBOX_E_LIMIT, 0,
			"/network: too many addresses and ports for the packet filter: "
			"grant networks or names instead");
	((struct nlmsghdr *)(bt->buf + bt->last))->nlmsg_flags |= NLM_F_ACK;
	end(bt, nftnl_batch_end(bt->buf + bt->len, ++bt->seq));
	blob_set(b, SEC_NFT, bt->buf, bt->len);
	return 0;
}
