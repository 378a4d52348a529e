/* SPDX-License-Identifier: Apache-2.0 */
#include "nsbox/control.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "nsbox/util.h"

union fd_space {
	struct cmsghdr head;
	char room[CMSG_SPACE(sizeof(int) * CTL_FDS_MAX) + CMSG_SPACE(sizeof(struct ucred))];
};

int ctl_pair(int ret[2])
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret) < 0)
		return -errno;
	return 0;
}

int ctl_send(int sock, const void *msg, size_t len, const int *fds, unsigned n)
{
	struct iovec iov = { (void *)msg, len };
	union fd_space space = { 0 };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t r;

	if (n > CTL_FDS_MAX)
		return -EINVAL;
	if (n) {
		mh.msg_control = space.room;
		mh.msg_controllen = CMSG_SPACE(sizeof(int) * n);
		space.head.cmsg_level = SOL_SOCKET;
		space.head.cmsg_type = SCM_RIGHTS;
		space.head.cmsg_len = CMSG_LEN(sizeof(int) * n);
		memcpy(CMSG_DATA(&space.head), fds, sizeof(int) * n);
	}
	do {
		r = sendmsg(sock, &mh, MSG_NOSIGNAL);
	} while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

struct ancillary {
	int *fds;
	unsigned room, count;
	int pid;
};

static void take_ancillary(struct msghdr *mh, struct ancillary *a)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c; c = CMSG_NXTHDR(mh, c)) {
		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_CREDENTIALS) {
			struct ucred cred;

			memcpy(&cred, CMSG_DATA(c), sizeof(cred));
			a->pid = cred.pid;
		} else if (c->cmsg_type == SCM_RIGHTS) {
			size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

			for (size_t i = 0; i < n; i++) {
				int fd;

				memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
				if (a->count < a->room)
					a->fds[a->count++] = fd;
				else
					close(fd);
			}
		}
	}
}

static int receive(int sock, void *msg, size_t len, struct ancillary *a, int flags)
{
	struct iovec iov = { msg, len };
	union fd_space space = { 0 };
	struct msghdr mh = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = space.room,
		.msg_controllen = sizeof(space.room),
	};
	ssize_t r;

	/* ECONNRESET comes once, from a peer that closed before it read all of ours, and comes before
	 * what the peer itself had said: its last words, which are why we read at all. */
	do {
		r = recvmsg(sock, &mh, MSG_CMSG_CLOEXEC | flags);
	} while (r < 0 && (errno == EINTR || errno == ECONNRESET));
	if (r < 0)
		return -errno;
	take_ancillary(&mh, a);
	if (r == 0)
		return -EPIPE;
	if ((size_t)r != len || (mh.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		for (unsigned i = 0; i < a->count; i++)
			close(a->fds[i]);
		a->count = 0;
		return -EBADMSG;
	}
	return 0;
}

int ctl_recv(int sock, void *msg, size_t len, int *fds, unsigned *ret_n, int flags)
{
	struct ancillary a = { fds, *ret_n, 0, 0 };
	int r = receive(sock, msg, len, &a, flags);

	*ret_n = a.count;
	return r;
}

int ctl_send_hello(int sock)
{
	struct ctl_report rep = { .magic = CTL_MAGIC, .kind = CTL_HELLO };
	struct ucred cred = { .pid = getpid(), .uid = getuid(), .gid = getgid() };
	struct iovec iov = { &rep, sizeof(rep) };
	union fd_space space = { 0 };
	struct msghdr mh = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = space.room,
		.msg_controllen = CMSG_SPACE(sizeof(cred)),
	};

	space.head.cmsg_level = SOL_SOCKET;
	space.head.cmsg_type = SCM_CREDENTIALS;
	space.head.cmsg_len = CMSG_LEN(sizeof(cred));
	memcpy(CMSG_DATA(&space.head), &cred, sizeof(cred));
	return sendmsg(sock, &mh, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int ctl_recv_reports(int sock, struct ctl_report *ret, int *fds, unsigned *ret_n, int *ret_pid)
{
	struct ancillary a = { fds, *ret_n, 0, 0 };
	int r = receive(sock, ret, sizeof(*ret), &a, MSG_DONTWAIT);

	*ret_n = 0;
	*ret_pid = a.pid;
	if (r < 0)
		return r;
	if (ret->magic != CTL_MAGIC) {
		for (unsigned i = 0; i < a.count; i++)
			close_fd(&fds[i]);
		return -EBADMSG;
	}
	ret->error.msg[NSBOX_ERROR_MSG_MAX - 1] = '\0';
	*ret_n = a.count;
	return 0;
}

int ctl_recv_report(int sock, struct ctl_report *ret, int *ret_fd, int *ret_pid)
{
	unsigned n = 1;
	int r;

	*ret_fd = -1;
	r = ctl_recv_reports(sock, ret, ret_fd, &n, ret_pid);
	if (!n)
		*ret_fd = -1;
	return r;
}
