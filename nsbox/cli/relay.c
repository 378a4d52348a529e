/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between our own descriptors and the sandbox's: bytes, signals, window sizes.
 *
 * The payload gets pipes, never our own stdout or stderr: a shared open file would let it set
 * flags, seek, or talk to our terminal. With a terminal of its own, we hold the master and our
 * terminal is raw meanwhile.
 */
#include "nsbox/cli/run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>

#include "nsbox/util.h"

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

/* Pass on what one read gives; closes *fd at its end. What is over the limit is read and dropped,
 * so that the program goes on. */
static void pass(struct relay *tail, int *fd, int to, uint64_t *left, bool *truncated,
		 struct relay_buffer *kept)
{
	char buf[65536];
	ssize_t n = read(*fd, buf, sizeof(buf));
	size_t send;

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) { /* EIO: the last slave of a terminal was closed */
		close_fd(fd);
		return;
	}
	send = left ? MIN((uint64_t)n, *left) : (size_t)n;
	if (send < (size_t)n && truncated)
		*truncated = true;
	if (left && *left != UINT64_MAX)
		*left -= send;
	if (kept && kept->max)
		keep(kept, buf, send);
	if (tail)
		keep_tail(tail, buf, (size_t)n);
	if (to >= 0 && send && write_full(to, buf, send) == -EPIPE)
		close_fd(fd); /* our reader has gone: so does the program's */
}

static void feed(struct relay *r, int *to)
{
	char buf[65536];
	ssize_t n = read(r->from, buf, sizeof(buf));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0 || write_full(*to, buf, (size_t)n) < 0) {
		if (!r->tty)
			close_fd(to);
		r->from = -1;
	}
}

static void copy_size(struct relay *r)
{
	struct winsize size;

	if (r->master >= 0 && ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0)
		ioctl(r->master, TIOCSWINSZ, &size);
}

static void on_signal(struct relay *r, int signals)
{
	struct signalfd_siginfo info;

	while (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		switch (info.ssi_signo) {
		case SIGWINCH: copy_size(r); break;
		case SIGTERM: /* who ends us ends the run: TERM to all of it, grace, KILL */
		case SIGHUP: nsbox_sandbox_kill(r->sb, NSBOX_CAUSE_CANCELLED, 0, NULL); break;
		default: nsbox_sandbox_kill(r->sb, 0, (int)info.ssi_signo, NULL); break;
		}
	}
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
			copy_size(r);
			break;
		case NSBOX_EVENT_EXITED:
		case NSBOX_EVENT_FAILED: *ret = ev.result; return 1;
		case NSBOX_EVENT_GONE:
			return nsbox_fail(err, NSBOX_E_PROTOCOL, 0, "the sandbox went away");
		default: break;
		}
	}
}

static void drain(struct relay *r)
{
	/* Every writer is dead, so these end; a terminal's rest is read until EIO. */
	if (r->master >= 0)
		fcntl(r->master, F_SETFL, O_NONBLOCK);
	while (r->master >= 0) {
		int before = r->master;
		struct pollfd p = { .fd = r->master, .events = POLLIN };

		if (poll(&p, 1, 0) <= 0)
			break;
		pass(r, &r->master, r->to_out, NULL, NULL, NULL);
		if (r->master == before && !(p.revents & POLLIN))
			break;
	}
	while (r->out >= 0)
		pass(NULL, &r->out, r->to_out, &r->out_left, &r->out_truncated, &r->kept_out);
	while (r->err >= 0)
		pass(r, &r->err, r->to_err, &r->err_left, &r->err_truncated, &r->kept_err);
	while (r->result >= 0)
		pass(NULL, &r->result, -1, NULL, NULL, &r->kept_result);
}

static int loop(struct relay *r, int signals, struct nsbox_result *ret, struct nsbox_error *err)
{
	for (;;) {
		int *to = r->tty ? &r->master : &r->in;
		struct pollfd p[] = {
			{ nsbox_sandbox_fd(r->sb), POLLIN, 0 },
			{ signals, POLLIN, 0 },
			{ r->out, POLLIN, 0 },
			{ r->err, POLLIN, 0 },
			{ r->result, POLLIN, 0 },
			{ r->master, POLLIN, 0 },
			{ *to >= 0 ? r->from : -1, POLLIN, 0 },
			/* the reader of a pipe going away shows here and nowhere else */
			{ r->in, 0, 0 },
		};
		int done = 0;

		if (poll(p, ARRAY_SIZE(p), -1) < 0 && errno != EINTR)
			return nsbox_fail(err, NSBOX_E_IO, errno, "wait for the sandbox");
		if (p[2].revents)
			pass(NULL, &r->out, r->to_out, &r->out_left, &r->out_truncated,
			     &r->kept_out);
		if (p[3].revents)
			pass(r, &r->err, r->to_err, &r->err_left, &r->err_truncated, &r->kept_err);
		if (p[4].revents)
			pass(NULL, &r->result, -1, NULL, NULL, &r->kept_result);
		if (p[5].revents)
			pass(r, &r->master, r->to_out, NULL, NULL, NULL);
		if (p[7].revents & (POLLERR | POLLHUP))
			close_fd(&r->in);
		else if (p[6].revents)
			feed(r, to);
		if (p[1].revents)
			on_signal(r, signals);
		if (p[0].revents)
			done = on_event(r, ret, err);
		if (done < 0)
			return done;
		if (done) {
			drain(r);
			return 0;
		}
	}
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
