/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The packet filter of a run without egress, as one netlink batch:
 *
 *   table inet nsbox {
 *     chain input   { type filter hook input priority 0;   policy drop; iif lo accept }
 *     chain forward { type filter hook forward priority 0; policy drop; }
 *     chain output  { type filter hook output priority 0;  policy drop; oif lo accept }
 *   }
 *
 * There is no route out anyway; this is the layer that still holds should one appear. `lo` is
 * matched by index, which is 1 in every network namespace, so that no name is looked up. The child
 * sends the bytes as they are and expects one acknowledgement for each message but the ends.
 */
#include <arpa/inet.h>
#include <libmnl/libmnl.h>
#include <libnftnl/chain.h>
#include <libnftnl/common.h>
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>
#include <libnftnl/table.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/internal.h"

#define TABLE	       "nsbox"
#define LOOPBACK_INDEX 1
#define BATCH_MAX      16384

static const struct hook {
	const char *chain;
	uint32_t num;
	int meta; /* key that must equal the loopback's index, -1: nothing passes */
} hooks[] = {
	{ "input", NF_INET_LOCAL_IN, NFT_META_IIF },
	{ "forward", NF_INET_FORWARD, -1 },
	{ "output", NF_INET_LOCAL_OUT, NFT_META_OIF },
};

struct batch {
	char buf[BATCH_MAX];
	size_t len;
	uint32_t seq;
};

/* The message after the last; its attributes are put by the caller, who then calls end(). */
static struct nlmsghdr *begin(struct batch *bt, uint16_t type)
{
	return nftnl_nlmsg_build_hdr(bt->buf + bt->len, type, NFPROTO_INET,
				     NLM_F_CREATE | NLM_F_ACK, ++bt->seq);
}

static void end(struct batch *bt, const struct nlmsghdr *nlh)
{
	bt->len += NLMSG_ALIGN(nlh->nlmsg_len);
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

static int put_chain(struct batch *bt, const struct hook *h)
{
	struct nftnl_chain *c = nftnl_chain_alloc();
	struct nlmsghdr *nlh;

	if (!c)
		return -ENOMEM;
	nftnl_chain_set_str(c, NFTNL_CHAIN_TABLE, TABLE);
	nftnl_chain_set_str(c, NFTNL_CHAIN_NAME, h->chain);
	nftnl_chain_set_str(c, NFTNL_CHAIN_TYPE, "filter");
	nftnl_chain_set_u32(c, NFTNL_CHAIN_HOOKNUM, h->num);
	nftnl_chain_set_s32(c, NFTNL_CHAIN_PRIO, 0);
	nftnl_chain_set_u32(c, NFTNL_CHAIN_POLICY, NF_DROP);
	nlh = begin(bt, NFT_MSG_NEWCHAIN);
	nftnl_chain_nlmsg_build_payload(nlh, c);
	end(bt, nlh);
	nftnl_chain_free(c);
	return 0;
}

static struct nftnl_expr *add_expr(struct nftnl_rule *r, const char *name)
{
	struct nftnl_expr *e = nftnl_expr_alloc(name);

	if (e)
		nftnl_rule_add_expr(r, e); /* the rule frees it */
	return e;
}

static int fill_rule(struct nftnl_rule *r, uint32_t meta)
{
	struct nftnl_expr *e = add_expr(r, "meta");

	if (!e)
		return -ENOMEM;
	nftnl_expr_set_u32(e, NFTNL_EXPR_META_KEY, meta);
	nftnl_expr_set_u32(e, NFTNL_EXPR_META_DREG, NFT_REG_1);
	e = add_expr(r, "cmp");
	if (!e)
		return -ENOMEM;
	nftnl_expr_set_u32(e, NFTNL_EXPR_CMP_SREG, NFT_REG_1);
	nftnl_expr_set_u32(e, NFTNL_EXPR_CMP_OP, NFT_CMP_EQ);
	nftnl_expr_set_u32(e, NFTNL_EXPR_CMP_DATA, LOOPBACK_INDEX);
	e = add_expr(r, "immediate");
	if (!e)
		return -ENOMEM;
	nftnl_expr_set_u32(e, NFTNL_EXPR_IMM_DREG, NFT_REG_VERDICT);
	nftnl_expr_set_u32(e, NFTNL_EXPR_IMM_VERDICT, NF_ACCEPT);
	return 0;
}

static int put_rule(struct batch *bt, const struct hook *h)
{
	struct nftnl_rule *r = nftnl_rule_alloc();
	struct nlmsghdr *nlh;
	int ret;

	if (!r)
		return -ENOMEM;
	nftnl_rule_set_u32(r, NFTNL_RULE_FAMILY, NFPROTO_INET);
	nftnl_rule_set_str(r, NFTNL_RULE_TABLE, TABLE);
	nftnl_rule_set_str(r, NFTNL_RULE_CHAIN, h->chain);
	ret = fill_rule(r, (uint32_t)h->meta);
	if (ret == 0) {
		nlh = begin(bt, NFT_MSG_NEWRULE);
		nlh->nlmsg_flags |= NLM_F_APPEND;
		nftnl_rule_nlmsg_build_payload(nlh, r);
		end(bt, nlh);
	}
	nftnl_rule_free(r);
	return ret;
}

int compile_nftables(struct blob_builder *b, struct nsbox_error *err)
{
	auto_free struct batch *bt = calloc(1, sizeof(*bt));
	int r = bt ? 0 : -ENOMEM;

	if (r == 0) {
		end(bt, nftnl_batch_begin(bt->buf, ++bt->seq));
		r = put_table(bt);
	}
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(hooks); i++) {
		r = put_chain(bt, &hooks[i]);
		if (r == 0 && hooks[i].meta >= 0)
			r = put_rule(bt, &hooks[i]);
	}
	if (r < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_COMPILE, NSBOX_E_NOMEM, -r,
				     "build the packet filter");
	end(bt, nftnl_batch_end(bt->buf + bt->len, ++bt->seq));
	blob_set(b, SEC_NFT, bt->buf, bt->len);
	return 0;
}
