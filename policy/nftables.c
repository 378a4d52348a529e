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
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/names.h"
#include "policy/nft_batch.h"

static const struct nft_chain chains[] = {
	{ "input", "filter", NF_INET_LOCAL_IN, 0, NF_DROP },
	{ "forward", "filter", NF_INET_FORWARD, 0, NF_DROP },
	{ "output", "filter", NF_INET_LOCAL_OUT, 0, NF_DROP },
}, redirect = { "redirect", "nat", NF_INET_LOCAL_OUT, -100 /* before the filter */, NF_ACCEPT },
  mark = { "mark", "filter", NF_INET_LOCAL_OUT, -150 /* and before the port changes */, NF_ACCEPT };

/* ------------------------------------------------------------------ redirection */

/* The rules of the chain that redirects; `r` is the first failure. */
struct redirect {
	struct nft_batch *bt;
	const struct nsbox_policy *p;
	int r;
};

static void put(struct redirect *to, const struct egress_net *dst, uint8_t protocol, uint16_t port,
		enum nft_verdict verdict)
{
	const struct nft_match m = { redirect.name, -1, dst->family, protocol, dst, port, verdict };

	if (to->r == 0)
		to->r = nft_put_rule(to->bt, &m);
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
	enum nft_verdict verdict;
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

static int put_datagrams(struct nft_batch *bt)
{
	const struct nft_match marks = {
		.chain = mark.name, .meta = -1, .protocol = IPPROTO_UDP, .verdict = MARK
	};
	const struct nft_match accepts = { "output", NFT_META_OIF,    0,     IPPROTO_UDP,
					   NULL,     EGRESS_PORT_UDP, ACCEPT };
	int r = nft_put_chain(bt, &mark);

	if (r == 0)
		r = nft_put_rule(bt, &marks);
	return r == 0 ? nft_put_rule(bt, &accepts) : r;
}

static int put_accepts(struct nft_batch *bt, bool udp)
{
	const struct egress_net nets[] = {
		{ .family = 4, .prefix = 8, .addr = { 127 } },
		{ .family = 6, .prefix = 128, .addr = { [15] = 1 } },
		inner_host(4, EGRESS_OWN),
		inner_host(4, EGRESS_BROKER),
		inner_host(6, EGRESS_OWN),
		inner_host(6, EGRESS_BROKER),
	};
	const struct nft_match rejects[] = {
		{ .chain = "output", .meta = -1, .protocol = IPPROTO_TCP, .verdict = REJECT_TCP },
		{ .chain = "output", .meta = -1, .verdict = REJECT },
	};
	int r = udp ? put_datagrams(bt) : 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(nets); i++) {
		const struct nft_match m = { "output", NFT_META_OIF, nets[i].family, 0, &nets[i],
					     0,	       ACCEPT };

		r = nft_put_rule(bt, &m);
	}
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(rejects); i++)
		r = nft_put_rule(bt, &rejects[i]);
	return r;
}

static int put_filter(struct nft_batch *bt, const struct nsbox_policy *p)
{
	const struct nft_match in = { .chain = "input", .meta = NFT_META_IIF, .verdict = ACCEPT };
	const struct nft_match out = { .chain = "output", .meta = NFT_META_OIF, .verdict = ACCEPT };
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(chains); i++)
		r = nft_put_chain(bt, &chains[i]);
	if (r == 0)
		r = nft_put_rule(bt, &in);
	if (r == 0)
		r = policy_has_egress(p) ? put_accepts(bt, has_udp(p)) : nft_put_rule(bt, &out);
	return r;
}

static int put_all(struct nft_batch *bt, const struct nsbox_policy *p)
{
	struct redirect to = { bt, p, 0 };
	bool egress = policy_has_egress(p);
	int r = nft_put_table(bt);

	if (r == 0)
		r = put_filter(bt, p);
	if (r < 0 || !egress)
		return r;
	to.r = nft_put_chain(bt, &redirect);
	put_family(&to, 4);
	put_family(&to, 6);
	return to.r;
}

int compile_nftables(const struct nsbox_policy *p, struct blob_builder *b, struct nsbox_error *err)
{
	auto_free struct nft_batch *bt = calloc(1, sizeof(*bt));
	int r = bt ? 0 : -ENOMEM;

	if (r == 0) {
		nft_open(bt);
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
	nft_close(bt);
	blob_set(b, SEC_NFT, bt->buf, bt->len);
	return 0;
}
