/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One probe in one sandbox: policy, plan and root as `nsbox run` makes them, and beside the plan a
 * copy of it with limits that are soon met. The probes come in as any skill does.
 */
#include <errno.h>
#include <fcntl.h>
#include <nsbox/files.h>
#include <nsbox/policy.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "nsbox/plan_build.h"
#include "nsbox/util.h"
#include "policy/internal.h"
#include "selftest/selftest.h"

#define PROBE_MAX (16u << 20)
#define PROBE_MS  60000 /* an emulated processor takes its time, and a probe that hangs is rare */

/* ------------------------------------------------------------------ policy */

/* All of a file, NUL-terminated; malloc'd. */
static int read_all(int fd, const char *name, size_t max, char **ret, size_t *ret_len,
		    struct nsbox_error *err)
{
	auto_free char *buf = NULL;
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open '%s'", name);
	if (!S_ISREG(st.st_mode) || (size_t)st.st_size > max)
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "'%s' is not a regular file of at most %zu bytes", name, max);
	buf = malloc((size_t)st.st_size + 1);
	n = buf ? pread(fd, buf, (size_t)st.st_size, 0) : -1;
	if (n < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "read '%s'", name);
	buf[n] = '\0';
	*ret_len = (size_t)n;
	*ret = take_ptr(&buf);
	return 0;
}

static int load_manifest(const struct box_options *opt, struct box *b, struct nsbox_error *err)
{
	auto_free char *text = NULL;
	size_t len;
	int r;

	if (opt->manifest) {
		auto_close int fd = open(opt->manifest, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

		r = read_all(fd, opt->manifest, 256u << 10, &text, &len, err);
		if (r == 0)
			r = nsbox_manifest_parse(text, len, &b->manifest, err);
		if (r < 0)
			nsbox_error_prefix(err, "%s", opt->manifest);
		return r;
	}
	if (!opt->profile)
		return nsbox_manifest_default(&b->manifest, err);
	if (asprintf(&text,
		     "{\"manifestVersion\": 1, \"name\": \"selftest\", \"description\": "
		     "\"selftest\", \"profile\": \"%s\"}",
		     opt->profile) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "make a manifest");
	return nsbox_manifest_parse(text, strlen(text), &b->manifest, err);
}

static int make_plan(struct box *b, int tier, struct nsbox_error *err)
{
	const struct nsbox_resolve_options opt = {
		.host = &b->host,
		.skill_dir = BOX_DIR,
		.as_operator = true,
		.tier = tier == NSBOX_TIER_PROCESS ? NSBOX_TIER_PROCESS : 0,
	};
	auto_close int fd = -1;
	int r = nsbox_policy_resolve(b->manifest, &opt, &b->policy, err);

	if (r == 0)
		r = nsbox_policy_compile(b->policy, &fd, err);
	if (r == 0)
		r = nsbox_plan_open(fd, &b->plan, err);
	if (r < 0)
		return r;
	b->ptrace = b->policy->ptrace;
	b->memfd_exec = b->policy->memfd_exec;
	b->network = b->policy->network.mode != NETWORK_NONE;
	b->process = tier == NSBOX_TIER_PROCESS;
	return 0;
}

/* The same plan with small limits: bounds are what is tested here, not their size. */
static int make_small(struct box *b, struct nsbox_error *err)
{
	const struct blob *from = plan_blob(b->plan);
	struct blob_builder *to = blob_new(PLAN_MAGIC);
	struct plan_fixed fixed = *blob_fixed(from, struct plan_fixed);
	size_t n;
	const struct mount_op *ops = blob_get(from, SEC_OPS, sizeof(*ops), &n);
	const struct blob_header *h = (const struct blob_header *)from->base;
	auto_close int fd = -1;
	int r;

	if (!to)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "make a plan");
	for (int i = 0; i < SEC_MAX; i++)
		if (i != SEC_OPS)
			blob_set(to, (enum blob_section)i, from->base + h->section[i].offset,
				 h->section[i].size);
	for (size_t i = 0; i < n; i++) {
		struct mount_op op = ops[i];

		if (op.kind == OP_TMPFS || op.kind == OP_DEV)
			op.size = MIN(op.size, SMALL_DISK);
		blob_append(to, SEC_OPS, &op, sizeof(op));
	}
	fixed.limits.memory = SMALL_MEMORY;
	fixed.limits.disk = SMALL_DISK;
	fixed.limits.pids = SMALL_PIDS;
	fixed.limits.cpu_milli = SMALL_CPU;
	fixed.limits.grace_ms = 200;
	blob_set(to, SEC_FIXED, &fixed, sizeof(fixed));
	r = blob_seal(to, "nsbox-plan", &fd, err);
	blob_free(to);
	return r < 0 ? r : nsbox_plan_open(fd, &b->small, err);
}

/* ------------------------------------------------------------------ files */

static int put_program(int stream, int from, const char *name, struct nsbox_error *err)
{
	auto_free char *data = NULL;
	size_t len;
	int r = read_all(from, name, PROBE_MAX, &data, &len, err);

	if (r < 0)
		return r;
	return nsbox_files_put_frame(stream, NSBOX_FRAME_FILE, name, 0755, data, len, err);
}

static int make_files(const struct box_options *opt, int probe_fd, struct box *b,
		      struct nsbox_error *err)
{
	int r;

	b->files = make_memfd("nsbox-selftest", NULL, 0, false);
	if (b->files < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, b->files, "make a file stream");
	r = nsbox_files_put_frame(b->files, NSBOX_FRAME_BASE, BOX_DIR, 0, NULL, 0, err);
	if (r == 0)
		r = put_program(b->files, probe_fd, "nsbox-probe", err);
	if (r == 0 && opt->n_extra)
		r = nsbox_files_put_frame(b->files, NSBOX_FRAME_DIR, "extra", 0755, NULL, 0, err);
	for (size_t i = 0; r == 0 && i < opt->n_extra; i++) {
		auto_close int fd = open(opt->extra[i].file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		char name[300];

		nsbox_format(name, sizeof(name), "extra/%s", opt->extra[i].name);
		r = put_program(b->files, fd, name, err);
	}
	return r == 0 ? nsbox_files_end(b->files, err) : r;
}

int box_open(const struct box_options *opt, int tier, int probe_fd, struct box *ret,
	     struct nsbox_error *err)
{
	int r = load_manifest(opt, ret, err);

	if (r == 0)
		r = make_plan(ret, tier, err);
	if (r == 0)
		r = make_small(ret, err);
	if (r == 0)
		r = nsbox_root_prepare(NULL, opt->image, &ret->root, err);
	return r == 0 ? make_files(opt, probe_fd, ret, err) : r;
}

void box_close(struct box *b)
{
	close_fd(&b->files);
	nsbox_root_free(b->root);
	nsbox_plan_close(b->small);
	nsbox_plan_close(b->plan);
	nsbox_policy_free(b->policy);
	nsbox_manifest_free(b->manifest);
}

/* ------------------------------------------------------------------ a run */

static uint32_t layers_of(const struct box *b, int tier)
{
	uint32_t all = nsbox_host_layers(&b->host);

	return tier < NSBOX_TIER_CGROUP ? all & ~NSBOX_LAYER_BIT(NSBOX_LAYER_CGROUP) : all;
}

static void run(const struct box *b, const struct probe_row *row, const char *const *argv, int in,
		int out, int tier, struct ending *ret)
{
	bool small = row->flags & PF_SMALL;
	const struct nsbox_sandbox_options opt = {
		.layers = layers_of(b, tier),
		.files_fd = b->files,
		.observe = true,
		.process_tier = b->process,
	};
	const struct nsbox_exec ex = {
		.argv = argv,
		.wall_ms = row->flags & PF_WALL_TIME ? 400 : PROBE_MS,
	};
	const struct nsbox_io io = { in, out, out, -1, -1 };
	struct nsbox_error err = { 0 };
	int r;

	ret->in_box = true;
	ret->status = -1;
	lseek(b->files, 0, SEEK_SET);
	r = nsbox_run(small ? b->small : b->plan, b->root, &opt, &ex, &io, &ret->result, &err);
	if (r < 0)
		nsbox_format(ret->why, sizeof(ret->why), "no sandbox: %s", err.msg);
	else if (ret->result.cause == NSBOX_CAUSE_EXIT)
		ret->status = ret->result.exit_status;
	else
		nsbox_format(ret->why, sizeof(ret->why), "it ended by %s%s%s",
			     nsbox_cause_name((int)ret->result.cause),
			     ret->result.error.code ? ": " : "", ret->result.error.msg);
}

/* A second sandbox beside the probe's, whose program lives until it is freed; it is there when the
 * program has said something. */
static int start_neighbour(const struct box *b, const struct probe_row *row, const struct facts *f,
			   const char *program, int tier, struct nsbox_sandbox **ret)
{
	const char *const more[] = { "inside=1", "neighbour=1", NULL };
	auto_free const char **argv = probe_argv(program, row, f, more);
	const struct nsbox_sandbox_options opt = {
		.layers = layers_of(b, tier),
		.files_fd = b->files,
		.process_tier = b->process,
	};
	const struct nsbox_exec ex = { .argv = argv };
	auto_close int out = -1, said = -1;
	struct nsbox_error err = { 0 };
	struct nsbox_event ev = { 0 };
	int p[2], r;
	char byte;

	if (!argv || pipe2(p, O_CLOEXEC) < 0)
		return -ENOMEM;
	said = p[0];
	out = p[1];
	lseek(b->files, 0, SEEK_SET);
	r = nsbox_sandbox_new(b->plan, b->root, &opt, ret, &err);
	if (r == 0)
		r = nsbox_sandbox_exec(*ret, &ex, &(struct nsbox_io){ -1, out, out, -1, -1 }, NULL,
				       &err);
	while (r == 0 && ev.kind != NSBOX_EVENT_STARTED) {
		r = nsbox_sandbox_next(*ret, PROBE_MS, &ev, &err);
		if (ev.kind != NSBOX_EVENT_STARTED && ev.kind != NSBOX_EVENT_READY)
			r = -ECHILD;
	}
	close_fd(&out);
	return r == 0 && read(said, &byte, 1) != 1 ? -ECHILD : r;
}

void box_run(const struct box *b, const struct probe_row *row, const struct facts *f, int tier,
	     struct ending *ret)
{
	struct nsbox_sandbox *beside = NULL;
	/* Opened before: a sandbox without a mount namespace of its own changes ours meanwhile. */
	auto_close int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
	char program[300], unlisted[300];
	const char *const more[] = { "inside=1", unlisted, b->process ? "tier=process" : NULL,
				     NULL };
	auto_free const char **argv = NULL;
	auto_close int out = -1;
	ssize_t n;

	*ret = (struct ending){ .status = -1 };
	nsbox_format(program, sizeof(program), BOX_DIR "/%s%s", row->file ? "extra/" : "",
		     row->file ? row->name : "nsbox-probe");
	facts_unlisted(f, b->process, unlisted, sizeof(unlisted));
	argv = probe_argv(program, row, f, more);
	if ((row->flags & PF_NEIGHBOUR) && start_neighbour(b, row, f, program, tier, &beside) < 0) {
		nsbox_sandbox_free(beside);
		nsbox_format(ret->why, sizeof(ret->why), "its neighbour did not start");
		return;
	}
	for (int i = 0; argv && i < (row->flags & PF_TWICE ? 2 : 1); i++) {
		close_fd(&out);
		out = make_memfd("probe", NULL, 0, false);
		if (out < 0 || fcntl(out, F_SETFL, O_APPEND) < 0)
			break;
		run(b, row, argv, in, out, tier, ret);
	}
	nsbox_sandbox_free(beside);
	n = pread(out, ret->out, sizeof(ret->out) - 1, 0);
	ret->out[n > 0 ? n : 0] = '\0';
}
