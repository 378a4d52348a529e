/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting the front's confined workers (compile, unpack): a fresh process for each input, with
 * the descriptors it needs and no others. posix_spawn shares memory until the exec, so the size
 * of the front does not matter.
 */
#include "daemon/front/child.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#include "nsbox/util.h"

/*
 * Sources are moved out of the way of the targets first: dup2 in ascending order would otherwise
 * overwrite a source that is still needed.
 */
static int add_fds(posix_spawn_file_actions_t *fa, const int *in, int n, int *high)
{
	int r = 0;

	for (int i = 0; i < n && r == 0; i++) {
		if (in[i] < 0) {
			r = posix_spawn_file_actions_addopen(fa, i, "/dev/null", O_RDWR, 0);
			continue;
		}
		high[i] = fcntl(in[i], F_DUPFD_CLOEXEC, 16);
		r = high[i] < 0 ? errno : posix_spawn_file_actions_adddup2(fa, high[i], i);
	}
	return r == 0 ? posix_spawn_file_actions_addclosefrom_np(fa, n) : r;
}

static int set_signals(posix_spawnattr_t *attr)
{
	sigset_t none, pipe;
	int r;

	sigemptyset(&none);
	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	r = posix_spawnattr_setsigmask(attr, &none);
	if (r == 0)
		r = posix_spawnattr_setsigdefault(attr, &pipe);
	if (r == 0)
		r = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	return r;
}

int child_start(const char *path, const char *const *argv, const int *in, int n, pid_t *ret,
		struct nsbox_error *err)
{
	static char *const env[] = { NULL };
	int high[8] = { -1, -1, -1, -1, -1, -1, -1, -1 };
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t attr;
	int r;

	posix_spawn_file_actions_init(&fa);
	posix_spawnattr_init(&attr);
	r = n <= (int)ARRAY_SIZE(high) ? add_fds(&fa, in, n, high) : EINVAL;
	if (r == 0)
		r = set_signals(&attr);
	if (r == 0)
		r = posix_spawn(ret, path, &fa, &attr, (char *const *)argv, env);
	posix_spawn_file_actions_destroy(&fa);
	posix_spawnattr_destroy(&attr);
	for (size_t i = 0; i < ARRAY_SIZE(high); i++)
		close_fd(&high[i]);
	return r == 0 ? 0 : nsbox_fail(err, NSBOX_E_NOMEM, r, "start '%s'", path);
}

void child_reap(void)
{
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}
