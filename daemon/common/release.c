/* SPDX-License-Identifier: Apache-2.0 */
/* See release.h. */
#include "daemon/common/release.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

int release_send(int sock, const char *peer, struct nsbox_error *err)
{
	struct release mine = { .magic = RELEASE_MAGIC, .version = NSBOX_VERSION };
	ssize_t r;

	do {
		r = send(sock, &mine, sizeof(mine), MSG_NOSIGNAL);
	} while (r < 0 && errno == EINTR);
	if (r == (ssize_t)sizeof(mine))
		return 0;
	return nsbox_fail(err, NSBOX_E_PROTOCOL, r < 0 ? errno : EMSGSIZE,
			  "say to %s of which version this is", peer);
}

int release_recv(int sock, const char *peer, struct nsbox_error *err)
{
	struct release theirs = { 0 };
	ssize_t r;

	do {
		r = recv(sock, &theirs, sizeof(theirs), MSG_TRUNC);
	} while (r < 0 && errno == EINTR);
	if (r < 0 && errno == EAGAIN)
		return -EAGAIN;
	if (r == 0 || (r < 0 && errno == ECONNRESET))
		return 0;
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_PROTOCOL, errno, "hear from %s", peer);
	if (r != (ssize_t)sizeof(theirs) || theirs.magic != RELEASE_MAGIC ||
	    !memchr(theirs.version, 0, sizeof(theirs.version)))
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EPROTO,
				  "%s does not say of which version it is; this is %s: restart the "
				  "service after an upgrade",
				  peer, NSBOX_VERSION);
	if (strcmp(theirs.version, NSBOX_VERSION) != 0)
		return nsbox_fail(
			err, NSBOX_E_PROTOCOL, EPROTO,
			"%s is of version %.20s, and this is %s: restart the service after "
			"an upgrade",
			peer, theirs.version, NSBOX_VERSION);
	return 1;
}
