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

/* Of a plan that allows less: what can hold for one program of a sandbox, and its variables. */
static void encode_narrower(struct blob_builder *b, const struct blob *plan, struct exec_fixed *f)
{
	const struct plan_fixed *p = blob_fixed(plan, struct plan_fixed);
	size_t n;
	const void *insns = blob_get(plan, SEC_BPF, sizeof(struct sock_filter), &n);
	const struct landlock_rule *rules;
	const str_off *env;

	f->flags |= EXECF_NARROW;
	f->narrow = (struct exec_narrow){ .landlock_fs = p->landlock_fs,
					  .landlock_net = p->landlock_net,
					  .file_size = p->limits.file_size,
					  .cpu_ms = p->limits.cpu_ms,
					  .open_files = p->limits.open_files };
	if (p->limits.wall_ms && (!f->wall_ms || p->limits.wall_ms < f->wall_ms))
		f->wall_ms = p->limits.wall_ms;
	blob_append(b, SEC_BPF, insns, n * sizeof(struct sock_filter));
	rules = blob_get(plan, SEC_LANDLOCK, sizeof(*rules), &n);
	for (size_t i = 0; i < n; i++) {
		struct landlock_rule rule = rules[i];

		rule.path = blob_str(b, blob_get_str(plan, rule.path));
		blob_append(b, SEC_LANDLOCK, &rule, sizeof(rule));
	}
	env = blob_get(plan, SEC_ENV, sizeof(*env), &n);
	for (size_t i = 0; i < n; i++) {
		str_off off = blob_str(b, blob_get_str(plan, env[i]));

		blob_append(b, SEC_ENV, &off, sizeof(off));
	}
}

int nsbox_exec_encode(const struct nsbox_exec *ex, int *ret_fd, struct nsbox_error *err)
{
	struct exec_fixed f = { .wall_ms = ex->wall_ms,
				.tty_rows = ex->tty_rows,
				.tty_cols = ex->tty_cols };
	struct blob_builder *b = blob_new(EXEC_MAGIC);
	int r;

	if (!b)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "encode an exec request");
	f.flags = (ex->tty ? EXECF_TTY : 0) | (ex->keep_rest ? 0 : EXECF_KILL_REST) |
		  (ex->waits ? EXECF_WAITS : 0);
	f.cwd = blob_str(b, ex->cwd);
	if (ex->narrower)
		encode_narrower(b, plan_blob(ex->narrower), &f);
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

	flags &= ~(uint32_t)(EXECF_FD3 | EXECF_FD4 | EXECF_TRACE | EXECF_JOINS);
	return flags | (io->request >= 0 ? EXECF_FD3 : 0) | (io->result >= 0 ? EXECF_FD4 : 0);
}

/* ------------------------------------------------------------------ the list */

struct exec *exec_find(struct nsbox_sandbox *sb, uint32_t id)
{
	for (struct exec *ex = sb->execs; ex; ex = ex->next)
		if (ex->id == id)
			return ex;
	return NULL;
}

static void exec_done(struct nsbox_sandbox *sb, struct exec *ex)
{
	cgroup_leaf_release(&sb->cg, ex->leaf);
	observe_forget(ex);
	free(ex->filter);
	close_fd(&ex->channel); /* and so out of the epoll set */
	close_fd(&ex->leader_fd);
	free(ex);
}

void exec_free(struct nsbox_sandbox *sb, struct exec *ex)
{
	for (struct exec **p = &sb->execs; *p; p = &(*p)->next) {
		if (*p == ex) {
			*p = ex->next;
			sb->running--;
			break;
		}
	}
	exec_done(sb, ex);
}

/* What is asked for fits with what runs already. */
static int check_room(const struct nsbox_sandbox *sb, bool keep_rest, struct nsbox_error *err)
{
	unsigned max = sb->opt.execs ? MIN(sb->opt.execs, CTL_EXECS_MAX) : NSBOX_EXECS_DEFAULT;

	if (sb->phase == PHASE_OVER)
		return nsbox_fail(err, NSBOX_E_INVALID, EBUSY, "the sandbox is over");
	if (sb->running >= max)
		return nsbox_fail(err, NSBOX_E_LIMIT, EBUSY, "%u programs run in the sandbox",
				  sb->running);
	for (const struct exec *ex = sb->execs; ex; ex = ex->next)
		if (!ex->keep_rest || !keep_rest)
			return nsbox_fail(err, NSBOX_E_INVALID, EBUSY,
					  "a program that ends everything else runs alone");
	return 0;
}

static struct exec *exec_new(struct nsbox_sandbox *sb, const struct exec_fixed *x)
{
	uint64_t wall_ms = sb->fixed->limits.wall_ms;
	struct exec *ex = calloc(1, sizeof(*ex));

	if (!ex)
		return NULL;
	/* The plan's limit is the most there is; a request may only shorten it. */
	if (x->wall_ms && (!wall_ms || x->wall_ms < wall_ms))
		wall_ms = x->wall_ms;
	ex->id = sb->last_id + 1;
	ex->asked_us = monotonic_us();
	ex->keep_rest = !(x->flags & EXECF_KILL_REST);
	ex->waits = x->flags & EXECF_WAITS;
	ex->wall_us = wall_ms * 1000;
	ex->channel = ex->leader_fd = ex->prober = -1;
	ex->leaf = CGROUP_NO_LEAF;
	return ex;
}

/* The observer answers for the filter that the program has, which is the request's where it has one. */
static int keep_filter(struct nsbox_sandbox *sb, struct exec *ex, const struct blob *b,
		       struct nsbox_error *err)
{
	const struct sock_filter *filter = blob_get(b, SEC_BPF, sizeof(*filter), &ex->insns);

	if (!ex->insns)
		return 0;
	if (sb->process)
		return nsbox_fail(err, NSBOX_E_UNSUPPORTED, 0,
				  "in the tier 'process' a program has the rules of its sandbox "
				  "and no narrower ones: make another sandbox");
	ex->filter = calloc(ex->insns, sizeof(*filter));
	if (!ex->filter)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "run a program");
	memcpy(ex->filter, filter, ex->insns * sizeof(*filter));
	return 0;
}

/* Once there are leaves a program needs one: version 2 knows no group that has both. */
static int take_leaf(struct nsbox_sandbox *sb, struct exec *ex, struct nsbox_error *err)
{
	int r = 0;

	if (sb->cg.kind != NSBOX_CGROUP_NONE && (ex->keep_rest || sb->cg.leaves))
		r = cgroup_leaf_take(&sb->cg, &ex->leaf, err);
	if (r == 0 && ex->id > 1)
		cgroup_usage(&sb->cg, ex->leaf, &ex->before);
	return r;
}

/* ------------------------------------------------------------------ sending */

static int open_channel(struct nsbox_sandbox *sb, struct exec *ex, int *ret_theirs,
			struct nsbox_error *err)
{
	int pair[2], on = 1, r = ctl_pair(pair);

	if (r < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, r, "make the channel of an exec");
	ex->channel = pair[0];
	*ret_theirs = pair[1];
	setsockopt(ex->channel, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
	return sandbox_watch(sb, ex->channel, WATCH_EXEC, ex->id, err);
}

static int send_exec(struct nsbox_sandbox *sb, struct exec *ex, int blob_fd, uint32_t flags,
		     const struct nsbox_io *io, struct nsbox_error *err)
{
	struct ctl_request req = {
		.magic = CTL_MAGIC, .kind = CTL_EXEC, .id = ex->id, .flags = flags
	};
	int fds[CTL_FDS_MAX], join[CG_CONTROLLERS], r;
	unsigned n = 0;
	bool joins = sb->cg.kind == NSBOX_CGROUP_V1;
	bool any_null = io->in < 0 || io->out < 0 || io->err < 0;
	auto_close int null = any_null ? null_fd() : -1, theirs = -1, prober = -1;

	if (any_null && null < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open /dev/null");
	r = open_channel(sb, ex, &theirs, err);
	if (r == 0 && io->trace > 0)
		r = observe_trace(sb, ex, io->trace, &prober, err);
	if (r == 0 && joins)
		r = cgroup_open_join(&sb->cg, ex->leaf, join, err);
	if (r < 0)
		return r;
	req.flags |= (prober >= 0 ? EXECF_TRACE : 0) | (joins ? EXECF_JOINS : 0);
	fds[n++] = blob_fd;
	fds[n++] = theirs;
	fds[n++] = io->in >= 0 ? io->in : null;
	fds[n++] = io->out >= 0 ? io->out : null;
	fds[n++] = io->err >= 0 ? io->err : null;
	if (flags & EXECF_FD3)
		fds[n++] = io->request;
	if (flags & EXECF_FD4)
		fds[n++] = io->result;
	if (prober >= 0)
		fds[n++] = prober;
	for (int i = 0; joins && i < CG_CONTROLLERS; i++)
		fds[n++] = join[i];
	r = ctl_send(sb->control, &req, sizeof(req), fds, n);
	for (int i = 0; joins && i < CG_CONTROLLERS; i++)
		close_fd(&join[i]);
	/* Init has ended. Why it did is on its way, as an event, and says more than this would. */
	if (r == -EPIPE || r == -ECONNRESET)
		return 0;
	return r < 0 ? nsbox_fail(err, NSBOX_E_PROTOCOL, r, "reach the sandbox's init") : 0;
}

int nsbox_sandbox_exec_blob(struct nsbox_sandbox *sb, int blob_fd, const struct nsbox_io *io,
			    uint32_t *ret_id, struct nsbox_error *err)
{
	struct blob b = { 0 };
	struct exec *ex;
	uint32_t flags;
	int r = blob_map(blob_fd, EXEC_MAGIC, &b, err);

	if (r < 0)
		return r;
	flags = exec_flags(&b, io);
	if (sb->process && (flags & EXECF_TTY)) {
		blob_unmap(&b);
		return nsbox_fail(
			err, NSBOX_E_UNSUPPORTED, 0,
			"the tier 'process' has no terminals of its own: run it without one");
	}
	ex = exec_new(sb, blob_fixed(&b, struct exec_fixed));
	r = ex ? keep_filter(sb, ex, &b, err) : -ENOMEM;
	blob_unmap(&b);
	if (!ex)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "run a program");
	if (r == 0)
		r = check_room(sb, ex->keep_rest, err);
	if (r == 0)
		r = take_leaf(sb, ex, err);
	if (r == 0)
		r = send_exec(sb, ex, blob_fd, flags, io, err);
	if (r < 0) {
		exec_done(sb, ex);
		return r;
	}
	ex->next = sb->execs;
	sb->execs = ex;
	sb->running++;
	sb->last_id = ex->id;
	sb->kept = sb->kept || ex->keep_rest;
	if (!ex->keep_rest)
		sb->watch_peak = sb->watch_files = sb->watch_memfds = sb->watch_round = 0;
	stop_enter(sb, ex, EXEC_START, 30000000);
	if (ret_id)
		*ret_id = ex->id;
	return 0;
}

int nsbox_sandbox_exec(struct nsbox_sandbox *sb, const struct nsbox_exec *ex,
		       const struct nsbox_io *io, uint32_t *ret_id, struct nsbox_error *err)
{
	auto_close int fd = -1;
	int r = nsbox_exec_encode(ex, &fd, err);

	return r < 0 ? r : nsbox_sandbox_exec_blob(sb, fd, io, ret_id, err);
}

int nsbox_sandbox_kill(struct nsbox_sandbox *sb, uint32_t id, int cause, int signal,
		       struct nsbox_error *err)
{
	unsigned found = 0;
	int r = 0;

	for (struct exec *ex = sb->execs; ex; ex = ex->next) {
		if (id && ex->id != id)
			continue;
		found++;
		if (!signal)
			stop_exec(sb, ex, cause);
		else if (r == 0)
			r = stop_signal(sb, ex, signal, false);
	}
	if (!found)
		return nsbox_fail(err, NSBOX_E_INVALID, ESRCH, "nothing is running");
	return r < 0 ? nsbox_fail(err, NSBOX_E_PROTOCOL, r, "reach the sandbox's init") : 0;
}

int nsbox_sandbox_begin(struct nsbox_sandbox *sb, uint32_t id, struct nsbox_error *err)
{
	struct exec *ex = exec_find(sb, id);

	if (!ex || !ex->waits)
		return nsbox_fail(err, NSBOX_E_INVALID, ESRCH, "no such program waits");
	ex->waits = false;
	if (ex->phase == EXEC_RUN) { /* else its time begins with its start, as any other's */
		ex->began_us = monotonic_us();
		stop_enter(sb, ex, EXEC_RUN, ex->wall_us);
	}
	return 0;
}

/* ------------------------------------------------------------------ collect */

int nsbox_sandbox_collect(struct nsbox_sandbox *sb, const char *base,
			  const struct nsbox_output *rules, unsigned n, int out_fd,
			  struct nsbox_error *err)
{
	struct ctl_request req = { .magic = CTL_MAGIC, .kind = CTL_COLLECT, .rules = n };
	int r;

	if (sb->phase != PHASE_UP || (sb->execs && !sb->execs->keep_rest))
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
