/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the packet filter of a sandbox refused at once: its rules that reject have counters. They are
 * read by a netlink socket that the set-up made inside, and that only the owner has. The kernel asks
 * twice who may: of whom opened it, which was root there then, and of whom asks, which is the owner of
 * that user namespace. Nothing in the sandbox is either.
 *
 * Where it cannot be read the number is 0, as it is where nothing was counted: it is told for people,
 * and nothing is decided by it.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>

#include "nsbox/sandbox_private.h"
#include "nsbox/util.h"

#define ROUNDS 64 /* messages of an answer; the table has far fewer rules in this chain */

struct question {
	struct nlmsghdr head;
	struct nfgenmsg gen;
	struct nlattr table_head;
	char table[8];
	struct nlattr chain_head;
	char chain[8];
};

/* The attributes in [at, end), one after the other; NULL past the last. */
static const struct nlattr *attr_next(const char **at, const char *end)
{
	const struct nlattr *a = (const struct nlattr *)*at;

	if (end - *at < (ptrdiff_t)sizeof(*a) || a->nla_len < sizeof(*a) || a->nla_len > end - *at)
		return NULL;
	*at += MIN((ptrdiff_t)NLA_ALIGN(a->nla_len), end - *at);
	return a;
}

static const struct nlattr *attr_find(const struct nlattr *in, uint16_t type)
{
	const char *at = (const char *)(in + 1), *end = (const char *)in + in->nla_len;
	const struct nlattr *a;

	while ((a = attr_next(&at, end)))
		if ((a->nla_type & NLA_TYPE_MASK) == type)
			return a;
	return NULL;
}

static uint64_t packets_of(const struct nlattr *expr)
{
	const struct nlattr *name = attr_find(expr, NFTA_EXPR_NAME);
	const struct nlattr *data = attr_find(expr, NFTA_EXPR_DATA), *n;
	uint64_t v = 0;

	if (!name || !data || name->nla_len < NLA_HDRLEN + 8 || memcmp(name + 1, "counter", 8) != 0)
		return 0;
	n = attr_find(data, NFTA_COUNTER_PACKETS);
	if (n && n->nla_len == NLA_HDRLEN + sizeof(v))
		memcpy(&v, n + 1, sizeof(v));
	return be64toh(v);
}

static uint64_t packets_of_rule(const struct nlmsghdr *h)
{
	const char *at = (const char *)h + NLMSG_LENGTH(sizeof(struct nfgenmsg));
	const char *end = (const char *)h + h->nlmsg_len;
	const struct nlattr *a, *e;
	uint64_t sum = 0;

	while ((a = attr_next(&at, end))) {
		const char *in = (const char *)(a + 1), *stop = (const char *)a + a->nla_len;

		if ((a->nla_type & NLA_TYPE_MASK) != NFTA_RULE_EXPRESSIONS)
			continue;
		while ((e = attr_next(&in, stop)))
			sum += packets_of(e);
	}
	return sum;
}

/* One datagram of the answer: false at its end, or where it is none. */
static bool take(const char *buf, size_t len, uint64_t *sum)
{
	const struct nlmsghdr *h = (const struct nlmsghdr *)buf;

	for (; NLMSG_OK(h, len); h = NLMSG_NEXT(h, len)) {
		if (h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR)
			return false;
		if (h->nlmsg_type == (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWRULE))
			*sum += packets_of_rule(h);
	}
	return true;
}

uint64_t refused_at_once(int fd)
{
	const struct question q = {
		.head = { .nlmsg_len = sizeof(q),
			  .nlmsg_type = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETRULE,
			  .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.gen = { .nfgen_family = NFPROTO_INET, .version = NFNETLINK_V0 },
		.table_head = { NLA_HDRLEN + sizeof("nsbox"), NFTA_RULE_TABLE },
		.table = "nsbox",
		.chain_head = { NLA_HDRLEN + sizeof("output"), NFTA_RULE_CHAIN },
		.chain = "output",
	};
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	char buf[16384] __attribute__((aligned(8)));
	uint64_t sum = 0;
	ssize_t n;

	if (fd < 0 ||
	    sendto(fd, &q, sizeof(q), MSG_DONTWAIT, (struct sockaddr *)&kernel, sizeof(kernel)) < 0)
		return 0;
	for (int i = 0; i < ROUNDS; i++) {
		n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
		if (n <= 0 || !take(buf, (size_t)n, &sum))
			break;
	}
	return sum;
}
