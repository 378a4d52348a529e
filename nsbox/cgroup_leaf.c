/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control groups of single execs: `<n>` below the group that has the sandbox's limits.
 *
 * Leaves are used again. Files on tmpfs stay charged to the group whose process wrote them, and a
 * group that was removed lives on in the kernel until its last page goes: one for each of a
 * thousand commands would be memory that no limit counts.
 */
#include "nsbox/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>

#include "nsbox/sys.h"
#include "nsbox/util.h"

#define PROCS_BYTES (256 << 10)

static bool is_taken(const struct cgroup *cg, unsigned n)
{
	return cg->taken[n / 8] & (1U << n % 8);
}

/* The hierarchy in which processes are listed and signalled. */
static int procs_dir(const struct cgroup *cg)
{
	return cg->leaf[CG_PIDS];
}

static void procs_path(int leaf, char *ret, int size)
{
	nsbox_format(ret, size, "%d/cgroup.procs", leaf);
}

bool cgroup_leaf_empty(const struct cgroup *cg, int leaf)
{
	char path[32], text[32];

	procs_path(leaf, path, sizeof(path));
	return read_small_file(procs_dir(cg), path, text, sizeof(text)) == 0;
}

/* ------------------------------------------------------------------ taking */

static int make_dir(int dir, const char *name)
{
	return dir < 0 || mkdirat(dir, name, 0755) == 0 || errno == EEXIST ? 0 : -errno;
}

static int make_leaf(struct cgroup *cg, struct nsbox_error *err)
{
	char name[16];
	int r = 0;

	nsbox_format(name, sizeof(name), "%u", cg->leaves);
	/* v2: from the first leaf on no process may be in the group above it, and none is: programs
	 * that have no leaf end with all that they have started. */
	if (cg->kind == NSBOX_CGROUP_V2 && !cg->leaves)
		r = cgroup_enable_v2(cg->leaf[0], false);
	if (r == 0)
		r = make_dir(cg->leaf[CG_MEMORY], name);
	if (r == 0 && cg->kind == NSBOX_CGROUP_V1)
		r = make_dir(cg->leaf[CG_PIDS], name);
	if (r < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_CGROUP, NSBOX_E_SETUP, r,
				     "make a control group for the program");
	cg->leaves++;
	return 0;
}

int cgroup_leaf_take(struct cgroup *cg, int *ret, struct nsbox_error *err)
{
	char limit[16];
	unsigned n = 0;
	int r;

	while (n < cg->leaves && (is_taken(cg, n) || !cgroup_leaf_empty(cg, (int)n)))
		n++;
	if (n == CGROUP_LEAVES)
		return nsbox_fail_at(err, NSBOX_STAGE_CGROUP, NSBOX_E_LIMIT, EAGAIN,
				     "processes of %d earlier programs still run in the sandbox",
				     CGROUP_LEAVES);
	if (n == cg->leaves) {
		r = make_leaf(cg, err);
		if (r < 0)
			return r;
	}
	/* The sandbox's own, so that a program that meets it alone meets it here, where it counts;
	 * and the end of one before may have set another. */
	nsbox_format(limit, sizeof(limit), "%u", cg->pids);
	r = cgroup_set(cg, (int)n, CGF_PIDS, limit);
	if (r < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_CGROUP, NSBOX_E_SETUP, r,
				     "set the process limit of the program");
	cg->taken[n / 8] |= (unsigned char)(1U << n % 8);
	*ret = (int)n;
	return 0;
}

void cgroup_leaf_release(struct cgroup *cg, int leaf)
{
	if (leaf >= 0)
		cg->taken[leaf / 8] &= (unsigned char)~(1U << leaf % 8);
}

/* ------------------------------------------------------------------ signals */

/* Is the process still in the leaf? Its number may have become another's. */
static bool is_member(const struct cgroup *cg, int leaf, pid_t pid)
{
	char path[32], text[8192], end[48];

	nsbox_format(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	nsbox_format(end, sizeof(end), "/nsbox/%u%s/%d\n", cg->slot,
		     cg->kind == NSBOX_CGROUP_V2 ? "/run" : "", leaf);
	return read_small_file(AT_FDCWD, path, text, sizeof(text)) > 0 && strstr(text, end);
}

static void signal_member(const struct cgroup *cg, int leaf, pid_t pid, int sig)
{
	auto_close int fd = pidfd_open(pid, 0);

	if (fd >= 0 && is_member(cg, leaf, pid))
		sys_pidfd_send_signal(fd, sig);
}

static void signal_all(const struct cgroup *cg, int leaf, int sig)
{
	auto_free char *text = malloc(PROCS_BYTES);
	char path[32];

	procs_path(leaf, path, sizeof(path));
	if (!text || read_small_file(procs_dir(cg), path, text, PROCS_BYTES) < 0)
		return;
	for (char *p = text; *p;) {
		char *end;
		long pid = strtol(p, &end, 10);

		if (end == p)
			break;
		signal_member(cg, leaf, (pid_t)pid, sig);
		p = end + strspn(end, "\n");
	}
}

void cgroup_leaf_signal(const struct cgroup *cg, int leaf, int sig)
{
	char path[32];

	if (sig == SIGKILL) {
		nsbox_format(path, sizeof(path), "%d/cgroup.kill", leaf);
		if (cg->kind == NSBOX_CGROUP_V2 && write_small_file(cg->leaf[0], path, "1") == 0)
			return;
		cgroup_set(cg, leaf, CGF_PIDS, "0"); /* no more forks: what is listed is all */
	}
	signal_all(cg, leaf, sig);
}

/* ------------------------------------------------------------------ removing */

void cgroup_leaves_remove(int dir)
{
	int copy = dir < 0 ? -1 : openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;

	if (!list) {
		close_fd(&copy);
		return;
	}
	while ((e = readdir(list))) {
		uint64_t n;

		if (parse_u64(e->d_name, &n))
			cgroup_remove_dir(dir, e->d_name);
	}
	closedir(list);
}
