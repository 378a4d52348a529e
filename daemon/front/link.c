/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front's end of the socket to nsbox-spawn.
 *
 * nsbox-spawn writes its events with blocking sends, so the front must never block on the same
 * socket: requests that do not fit wait here, with copies of their descriptors. Anything malformed
 * from the other side, and its end, is the loss of the link: without nsbox-spawn there is no work.
 */
#include "daemon/front/link.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>

#include "daemon/common/release.h"
#include "nsbox/util.h"

#define HELLO_TIMEOUT_MS 20000

struct pending {
	struct pending *next;
	unsigned n;
	int fds[WIRE_FDS_MAX];
	struct wire_request q;
};

struct link {
	struct loop *loop;
	struct loop_source *source;
	int sock;
	struct pending *first, **last;
	link_event_fn *on_event;
	link_lost_fn *on_lost;
	void *ctx;
};

static void pending_free(struct pending *p)
{
	wire_close_fds(p->fds, p->n);
	free(p);
}

static void lose(struct link *k, const struct nsbox_error *why)
{
	if (!k->source)
		return;
	loop_del(k->loop, &k->source);
	k->on_lost(k->ctx, why);
}

static void flush(struct link *k)
{
	struct nsbox_error err = { 0 };

	while (k->first) {
		struct pending *p = k->first;
		int r = wire_send(k->sock, &p->q, sizeof(p->q), p->fds, p->n, &err);

		if (r == -EAGAIN)
			return;
		k->first = p->next;
		if (!k->first)
			k->last = &k->first;
		pending_free(p);
		if (r < 0) {
			lose(k, &err);
			return;
		}
	}
	loop_change(k->loop, k->source, EPOLLIN);
}

static void receive(struct link *k)
{
	struct nsbox_error err = { 0 };
	struct wire_event w;
	int r;

	while (k->source && (r = wire_recv_event(k->sock, &w, &err)) != -EAGAIN) {
		if (r == 0)
			nsbox_fail(&err, NSBOX_E_PROTOCOL, 0, "nsbox-spawn went away");
		if (r <= 0)
			lose(k, &err);
		else
			k->on_event(k->ctx, &w);
	}
}

static void on_ready(void *ctx, uint32_t events)
{
	struct link *k = ctx;

	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		receive(k);
	if (k->source && (events & EPOLLOUT))
		flush(k);
}

static int queue(struct link *k, const struct wire_request *q, const int *fds, unsigned n,
		 struct nsbox_error *err)
{
	struct pending *p = calloc(1, sizeof(*p));

	if (!p)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "queue a request");
	p->q = *q;
	for (; p->n < n; p->n++) {
		p->fds[p->n] = fcntl(fds[p->n], F_DUPFD_CLOEXEC, 3);
		if (p->fds[p->n] < 0) {
			pending_free(p);
			return nsbox_fail(err, NSBOX_E_NOMEM, errno, "queue a request");
		}
	}
	*k->last = p;
	k->last = &p->next;
	loop_change(k->loop, k->source, EPOLLIN | EPOLLOUT);
	return 0;
}

int link_send(struct link *k, struct wire_request *q, const int *fds, unsigned n,
	      struct nsbox_error *err)
{
	int r;

	q->magic = WIRE_MAGIC;
	q->fds = n;
	if (!k->source)
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EPIPE, "nsbox-spawn went away");
	if (k->first)
		return queue(k, q, fds, n, err);
	r = wire_send(k->sock, q, sizeof(*q), fds, n, err);
	return r == -EAGAIN ? queue(k, q, fds, n, err) : r;
}

static int wait_packet(int sock, struct nsbox_error *err)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	int r = poll(&p, 1, HELLO_TIMEOUT_MS);

	if (r < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "wait for nsbox-spawn");
	if (r == 0)
		return nsbox_fail(err, NSBOX_E_PROTOCOL, ETIMEDOUT, "nsbox-spawn says nothing");
	return 1;
}

/* Of which version each is, then what the host can do. */
static int wait_hello(int sock, struct nsbox_host *ret, struct nsbox_error *err)
{
	struct wire_hello h;
	int r = wait_packet(sock, err);

	if (r > 0)
		r = release_recv(sock, "nsbox-spawn", err);
	if (r > 0)
		r = release_send(sock, "nsbox-spawn", err) < 0 ? -EIO : wait_packet(sock, err);
	if (r > 0)
		r = wire_recv_hello(sock, &h, err);
	if (r == 0 || r == -EAGAIN)
		return nsbox_fail(err, NSBOX_E_PROTOCOL, 0,
				  "nsbox-spawn ended before it was ready");
	if (r < 0)
		return r;
	if (h.error.code != 0) {
		if (err)
			*err = h.error;
		return -EIO;
	}
	*ret = h.host;
	return 0;
}

int link_new(struct loop *l, int sock, link_event_fn *on_event, link_lost_fn *on_lost, void *ctx,
	     struct nsbox_host *ret_host, struct link **ret, struct nsbox_error *err)
{
	struct link *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "link to nsbox-spawn");
	*k = (struct link){
		.loop = l, .sock = sock, .on_event = on_event, .on_lost = on_lost, .ctx = ctx
	};
	k->last = &k->first;
	r = wait_hello(sock, ret_host, err);
	if (r == 0 && fcntl(sock, F_SETFL, O_NONBLOCK) < 0)
		r = nsbox_fail(err, NSBOX_E_IO, errno, "make the socket non-blocking");
	if (r == 0)
		r = loop_add(l, sock, EPOLLIN, on_ready, k, &k->source, err);
	if (r < 0) {
		k->sock = -1; /* still open: the others would end before we have said why */
		link_free(k);
		return r;
	}
	*ret = k;
	return 0;
}

void link_free(struct link *k)
{
	if (!k)
		return;
	loop_del(k->loop, &k->source);
	while (k->first) {
		struct pending *p = k->first;

		k->first = p->next;
		pending_free(p);
	}
	close_fd(&k->sock);
	free(k);
}
