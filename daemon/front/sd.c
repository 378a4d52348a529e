/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/front/sd.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "nsbox/util.h"

#define FIRST_FD 3

/* The manager may address another process with what we inherited. */
static bool is_meant(const char *variable)
{
	const char *text = getenv(variable);
	uint64_t pid;

	return !text || (parse_u64(text, &pid) && pid == (uint64_t)getpid());
}

static int option_of(int fd, int option)
{
	int value = -1;
	socklen_t len = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, option, &value, &len) < 0 ? -1 : value;
}

static int take_socket(int fd, int *ret_unix, int *ret_tcp, struct nsbox_error *err)
{
	int domain = option_of(fd, SO_DOMAIN);
	int *place = domain == AF_UNIX ? ret_unix : ret_tcp;

	if ((domain != AF_UNIX && domain != AF_INET && domain != AF_INET6) ||
	    option_of(fd, SO_TYPE) != SOCK_STREAM || option_of(fd, SO_ACCEPTCONN) != 1)
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "descriptor %d of the service manager is no listening stream "
				  "socket",
				  fd);
	if (*place >= 0)
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "the service manager brings two %s sockets; one is expected",
				  domain == AF_UNIX ? "Unix" : "TCP");
	*place = fd;
	return fcntl(fd, F_SETFD, FD_CLOEXEC) < 0
		       ? nsbox_fail(err, NSBOX_E_INVALID, errno, "descriptor %d", fd)
		       : 0;
}

int sd_take_sockets(int *ret_unix, int *ret_tcp, struct nsbox_error *err)
{
	const char *text = getenv("LISTEN_FDS");
	uint64_t n = 0;
	int r = 0;

	*ret_unix = *ret_tcp = -1;
	if (text && is_meant("LISTEN_PID") && parse_u64(text, &n) && n <= 16)
		for (int i = 0; i < (int)n && r == 0; i++)
			r = take_socket(FIRST_FD + i, ret_unix, ret_tcp, err);
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDNAMES");
	return r;
}

void sd_notify_text(const char *text)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	const char *path = getenv("NOTIFY_SOCKET");
	size_t n = path ? strlen(path) : 0;
	auto_close int fd = -1;

	if (n < 2 || n >= sizeof(addr.sun_path) || (path[0] != '/' && path[0] != '@'))
		return;
	memcpy(addr.sun_path, path, n);
	if (path[0] == '@')
		addr.sun_path[0] = 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		(void)!sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&addr,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
}

uint64_t sd_watchdog_us(void)
{
	const char *text = getenv("WATCHDOG_USEC");
	uint64_t us = 0;

	return text && is_meant("WATCHDOG_PID") && parse_u64(text, &us) ? us : 0;
}
