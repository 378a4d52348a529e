/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between our own descriptors and the sandbox's: bytes, signals, window sizes.
 *
 * The payload gets pipes, never our own stdout or stderr: a shared open file would let it set
 * flags, seek, or talk to our terminal. With a terminal of its own, we hold the master and our
 * terminal is raw meanwhile.
 *
 * This thread supervises the run as well, so it never blocks on a byte: each direction has one
 * buffer, a full one is not read into, and a write is made only where poll(2) has promised room.
 * Our own ends are non-blocking; descriptors that we share with others (0, 1, 2) are not ours to
 * change, so they get no more than PIPE_BUF at a time.
 */
#include "nsbox/cli/run.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>

#include "nsbox/util.h"

/* One direction: what was read from *src and not yet written to *dst. */
struct pump {
	int *src, *dst;
	bool own_dst;	/* ours alone: closed at the end of src, and written without a bound */
	uint64_t *left; /* bytes that may still pass; NULL: any number */
	bool *truncated;
	struct relay_buffer *kept;
	int *error;	    /* where a failure to write is noted, or NULL */
	struct relay *tail; /* whose tail hears of it, or NULL */
	char buf[65536];
	size_t at, len;
};

enum { OUT, ERR, TERMINAL, INPUT, PUMPS };

/* Places in the array for poll: of a pump's two ends, of the result, of the reader of our input. */
#define AT_SRC(i) (2 * (size_t)(i))
#define AT_DST(i) (AT_SRC(i) + 1)
#define AT_RESULT AT_SRC(PUMPS)
#define AT_READER AT_DST(PUMPS)
#define POLLED	  AT_SRC(PUMPS + 1)

static int keep(struct relay_buffer *b, const char *data, size_t n)
{
	size_t room = b->max - b->len;

	if (n > room) {
		b->truncated = true;
		n = room;
	}
	if (n) {
		char *p = realloc(b->data, b->len + n + 1);

		if (!p)
			return -ENOMEM;
		b->data = p;
		memcpy(p + b->len, data, n);
		b->len += n;
		p[b->len] = '\0';
	}
	return 0;
}

/* Keep the last bytes of what passes. */
static void keep_tail(struct relay *r, const char *data, size_t n)
{
	size_t drop;

	if (n > sizeof(r->tail)) {
		data += n - sizeof(r->tail);
		n = sizeof(r->tail);
	}
	drop = r->tail_len + n > sizeof(r->tail) ? r->tail_len + n - sizeof(r->tail) : 0;
	memmove(r->tail, r->tail + drop, r->tail_len - drop);
	memcpy(r->tail + r->tail_len - drop, data, n);
	r->tail_len += n - drop;
}

static void close_src(struct pump *p)
{
	/* Standard input stays open: it is not ours to close, only to stop reading. */
	if (*p->src > STDERR_FILENO)
		close_fd(p->src);
	*p->src = -1;
}

/* What is over the limit is read and dropped, so that the program goes on. */
static void fill(struct pump *p)
{
	ssize_t n = read(*p->src, p->buf, sizeof(p->buf));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) { /* EIO: the last slave of a terminal was closed */
		close_src(p);
		if (p->own_dst && p->dst)
			close_fd(p->dst);
		return;
	}
	p->at = 0;
	p->len = p->left ? MIN((uint64_t)n, *p->left) : (size_t)n;
	if (p->len < (size_t)n && p->truncated)
		*p->truncated = true;
	if (p->left && *p->left != UINT64_MAX)
		*p->left -= p->len;
	if (p->kept && p->kept->max)
		keep(p->kept, p->buf, p->len);
	if (p->tail)
		keep_tail(p->tail, p->buf, (size_t)n);
	if (!p->dst || *p->dst < 0)
		p->len = 0;
}

static void empty(struct pump *p)
{
	size_t most = p->own_dst ? p->len : MIN(p->len, (size_t)PIPE_BUF);
	ssize_t n = write(*p->dst, p->buf + p->at, most);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n < 0) { /* the reader has gone: so does the writer's */
		if (errno != EPIPE && p->error)
			*p->error = errno;
		p->len = 0;
		close_src(p);
		if (p->own_dst)
			close_fd(p->dst);
		return;
	}
	p->at += (size_t)n;
	p->len -= (size_t)n;
}

/* A terminal's input has no end of its own: the master stays. */
static void set_pumps(struct relay *r, struct pump *p)
{
	p[OUT] = (struct pump){ .src = &r->out,
				.dst = &r->to_out,
				.left = &r->out_left,
				.truncated = &r->out_truncated,
				.kept = &r->kept_out };
	p[ERR] = (struct pump){ .src = &r->err,
				.dst = &r->to_err,
				.left = &r->err_left,
				.truncated = &r->err_truncated,
				.kept = &r->kept_err,
				.tail = r };
	p[TERMINAL] = (struct pump){ .src = &r->master, .dst = &r->to_out, .tail = r };
	p[OUT].error = p[ERR].error = p[TERMINAL].error = &r->write_error;
	p[INPUT] = (struct pump){ .src = &r->from,
				  .dst = r->tty ? &r->master : &r->in,
				  .own_dst = !r->tty };
}

static void non_blocking(int fd)
{
	if (fd >= 0)
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static void copy_size(struct relay *r)
{
	struct winsize size;

	if (r->master >= 0 && ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0)
		ioctl(r->master, TIOCSWINSZ, &size);
}

/* True where we were told to end. */
static bool on_signal(struct relay *r, int signals)
{
	struct signalfd_siginfo info;
	bool end = false;

	while (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		switch (info.ssi_signo) {
		case SIGWINCH: copy_size(r); break;
		case SIGTERM: /* who ends us ends the run: TERM to all of it, grace, KILL */
		case SIGHUP:
			nsbox_sandbox_kill(r->sb, 0, NSBOX_CAUSE_CANCELLED, 0, NULL);
			end = true;
			break;
		default: nsbox_sandbox_kill(r->sb, 0, 0, (int)info.ssi_signo, NULL); break;
		}
	}
	return end;
}

/* 1: over. */
static int on_event(struct relay *r, struct nsbox_result *ret, struct nsbox_error *err)
{
	struct nsbox_event ev;

	for (;;) {
		int n = nsbox_sandbox_next(r->sb, 0, &ev, err);

		if (n < 0)
			return n;
		switch (ev.kind) {
		case NSBOX_EVENT_NONE: return 0;
		case NSBOX_EVENT_TERMINAL:
			close_fd(&r->master);
			r->master = ev.fd;
			non_blocking(r->master);
			copy_size(r);
			break;
		case NSBOX_EVENT_LISTENERS:
			n = run_egress_listeners(r->egress, r->sb, err);
			if (n < 0)
				return n;
			break;
		case NSBOX_EVENT_EXITED:
		case NSBOX_EVENT_FAILED: *ret = ev.result; return 1;
		case NSBOX_EVENT_GONE:
			return nsbox_fail(err, NSBOX_E_PROTOCOL, 0, "the sandbox went away");
		default: break;
		}
	}
}

/* Let every pump that poll found ready move on. */
static void move(struct relay *r, struct pump *pumps, const struct pollfd *p)
{
	for (int i = 0; i < PUMPS; i++) {
		struct pump *pump = &pumps[i];

		if (pump->len && p[AT_DST(i)].revents)
			empty(pump);
		else if (!pump->len && p[AT_SRC(i)].revents && *pump->src >= 0)
			fill(pump);
	}
	/* A pipe whose reader is gone shows that and nothing else. */
	if (p[AT_READER].revents & (POLLERR | POLLHUP)) {
		close_fd(&r->in);
		pumps[INPUT].len = 0;
	}
	if (p[AT_RESULT].revents) {
		char buf[65536];
		ssize_t n = read(r->result, buf, sizeof(buf));

		if (n > 0)
			keep(&r->kept_result, buf, (size_t)n);
		else if (n == 0 || (errno != EINTR && errno != EAGAIN))
			close_fd(&r->result);
	}
}

/* What to wait for: room where something is pending, else something to read. */
static void want(const struct relay *r, const struct pump *pumps, struct pollfd *p)
{
	for (int i = 0; i < PUMPS; i++) {
		bool pending = pumps[i].len > 0;
		bool open = *pumps[i].dst >= 0 || i != INPUT;

		p[AT_SRC(i)] = (struct pollfd){ pending || !open ? -1 : *pumps[i].src, POLLIN, 0 };
		p[AT_DST(i)] = (struct pollfd){ pending ? *pumps[i].dst : -1, POLLOUT, 0 };
	}
	p[AT_RESULT] = (struct pollfd){ r->result, POLLIN, 0 };
	p[AT_READER] = (struct pollfd){ r->in, 0, 0 };
}

static bool drained(const struct relay *r, const struct pump *pumps)
{
	for (int i = OUT; i <= TERMINAL; i++)
		if (pumps[i].len || *pumps[i].src >= 0)
			return false;
	return r->result < 0;
}

/*
 * The run is over and every writer dead, so what is left in the pipes ends; our own reader may
 * still be slow. Being told to end ends the waiting for it. A terminal with nothing more to read
 * gives EIO.
 */
static void drain(struct relay *r, struct pump *pumps, int signals)
{
	r->from = -1;
	pumps[INPUT].len = 0;
	while (!drained(r, pumps)) {
		struct pollfd p[POLLED + 1];

		want(r, pumps, p);
		p[POLLED] = (struct pollfd){ signals, POLLIN, 0 };
		if (poll(p, POLLED + 1, -1) < 0 && errno != EINTR)
			return;
		move(r, pumps, p);
		if (p[POLLED].revents && on_signal(r, signals))
			return;
	}
}

static int loop(struct relay *r, int signals, struct nsbox_result *ret, struct nsbox_error *err)
{
	struct pump *pumps = calloc(PUMPS, sizeof(*pumps));
	int done = 0;

	if (!pumps)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "relay the run's bytes");
	set_pumps(r, pumps);
	while (!done) {
		struct pollfd p[POLLED + 3];

		want(r, pumps, p);
		p[POLLED] = (struct pollfd){ nsbox_sandbox_fd(r->sb), POLLIN, 0 };
		p[POLLED + 1] = (struct pollfd){ signals, POLLIN, 0 };
		p[POLLED + 2] = (struct pollfd){ r->egress->sock, POLLIN, 0 };
		if (poll(p, POLLED + 3, -1) < 0) {
			if (errno == EINTR)
				continue;
			done = nsbox_fail(err, NSBOX_E_IO, errno, "wait for the sandbox");
			break;
		}
		move(r, pumps, p);
		if (p[POLLED + 1].revents)
			on_signal(r, signals);
		if (p[POLLED + 2].revents)
			run_egress_read(r->egress);
		if (p[POLLED].revents)
			done = on_event(r, ret, err);
	}
	if (done > 0)
		drain(r, pumps, signals);
	free(pumps);
	return done < 0 ? done : 0;
}

static int make_raw(struct termios *saved)
{
	struct termios raw;

	if (tcgetattr(STDIN_FILENO, saved) < 0)
		return -errno;
	raw = *saved;
	cfmakeraw(&raw);
	return tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) < 0 ? -errno : 0;
}

int relay_run(struct relay *r, struct nsbox_result *ret, struct nsbox_error *err)
{
	static const int passed[] = {
		SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH
	};
	struct termios saved;
	sigset_t set, old;
	auto_close int signals = -1;
	bool raw;
	int n;

	sigemptyset(&set);
	for (unsigned i = 0; i < ARRAY_SIZE(passed); i++)
		sigaddset(&set, passed[i]);
	sigprocmask(SIG_BLOCK, &set, &old);
	signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make a signalfd");
	non_blocking(r->in);
	non_blocking(r->out);
	non_blocking(r->err);
	non_blocking(r->result);
	raw = r->tty && make_raw(&saved) == 0;
	n = loop(r, signals, ret, err);
	if (raw)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
	sigprocmask(SIG_SETMASK, &old, NULL);
	return n;
}

void relay_done(struct relay *r)
{
	close_fd(&r->in);
	close_fd(&r->out);
	close_fd(&r->err);
	close_fd(&r->result);
	close_fd(&r->master);
	free(r->kept_out.data);
	free(r->kept_err.data);
	free(r->kept_result.data);
}
