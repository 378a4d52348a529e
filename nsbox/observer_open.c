/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking at opens (nsbox_io.trace): the name is read from the caller's memory, made absolute, and
 * tried by the prober inside, who has the program's rights; whatever comes of it, the call goes on
 * and the kernel judges it. Memory and names are the program's and may change at any time: what is
 * told is what was seen, and decides nothing. System calls only.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "nsbox/observer.h"
#include "nsbox/util.h"

#define PAGE_MIN  4096u
#define ANSWER_MS 2000

/* Up to `size` bytes; what lies behind the end of a page may not be there. */
static size_t peek(uint32_t pid, uint64_t at, char *buf, size_t size)
{
	size_t got = 0;

	while (got < size) {
		size_t part = MIN(size - got, PAGE_MIN - (size_t)((at + got) % PAGE_MIN));
		struct iovec to = { buf + got, part };
		struct iovec from = { (void *)(uintptr_t)(at + got), part };
		long n = syscall(SYS_process_vm_readv, pid, &to, 1, &from, 1, 0);

		if (n <= 0)
			break;
		got += (size_t)n;
		if (memchr(buf, '\0', got))
			break;
	}
	return got;
}

/* Where a relative name begins, "" where that cannot be said. */
static size_t begins(uint32_t pid, int dir, char *buf, size_t size)
{
	char link[64];
	long n;

	if (dir == AT_FDCWD)
		nsbox_format(link, sizeof(link), "/proc/%u/cwd", pid);
	else
		nsbox_format(link, sizeof(link), "/proc/%u/fd/%d", pid, dir);
	n = syscall(SYS_readlinkat, AT_FDCWD, link, buf, size - 1);
	if (n <= 0 || buf[0] != '/')
		return 0;
	buf[n] = '\0';
	return (size_t)n;
}

static bool read_name(const struct observer_task *t, const struct observe_open *o, char *buf,
		      size_t size)
{
	const struct seccomp_notif *call = t->call;
	char name[4096];
	size_t n = peek(call->pid, call->data.args[o->path], name, sizeof(name)), at = 0;

	if (!n || !memchr(name, '\0', n) || !*name)
		return false;
	if (*name != '/') {
		at = begins(call->pid, o->dir < 0 ? AT_FDCWD : (int)call->data.args[o->dir], buf,
			    size);
		if (!at)
			return false;
	}
	return nsbox_format(buf + at, (int)(size - at), "%s%s", at ? "/" : "", name) <
	       (int)(size - at);
}

static uint32_t read_flags(const struct observer_task *t, const struct observe_open *o)
{
	uint64_t flags = t->call->data.args[o->flags];

	if (o->flags_in_memory) {
		char at[sizeof(flags)];
		struct iovec to = { at, sizeof(at) };
		struct iovec from = { (void *)(uintptr_t)flags, sizeof(at) };

		if (syscall(SYS_process_vm_readv, t->call->pid, &to, 1, &from, 1, 0) != sizeof(at))
			return 0;
		memcpy(&flags, at, sizeof(flags));
	}
	return (uint32_t)flags;
}

/* Its errno, or -1: the prober could not be asked. An answer to an earlier question may come late. */
static int64_t ask(const struct observer_task *t, const struct probe_ask *a)
{
	const struct timespec most = { .tv_sec = ANSWER_MS / 1000 };
	struct pollfd p = { .fd = t->prober, .events = POLLIN };
	struct probe_told told = { .number = 0 };

	if (write(t->prober, a, sizeof(*a)) != (ssize_t)sizeof(*a))
		return -1;
	while (syscall(SYS_ppoll, &p, 1, &most, NULL, 0) == 1 && (p.revents & POLLIN)) {
		if (read(t->prober, &told, sizeof(told)) != (ssize_t)sizeof(told))
			return -1;
		if (told.number == a->number)
			return told.errnum;
	}
	return -1;
}

void observer_look(struct observer_task *t)
{
	const struct observe_open *o = observe_open((uint32_t)t->call->data.nr);
	static struct probe_ask a; /* this process has one thread, and its stack is its owner's */
	int64_t errnum;

	if (!o)
		return;
	t->trace->observed = 1;
	a.number = (uint32_t)++t->trace->opens;
	a.flags = read_flags(t, o);
	if (!read_name(t, o, a.path, sizeof(a.path)))
		return;
	/* Has what was read been the caller's? Its number may be another's by now. */
	if (ioctl(t->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &t->call->id) < 0)
		return;
	errnum = ask(t, &a);
	if (errnum < 0)
		t->trace->untold++;
	else if (errnum)
		observe_count_open(t->trace, a.path, a.flags & (O_ACCMODE | O_CREAT | O_DIRECTORY),
				   (uint32_t)errnum);
}
