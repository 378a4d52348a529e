/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standard input that comes piece by piece.
 *
 * Pieces wait in memory until the pipe takes them, from before the program runs. A sender that is
 * faster than the program is told so once WAITING_MAX bytes wait; a single piece may be larger.
 */
#include "daemon/front/feed.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "nsbox/util.h"

#define WAITING_MAX	((size_t)1 << 20)
#define WRITES_PER_TURN 16

struct feed_piece {
	struct feed_piece *next;
	char *data;
	size_t len, at;
};

void feed_init(struct feed *f, struct loop *l)
{
	*f = (struct feed){ .loop = l, .fd = -1 };
	f->last = &f->first;
}

static void drop_first(struct feed *f)
{
	struct feed_piece *p = f->first;

	f->first = p->next;
	if (!f->first)
		f->last = &f->first;
	f->waiting -= p->len - p->at;
	free(p->data);
	free(p);
}

static void stop(struct feed *f)
{
	loop_del(f->loop, &f->source);
	close_fd(&f->fd);
	while (f->first)
		drop_first(f);
}

/* True: go on; false: the pipe is full, or all is written. */
static bool write_some(struct feed *f)
{
	struct feed_piece *p = f->first;
	ssize_t n;

	if (!p) {
		if (f->ended)
			stop(f);
		return false;
	}
	n = write(f->fd, p->data + p->at, p->len - p->at);
	if (n < 0 && errno == EINTR)
		return true;
	if (n < 0 && errno != EAGAIN) {
		f->dead = true; /* nobody reads: as a pipe to a program that ended */
		stop(f);
	}
	if (n < 0)
		return false;
	p->at += (size_t)n;
	f->waiting -= (size_t)n;
	if (p->at == p->len)
		drop_first(f);
	return true;
}

static void flush(struct feed *f)
{
	for (int i = 0; i < WRITES_PER_TURN && f->fd >= 0; i++)
		if (!write_some(f))
			break;
	/* Wait for room only where something waits for it: a pipe with room is always ready. */
	if (f->fd >= 0)
		loop_change(f->loop, f->source, f->first || f->ended ? EPOLLOUT : 0);
}

static void on_ready(void *ctx, uint32_t events)
{
	struct feed *f = ctx;

	if (events & (EPOLLERR | EPOLLHUP)) { /* the last reader is gone */
		f->dead = true;
		stop(f);
		return;
	}
	flush(f);
}

/* Takes fd. */
static int attach(struct feed *f, int fd, struct nsbox_error *err)
{
	int r, flags = fcntl(fd, F_GETFL);

	f->fd = fd;
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "make a stream non-blocking");
	r = loop_add(f->loop, f->fd, 0, on_ready, f, &f->source, err);
	if (r == 0)
		flush(f);
	return r;
}

int feed_terminal(struct feed *f, int master, struct nsbox_error *err)
{
	int fd = fcntl(master, F_DUPFD_CLOEXEC, 0);

	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "write to a terminal");
	return attach(f, fd, err);
}

int feed_open(struct feed *f, int *ret_fd, struct nsbox_error *err)
{
	auto_close int in = -1;
	int p[2], r;

	if (pipe2(p, O_CLOEXEC) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make a pipe for standard input");
	in = p[0]; /* blocking: it is the program's */
	r = attach(f, p[1], err);
	if (r < 0)
		return r;
	*ret_fd = take_fd(&in);
	return 0;
}

/* Takes data if it returns 0. */
static int append(struct feed *f, char *data, size_t len)
{
	struct feed_piece *p = data ? calloc(1, sizeof(*p)) : NULL;

	if (!p)
		return -ENOMEM;
	*p = (struct feed_piece){ .data = data, .len = len };
	*f->last = p;
	f->last = &p->next;
	f->waiting += len;
	return 0;
}

static int append_end(struct feed *f)
{
	static const char typed[] = "\4";
	char *end = f->terminal ? strdup(typed) : NULL;
	int r = f->terminal ? append(f, end, sizeof(typed) - 1) : 0;

	if (r < 0)
		free(end);
	f->ended = r == 0;
	return r;
}

int feed_push(struct feed *f, char *data, size_t len)
{
	int r = f->ended || f->dead ? -EPIPE : len && f->waiting > WAITING_MAX ? -EAGAIN : 0;

	if (r == 0)
		r = len ? append(f, data, len) : append_end(f);
	if (r < 0 || !len)
		free(data);
	if (r == 0 && f->fd >= 0)
		flush(f);
	return r;
}

void feed_done(struct feed *f)
{
	if (!f->loop)
		return;
	f->dead = true;
	stop(f);
}
