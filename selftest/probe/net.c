/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of the network (E and G of the catalogue). Nothing is sent: a connected UDP socket tells
 * whether there is a way, and only inside, where there must be none, is one tried. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "selftest/probe/probe.h"

/* ------------------------------------------------------------------ Unix sockets */

static int connect_unix(const char *name, bool abstract)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	size_t n = strlen(name);

	/* Only by a refusal: that one cannot be had for want of something says nothing. */
	if (fd < 0 && errno != EPERM && errno != EACCES)
		skip("socket: %s", errname(errno));
	if (fd < 0)
		held("seccomp", "no Unix sockets: %s", errname(errno));
	memcpy(to.sun_path + abstract, name, n);
	return connect(fd, (struct sockaddr *)&to,
		       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1));
}

void probe_E04_abstract(const struct probe *p)
{
	int r = connect_unix(fact(p, "abstract"), true);

	judge(errno == EPERM ? "landlockScopes" : "net", "an abstract socket of the host", r,
	      (const int[]){ EPERM, ECONNREFUSED, 0 });
}

void probe_E04_pathname(const struct probe *p)
{
	int r = connect_unix(fact(p, "pathname"), false);

	judge("root", "a socket of the host by its path", r, (const int[]){ ENOENT, EACCES, 0 });
}

void probe_G17_daemon(const struct probe *p)
{
	int r = connect_unix(fact(p, "daemon"), false);

	judge("root", "the daemon's socket", r, (const int[]){ ENOENT, EACCES, 0 });
}

/* ------------------------------------------------------------------ what Landlock's rules miss */

void probe_E03_beyond_tcp(const struct probe *p)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_MPTCP);

	if (fd >= 0)
		escaped("an MPTCP socket: done");
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		held("seccomp", "no INET sockets: %s", errname(errno));
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	JUDGE("seccomp", "MPTCP, and MSG_FASTOPEN",
	      sendto(fd, "x", 1, MSG_FASTOPEN | MSG_NOSIGNAL, (struct sockaddr *)&to, sizeof(to)),
	      EPERM);
}

/* ------------------------------------------------------------------ ways out */

void probe_G01_interfaces(const struct probe *p)
{
	struct if_nameindex *list = if_nameindex();

	if (!list)
		held("seccomp", "interfaces cannot be listed: %s", errname(errno));
	for (size_t i = 0; list && list[i].if_name; i++)
		if (strcmp(list[i].if_name, "lo") != 0)
			escaped("there is an interface %s", list[i].if_name);
	if (p->control)
		skip("this host itself has lo alone");
	held("net", "lo alone");
}

void probe_G01_loopback(const struct probe *p)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons((uint16_t)fact_number(p, "port")) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		held("seccomp", "no INET sockets: %s", errname(errno));
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	JUDGE("net", "a service on the host's loopback",
	      connect(fd, (struct sockaddr *)&to, sizeof(to)), ECONNREFUSED, ENETUNREACH, EACCES);
}

/* Is there a way to an address? The control stops at the routing table. */
static bool reaches(const struct probe *p, const void *to, socklen_t len)
{
	const struct sockaddr *sa = to;
	struct pollfd poll_fd = { .events = POLLOUT };
	int error = 0, fd = socket(sa->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t n = sizeof(error);

	if (fd < 0 || connect(fd, sa, len) < 0) {
		close(fd);
		return false;
	}
	/* A packet filter lets the routing table answer, and refuses the packet. */
	if (p->control || send(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
		return true;
	close(fd);
	fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (connect(fd, sa, len) < 0 && errno != EINPROGRESS)
		return false;
	poll_fd.fd = fd;
	if (poll(&poll_fd, 1, 700) == 0)
		return false; /* nobody answers; were it on its way, the datagram would be as well */
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n);
	close(fd);
	return error == 0;
}

void probe_G04_special(const struct probe *p)
{
	static const char *const addresses[] = {
		"169.254.169.254", "100.100.100.200", "168.63.129.16", "10.0.0.1",    "100.64.0.1",
		"169.254.0.1",	   "172.16.0.1",      "192.0.0.8",     "192.168.0.1", "198.18.0.1",
		"192.0.2.1",	   "240.0.0.1",	      "1.1.1.1",
	};

	for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
		struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(80) };

		inet_pton(AF_INET, addresses[i], &to.sin_addr);
		if (reaches(p, &to, sizeof(to)))
			escaped("there is a way to %s", addresses[i]);
	}
	if (p->control)
		skip("this host has no way out itself");
	held(fact_or(p, "filter", NULL) ? "nftables" : "net", "no way to %zu addresses",
	     ARRAY_SIZE(addresses));
}

void probe_G06_ipv6(const struct probe *p)
{
	static const char *const addresses[] = {
		"fd00:ec2::254",
		"fc00::1",
		"fe80::1",
		"64:ff9b::a9fe:a9fe",
		"64:ff9b:1::1",
		"2002:a9fe:a9fe::1",
		"2606:4700:4700::1111",
		"::ffff:169.254.169.254",
		"::ffff:1.1.1.1",
		"::ffff:10.0.0.1",
	};

	for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
		struct sockaddr_in6 to = { .sin6_family = AF_INET6, .sin6_port = htons(80) };

		inet_pton(AF_INET6, addresses[i], &to.sin6_addr);
		if (reaches(p, &to, sizeof(to)))
			escaped("there is a way to %s", addresses[i]);
	}
	if (p->control)
		skip("this host has no way out itself");
	held("net", "no way to %zu addresses", ARRAY_SIZE(addresses));
}

/* ------------------------------------------------------------------ changing it */

static int set_link_down(void)
{
	struct ifreq req = { .ifr_name = "lo" };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	return fd < 0 ? -1 : ioctl(fd, SIOCSIFFLAGS, &req);
}

void probe_F06_network_setup(const struct probe *p)
{
	struct {
		struct nlmsghdr head;
		struct ifinfomsg info;
	} msg = { { sizeof(msg), RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0 },
		  { .ifi_index = 1 } };
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
		char rest[256];
	} answer = { 0 };
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (set_link_down() == 0)
		escaped("an interface can be taken down");
	if (fd < 0)
		held("seccomp", "no netlink: %s", errname(errno));
	msg.info.ifi_change = IFF_UP;
	if (sendto(fd, &msg, sizeof(msg), 0, (struct sockaddr *)&kernel, sizeof(kernel)) < 0 ||
	    recv(fd, &answer, sizeof(answer), 0) < 0)
		skip("netlink: %s", errname(errno));
	errno = -answer.error.error;
	judge("capabilities", "RTM_NEWLINK", answer.error.error, (const int[]){ EPERM, 0 });
}

void probe_G14_options(const struct probe *p)
{
	int one = 1, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		held("seccomp", "no INET sockets: %s", errname(errno));
	if (setsockopt(fd, IPPROTO_IP, IP_TRANSPARENT, &one, sizeof(one)) == 0 || errno != EPERM)
		escaped("IP_TRANSPARENT: %s", errname(errno));
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &one, sizeof(one)) == 0)
		escaped("SO_RCVBUFFORCE: done");
	JUDGE("capabilities", "IP_TRANSPARENT, SO_MARK, SO_RCVBUFFORCE",
	      setsockopt(fd, SOL_SOCKET, SO_MARK, &one, sizeof(one)), EPERM);
}
