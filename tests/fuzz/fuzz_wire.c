/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets from a front that has been taken over: the input is one packet, its first byte says how
 * many descriptors come along. Whatever is accepted keeps the promises of wire_recv_request(), and
 * no descriptor is lost.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/common/wire.h"
#include "nsbox/util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
	if (!holds)
		abort();
}

static void check(const struct wire_request *q, unsigned n)
{
	must(q->magic == WIRE_MAGIC && q->kind >= WIRE_NEW && q->kind <= WIRE_END);
	must(q->sandbox != 0 && q->fds == n && n <= WIRE_FDS_MAX);
	must(memchr(q->image, 0, sizeof(q->image)) && !strstr(q->image, "..") && *q->image != '/');
	must(memchr(q->base, 0, sizeof(q->base)) && q->outputs <= WIRE_OUTPUTS_MAX);
	for (uint32_t i = 0; i < q->outputs; i++)
		must(memchr(q->output[i].glob, 0, sizeof(q->output[i].glob)) != NULL);
}

static int next_fd(void)
{
	int fd = dup(0);

	close(fd);
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_request q = { .magic = WIRE_MAGIC };
	int out[WIRE_FDS_MAX] = { 0 }, in[WIRE_FDS_MAX], sv[2], before;
	unsigned n = size ? data[0] % (WIRE_FDS_MAX + 1) : 0, got = 0;
	size_t rest = size ? size - 1 : 0;

	/* A packet of the right size, the magic given, is where most of the input should go. */
	if (size)
		memcpy((char *)&q + sizeof(q.magic), data + 1,
		       MIN(rest, sizeof(q) - sizeof(q.magic)));
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv) < 0)
		return 0;
	before = next_fd();
	if (wire_send(sv[0], &q, rest == 1 ? 1 : sizeof(q), out, n, NULL) == 0 &&
	    wire_recv_request(sv[1], &q, in, &got, NULL) == 1)
		check(&q, got);
	wire_close_fds(in, got);
	must(next_fd() == before);
	close(sv[0]);
	close(sv[1]);
	return 0;
}
