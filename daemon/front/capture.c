/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run writes.
 *
 * The pipe is always drained, so that a program that writes more than is kept does not stop; what
 * is beyond the cap is counted and dropped. A program that writes without end is told to the owner
 * once (`flood`). The end of a run does not wait for the end of the stream: a descriptor may have
 * been inherited by something that no longer matters.
 */
#include "daemon/front/capture.h"

#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>

#include "nsbox/util.h"

#define CHUNK		(64 * 1024)
#define CHUNKS_PER_TURN 16 /* so that one loud run does not starve the others */

static void keep(struct capture *c, const char *buf, size_t n)
{
	size_t want = MIN(n, c->max - c->len);

	c->seen += n;
	if (c->len + want > c->cap) {
		size_t cap = MIN(MAX(c->cap * 2, c->len + want), c->max);
		char *p = realloc(c->data, cap);

		if (!p) {
			c->failed = true;
			return;
		}
		c->data = p;
		c->cap = cap;
	}
	memcpy(c->data + c->len, buf, want);
	c->len += want;
}

static void on_certain(void *ctx, const char *buf, size_t n)
{
	keep(ctx, buf, n);
}

static void stop(struct capture *c)
{
	loop_del(c->loop, &c->source);
	close_fd(&c->fd);
}

static void drain(struct capture *c, int turns)
{
	char buf[CHUNK];

	while (c->fd >= 0 && turns-- != 0) {
		ssize_t n = read(c->fd, buf, sizeof(buf));

		if (n > 0)
			redact_feed(&c->redact, buf, (size_t)n, false, on_certain, c);
		else if (n < 0 && errno == EINTR)
			continue;
		else if (n < 0 && errno == EAGAIN)
			return;
		else
			stop(c); /* the end; a terminal says EIO */
	}
}

static void on_ready(void *ctx, uint32_t events)
{
	struct capture *c = ctx;

	size_t before = c->len;

	drain(c, CHUNKS_PER_TURN);
	if (c->grew && c->len > before)
		c->grew(c->ctx);
	if (c->flood && c->flood_at && c->seen > c->flood_at) {
		c->flood_at = 0;
		c->flood(c->ctx);
	}
}

int capture_attach(struct capture *c, struct loop *l, size_t max, int fd, struct nsbox_error *err)
{
	int flags = fcntl(fd, F_GETFL);

	c->loop = l;
	c->fd = fd;
	c->max = max;
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "make a stream non-blocking");
	return loop_add(l, fd, EPOLLIN, on_ready, c, &c->source, err);
}

int capture_pipe(struct capture *c, struct loop *l, size_t max, int *ret_fd,
		 struct nsbox_error *err)
{
	auto_close int out = -1;
	int p[2], r;

	if (pipe2(p, O_CLOEXEC) < 0) {
		c->fd = -1;
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make a pipe");
	}
	out = p[1]; /* blocking: it is the program's */
	r = capture_attach(c, l, max, p[0], err);
	if (r == 0)
		*ret_fd = take_fd(&out);
	return r;
}

void capture_finish(struct capture *c)
{
	if (!c->loop)
		return;
	/* Bounded: as much as a pipe can hold, whoever still writes. */
	drain(c, 32);
	redact_feed(&c->redact, NULL, 0, true, on_certain, c);
	stop(c);
}

void capture_add(struct capture *c, const char *text, size_t len)
{
	if (c->loop)
		keep(c, text, len);
}

void capture_hide(struct capture *c, const struct input *hidden, size_t n)
{
	size_t len = 0;
	char *text = redact_text(hidden, n, c->data ? c->data : "", c->len, &len);

	if (c->data)
		explicit_bzero(c->data, c->len);
	free(c->data);
	len = text ? MIN(len, c->max) : 0;
	c->seen -= MIN(c->seen, c->len);
	c->seen += len;
	c->data = text;
	c->len = len;
	c->cap = len;
}

bool capture_truncated(const struct capture *c)
{
	return c->failed || c->seen > c->len;
}

void capture_done(struct capture *c)
{
	if (c->loop)
		stop(c);
	redact_done(&c->redact);
	free_ptr(&c->data);
	*c = (struct capture){ .fd = -1 };
}
