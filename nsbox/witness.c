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
 *   process     our parent is pid 1, or the leader that has it; the owner's pid must not exist
 *   capability  all sets empty, none to be had, no_new_privs on, filter mode 2
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

static enum verdict try_write(const struct child *c)
{
	size_t trees;
	bool imported =
		blob_get(c->root, SEC_LANDLOCK, sizeof(struct landlock_rule), &trees) && trees;
	const char *path = imported ? "/dev/.nsbox-witness" : "/usr/.nsbox-witness";
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		return errno == EROFS || errno == EACCES || errno == EPERM ? HELD : NOT_TRIED;
	close(fd);
	unlink(path);
	return HOLE;
}

static enum verdict try_landlock(const struct child *c)
{
	int fd;

	if (!(c->enforced & NSBOX_LAYER_BIT(NSBOX_LAYER_LANDLOCK_FS)))
		return NOT_TRIED;
	fd = open("/.nsbox/witness", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == EACCES ? HELD : NOT_TRIED;
	close(fd);
	return HOLE;
}

/* Has the operator opened the address, so that reaching it would be no hole? */
static bool is_opened(const struct child *c, const struct sockaddr_in *to)
{
	struct egress_rules rules;
	size_t size;
	const void *data = blob_get(c->plan, SEC_EGRESS, 1, &size);

	return size && (egress_check(data, size, &rules, NULL) < 0 ||
			!egress_denied(&rules, 4, (const uint8_t *)&to->sin_addr, NULL));
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

static enum verdict try_connect(const struct child *c)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int r;

	if (fd < 0)
		return HELD;			/* the filter leaves no such sockets at all */
	to.sin_addr.s_addr = htonl(0xc0000201); /* 192.0.2.1, TEST-NET-1 */
	if (is_opened(c, &to)) {
		close(fd);
		return NOT_TRIED;
	}
	r = connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 ? errno : 0;
	if (r == EINPROGRESS)
		r = refused_soon(fd);
	close(fd);
	return r == 0 || r == EINPROGRESS ? HOLE : HELD;
}

static enum verdict try_syscall(const struct child *c)
{
	if (syscall(SYS_mount, NULL, NULL, NULL, 0, NULL) == 0)
		return HOLE;
	return errno == EPERM || errno == ENOSYS ? HELD : HOLE;
}

static enum verdict try_ptrace(const struct child *c)
{
	return syscall(SYS_ptrace, PTRACE_SEIZE, 1, NULL, NULL) == 0 ? HOLE : HELD;
}

static enum verdict try_process(const struct child *c)
{
	if (getppid() != c->parent_pid)
		return HOLE;
	/* Pids grow: one above our own has not been given out inside yet. */
	if (c->owner_pid > getpid() && (kill(c->owner_pid, 0) == 0 || errno != ESRCH))
		return HOLE;
	return HELD;
}

static enum verdict try_capability(const struct child *c)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	if (syscall(SYS_capget, &head, data) < 0)
		return HOLE;
	for (int i = 0; i < 2; i++)
		if (data[i].effective | data[i].permitted | data[i].inheritable)
			return HOLE;
	if (prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) != 0 ||
	    prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 || prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 2)
		return HOLE;
	return HELD;
}

static enum verdict (*const acts[NSBOX_WITNESS_MAX])(const struct child *) = {
	[NSBOX_WITNESS_WRITE] = try_write,	     [NSBOX_WITNESS_LANDLOCK] = try_landlock,
	[NSBOX_WITNESS_CONNECT] = try_connect,	     [NSBOX_WITNESS_SYSCALL] = try_syscall,
	[NSBOX_WITNESS_PTRACE] = try_ptrace,	     [NSBOX_WITNESS_PROCESS] = try_process,
	[NSBOX_WITNESS_CAPABILITY] = try_capability,
};

int witness_run(const struct child *c, struct ctl_report *rep, struct nsbox_error *err)
{
	uint64_t start = monotonic_us();

	for (int i = 0; i < NSBOX_WITNESS_MAX; i++) {
		enum verdict v = acts[i](c);

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
