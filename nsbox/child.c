/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child: from clone3 to a locked-down init.
 *
 * Theory of operation. The owner clones us into seven fresh namespaces and writes our id maps; until
 * then we hold every capability of a user namespace in which we are nobody, and wait. Then the
 * stages below run in the order of the table, each doing one thing with system calls alone, each
 * named in the error when it fails. A stage never continues after a failure of its own; whether a
 * missing layer is a failure is the plan's word (layer_missing). At the end init has no capability
 * but those it needs to start payloads, sits in the sandbox's Landlock domain behind its own
 * filter, and nothing of the host is reachable any more. Only then does it serve requests.
 *
 *   stage         should                                        must not
 *   propagation   cut mount events in both directions           mount anything
 *   scratch       put a sized tmpfs under our feet, the host    trust a host path as a target
 *                 at /old
 *   overlay       mount the new root at /root                   write through a lower layer
 *   dev, proc     make fresh ones                               use the image's nodes
 *   mount         bind what the image shows                     follow links out of a root
 *   pivot         make /root the only root there is             keep a descriptor of the host
 *   files         let a confined helper unpack the run's files  parse them ourselves
 *   mask          hide and freeze paths, put the operator's     create what is not there
 *                 certificates beside the image's
 *   loopback, nftables   lo up behind a default-deny filter     open anything before the filter
 *   egress        make listeners and a route to them, where     keep a copy of a listener
 *                 the plan grants anything outside
 *   sysctl        forbid nested namespaces, freeze /proc        leave /proc writable
 *   capabilities  keep SETUID, SETGID, KILL and nothing else    leave a way to gain one
 *   landlock      enter the sandbox's one domain                (mounting is over: it forbids it)
 *   init filter   bound every later system call
 *
 * The tier "process" has a shorter table of its own: process_tier.h.
 */
#include "nsbox/child.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "nsbox/sys.h"
#include "nsbox/util.h"
#include "nsbox/weaken.h"

int layer_missing(struct child *c, int layer, int stage, int errnum, const char *what,
		  struct nsbox_error *err)
{
	if (child_fixed(c)->layer[layer] == NSBOX_REQUIRE)
		return nsbox_fail_at(err, stage, NSBOX_E_UNSUPPORTED, errnum,
				     "%s (the policy requires the layer '%s')", what,
				     nsbox_layer_name(layer));
	c->not_enforced |= NSBOX_LAYER_BIT(layer);
	return 0;
}

/* ------------------------------------------------------------------ descriptors and signals */

/* Insertion sort: a handful of entries, no heap. */
static void sort(int *v, unsigned n)
{
	for (unsigned i = 1; i < n; i++)
		for (unsigned j = i; j > 0 && v[j] < v[j - 1]; j--) {
			int t = v[j];

			v[j] = v[j - 1];
			v[j - 1] = t;
		}
}

int child_close_others(int from, const int *keep, unsigned n)
{
	int v[16];
	unsigned count = 0;

	for (unsigned i = 0; i < n && count < ARRAY_SIZE(v); i++)
		if (keep[i] >= from)
			v[count++] = keep[i];
	sort(v, count);
	for (unsigned i = 0; i < count; i++) {
		if (v[i] > from && close_range((unsigned)from, (unsigned)v[i] - 1, 0) < 0)
			return -errno;
		from = v[i] + 1;
	}
	return close_range((unsigned)from, ~0U, 0) < 0 ? -errno : 0;
}

/* 0-2 become /dev/null of the host, which no one can do harm with. */
static int null_stdio(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	for (int i = 0; i < 3; i++)
		if (dup2(fd, i) < 0)
			return -errno;
	if (fd > 2)
		close(fd);
	return 0;
}

/* The kernel's own call: libc's refuses the two signals that it keeps to itself, and those may be
 * ignored as well. All zero is the default, whatever the order of the struct's members here. */
static int default_signals(void)
{
	const unsigned long dfl[16] = { 0 };
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++)
		if (syscall(SYS_rt_sigaction, sig, dfl, NULL, 8) < 0 && sig != SIGKILL &&
		    sig != SIGSTOP)
			return -errno;
	sigemptyset(&none);
	return sigprocmask(SIG_SETMASK, &none, NULL) < 0 ? -errno : 0;
}

/* Nothing of the owner's stays: not its terminal, its files, its handlers, its session. */
static int detach_from_owner(struct child *c, struct nsbox_error *err)
{
	const int keep[] = { c->control, c->files_fd, c->upper_from, c->disk, c->new_root };
	int r = child_close_others(3, keep, ARRAY_SIZE(keep)); /* what could leak goes first */

	if (r < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_CLONE, NSBOX_E_SETUP, r,
				     "close the owner's descriptors");
	r = null_stdio();
	if (r < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_CLONE, NSBOX_E_SETUP, r,
				     "replace descriptors 0 to 2");
	r = default_signals();
	if (r == 0 && setsid() < 0)
		r = -errno;
	if (r < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_CLONE, NSBOX_E_SETUP, r,
				     "leave the owner's signals and session");
	umask(0);
	return 0;
}

/* ------------------------------------------------------------------ processes */

int child_fork(void)
{
	/* clone, not clone3: init's filter can check the flags of this one and so lets it pass. With
	 * nothing but a signal, the order of the other arguments, which differs by architecture,
	 * does not matter. */
	return (int)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static _Noreturn void be_helper(struct child *c, const struct helper_job *job, int report_fd)
{
	struct nsbox_error report = { 0 };
	const int keep[] = { report_fd, c->new_root, job->keep[0], job->keep[1] };
	int r = child_close_others(3, keep, ARRAY_SIZE(keep));

	if (r < 0)
		r = nsbox_fail(&report, NSBOX_E_SETUP, r, "close a helper's descriptors");
	if (r == 0)
		r = payload_credentials(c, &report);
	/* Init sets it for all later; this helper may run before that stage. */
	if (r == 0 && !left_out(NO_NEW_PRIVS) && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		r = nsbox_fail(&report, NSBOX_E_SETUP, errno, "set no_new_privs");
	/*
	 * Paths are opened with openat2, which a payload does without where it shares a directory of
	 * the host (its modes are in memory); there init's filter is the helper's.
	 */
	if (r == 0 && !c->share->path)
		r = payload_filter(c, NULL, &report);
	if (r == 0)
		r = job->run(c, job->arg, &report);
	if (r < 0)
		write_full(report_fd, &report, sizeof(report));
	_exit(r < 0);
}

int child_helper_start(struct child *c, const struct helper_job *job, struct helper *ret,
		       struct nsbox_error *err)
{
	int pipe_fds[2], r;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make a pipe for a helper");
	ret->pid = child_fork();
	if (ret->pid == 0)
		be_helper(c, job, pipe_fds[1]);
	r = ret->pid < 0 ? -errno : 0;
	close(pipe_fds[1]);
	if (r < 0) {
		close(pipe_fds[0]);
		return nsbox_fail(err, NSBOX_E_NOMEM, r, "fork a helper");
	}
	ret->report = pipe_fds[0];
	return 0;
}

int child_helper_over(struct helper *h, int status, struct nsbox_error *err)
{
	struct nsbox_error report;
	int r = read_full(h->report, &report, sizeof(report));

	close_fd(&h->report);
	if (r == 0) {
		report.msg[NSBOX_ERROR_MSG_MAX - 1] = '\0';
		if (err)
			*err = report;
		return report.errnum ? -report.errnum : -EINVAL;
	}
	if (WIFSIGNALED(status))
		return nsbox_fail(err, NSBOX_E_SETUP, EIO, "a helper was ended by signal %d",
				  WTERMSIG(status));
	if (WEXITSTATUS(status))
		return nsbox_fail(err, NSBOX_E_SETUP, EIO, "a helper ended early (status %d)",
				  WEXITSTATUS(status));
	return 0;
}

int child_helper(struct child *c, const struct helper_job *job, struct nsbox_error *err)
{
	struct helper h;
	int status, r = child_helper_start(c, job, &h, err);

	if (r < 0)
		return r;
	while (waitpid(h.pid, &status, 0) < 0 && errno == EINTR)
		;
	return child_helper_over(&h, status, err);
}

/* ------------------------------------------------------------------ the table */

struct stage {
	int stage;
	int (*run)(struct child *, struct nsbox_error *);
};

/* Of the tier "process": nothing is mounted, and the network is the filter's. */
static const struct stage process_stages[] = {
	{ NSBOX_STAGE_IDS, process_take_ids },
	{ NSBOX_STAGE_MOUNT, stage_process_dir },
	{ NSBOX_STAGE_FILES, stage_files },
	{ NSBOX_STAGE_MASK, stage_process_exec },
	{ NSBOX_STAGE_CAPABILITIES, stage_capabilities },
	{ NSBOX_STAGE_LANDLOCK, stage_landlock },
	{ NSBOX_STAGE_INIT_FILTER, stage_init_filter },
};

static const struct stage stages[] = {
	{ NSBOX_STAGE_PROPAGATION, stage_propagation },
	{ NSBOX_STAGE_SCRATCH, stage_scratch },
	{ NSBOX_STAGE_OVERLAY, stage_overlay },
	{ NSBOX_STAGE_DEV, stage_dev },
	{ NSBOX_STAGE_PROC, stage_proc },
	{ NSBOX_STAGE_MOUNT, stage_mount },
	{ NSBOX_STAGE_PIVOT, stage_pivot },
	{ NSBOX_STAGE_FILES, stage_files },
	{ NSBOX_STAGE_MASK, stage_mask },
	{ NSBOX_STAGE_LOOPBACK, stage_loopback },
	{ NSBOX_STAGE_NFTABLES, stage_nftables },
	{ NSBOX_STAGE_EGRESS, stage_egress },
	{ NSBOX_STAGE_SYSCTL, stage_sysctl },
	{ NSBOX_STAGE_HOSTNAME, stage_hostname },
	{ NSBOX_STAGE_CAPABILITIES, stage_capabilities },
	{ NSBOX_STAGE_LANDLOCK, stage_landlock },
	{ NSBOX_STAGE_INIT_FILTER, stage_init_filter },
};

static int wait_for_go(struct child *c, struct nsbox_error *err)
{
	struct ctl_request req;
	unsigned none = 0;
	int r = ctl_recv(c->control, &req, sizeof(req), NULL, &none, 0);

	if (r < 0 || req.magic != CTL_MAGIC || req.kind != CTL_GO)
		return nsbox_fail_at(err, NSBOX_STAGE_CLONE, NSBOX_E_PROTOCOL, r ? r : -EBADMSG,
				     "wait for the owner");
	return 0;
}

/*
 * Take the ids that were mapped. With a range we become inside-root, which is the image block's
 * own root and nobody on the host; with a single id we are the payload's id already. The groups of
 * the owner go first: inside, they would still count for access.
 */
static int take_ids(struct child *c, struct nsbox_error *err)
{
	if (c->single_id || c->process)
		return 0;
	if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, 0, 0, 0) < 0 ||
	    syscall(SYS_setresuid, 0, 0, 0) < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_IDS, NSBOX_E_SETUP, errno,
				     "become root inside the user namespace");
	return 0;
}

/*
 * Every layer that was asked for is in place by now, or noted as missing: a plan that asks for one
 * and holds nothing to make it of (no packet filter, no Landlock rights, no /proc) must not pass
 * for a plan that has it. What the owner and the payload add themselves is left to them.
 */
static int account(struct child *c, struct nsbox_error *err)
{
	const uint32_t later = NSBOX_LAYER_BIT(NSBOX_LAYER_SECCOMP) |
			       NSBOX_LAYER_BIT(NSBOX_LAYER_CGROUP) |
			       NSBOX_LAYER_BIT(NSBOX_LAYER_WITNESS);
	uint32_t open = c->want & ~(c->enforced | c->not_enforced | later);
	int r = 0;

	for (int i = 0; r == 0 && i < NSBOX_LAYER_MAX; i++)
		if (open & NSBOX_LAYER_BIT(i))
			r = layer_missing(c, i, NSBOX_STAGE_READY, 0,
					  "the plan has nothing to make a layer of", err);
	return r;
}

/* Files get the time of the last tick: what is made after this has a later one. */
static void wait_for_tick(struct child *c)
{
	const struct timespec nap = { .tv_nsec = 500000 };
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &c->ready);
	do {
		nanosleep(&nap, NULL);
		clock_gettime(CLOCK_REALTIME_COARSE, &now);
	} while (now.tv_sec < c->ready.tv_sec ||
		 (now.tv_sec == c->ready.tv_sec && now.tv_nsec <= c->ready.tv_nsec));
}

static int set_up(struct child *c, struct nsbox_error *err)
{
	const struct stage *list = c->process ? process_stages : stages;
	unsigned n = c->process ? ARRAY_SIZE(process_stages) : ARRAY_SIZE(stages);
	int r = detach_from_owner(c, err);

	if (r == 0)
		r = wait_for_go(c, err);
	if (r == 0)
		r = take_ids(c, err);
	for (unsigned i = 0; r == 0 && i < n; i++) {
		uint64_t start = monotonic_us();

		r = list[i].run(c, err);
		c->stage_us[list[i].stage] = (uint32_t)(monotonic_us() - start);
		if (r < 0 && err->stage == NSBOX_STAGE_NONE)
			err->stage = list[i].stage;
	}
	if (r == 0)
		r = account(c, err);
	if (r == 0 && c->track)
		wait_for_tick(c);
	return r < 0 ? r : init_prepare(c, err);
}

_Noreturn void child_main(struct child *c)
{
	struct ctl_report rep = { .magic = CTL_MAGIC, .kind = CTL_READY };
	int r;

	c->old_root = c->proc_mount = c->upper = -1;
	c->new_root = c->process ? c->process->dir : -1;
	c->init_pid = c->process ? getpid() : 1; /* asked for only where it is not known */
	/* What clone3 gave by succeeding. */
	c->enforced =
		c->want & (NSBOX_LAYER_BIT(NSBOX_LAYER_USER) | NSBOX_LAYER_BIT(NSBOX_LAYER_MOUNT) |
			   NSBOX_LAYER_BIT(NSBOX_LAYER_PID) | NSBOX_LAYER_BIT(NSBOX_LAYER_NET) |
			   NSBOX_LAYER_BIT(NSBOX_LAYER_IPC) | NSBOX_LAYER_BIT(NSBOX_LAYER_UTS) |
			   NSBOX_LAYER_BIT(NSBOX_LAYER_CGROUP_NS));
	r = set_up(c, &rep.error);
	if (r < 0)
		rep.kind = CTL_FAILED;
	rep.enforced = c->enforced;
	rep.not_enforced = c->not_enforced;
	memcpy(rep.stage_us, c->stage_us, sizeof(rep.stage_us));
	if (ctl_send(c->control, &rep, sizeof(rep), NULL, 0) < 0 || r < 0)
		init_end(c, 1);
	init_serve(c);
}
