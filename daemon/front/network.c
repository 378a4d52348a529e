/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nsbox-egress tells goes to the log of the job that it is about. Its loss is like that of
 * nsbox-spawn: the front ends, and the supervisor starts all three anew.
 */
#include "daemon/front/network.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>

#include "daemon/common/release.h"
#include "nsbox/util.h"

#define SETTLE_US 200000
#define NARROW_US 5000000
#define GREET_MS  20000

struct network {
	struct loop *loop;
	struct loop_source *source;
	int sock;
	network_event_fn *on_event;
	network_lost_fn *on_lost;
	void *ctx;
	uint64_t settled; /* the sandbox whose totals came last */
	bool narrowed;	  /* an answer came, and about which sandbox: */
	uint64_t narrowed_box;
};

static void lose(struct network *n, const struct nsbox_error *why)
{
	if (!n->source)
		return;
	loop_del(n->loop, &n->source);
	n->on_lost(n->ctx, why);
}

static void receive(struct network *n)
{
	struct nsbox_error err = { 0 };
	struct egress_event e;
	int r;

	while (n->source && (r = egress_recv(n->sock, &e, &err)) != -EAGAIN) {
		if (r == 0)
			nsbox_fail(&err, NSBOX_E_PROTOCOL, 0, "nsbox-egress went away");
		if (r <= 0) {
			lose(n, &err);
			return;
		}
		if (e.kind == EGRESS_TOTALS)
			n->settled = e.sandbox;
		if (e.kind == EGRESS_NARROWED) {
			n->narrowed = true;
			n->narrowed_box = e.sandbox;
		} else if (e.sandbox)
			n->on_event(n->ctx, &e);
	}
}

static void on_ready(void *ctx, uint32_t events)
{
	receive(ctx);
}

static void hear_rest(struct network *n, uint32_t order, uint64_t sandbox)
{
	uint64_t end = monotonic_us() + SETTLE_US, now;

	if (!n || !n->source)
		return;
	n->settled = 0;
	if (egress_send(n->sock, order, sandbox, NULL, 0, 0, NULL, NULL) < 0)
		return;
	while (n->source && n->settled != sandbox && (now = monotonic_us()) < end) {
		struct pollfd p = { .fd = n->sock, .events = POLLIN };

		if (poll(&p, 1, (int)((end - now) / 1000) + 1) > 0)
			receive(n);
	}
}

void network_settle(struct network *n, uint64_t sandbox)
{
	hear_rest(n, EGRESS_REMOVE, sandbox);
}

void network_flush(struct network *n, uint64_t sandbox)
{
	hear_rest(n, EGRESS_FLUSH, sandbox);
}

int network_narrow(struct network *n, uint64_t sandbox, const void *rules, size_t len,
		   struct nsbox_error *err)
{
	uint64_t end = monotonic_us() + NARROW_US, now;
	struct pollfd p = { .events = POLLIN };
	int r;

	for (now = 0; n && n->source && now < end; now = monotonic_us()) {
		n->narrowed = false;
		r = egress_send(n->sock, EGRESS_NARROW, sandbox, rules, len, 0, NULL, err);
		if (r < 0 && r != -EAGAIN)
			return r;
		p.fd = n->sock;
		while (r == 0 && n->source && !n->narrowed && (now = monotonic_us()) < end)
			if (poll(&p, 1, (int)((end - now) / 1000) + 1) > 0)
				receive(n);
		if (n->narrowed && n->narrowed_box == sandbox)
			return 0;
		poll(NULL, 0, 5); /* full, or the sandbox is on its way to it */
	}
	return nsbox_fail(err, NSBOX_E_SETUP, ETIMEDOUT, "nsbox-egress did not take the rules");
}

/* Of which version each is: before anything is promised to clients. */
static int greet(int sock, struct nsbox_error *err)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	int r = release_send(sock, "nsbox-egress", err);

	if (r < 0)
		return r;
	r = poll(&p, 1, GREET_MS);
	if (r <= 0)
		return nsbox_fail(err, NSBOX_E_PROTOCOL, r < 0 ? errno : ETIMEDOUT,
				  "nsbox-egress says nothing");
	r = release_recv(sock, "nsbox-egress", err);
	if (r == 0)
		return nsbox_fail(err, NSBOX_E_PROTOCOL, 0,
				  "nsbox-egress ended before it was ready");
	return MIN(r, 0);
}

int network_new(struct loop *l, int sock, network_event_fn *on_event, network_lost_fn *on_lost,
		void *ctx, struct network **ret, struct nsbox_error *err)
{
	struct network *n = calloc(1, sizeof(*n));
	int r;

	if (!n)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "link to nsbox-egress");
	*n = (struct network){
		.loop = l, .sock = sock, .on_event = on_event, .on_lost = on_lost, .ctx = ctx
	};
	r = greet(sock, err);
	if (r == 0 && fcntl(sock, F_SETFL, O_NONBLOCK) < 0)
		r = nsbox_fail(err, NSBOX_E_IO, errno, "make the socket non-blocking");
	if (r == 0)
		r = loop_add(l, sock, EPOLLIN, on_ready, n, &n->source, err);
	if (r < 0) {
		n->sock = -1; /* still open: the others would end before we have said why */
		network_free(n);
		return r;
	}
	*ret = n;
	return 0;
}

void network_free(struct network *n)
{
	if (!n)
		return;
	loop_del(n->loop, &n->source);
	close_fd(&n->sock);
	free(n);
}
