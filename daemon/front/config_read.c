/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of the operator that hold JSON are read in a process of their own: the supervisor may be
 * root, and reads none itself. The child has the one file and a pipe, a user that owns nothing
 * where it can have one, and no way to more; what comes back is a struct of fixed size.
 */
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "daemon/front/options.h"
#include "nsbox/util.h"
#include "policy/lint.h"

#define CONFIG_MAX (256u << 10)
#define NOBODY	   65534

struct reading {
	struct nsbox_error error;
	struct front_options options;
	bool done;
};

/* ------------------------------------------------------------------ the child */

static void confine(int fd)
{
	const struct rlimit none = { 0, 0 }, seconds = { 5, 5 };

	if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
			       setresuid(NOBODY, NOBODY, NOBODY) < 0))
		_exit(1);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || dup2(fd, 3) < 0 ||
	    close_range(4, ~0u, 0) < 0 || setrlimit(RLIMIT_CPU, &seconds) < 0 ||
	    setrlimit(RLIMIT_FSIZE, &none) < 0 || setrlimit(RLIMIT_NPROC, &none) < 0)
		_exit(1);
}

/* "FILE:LINE: /pointer: text", where the text has the place. */
static void locate(const char *path, const char *text, size_t len, struct nsbox_error *err)
{
	const char *colon = err->msg[0] == '/' ? strstr(err->msg, ": ") : NULL;
	char pointer[256];
	unsigned line, column;

	if (colon && (size_t)(colon - err->msg) < sizeof(pointer)) {
		memcpy(pointer, err->msg, (size_t)(colon - err->msg));
		pointer[colon - err->msg] = 0;
		if (pointer[1] == 0)
			pointer[0] = 0;
		/* What is missing, or not known, is in what is there. */
		while (*pointer && !lint_locate(text, len, pointer, &line, &column))
			*strrchr(pointer, '/') = 0;
		if (*pointer) {
			nsbox_error_prefix(err, "%s:%u", path, line);
			return;
		}
	}
	nsbox_error_prefix(err, "%s", path);
}

static int parse(const char *path, bool ceiling, struct reading *ret)
{
	static char text[CONFIG_MAX + 1];
	size_t len = 0;
	ssize_t n;
	int r;

	while (len < sizeof(text) && (n = read(3, text + len, sizeof(text) - len)) > 0)
		len += (size_t)n;
	if (len > CONFIG_MAX)
		return nsbox_fail(&ret->error, NSBOX_E_INVALID, EFBIG, "'%s' has more than %u KiB",
				  path, CONFIG_MAX >> 10);
	r = ceiling ? nsbox_ceiling_parse(text, len, &ret->options.ceiling, &ret->error)
		    : config_parse(text, len, &ret->options, &ret->error);
	if (r < 0)
		locate(path, text, len, &ret->error);
	return r;
}

/* ------------------------------------------------------------------ the parent */

static int open_file(const char *path, int *ret, struct nsbox_error *err)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open '%s'", path);
	if (!S_ISREG(st.st_mode))
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "'%s' is not a regular file", path);
	if ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & 022))
		return nsbox_fail(err, NSBOX_E_INVALID, EPERM,
				  "'%s' could be changed by others (owner %u, mode %o): chown it "
				  "to root and chmod go-w it",
				  path, st.st_uid, st.st_mode & 07777);
	*ret = take_fd(&fd);
	return 0;
}

/* The result comes through shared memory: a child that dies leaves `done` unset. */
static int read_apart(const char *path, bool ceiling, struct front_options *o,
		      struct nsbox_error *err)
{
	auto_close int fd = -1;
	struct reading *shared;
	int r = open_file(path, &fd, err), status;
	pid_t pid;

	if (r < 0)
		return r;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "read '%s'", path);
	shared->options = *o;
	pid = fork();
	if (pid == 0) {
		confine(fd);
		(void)parse(path, ceiling, shared);
		shared->done = true;
		_exit(0);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (pid < 0 || !shared->done)
		r = nsbox_fail(err, NSBOX_E_IO, pid < 0 ? errno : 0, "read '%s' in a process apart",
			       path);
	else if (shared->error.code)
		*err = shared->error;
	else
		*o = shared->options;
	if (r == 0 && pid > 0 && shared->error.code)
		r = -EINVAL;
	munmap(shared, sizeof(*shared));
	return r;
}

int config_read(const char *path, struct front_options *o, struct nsbox_error *err)
{
	return read_apart(path, false, o, err);
}

int config_read_ceiling(const char *path, struct nsbox_ceiling *ret, struct nsbox_error *err)
{
	auto_free struct front_options *o = calloc(1, sizeof(*o));
	int r;

	if (!o)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read '%s'", path);
	r = read_apart(path, true, o, err);
	if (r == 0)
		*ret = o->ceiling;
	return r;
}
