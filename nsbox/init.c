/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pid 1 of a sandbox: starts programs when the owner asks, reaps, ends things, and goes when the
 * owner goes.
 *
 * It is one loop over two descriptors, the control socket and a signalfd for SIGCHLD. The kernel
 * does the rest: a pid 1 ignores every signal it has no handler for, and when it exits all that
 * is left in the pid namespace is killed. That is why losing the owner is handled by _exit(); where
 * there is no pid namespace (process_tier.h) init ends all itself first.
 *
 * Several programs may run at once, each a row of a table. A row's process is the program, or its
 * leader (leader.c) where no control group holds together what a program of a kept sandbox starts.
 * Ending such a program's tree is the owner's, from outside; all that init ends is everything.
 */
#include "nsbox/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "nsbox/init_files.h"
#include "nsbox/sys.h"
#include "nsbox/template.h"
#include "nsbox/util.h"

struct running {
	pid_t pid; /* the program's, or its leader's; 0: a free row */
	uint32_t id;
	bool kill_rest;
	bool left;		  /* the owner knows that the program has ended */
	struct leader_note *note; /* NULL: no leader */
};

struct init {
	struct child *child;
	struct running run[CTL_EXECS_MAX];
	struct leader_note *notes; /* shared with leaders; NULL until there is one */
	struct init_files files;
};

/* ------------------------------------------------------------------ everything */

#define CHILDREN "/proc/thread-self/children"

/* Ours and no others: their own come to us when they have ended. */
static void signal_children(int signal)
{
	char text[4096], *p = text;

	if (read_small_file(AT_FDCWD, CHILDREN, text, sizeof(text)) < 0)
		return;
	while (*p) {
		pid_t pid = 0;

		for (; *p >= '0' && *p <= '9'; p++)
			pid = 10 * pid + (*p - '0');
		/* A child that is not reaped keeps its number: it is nobody else's. */
		if (pid > 1 && kill(pid, signal) == 0)
			kill(-pid, signal); /* a group of this number can only be of its making */
		p += *p != '\0';
	}
}

void init_signal_all(struct child *c, int signal)
{
	if (!c->process) {
		kill(-1, signal); /* everything in the namespace but us */
		return;
	}
	if (c->process->own_ids)
		process_signal_user(c->process, signal);
	if (!c->process->own_ids || signal == SIGKILL)
		signal_children(signal);
}

/* Of a pid namespace it is the kernel that ends all. */
void init_end(struct child *c, int status)
{
	int gone;

	while (c->process) {
		init_signal_all(c, SIGKILL);
		if (waitpid(-1, &gone, __WALL) < 0 && errno == ECHILD)
			break;
	}
	_exit(status);
}

static void tell(struct init *in, struct ctl_report *rep)
{
	rep->magic = CTL_MAGIC;
	if (ctl_send(in->child->control, rep, sizeof(*rep), NULL, 0) < 0)
		init_end(in->child, 0); /* no one is there to hear it */
}

/* ------------------------------------------------------------------ exec */

static void close_all(int *fds, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		close_fd(&fds[i]);
}

/* Descriptors of EXEC in their order; false where their number does not fit the flags. */
static bool sort_fds(const struct ctl_request *req, const int *fds, unsigned n,
		     struct payload_fds *ret, int *ret_prober)
{
	unsigned at = 5;

	if (n < 5)
		return false;
	ret->channel = fds[1];
	memcpy(ret->std, fds + 2, sizeof(ret->std));
	ret->request = ret->result = -1;
	if (req->flags & EXECF_FD3)
		ret->request = at < n ? fds[at++] : -1;
	if (req->flags & EXECF_FD4)
		ret->result = at < n ? fds[at++] : -1;
	ret->traced = req->flags & EXECF_TRACE;
	*ret_prober = ret->traced && at < n ? fds[at++] : -1;
	ret->joins = req->flags & EXECF_JOINS;
	for (int i = 0; ret->joins && i < CG_CONTROLLERS; i++)
		ret->join[i] = at < n ? fds[at++] : -1;
	return at == n;
}

/* Whoever does not get one is told how many opens nobody tried, and no more is lost. */
static void fork_prober(struct init *in, const struct blob *exec, int socket)
{
	if (socket < 0 || child_fork() != 0)
		return;
	close(in->child->signals);
	close(in->child->control);
	prober_main(in->child, exec_own(exec), socket);
}

static struct running *find(struct init *in, uint32_t id)
{
	for (unsigned i = 0; i < CTL_EXECS_MAX; i++)
		if (in->run[i].pid && in->run[i].id == id)
			return &in->run[i];
	return NULL;
}

static struct running *free_row(struct init *in)
{
	for (unsigned i = 0; i < CTL_EXECS_MAX; i++)
		if (!in->run[i].pid)
			return &in->run[i];
	return NULL;
}

/* The row's place in the page that leaders write to. */
static int take_note(struct init *in, struct running *r, struct nsbox_error *err)
{
	size_t size = CTL_EXECS_MAX * sizeof(*in->notes);
	void *p;

	if (!in->notes) {
		p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED)
			return nsbox_fail_at(err, NSBOX_STAGE_FORK, NSBOX_E_NOMEM, errno,
					     "make a page for the leaders of programs");
		in->notes = p;
	}
	r->note = &in->notes[r - in->run];
	memset(r->note, 0, sizeof(*r->note));
	return 0;
}

static int fork_program(struct init *in, struct running *r, const struct blob *exec,
			struct payload_fds *io, struct nsbox_error *err)
{
	pid_t pid = in->child->forked ? template_fork() : child_fork();

	if (pid == 0) {
		close(in->child->signals);
		close(in->child->control);
		if (r->note)
			leader_main(in->child, exec, io, r->note);
		payload_main(in->child, exec, io);
	}
	if (pid < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_FORK, NSBOX_E_NOMEM, errno,
				     "fork the program's process");
	r->pid = pid;
	return 0;
}

static void start(struct init *in, const struct ctl_request *req, int *fds, unsigned n)
{
	struct ctl_report rep = { .magic = CTL_MAGIC, .kind = CTL_ERROR };
	struct running *row = free_row(in);
	struct payload_fds io;
	struct blob exec = { 0 };
	int r, prober;

	/* The owner is trusted, but a mistake of its must not look like a run. */
	if (!sort_fds(req, fds, n, &io, &prober) || !row) {
		close_all(fds, n);
		init_end(in->child, 2);
	}
	*row = (struct running){ .id = req->id, .kill_rest = req->flags & EXECF_KILL_REST };
	r = blob_map(fds[0], EXEC_MAGIC, &exec, &rep.error);
	if (r == 0 && !row->kill_rest && !in->child->cgroup)
		r = take_note(in, row, &rep.error);
	if (r == 0)
		r = fork_program(in, row, &exec, &io, &rep.error);
	if (r == 0)
		fork_prober(in, &exec, prober);
	blob_unmap(&exec);
	if (r < 0) {
		ctl_send(io.channel, &rep, sizeof(rep), NULL, 0);
		rep.kind = CTL_EXITED;
		rep.id = row->id;
		rep.status = 126 << 8;
		tell(in, &rep);
	}
	close_all(fds, n);
}

/* ------------------------------------------------------------------ signals */

/* The program leads a group of its own, once it has come that far. */
static void signal_group(pid_t program, int signal)
{
	if (program > 0 && kill(-program, signal) < 0 && errno == ESRCH)
		kill(program, signal);
}

static void deliver(struct init *in, const struct ctl_request *req)
{
	struct running *r = find(in, req->id);
	pid_t program;

	if (req->signal < 1 || req->signal >= NSIG || !r)
		return;
	program = r->note ? __atomic_load_n(&r->note->program, __ATOMIC_ACQUIRE) : r->pid;
	if (req->all)
		init_signal_all(in->child, req->signal);
	else if (!r->left)
		signal_group(program, req->signal);
}

static uint64_t cpu_us(const struct rusage *u)
{
	return (uint64_t)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

/*
 * The program has ended. In a one-shot run everything else ends now: the result is due, and nothing
 * may write afterwards. Killing and reaping alternate because a fork may have slipped past a kill.
 */
static void end_rest(struct init *in, struct ctl_report *rep)
{
	struct rusage rest;
	int gone;

	for (;;) {
		init_signal_all(in->child, SIGKILL);
		pid_t pid = wait4(-1, &gone, __WALL, &rest);

		if (pid < 0 && errno == ECHILD)
			break;
		if (!init_files_reaped(&in->files, pid, gone))
			rep->cpu_us += cpu_us(&rest);
	}
}

/*
 * Is a place where programs write full? Asked when one has ended: the kernel counts no write that it
 * refused, so this is the nearest that can be known.
 */
static bool is_full(const char *path)
{
	struct statfs fs;

	return statfs(path, &fs) == 0 && fs.f_blocks && (fs.f_bavail < 4 || fs.f_ffree == 0);
}

static bool disk_full(const struct init *in)
{
	const struct blob *plan = in->child->plan;
	bool full;
	size_t n;
	const struct mount_op *ops = blob_get(plan, SEC_OPS, sizeof(*ops), &n);

	if (in->child->process) /* one file system of the host */
		return is_full(in->child->process->path);
	full = is_full("/"); /* an overlay answers for its upper layer */
	for (size_t i = 0; i < n; i++)
		full |= ops[i].kind == OP_TMPFS && is_full(blob_get_str(plan, ops[i].dst));
	return full;
}

/* A row's process is gone. */
static void finished(struct init *in, struct running *r, int status, const struct rusage *usage)
{
	struct ctl_report rep = { .kind = CTL_EXITED, .id = r->id, .status = status };

	rep.cpu_us = cpu_us(usage);
	if (r->note && __atomic_load_n(&r->note->over, __ATOMIC_ACQUIRE)) {
		rep.status = r->note->status;
		rep.cpu_us = r->note->cpu_us;
	} else if (r->note && r->note->program) {
		init_signal_all(in->child,
				SIGKILL); /* a leader is lost: nobody can tell whose is what */
	}
	rep.full = disk_full(in); /* before what others hold goes with them */
	if (r->kill_rest)
		end_rest(in, &rep);
	r->pid = 0;
	tell(in, &rep);
}

static bool ended(struct init *in, pid_t pid, int status, const struct rusage *usage)
{
	for (unsigned i = 0; i < CTL_EXECS_MAX; i++) {
		if (in->run[i].pid == pid) {
			finished(in, &in->run[i], status, usage);
			return true;
		}
	}
	return false;
}

/* Leaders that wait: their programs have ended. */
static void look_at_leaders(struct init *in)
{
	for (unsigned i = 0; in->notes && i < CTL_EXECS_MAX; i++) {
		struct running *r = &in->run[i];
		struct ctl_report rep = { .kind = CTL_LEFT, .id = r->id };

		if (!r->pid || !r->note || r->left ||
		    !__atomic_load_n(&r->note->over, __ATOMIC_ACQUIRE))
			continue;
		r->left = true;
		tell(in, &rep);
	}
}

static void reap(struct init *in)
{
	struct signalfd_siginfo info;
	struct rusage usage;
	int status;
	pid_t pid;

	while (read(in->child->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		;
	while ((pid = wait4(-1, &status, WNOHANG | __WALL, &usage)) > 0)
		if (!ended(in, pid, status, &usage))
			init_files_reaped(&in->files, pid, status);
	look_at_leaders(in);
}

/* ------------------------------------------------------------------ usage */

static uint64_t held_by(const char *path)
{
	struct statfs fs;

	if (statfs(path, &fs) < 0)
		return 0;
	return (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
}

/* Files on tmpfs are memory; where no control group counts them the owner has to ask. */
static void usage(struct init *in)
{
	struct ctl_report rep = { .kind = CTL_USED };
	const struct blob *plan = in->child->plan;
	size_t n;
	const struct mount_op *ops = blob_get(plan, SEC_OPS, sizeof(*ops), &n);

	/* An overlay answers for its upper layer. In the tier "process" nothing is in memory by plan. */
	if (in->child->process)
		n = 0;
	else if (!in->child->on_disk)
		rep.bytes = held_by("/");
	for (size_t i = 0; i < n; i++) {
		if (ops[i].kind == OP_TMPFS)
			rep.bytes += held_by(blob_get_str(plan, ops[i].dst));
		else if (ops[i].kind == OP_DEV)
			rep.bytes += held_by("/dev/shm");
	}
	tell(in, &rep);
}

/* ------------------------------------------------------------------ the loop */

static void request(struct init *in)
{
	struct ctl_request req;
	int fds[CTL_FDS_MAX];
	unsigned n = CTL_FDS_MAX;
	int r = ctl_recv(in->child->control, &req, sizeof(req), fds, &n, 0);

	if (r < 0 || req.magic != CTL_MAGIC)
		init_end(in->child,
			 0); /* the owner is gone (or no owner of ours): so are we, and all below */
	switch (req.kind) {
	case CTL_EXEC: start(in, &req, fds, n); break;
	case CTL_SIGNAL: deliver(in, &req); break;
	case CTL_COLLECT: init_files_collect(&in->files, &req, fds, n); break;
	case CTL_FILES: init_files_verb(&in->files, &req, fds, n); break;
	case CTL_UPPER: init_files_upper(&in->files, &req, fds, n); break;
	case CTL_FILES_CANCEL: init_files_cancel(&in->files, req.id); break;
	case CTL_USAGE: usage(in); break;
	default: init_end(in->child, 2);
	}
}

int init_prepare(struct child *c, struct nsbox_error *err)
{
	sigset_t chld;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	if (sigprocmask(SIG_BLOCK, &chld, NULL) < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_READY, NSBOX_E_SETUP, errno, "block SIGCHLD");
	c->signals = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	if (c->signals < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_READY, NSBOX_E_SETUP, errno,
				     "make a signalfd for the ends of programs");
	return 0;
}

_Noreturn void init_serve(struct child *c)
{
	struct init in = { .child = c };
	struct pollfd poll_fds[2];

	init_files_init(&in.files, c);
	c->parent_pid = c->init_pid; /* us */
	poll_fds[0] = (struct pollfd){ .fd = c->control, .events = POLLIN };
	poll_fds[1] = (struct pollfd){ .fd = c->signals, .events = POLLIN };
	for (;;) {
		if (poll(poll_fds, 2, init_files_due(&in.files)) < 0 && errno != EINTR)
			init_end(c, 1);
		/* Deaths first: a request may be about what has just ended. */
		if (poll_fds[1].revents)
			reap(&in);
		if (poll_fds[0].revents)
			request(&in);
	}
}
