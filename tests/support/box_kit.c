/* SPDX-License-Identifier: Apache-2.0 */
/* See box_kit.h. */
#include "tests/support/box_kit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "nsbox/util.h"

struct nsbox_host box_host;
struct nsbox_root *box_root;
uint32_t box_layers;

/* ------------------------------------------------------------------ before and after */

bool box_prepare(int *ret_status)
{
	const char *must = getenv("NSBOX_MUST_WORK");
	struct nsbox_error err = { 0 };
	int r = nsbox_host_probe(&box_host, &err);

	if (r == 0 && nsbox_host_tier(&box_host) < NSBOX_TIER_NAMESPACE)
		r = nsbox_fail(&err, NSBOX_E_UNSUPPORTED, 0,
			       "this host cannot hold sandboxes: see nsbox doctor");
	if (r == 0)
		r = nsbox_root_prepare(NULL, NULL, &box_root, &err);
	if (r == 0) {
		box_layers = nsbox_host_layers(&box_host);
		return true;
	}
	if (err.code != NSBOX_E_UNSUPPORTED || (must && *must && strcmp(must, "0") != 0)) {
		printf("not ok 1 - %s\n1..1\n", err.msg);
		*ret_status = 1;
	} else {
		printf("1..0 # SKIP %s\n", err.msg);
		*ret_status = 0;
	}
	return false;
}

int box_finish(Suite *s)
{
	SRunner *sr = srunner_create(s);
	int failed;

	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	nsbox_root_free(box_root);
	nsbox_sweep();
	return failed != 0;
}

/* ------------------------------------------------------------------ plans and runs */

struct nsbox_plan *box_plan(const char *manifest, void (*fn)(struct plan_fixed *))
{
	auto_close int fd = kit_compile(&box_host, manifest);
	struct nsbox_error err = { 0 };
	struct blob_builder *b;
	struct plan_fixed fixed;
	struct blob plan;

	ck_assert_msg(blob_map(fd, PLAN_MAGIC, &plan, &err) == 0, "%s", err.msg);
	b = kit_rebuild(&plan);
	fixed = kit_fixed(&plan);
	if (fn)
		fn(&fixed);
	kit_set_fixed(b, &fixed);
	blob_unmap(&plan);
	return kit_open(b);
}

unsigned box_slow(void)
{
	const char *text = getenv("NSBOX_SLOW");
	long factor = text ? strtol(text, NULL, 10) : 1;

	return factor > 1 ? (unsigned)factor : 1;
}

void box_slurp(int fd, char *buf, size_t size)
{
	ssize_t n = pread(fd, buf, size - 1, 0);

	ck_assert_int_ge(n, 0);
	buf[n] = '\0';
}

void box_run_argv(struct box_run *run, const char *const *argv)
{
	struct nsbox_plan *own = run->plan ? NULL : box_plan(NULL, NULL);
	auto_close int out = memfd_create("out", MFD_CLOEXEC);
	const struct nsbox_sandbox_options opt = {
		.layers = run->layers ? run->layers : box_layers,
		.files_fd = -1,
		.observe = run->observe,
	};
	const struct nsbox_exec ex = {
		.argv = argv,
		.env = run->env,
		.cwd = run->cwd,
		.wall_ms = run->wall_ms,
	};
	const struct nsbox_io io = { -1, out, out, run->request ? run->request : -1,
				     run->result_fd ? run->result_fd : -1 };

	ck_assert_int_ge(out, 0);
	/* Append: what several processes write must not overwrite each other. */
	ck_assert_int_eq(fcntl(out, F_SETFL, O_APPEND), 0);
	run->ret = nsbox_run(own ? own : run->plan, box_root, &opt, &ex, &io, &run->res, &run->err);
	box_slurp(out, run->out, sizeof(run->out));
	nsbox_plan_close(own);
}

void box_run_sh(struct box_run *run, const char *script)
{
	const char *const argv[] = { "sh", "-c", script, NULL };

	box_run_argv(run, argv);
}

/* ------------------------------------------------------------------ step by step */

struct nsbox_sandbox *box_new(const struct nsbox_plan *plan, int files_fd)
{
	const struct nsbox_sandbox_options opt = { .layers = box_layers, .files_fd = files_fd };
	struct nsbox_error err = { 0 };
	struct nsbox_sandbox *sb = NULL;

	ck_assert_msg(nsbox_sandbox_new(plan, box_root, &opt, &sb, &err) == 0, "%s", err.msg);
	return sb;
}

void box_sh(struct nsbox_sandbox *sb, const char *script, bool keep_rest, int out)
{
	const char *const argv[] = { "sh", "-c", script, NULL };
	const struct nsbox_exec ex = { .argv = argv, .keep_rest = keep_rest };
	const struct nsbox_io io = { -1, out, out, -1, -1 };
	struct nsbox_error err = { 0 };

	ck_assert_msg(nsbox_sandbox_exec(sb, &ex, &io, NULL, &err) == 0, "%s", err.msg);
}

struct nsbox_event box_expect(struct nsbox_sandbox *sb, uint32_t kind)
{
	struct nsbox_error err = { 0 };
	struct nsbox_event ev;

	ck_assert_msg(nsbox_sandbox_next(sb, 10000 * (int)box_slow(), &ev, &err) == 0, "%s",
		      err.msg);
	ck_assert_msg(ev.kind == kind, "event %u instead of %u: %s", ev.kind, kind, ev.error.msg);
	return ev;
}

/* ------------------------------------------------------------------ from outside */

int box_children(pid_t pid, pid_t *ret, int max)
{
	char path[64], text[8192], *p = text;
	int n = 0;

	nsbox_format(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	if (read_small_file(AT_FDCWD, path, text, sizeof(text)) < 0)
		return 0;
	while (n < max) {
		char *end;
		long child = strtol(p, &end, 10);

		if (end == p)
			break;
		ret[n++] = (pid_t)child;
		p = end;
	}
	return n;
}

bool box_gone(pid_t pid)
{
	char path[40], text[1024];
	const char *p;

	nsbox_format(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (read_small_file(AT_FDCWD, path, text, sizeof(text)) < 0)
		return true;
	p = strrchr(text, ')');
	return !p || p[2] == 'Z' || p[2] == 'X';
}

bool box_wait_gone(pid_t pid, int ms)
{
	const struct timespec tick = { 0, 5000000 };

	for (int waited = 0; !box_gone(pid); waited += 5) {
		if (waited >= ms * (int)box_slow())
			return false;
		nanosleep(&tick, NULL);
	}
	return true;
}
