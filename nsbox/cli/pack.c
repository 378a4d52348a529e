/* SPDX-License-Identifier: Apache-2.0 */
/* A directory as a tar archive in memory: how a skill travels to the daemon. */
#include "nsbox/cli/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nsbox/cli/cli.h"
#include "nsbox/util.h"

#define PACK_MAX (48u << 20) /* base64 of it fits the daemon's largest request */

/* At most PACK_MAX bytes; what it takes grows with the archive. */
static int take(int fd, struct pack *p, struct nsbox_error *err)
{
	size_t room = 0;
	ssize_t n;

	do {
		if (p->len == room) {
			char *q = room < PACK_MAX ? realloc(p->data, room + (1u << 20)) : NULL;

			if (!q && room >= PACK_MAX)
				return nsbox_fail(err, NSBOX_E_LIMIT, EFBIG,
						  "it is larger than %u MiB packed",
						  PACK_MAX >> 20);
			if (!q)
				return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read the archive");
			p->data = q;
			room += 1u << 20;
		}
		n = read(fd, p->data + p->len, room - p->len);
		if (n > 0)
			p->len += (size_t)n;
	} while (n > 0 || (n < 0 && errno == EINTR));
	return n < 0 ? nsbox_fail(err, NSBOX_E_IO, errno, "read the archive") : 0;
}

static pid_t start(const char *worker, int dir, int out, int said)
{
	pid_t pid = fork();

	if (pid == 0) {
		dup2(out, 1);
		dup2(said, 2);
		if (fchdir(dir) == 0)
			execl(worker, "nsbox-pack", (char *)NULL);
		_exit(127);
	}
	return pid;
}

/* What the worker said on its way out is the reason. */
static int judge(int status, const char *worker, int said, struct nsbox_error *err)
{
	char why[512] = "";
	ssize_t n = pread(said, why, sizeof(why) - 1, 0);

	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return nsbox_fail(err, NSBOX_E_IO, ENOENT, "run '%s'", worker);
	why[n > 0 ? n : 0] = '\0';
	why[strcspn(why, "\n")] = '\0';
	return nsbox_fail(err, NSBOX_E_IO, 0, "%s", *why ? why : "nsbox-pack ended early");
}

int pack_dir(const char *dir, struct pack *ret, struct nsbox_error *err)
{
	char path[4096];
	const char *worker = cli_libexec("nsbox-pack", path, sizeof(path));
	auto_close int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_close int said = memfd_create("nsbox-pack", MFD_CLOEXEC);
	auto_close int from = -1;
	int ends[2], status = 0, r;
	pid_t pid;

	memset(ret, 0, sizeof(*ret));
	if (at < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "enter the directory '%s'", dir);
	if (said < 0 || pipe2(ends, O_CLOEXEC) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "pack '%s'", dir);
	from = ends[0];
	pid = start(worker, at, ends[1], said);
	close(ends[1]);
	if (pid < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "fork '%s'", worker);
	r = take(from, ret, err);
	if (r < 0)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (r == 0)
		r = judge(status, worker, said, err);
	if (r < 0) {
		nsbox_error_prefix(err, "pack '%s'", dir);
		free(take_ptr(&ret->data));
	}
	return r;
}
