/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listening socket. The supervisor makes it once and hands it to each front, so that clients
 * that connect while the pair restarts wait instead of failing.
 *
 * Who may connect is decided twice: by the modes here (directory 0750, socket 0660, of the front's
 * group or the first allowed one), and by the peer's credentials for every request. Where single
 * user ids are allowed no file mode can say so, and the credentials decide alone.
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "daemon/front/supervisor.h"
#include "nsbox/util.h"

#define BACKLOG 256

/* The last directory is made where it is missing; one that is there keeps its owner and mode. */
static int make_directory(const char *path, gid_t gid, mode_t mode, struct nsbox_error *err)
{
	auto_free char *dir = strdup(path);
	char *slash = dir ? strrchr(dir, '/') : NULL;

	if (!slash || slash == dir)
		return 0;
	*slash = 0;
	if (mkdir(dir, mode) < 0)
		return errno == EEXIST
			       ? 0
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
	r = make_directory(addr.sun_path, gid, open_to_uids ? 0755 : 0750, err);
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
