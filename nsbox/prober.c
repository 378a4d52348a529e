/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prober: a process that init forks beside a program whose opens are traced. It has the program's
 * id, filter and Landlock domain, and nothing else; the observer outside tells it a name, it tries to
 * open that, and says what came of it. So it is the kernel that judges, by the same rules.
 *
 * It must not do what the program has not done: nothing is created, truncated or waited for, and only
 * directories and regular files are opened at all. Names in a procfs mean something else to it.
 * System calls only.
 */
#include "nsbox/child.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include "nsbox/observe.h"
#include "nsbox/util.h"

static bool is_about_itself(const char *path)
{
	return !strncmp(path, "/proc/", 6) || !strncmp(path, "/dev/fd", 7) ||
	       !strncmp(path, "/dev/std", 8);
}

/* A file that is not there can be made where its directory can be written. */
static uint32_t try_directory(char *path)
{
	char *slash = strrchr(path, '/');
	struct statfs fs;

	if (!slash || slash == path)
		return 0;
	*slash = '\0';
	if (statfs(path, &fs) == 0 && (fs.f_flags & ST_RDONLY))
		return EROFS;
	return faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) < 0 ? (uint32_t)errno : 0;
}

static uint32_t try_open(struct probe_ask *a)
{
	const int kept = O_ACCMODE | O_DIRECTORY | O_NOFOLLOW;
	auto_close int there = -1, fd = -1;
	struct statfs fs;
	struct stat st;

	a->path[sizeof(a->path) - 1] = '\0';
	if (is_about_itself(a->path))
		return 0;
	there = open(a->path, O_PATH | O_CLOEXEC | ((int)a->flags & (O_NOFOLLOW | O_DIRECTORY)));
	if (there < 0 && errno == ENOENT && (a->flags & O_CREAT))
		return try_directory(a->path);
	if (there < 0)
		return (uint32_t)errno;
	if (a->flags & O_PATH)
		return 0;
	if (fstatfs(there, &fs) < 0 || fs.f_type == PROC_SUPER_MAGIC || fstat(there, &st) < 0 ||
	    (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
		return 0;
	fd = open(a->path, ((int)a->flags & kept) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	return fd < 0 ? (uint32_t)errno : 0;
}

_Noreturn void prober_main(struct child *c, const struct blob *own, int socket)
{
	struct probe_ask a;
	sigset_t all;

	sigfillset(&all);
	if (sigprocmask(SIG_SETMASK, &all, NULL) < 0 || child_close_others(0, &socket, 1) < 0 ||
	    payload_credentials(c, NULL) < 0 || (own && payload_landlock(c, own, NULL) < 0) ||
	    payload_filter(c, own, NULL) < 0)
		_exit(1);
	while (read(socket, &a, sizeof(a)) == (ssize_t)sizeof(a)) {
		struct probe_told told = { .number = a.number };

		told.errnum = try_open(&a);
		if (write(socket, &told, sizeof(told)) != (ssize_t)sizeof(told))
			break;
	}
	_exit(0);
}
