/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many starts of /bin/true a second, by some workers at once, each a process of its own:
 *
 *   bench --rate KIND SECONDS WORKERS DIRECTORY
 *     process	   posix_spawn()
 *     namespaces  seven namespaces and the program, and nothing else: what the host is able to do
 *     library	   nsbox_run() with plan and root at hand
 */
#include <errno.h>
#include <nsbox/image.h>
#include <nsbox/policy.h>
#include <nsbox/sandbox.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nsbox/sys.h"
#include "nsbox/util.h"
#include "tests/bench/bench.h"

#define READY_US 500000
#define SEVEN                                                                                      \
	(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | \
	 CLONE_NEWCGROUP)

static const char *const program[] = { "/bin/true", NULL };

struct prepared {
	struct nsbox_plan *plan;
	struct nsbox_root *root;
};

static void start_process(const struct prepared *p)
{
	bench_spawn_us(program);
}

static void start_namespaces(const struct prepared *p)
{
	struct clone_args args = { .flags = SEVEN, .exit_signal = SIGCHLD };
	int status;
	pid_t pid = sys_clone3(&args, sizeof(args));

	if (pid == 0) {
		execv(program[0], (char *const *)program);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		bench_die("namespaces", NULL);
}

static void start_library(const struct prepared *p)
{
	double witness;

	bench_run_us(p->plan, p->root, &witness);
}

static const struct kind {
	const char *name;
	void (*start)(const struct prepared *p);
} kinds[] = {
	{ "process", start_process },
	{ "namespaces", start_namespaces },
	{ "library", start_library },
};

static const struct kind *find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (!strcmp(kinds[i].name, name))
			return &kinds[i];
	errno = EINVAL;
	bench_die(name, NULL);
}

/* A plan is not inherited by fork(), so each makes ready what it needs, and all begin at once. */
static _Noreturn void work(const struct kind *k, int plan_fd, double from_us, double until_us,
			   _Atomic unsigned *count)
{
	struct prepared p = { 0 };
	struct nsbox_error err = { 0 };
	int filter; /* open until the end of the process */

	if (nsbox_plan_open(plan_fd, &p.plan, &err) < 0 ||
	    nsbox_root_prepare(NULL, NULL, &p.root, &err) < 0 ||
	    nsbox_plan_keep_filter(p.plan, &filter, &err) < 0)
		bench_die("prepare", &err);
	if (bench_now_us() < from_us)
		usleep((useconds_t)(from_us - bench_now_us()));
	while (bench_now_us() < until_us) {
		k->start(&p);
		atomic_fetch_add(count, 1);
	}
	_exit(0);
}

int bench_rate(int plan_fd, const char *name, double seconds, unsigned workers)
{
	const struct kind *k = find(name);
	double from = bench_now_us() + READY_US;
	int status, bad = 0;
	_Atomic unsigned *count = mmap(NULL, sizeof(*count), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (count == MAP_FAILED)
		bench_die("mmap", NULL);
	for (unsigned i = 0; i < workers; i++) {
		pid_t pid = fork();

		if (pid < 0)
			bench_die("fork", NULL);
		if (pid == 0)
			work(k, plan_fd, from, from + seconds * 1e6, count);
	}
	while (wait(&status) > 0)
		bad |= status;
	printf("%.1f\n", atomic_load(count) / ((bench_now_us() - from) / 1e6));
	return bad ? 1 : 0;
}
