/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The observer's own life: close everything, shut itself in, answer.
 *
 * Its answers are made before, one for each errno of the plan's filter, and then made read-only: a
 * struct seccomp_notif_resp lies across two pages so that its first member, the number of the call,
 * can be written, and value, error and flags cannot. The filter that it loads for itself compares
 * the addresses that it gives to the kernel with those of these answers, and leaves no call that
 * could change a mapping. So there is none that says SECCOMP_USER_NOTIF_FLAG_CONTINUE, and whoever
 * took the observer over could not make one.
 *
 * Where opens are observed as well it has an answer more, that lets a call pass, and sends it for calls that
 * the plan's filter allows.
 *
 * After fork: system calls only.
 */
#include "nsbox/observer.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "nsbox/child.h"
#include "nsbox/control.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

#define OWN_FILTER_MAX 128

static size_t page(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/* ------------------------------------------------------------------ answers */

static struct seccomp_notif_resp *answer_at(const struct observer_task *t, unsigned i)
{
	return (void *)(t->answers + (2 * i + 1) * page() -
			offsetof(struct seccomp_notif_resp, val));
}

static void add_errnum(struct observer_task *t, uint32_t errnum)
{
	for (unsigned i = 0; i < t->errnums; i++)
		if (t->errnum[i] == errnum)
			return;
	if (errnum && t->errnums < OBSERVE_ERRNOS)
		t->errnum[t->errnums++] = errnum;
}

static int write_answers(struct observer_task *t)
{
	for (unsigned i = 0; i < t->errnums; i++) {
		struct seccomp_notif_resp *a = answer_at(t, i);

		a->error = -(int32_t)t->errnum[i];
		if (mprotect(t->answers + (2 * i + 1) * page(), page(), PROT_READ) < 0)
			return -errno;
	}
	return 0;
}

/* Where opens are observed there is one more, the last, for those that the filter allows. */
static int write_pass(struct observer_task *t)
{
	if (t->errnums == OBSERVE_ERRNOS)
		return -E2BIG;
	answer_at(t, t->errnums)->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	t->errnum[t->errnums++] = 0;
	return write_answers(t);
}

int observer_prepare(struct observer_task *t)
{
	size_t size = (2 * (size_t)OBSERVE_ERRNOS + 1) * page();

	t->errnums = 0;
	add_errnum(t, EPERM); /* the first: for what should not be */
	for (size_t i = 0; i < t->n; i++)
		if (t->filter[i].code == (BPF_RET | BPF_K) &&
		    (t->filter[i].k & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO)
			add_errnum(t, t->filter[i].k & SECCOMP_RET_DATA);
	t->answers = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (t->answers == MAP_FAILED)
		return -errno;
	t->call = (void *)(t->answers + 2 * (size_t)OBSERVE_ERRNOS * page());
	return t->trace ? write_pass(t) : write_answers(t);
}

void observer_release(struct observer_task *t)
{
	munmap(t->answers, (2 * (size_t)OBSERVE_ERRNOS + 1) * page());
}

/* ------------------------------------------------------------------ shutting itself in */

struct own_filter {
	struct sock_filter insn[OWN_FILTER_MAX];
	unsigned short n;
};

static void emit(struct own_filter *f, uint16_t code, uint8_t jt, uint8_t jf, uint32_t k)
{
	if (f->n < OWN_FILTER_MAX)
		f->insn[f->n++] = (struct sock_filter){ code, jt, jf, k };
}

static void load_word(struct own_filter *f, size_t offset)
{
	emit(f, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

static void allow_if(struct own_filter *f, uint32_t value)
{
	emit(f, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, value);
	emit(f, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
}

static void kill_unless(struct own_filter *f, uint32_t value)
{
	emit(f, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, value);
	emit(f, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS);
}

#define ARG(i) (offsetof(struct seccomp_data, args) + 8 * (size_t)(i))

/* The third argument is one of these addresses. All are in one mapping, but not in one 4 GiB. */
static void allow_address(struct own_filter *f, const void *p)
{
	uintptr_t at = (uintptr_t)p;

	load_word(f, ARG(2) + 4);
	emit(f, BPF_JMP | BPF_JEQ | BPF_K, 0, 3, (uint32_t)(at >> 32));
	load_word(f, ARG(2));
	allow_if(f, (uint32_t)at);
}
#define ADDRESS_INSNS 5

static void allow_ioctls(struct own_filter *f, const struct observer_task *t)
{
	load_word(f, ARG(0));
	kill_unless(f, (uint32_t)t->listener);
	load_word(f, ARG(1));
	emit(f, BPF_JMP | BPF_JEQ | BPF_K, 0, ADDRESS_INSNS + 1,
	     (uint32_t)SECCOMP_IOCTL_NOTIF_RECV);
	allow_address(f, t->call);
	emit(f, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS);
	if (t->trace)
		allow_if(f, (uint32_t)SECCOMP_IOCTL_NOTIF_ID_VALID);
	kill_unless(f, (uint32_t)SECCOMP_IOCTL_NOTIF_SEND);
	for (unsigned i = 0; i < t->errnums; i++)
		allow_address(f, answer_at(t, i));
	emit(f, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS);
}

/* Of the callers' memory, of where names begin, and to the prober. */
static const uint32_t trace_calls[] = { SYS_process_vm_readv, SYS_readlinkat, SYS_read, SYS_write };

static int shut_in(const struct observer_task *t)
{
	struct own_filter f = { .n = 0 };
	struct sock_fprog prog = { .filter = f.insn };

	load_word(&f, offsetof(struct seccomp_data, arch));
	kill_unless(&f, NATIVE_AUDIT_ARCH);
	load_word(&f, offsetof(struct seccomp_data, nr));
	allow_if(&f, SYS_ppoll);
	allow_if(&f, SYS_nanosleep);
	allow_if(&f, SYS_restart_syscall);
	allow_if(&f, SYS_exit_group);
	for (unsigned i = 0; t->trace && i < ARRAY_SIZE(trace_calls); i++)
		allow_if(&f, trace_calls[i]);
	kill_unless(&f, SYS_ioctl);
	allow_ioctls(&f, t);
	if (f.n >= OWN_FILTER_MAX)
		return -E2BIG;
	prog.len = f.n;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0 ? -errno : 0;
}

/* What it has of its owner's goes, but the memory that came with the fork. */
static int leave_owner(const struct observer_task *t)
{
	sigset_t all;
	const int keep[] = { t->listener, t->place, t->prober };
	int r = child_close_others(0, keep, ARRAY_SIZE(keep));

	sigfillset(&all);
	if (r == 0 && (sigprocmask(SIG_SETMASK, &all, NULL) < 0 || setsid() < 0 ||
		       prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
		       prctl(PR_SET_NAME, "nsbox-observer", 0, 0, 0) < 0))
		r = -errno;
	return r;
}

/* ------------------------------------------------------------------ answering */

static bool is_mark(const struct seccomp_data *d)
{
	return d->nr == OBSERVE_MARK_NR && d->args[0] == OBSERVE_MARK;
}

static void note(struct observed *o, const struct seccomp_data *d,
		 const struct nsbox_denied_call *denied)
{
	const struct timespec pause = { .tv_nsec = OBSERVE_PAUSE_NS };

	if (o->begun)
		observe_count(o, denied);
	else if (is_mark(d))
		o->begun = 1;
	if (o->total > OBSERVE_FLOOD)
		syscall(SYS_nanosleep, &pause, NULL);
}

static void answer(struct observer_task *t)
{
	struct nsbox_denied_call denied;
	uint32_t errnum;
	unsigned i = t->errnums;

	memset(t->call, 0, sizeof(*t->call));
	if (ioctl(t->listener, SECCOMP_IOCTL_NOTIF_RECV, t->call) < 0)
		return; /* who called has been killed meanwhile */
	errnum = observe_judge(t->filter, t->n, &t->call->data, &denied);
	if (errnum)
		note(t->table, &t->call->data, &denied);
	else if (t->trace && t->table->begun)
		observer_look(t);
	while (--i && t->errnum[i] != errnum)
		;
	answer_at(t, i)->id = t->call->id;
	ioctl(t->listener, SECCOMP_IOCTL_NOTIF_SEND, answer_at(t, i));
}

/* Nobody sends one where the owner has ended, or no program came. */
static int take_listener(struct observer_task *t)
{
	unsigned n = 1;
	char byte;
	int r = ctl_recv(t->place, &byte, 1, &t->listener, &n, 0);

	close(t->place);
	return r < 0 ? r : n == 1 ? 0 : -ENODATA;
}

_Noreturn void observer_main(struct observer_task *t)
{
	struct pollfd p = { .events = POLLIN };

	if (leave_owner(t) < 0 || (t->listener < 0 && take_listener(t) < 0) || shut_in(t) < 0)
		_exit(1);
	p.fd = t->listener;
	for (;;) {
		if (syscall(SYS_ppoll, &p, 1, NULL, NULL, 0) < 0 && errno != EINTR)
			_exit(1);
		if (p.revents & POLLIN)
			answer(t);
		else if (p.revents) /* nothing runs behind the filter any more */
			_exit(0);
	}
}
