/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The packet filter of a plan in a kernel. In a network namespace of its own, with a second
 * interface that has a route, so that a packet could leave:
 *
 *   lo      127.0.0.1
 *   out0    192.0.2.1/24, one end of a pair: whatever is sent to 192.0.2.2 goes there
 *
 * A datagram to 192.0.2.2 is sent without the filter and refused with it; loopback works in both.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/if_link.h>
#include <linux/nsfs.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <nsbox/plan.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nsbox/util.h"
#include "policy/internal.h"
#include "tests/support/plan_kit.h"

#define SKIP 77

/* ------------------------------------------------------------------ the namespace */

static int talk(int bus, const void *data, size_t len, unsigned acks)
{
	char buf[8192];
	struct mnl_socket *nl = mnl_socket_open(bus);
	int r = -1;

	if (!nl || mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID) < 0 ||
	    mnl_socket_sendto(nl, data, len) < 0)
		return -errno;
	for (r = 0; r == 0 && acks;) {
		ssize_t n = mnl_socket_recvfrom(nl, buf, sizeof(buf));
		int left = (int)n;

		if (n < 0)
			r = -errno;
		for (struct nlmsghdr *h = (struct nlmsghdr *)buf; mnl_nlmsg_ok(h, left);
		     h = mnl_nlmsg_next(h, &left)) {
			const struct nlmsgerr *e = mnl_nlmsg_get_payload(h);

			if (h->nlmsg_type != NLMSG_ERROR)
				continue;
			if (e->error)
				r = e->error;
			acks--;
		}
	}
	mnl_socket_close(nl);
	return r;
}

/* out0 and its far end out1, as if that were outside. */
static int add_pair(void)
{
	char buf[1024];
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct nlattr *info, *data, *peer;

	h->nlmsg_type = RTM_NEWLINK;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
	mnl_nlmsg_put_extra_header(h, sizeof(struct ifinfomsg));
	mnl_attr_put_strz(h, IFLA_IFNAME, "out0");
	info = mnl_attr_nest_start(h, IFLA_LINKINFO);
	mnl_attr_put_strz(h, IFLA_INFO_KIND, "veth");
	data = mnl_attr_nest_start(h, IFLA_INFO_DATA);
	peer = mnl_attr_nest_start(h, VETH_INFO_PEER);
	mnl_nlmsg_put_extra_header(h, sizeof(struct ifinfomsg));
	mnl_attr_put_strz(h, IFLA_IFNAME, "out1");
	mnl_attr_nest_end(h, peer);
	mnl_attr_nest_end(h, data);
	mnl_attr_nest_end(h, info);
	return talk(NETLINK_ROUTE, h, h->nlmsg_len, 1);
}

static int link_up(const char *name)
{
	char buf[1024];
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct ifinfomsg *i;

	h->nlmsg_type = RTM_NEWLINK;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
	i = mnl_nlmsg_put_extra_header(h, sizeof(*i));
	i->ifi_index = (int)if_nametoindex(name);
	i->ifi_flags = i->ifi_change = IFF_UP;
	return talk(NETLINK_ROUTE, h, h->nlmsg_len, 1);
}

static int add_address(void)
{
	char buf[1024];
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct ifaddrmsg *a;

	h->nlmsg_type = RTM_NEWADDR;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
	a = mnl_nlmsg_put_extra_header(h, sizeof(*a));
	a->ifa_family = AF_INET;
	a->ifa_prefixlen = 24;
	a->ifa_index = if_nametoindex("out0");
	mnl_attr_put_u32(h, IFA_LOCAL, inet_addr("192.0.2.1"));
	mnl_attr_put_u32(h, IFA_ADDRESS, inet_addr("192.0.2.1"));
	return talk(NETLINK_ROUTE, h, h->nlmsg_len, 1);
}

static int load_filter(void)
{
	struct blob_builder *b = blob_new(PLAN_MAGIC);
	struct nsbox_error err = { 0 };
	auto_free void *bytes = NULL;
	size_t len = 0, size = 0;
	const void *batch;
	struct blob blob;

	const struct nsbox_policy none = { .network.mode = NETWORK_NONE };

	if (!b || compile_nftables(&none, b, &err) < 0 || blob_bytes(b, &bytes, &len, &err) < 0)
		return -ENOMEM;
	blob = (struct blob){ bytes, len };
	batch = blob_get(&blob, SEC_NFT, 1, &size);
	blob_free(b);
	return talk(NETLINK_NETFILTER, batch, size, 1);
}

/* The namespace that holds a plan's filter and nothing else, instead of one of our own. */
static int enter_kept(void)
{
	const struct nsbox_host host = kit_full_host();
	auto_close int plan_fd = kit_compile(&host, NULL), filter = -1, owner = -1;
	struct nsbox_plan *plan = NULL;
	struct nsbox_error err = { 0 };

	if (nsbox_plan_open(plan_fd, &plan, &err) < 0 ||
	    nsbox_plan_keep_filter(plan, &filter, &err) < 0) {
		fprintf(stderr, "# %s\n", err.msg);
		return -EIO;
	}
	nsbox_plan_close(plan);
	owner = ioctl(filter, NS_GET_USERNS);
	return owner < 0 || setns(owner, CLONE_NEWUSER) < 0 || setns(filter, CLONE_NEWNET) < 0
		       ? -errno
		       : 0;
}

/* ------------------------------------------------------------------ probes */

static int send_to(const char *address)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
	auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	inet_pton(AF_INET, address, &to.sin_addr);
	return sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof(to)) < 0 ? errno : 0;
}

/* A round trip by TCP over loopback. */
static int loopback(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	auto_close int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	auto_close int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const struct timeval soon = { .tv_sec = 2 };

	setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof(soon));
	if (bind(server, (struct sockaddr *)&at, sizeof(at)) || listen(server, 1) ||
	    getsockname(server, (struct sockaddr *)&at, &len) ||
	    connect(client, (struct sockaddr *)&at, sizeof(at)))
		return errno;
	return 0;
}

enum filter { NO_FILTER, FILTERED, KEPT };

static int in_namespace(enum filter filter, int (*probe)(void))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		if (filter == KEPT && enter_kept())
			_exit(202);
		if ((filter != KEPT && unshare(CLONE_NEWUSER | CLONE_NEWNET)) || add_pair() ||
		    link_up("out1") || link_up("out0") || add_address())
			_exit(SKIP);
		if (link_up("lo"))
			_exit(200);
		if (filter == FILTERED && load_filter())
			_exit(201);
		_exit(probe());
	}
	/* No ck_assert: also called before there is a runner. */
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status)
									       : -1;
}

static int probe_outside(void)
{
	return send_to("192.0.2.2");
}

static int probe_own_address(void)
{
	return send_to("192.0.2.1"); /* over lo, as every own address */
}

static int probe_outside6(void)
{
	struct sockaddr_in6 to = { .sin6_family = AF_INET6, .sin6_port = htons(9) };
	auto_close int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	const int hops = 1;
	int r = EADDRNOTAVAIL;

	inet_pton(AF_INET6, "ff02::1", &to.sin6_addr);
	to.sin6_scope_id = if_nametoindex("out0");
	setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, &hops, sizeof(hops));
	/* Until the interface is up there is no way, and until its own address is known to be unique there
	 * is none to send from. */
	for (int i = 0; i < 100 && (r == EADDRNOTAVAIL || r == ENETUNREACH); i++) {
		r = sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof(to)) < 0 ? errno : 0;
		if (r == EADDRNOTAVAIL || r == ENETUNREACH)
			usleep(100000);
	}
	return r;
}

START_TEST(nothing_leaves)
{
	ck_assert_int_eq(in_namespace(NO_FILTER, probe_outside), 0);
	ck_assert_int_eq(in_namespace(FILTERED, probe_outside), EPERM);
}
END_TEST

START_TEST(nothing_leaves_by_ipv6)
{
	ck_assert_int_eq(in_namespace(NO_FILTER, probe_outside6), 0);
	ck_assert_int_eq(in_namespace(FILTERED, probe_outside6), EPERM);
}
END_TEST

/* What keeps the kernel's packet filter on is a namespace with a filter like any other. */
START_TEST(kept_filter)
{
	ck_assert_int_eq(in_namespace(KEPT, probe_outside), EPERM);
	ck_assert_int_eq(in_namespace(NO_FILTER, probe_outside), 0);
	ck_assert_int_eq(in_namespace(KEPT, loopback), 0);
}
END_TEST

START_TEST(loopback_works)
{
	ck_assert_int_eq(in_namespace(NO_FILTER, loopback), 0);
	ck_assert_int_eq(in_namespace(FILTERED, loopback), 0);
	ck_assert_int_eq(in_namespace(FILTERED, probe_own_address), 0);
}
END_TEST

static int probe_nothing(void)
{
	return 0;
}

int main(void)
{
	Suite *s = suite_create("nftables");
	TCase *tc = tcase_create("kernel");
	SRunner *sr;
	int failed;

	if (in_namespace(NO_FILTER, probe_nothing) == SKIP) {
		bool must = getenv("NSBOX_MUST_WORK") != NULL;

		puts("1..0 # SKIP no user namespace with a pair of interfaces here");
		suite_add_tcase(s, tc);
		return must;
	}
	sr = srunner_create(s);
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, nothing_leaves);
	tcase_add_test(tc, nothing_leaves_by_ipv6);
	tcase_add_test(tc, loopback_works);
	tcase_add_test(tc, kept_filter);
	suite_add_tcase(s, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
