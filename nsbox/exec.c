/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving a sandbox work: exec requests, signals, collecting files. Everything goes to init over the
 * control socket; what comes of it supervise.c hears.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "nsbox/sandbox_private.h"
#include "nsbox/util.h"

/* ------------------------------------------------------------------ exec */

int nsbox_exec_encode(const struct nsbox_exec *ex, int *ret_fd, struct nsbox_error *err)
{
	struct exec_fixed f = { .wall_ms = ex->wall_ms,
				.tty_rows = ex->tty_rows,
				.tty_cols = ex->tty_cols };
	struct blob_builder *b = blob_new(EXEC_MAGIC);
	int r;

	if (!b)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "encode an exec request");
	f.flags = (ex->tty ? EXECF_TTY : 0) | (ex->keep_rest ? 0 : EXECF_KILL_REST);
	f.cwd = blob_str(b, ex->cwd);
	for (const char *const *a = ex->argv; *a; a++) {
		str_off off = blob_str(b, *a);

		blob_append(b, SEC_ARGV, &off, sizeof(off));
	}
	for (const char *const *e = ex->env; e && *e; e++) {
		str_off off = blob_str(b, *e);

		blob_append(b, SEC_ENV, &off, sizeof(off));
	}
	blob_append(b, SEC_FIXED, &f, sizeof(f));
	r = blob_seal(b, "nsbox-exec", ret_fd, err);
	blob_free(b);
	return r;
}

static int null_fd(void)
{
	return open("/dev/null", O_RDWR | O_CLOEXEC);
}

/* Flags for the payload, from the request and from which descriptors are given. */
static uint32_t exec_flags(const struct blob *b, const struct nsbox_io *io)
{
	uint32_t flags = blob_fixed(b, struct exec_fixed)->flags;

	flags &= ~(uint32_t)(EXECF_FD3 | EXECF_FD4);
	return flags | (io->request >= 0 ? EXECF_FD3 : 0) | (io->result >= 0 ? EXECF_FD4 : 0);
}

static int send_exec(struct nsbox_sandbox *sb, int blob_fd, uint32_t flags,
		     const struct nsbox_io *io, struct nsbox_error *err)
{
	struct ctl_request req = {
		.magic = CTL_MAGIC, .kind = CTL_EXEC, .id = sb->exec_id + 1, .flags = flags
	};
	int pair[2], fds[CTL_FDS_MAX], r, on = 1;
	unsigned n = 0;
	auto_close int null = null_fd(), theirs = -1;

	if (null < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open /dev/null");
	r = ctl_pair(pair);
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, r, "make the channel of an exec");
	close_fd(&sb->channel);
	sb->channel = pair[0];
	theirs = pair[1];
	setsockopt(sb->channel, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
	fds[n++] = blob_fd;
	fds[n++] = theirs;
	fds[n++] = io->in >= 0 ? io->in : null;
	fds[n++] = io->out >= 0 ? io->out : null;
	fds[n++] = io->err >= 0 ? io->err : null;
	if (flags & EXECF_FD3)
		fds[n++] = io->request;
	if (flags & EXECF_FD4)
		fds[n++] = io->result;
	r = sandbox_watch(sb, sb->channel, supervise_channel, err);
	if (r < 0)
		return r;
	r = ctl_send(sb->control, &req, sizeof(req), fds, n);
	/* Init has ended. Why it did is on its way, as an event, and says more than this would. */
	if (r == -EPIPE || r == -ECONNRESET)
		return 0;
	return r < 0 ? nsbox_fail(err, NSBOX_E_PROTOCOL, r, "reach the sandbox's init") : 0;
}

int nsbox_sandbox_exec_blob(struct nsbox_sandbox *sb, int blob_fd, const struct nsbox_io *io,
			    uint32_t *ret_id, struct nsbox_error *err)
{
	const struct exec_fixed *x;
	struct blob b = { 0 };
	uint64_t wall_ms;
	uint32_t flags;
	int r;

	if (sb->phase != PHASE_SETUP && sb->phase != PHASE_IDLE)
		return nsbox_fail(err, NSBOX_E_INVALID, EBUSY,
				  "the sandbox cannot take an exec now");
	r = blob_map(blob_fd, EXEC_MAGIC, &b, err);
	if (r < 0)
		return r;
	x = blob_fixed(&b, struct exec_fixed);
	/* The plan's limit is the most there is; a request may only shorten it. */
	wall_ms = sb->fixed->limits.wall_ms;
	if (x->wall_ms && (!wall_ms || x->wall_ms < wall_ms))
		wall_ms = x->wall_ms;
	flags = exec_flags(&b, io);
	blob_unmap(&b);

	r = send_exec(sb, blob_fd, flags, io, err);
	if (r < 0)
		return r;
	sb->exec_id++;
	sb->keep_rest = !(flags & EXECF_KILL_REST);
	sb->wall_us = wall_ms * 1000;
	sb->stop_cause = NSBOX_CAUSE_NONE;
	sb->witness_seen = 0;
	sb->started_us = 0;
	sb->watch_peak = sb->watch_kills = 0;
	sb->watch_files = sb->watch_memfds = sb->watch_round = 0;
	memset(&sb->start_error, 0, sizeof(sb->start_error));
	memset(&sb->usage_before, 0, sizeof(sb->usage_before));
	if (sb->exec_id > 1)
		cgroup_usage(&sb->cg, &sb->usage_before);
	supervise_enter(sb, PHASE_START, 30000000);
	if (ret_id)
		*ret_id = sb->exec_id;
	return 0;
}

int nsbox_sandbox_exec(struct nsbox_sandbox *sb, const struct nsbox_exec *ex,
		       const struct nsbox_io *io, uint32_t *ret_id, struct nsbox_error *err)
{
	auto_close int fd = -1;
	int r = nsbox_exec_encode(ex, &fd, err);

	return r < 0 ? r : nsbox_sandbox_exec_blob(sb, fd, io, ret_id, err);
}

int nsbox_sandbox_kill(struct nsbox_sandbox *sb, int cause, int signal, struct nsbox_error *err)
{
	int r;

	if (!signal)
		return supervise_stop(sb, cause, err);
	r = supervise_signal(sb, signal, false);
	return r < 0 ? nsbox_fail(err, NSBOX_E_PROTOCOL, r, "reach the sandbox's init") : 0;
}

/* ------------------------------------------------------------------ collect */

int nsbox_sandbox_collect(struct nsbox_sandbox *sb, const char *base,
			  const struct nsbox_output *rules, unsigned n, int out_fd,
			  struct nsbox_error *err)
{
	struct ctl_request req = { .magic = CTL_MAGIC, .kind = CTL_COLLECT, .rules = n };
	int r;

	if (sb->phase != PHASE_IDLE)
		return nsbox_fail(err, NSBOX_E_INVALID, EBUSY, "files are collected between runs");
	if (n > CTL_OUTPUTS_MAX)
		return nsbox_fail(err, NSBOX_E_LIMIT, E2BIG, "at most %d globs", CTL_OUTPUTS_MAX);
	if (base && nsbox_format(req.base, sizeof(req.base), "%s", base) != (int)strlen(base))
		return nsbox_fail(err, NSBOX_E_LIMIT, ENAMETOOLONG, "collect below '%s'", base);
	for (unsigned i = 0; i < n; i++) {
		struct ctl_rule *to = &req.rule[i];

		if (nsbox_format(to->glob, sizeof(to->glob), "%s", rules[i].glob) !=
		    (int)strlen(rules[i].glob))
			return nsbox_fail(err, NSBOX_E_LIMIT, ENAMETOOLONG, "collect '%s'",
					  rules[i].glob);
		to->max_bytes = rules[i].max_bytes;
		to->max_files = rules[i].max_files;
	}
	r = ctl_send(sb->control, &req, sizeof(req), &out_fd, 1);
	return r < 0 ? nsbox_fail(err, NSBOX_E_PROTOCOL, r, "reach the sandbox's init") : 0;
}
