/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The template (nsbox/template.h) of nsbox-spawn: one python3 with the operator's modules, with no
 * descriptor but its socket, no variable but two, and nothing of any request. It is a convenience: while
 * there is none, sandboxes are made as without, and after some that ended no more are tried.
 */
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "daemon/spawn/spawn.h"
#include "nsbox/template.h"
#include "nsbox/util.h"
#include "overlay/internal.h"

#define FAILURES_MAX 3				/* in a row */
#define FORKS_MAX    1000			/* that share one layout and one seed */
#define AGE_US	     (3600 * UINT64_C(1000000)) /* the host's files change under it */

/* The runner by its name in a sandbox, where that file is. */
#define BOOT                                                                                       \
	"__file__ = '/opt/nsbox/runner.py'\n"                                                      \
	"exec(compile(open(4, 'rb').read(), __file__, 'exec'))"

/* ------------------------------------------------------------------ start */

static int actions(posix_spawn_file_actions_t *fa, int sock, int text, int words)
{
	int r = posix_spawn_file_actions_addopen(fa, 0, "/dev/null", O_RDONLY, 0);

	/* Pipes, as those of a run: what Python finds out about them stays true. */
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(fa, words, 1);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(fa, words, 2);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(fa, sock, 3);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(fa, text, 4);
	return r == 0 ? posix_spawn_file_actions_addclosefrom_np(fa, 5) : r;
}

static int run(const struct spawn *s, int sock, int text, int words, pid_t *ret)
{
	static char path[] = "PATH=" PLAN_DEFAULT_PATH, lang[] = "LANG=C.UTF-8";
	char *const env[] = { path, lang, NULL };
	char *const argv[] = { (char *)"python3",
			       (char *)"-I",
			       (char *)"-c",
			       (char *)BOOT,
			       (char *)"template",
			       (char *)s->template.library,
			       (char *)s->template.modules,
			       NULL };
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t attr;
	sigset_t none;
	int r;

	sigemptyset(&none);
	posix_spawn_file_actions_init(&fa);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	r = actions(&fa, sock, text, words);
	if (r == 0)
		r = posix_spawnp(ret, "python3", &fa, &attr, argv, env);
	posix_spawn_file_actions_destroy(&fa);
	posix_spawnattr_destroy(&attr);
	return -r;
}

/* Out of the way of those numbers that they get. */
static int high(int fd)
{
	int up = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 16);

	if (fd >= 0)
		close(fd);
	return up;
}

static int start(struct spawn *s)
{
	struct spawn_template *t = &s->template;
	struct epoll_event e = { .events = EPOLLIN, .data.u64 = SPAWN_ID_TEMPLATE };
	int pair[2] = { -1, -1 }, words[2] = { -1, -1 };
	auto_close int text = high(make_memfd("runner", runner_py_start, runner_py_size, true));
	auto_close int theirs = -1, say = -1;
	int r;

	if (text < 0 || ctl_pair(pair) < 0 || pipe2(words, O_CLOEXEC) < 0) {
		close_fd(&pair[0]);
		close_fd(&pair[1]);
		return -ENOMEM;
	}
	t->sock = pair[0];
	t->words = words[0];
	theirs = high(pair[1]);
	say = high(words[1]);
	r = theirs < 0 || say < 0 || fcntl(t->words, F_SETFL, O_NONBLOCK) < 0 ? -EMFILE : 0;
	if (r == 0)
		r = run(s, theirs, text, say, &t->pid);
	if (r == 0 && epoll_ctl(s->epoll, EPOLL_CTL_ADD, t->sock, &e) < 0)
		r = -errno;
	t->since_us = monotonic_us();
	t->forks = 0;
	return r;
}

/* ------------------------------------------------------------------ end */

static void stop(struct spawn_template *t)
{
	close_fd(&t->sock); /* and so out of the epoll set */
	if (t->pid > 0) {
		kill(t->pid, SIGKILL); /* not waited for yet: its number is nobody else's */
		while (waitpid(t->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	close_fd(&t->words);
	t->pid = 0;
	t->ready = false;
}

/* Its last line, where it said something. */
static void complain(struct spawn_template *t, const char *what)
{
	char text[1024], *line;
	ssize_t n = t->words >= 0 ? read(t->words, text, sizeof(text) - 1) : 0;

	text[MAX(n, 0)] = '\0';
	while (n > 0 && text[n - 1] == '\n')
		text[--n] = '\0';
	line = strrchr(text, '\n');
	line = line ? line + 1 : text;
	fprintf(stderr, "<4>nsbox-spawn: the zygote %s: %s (%s)\n", what,
		*line ? line : "it said nothing",
		t->failures < FAILURES_MAX ? "another is started"
					   : "no more are tried; runs are made without");
}

void spawn_template_start(struct spawn *s)
{
	struct spawn_template *t = &s->template;

	while (t->library && t->failures < FAILURES_MAX && start(s) < 0) {
		t->failures++;
		complain(t, "could not be started");
		stop(t);
	}
}

void spawn_template_end(struct spawn *s)
{
	stop(&s->template);
}

/* ------------------------------------------------------------------ use */

void spawn_template_told(struct spawn *s)
{
	struct spawn_template *t = &s->template;
	struct template_reply rep = { 0 };
	unsigned none = 0;
	int r = ctl_recv(t->sock, &rep, sizeof(rep), NULL, &none, MSG_DONTWAIT);

	if (r == -EAGAIN)
		return;
	if (r == 0 && rep.magic == TEMPLATE_MAGIC && !t->ready) {
		t->ready = true;
		fprintf(stderr,
			"<6>nsbox-spawn: a zygote is ready; each fork of it copies %u pages at "
			"once\n",
			rep.pages);
		return;
	}
	t->failures = t->forks ? 1 : t->failures + 1;
	complain(t, "has ended");
	stop(t);
	spawn_template_start(s);
}

int spawn_template_use(struct spawn *s)
{
	struct spawn_template *t = &s->template;

	if (t->ready && (t->forks >= FORKS_MAX || monotonic_us() - t->since_us > AGE_US)) {
		stop(t);
		spawn_template_start(s);
	}
	if (!t->ready)
		return 0;
	t->forks++;
	return t->sock;
}
