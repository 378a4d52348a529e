/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory limit where no control group can be written: look at what init's descendants have
 * resident, often enough that a program that fills memory at full speed is stopped within some
 * tens of megabytes. Everything in the sandbox is a descendant of init, since orphans go to it.
 *
 * The cheap sum counts a page once for each process that maps it, so a family of forked workers
 * seems to hold a multiple of what it does. Only when that sum is over the limit is it worth the
 * dear one, in which a shared page counts in parts.
 */
#include "nsbox/sandbox_private.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "nsbox/util.h"

#define TREE_MAX 4096	    /* processes looked at in one round */
#define CHILDREN (64 << 10) /* bytes of the list of a thread's children */

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

/* Its share of what it has resident; all of it where the kernel does not say. */
static uint64_t proportional(pid_t pid)
{
	char path[48], text[4096];
	const char *pss;

	nsbox_format(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
	if (read_small_file(AT_FDCWD, path, text, sizeof(text)) < 0)
		return resident(pid);
	pss = strstr(text, "\nPss:");
	return pss ? strtoull(pss + 5, NULL, 10) << 10 : resident(pid);
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

uint64_t watchdog_resident(pid_t init, uint64_t limit)
{
	struct tree *t = malloc(sizeof(*t));
	uint64_t total = 0;

	if (!t)
		return 0;
	t->count = 0;
	add_children_of_threads(t, init);
	for (unsigned i = 0; i < t->count; i++) { /* breadth first: the list grows meanwhile */
		total += resident(t->pid[i]);
		add_children_of_threads(t, t->pid[i]);
	}
	if (total > limit) {
		total = 0;
		for (unsigned i = 0; i < t->count; i++)
			total += proportional(t->pid[i]);
	}
	free(t);
	return total;
}
