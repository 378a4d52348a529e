/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to ports at which the operator wants TLS for the name that was looked up: what the
 * program says first is looked at, left where it is, and only then anything is connected to. It stays
 * encrypted for its server; all that is read is the name it calls it by.
 */
#include <string.h>
#include <sys/epoll.h>

#include "daemon/egress/conn.h"
#include "daemon/egress/tls.h"
#include "nsbox/util.h"

static void done(struct conn *c)
{
	const int any = 1;

	loop_del(c->box->broker->loop, &c->side[INSIDE].source);
	setsockopt(c->side[INSIDE].fd, SOL_SOCKET, SO_RCVLOWAT, &any, sizeof(any));
}

static void look(struct conn *c, bool ended)
{
	uint8_t data[TLS_HELLO_MAX + 512];
	char name[TLS_NAME_MAX];
	ssize_t n = recv(c->side[INSIDE].fd, data, sizeof(data), MSG_PEEK | MSG_DONTWAIT);
	int more = (int)n + 1; /* no event before there are so many */
	enum tls_hello hello = n > 0 ? tls_read(data, (size_t)n, name) : TLS_MORE;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (hello == TLS_MORE && n >= 0 && !ended && (size_t)n < sizeof(data)) {
		setsockopt(c->side[INSIDE].fd, SOL_SOCKET, SO_RCVLOWAT, &more, sizeof(more));
		return;
	}
	done(c);
	if (hello == TLS_NAMED && !strcmp(name, c->name->text))
		conn_go_on(c);
	else
		conn_refuse(c,
			    hello == TLS_NAMED	   ? "TLS for another name"
			    : hello == TLS_UNNAMED ? "TLS without a name"
						   : "no TLS, which this port is for",
			    "");
}

static void on_inside(void *ctx, uint32_t events)
{
	look(ctx, events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR));
}

bool hello_wanted(const struct conn *c)
{
	return c->name && box_takes_tls(c->box, c->port);
}

void hello_wait(struct conn *c)
{
	struct side *s = &c->side[INSIDE];

	c->state = CONN_HELLO;
	if (loop_add(c->box->broker->loop, s->fd, EPOLLIN | EPOLLRDHUP, on_inside, c, &s->source,
		     NULL) < 0)
		conn_end(c, EGRESS_FAILED, ENOMEM, "out of memory", true);
}
