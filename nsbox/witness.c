/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The witness: after lock-down and before execve, the payload's own process tries one forbidden
 * act for each layer. What it finds goes into the result; an act that succeeds aborts the run.
 *
 * Each act is chosen so that the layer it stands for is what refuses it, and so that it would be
 * answered differently without that layer:
 *   write       /usr is writable to nobody; a fresh file there would be refused by the mount alone.
 *               In an imported image it is the run's own copy: there /dev stands for it, which is
 *               the same tmpfs in every run and read-only to all
 *   landlock    /.nsbox/witness is readable by mode and by mount; only the domain leaves it out
 *   connect     TEST-NET-1 has no route in a namespace of its own; elsewhere it is "in progress"
 *   syscall     mount(2) of nothing: EFAULT from the kernel, EPERM or ENOSYS from the filter
 *   ptrace      init is of another id, or undumpable and more privileged
 *   process     our parent is pid 1, or the leader that has it; the owner's pid must not exist. In the
 *               tier "process" it does, and must not be ours to signal
 *   capability  all sets empty, none to be had, no_new_privs on, filter mode 2
 *
 * It is part of every start, so it has to be cheap, and in a process just forked a call costs less
 * than the first touch of a page: by the CPU, and once more by the kernel. Hence one stub for all
 * calls, syscall(2), and one place on the stack for all that the kernel reads or writes.
 */
#include "nsbox/child.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/capability.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>

#include "nsbox/egress_format.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

enum verdict { NOT_TRIED, HELD, HOLE };

/* All that the kernel is shown. */
struct scene {
	const struct child *c;
	char usr[24], dev[24], hidden[PROCESS_PATH + 24];
	struct sockaddr_in to;
	struct __user_cap_header_struct head;
	struct __user_cap_data_struct data[2];
};

static enum verdict try_write(struct scene *s)
{
	size_t trees;
	bool imported =
		blob_get(s->c->root, SEC_LANDLOCK, sizeof(struct landlock_rule), &trees) && trees;
	const char *path = imported ? s->dev : s->usr;
	long fd =
		syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		return errno == EROFS || errno == EACCES || errno == EPERM ? HELD : NOT_TRIED;
	close((int)fd);
	unlink(path);
	return HOLE;
}

static enum verdict try_landlock(struct scene *s)
{
	long fd;

	if (!(s->c->enforced & NSBOX_LAYER_BIT(NSBOX_LAYER_LANDLOCK_FS)))
		return NOT_TRIED;
	fd = syscall(SYS_openat, AT_FDCWD, s->hidden, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == EACCES ? HELD : NOT_TRIED;
	close((int)fd);
	return HOLE;
}

/* Has the operator opened the address, so that reaching it would be no hole? */
static bool is_opened(const struct scene *s, const void *data, size_t size)
{
	struct egress_rules rules;

	return egress_check(data, size, &rules, NULL) < 0 ||
	       !egress_denied(&rules, 4, (const uint8_t *)&s->to.sin_addr, NULL);
}

/* With egress there is a route, and the packet filter answers: at once, but not in the call. */
static int refused_soon(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	int r = EINPROGRESS;
	socklen_t len = sizeof(r);

	if (poll(&p, 1, 1000) != 1 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &r, &len) < 0)
		return EINPROGRESS;
	return r;
}

/* Without egress what is asked is whether there is a way at all: of a datagram socket the kernel
 * answers that without a connection's state. */
static enum verdict try_connect(struct scene *s)
{
	size_t size;
	const void *egress = blob_get(s->c->plan, SEC_EGRESS, 1, &size);
	int kind = size ? SOCK_STREAM : SOCK_DGRAM;
	long fd;
	int r;

	if (size && is_opened(s, egress, size))
		return NOT_TRIED;
	fd = syscall(SYS_socket, AF_INET, kind | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return HELD; /* the filter leaves no such sockets at all */
	r = syscall(SYS_connect, fd, &s->to, sizeof(s->to)) < 0 ? errno : 0;
	if (r == EINPROGRESS)
		r = refused_soon((int)fd);
	syscall(SYS_close, fd);
	return r == 0 || r == EINPROGRESS ? HOLE : HELD;
}

static enum verdict try_syscall(struct scene *s)
{
	if (syscall(SYS_mount, NULL, NULL, NULL, 0, NULL) == 0)
		return HOLE;
	return errno == EPERM || errno == ENOSYS ? HELD : HOLE;
}

static enum verdict try_ptrace(struct scene *s)
{
	return syscall(SYS_ptrace, PTRACE_SEIZE, s->c->init_pid, NULL, NULL) == 0 ? HOLE : HELD;
}

/* Tier "process": the owner can be seen. Another user's is not ours to signal, nor one of the same user
 * from inside a Landlock scope; without either nothing is claimed. */
static enum verdict try_owner(struct scene *s)
{
	const uint32_t walls =
		NSBOX_LAYER_BIT(NSBOX_LAYER_OWN_ID) | NSBOX_LAYER_BIT(NSBOX_LAYER_LANDLOCK_SCOPES);

	if (!(s->c->enforced & walls))
		return NOT_TRIED;
	return syscall(SYS_kill, s->c->owner_pid, 0) < 0 ? HELD : HOLE;
}

static enum verdict try_process(struct scene *s)
{
	if (s->c->process)
		return try_owner(s);
	if (syscall(SYS_getppid) != s->c->parent_pid)
		return HOLE;
	/* Pids grow: one above our own has not been given out inside yet. */
	if (s->c->owner_pid > syscall(SYS_getpid) &&
	    (syscall(SYS_kill, s->c->owner_pid, 0) == 0 || errno != ESRCH))
		return HOLE;
	return HELD;
}

static long ask(int what, long which)
{
	return syscall(SYS_prctl, what, which, 0, 0, 0);
}

static enum verdict try_capability(struct scene *s)
{
	if (syscall(SYS_capget, &s->head, s->data) < 0)
		return HOLE;
	for (int i = 0; i < 2; i++)
		if (s->data[i].effective | s->data[i].permitted | s->data[i].inheritable)
			return HOLE;
	/* Who is nobody special may not empty the bounding set, and no_new_privs makes it empty words. */
	if (!(s->c->process && s->c->single_id) && ask(PR_CAPBSET_READ, CAP_SYS_ADMIN) != 0)
		return HOLE;
	if (ask(PR_GET_NO_NEW_PRIVS, 0) != 1 || ask(PR_GET_SECCOMP, 0) != 2)
		return HOLE;
	return HELD;
}

static enum verdict (*const acts[NSBOX_WITNESS_MAX])(struct scene *) = {
	[NSBOX_WITNESS_WRITE] = try_write,	     [NSBOX_WITNESS_LANDLOCK] = try_landlock,
	[NSBOX_WITNESS_CONNECT] = try_connect,	     [NSBOX_WITNESS_SYSCALL] = try_syscall,
	[NSBOX_WITNESS_PTRACE] = try_ptrace,	     [NSBOX_WITNESS_PROCESS] = try_process,
	[NSBOX_WITNESS_CAPABILITY] = try_capability,
};

int witness_run(const struct child *c, struct ctl_report *rep, struct nsbox_error *err)
{
	struct scene s = {
		.c = c,
		.usr = "/usr/.nsbox-witness",
		.dev = "/dev/.nsbox-witness",
		.hidden = WITNESS_FILE,
		.to = { .sin_family = AF_INET, .sin_port = htons(9) },
		.head = { .version = _LINUX_CAPABILITY_VERSION_3 },
	};
	uint64_t start = monotonic_us();

	if (c->process)
		nsbox_format(s.hidden, sizeof(s.hidden), "%s" WITNESS_FILE, c->process->path);
	s.to.sin_addr.s_addr = htonl(0xc0000201); /* 192.0.2.1, TEST-NET-1 */
	for (int i = 0; i < NSBOX_WITNESS_MAX; i++) {
		enum verdict v = acts[i](&s);

		if (v == NOT_TRIED)
			continue;
		rep->tried |= 1U << i;
		if (v == HELD)
			rep->held |= 1U << i;
	}
	rep->us = (uint32_t)(monotonic_us() - start);
	for (int i = 0; i < NSBOX_WITNESS_MAX; i++)
		if ((rep->tried & ~rep->held) & (1U << i))
			return nsbox_fail_at(
				err, NSBOX_STAGE_WITNESS, NSBOX_E_SANDBOX, EPERM,
				"the witness succeeded at %s: the sandbox does not hold",
				nsbox_witness_text(i));
	return 0;
}
