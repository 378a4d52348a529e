/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network namespace that does nothing but hold a plan's packet filter (nsbox_plan_keep_filter()).
 *
 * Where the kernel calls the packet filter there is a branch that is patched into its code with the
 * first hook of any namespace and out of it with the last (nf_hooks_needed, net/netfilter/core.c).
 * Patching stops all processors. One after the other, each run would be the first and the last.
 */
#include <errno.h>
#include <fcntl.h>
#include <nsbox/plan.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "nsbox/nft.h"
#include "nsbox/plan_build.h"
#include "nsbox/plan_format.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

/* The table of descriptors is the caller's, too: the namespace takes the place of `place`. */
static _Noreturn void keep_in(const unsigned char *batch, size_t size, int place)
{
	int fd, r = nft_send(batch, size);

	if (r < 0)
		_exit(-r);
	fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		_exit(errno);
	r = dup3(fd, place, O_CLOEXEC) < 0 ? errno : 0;
	close(fd);
	_exit(r);
}

static int keep_namespace(const unsigned char *batch, size_t size, int place)
{
	/* No exit signal, as for any process of ours: its end must not look like one of the caller's. */
	struct clone_args args = { .flags = CLONE_FILES | CLONE_NEWUSER | CLONE_NEWNET };
	pid_t pid = sys_clone3(&args, sizeof(args));
	int status;

	if (pid == 0)
		keep_in(batch, size, place);
	if (pid < 0)
		return -errno;
	while (waitpid(pid, &status, __WALL) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
}

int nsbox_plan_keep_filter(const struct nsbox_plan *plan, int *ret_fd, struct nsbox_error *err)
{
	size_t size;
	const unsigned char *batch = blob_get(plan_blob(plan), SEC_NFT, 1, &size);
	auto_close int place = -1;
	unsigned char *copy;
	int r;

	*ret_fd = -1;
	if (!size)
		return 0;
	copy = malloc(size); /* the plan itself is kept out of children */
	place = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (!copy || place < 0) {
		free(copy);
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "open a network namespace");
	}
	memcpy(copy, batch, size);
	r = keep_namespace(copy, size, place);
	free(copy);
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_UNSUPPORTED, -r,
				  "keep a network namespace with the packet filter");
	*ret_fd = take_fd(&place);
	return 0;
}
