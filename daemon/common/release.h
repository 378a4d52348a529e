/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first packet over each socket between our processes, both ways: of which version who speaks is. What
 * follows are structs, whose meaning may change from one version to the next while their size does not,
 * so a peer of another version is refused, whichever is the newer. It happens when programs are replaced
 * under a running service. The struct itself never changes.
 */
#ifndef DAEMON_RELEASE_H
#define DAEMON_RELEASE_H

#include <nsbox/error.h>
#include <stdint.h>

#define RELEASE_MAGIC UINT32_C(0x316c6572) /* "rel1" */

struct release {
	uint32_t magic;
	char version[60]; /* NUL-terminated */
};

/* 0, or -errno with err filled. `peer`: whom the message names. */
int release_send(int sock, const char *peer, struct nsbox_error *err);
/* Take the peer's: 1 if it is of our version, 0 at the end of the stream, -EAGAIN, or -errno with err filled. */
int release_recv(int sock, const char *peer, struct nsbox_error *err);

#endif
