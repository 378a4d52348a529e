/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers of images, for the front: nsbox-commit is started with the stream and the place for its word, and
 * the front hears when it has ended. It has our privileges, and hashing, which is not linked here.
 */
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/spawn/spawn.h"
#include "nsbox/util.h"

static int find_program(char *buf, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", buf, size - sizeof("nsbox-commit"));
	char *slash;

	if (n <= 0)
		return -ENOENT;
	buf[n] = '\0';
	slash = strrchr(buf, '/');
	strcpy(slash ? slash + 1 : buf, "nsbox-commit");
	return 0;
}

static int start(const struct spawn *s, const struct wire_request *q, const int *fds, pid_t *ret)
{
	char program[4096];
	char *const argv[] = { (char *)"nsbox-commit", (char *)(s->state_dir ? s->state_dir : ""),
			       (char *)q->image,       (char *)q->image_digest,
			       (char *)q->base,	       NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none;
	int r = find_program(program, sizeof(program));

	if (r < 0)
		return r;
	sigemptyset(&none);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[0], 0);
	posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
	r = posix_spawn(ret, program, &actions, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	return -r;
}

static int watch(struct spawn *s, struct spawn_commit *c, uint64_t id)
{
	struct epoll_event e = { .events = EPOLLIN, .data.u64 = id };

	c->pidfd = pidfd_open(c->pid, 0);
	if (c->pidfd < 0 || epoll_ctl(s->epoll, EPOLL_CTL_ADD, c->pidfd, &e) < 0)
		return -errno;
	return 0;
}

int spawn_commit_start(struct spawn *s, const struct wire_request *q, const int *fds,
		       struct nsbox_error *err)
{
	struct spawn_commit *c = s->commits;
	int r;

	while (c < s->commits + SPAWN_COMMITS_MAX && c->number)
		c++;
	if (c == s->commits + SPAWN_COMMITS_MAX)
		return nsbox_fail(err, NSBOX_E_LIMIT, EBUSY, "%d images are being made",
				  SPAWN_COMMITS_MAX);
	r = start(s, q, fds, &c->pid);
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, -r, "start nsbox-commit");
	c->number = q->sandbox;
	r = watch(s, c, SPAWN_ID_COMMITS + (uint64_t)(c - s->commits));
	if (r == 0)
		return 0;
	spawn_commits_end(s);
	return nsbox_fail(err, NSBOX_E_NOMEM, -r, "watch nsbox-commit");
}

uint64_t spawn_commit_ended(struct spawn *s, uint64_t id, struct nsbox_error *why)
{
	struct spawn_commit *c = &s->commits[id - SPAWN_ID_COMMITS];
	uint64_t number = c->number;
	siginfo_t info = { 0 };

	/* Said and not done is told by its word; this is for one that could say nothing. */
	if (waitid(P_PID, (id_t)c->pid, &info, WEXITED) < 0 || info.si_code != CLD_EXITED ||
	    info.si_status > 1)
		nsbox_fail(why, NSBOX_E_PROTOCOL, 0, "nsbox-commit ended before its time");
	close_fd(&c->pidfd);
	*c = (struct spawn_commit){ .pidfd = -1 };
	return number;
}

void spawn_commits_end(struct spawn *s)
{
	for (struct spawn_commit *c = s->commits; c < s->commits + SPAWN_COMMITS_MAX; c++) {
		if (!c->number)
			continue;
		kill(c->pid, SIGKILL); /* not waited for yet: its number is nobody else's */
		while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
			;
		close_fd(&c->pidfd);
		*c = (struct spawn_commit){ .pidfd = -1 };
	}
}
