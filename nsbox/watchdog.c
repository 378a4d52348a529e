/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory limit where no control group can be written: look at what init's descendants have
 * resident, often enough that a program that fills memory at full speed is stopped within some
 * tens of megabytes. Everything in the sandbox is a descendant of init, since orphans go to it.
 *
 * The cheap sum counts a page once for each process that maps it, so a family of forked workers
 * seems to hold a multiple of what it does. Only when that sum is over the limit is it worth the
 * dear one, in which a shared page counts in parts.
 *
 * Pages need not be mapped to be held: what the sandbox's tmpfs mounts hold init is asked for, what
 * its memfds hold is looked up, both less often.
 *
 * In the tier "process" with the caller's own id processes are counted as well.
 *
 * The limit is the sandbox's. Over it, who holds the most has to go: a running exec with all it has
 * started, or, of what earlier execs have left running, the largest family.
 */
#include "nsbox/sandbox_private.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "nsbox/tree.h"
#include "nsbox/util.h"

#define MEMFDS_MAX	    1024
#define WATCH_AFTER_KILL_US 200000 /* for what was killed to be gone */

static uint64_t resident(pid_t pid)
{
	char path[40], text[128];
	char *end;

	nsbox_format(path, sizeof(path), "/proc/%d/statm", (int)pid);
	if (read_small_file(AT_FDCWD, path, text, sizeof(text)) < 0)
		return 0;
	strtoull(text, &end, 10); /* size */
	return strtoull(end, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* What a process has resident, each page counted in the part that is its own. */
struct share {
	uint64_t own;	/* anonymous, and of files of the image */
	uint64_t shmem; /* of tmpfs, memfds and shared anonymous mappings */
};

static uint64_t field(const char *text, const char *name)
{
	const char *p = strstr(text, name);

	return p ? strtoull(p + strlen(name), NULL, 10) << 10 : 0;
}

static void add_share(struct share *sum, pid_t pid)
{
	char path[48], text[4096];

	nsbox_format(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
	if (read_small_file(AT_FDCWD, path, text, sizeof(text)) < 0) {
		sum->own += resident(pid); /* the kernel does not say: all of it */
		return;
	}
	sum->own += field(text, "\nPss_Anon:") + field(text, "\nPss_File:");
	sum->shmem += field(text, "\nPss_Shmem:");
}

static uint64_t held_memory(pid_t init, uint64_t files, uint64_t limit, unsigned *ret_processes)
{
	struct tree *t = tree_grow(init);
	uint64_t total = files;

	*ret_processes = t ? t->count : 0;
	if (!t)
		return 0;
	for (unsigned i = 0; i < t->count; i++)
		total += resident(t->pid[i]);
	if (total > limit) {
		struct share sum = { 0 };

		for (unsigned i = 0; i < t->count; i++)
			add_share(&sum, t->pid[i]);
		/* Files that are mapped as well are in both numbers: once is enough. */
		total = sum.own + MAX(sum.shmem, files);
	}
	free(t);
	return total;
}

/* ------------------------------------------------------------------ memfds */

struct seen {
	uint64_t inode[MEMFDS_MAX];
	unsigned count;
	uint64_t bytes;
};

static void add_memfd(struct seen *s, int dir, const char *name)
{
	char target[16];
	struct stat st;
	ssize_t n = readlinkat(dir, name, target, sizeof(target));

	if (n < 7 || strncmp(target, "/memfd:", 7) || fstatat(dir, name, &st, 0) < 0)
		return;
	for (unsigned i = 0; i < s->count; i++)
		if (s->inode[i] == st.st_ino)
			return;
	if (s->count < MEMFDS_MAX)
		s->inode[s->count++] = st.st_ino;
	s->bytes += (uint64_t)st.st_blocks * 512;
}

/* A memfd holds its pages without being mapped. One that is open nowhere, in flight on a socket, is
 * not found: without control groups the limit is as good as what can be seen. */
static uint64_t held_by_memfds(pid_t init)
{
	struct tree *t = tree_grow(init);
	struct seen *s = calloc(1, sizeof(*s));
	uint64_t bytes = 0;

	for (unsigned i = 0; t && s && i < t->count; i++) {
		char path[32];
		struct dirent *e;
		DIR *dir;

		nsbox_format(path, sizeof(path), "/proc/%d/fd", (int)t->pid[i]);
		dir = opendir(path);
		while (dir && (e = readdir(dir)))
			if (e->d_name[0] != '.')
				add_memfd(s, dirfd(dir), e->d_name);
		if (dir)
			closedir(dir);
	}
	if (s)
		bytes = s->bytes;
	free(s);
	free(t);
	return bytes;
}

/* ------------------------------------------------------------------ looking */

/* The answer comes with init's other reports, and counts from the next look on. */
static void look_at_files(struct nsbox_sandbox *sb)
{
	struct ctl_request req = { .magic = CTL_MAGIC, .kind = CTL_USAGE };

	ctl_send(sb->control, &req, sizeof(req), NULL, 0);
	sb->watch_memfds = held_by_memfds(sb->pid);
}

/* The resident sum of a process and what is below it. */
static uint64_t weight(pid_t pid)
{
	auto_free struct tree *t = tree_grow(pid);
	uint64_t sum = resident(pid);

	for (unsigned i = 0; t && i < t->count; i++)
		sum += resident(t->pid[i]);
	return sum;
}

/* The heaviest running exec; *ret_weight: and how heavy. */
static struct exec *heaviest(struct nsbox_sandbox *sb, uint64_t *ret_weight)
{
	struct exec *worst = NULL;

	*ret_weight = 0;
	for (struct exec *ex = sb->execs; ex; ex = ex->next) {
		uint64_t w = ex->leader_fd >= 0 ? weight(ex->leader) : UINT64_MAX;

		if (ex->phase == EXEC_RUN && w >= *ret_weight) {
			worst = ex;
			*ret_weight = w;
		}
	}
	return worst;
}

static bool leads(const struct nsbox_sandbox *sb, pid_t pid)
{
	for (const struct exec *ex = sb->execs; ex; ex = ex->next)
		if (ex->leader == pid)
			return true;
	return false;
}

/* Init's other children: what earlier execs have left. */
static pid_t heaviest_left(const struct nsbox_sandbox *sb, uint64_t *ret_weight)
{
	auto_free struct tree *t = tree_grow(sb->pid);
	pid_t worst = 0;

	*ret_weight = 0;
	for (unsigned i = 0; t && i < t->count; i++) {
		uint64_t w;

		if (tree_parent(t->pid[i]) != sb->pid || leads(sb, t->pid[i]))
			continue;
		w = weight(t->pid[i]);
		if (w > *ret_weight) {
			worst = t->pid[i];
			*ret_weight = w;
		}
	}
	return worst;
}

/* Whoever was told to go still holds what it held; nobody else shall go for that. */
static bool is_being_ended(const struct nsbox_sandbox *sb)
{
	for (const struct exec *ex = sb->execs; ex; ex = ex->next)
		if (ex->stop_cause == NSBOX_CAUSE_MEMORY || ex->stop_cause == NSBOX_CAUSE_PIDS)
			return true;
	return false;
}

static void end_someone(struct nsbox_sandbox *sb, int cause)
{
	uint64_t running, left;
	struct exec *ex = heaviest(sb, &running);
	pid_t pid = heaviest_left(sb, &left);

	sb->watch_at = monotonic_us() + WATCH_AFTER_KILL_US;
	if (ex && (running >= left || !pid)) {
		ex->watch_kills += cause == NSBOX_CAUSE_MEMORY;
		stop_exec(sb, ex, cause);
	} else if (pid) {
		tree_signal(pid, SIGKILL, !sb->process);
		tree_signal_child(pid, sb->pid, SIGKILL, !sb->process);
	}
}

/* Where the kernel's limit would count all of the caller's processes: this one counts those here. */
static bool counts_processes(const struct nsbox_sandbox *sb)
{
	return sb->process && !sb->process->own_ids;
}

/* Init's children that are ours: leaders, and who works on files. */
static unsigned helpers(const struct nsbox_sandbox *sb)
{
	return sb->running + sb->files_running;
}

void watchdog_look(struct nsbox_sandbox *sb)
{
	const struct plan_limits *l = &sb->fixed->limits;
	unsigned processes;
	uint64_t now;

	if (sb->watch_round++ % WATCH_FILES_EVERY == 0)
		look_at_files(sb);
	now = held_memory(sb->pid, sb->watch_files + sb->watch_memfds, l->memory, &processes);
	sb->watch_peak = MAX(sb->watch_peak, now);
	if (is_being_ended(sb))
		return;
	if (now > l->memory)
		end_someone(sb, NSBOX_CAUSE_MEMORY);
	else if (counts_processes(sb) && processes > l->pids + helpers(sb))
		end_someone(sb, NSBOX_CAUSE_PIDS);
}
