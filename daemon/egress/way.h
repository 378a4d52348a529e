/* SPDX-License-Identifier: Apache-2.0 */
/* A datagram's way: who in a sandbox sent it and to where, as the socket inside tells it and takes it. */
#ifndef EGRESS_WAY_H
#define EGRESS_WAY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Ports in the host's order. Compared byte by byte: what is not used is 0. */
struct way {
	uint16_t family, peer_port, port;
	uint8_t peer[16], dst[16];
};

/* Length, or -1: none. Where the datagram does not say where it was going, ret->port is 0. */
ssize_t way_receive(int fd, uint8_t family, void *buf, size_t size, struct way *ret);

/* Back to who sent, from where it was sent to. What cannot be sent is lost, as datagrams are. */
void way_answer(int fd, const struct way *w, const void *data, size_t len);

#endif
