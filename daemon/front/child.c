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
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

#include "nsbox/util.h"

struct child {
	struct loop *loop;
	struct loop_source *source;
	int pidfd;
	child_fn *on_exit;
	void *ctx;
};

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

static int spawn(const char *path, const char *const *argv, const int *in, int n, pid_t *ret)
{
#ifdef __SANITIZE_ADDRESS__ /* its search for leaks needs calls that the workers' filters refuse */
	static char leaks[] = "ASAN_OPTIONS=detect_leaks=0";
	static char *const env[] = { leaks, NULL };
#else
	static char *const env[] = { NULL };
#endif
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
	return r;
}

static void on_end(void *ctx, uint32_t events)
{
	struct child *c = ctx;
	siginfo_t info = { 0 };

	if (waitid(P_PIDFD, (id_t)c->pidfd, &info, WEXITED | WNOHANG) == 0 && info.si_pid == 0)
		return;
	loop_del(c->loop, &c->source);
	close_fd(&c->pidfd);
	if (c->on_exit)
		c->on_exit(c->ctx, info.si_code, info.si_status);
	free(c);
}

int child_start(struct loop *l, const char *path, const char *const *argv, const int *in, int n,
		child_fn *on_exit, void *ctx, struct child **ret, struct nsbox_error *err)
{
	struct child *c = calloc(1, sizeof(*c));
	pid_t pid;
	int r;

	if (!c)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "start '%s'", path);
	*c = (struct child){ .loop = l, .on_exit = on_exit, .ctx = ctx };
	r = spawn(path, argv, in, n, &pid);
	if (r != 0) {
		free(c);
		return nsbox_fail(err, NSBOX_E_NOMEM, r, "start '%s'", path);
	}
	/* Not reaped yet, so the number is still its own. */
	c->pidfd = pidfd_open(pid, 0);
	r = c->pidfd < 0 ? nsbox_fail(err, NSBOX_E_NOMEM, errno, "watch '%s'", path)
			 : loop_add(l, c->pidfd, EPOLLIN, on_end, c, &c->source, err);
	if (r < 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		close_fd(&c->pidfd);
		free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void child_forget(struct child **cp)
{
	struct child *c = take_ptr(cp);

	if (!c)
		return;
	c->on_exit = NULL;
	pidfd_send_signal(c->pidfd, SIGKILL, NULL, 0);
}
