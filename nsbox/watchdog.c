/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory limit where no control group can be written: look at what init's descendants have
 * resident, often enough that a program that fills memory at full speed is stopped within some
 * tens of megabytes. Everything in the sandbox is a descendant of init, since orphans go to it.
 */
#include "nsbox/sandbox_private.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "nsbox/util.h"

#define TREE_MAX 4096 /* processes looked at in one round */

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

/* Breadth first over /proc/PID/task/PID/children; a thread's children are listed under it, so
 * programs that fork from threads are undercounted by those, never overcounted. */
uint64_t watchdog_resident(pid_t init)
{
	pid_t *queue = malloc(sizeof(*queue) * TREE_MAX);
	unsigned head = 0, count = 1;
	uint64_t total = 0;
	char path[64], text[8192];

	if (!queue)
		return 0;
	queue[0] = init;
	while (head < count) {
		pid_t pid = queue[head++];
		char *p = text;

		if (pid != init)
			total += resident(pid);
		nsbox_format(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
		if (read_small_file(AT_FDCWD, path, text, sizeof(text)) < 0)
			continue;
		while (*p && count < TREE_MAX) {
			queue[count++] = (pid_t)strtol(p, &p, 10);
			while (*p == ' ')
				p++;
		}
	}
	free(queue);
	return total;
}
