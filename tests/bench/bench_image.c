/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the size of an image costs at the start of a run: two images, of 10 MB and of 1 GB in files of 1 MB,
 * in a store of their own; from the call until the sandbox is ready, rounds interleaved.
 */
#include <fcntl.h>
#include <nsbox/image.h>
#include <nsbox/sandbox.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "nsbox/util.h"
#include "tests/bench/bench.h"

#define FILE_BYTES (1 << 20)

/* Sparse: what is measured is mounting, not this machine's disk. */
static void make_tree(const char *tree, unsigned files)
{
	char path[4200];

	if (mkdir(tree, 0755) < 0)
		bench_die("mkdir", NULL);
	for (unsigned i = 0; i < files; i++) {
		auto_close int fd = -1;

		snprintf(path, sizeof(path), "%s/%u", tree, i);
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		if (fd < 0 || ftruncate(fd, FILE_BYTES) < 0)
			bench_die(path, NULL);
	}
}

static void import(const char *place, const char *name, unsigned files)
{
	char program[4096], tree[4096];
	/* Its line is not the report's. */
	const char *const argv[] = {
		"/bin/sh", "-c", "exec \"$0\" image import \"$1\" \"$2\" >/dev/null", program, name,
		tree,	   NULL
	};

	snprintf(program, sizeof(program), "%s/nsbox", bench_dir);
	snprintf(tree, sizeof(tree), "%s/%s", place, name);
	make_tree(tree, files);
	bench_spawn_us(argv);
}

/* From the name to a sandbox that is ready: what a request that names an image pays. */
static double ready_us(const struct nsbox_plan *plan, const char *image)
{
	struct nsbox_error err = { 0 };
	struct nsbox_sandbox *sb;
	struct nsbox_root *root = NULL;
	double began = bench_now_us(), took;

	if (nsbox_root_prepare(NULL, image, &root, &err) < 0)
		bench_die(image, &err);
	sb = bench_ready(plan, root);
	took = bench_now_us() - began;
	nsbox_sandbox_free(sb);
	nsbox_root_free(root);
	return took;
}

void bench_image(struct json_object *o, int plan_fd)
{
	char place[] = "/tmp/bench-image.XXXXXX", line[128];
	double v[2][BENCH_ROUNDS];
	struct nsbox_plan *plan = NULL;
	struct nsbox_error err = { 0 };

	if (!mkdtemp(place) || chmod(place, 0755) < 0)
		bench_die("mkdtemp", NULL);
	snprintf(line, sizeof(line), "%s/state", place);
	setenv("NSBOX_STATE_DIR", line, 1);
	import(place, "small", 10);
	import(place, "large", 1000);
	if (nsbox_plan_open(plan_fd, &plan, &err) < 0)
		bench_die("plan", &err);
	for (int i = 0; i < BENCH_ROUNDS; i++) {
		v[0][i] = ready_us(plan, "small");
		v[1][i] = ready_us(plan, "large");
	}
	nsbox_plan_close(plan);
	close(plan_fd);
	unsetenv("NSBOX_STATE_DIR");
	bench_put(o, "tenMegabytesMs", bench_median(v[0], BENCH_ROUNDS) / 1000);
	bench_put(o, "gigabyteMs", bench_median(v[1], BENCH_ROUNDS) / 1000);
	bench_put(o, "ratio", bench_median(v[1], BENCH_ROUNDS) / bench_median(v[0], BENCH_ROUNDS));
	snprintf(line, sizeof(line), "rm -rf '%s'", place);
	if (system(line))
		bench_die("rm", NULL);
}
