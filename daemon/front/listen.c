/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listening sockets. The supervisor makes them once and hands them to each front, so that clients
 * that connect while the pair restarts wait instead of failing.
 *
 * Who may connect is decided twice: by the modes here (directory 0750, socket 0660, of the front's
 * group or the first allowed one), and by the peer's credentials for every request. Where single
 * user ids are allowed no file mode can say so, and the credentials decide alone.
 */
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "daemon/front/supervisor.h"
#include "nsbox/util.h"

#define BACKLOG 256

/* May this user pass through a directory with these bits? */
static bool may_pass(const struct stat *st, uid_t uid)
{
	const struct passwd *pw;
	gid_t groups[256];
	int n = (int)ARRAY_SIZE(groups);

	if (st->st_uid == uid)
		return st->st_mode & S_IXUSR;
	pw = getpwuid(uid);
	if (!pw || getgrouplist(pw->pw_name, pw->pw_gid, groups, &n) < 0)
		n = 0;
	for (int i = 0; i < n; i++)
		if (groups[i] == st->st_gid)
			return st->st_mode & S_IXGRP;
	return st->st_mode & S_IXOTH;
}

/* One that is there keeps its owner and mode: does it let in whom we are to serve? */
static int check_directory(const char *dir, const struct http_peers *p, struct nsbox_error *err)
{
	struct stat st;

	if (stat(dir, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "look at the directory '%s'", dir);
	for (unsigned i = 0; i < p->n_uids; i++)
		if (p->uids[i] != 0 && !may_pass(&st, p->uids[i]))
			return nsbox_fail(
				err, NSBOX_E_INVALID, EACCES,
				"user %u is allowed but cannot reach the socket: '%s' is "
				"there with mode %04o; chmod o+x it, or name another place "
				"with --socket",
				p->uids[i], dir, st.st_mode & 07777);
	return 0;
}

/* The last directory is made where it is missing. */
static int make_directory(const char *path, gid_t gid, mode_t mode, const struct http_peers *peers,
			  struct nsbox_error *err)
{
	auto_free char *dir = strdup(path);
	char *slash = dir ? strrchr(dir, '/') : NULL;

	if (!slash || slash == dir)
		return 0;
	*slash = 0;
	if (mkdir(dir, mode) < 0)
		return errno == EEXIST
			       ? check_directory(dir, peers, err)
			       : nsbox_fail(err, NSBOX_E_IO, errno, "make the directory '%s'", dir);
	if (chmod(dir, mode) < 0 || (geteuid() == 0 && chown(dir, 0, gid) < 0))
		return nsbox_fail(err, NSBOX_E_IO, errno, "own the directory '%s'", dir);
	return 0;
}

/* A socket that nobody listens on is left over and goes; a live one is somebody's. */
static int clear_place(const struct sockaddr_un *addr, struct nsbox_error *err)
{
	auto_close int fd = -1;
	struct stat st;

	if (lstat(addr->sun_path, &st) < 0)
		return 0;
	if (!S_ISSOCK(st.st_mode))
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "'%s' is there and is no socket",
				  addr->sun_path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make a socket");
	if (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0)
		return nsbox_fail(err, NSBOX_E_INVALID, EADDRINUSE, "a service listens on '%s'",
				  addr->sun_path);
	if (unlink(addr->sun_path) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "remove the old socket '%s'",
				  addr->sun_path);
	return 0;
}

static int bind_to(int fd, const struct sockaddr_un *addr, gid_t gid, mode_t mode,
		   struct nsbox_error *err)
{
	mode_t old = umask(0177);
	int r = bind(fd, (const struct sockaddr *)addr, sizeof(*addr));

	umask(old);
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "bind '%s'", addr->sun_path);
	if (geteuid() == 0 && lchown(addr->sun_path, 0, gid) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "own '%s'", addr->sun_path);
	if (chmod(addr->sun_path, mode) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "set the mode of '%s'", addr->sun_path);
	if (listen(fd, BACKLOG) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "listen on '%s'", addr->sun_path);
	return 0;
}

int listen_open(const struct front_options *opt, gid_t gid, int *ret_fd, struct nsbox_error *err)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	bool open_to_uids = opt->peers.n_uids > 0;
	auto_close int fd = -1;
	int r;

	if (strlen(opt->socket_path) >= sizeof(addr.sun_path))
		return nsbox_fail(err, NSBOX_E_INVALID, ENAMETOOLONG, "the socket's path '%s'",
				  opt->socket_path);
	strcpy(addr.sun_path, opt->socket_path);
	if (opt->peers.n_gids)
		gid = opt->peers.gids[0];
	r = make_directory(addr.sun_path, gid, open_to_uids ? 0755 : 0750, &opt->peers, err);
	if (r == 0)
		r = clear_place(&addr, err);
	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make a socket");
	r = bind_to(fd, &addr, gid, open_to_uids ? 0666 : 0660, err);
	if (r == 0)
		*ret_fd = take_fd(&fd);
	return r;
}

/* ------------------------------------------------------------------ TCP */

/* "127.0.0.1:7780", "[::1]:7780", "localhost:7780" */
static int resolve(const char *where, struct addrinfo **ret, struct nsbox_error *err)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
	auto_free char *host = strdup(where);
	char *colon = host ? strrchr(host, ':') : NULL, *name = host;
	int r;

	if (!colon || colon == host || !colon[1])
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "'%s' is not ADDRESS:PORT, such as 127.0.0.1:7780", where);
	*colon = 0;
	if (name[0] == '[' && colon[-1] == ']') {
		colon[-1] = 0;
		name++;
	}
	r = getaddrinfo(name, colon + 1, &hints, ret);
	return r ? nsbox_fail(err, NSBOX_E_INVALID, 0, "look up '%s': %s", where, gai_strerror(r))
		 : 0;
}

static bool is_loopback(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)a;

		return ntohl(in->sin_addr.s_addr) >> 24 == 127;
	}
	return a->sa_family == AF_INET6 &&
	       IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

int listen_tcp(const char *where, bool any, int *ret_fd, struct nsbox_error *err)
{
	struct addrinfo *a = NULL;
	auto_close int fd = -1;
	const int on = 1;
	int r = resolve(where, &a, err);

	if (r < 0)
		return r;
	if (!a)
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "'%s' has no address", where);
	if (!is_loopback(a->ai_addr) && !any) {
		freeaddrinfo(a);
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "'%s' can be reached from elsewhere, and tokens would travel "
				  "there unencrypted: listen on 127.0.0.1 behind a proxy with TLS, "
				  "or say --tcp-any-address (tcp.anyAddress)",
				  where);
	}
	if (!is_loopback(a->ai_addr))
		fprintf(stderr, "<4>nsboxd: tokens and code travel unencrypted to and from %s\n",
			where);
	fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0 ||
	    bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
		r = nsbox_fail(err, NSBOX_E_IO, errno, "listen on '%s'", where);
	freeaddrinfo(a);
	if (r == 0)
		*ret_fd = take_fd(&fd);
	return r;
}

/* ------------------------------------------------------------------ files with secrets */

int keys_open(const char *path, uid_t front, int *ret_fd, struct nsbox_error *err)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open '%s'", path);
	if (!S_ISREG(st.st_mode))
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "'%s' is not a regular file", path);
	if ((st.st_uid != 0 && st.st_uid != geteuid() && st.st_uid != front) || (st.st_mode & 077))
		return nsbox_fail(err, NSBOX_E_INVALID, EPERM,
				  "'%s' holds secrets and is open to others (owner %u, mode %04o): "
				  "chmod 600 it",
				  path, st.st_uid, st.st_mode & 07777);
	*ret_fd = take_fd(&fd);
	return 0;
}
