/* SPDX-License-Identifier: Apache-2.0 */
/*
 * enosys SYSCALL[:ERRNO][,SYSCALL[:ERRNO]...] -- COMMAND...
 *
 * Run a command in which the named system calls fail: with ENOSYS, or the errno that is named. The
 * rest is as always. The filter is inherited by everything the command starts, so that a product
 * is tested on a kernel that lacks a call, or behind a container's profile that refuses it.
 *
 * Exit status: the command's; 125 where the filter could not be made.
 */
#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int die(const char *what, const char *name)
{
	fprintf(stderr, "enosys: %s%s%s\n", what, name ? ": " : "", name ? name : "");
	return 125;
}

/* By name, of those there are; 0 where there is none such. */
static int errno_by_name(const char *name)
{
	for (int i = 1; i < 134; i++) {
		const char *known = strerrorname_np(i);

		if (known && !strcmp(known, name))
			return i;
	}
	return 0;
}

static int add(scmp_filter_ctx ctx, char *item)
{
	char *colon = strchr(item, ':');
	int errnum = ENOSYS, nr;

	if (colon) {
		*colon = '\0';
		errnum = errno_by_name(colon + 1);
	}
	nr = seccomp_syscall_resolve_name(item);
	if (!errnum)
		return die("no such errno", colon + 1);
	if (nr < 0)
		return die("no such system call", item);
	if (seccomp_rule_add(ctx, SCMP_ACT_ERRNO((unsigned)errnum), nr, 0) < 0)
		return die("no filter can be made for", item);
	return 0;
}

/* The filter of a list of calls; 0, or the exit status. */
static int load(scmp_filter_ctx ctx, char *list)
{
	char *save = NULL;

	for (char *item = strtok_r(list, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
		int status = add(ctx, item);

		if (status)
			return status;
	}
	/* Without no_new_privs where that is allowed: the command is to differ in nothing else. */
	seccomp_attr_set(ctx, SCMP_FLTATR_CTL_NNP, 0);
	if (seccomp_load(ctx) == 0)
		return 0;
	seccomp_attr_set(ctx, SCMP_FLTATR_CTL_NNP, 1);
	return seccomp_load(ctx) < 0 ? die("the filter cannot be loaded", NULL) : 0;
}

int main(int argc, char **argv)
{
	scmp_filter_ctx ctx;
	int status;

	if (argc < 4 || strcmp(argv[2], "--") != 0)
		return die("usage: enosys SYSCALL[:ERRNO][,...] -- COMMAND...", NULL);
	ctx = seccomp_init(SCMP_ACT_ALLOW);
	if (!ctx)
		return die("out of memory", NULL);
	status = load(ctx, argv[1]);
	seccomp_release(ctx);
	if (status)
		return status;
	execvp(argv[3], argv + 3);
	return die(argv[3], strerror(errno));
}
