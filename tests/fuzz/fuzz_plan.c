/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a plan, an exec request, a request about files or a root list. What blob_check() takes is then read as the
 * child reads it: every string from its offset to its end, every element of every section, the
 * values that are promised to be in range.
 */
#include <stdlib.h>
#include <string.h>

#include <nsbox/files.h>

#include "nsbox/plan_build.h"
#include "nsbox/util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t sum; /* keeps the reads */

static void must(bool holds)
{
	if (!holds)
		abort();
}

static const char *read_str(const struct blob *b, str_off off)
{
	const char *s = blob_get_str(b, off);

	sum += strlen(s);
	return s;
}

static void read_path(const struct blob *b, str_off off)
{
	const char *s = read_str(b, off);

	must(s[0] == '/' && s[1] && !strstr(s, "/../") && !strstr(s, "//"));
}

static void read_ops(const struct blob *b)
{
	size_t n, data;
	const struct mount_op *op = blob_get(b, SEC_OPS, sizeof(*op), &n);
	const unsigned char *bytes = blob_get(b, SEC_DATA, 1, &data);

	for (size_t i = 0; i < n; i++) {
		must(op[i].kind > 0 && op[i].kind < OP_KIND_MAX && !(op[i].flags & ~OPF_ALL));
		read_str(b, op[i].src);
		if (op[i].kind != OP_LOWER)
			read_path(b, op[i].dst);
		if (op[i].kind != OP_FILE)
			continue;
		must(op[i].data <= data && op[i].size <= data - op[i].data);
		for (uint64_t k = 0; k < op[i].size; k++)
			sum += bytes[op[i].data + k];
	}
}

static void read_bpf(const struct blob *b, enum blob_section sec)
{
	size_t n;
	const struct sock_filter *insn = blob_get(b, sec, sizeof(*insn), &n);

	for (size_t i = 0; i < n; i++)
		sum += insn[i].k;
}

static void read_strings(const struct blob *b, enum blob_section sec, bool variable)
{
	size_t n;
	const str_off *off = blob_get(b, sec, sizeof(*off), &n);

	for (size_t i = 0; i < n; i++) {
		const char *s = read_str(b, off[i]);

		must(!variable || strchr(s, '='));
	}
}

static void read_plan(const struct blob *b)
{
	const struct plan_fixed *f = blob_fixed(b, struct plan_fixed);
	size_t n;
	const struct landlock_rule *rule = blob_get(b, SEC_LANDLOCK, sizeof(*rule), &n);

	must(f->uid == 0 || f->uid == 1000);
	must(f->limits.pids >= 2 && f->limits.memory && f->subprocess < SUBPROCESS_MAX);
	for (int i = 0; i < 32; i++)
		must(f->layer[i] <= NSBOX_REQUIRE);
	read_path(b, f->workdir);
	read_path(b, f->home);
	must(strlen(read_str(b, f->hostname)) <= 64);
	read_str(b, f->profile);
	read_str(b, f->manifest_sha256);
	for (size_t i = 0; i < n; i++)
		read_str(b, rule[i].path);
	const struct output_rule *out = blob_get(b, SEC_OUTPUTS, sizeof(*out), &n);
	for (size_t i = 0; i < n; i++)
		read_str(b, out[i].glob);
	read_bpf(b, SEC_BPF);
	read_bpf(b, SEC_BPF_INIT);
}

static void read_exec(const struct blob *b)
{
	const struct exec_fixed *f = blob_fixed(b, struct exec_fixed);
	size_t n;

	blob_get(b, SEC_ARGV, sizeof(str_off), &n);
	must(n > 0 && !(f->flags & ~(uint32_t)EXECF_ALL));
	read_str(b, f->cwd);
	read_strings(b, SEC_ARGV, false);
}

static void read_verb(const struct blob *b)
{
	const struct verb_fixed *f = blob_fixed(b, struct verb_fixed);
	const char *pattern = read_str(b, f->pattern);

	must(f->verb > 0 && f->verb < NSBOX_FILE_VERB_MAX && !(f->flags & ~NSBOX_FILE_FLAGS_ALL));
	must(f->deadline_ms && f->files && (f->mode <= 0777 || f->mode == NSBOX_FILE_MODE_DEFAULT));
	must(*read_str(b, f->path) && strlen(read_str(b, f->path)) < 4096);
	must((f->verb == NSBOX_FILE_MOVE) == (*read_str(b, f->target) != 0));
	must((f->verb == NSBOX_FILE_GREP) == (*read_str(b, f->text) != 0));
	must(*pattern != '/' && strlen(pattern) < 256);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint32_t magics[] = { PLAN_MAGIC, EXEC_MAGIC, ROOT_MAGIC, VERB_MAGIC };
	auto_free void *copy = malloc(size ? size : 1); /* aligned, and not a byte longer */
	struct blob b = { copy, size };

	memcpy(copy, data, size);
	for (size_t i = 0; i < ARRAY_SIZE(magics); i++) {
		struct nsbox_error err = { 0 };

		if (blob_check(copy, size, magics[i], &err) < 0) {
			must(err.code == NSBOX_E_INVALID || err.code == NSBOX_E_PROTOCOL);
			must(err.msg[0]);
			continue;
		}
		read_ops(&b);
		if (magics[i] == PLAN_MAGIC)
			read_plan(&b);
		if (magics[i] == EXEC_MAGIC)
			read_exec(&b);
		if (magics[i] == VERB_MAGIC)
			read_verb(&b);
		if (magics[i] == PLAN_MAGIC || magics[i] == EXEC_MAGIC)
			read_strings(&b, SEC_ENV, true);
	}
	return 0;
}
