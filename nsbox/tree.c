/* SPDX-License-Identifier: Apache-2.0 */
#include "nsbox/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <nsbox/error.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>

#include "nsbox/sys.h"
#include "nsbox/util.h"

/* ------------------------------------------------------------------ growing */

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

struct tree *tree_grow(pid_t root)
{
	struct tree *t = malloc(sizeof(*t));

	if (!t)
		return NULL;
	t->count = 0;
	add_children_of_threads(t, root);
	for (unsigned i = 0; i < t->count; i++) /* breadth first: the list grows meanwhile */
		add_children_of_threads(t, t->pid[i]);
	return t;
}

/* ------------------------------------------------------------------ signalling */

pid_t tree_parent(pid_t pid)
{
	char path[32], text[1024];
	const char *p;

	nsbox_format(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (read_small_file(AT_FDCWD, path, text, sizeof(text)) < 0)
		return 0;
	p = strrchr(text, ')'); /* its name may hold anything */
	return p && strlen(p) > 4 ? (pid_t)strtol(p + 4, NULL, 10) : 0;
}

static bool holds(const struct tree *t, unsigned n, pid_t root, pid_t pid)
{
	if (pid == root)
		return true;
	for (unsigned i = 0; i < n; i++)
		if (t->pid[i] == pid)
			return true;
	return false;
}

/*
 * In a pid namespace below ours, as everything in a sandbox is and nothing of the owner's level. (Which
 * one only those may ask who may trace: not an ordinary user of an init that is undumpable.)
 */
static bool is_nested(pid_t pid)
{
	char path[32], text[4096];
	const char *p;

	nsbox_format(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (read_small_file(AT_FDCWD, path, text, sizeof(text)) < 0)
		return false;
	p = strstr(text, "\nNSpid:\t");
	p = p ? p + strlen("\nNSpid:\t") : NULL;
	return p && p[strspn(p, "0123456789")] == '\t'; /* another number follows */
}

/* Looked at once more while the pidfd holds it: the number may have become another's since. */
static void signal_member(const struct tree *t, unsigned i, pid_t root, int sig, bool nested)
{
	auto_close int fd = pidfd_open(t->pid[i], 0);

	/* With another parent by now: the next round's. */
	if (fd >= 0 && holds(t, i, root, tree_parent(t->pid[i])) &&
	    (!nested || is_nested(t->pid[i])))
		sys_pidfd_send_signal(fd, sig);
}

int tree_signal(pid_t root, int sig, bool nested)
{
	auto_free struct tree *t = tree_grow(root);

	if (!t)
		return -ENOMEM;
	for (unsigned i = 0; i < t->count; i++)
		signal_member(t, i, root, sig, nested);
	return (int)t->count;
}

void tree_signal_child(pid_t pid, pid_t parent, int sig, bool nested)
{
	auto_close int fd = pidfd_open(pid, 0);

	if (fd >= 0 && tree_parent(pid) == parent && (!nested || is_nested(pid)))
		sys_pidfd_send_signal(fd, sig);
}
