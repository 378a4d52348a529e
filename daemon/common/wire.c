/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The packets of wire.h over a SOCK_SEQPACKET pair.
 *
 * This file is the whole of what the privileged process parses, so it knows nothing but sizes,
 * counts and terminated strings: a message has one size, a kind has a fixed number of descriptors,
 * and what does not fit is the end of the connection. What a message *means* is checked where it
 * is used (the plan and the exec request by the library).
 */
#include "daemon/common/wire.h"

#include <string.h>
#include <sys/socket.h>

#include "nsbox/util.h"

union control {
	struct cmsghdr align;
	char buf[CMSG_SPACE(sizeof(int) * WIRE_FDS_MAX)];
};

void wire_close_fds(int *fds, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		close_fd(&fds[i]);
}

int wire_send(int sock, const void *msg, size_t size, const int *fds, unsigned n,
	      struct nsbox_error *err)
{
	union control control = { 0 };
	struct iovec iov = { (void *)msg, size };
	struct msghdr hdr = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;
	ssize_t r;

	if (n > WIRE_FDS_MAX)
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EINVAL, "%u descriptors in one message",
				  n);
	if (n > 0) {
		hdr.msg_control = control.buf;
		hdr.msg_controllen = CMSG_SPACE(sizeof(int) * n);
		c = CMSG_FIRSTHDR(&hdr);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * n);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * n);
	}
	do {
		r = sendmsg(sock, &hdr, MSG_NOSIGNAL);
	} while (r < 0 && errno == EINTR);
	if (r == (ssize_t)size)
		return 0;
	if (r < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return -EAGAIN;
	return nsbox_fail(err, NSBOX_E_PROTOCOL, r < 0 ? errno : EMSGSIZE, "send a message");
}

/* All descriptors of a message, however many control headers there are. */
static unsigned take_fds(struct msghdr *hdr, int fds[static WIRE_FDS_MAX], bool *ret_odd)
{
	unsigned n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(hdr); c; c = CMSG_NXTHDR(hdr, c)) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
			*ret_odd = true;
			continue;
		}
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (n < WIRE_FDS_MAX) {
				fds[n++] = fd;
			} else {
				close(fd);
				*ret_odd = true;
			}
		}
	}
	return n;
}

int wire_recv(int sock, void *msg, size_t size, int fds[static WIRE_FDS_MAX], unsigned *ret_n,
	      struct nsbox_error *err)
{
	union control control = { 0 };
	struct iovec iov = { msg, size };
	struct msghdr hdr = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.buf,
			      .msg_controllen = sizeof(control.buf) };
	bool odd = false;
	uint32_t magic;
	unsigned n;
	ssize_t r;

	*ret_n = 0;
	do {
		r = recvmsg(sock, &hdr, MSG_CMSG_CLOEXEC);
	} while (r < 0 && errno == EINTR);
	if (r < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return -EAGAIN;
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_PROTOCOL, errno, "receive a message");
	n = take_fds(&hdr, fds, &odd);
	if (r == 0 && n == 0)
		return 0;
	if (odd || (hdr.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || (size_t)r != size)
		goto malformed;
	memcpy(&magic, msg, sizeof(magic));
	if (magic != WIRE_MAGIC)
		goto malformed;
	*ret_n = n;
	return 1;
malformed:
	wire_close_fds(fds, n);
	return nsbox_fail(err, NSBOX_E_PROTOCOL, EPROTO, "malformed message of %zd bytes", r);
}

static bool terminated(const char *s, size_t size)
{
	return memchr(s, 0, size) != NULL;
}

static bool plain(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* As image_name_check() has it; "" is the host's. */
static bool image_name_ok(const char *s)
{
	for (const char *p = s; *p; p++)
		if (!plain(*p) && (p == s || !strchr("._-/:", *p) || (!plain(p[1]) && p[1] != '_')))
			return false;
	return true;
}

/* How many descriptors each kind of request comes with: at least, at most. */
static const struct {
	uint8_t min, max;
} request_fds[WIRE_KIND_MAX] = {
	[WIRE_NEW] = { 1, 3 },		[WIRE_EXEC] = { 1, 7 },	  [WIRE_KILL] = { 0, 0 },
	[WIRE_COLLECT] = { 1, 1 },	[WIRE_FILES] = { 1, 3 },  [WIRE_UPPER] = { 1, 1 },
	[WIRE_FILES_CANCEL] = { 0, 0 }, [WIRE_IMAGES] = { 1, 1 }, [WIRE_END] = { 0, 0 },
	[WIRE_COMMIT] = { 2, 2 },	[WIRE_BEGIN] = { 0, 0 },
};

/* One descriptor, then those of the set. */
static bool set_fits(uint32_t set, uint32_t all, unsigned n)
{
	return (set & ~all) == 0 && (unsigned)__builtin_popcount(set) + 1 == n;
}

static const char *request_fault(const struct wire_request *q, unsigned n)
{
	if (q->kind < WIRE_NEW || q->kind > WIRE_END)
		return "kind";
	if (q->sandbox == 0)
		return "sandbox number";
	if ((q->kind == WIRE_EXEC || q->kind == WIRE_BEGIN) && q->exec == 0)
		return "number of a program";
	if (q->fds != n || n < request_fds[q->kind].min || n > request_fds[q->kind].max)
		return "number of descriptors";
	if (q->kind == WIRE_NEW &&
	    (q->arg & ~(uint32_t)WIRE_NEW_ALL || !set_fits(q->arg & WIRE_NEW_FDS, WIRE_NEW_FDS, n)))
		return "descriptor set";
	if (q->kind == WIRE_UPPER && q->arg > NSBOX_UPPER_LAYER)
		return "form of the upper layer";
	if (q->kind == WIRE_EXEC && !set_fits(q->arg, WIRE_IO_ALL, n))
		return "descriptor set";
	if (q->kind == WIRE_FILES && !set_fits(q->arg, WIRE_FILES_ALL, n))
		return "descriptor set";
	if ((q->kind == WIRE_FILES || q->kind == WIRE_UPPER || q->kind == WIRE_FILES_CANCEL) &&
	    q->arg2 == 0)
		return "number of a request";
	if (!terminated(q->image, sizeof(q->image)) || !image_name_ok(q->image))
		return "image name";
	if (!terminated(q->image_digest, sizeof(q->image_digest)))
		return "image digest";
	if (!terminated(q->base, sizeof(q->base)))
		return "base path";
	if (q->kind == WIRE_COMMIT &&
	    (!*q->image || !*q->image_digest || !*q->base || !image_name_ok(q->base)))
		return "name of a new image";
	if (q->outputs > WIRE_OUTPUTS_MAX)
		return "number of outputs";
	for (uint32_t i = 0; i < q->outputs; i++)
		if (!terminated(q->output[i].glob, sizeof(q->output[i].glob)))
			return "output pattern";
	return NULL;
}

int wire_recv_request(int sock, struct wire_request *ret, int fds[static WIRE_FDS_MAX],
		      unsigned *ret_n, struct nsbox_error *err)
{
	int r = wire_recv(sock, ret, sizeof(*ret), fds, ret_n, err);
	const char *fault;

	if (r <= 0)
		return r;
	fault = request_fault(ret, *ret_n);
	if (!fault)
		return 1;
	wire_close_fds(fds, *ret_n);
	*ret_n = 0;
	return nsbox_fail(err, NSBOX_E_PROTOCOL, EPROTO, "request with a bad %s", fault);
}

int wire_recv_event(int sock, struct wire_event *ret, struct nsbox_error *err)
{
	int fds[WIRE_FDS_MAX], r;
	unsigned n;

	r = wire_recv(sock, ret, sizeof(*ret), fds, &n, err);
	if (r <= 0)
		return r;
	ret->event.fd = -1;
	ret->image[sizeof(ret->image) - 1] = 0;
	ret->event.error.msg[NSBOX_ERROR_MSG_MAX - 1] = 0;
	ret->event.result.error.msg[NSBOX_ERROR_MSG_MAX - 1] = 0;
	if (ret->kind != WIRE_EVENT || ret->fds != n ||
	    n != (ret->event.kind == NSBOX_EVENT_TERMINAL ? 1u : 0u)) {
		wire_close_fds(fds, n);
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EPROTO, "malformed event");
	}
	if (n == 1)
		ret->event.fd = fds[0];
	return 1;
}

int wire_recv_hello(int sock, struct wire_hello *ret, struct nsbox_error *err)
{
	int fds[WIRE_FDS_MAX], r;
	unsigned n;

	r = wire_recv(sock, ret, sizeof(*ret), fds, &n, err);
	if (r <= 0)
		return r;
	ret->error.msg[NSBOX_ERROR_MSG_MAX - 1] = 0;
	if (ret->kind == WIRE_HELLO && n == 0)
		return 1;
	wire_close_fds(fds, n);
	return nsbox_fail(err, NSBOX_E_PROTOCOL, EPROTO, "malformed greeting");
}
