/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The receiver's check of plans, exec requests and root lists.
 *
 * A compiled plan is taken apart, one thing in it is broken, and the check must say so; its twin,
 * changed in the same place to something allowed, must be accepted. Then the same blobs are
 * damaged at random: nothing may crash, and what is accepted must be safe to walk.
 *
 * Every blob that is judged sits in heap memory of exactly its size, so that a read beyond its end
 * is a report of AddressSanitizer.
 */
#include <check.h>
#include <fcntl.h>
#include <nsbox/sandbox.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "nsbox/util.h"
#include "tests/support/plan_kit.h"

static struct blob plan; /* the compiled one, mapped */

static void set_up(void)
{
	struct nsbox_host host = kit_full_host();
	struct nsbox_error err = { 0 };
	auto_close int fd = kit_compile(&host, NULL);

	ck_assert_msg(blob_map(fd, PLAN_MAGIC, &plan, &err) == 0, "%s", err.msg);
}

static void tear_down(void)
{
	blob_unmap(&plan);
}

/* ------------------------------------------------------------------ judging */

/* why NULL: must be accepted; else refused with a message that holds it. Frees bytes. */
static void judge(void *bytes, size_t len, uint32_t magic, const char *why, const char *what)
{
	struct nsbox_error err = { 0 };
	void *exact = malloc(len ? len : 1);
	int r;

	memcpy(exact, bytes, len);
	r = blob_check(exact, len, magic, &err);
	free(exact);
	free(bytes);
	if (!why) {
		ck_assert_msg(r == 0, "%s: refused: %s", what, err.msg);
		return;
	}
	ck_assert_msg(r < 0, "%s: accepted", what);
	ck_assert_msg(strstr(err.msg, why), "%s: refused for another reason: %s", what, err.msg);
	ck_assert_int_eq(err.code, NSBOX_E_PROTOCOL);
	ck_assert_int_eq(err.stage, NSBOX_STAGE_PLAN);
}

static void judge_builder(struct blob_builder *b, uint32_t magic, const char *why, const char *what)
{
	size_t len;
	void *bytes = kit_bytes(b, &len);

	judge(bytes, len, magic, why, what);
}

static void *copy_of(const struct blob *b)
{
	void *p = malloc(b->size);

	memcpy(p, b->base, b->size);
	return p;
}

/* Encoded as an owner does, and checked. */
static void map_exec(struct blob *ret)
{
	static const char *const argv[] = { "sh", "-c", "echo hello", NULL };
	static const char *const env[] = { "A=1", "PATH=/bin", NULL };
	const struct nsbox_exec ex = { .argv = argv, .env = env, .cwd = "/tmp", .wall_ms = 5000 };
	struct nsbox_error err = { 0 };
	auto_close int fd = -1;

	ck_assert_msg(nsbox_exec_encode(&ex, &fd, &err) == 0, "%s", err.msg);
	ck_assert_msg(blob_map(fd, EXEC_MAGIC, ret, &err) == 0, "%s", err.msg);
}

/* ------------------------------------------------------------------ whole blobs */

START_TEST(compiled_is_accepted)
{
	size_t n;

	judge(copy_of(&plan), plan.size, PLAN_MAGIC, NULL, "the compiled plan");
	judge_builder(kit_rebuild(&plan), PLAN_MAGIC, NULL, "taken apart and put together");
	blob_get(&plan, SEC_OPS, sizeof(struct mount_op), &n);
	ck_assert_uint_gt(n, 3);
	blob_get(&plan, SEC_LANDLOCK, sizeof(struct landlock_rule), &n);
	ck_assert_uint_gt(n, 3);
	blob_get(&plan, SEC_ENV, sizeof(str_off), &n);
	ck_assert_uint_gt(n, 3);
}
END_TEST

START_TEST(other_kind)
{
	struct blob ex;

	map_exec(&ex);
	judge(copy_of(&ex), ex.size, EXEC_MAGIC, NULL, "exec request");
	judge(copy_of(&ex), ex.size, PLAN_MAGIC, "expected kind", "exec request as plan");
	judge(copy_of(&plan), plan.size, EXEC_MAGIC, "expected kind", "plan as exec request");
	judge(copy_of(&plan), plan.size, ROOT_MAGIC, "expected kind", "plan as root list");
	blob_unmap(&ex);
}
END_TEST

START_TEST(cut_off)
{
	for (size_t len = 0; len < plan.size; len += len < 256 ? 1 : 97) {
		void *bytes = copy_of(&plan);

		judge(bytes, len, PLAN_MAGIC, "size", "cut off");
	}
}
END_TEST

START_TEST(too_large)
{
	size_t len = NSBOX_PLAN_MAX + 8;
	struct blob_header *h = calloc(1, len);

	memcpy(h, plan.base, plan.size);
	h->size = (uint32_t)len;
	judge(h, len, PLAN_MAGIC, "size", "over the largest size");
	len = NSBOX_PLAN_MAX;
	h = calloc(1, len);
	memcpy(h, plan.base, plan.size);
	h->size = (uint32_t)len;
	judge(h, len, PLAN_MAGIC, NULL, "of the largest size");
}
END_TEST

static const struct {
	const char *name, *why;
	size_t at, size;
	uint64_t value;
} headers[] = {
	{ "magic", "expected kind", offsetof(struct blob_header, magic), 4, 0x31636578 },
	{ "magic 0", "expected kind", offsetof(struct blob_header, magic), 4, 0 },
	{ "version 0", "version", offsetof(struct blob_header, version), 2, 0 },
	{ "version + 1", "version", offsetof(struct blob_header, version), 2, BLOB_VERSION + 1 },
	{ "one section less", "version", offsetof(struct blob_header, sections), 2, SEC_MAX - 1 },
	{ "one section more", "version", offsetof(struct blob_header, sections), 2, SEC_MAX + 1 },
	{ "size 0", "size", offsetof(struct blob_header, size), 4, 0 },
	{ "size of 4 GiB", "size", offsetof(struct blob_header, size), 4, UINT32_MAX },
	{ "reserved", "version", offsetof(struct blob_header, reserved), 4, 1 },
};

START_TEST(header)
{
	char *bytes = copy_of(&plan);

	memcpy(bytes + headers[_i].at, &headers[_i].value, headers[_i].size);
	judge(bytes, plan.size, PLAN_MAGIC, headers[_i].why, headers[_i].name);
}
END_TEST

/* ------------------------------------------------------------------ sections */

static void with_range(int section, uint32_t offset, uint32_t size, const char *why)
{
	struct blob_header *h = copy_of(&plan);
	char what[80];

	h->section[section] = (struct blob_range){ offset, size };
	nsbox_format(what, sizeof(what), "section %d at %u, %u bytes", section, offset, size);
	judge(h, plan.size, PLAN_MAGIC, why, what);
}

START_TEST(section_bounds)
{
	const struct blob_header *h = (const struct blob_header *)plan.base;
	uint32_t offset = h->section[_i].offset, size = h->section[_i].size;
	uint32_t all = (uint32_t)plan.size;

	with_range(_i, offset, size, NULL);
	with_range(_i, 0, size, "bounds");
	with_range(_i, sizeof(*h) - 8, size, "bounds");
	with_range(_i, offset + 4, size ? size - 4 : 0, "bounds");
	with_range(_i, all + 8, 0, "bounds");
	with_range(_i, UINT32_MAX - 7, 16, "bounds");
	with_range(_i, offset, all - offset + 1, "bounds");
	with_range(_i, offset, UINT32_MAX, "bounds");
	with_range(_i, offset, UINT32_MAX - offset + 1, "bounds");
}
END_TEST

/* How many elements a section may have, and a size that is no multiple of one. */
static const struct {
	enum blob_section sec;
	size_t elem, max;
} counts[] = {
	{ SEC_OPS, sizeof(struct mount_op), 4096 },
	{ SEC_LANDLOCK, sizeof(struct landlock_rule), 4096 },
	{ SEC_BPF, sizeof(struct sock_filter), 4096 },
	{ SEC_BPF_INIT, sizeof(struct sock_filter), 4096 },
	{ SEC_NFT, 1, 256 << 10 },
	{ SEC_ENV, sizeof(str_off), BLOB_ENV_MAX },
	{ SEC_OUTPUTS, sizeof(struct output_rule), 64 },
};

/* n copies of a section's first element (zeros, or a good output, where it has none). */
static void with_count(enum blob_section sec, size_t elem, size_t bytes, const char *why)
{
	const struct blob_header *h = (const struct blob_header *)plan.base;
	struct blob_builder *b = kit_rebuild(&plan);
	struct output_rule rule = { .glob = blob_str(b, "*.txt"), .max_files = 1 };
	const unsigned char *first = sec == SEC_OUTPUTS ? (const unsigned char *)&rule
							: plan.base + h->section[sec].offset;
	auto_free unsigned char *data = malloc(bytes + 1);
	char what[64];

	for (size_t i = 0; i < bytes; i++)
		data[i] = first[i % elem];
	blob_set(b, sec, data, bytes);
	nsbox_format(what, sizeof(what), "section %d of %zu bytes", (int)sec, bytes);
	judge_builder(b, PLAN_MAGIC, why, what);
}

START_TEST(section_counts)
{
	size_t elem = counts[_i].elem, max = counts[_i].max;

	with_count(counts[_i].sec, elem, elem, NULL);
	with_count(counts[_i].sec, elem, elem * max, NULL);
	with_count(counts[_i].sec, elem, elem * (max + 1), "section size");
	if (elem > 1)
		with_count(counts[_i].sec, elem, elem + 1, "section size");
}
END_TEST

START_TEST(sections_that_must_be)
{
	static const struct {
		enum blob_section sec;
		const char *why;
	} rows[] = {
		{ SEC_STRINGS, "strings" },
		{ SEC_FIXED, "fixed part" },
		{ SEC_BPF, "filter" },
		{ SEC_BPF_INIT, "filter" },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		struct blob_builder *b = kit_rebuild(&plan);

		blob_set(b, rows[i].sec, NULL, 0);
		judge_builder(b, PLAN_MAGIC, rows[i].why, "without a section");
	}
}
END_TEST

START_TEST(fixed_of_another_size)
{
	struct plan_fixed f[2] = { kit_fixed(&plan), { 0 } };

	for (int more = -8; more <= 8; more += 8) {
		struct blob_builder *b = kit_rebuild(&plan);

		blob_set(b, SEC_FIXED, f, (size_t)((int)sizeof(f[0]) + more));
		judge_builder(b, PLAN_MAGIC, more ? "fixed part" : NULL, "fixed part");
	}
}
END_TEST

/* What belongs to one kind of blob is not accepted, and then ignored, in another. */
START_TEST(foreign_sections)
{
	static const unsigned char zeros[64];
	struct blob ex;

	map_exec(&ex);
	for (int sec = 0; sec < SEC_MAX; sec++) {
		bool of_exec = sec == SEC_STRINGS || sec == SEC_FIXED || sec == SEC_ENV ||
			       sec == SEC_ARGV || sec == SEC_BPF ||
			       sec == SEC_LANDLOCK; /* test_plan_rules: with EXECF_NARROW */
		bool of_root = sec == SEC_STRINGS || sec == SEC_OPS || sec == SEC_DATA ||
			       sec == SEC_ENV || sec == SEC_LANDLOCK;
		struct blob_builder *b = kit_rebuild(&ex);

		if (!of_exec) {
			blob_append(b, (enum blob_section)sec, zeros, sizeof(zeros));
			judge_builder(b, EXEC_MAGIC, "section of another", "in an exec request");
		} else {
			blob_free(b);
		}
		b = blob_new(ROOT_MAGIC);
		if (!of_root) {
			blob_append(b, (enum blob_section)sec, zeros, sizeof(zeros));
			judge_builder(b, ROOT_MAGIC, "section of another", "in a root list");
		} else {
			blob_free(b);
		}
	}
	{
		struct blob_builder *b = kit_rebuild(&plan);

		blob_append(b, SEC_ARGV, zeros, sizeof(str_off));
		judge_builder(b, PLAN_MAGIC, "section of another", "arguments in a plan");
	}
	judge_builder(blob_new(ROOT_MAGIC), ROOT_MAGIC, NULL, "an empty root list");
	blob_unmap(&ex);
}
END_TEST

START_TEST(string_ends)
{
	const struct blob_header *h = (const struct blob_header *)plan.base;
	const struct blob_range *r = &h->section[SEC_STRINGS];
	char *bytes = copy_of(&plan);

	bytes[r->offset] = 'x';
	judge(bytes, plan.size, PLAN_MAGIC, "strings", "offset 0 is not the empty string");
	bytes = copy_of(&plan);
	bytes[r->offset + r->size - 1] = 'x';
	judge(bytes, plan.size, PLAN_MAGIC, "strings", "no NUL at the end");
}
END_TEST

/* ------------------------------------------------------------------ memory */

START_TEST(seals_needed)
{
	static const int seals[] = { F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE };

	/* 7 is the twin: with all three it is opened. */
	for (unsigned set = 0; set < 8; set++) {
		auto_close int fd = memfd_create("plan", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		struct nsbox_error err = { 0 };
		struct nsbox_plan *p = NULL;
		int add = 0, r;

		for (unsigned i = 0; i < ARRAY_SIZE(seals); i++)
			add |= set & (1U << i) ? seals[i] : 0;
		ck_assert_int_eq(write_full(fd, plan.base, plan.size), 0);
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, add), 0);
		r = nsbox_plan_open(fd, &p, &err);
		ck_assert_msg((r == 0) == (set == 7), "seals 0x%x: %s", (unsigned)add, err.msg);
		if (r < 0)
			ck_assert_ptr_nonnull(strstr(err.msg, "sealed"));
		nsbox_plan_close(p);
	}
}
END_TEST

START_TEST(not_a_memfd)
{
	char path[] = "/tmp/nsbox-plan.XXXXXX";
	auto_close int file = mkstemp(path), zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
	auto_close int empty = make_memfd("empty", "", 0, true);
	const int fds[] = { file, zero, -1 };
	struct nsbox_error err = { 0 };
	struct nsbox_plan *p = NULL;

	unlink(path);
	ck_assert_int_eq(write_full(file, plan.base, plan.size), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++) {
		ck_assert_int_lt(nsbox_plan_open(fds[i], &p, &err), 0);
		ck_assert_ptr_nonnull(strstr(err.msg, "sealed"));
	}
	ck_assert_int_lt(nsbox_plan_open(empty, &p, &err), 0);
	ck_assert_ptr_null(p);
}
END_TEST

/* ------------------------------------------------------------------ damage at random */

static uint64_t random_state = 0x9e3779b97f4a7c15;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static volatile size_t sink;

static void touch(const struct blob *b, str_off off)
{
	sink += strlen(blob_get_str(b, off));
}

/* Use everything as the child does: no check of its own. */
static void walk(const struct blob *b)
{
	size_t n;
	const struct mount_op *op = blob_get(b, SEC_OPS, sizeof(*op), &n);
	const unsigned char *data = blob_get(b, SEC_DATA, 1, NULL);

	for (size_t i = 0; i < n; i++) {
		touch(b, op[i].src);
		touch(b, op[i].dst);
		for (uint64_t j = 0; op[i].kind == OP_FILE && j < op[i].size; j++)
			sink += data[op[i].data + j];
	}
	for (const struct landlock_rule *r = blob_get(b, SEC_LANDLOCK, sizeof(*r), &n); n; n--, r++)
		touch(b, r->path);
	for (const struct output_rule *r = blob_get(b, SEC_OUTPUTS, sizeof(*r), &n); n; n--, r++)
		touch(b, r->glob);
	for (int sec = SEC_ENV; sec <= SEC_ARGV; sec++) {
		const str_off *off = blob_get(b, (enum blob_section)sec, sizeof(*off), &n);

		for (size_t i = 0; i < n; i++)
			touch(b, off[i]);
	}
	for (int sec = SEC_BPF; sec <= SEC_NFT; sec++) {
		const unsigned char *p = blob_get(b, (enum blob_section)sec, 1, &n);

		for (size_t i = 0; i < n; i += 61)
			sink += p[i];
	}
}

static void walk_fixed(const struct blob *b, uint32_t magic)
{
	const struct plan_fixed *f = blob_fixed(b, struct plan_fixed);

	if (magic == EXEC_MAGIC) {
		touch(b, blob_fixed(b, struct exec_fixed)->cwd);
		return;
	}
	touch(b, f->hostname);
	touch(b, f->profile);
	touch(b, f->manifest_sha256);
	touch(b, f->workdir);
	touch(b, f->home);
}

/* A place to damage: headers, fixed parts, operations and offsets decide more than filters do. */
static size_t place(const struct blob *b)
{
	static const enum blob_section dense[] = { SEC_FIXED, SEC_OPS, SEC_LANDLOCK, SEC_ENV,
						   SEC_ARGV };
	const struct blob_header *h = (const struct blob_header *)b->base;
	const struct blob_range *r = &h->section[dense[next_random() % ARRAY_SIZE(dense)]];

	switch (next_random() % 4) {
	case 0: return next_random() % sizeof(*h);
	case 1: return next_random() % b->size;
	default: return r->size ? r->offset + next_random() % r->size : next_random() % b->size;
	}
}

/* Bit flips, extreme values, and small steps, which keep more of the blob valid. */
static unsigned char damaged(unsigned char old)
{
	switch (next_random() % 4) {
	case 0: return (unsigned char)(old ^ (1U << next_random() % 8));
	case 1: return (unsigned char)(old + 1 - 2 * (next_random() & 1));
	case 2: return next_random() & 1 ? 0 : 0xff;
	default: return (unsigned char)next_random();
	}
}

#define ROUNDS 200000

static void damage(const struct blob *good, uint32_t magic)
{
	struct blob b = { malloc(good->size), good->size };
	unsigned char *bytes = (unsigned char *)b.base;
	unsigned accepted = 0;

	memcpy(bytes, good->base, good->size);
	for (unsigned i = 0; i < ROUNDS; i++) {
		size_t at[2] = { place(good), place(good) };
		unsigned n = 1 + (i & 1);

		for (unsigned j = 0; j < n; j++)
			bytes[at[j]] = damaged(bytes[at[j]]);
		if (blob_check(bytes, b.size, magic, NULL) == 0) {
			walk(&b);
			walk_fixed(&b, magic);
			accepted++;
		}
		for (unsigned j = 0; j < n; j++)
			bytes[at[j]] = good->base[at[j]];
	}
	free(bytes);
	/* Both happen: else the damage were all of one kind and the rest untested. */
	ck_assert_uint_gt(accepted, ROUNDS / 100);
	ck_assert_uint_lt(accepted, ROUNDS - ROUNDS / 100);
}

START_TEST(damaged_plan)
{
	damage(&plan, PLAN_MAGIC);
}
END_TEST

START_TEST(damaged_exec)
{
	struct blob ex;

	map_exec(&ex);
	damage(&ex, EXEC_MAGIC);
	blob_unmap(&ex);
}
END_TEST

/* A blob within all limits whose offsets all name one string of megabytes. */
START_TEST(check_is_quick)
{
	struct blob_builder *b = kit_rebuild(&plan);
	auto_free char *text = malloc(12u << 20);
	struct landlock_rule rule = { .optional = 1 };
	struct mount_op op = { .kind = OP_DIR };
	uint64_t start;

	memset(text, 'A', 12u << 20);
	text[0] = '/';
	text[(12u << 20) - 1] = '\0';
	rule.path = op.dst = op.src = blob_str(b, text);
	for (int i = 0; i < 4000; i++) {
		blob_append(b, SEC_ENV, &op.src, sizeof(op.src));
		blob_append(b, SEC_OPS, &op, sizeof(op));
		blob_append(b, SEC_LANDLOCK, &rule, sizeof(rule));
	}
	start = monotonic_us();
	judge_builder(b, PLAN_MAGIC, "path of an operation", "one long string, named often");
	b = kit_rebuild(&plan);
	op.src = blob_str(b, text);
	for (int i = 0; i < 4000; i++)
		blob_append(b, SEC_ENV, &op.src, sizeof(op.src));
	judge_builder(b, PLAN_MAGIC, "length of an environment variable", "the same in variables");
	ck_assert_uint_lt(monotonic_us() - start, 5000000);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("plan");
	TCase *tc = tcase_create("blob");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, compiled_is_accepted);
	tcase_add_test(tc, other_kind);
	tcase_add_test(tc, cut_off);
	tcase_add_test(tc, too_large);
	tcase_add_loop_test(tc, header, 0, ARRAY_SIZE(headers));
	tcase_add_loop_test(tc, section_bounds, 0, SEC_MAX);
	tcase_add_loop_test(tc, section_counts, 0, ARRAY_SIZE(counts));
	tcase_add_test(tc, sections_that_must_be);
	tcase_add_test(tc, fixed_of_another_size);
	tcase_add_test(tc, foreign_sections);
	tcase_add_test(tc, string_ends);
	tcase_add_test(tc, seals_needed);
	tcase_add_test(tc, not_a_memfd);
	tcase_add_test(tc, damaged_plan);
	tcase_add_test(tc, damaged_exec);
	tcase_add_test(tc, check_is_quick);
	suite_add_tcase(s, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
