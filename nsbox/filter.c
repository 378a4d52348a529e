/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading the plan's filters, as they are or in the form in which refusals are observed (observe.h).
 * In the child: system calls only.
 */
#include "nsbox/child.h"

#include <linux/seccomp.h>
#include <string.h>
#include <sys/mman.h>

#include "nsbox/observe.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"
#include "nsbox/weaken.h"

#define SPACE ((OBSERVE_MAX + OBSERVE_EXTRA) * sizeof(struct sock_filter))

static int load(const struct sock_filter *insns, size_t n, unsigned long flags)
{
	struct sock_fprog prog = { .len = (unsigned short)n,
				   .filter = (struct sock_filter *)insns };
	long r;

	if (left_out(SECCOMP))
		return 0;
	r = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
	return r < 0 ? -errno : (int)r;
}

static int load_plain(const struct blob *b, enum blob_section sec)
{
	size_t n;
	const struct sock_filter *insns = blob_get(b, sec, sizeof(*insns), &n);

	return load(insns, n, 0);
}

/* -E2BIG where the form does not fit. With a flag for it the result is the listener. */
static int load_observed(const struct blob *b, enum blob_section sec, enum observe_form form,
			 unsigned long flags)
{
	size_t n;
	const struct sock_filter *insns = blob_get(b, sec, sizeof(*insns), &n);
	void *space = mmap(NULL, SPACE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int r;

	if (space == MAP_FAILED)
		return -errno;
	r = observe_rewrite(insns, n, form, space);
	if (r > 0)
		r = load(space, (size_t)r, flags);
	munmap(space, SPACE);
	return r;
}

int stage_init_filter(struct child *c, struct nsbox_error *err)
{
	int r = c->observe ? load_observed(c->plan, SEC_BPF_INIT, OBSERVE_INIT, 0) : -E2BIG;

	if (r == -E2BIG) { /* nothing is lost but what would be told */
		c->observe = false;
		r = load_plain(c->plan, SEC_BPF_INIT);
	}
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, r, "install init's system call filter");
	return 0;
}

static int not_loaded(int r, struct nsbox_error *err)
{
	return r < 0 ? nsbox_fail_at(err, NSBOX_STAGE_SECCOMP, NSBOX_E_SETUP, r,
				     "install the system call filter")
		     : 0;
}

int payload_filter(const struct child *c, const struct blob *own, struct nsbox_error *err)
{
	int r = load_plain(c->plan, SEC_BPF);

	if (r == 0 && own)
		r = load_plain(own, SEC_BPF);
	return not_loaded(r, err);
}

/*
 * Of equal answers the latest filter's counts, so a filter of the program's own, which is behind the
 * plan's, is the one with the listener. What the plan's alone refuses the kernel answers with ENOSYS.
 */
static int load_listened(const struct child *c, const struct blob *own, enum observe_form form)
{
	int r = 0;

	if (!c->observe)
		return -E2BIG;
	if (own)
		r = load_observed(c->plan, SEC_BPF, OBSERVE_INIT, 0);
	if (r < 0)
		return r;
	/* Once an observer has a call, no signal makes another errno of its answer (5.19). */
	return load_observed(own ? own : c->plan, SEC_BPF, form,
			     SECCOMP_FILTER_FLAG_NEW_LISTENER |
				     SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);
}

int payload_filter_observed(const struct child *c, const struct blob *own, int channel, bool traced,
			    struct nsbox_error *err)
{
	struct ctl_report rep = { .magic = CTL_MAGIC, .kind = CTL_REFUSALS };
	int fd = load_listened(c, own, traced ? OBSERVE_TRACED : OBSERVE_PAYLOAD);
	int r;

	/* One listener is all a process may have: a container's may be there already. Who asked for a
	 * trace gets one or nothing; who did not is told that refusals were not counted. */
	if (traced && (fd == -EBUSY || fd == -E2BIG))
		return nsbox_fail_at(err, NSBOX_STAGE_SECCOMP, NSBOX_E_UNSUPPORTED, fd,
				     "trace the files it opens: another observer of system calls "
				     "is there, a container's perhaps; run it without trace");
	if (fd == -EBUSY || fd == -E2BIG)
		return payload_filter(c, own, err);
	if (fd < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_SECCOMP, NSBOX_E_SETUP, fd,
				     "install the system call filter, to be observed");
	if (left_out(SECCOMP))
		return 0;
	r = ctl_send(channel, &rep, sizeof(rep), &fd, 1);
	close(fd);
	if (r < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_SECCOMP, NSBOX_E_SETUP, r,
				     "hand the observer of refused calls its place");
	return 0;
}

void payload_observe_begin(const struct child *c)
{
	if (c->observe && !left_out(SECCOMP))
		syscall(OBSERVE_MARK_NR, OBSERVE_MARK, NULL, NULL, 0, NULL);
}
