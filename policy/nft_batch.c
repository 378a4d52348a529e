/* SPDX-License-Identifier: Apache-2.0 */
/* See nft_batch.h. */
#include "policy/nft_batch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <libnftnl/chain.h>
#include <libnftnl/common.h>
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>
#include <libnftnl/table.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter/nf_tables.h>

#define TABLE	       "nsbox"
#define LOOPBACK_INDEX 1

/* The message after the last; its attributes are put by the caller, who then calls end(). */
static struct nlmsghdr *begin(struct nft_batch *bt, uint16_t type)
{
	bt->last = bt->len;
	return nftnl_nlmsg_build_hdr(bt->buf + bt->len, type, NFPROTO_INET, NLM_F_CREATE,
				     ++bt->seq);
}

static void end(struct nft_batch *bt, const struct nlmsghdr *nlh)
{
	if (bt->len + NLMSG_ALIGN(nlh->nlmsg_len) <= NFT_BATCH_MAX)
		bt->len += NLMSG_ALIGN(nlh->nlmsg_len);
	else
		bt->full = true;
}

void nft_open(struct nft_batch *bt)
{
	end(bt, nftnl_batch_begin(bt->buf, ++bt->seq));
}

void nft_close(struct nft_batch *bt)
{
	((struct nlmsghdr *)(bt->buf + bt->last))->nlmsg_flags |= NLM_F_ACK;
	end(bt, nftnl_batch_end(bt->buf + bt->len, ++bt->seq));
}

int nft_put_table(struct nft_batch *bt)
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

int nft_put_chain(struct nft_batch *bt, const struct nft_chain *h)
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

/* ------------------------------------------------------------------ expressions */

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

/* ------------------------------------------------------------------ rules */

static int add_verdict(struct nftnl_rule *r, const struct nft_match *m)
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

static int fill_rule(struct nftnl_rule *r, const struct nft_match *m)
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

int nft_put_rule(struct nft_batch *bt, const struct nft_match *m)
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
