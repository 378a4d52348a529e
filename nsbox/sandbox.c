/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making sandboxes and taking them down: the owner's side of sandbox.h (giving them work: exec.c).
 *
 * The owner clones init, writes its id maps while it waits, and from then on speaks to it over the
 * control socket only. Nothing here enters a namespace of the sandbox, and no path inside it is
 * ever opened from outside.
 */
#include "nsbox/sandbox_private.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include "nsbox/child.h"
#include "nsbox/host_private.h"
#include "nsbox/share.h"
#include "nsbox/sys.h"
#include "nsbox/template.h"
#include "nsbox/tree.h"
#include "nsbox/upper_disk.h"
#include "nsbox/util.h"
#include "nsbox/weaken.h"
#include "overlay/root.h"

#define SETUP_LIMIT_US 30000000 /* of a loaded host, with room */
#define END_LIMIT_MS   10000	/* for an init that ends its processes itself */
#define KILL_ROUNDS    100

#ifdef NSBOX_WEAKEN
uint32_t weaken_layers;
#endif

/* ------------------------------------------------------------------ clone */

static int clone_error(int errnum, struct nsbox_error *err)
{
	const char *hint = "see `nsbox doctor`";

	if (errnum == EPERM)
		hint = "user namespaces are refused here; see `nsbox doctor` for the remedy";
	else if (errnum == ENOSPC)
		hint = "the limit in /proc/sys/user/max_*_namespaces, or 32 levels, is reached";
	else if (errnum == ENOSYS)
		hint = "clone3 is missing (Linux 5.9) or hidden by a container's seccomp profile";
	return nsbox_fail_at(err, NSBOX_STAGE_CLONE,
			     errnum == ENOMEM || errnum == EAGAIN ? NSBOX_E_NOMEM
								  : NSBOX_E_UNSUPPORTED,
			     errnum, "clone into new namespaces (%s)", hint);
}

/* The plan's pages are kept out of other children (nsbox_plan_open), but this one needs them. */
static void share_plan(const struct nsbox_sandbox *sb, bool share)
{
	const struct blob *b = plan_blob(sb->plan);

	madvise((void *)b->base, b->size, share ? MADV_DOFORK : MADV_DONTFORK);
}

/* Nothing of a namespace: the older call, where containers hide the newer. */
static pid_t clone_init(struct nsbox_sandbox *sb)
{
	/* No exit signal: the death of init must not look like one of the caller's own children. */
	struct clone_args args = { .flags = CLONE_PIDFD, .pidfd = (uintptr_t)&sb->pidfd };

	if (sb->process)
		return sys_clone_pidfd(&sb->pidfd);
	args.flags |= host_namespace_flags(sb->want & ~weakened());
	if (sb->cg.init >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)sb->cg.init;
	}
	return sys_clone3(&args, sizeof(args));
}

/* A template that ended before it answered may have forked: what it made has the old socket, whose other
 * end is gone, and so it ends. No two inits may hear one owner. */
static int renew_control(struct nsbox_sandbox *sb, int *child_end)
{
	int pair[2], r = ctl_pair(pair);

	if (r < 0)
		return r;
	close_fd(&sb->control);
	close_fd(child_end);
	sb->control = pair[0];
	*child_end = pair[1];
	return 0;
}

static int spawn_init(struct nsbox_sandbox *sb, const struct nsbox_root *root, int *control,
		      int disk, const struct share *share, struct nsbox_error *err)
{
	const struct ids_payload inside = { sb->fixed->uid, sb->fixed->gid };
	struct child child = {
		.plan = plan_blob(sb->plan),
		.root = nsbox_root_blob(root),
		.control = *control,
		.files_fd = sb->opt.files_fd,
		.upper_from = sb->opt.upper_from > 0 ? sb->opt.upper_from : -1,
		.disk = disk,
		.on_disk = disk >= 0,
		.share = share,
		.track = sb->opt.track,
		.single_id = sb->ids_kind == NSBOX_IDS_SINGLE,
		.ids = sb->process ? sb->process->payload : inside,
		.process = sb->process,
		.new_root = sb->process ? sb->process->dir : -1,
		.want = sb->want,
		.cgroup = sb->cg.kind != NSBOX_CGROUP_NONE,
		.observe = sb->opt.observe,
		.owner_pid = getpid(),
	};

	sb->pid = template_fork_init(sb, &child);
	if (sb->pid > 0)
		return 0;
	if (sb->pid < 0) {
		int r = renew_control(sb, control);

		if (r < 0)
			return nsbox_fail(err, NSBOX_E_NOMEM, r, "renew the control socket");
		child.control = *control;
	}
	share_plan(sb, true);
	sb->pid = clone_init(sb);
	if (sb->pid == 0)
		child_main(&child);
	share_plan(sb, false);
	return sb->pid < 0 ? clone_error(errno, err) : 0;
}

/* ------------------------------------------------------------------ layers */

/*
 * What a sandbox is made of: no policy can do without. Init ends things with kill(-1) and mounts
 * over every path there is; outside namespaces of its own that would meet the host's.
 */
static int check_process_tier(const struct nsbox_sandbox *sb, struct nsbox_error *err)
{
	uint32_t lacking = PROCESS_FOUNDATION & ~sb->want;

	if (!sb->opt.process_tier)
		return nsbox_fail_at(
			err, NSBOX_STAGE_PROBE, NSBOX_E_UNSUPPORTED, EPERM,
			"the plan is of the tier 'process', which the operator has not "
			"accepted (nsbox run --tier process, minTier of nsboxd.json)");
	for (int i = 0; lacking && i < NSBOX_LAYER_MAX; i++)
		if (lacking & NSBOX_LAYER_BIT(i))
			return nsbox_fail_at(err, NSBOX_STAGE_PROBE, NSBOX_E_UNSUPPORTED, 0,
					     "no sandbox of the tier 'process' can be made without "
					     "the layer '%s' (%s); see `nsbox doctor`",
					     nsbox_layer_name(i), nsbox_layer_text(i));
	if (sb->opt.track || sb->opt.upper_from > 0 || sb->opt.shared)
		return nsbox_fail_at(
			err, NSBOX_STAGE_PROBE, NSBOX_E_UNSUPPORTED, 0,
			"the tier 'process' has no layers and no mounts: nothing of its "
			"root can be listed, kept, restored or shared");
	return 0;
}

static int check_foundation(const struct nsbox_sandbox *sb, struct nsbox_error *err)
{
	static const int foundation[] = {
		NSBOX_LAYER_USER, NSBOX_LAYER_MOUNT, NSBOX_LAYER_PID,
		NSBOX_LAYER_NET,  NSBOX_LAYER_ROOT,  NSBOX_LAYER_OVERLAY,
	};

	if (sb->fixed->flags & PLAN_PROCESS)
		return check_process_tier(sb, err);
	for (unsigned i = 0; i < ARRAY_SIZE(foundation); i++)
		if (!(sb->want & NSBOX_LAYER_BIT(foundation[i])))
			return nsbox_fail_at(err, NSBOX_STAGE_PROBE, NSBOX_E_UNSUPPORTED, 0,
					     "no sandbox can be made without the layer '%s' (%s); "
					     "see `nsbox doctor`",
					     nsbox_layer_name(foundation[i]),
					     nsbox_layer_text(foundation[i]));
	return 0;
}

static int choose_layers(struct nsbox_sandbox *sb, struct nsbox_error *err)
{
	if (sb->fixed->flags & PLAN_PROCESS)
		sb->opt.layers &= ~PROCESS_ABSENT;
	for (int i = 0; i < NSBOX_LAYER_MAX; i++) {
		uint32_t bit = NSBOX_LAYER_BIT(i);

		if (sb->fixed->layer[i] == NSBOX_OFF)
			continue;
		if (sb->opt.layers & bit)
			sb->want |= bit;
		else if (sb->fixed->layer[i] == NSBOX_PREFER)
			sb->missing |= bit;
		else
			return nsbox_fail_at(err, NSBOX_STAGE_PROBE, NSBOX_E_UNSUPPORTED, 0,
					     "this host cannot give the layer '%s' (%s), which the "
					     "policy requires; see `nsbox doctor`",
					     nsbox_layer_name(i), nsbox_layer_text(i));
	}
	return check_foundation(sb, err);
}

/* Listeners that nobody serves would keep programs waiting for ever. */
static int check_egress(const struct nsbox_sandbox *sb, struct nsbox_error *err)
{
	size_t len;

	if (sb->opt.egress || !nsbox_plan_egress(sb->plan, &len))
		return 0;
	return nsbox_fail_at(
		err, NSBOX_STAGE_EGRESS, NSBOX_E_UNSUPPORTED, 0,
		"the plan grants a network, and its owner has no nsbox-egress to relay "
		"it");
}

/* Id range and control group: both are named by the slot. */
static int take_host_things(struct nsbox_sandbox *sb, struct nsbox_error *err)
{
	uint32_t bit = NSBOX_LAYER_BIT(NSBOX_LAYER_CGROUP);
	bool process = sb->fixed->flags & PLAN_PROCESS;
	int r = 0;

	sb->ids_kind = left_out(USER) ? NSBOX_IDS_SINGLE : host_ids_kind();
	/* No user namespace makes it anybody else, and nothing may run as root outside. */
	if (process && sb->ids_kind == NSBOX_IDS_SINGLE && (geteuid() == 0 || getegid() == 0))
		return nsbox_fail_at(
			err, NSBOX_STAGE_IDS, NSBOX_E_UNSUPPORTED, EPERM,
			"the tier 'process' takes a user of the run's own: give root "
			"CAP_SETUID, CAP_SETGID, CAP_SETPCAP, CAP_CHOWN and CAP_KILL, or run "
			"as an ordinary user");
	if (sb->ids_kind == NSBOX_IDS_PRIVILEGED || (sb->want & bit) || process)
		r = slot_take(&sb->slot, err);
	if (r < 0 || !(sb->want & bit))
		return r;
	r = cgroup_open(&sb->cg, sb->slot.number, &sb->fixed->limits, err);
	if (r < 0 && sb->fixed->layer[NSBOX_LAYER_CGROUP] == NSBOX_PREFER) {
		sb->want &= ~bit;
		sb->missing |= bit;
		return 0;
	}
	return r;
}

/* ------------------------------------------------------------------ event plumbing */

int sandbox_watch(struct nsbox_sandbox *sb, int fd, enum watched what, uint32_t id,
		  struct nsbox_error *err)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = (uint64_t)id << 32 | what };

	if (epoll_ctl(sb->epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "watch the sandbox");
	return 0;
}

static int open_plumbing(struct nsbox_sandbox *sb, struct nsbox_error *err)
{
	sb->epoll = epoll_create1(EPOLL_CLOEXEC);
	sb->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (sb->epoll < 0 || sb->timer < 0 || events_init(sb) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make an epoll, a timer and a queue");
	return sandbox_watch(sb, sb->timer, WATCH_TIMER, 0, err);
}

/* ------------------------------------------------------------------ new */

static int go(struct nsbox_sandbox *sb)
{
	struct ctl_request req = { .magic = CTL_MAGIC, .kind = CTL_GO };

	return ctl_send(sb->control, &req, sizeof(req), NULL, 0);
}

/* Maps cannot be written for a child that has ended; if it said why, that is the reason. */
static int reason(struct nsbox_sandbox *sb, int r, struct nsbox_error *err)
{
	struct ctl_report rep;
	int fd, pid;

	if (ctl_recv_report(sb->control, &rep, &fd, &pid) < 0)
		return r;
	close_fd(&fd);
	if (rep.kind == CTL_FAILED && err)
		*err = rep.error;
	return r;
}

/* The sandbox's alone from its start on: with it everything of the disk goes. */
static int make_disk(const struct nsbox_sandbox *sb, const struct nsbox_root *root, int *ret,
		     struct nsbox_error *err)
{
	const struct plan_limits *l = &sb->fixed->limits;
	bool own = sb->ids_kind == NSBOX_IDS_PRIVILEGED;

	return upper_disk_make(nsbox_root_state(root), l->disk, l->disk_inodes,
			       own ? IDS_IMAGE_BASE : geteuid(), own ? IDS_IMAGE_BASE : getegid(),
			       ret, err);
}

/* The directory's owner, where one is shared: what is written there is its, and all that it reads. */
static struct ids_payload payload_of(const struct nsbox_sandbox *sb, const struct share *share)
{
	return share->path ? share->owner : ids_of_slot(sb->slot.number);
}

/*
 * Before Linux 6.6 a tmpfs has no place for what overlayfs has to remember of a directory that was
 * removed or made anew: over an image such changes fail there. (Over the host's, whose lowest layer is
 * nsbox's own skeleton, there is nothing to remove.)
 */
static int make_upper(struct nsbox_sandbox *sb, const struct nsbox_root *root, int *ret,
		      struct nsbox_error *err)
{
	bool poor = sb->opt.plain_tmpfs && !(sb->fixed->flags & PLAN_ROOT_RDONLY) &&
		    strncmp(nsbox_root_digest(root), "host:", 5) != 0;

	if (sb->process)
		return 0;
	if (sb->fixed->flags & PLAN_UPPER_DISK)
		return make_disk(sb, root, ret, err);
	/* Nobody asked for a disk: where there can be none the result says what is lost. */
	sb->poor_upper = poor && make_disk(sb, root, ret, NULL) < 0;
	return 0;
}

/* Of the tier "process": the run's directory; its image can only be the host, since that is what is there. */
static int make_process_box(struct nsbox_sandbox *sb, const struct nsbox_root *root,
			    struct nsbox_error *err)
{
	if (!(sb->fixed->flags & PLAN_PROCESS))
		return 0;
	if (strncmp(nsbox_root_digest(root), "host:", 5) != 0)
		return nsbox_fail_at(
			err, NSBOX_STAGE_IMAGE, NSBOX_E_UNSUPPORTED, 0,
			"the tier 'process' has no root of its own: it runs from the image "
			"'host' alone, not from '%s'",
			nsbox_root_name(root));
	sb->process = calloc(1, sizeof(*sb->process));
	if (!sb->process)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "make a sandbox");
	process_init(sb->process);
	return process_make(sb->process, nsbox_root_state(root), sb->slot.number,
			    sb->ids_kind == NSBOX_IDS_PRIVILEGED, err);
}

static int start_init(struct nsbox_sandbox *sb, const struct nsbox_root *root,
		      struct nsbox_error *err)
{
	int pair[2], r = ctl_pair(pair);
	auto_close int child_end = -1, disk = -1;
	struct share share;

	if (r < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, r, "make the control socket");
	sb->control = pair[0];
	child_end = pair[1];
	sb->created_us = monotonic_us();
	r = share_open(sb->plan, sb->opt.shared, sb->ids_kind == NSBOX_IDS_PRIVILEGED, &share, err);
	if (r == 0)
		r = make_upper(sb, root, &disk, err);
	if (r == 0)
		r = spawn_init(sb, root, &child_end, disk, &share, err);
	if (r < 0)
		return r;
	r = left_out(USER) || sb->process
		    ? 0
		    : ids_write_maps(sb->pid, sb->ids_kind, payload_of(sb, &share), sb->fixed->uid,
				     err);
	if (r < 0)
		return reason(sb, r, err);
	r = sandbox_watch(sb, sb->control, WATCH_CONTROL, 0, err);
	if (r == 0)
		r = sandbox_watch(sb, sb->pidfd, WATCH_PIDFD, 0, err);
	if (r < 0)
		return r;
	/* A failure to send means that it died: the pidfd says so. */
	go(sb);
	if (sb->opt.observe)
		observe_spare(sb);
	sb->deadline_us = monotonic_us() + SETUP_LIMIT_US;
	stop_arm(sb);
	return 0;
}

int nsbox_sandbox_new(const struct nsbox_plan *plan, const struct nsbox_root *root,
		      const struct nsbox_sandbox_options *opt, struct nsbox_sandbox **ret,
		      struct nsbox_error *err)
{
	struct nsbox_sandbox *sb = calloc(1, sizeof(*sb));
	int r;

	if (!sb)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "make a sandbox");
	sb->plan = plan;
	sb->fixed = blob_fixed(plan_blob(plan), struct plan_fixed);
	sb->opt = *opt;
	sb->pidfd = sb->control = sb->epoll = sb->timer = -1;
	cgroup_init(&sb->cg);
	for (int i = 0; i < EGRESS_LISTENERS; i++)
		sb->listeners[i] = -1;
	sb->counters = -1;
	r = check_egress(sb, err);
	if (r == 0)
		r = choose_layers(sb, err);
	if (r == 0)
		r = take_host_things(sb, err);
	if (r == 0)
		r = make_process_box(sb, root, err);
	if (r == 0)
		r = open_plumbing(sb, err);
	if (r == 0)
		r = start_init(sb, root, err);
	if (r < 0) {
		bool made_groups = sb->cg.kind != NSBOX_CGROUP_NONE;

		nsbox_sandbox_free(sb);
		if (made_groups) /* the caller hears of none, so it cannot know to */
			nsbox_sweep();
		return r;
	}
	*ret = sb;
	return 0;
}

/* ------------------------------------------------------------------ events */

bool nsbox_sandbox_forked(const struct nsbox_sandbox *sb)
{
	return sb->forked;
}

int nsbox_sandbox_fd(const struct nsbox_sandbox *sb)
{
	return sb->epoll;
}

/* One handler may have dealt with what another was woken for. */
static void wake(struct nsbox_sandbox *sb, enum watched what, uint32_t id)
{
	struct exec *ex = what == WATCH_EXEC ? exec_find(sb, id) : NULL;

	if (what == WATCH_CONTROL)
		supervise_control(sb);
	else if (what == WATCH_PIDFD && !sb->gone)
		supervise_pidfd(sb);
	else if (what == WATCH_TIMER)
		stop_timer(sb);
	else if (what == WATCH_OBSERVER)
		observe_ended(sb, id);
	else if (ex)
		supervise_channel(sb, ex);
}

static void dispatch(struct nsbox_sandbox *sb, int timeout_ms)
{
	struct epoll_event ev[4];
	int n = epoll_wait(sb->epoll, ev, ARRAY_SIZE(ev), timeout_ms);

	for (int i = 0; i < n; i++)
		wake(sb, (enum watched)(uint32_t)ev[i].data.u64, (uint32_t)(ev[i].data.u64 >> 32));
	if (sb->gone && sb->pidfd >= 0) {
		epoll_ctl(sb->epoll, EPOLL_CTL_DEL, sb->pidfd, NULL);
		close_fd(&sb->pidfd);
	}
}

int nsbox_sandbox_next(struct nsbox_sandbox *sb, int timeout_ms, struct nsbox_event *ret,
		       struct nsbox_error *err)
{
	uint64_t end = timeout_ms > 0 ? monotonic_us() + (uint64_t)timeout_ms * 1000 : 0;

	while (!sb->count) {
		int wait = timeout_ms;

		if (timeout_ms > 0) {
			uint64_t now = monotonic_us();

			wait = now < end ? (int)((end - now + 999) / 1000) : 0;
		}
		if (sb->gone)
			break;
		dispatch(sb, wait);
		if (!wait)
			break;
	}
	memset(ret, 0, sizeof(*ret));
	ret->fd = -1;
	event_take(sb, ret);
	return 0;
}

void sandbox_kill_init(struct nsbox_sandbox *sb)
{
	if (sb->pidfd < 0 || sb->gone)
		return;
	if (sb->process) {
		/* While it lives, all that there is are its descendants. */
		sys_pidfd_send_signal(sb->pidfd, SIGSTOP);
		for (int i = 0; i < KILL_ROUNDS && tree_signal(sb->pid, SIGKILL, false) > 0; i++)
			if (sb->process->own_ids)
				process_signal_user(sb->process, SIGKILL);
	}
	if (sys_pidfd_send_signal(sb->pidfd, SIGKILL) < 0)
		kill(sb->pid, SIGKILL); /* not yet reaped, its number is nobody else's */
}

void nsbox_sandbox_end(struct nsbox_sandbox *sb)
{
	/* Init ends by losing its socket, too. Without a pid namespace it has something to do before. */
	close_fd(&sb->control);
	if (!sb->process)
		sandbox_kill_init(sb);
}

/* It ends all that it has started first, and if it does not, that is done from here. */
static void await_init(struct nsbox_sandbox *sb)
{
	struct pollfd p = { .fd = sb->pidfd, .events = POLLIN };

	if (sb->process && poll(&p, 1, END_LIMIT_MS) != 1)
		sandbox_kill_init(sb);
}

void nsbox_sandbox_free(struct nsbox_sandbox *sb)
{
	siginfo_t info;

	if (!sb)
		return;
	/* Init and with it all else: when the wait returns the pid namespace is empty. */
	nsbox_sandbox_end(sb);
	if (sb->pidfd >= 0 && !sb->gone) {
		await_init(sb);
		while (waitid(P_PIDFD, (id_t)sb->pidfd, &info, WEXITED | __WALL) < 0 &&
		       errno == EINTR)
			;
	}
	while (sb->execs)
		exec_free(sb, sb->execs);
	observe_end_all(sb);
	events_free(sb);
	for (int i = 0; i < EGRESS_LISTENERS; i++)
		close_fd(&sb->listeners[i]);
	close_fd(&sb->counters);
	close_fd(&sb->pidfd);
	close_fd(&sb->timer);
	close_fd(&sb->epoll);
	cgroup_close(&sb->cg);
	if (sb->process)
		process_done(sb->process);
	free(sb->process);
	slot_release(&sb->slot);
	free(sb);
}

void nsbox_sweep(void)
{
	cgroup_sweep();
}

/* ------------------------------------------------------------------ one call */

int nsbox_run(const struct nsbox_plan *plan, const struct nsbox_root *root,
	      const struct nsbox_sandbox_options *opt, const struct nsbox_exec *ex,
	      const struct nsbox_io *io, struct nsbox_result *ret, struct nsbox_error *err)
{
	struct nsbox_sandbox *sb;
	struct nsbox_event ev;
	int r;

	if (ex->tty)
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "nsbox_run has no terminal");
	r = nsbox_sandbox_new(plan, root, opt, &sb, err);
	if (r < 0)
		return r;
	r = nsbox_sandbox_exec(sb, ex, io, NULL, err);
	while (r == 0) {
		r = nsbox_sandbox_next(sb, -1, &ev, err);
		if (r < 0)
			break;
		if (ev.kind == NSBOX_EVENT_EXITED || ev.kind == NSBOX_EVENT_FAILED) {
			*ret = ev.result;
			break;
		}
		if (ev.kind == NSBOX_EVENT_NONE || ev.kind == NSBOX_EVENT_GONE)
			r = nsbox_fail(err, NSBOX_E_PROTOCOL, 0, "the sandbox went away");
	}
	nsbox_sandbox_free(sb);
	return r;
}
