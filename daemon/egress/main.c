/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nsbox-egress: the process that connects to the outside for sandboxes, which have no way there of
 * their own. It is started by nsbox or nsboxd with its socket as a descriptor, locks itself down, and
 * serves until the other end of the socket goes. Its death is the end of the network for all that it
 * served: the listeners inside exist nowhere else.
 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "daemon/egress/egress.h"
#include "nsbox/util.h"

#define RESERVED 256 /* descriptors for everything but connections */
#define EACH	 6   /* of a connection: two sockets, a pipe in each direction */

struct arguments {
	uint64_t fd, report_fd;
	const char *servers, *proxy;
};

static const struct option options[] = {
	{ "fd", required_argument, NULL, 'f' },	     { "report-fd", required_argument, NULL, 'r' },
	{ "servers", required_argument, NULL, 's' }, { "proxy", required_argument, NULL, 'p' },
	{ "version", no_argument, NULL, 'V' },	     { 0 },
};

static bool is_socket(uint64_t fd)
{
	int type = 0;
	socklen_t len = sizeof(type);

	return fd <= 1024 && getsockopt((int)fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
	       type == SOCK_SEQPACKET;
}

/* -1: go on; else an exit status. */
static int parse(int argc, char **argv, struct arguments *a)
{
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		bool ok = true;

		if (c == 'V') {
			puts("nsbox-egress " NSBOX_VERSION);
			return 0;
		}
		if (c == 's')
			a->servers = optarg;
		else if (c == 'p')
			a->proxy = optarg;
		else if (c == 'f')
			ok = parse_u64(optarg, &a->fd);
		else if (c == 'r')
			ok = parse_u64(optarg, &a->report_fd);
		else
			ok = false;
		if (!ok) {
			fprintf(stderr, "usage: nsbox-egress [--fd N] [--report-fd N] "
					"[--servers ADDRESS[:PORT],...] [--proxy URL]\n");
			return 2;
		}
	}
	if (!a->report_fd)
		a->report_fd = a->fd;
	if (is_socket(a->fd) && is_socket(a->report_fd))
		return -1;
	fprintf(stderr,
		"<3>nsbox-egress: descriptor %d is not its socket; it is started by nsbox "
		"and nsboxd, not by hand\n",
		(int)a->fd);
	return 2;
}

static unsigned raise_open_files(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0)
		return 16;
	l.rlim_cur = l.rlim_max;
	setrlimit(RLIMIT_NOFILE, &l);
	getrlimit(RLIMIT_NOFILE, &l);
	if (l.rlim_cur <= RESERVED + EACH)
		return 1;
	return (unsigned)MIN((l.rlim_cur - RESERVED) / EACH, (rlim_t)100000);
}

int main(int argc, char **argv)
{
	static struct broker b;
	struct arguments a = { .fd = 3 };
	struct nsbox_error err = { 0 };
	int r = parse(argc, argv, &a);

	if (r >= 0)
		return r;
	signal(SIGPIPE, SIG_IGN); /* splice knows no MSG_NOSIGNAL */
	signal(SIGINT, SIG_IGN);  /* of a terminal: the owner decides when to end */
	b.conns_max = raise_open_files();
	r = loop_new(&b.loop, &err);
	if (r == 0)
		r = resolver_new(b.loop, a.servers, &b.resolver, &err);
	if (r == 0)
		r = proxy_read(&b.proxy, a.proxy, &err);
	if (r == 0)
		r = confine(&err);
	if (r == 0)
		r = control_run(&b, (int)a.fd, (int)a.report_fd, &err);
	if (r < 0)
		fprintf(stderr, "<3>nsbox-egress: %s\n", err.msg);
	resolver_free(b.resolver);
	loop_free(b.loop);
	return r < 0;
}
