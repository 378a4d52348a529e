/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A packet filter as the messages of one netlink batch: a table, its chains and their rules, in the few forms that
 * nftables.c has a use for. What is put is appended; functions return -ENOMEM or 0, and a batch that
 * has no room left says so in `full`.
 */
#ifndef POLICY_NFT_BATCH_H
#define POLICY_NFT_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nsbox/egress_format.h"

#define NFT_BATCH_MAX	(160u << 10) /* what a socket takes in one message, with room */
#define NFT_MESSAGE_MAX 1024

struct nft_batch {
	char buf[NFT_BATCH_MAX + NFT_MESSAGE_MAX];
	size_t len;
	uint32_t seq;
	size_t last; /* where the last message begins */
	bool full;
};

struct nft_chain {
	const char *name, *type;
	uint32_t hook;
	int32_t priority;
	uint32_t policy;
};

enum nft_verdict { ACCEPT, RETURN, REJECT_TCP, REJECT, TO_RELAY, TO_NAMES, TO_DATAGRAMS, MARK };

/* What a rule looks at; 0 and NULL: not. */
struct nft_match {
	const char *chain;
	int meta; /* key that must equal the loopback's index, -1: none */
	uint8_t family, protocol;
	const struct egress_net *dst;
	uint16_t port;
	enum nft_verdict verdict;
};

/* The batch's own first and last message; the last of what is between asks for an acknowledgement. */
void nft_open(struct nft_batch *bt);
void nft_close(struct nft_batch *bt);

int nft_put_table(struct nft_batch *bt);
int nft_put_chain(struct nft_batch *bt, const struct nft_chain *h);
int nft_put_rule(struct nft_batch *bt, const struct nft_match *m);

#endif
