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
 */
#include "nsbox/sandbox_private.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "nsbox/util.h"

#define TREE_MAX   4096 /* processes looked at in one round */
#define MEMFDS_MAX 1024
#define CHILDREN   (64 << 10) /* bytes of the list of a thread's children */

struct tree {
	pid_t pid[TREE_MAX];
	unsigned count;
	char text[CHILDREN];
};

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

static void add_children(struct tree *t, int tasks, const char *tid)
{
	char path[32], *p = t->text;

	nsbox_format(path, sizeof(path), "%s/children", tid);
	if (read_small_file(tasks, path, t->text, sizeof(t->text)) < 0)
		return;
	while (*p && t->count < TREE_MAX) {
		t->pid[t->count++] = (pid_t)strtol(p, &p, 10);
		while (*p == ' ')
			p++;
	}
}

/* A thread's children are listed under it, and any thread may fork. */
static void add_children_of_threads(struct tree *t, pid_t pid)
{
	char path[32];
	struct dirent *e;
	DIR *dir;

	nsbox_format(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	if (!dir)
		return; /* it has ended */
	while ((e = readdir(dir)))
		if (e->d_name[0] != '.')
			add_children(t, dirfd(dir), e->d_name);
	closedir(dir);
}

static struct tree *grow_tree(pid_t init)
{
	struct tree *t = malloc(sizeof(*t));

	if (!t)
		return NULL;
	t->count = 0;
	add_children_of_threads(t, init);
	for (unsigned i = 0; i < t->count; i++) /* breadth first: the list grows meanwhile */
		add_children_of_threads(t, t->pid[i]);
	return t;
}

uint64_t watchdog_memory(pid_t init, uint64_t files, uint64_t limit)
{
	struct tree *t = grow_tree(init);
	uint64_t total = files;

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
uint64_t watchdog_memfds(pid_t init)
{
	struct tree *t = grow_tree(init);
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
