/* SPDX-License-Identifier: Apache-2.0 */
/* The packets of egress_wire.h, as those who give orders send and read them. */
#include "daemon/common/egress_wire.h"

#include <string.h>
#include <sys/socket.h>

#include "nsbox/util.h"

const char *const egress_what_names[] = { "lookup", "connection", "datagrams" };
const char *const egress_verdict_names[] = { "allowed", "refused", "failed" };

int egress_send(int sock, uint32_t kind, uint64_t sandbox, const void *rules, size_t len,
		unsigned listeners, const int fds[NSBOX_LISTENERS_MAX], struct nsbox_error *err)
{
	struct egress_request q = { EGRESS_WIRE_MAGIC, kind, sandbox, listeners, (uint32_t)len };
	struct iovec iov[] = { { &q, sizeof(q) }, { (void *)rules, len } };
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int) * NSBOX_LISTENERS_MAX)];
	} control = { 0 };
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = len ? 2 : 1 };
	int passed[NSBOX_LISTENERS_MAX];
	unsigned n = 0;
	ssize_t r;

	for (unsigned i = 0; i < NSBOX_LISTENERS_MAX; i++)
		if (listeners & (1u << i))
			passed[n++] = fds[i];
	if (n) {
		mh.msg_control = control.room;
		mh.msg_controllen = CMSG_SPACE(sizeof(int) * n);
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(sizeof(int) * n);
		memcpy(CMSG_DATA(&control.head), passed, sizeof(int) * n);
	}
	do {
		r = sendmsg(sock, &mh, MSG_NOSIGNAL);
	} while (r < 0 && errno == EINTR);
	if (r >= 0)
		return 0;
	if (errno == EAGAIN)
		return -EAGAIN;
	return nsbox_fail(err, NSBOX_E_PROTOCOL, errno, "talk to nsbox-egress");
}

int egress_recv(int sock, struct egress_event *ret, struct nsbox_error *err)
{
	ssize_t r;

	do {
		r = recv(sock, ret, sizeof(*ret), MSG_TRUNC);
	} while (r < 0 && errno == EINTR);
	if (r < 0 && errno == EAGAIN)
		return -EAGAIN;
	if (r == 0 || (r < 0 && errno == ECONNRESET))
		return 0;
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_PROTOCOL, errno, "hear from nsbox-egress");
	if (r != (ssize_t)sizeof(*ret) || ret->magic != EGRESS_WIRE_MAGIC || ret->kind < 1 ||
	    ret->kind >= EGRESS_NOTES || ret->what > EGRESS_DATAGRAMS ||
	    ret->verdict > EGRESS_FAILED)
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EPROTO,
				  "malformed message of nsbox-egress");
	ret->name[sizeof(ret->name) - 1] = '\0';
	ret->address[sizeof(ret->address) - 1] = '\0';
	ret->pointer[sizeof(ret->pointer) - 1] = '\0';
	ret->why[sizeof(ret->why) - 1] = '\0';
	return 1;
}
