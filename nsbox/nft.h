/* SPDX-License-Identifier: Apache-2.0 */
/* The plan's packet filter is a batch of netlink messages, made by policy/: how it gets into the kernel. */
#ifndef NSBOX_NFT_H
#define NSBOX_NFT_H

#include <stddef.h>

/* Load it into the caller's network namespace: all of it or nothing. 0, or the kernel's refusal. */
int nft_send(const unsigned char *batch, size_t size);

#endif
