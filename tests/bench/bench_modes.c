/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests/bench/peers asks of this program, a figure a line:
 *
 *   bench --serve DIRECTORY  a run of /bin/true through the library for each line of standard input,
 *			      with plan and root at hand: microseconds. The line's number is of
 *			      sandboxes that are alive meanwhile, kept from line to line
 *   bench --calls FILE	      getppid, open+read+close of FILE, and 4 KiB of it read: nanoseconds each;
 *			      the same program runs inside and outside
 */
#include <fcntl.h>
#include <nsbox/image.h>
#include <nsbox/policy.h>
#include <nsbox/sandbox.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nsbox/util.h"
#include "tests/bench/bench.h"

#define CALLS_ROUNDS 20
#define CALLS_EACH   5000
#define ALIVE_MAX    2000

/* ------------------------------------------------------------------ calls */

static void call_getppid(const char *file, int fd)
{
	syscall(SYS_getppid);
}

static void call_open(const char *file, int fd)
{
	char buf[64];
	auto_close int own = open(file, O_RDONLY | O_CLOEXEC);

	if (own < 0 || read(own, buf, sizeof(buf)) <= 0)
		bench_die(file, NULL);
}

static void call_read(const char *file, int fd)
{
	char buf[4096];

	if (pread(fd, buf, sizeof(buf), 0) != (ssize_t)sizeof(buf))
		bench_die(file, NULL);
}

/* The least of the rounds: what else runs on the machine can only add. */
static double least_ns(void (*fn)(const char *file, int fd), const char *file, int fd)
{
	double least = 0;

	for (int i = 0; i < CALLS_ROUNDS; i++) {
		double began = bench_now_us(), ns;

		for (int k = 0; k < CALLS_EACH; k++)
			fn(file, fd);
		ns = (bench_now_us() - began) * 1000 / CALLS_EACH;
		if (!i || ns < least)
			least = ns;
	}
	return least;
}

int bench_calls(const char *file)
{
	auto_close int fd = open(file, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		bench_die(file, NULL);
	printf("%.1f\n", least_ns(call_getppid, file, fd));
	printf("%.1f\n", least_ns(call_open, file, fd));
	printf("%.1f\n", least_ns(call_read, file, fd));
	return 0;
}

/* ------------------------------------------------------------------ serve */

int bench_serve(int plan_fd)
{
	struct nsbox_sandbox *alive[ALIVE_MAX];
	struct nsbox_plan *plan = NULL;
	struct nsbox_root *root = NULL;
	struct nsbox_error err = { 0 };
	unsigned n = 0, wanted;
	auto_close int filter = -1;
	char line[16];
	double witness;

	if (nsbox_plan_open(plan_fd, &plan, &err) < 0 ||
	    nsbox_root_prepare(NULL, NULL, &root, &err) < 0 ||
	    nsbox_plan_keep_filter(plan, &filter, &err) < 0)
		bench_die("prepare", &err);
	while (fgets(line, sizeof(line), stdin)) {
		wanted = (unsigned)strtoul(line, NULL, 10);
		if (wanted > ALIVE_MAX)
			bench_die(line, NULL);
		for (; n < wanted; n++)
			alive[n] = bench_ready(plan, root);
		while (n > wanted)
			nsbox_sandbox_free(alive[--n]);
		printf("%.1f\n", bench_run_us(plan, root, &witness));
		fflush(stdout);
	}
	while (n)
		nsbox_sandbox_free(alive[--n]);
	nsbox_plan_close(plan);
	nsbox_root_free(root);
	return 0;
}
