/* SPDX-License-Identifier: Apache-2.0 */
/* See way.h. */
#include "daemon/egress/way.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

static bool take_control(struct msghdr *mh, struct way *w)
{
	bool marked = false, addressed = false;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c; c = CMSG_NXTHDR(mh, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_MARK) {
			uint16_t wire;

			memcpy(&wire, CMSG_DATA(c), sizeof(wire)); /* as the packet had it */
			w->port = ntohs(wire);
			marked = w->port != 0;
		} else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			struct in_pktinfo to;

			memcpy(&to, CMSG_DATA(c), sizeof(to));
			memcpy(w->dst, &to.ipi_addr, 4);
			addressed = true;
		} else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			struct in6_pktinfo to;

			memcpy(&to, CMSG_DATA(c), sizeof(to));
			memcpy(w->dst, &to.ipi6_addr, 16);
			addressed = true;
		}
	}
	return marked && addressed;
}

ssize_t way_receive(int fd, uint8_t family, void *buf, size_t size, struct way *ret)
{
	struct sockaddr_storage peer = { 0 };
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&peer;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&peer;
	char space[256] __attribute__((aligned(8)));
	struct iovec iov = { buf, size };
	struct msghdr mh = { .msg_name = &peer,
			     .msg_namelen = sizeof(peer),
			     .msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = space,
			     .msg_controllen = sizeof(space) };
	ssize_t n = recvmsg(fd, &mh, MSG_DONTWAIT);

	memset(ret, 0, sizeof(*ret));
	if (n < 0)
		return n;
	ret->family = family;
	ret->peer_port = ntohs(family == 4 ? v4->sin_port : v6->sin6_port);
	memcpy(ret->peer, family == 4 ? (const void *)&v4->sin_addr : (const void *)&v6->sin6_addr,
	       family == 4 ? 4 : 16);
	if (!take_control(&mh, ret))
		ret->port = 0;
	return n;
}

void way_answer(int fd, const struct way *w, const void *data, size_t len)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(w->peer_port) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(w->peer_port) };
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(struct in6_pktinfo))];
	} space = { 0 };
	struct iovec iov = { (void *)data, len };
	bool four = w->family == 4;
	struct msghdr mh = { .msg_name = four ? (void *)&v4 : (void *)&v6,
			     .msg_namelen = four ? sizeof(v4) : sizeof(v6),
			     .msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = space.room };
	struct in_pktinfo from4 = { 0 };
	struct in6_pktinfo from6 = { 0 };

	memcpy(&v4.sin_addr, w->peer, 4);
	memcpy(&v6.sin6_addr, w->peer, 16);
	memcpy(&from4.ipi_spec_dst, w->dst, 4);
	memcpy(&from6.ipi6_addr, w->dst, 16);
	mh.msg_controllen = four ? CMSG_SPACE(sizeof(from4)) : CMSG_SPACE(sizeof(from6));
	space.head.cmsg_level = four ? IPPROTO_IP : IPPROTO_IPV6;
	space.head.cmsg_type = four ? IP_PKTINFO : IPV6_PKTINFO;
	space.head.cmsg_len = four ? CMSG_LEN(sizeof(from4)) : CMSG_LEN(sizeof(from6));
	memcpy(CMSG_DATA(&space.head), four ? (void *)&from4 : (void *)&from6,
	       four ? sizeof(from4) : sizeof(from6));
	(void)sendmsg(fd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL);
}
