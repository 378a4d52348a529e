/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside half of egress (egress_format.h): addresses and a route for everything on lo, and the
 * listeners that the packet filter redirects to. Their descriptors go to the owner, who gives them
 * to nsbox-egress; no copy stays here, so that the end of nsbox-egress is the end of the network.
 *
 * Should: make what is there before anything runs, so that the first call of a program is served.
 * Must not: leave a descriptor behind, or a route without the filter that comes next (the stage
 * fails without it: the plan requires it where there is egress).
 *
 * A kernel without IPv6 has its half left out; names then have IPv4 addresses alone.
 */
#include "nsbox/child.h"

#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "nsbox/egress_format.h"
#include "nsbox/util.h"

#define LOOPBACK_INDEX 1 /* in every network namespace */
#define BACKLOG	       4096

/* ------------------------------------------------------------------ addresses and routes */

struct route_request {
	struct nlmsghdr head;
	union {
		struct ifaddrmsg addr;
		struct rtmsg route;
	};
	char attrs[64];
};

static void put_attr(struct route_request *q, unsigned short type, const void *data, size_t len)
{
	struct rtattr *a = (struct rtattr *)((char *)q + NLMSG_ALIGN(q->head.nlmsg_len));

	a->rta_type = type;
	a->rta_len = (unsigned short)RTA_LENGTH(len);
	memcpy(RTA_DATA(a), data, len);
	q->head.nlmsg_len = NLMSG_ALIGN(q->head.nlmsg_len) + RTA_ALIGN(a->rta_len);
}

static int talk(int fd, struct route_request *q)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	struct {
		struct nlmsghdr head;
		struct nlmsgerr err;
		char rest[256];
	} answer;
	ssize_t len;

	q->head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
	if (sendto(fd, q, q->head.nlmsg_len, 0, (struct sockaddr *)&kernel, sizeof(kernel)) < 0)
		return -errno;
	len = recv(fd, &answer, sizeof(answer), 0);
	if (len < 0)
		return -errno;
	if ((size_t)len < sizeof(answer.head) + sizeof(answer.err) ||
	    answer.head.nlmsg_type != NLMSG_ERROR)
		return -EBADMSG;
	return answer.err.error;
}

static int add_address(int fd, uint8_t family, uint32_t place)
{
	struct route_request q = { .head.nlmsg_type = RTM_NEWADDR,
				   .head.nlmsg_len = NLMSG_LENGTH(sizeof(q.addr)) };
	size_t len = family == 4 ? 4 : 16;
	uint8_t addr[16];

	q.addr.ifa_family = family == 4 ? AF_INET : AF_INET6;
	q.addr.ifa_prefixlen = (uint8_t)(8 * len);
	q.addr.ifa_index = LOOPBACK_INDEX;
	q.addr.ifa_flags = family == 4 ? 0 : IFA_F_NODAD;
	egress_inner(family, place, addr);
	put_attr(&q, IFA_LOCAL, addr, len);
	put_attr(&q, IFA_ADDRESS, addr, len);
	return talk(fd, &q);
}

/* Local: IPv6 takes no other kind to lo. */
static int add_route(int fd, uint8_t family)
{
	struct route_request q = { .head.nlmsg_type = RTM_NEWROUTE,
				   .head.nlmsg_len = NLMSG_LENGTH(sizeof(q.route)) };
	const uint32_t lo = LOOPBACK_INDEX;
	uint8_t addr[16];

	q.route.rtm_family = family == 4 ? AF_INET : AF_INET6;
	q.route.rtm_table = RT_TABLE_MAIN;
	q.route.rtm_protocol = RTPROT_BOOT;
	q.route.rtm_scope = family == 4 ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE;
	q.route.rtm_type = RTN_LOCAL;
	egress_inner(family, EGRESS_OWN, addr);
	put_attr(&q, RTA_OIF, &lo, sizeof(lo));
	put_attr(&q, RTA_PREFSRC, addr, family == 4 ? 4 : 16);
	return talk(fd, &q);
}

static int configure(int fd, uint8_t family)
{
	int r = add_address(fd, family, EGRESS_OWN);

	if (r == 0)
		r = add_address(fd, family, EGRESS_BROKER);
	return r == 0 ? add_route(fd, family) : r;
}

/* ------------------------------------------------------------------ listeners */

static const struct {
	uint8_t family;
	int type;
	uint16_t port;
} kinds[EGRESS_LISTENERS] = {
	[EGRESS_TCP4] = { 4, SOCK_STREAM, EGRESS_PORT_TCP },
	[EGRESS_TCP6] = { 6, SOCK_STREAM, EGRESS_PORT_TCP },
	[EGRESS_DNS_UDP4] = { 4, SOCK_DGRAM, EGRESS_PORT_DNS },
	[EGRESS_DNS_UDP6] = { 6, SOCK_DGRAM, EGRESS_PORT_DNS },
	[EGRESS_DNS_TCP4] = { 4, SOCK_STREAM, EGRESS_PORT_DNS },
	[EGRESS_DNS_TCP6] = { 6, SOCK_STREAM, EGRESS_PORT_DNS },
	[EGRESS_UDP4] = { 4, SOCK_DGRAM, EGRESS_PORT_UDP },
	[EGRESS_UDP6] = { 6, SOCK_DGRAM, EGRESS_PORT_UDP },
};

/* At every address: where a datagram was going its own address and its mark say (policy/nftables.c). */
static int bind_any(int fd, uint8_t family, uint16_t port)
{
	const struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
	const struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	const int on = 1;

	if (setsockopt(fd, SOL_SOCKET, SO_RCVMARK, &on, sizeof(on)) < 0)
		return -1;
	if (family == 4)
		return setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on)) < 0
			       ? -1
			       : bind(fd, (const struct sockaddr *)&v4, sizeof(v4));
	if (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) < 0 ||
	    setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on)) < 0 ||
	    /* To answer from an address that a route alone makes ours, which IPv4 does anyway. */
	    setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &on, sizeof(on)) < 0)
		return -1;
	return bind(fd, (const struct sockaddr *)&v6, sizeof(v6));
}

static int bind_inner(int fd, uint8_t family, uint16_t port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	uint8_t addr[16];

	egress_inner(family, EGRESS_BROKER, addr);
	memcpy(&v4.sin_addr, addr, sizeof(v4.sin_addr));
	memcpy(&v6.sin6_addr, addr, sizeof(v6.sin6_addr));
	return family == 4 ? bind(fd, (struct sockaddr *)&v4, sizeof(v4))
			   : bind(fd, (struct sockaddr *)&v6, sizeof(v6));
}

static int open_listener(int kind)
{
	auto_close int fd = socket(kinds[kind].family == 4 ? AF_INET : AF_INET6,
				   kinds[kind].type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	bool any = kinds[kind].port == EGRESS_PORT_UDP;

	if (fd < 0 || (any ? bind_any : bind_inner)(fd, kinds[kind].family, kinds[kind].port) < 0 ||
	    (kinds[kind].type == SOCK_STREAM && listen(fd, BACKLOG) < 0))
		return -errno;
	return take_fd(&fd);
}

static int send_listeners(struct child *c, bool six, bool udp, struct nsbox_error *err)
{
	struct ctl_report rep = { .magic = CTL_MAGIC, .kind = CTL_LISTENERS };
	int fds[EGRESS_LISTENERS + 1], r = 0;
	unsigned n = 0;

	for (int i = 0; r == 0 && i < EGRESS_LISTENERS; i++) {
		if ((kinds[i].family == 6 && !six) || (kinds[i].port == EGRESS_PORT_UDP && !udp))
			continue;
		fds[n] = open_listener(i);
		if (fds[n] < 0)
			r = nsbox_fail(err, NSBOX_E_SETUP, fds[n], "make a listener for egress");
		else
			n++;
		rep.bytes |= 1u << i;
	}
	/* The owner's, to read counters (refused.c): only here can it be made. */
	fds[n] = r == 0 ? socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER) : -1;
	if (r == 0 && fds[n] < 0)
		r = nsbox_fail(err, NSBOX_E_SETUP, errno, "open a socket for counters");
	else if (r == 0)
		n++;
	if (r == 0) {
		r = ctl_send(c->control, &rep, sizeof(rep), fds, n);
		if (r < 0)
			r = nsbox_fail(err, NSBOX_E_SETUP, r, "hand over the listeners for egress");
	}
	for (unsigned i = 0; i < n; i++)
		close_fd(&fds[i]);
	return r;
}

/* ------------------------------------------------------------------ the stage */

static bool lacks_ipv6(int r)
{
	return r == -EAFNOSUPPORT || r == -EOPNOTSUPP || r == -EACCES || r == -EPERM;
}

int stage_egress(struct child *c, struct nsbox_error *err)
{
	auto_close int fd = -1;
	struct egress_rules rules;
	bool six = true;
	size_t size;
	const void *section = blob_get(c->plan, SEC_EGRESS, 1, &size);
	int r;

	if (!size)
		return 0;
	r = egress_check(section, size, &rules, err);
	if (r < 0)
		return r;
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "open a socket for routes");
	r = configure(fd, 4);
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, r, "set addresses and a route for egress");
	r = configure(fd, 6);
	if (lacks_ipv6(r))
		six = false;
	else if (r < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, r,
				  "set IPv6 addresses and a route for egress");
	return send_listeners(c, six, egress_has_udp(&rules), err);
}
