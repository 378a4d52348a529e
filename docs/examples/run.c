/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run COMMAND [ARGUMENT...]: the smallest program that uses libnsbox. It runs a command under the
 * default policy with its own standard streams and says on stderr how that ended.
 *
 *	cc run.c $(pkg-config --cflags --libs libnsbox)
 */
#include <nsbox/host.h>
#include <nsbox/image.h>
#include <nsbox/plan.h>
#include <nsbox/policy.h>
#include <nsbox/sandbox.h>
#include <stdio.h>
#include <unistd.h>

/* Everything that is known before a run, in one sealed memfd. */
static int make_plan(const struct nsbox_host *host, struct nsbox_plan **ret,
		     struct nsbox_error *err)
{
	struct nsbox_resolve_options opt = { .host = host };
	struct nsbox_manifest *manifest = NULL;
	struct nsbox_policy *policy = NULL;
	int fd = -1, r;

	r = nsbox_manifest_default(&manifest, err);
	if (r == 0)
		r = nsbox_policy_resolve(manifest, &opt, &policy, err);
	if (r == 0)
		r = nsbox_policy_compile(policy, &fd, err);
	if (r == 0)
		r = nsbox_plan_open(fd, ret, err);
	if (fd >= 0)
		close(fd);
	nsbox_policy_free(policy);
	nsbox_manifest_free(manifest);
	return r;
}

int main(int argc, char **argv)
{
	struct nsbox_exec ex = { .argv = (const char *const *)argv + 1 };
	struct nsbox_io io = { .in = 0, .out = 1, .err = 2, .request = -1, .result = -1 };
	struct nsbox_sandbox_options opt = { .files_fd = -1 };
	struct nsbox_result result = { 0 };
	struct nsbox_error err = { 0 };
	struct nsbox_plan *plan = NULL;
	struct nsbox_root *root = NULL;
	struct nsbox_host host;
	int r;

	if (argc < 2) {
		fprintf(stderr, "usage: run COMMAND [ARGUMENT...]\n");
		return 125;
	}
	r = nsbox_host_probe(&host, &err);
	if (r == 0)
		r = make_plan(&host, &plan, &err);
	if (r == 0)
		r = nsbox_root_prepare(NULL, NULL, &root, &err);
	if (r == 0) {
		opt.layers = nsbox_host_layers(&host);
		r = nsbox_run(plan, root, &opt, &ex, &io, &result, &err);
	}
	nsbox_root_free(root);
	nsbox_plan_close(plan);
	if (r < 0) {
		fprintf(stderr, "run: %s\n", err.msg);
		return 125;
	}
	fprintf(stderr, "run: cause %s, status %d, %llu ms\n", nsbox_cause_name((int)result.cause),
		result.exit_status, (unsigned long long)result.wall_us / 1000);
	return result.exit_status;
}
