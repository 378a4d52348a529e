/* SPDX-License-Identifier: Apache-2.0 */
/* The packet filter's batch, and the kernel (nft.h). System calls only. */
#include "nsbox/nft.h"

#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>

#include "nsbox/util.h"

/* Wait until each message that asked for it is acknowledged; the first refusal is the answer. */
static int acks_of(int fd, unsigned expected)
{
	char buf[8192] __attribute__((aligned(8)));

	while (expected) {
		ssize_t len = recv(fd, buf, sizeof(buf), 0);

		if (len < 0)
			return -errno;
		for (struct nlmsghdr *h = (struct nlmsghdr *)buf; NLMSG_OK(h, (size_t)len);
		     h = NLMSG_NEXT(h, len)) {
			const struct nlmsgerr *e = NLMSG_DATA(h);

			if (h->nlmsg_type != NLMSG_ERROR || h->nlmsg_len < NLMSG_LENGTH(sizeof(*e)))
				return -EBADMSG;
			if (e->error)
				return e->error;
			if (--expected == 0)
				break;
		}
	}
	return 0;
}

static int count_acks(const unsigned char *batch, size_t size)
{
	int n = 0;

	while (size) {
		struct nlmsghdr h;

		if (size < sizeof(h))
			return -EBADMSG;
		memcpy(&h, batch, sizeof(h));
		if (h.nlmsg_len < sizeof(h) || NLMSG_ALIGN(h.nlmsg_len) > size)
			return -EBADMSG;
		n += (h.nlmsg_flags & NLM_F_ACK) != 0;
		batch += NLMSG_ALIGN(h.nlmsg_len);
		size -= NLMSG_ALIGN(h.nlmsg_len);
	}
	return n;
}

int nft_send(const unsigned char *batch, size_t size)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	auto_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
	int acks = count_acks(batch, size);

	if (fd < 0)
		return -errno;
	if (acks <= 0)
		return -EBADMSG;
	if (sendto(fd, batch, size, 0, (struct sockaddr *)&kernel, sizeof(kernel)) < 0)
		return -errno;
	return acks_of(fd, (unsigned)acks);
}
