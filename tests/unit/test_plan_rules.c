/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of plan_check(), one by one: each row changes one value of a plan that is good without
 * it. A row with a reason must be refused for it; the row without one beside it is its twin, in
 * which the same place holds something that is allowed.
 */
#include <check.h>
#include <linux/seccomp.h>
#include <nsbox/sandbox.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "tests/support/plan_kit.h"

static struct blob plan;

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

static void judge(struct blob_builder *b, uint32_t magic, const char *why)
{
	struct nsbox_error err = { 0 };
	size_t len;
	auto_free void *bytes = kit_bytes(b, &len);
	int r = blob_check(bytes, len, magic, &err);

	if (!why)
		ck_assert_msg(r == 0, "refused: %s", err.msg);
	else
		ck_assert_msg(r < 0 && strstr(err.msg, why), "%s", r < 0 ? err.msg : "accepted");
}

/* A string of n bytes: `head`, then 'x' up to the end. */
static const char *filled(const char *head, size_t n)
{
	static char text[160 << 10];

	memset(text, 'x', n);
	memcpy(text, head, strlen(head));
	text[n] = '\0';
	return text;
}

/* "/a/a/a..." of n bytes (even n), so that no component is too long. */
static const char *deep(size_t n)
{
	static char text[8192];

	for (size_t i = 0; i < n; i++)
		text[i] = i % 2 ? 'a' : '/';
	text[n] = '\0';
	return text;
}

/* ------------------------------------------------------------------ operations */

#define WILD ((const char *)1) /* an offset beyond the strings */

/* clang-format off */
static const struct op_row {
	uint32_t magic;
	const char *why; /* NULL: accepted */
	uint16_t kind, flags;
	uint32_t mode;
	const char *src, *dst;
	uint64_t size;
	uint32_t data; /* offset into the 8 bytes of data that each row has */
} ops[] = {
	/* Only a root list names paths of the host. */
	{ PLAN_MAGIC, "operation kind", OP_BIND, 0, 0, "/etc", "/mnt", 0, 0 },
	{ ROOT_MAGIC, NULL,		OP_BIND, 0, 0, "/etc", "/mnt", 0, 0 },
	{ PLAN_MAGIC, "operation kind", OP_LOWER, 0, 0, "/var/lib", "", 0, 0 },
	{ ROOT_MAGIC, NULL,		OP_LOWER, 0, 0, "/var/lib", "", 0, 0 },
	{ PLAN_MAGIC, "operation kind", 0, 0, 0, "", "/x", 0, 0 },
	{ PLAN_MAGIC, NULL,		OP_DIR, 0, 0755, "", "/x", 0, 0 },
	{ PLAN_MAGIC, NULL,		OP_MAKE_EXEC, 0, 0, "", "/x", 0, 0 },
	{ PLAN_MAGIC, NULL,		OP_MAKE_EXEC, 0, 0, "**/*.sh", "/x", 0, 0 },
	{ PLAN_MAGIC, "pattern",	OP_MAKE_EXEC, 0, 0, "../*", "/x", 0, 0 },
	{ PLAN_MAGIC, "operation kind", OP_KIND_MAX, 0, 0, "", "/x", 0, 0 },
	{ PLAN_MAGIC, "operation kind", UINT16_MAX, 0, 0, "", "/x", 0, 0 },
	/* Only a plan mounts and hides. */
	{ ROOT_MAGIC, "operation kind", OP_TMPFS, 0, 0755, "", "/x", 65536, 0 },
	{ PLAN_MAGIC, NULL,		OP_TMPFS, 0, 0755, "", "/x", 65536, 0 },
	{ ROOT_MAGIC, "operation kind", OP_DEV, 0, 0, "", "/dev", 65536, 0 },
	{ PLAN_MAGIC, NULL,		OP_DEV, 0, 0, "", "/dev", 65536, 0 },
	{ ROOT_MAGIC, "operation kind", OP_PROC, 0, 0, "", "/proc", 0, 0 },
	{ PLAN_MAGIC, NULL,		OP_PROC, 0, 0, "", "/proc", 0, 0 },
	{ ROOT_MAGIC, "operation kind", OP_MASK, 0, 0, "", "/x", 0, 0 },
	{ PLAN_MAGIC, NULL,		OP_MASK, 0, 0, "", "/x", 0, 0 },
	{ ROOT_MAGIC, "operation kind", OP_READONLY, 0, 0, "", "/x", 0, 0 },
	{ PLAN_MAGIC, NULL,		OP_READONLY, 0, 0, "", "/x", 0, 0 },
	{ PLAN_MAGIC, "shared directory", OP_SHARED, OPF_NOSUID | OPF_NODEV, 0, "", "/etc", 0, 0 },
	{ PLAN_MAGIC, "shared directory", OP_SHARED, OPF_NOSUID, 0, "", "/workspace", 0, 0 },
	{ PLAN_MAGIC, "shared directory", OP_SHARED, OPF_NODEV, 0, "", "/workspace", 0, 0 },
	{ PLAN_MAGIC, NULL,		OP_SHARED, OPF_NOSUID | OPF_NODEV, 0, "", "/workspace", 0, 0 },
	{ ROOT_MAGIC, "operation kind", OP_SHARED, OPF_NOSUID | OPF_NODEV, 0, "", "/workspace", 0, 0 },
	{ ROOT_MAGIC, "operation kind", OP_MAKE_EXEC, 0, 0, "", "/x", 0, 0 },
	/* Both make what is to exist. */
	{ ROOT_MAGIC, NULL,		OP_DIR, 0, 0755, "", "/x", 0, 0 },
	{ ROOT_MAGIC, NULL,		OP_FILE, 0, 0644, "", "/x", 8, 0 },
	{ ROOT_MAGIC, NULL,		OP_SYMLINK, 0, 0, "../x", "/x", 0, 0 },
	/* Bits that mean nothing. */
	{ PLAN_MAGIC, "flags or mode",	OP_DIR, OPF_ALL + 1, 0755, "", "/x", 0, 0 },
	{ PLAN_MAGIC, NULL,		OP_DIR, OPF_ALL, 0755, "", "/x", 0, 0 },
	{ PLAN_MAGIC, "flags or mode",	OP_DIR, 0, 010000, "", "/x", 0, 0 },
	{ PLAN_MAGIC, NULL,		OP_DIR, 0, 07777, "", "/x", 0, 0 },
	/* Offsets. */
	{ PLAN_MAGIC, "operation string", OP_DIR, 0, 0755, "", WILD, 0, 0 },
	{ PLAN_MAGIC, "operation string", OP_DIR, 0, 0755, WILD, "/x", 0, 0 },
	/* Targets: absolute, no way up, not the root itself. */
	{ PLAN_MAGIC, "target path",	OP_DIR, 0, 0755, "", "", 0, 0 },
	{ PLAN_MAGIC, "target path",	OP_DIR, 0, 0755, "", "/", 0, 0 },
	{ PLAN_MAGIC, "target path",	OP_DIR, 0, 0755, "", "x", 0, 0 },
	{ PLAN_MAGIC, "target path",	OP_DIR, 0, 0755, "", "x/y", 0, 0 },
	{ PLAN_MAGIC, "target path",	OP_DIR, 0, 0755, "", "//x", 0, 0 },
	{ PLAN_MAGIC, "target path",	OP_DIR, 0, 0755, "", "/x/", 0, 0 },
	{ PLAN_MAGIC, "target path",	OP_DIR, 0, 0755, "", "/x//y", 0, 0 },
	{ PLAN_MAGIC, "target path",	OP_DIR, 0, 0755, "", "/.", 0, 0 },
	{ PLAN_MAGIC, "target path",	OP_DIR, 0, 0755, "", "/..", 0, 0 },
	{ PLAN_MAGIC, "target path",	OP_DIR, 0, 0755, "", "/x/./y", 0, 0 },
	{ PLAN_MAGIC, "target path",	OP_DIR, 0, 0755, "", "/x/../y", 0, 0 },
	{ PLAN_MAGIC, "target path",	OP_DIR, 0, 0755, "", "/x/..", 0, 0 },
	{ PLAN_MAGIC, NULL,		OP_DIR, 0, 0755, "", "/x/...", 0, 0 },
	{ PLAN_MAGIC, NULL,		OP_DIR, 0, 0755, "", "/x/..y/.z/ \n", 0, 0 },
	/* Sources of the host: as strict. */
	{ ROOT_MAGIC, "source path",	OP_BIND, 0, 0, "", "/mnt", 0, 0 },
	{ ROOT_MAGIC, "source path",	OP_BIND, 0, 0, "/", "/mnt", 0, 0 },
	{ ROOT_MAGIC, "source path",	OP_BIND, 0, 0, "etc", "/mnt", 0, 0 },
	{ ROOT_MAGIC, "source path",	OP_BIND, 0, 0, "/etc/../root", "/mnt", 0, 0 },
	{ ROOT_MAGIC, "source path",	OP_LOWER, 0, 0, "/", "", 0, 0 },
	{ ROOT_MAGIC, "target path",	OP_BIND, 0, 0, "/etc", "/", 0, 0 },
	/* Links. */
	{ PLAN_MAGIC, "link target",	OP_SYMLINK, 0, 0, "", "/x", 0, 0 },
	{ PLAN_MAGIC, NULL,		OP_SYMLINK, 0, 0, "/proc/self/fd", "/x", 0, 0 },
	/* Content lies within the data. */
	{ PLAN_MAGIC, NULL,		OP_FILE, 0, 0644, "", "/x", 0, 0 },
	{ PLAN_MAGIC, NULL,		OP_FILE, 0, 0644, "", "/x", 8, 0 },
	{ PLAN_MAGIC, NULL,		OP_FILE, 0, 0644, "", "/x", 0, 8 },
	{ PLAN_MAGIC, NULL,		OP_FILE, 0, 0644, "", "/x", 5, 3 },
	{ PLAN_MAGIC, "file content",	OP_FILE, 0, 0644, "", "/x", 9, 0 },
	{ PLAN_MAGIC, "file content",	OP_FILE, 0, 0644, "", "/x", 6, 3 },
	{ PLAN_MAGIC, "file content",	OP_FILE, 0, 0644, "", "/x", 0, 9 },
	{ PLAN_MAGIC, "file content",	OP_FILE, 0, 0644, "", "/x", UINT64_MAX, 1 },
	{ PLAN_MAGIC, "file content",	OP_FILE, 0, 0644, "", "/x", UINT64_MAX - 2, 3 },
	{ PLAN_MAGIC, "file content",	OP_FILE, 0, 0644, "", "/x", 1, UINT32_MAX },
	/* A tmpfs has a size; 0 would be no limit. */
	{ PLAN_MAGIC, "tmpfs size",	OP_TMPFS, 0, 0755, "", "/x", 0, 0 },
	{ PLAN_MAGIC, "tmpfs size",	OP_TMPFS, 0, 0755, "", "/x", 4095, 0 },
	{ PLAN_MAGIC, NULL,		OP_TMPFS, 0, 0755, "", "/x", 4096, 0 },
	{ PLAN_MAGIC, NULL,		OP_TMPFS, 0, 0755, "", "/x", INT64_MAX, 0 },
	{ PLAN_MAGIC, "tmpfs size",	OP_TMPFS, 0, 0755, "", "/x", 1ULL << 63, 0 },
	{ PLAN_MAGIC, "tmpfs size",	OP_DEV, 0, 0, "", "/dev", 0, 0 },
	{ PLAN_MAGIC, NULL,		OP_DEV, 0, 0, "", "/dev", 4096, 0 },
	{ PLAN_MAGIC, "tmpfs size",	OP_DEV, 0, 0, "", "/dev", UINT64_MAX, 0 },
};
/* clang-format on */

static str_off intern(struct blob_builder *b, const char *s)
{
	return s == WILD ? UINT32_MAX : blob_str(b, s);
}

static void try_op(const struct op_row *row)
{
	struct blob_builder *b =
		row->magic == PLAN_MAGIC ? kit_rebuild(&plan) : blob_new(ROOT_MAGIC);
	struct mount_op op = {
		.kind = row->kind,
		.flags = row->flags,
		.mode = row->mode,
		.src = intern(b, row->src),
		.dst = intern(b, row->dst),
		.size = row->size,
		.data = row->data,
	};

	blob_set(b, SEC_OPS, &op, sizeof(op));
	blob_set(b, SEC_DATA, "12345678", 8);
	judge(b, row->magic, row->why);
}

START_TEST(operation)
{
	try_op(&ops[_i]);
}
END_TEST

START_TEST(path_lengths)
{
	struct op_row row = { PLAN_MAGIC, NULL, OP_DIR, 0, 0755, "", NULL, 0, 0 };

	row.dst = filled("/", 256);
	try_op(&row);
	row.dst = deep(4094);
	try_op(&row);
	row.why = "target path";
	row.dst = filled("/", 257);
	try_op(&row);
	row.dst = deep(4096);
	try_op(&row);
	row = (struct op_row){ PLAN_MAGIC, NULL, OP_SYMLINK, 0, 0, filled("", 4095), "/x", 0, 0 };
	try_op(&row);
	row.why = "link target";
	row.src = filled("", 4096);
	try_op(&row);
}
END_TEST

/* The last operation is judged as the first is. */
START_TEST(every_operation)
{
	struct blob_builder *b = kit_rebuild(&plan);

	blob_op(b, OP_DIR, 0, 0755, NULL, "/x", 0);
	judge(b, PLAN_MAGIC, NULL);
	b = kit_rebuild(&plan);
	blob_op(b, OP_DIR, 0, 0755, NULL, "/x/..", 0);
	judge(b, PLAN_MAGIC, "target path");
}
END_TEST

/* The end of the strings, exactly. */
START_TEST(last_offset)
{
	uint32_t size = ((const struct blob_header *)plan.base)->section[SEC_STRINGS].size;

	for (str_off off = size - 1; off <= size; off++) {
		struct blob_builder *b = kit_rebuild(&plan);
		struct mount_op op = { .kind = OP_PROC, .src = off, .dst = blob_str(b, "/proc") };

		blob_set(b, SEC_OPS, &op, sizeof(op));
		judge(b, PLAN_MAGIC, off < size ? NULL : "operation string");
	}
}
END_TEST

/* ------------------------------------------------------------------ Landlock */

static const struct {
	const char *why, *path;
	uint16_t port, optional;
} rules[] = {
	{ NULL, "/", 0, 0 },
	{ NULL, "/usr", 0, 1 },
	{ "Landlock rule", "/usr", 0, 2 },
	{ "Landlock rule", WILD, 0, 0 },
	{ "path of a Landlock", "", 0, 0 },
	{ "path of a Landlock", "usr", 0, 0 },
	{ NULL, "", 443, 0 },
	{ "path of a Landlock", "/usr", 443, 0 },
	{ NULL, "/usr/x", 0, 0 },
	{ "path of a Landlock", "/usr/../etc", 0, 0 },
};

START_TEST(landlock)
{
	struct blob_builder *b = kit_rebuild(&plan);
	struct landlock_rule rule = {
		.access = 1,
		.path = intern(b, rules[_i].path),
		.port = rules[_i].port,
		.optional = rules[_i].optional,
	};

	blob_append(b, SEC_LANDLOCK, &rule, sizeof(rule));
	judge(b, PLAN_MAGIC, rules[_i].why);
}
END_TEST

/* ------------------------------------------------------------------ variables, outputs */

static const struct {
	const char *why, *text;
} variables[] = {
	{ NULL, "A=1" },
	{ NULL, "A=" },
	{ NULL, "A==" },
	{ NULL, "odd name=\n" },
	{ "without a name", "=1" },
	{ "without a name", "" },
	{ "without '='", "A" },
	{ "environment variable", WILD },
};

START_TEST(variable)
{
	struct blob_builder *b = kit_rebuild(&plan);
	str_off off = intern(b, variables[_i].text);

	blob_append(b, SEC_ENV, &off, sizeof(off));
	judge(b, PLAN_MAGIC, variables[_i].why);
}
END_TEST

START_TEST(variable_length)
{
	for (size_t n = 131071; n <= 131072; n++) {
		struct blob_builder *b = kit_rebuild(&plan);
		str_off off = blob_str(b, filled("A=", n));

		blob_append(b, SEC_ENV, &off, sizeof(off));
		judge(b, PLAN_MAGIC, n < 131072 ? NULL : "length of an environment variable");
	}
}
END_TEST

static const struct {
	const char *why, *glob;
} outputs[] = {
	{ NULL, "out/*.txt" }, { NULL, "**" },	    { NULL, "..x/.y" },	    { "glob", "" },
	{ "glob", "/out" },    { "glob", ".." },    { "glob", "out/" },	    { "glob", "out//x" },
	{ "glob", "./x" },     { "glob", "a/./b" }, { "glob", "out/../x" }, { "glob", WILD },
};

START_TEST(output)
{
	struct blob_builder *b = kit_rebuild(&plan);
	struct output_rule rule = { .glob = intern(b, outputs[_i].glob), .max_files = 1 };

	blob_append(b, SEC_OUTPUTS, &rule, sizeof(rule));
	judge(b, PLAN_MAGIC, outputs[_i].why);
}
END_TEST

START_TEST(output_length)
{
	for (size_t n = 255; n <= 256; n++) {
		struct blob_builder *b = kit_rebuild(&plan);

		blob_output(b, filled("", n), 1, 1);
		judge(b, PLAN_MAGIC, n < 256 ? NULL : "glob");
	}
}
END_TEST

/* ------------------------------------------------------------------ the fixed part */

#define AT(field) offsetof(struct plan_fixed, field), sizeof(((struct plan_fixed *)0)->field)
#define LIM(field)                                                                                 \
	offsetof(struct plan_fixed, limits.field), sizeof(((struct plan_fixed *)0)->limits.field)

static const struct {
	const char *why;
	size_t at, size;
	uint64_t value;
} numbers[] = {
	{ NULL, AT(flags), PLAN_FLAGS_ALL & ~PLAN_PROCESS },
	{ "tier 'process'", AT(flags), PLAN_PROCESS },
	{ "flags", AT(flags), PLAN_FLAGS_ALL + 1 },
	{ "flags", AT(flags), UINT32_MAX },
	{ NULL, AT(layer[0]), NSBOX_REQUIRE },
	{ "layer", AT(layer[0]), NSBOX_REQUIRE + 1 },
	{ NULL, AT(layer[NSBOX_LAYER_MAX - 1]), NSBOX_OFF },
	{ "layer", AT(layer[NSBOX_LAYER_MAX]), NSBOX_PREFER },
	{ "layer", AT(layer[31]), 255 },
	{ NULL, AT(uid), 0 },
	{ NULL, AT(gid), 0 },
	{ "user or group", AT(uid), 1001 },
	{ "user or group", AT(uid), UINT32_MAX },
	{ "user or group", AT(gid), 1 },
	{ "string of the fixed", AT(hostname), UINT32_MAX },
	{ "string of the fixed", AT(profile), UINT32_MAX },
	{ "string of the fixed", AT(manifest_sha256), UINT32_MAX },
	{ "string of the fixed", AT(workdir), UINT32_MAX },
	{ "string of the fixed", AT(home), UINT32_MAX },
	{ NULL, AT(hostname), 0 },
	{ "working directory", AT(workdir), 0 },
	{ "working directory", AT(home), 0 },
	{ NULL, AT(subprocess), SUBPROCESS_MAX - 1 },
	{ "subprocess", AT(subprocess), SUBPROCESS_MAX },
	{ NULL, LIM(memory), 1 << 20 },
	{ "memory", LIM(memory), (1 << 20) - 1 },
	{ NULL, LIM(memory), INT64_MAX / 2 },
	{ "memory", LIM(memory), INT64_MAX / 2 + 1ULL },
	{ NULL, LIM(disk), 65536 },
	{ "disk", LIM(disk), 65535 },
	{ NULL, LIM(disk), INT64_MAX / 2 },
	{ "disk", LIM(disk), UINT64_MAX },
	{ NULL, LIM(disk_inodes), 1 },
	{ "disk", LIM(disk_inodes), 0 },
	{ NULL, LIM(pids), 2 },
	{ "process", LIM(pids), 1 },
	{ NULL, LIM(pids), 1 << 22 },
	{ "process", LIM(pids), (1 << 22) + 1 },
	{ NULL, LIM(cpu_milli), 1 },
	{ "cpu", LIM(cpu_milli), 0 },
	{ NULL, LIM(cpu_milli), 1000000 },
	{ "cpu", LIM(cpu_milli), 1000001 },
	{ NULL, LIM(open_files), 16 },
	{ "open file", LIM(open_files), 15 },
	{ NULL, LIM(open_files), 1 << 20 },
	{ "open file", LIM(open_files), (1 << 20) + 1 },
	{ NULL, LIM(grace_ms), 600000 },
	{ "time", LIM(grace_ms), 600001 },
	{ NULL, LIM(wall_ms), 0 },
	{ NULL, LIM(wall_ms), 1ULL << 40 },
	{ "time", LIM(wall_ms), (1ULL << 40) + 1 },
};

START_TEST(number)
{
	struct plan_fixed f = kit_fixed(&plan);
	struct blob_builder *b = kit_rebuild(&plan);

	memcpy((char *)&f + numbers[_i].at, &numbers[_i].value, numbers[_i].size);
	kit_set_fixed(b, &f);
	judge(b, PLAN_MAGIC, numbers[_i].why);
}
END_TEST

static const struct {
	const char *why;
	size_t at;
	const char *text;
	size_t fill; /* text continued with 'x' up to this length */
} texts[] = {
	{ NULL, offsetof(struct plan_fixed, hostname), "", 64 },
	{ "host name", offsetof(struct plan_fixed, hostname), "", 65 },
	{ NULL, offsetof(struct plan_fixed, workdir), "/w", 2 },
	{ "working directory", offsetof(struct plan_fixed, workdir), "/", 1 },
	{ "working directory", offsetof(struct plan_fixed, workdir), "w", 1 },
	{ "working directory", offsetof(struct plan_fixed, workdir), "/w/../..", 8 },
	{ NULL, offsetof(struct plan_fixed, home), "/home/user", 10 },
	{ "working directory", offsetof(struct plan_fixed, home), "/home/../..", 11 },
};

START_TEST(text)
{
	struct plan_fixed f = kit_fixed(&plan);
	struct blob_builder *b = kit_rebuild(&plan);
	str_off off = blob_str(b, filled(texts[_i].text, texts[_i].fill));

	memcpy((char *)&f + texts[_i].at, &off, sizeof(off));
	kit_set_fixed(b, &f);
	judge(b, PLAN_MAGIC, texts[_i].why);
}
END_TEST

/* ------------------------------------------------------------------ exec requests */

#define XAT(field) offsetof(struct exec_fixed, field), sizeof(((struct exec_fixed *)0)->field)

static const struct {
	const char *why;
	size_t at, size;
	uint64_t value;
	const char *cwd; /* instead of a value */
} execs[] = {
	{ NULL, XAT(flags), EXECF_ALL & ~EXECF_NARROW, NULL },
	{ "filter of an exec request", XAT(flags), EXECF_NARROW, NULL },
	{ "that has none", XAT(narrow.landlock_fs), 1, NULL },
	{ "that has none", XAT(narrow.open_files), 64, NULL },
	{ "flags", XAT(flags), EXECF_ALL + 1, NULL },
	{ NULL, XAT(wall_ms), 1ULL << 40, NULL },
	{ "time limit", XAT(wall_ms), (1ULL << 40) + 1, NULL },
	{ NULL, XAT(cwd), 0, NULL },
	{ "working directory", XAT(cwd), UINT32_MAX, NULL },
	{ NULL, XAT(cwd), 0, "/" },
	{ NULL, XAT(cwd), 0, "/tmp/x" },
	{ "working directory", XAT(cwd), 0, "tmp" },
	{ "working directory", XAT(cwd), 0, "/tmp/.." },
	{ "working directory", XAT(cwd), 0, "//" },
};

static struct blob_builder *exec_builder(const struct exec_fixed *f, const char *arg)
{
	struct blob_builder *b = blob_new(EXEC_MAGIC);
	str_off off = intern(b, arg);

	blob_append(b, SEC_FIXED, f, sizeof(*f));
	if (arg)
		blob_append(b, SEC_ARGV, &off, sizeof(off));
	return b;
}

START_TEST(exec_number)
{
	struct exec_fixed f = { 0 };
	struct blob_builder *b;
	str_off off;

	memcpy((char *)&f + execs[_i].at, &execs[_i].value, execs[_i].size);
	b = exec_builder(&f, "true");
	if (execs[_i].cwd) {
		off = blob_str(b, execs[_i].cwd);
		memcpy((char *)&f + execs[_i].at, &off, sizeof(off));
		blob_set(b, SEC_FIXED, &f, sizeof(f));
	}
	judge(b, EXEC_MAGIC, execs[_i].why);
}
END_TEST

/* Rules of an exec's own are whole, or there are none. */
START_TEST(exec_narrow)
{
	const struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct exec_fixed f = { .flags = EXECF_NARROW, .narrow = { .open_files = 64 } };
	struct blob_builder *b = exec_builder(&f, "true");

	blob_append(b, SEC_BPF, &allow, sizeof(allow));
	judge(b, EXEC_MAGIC, NULL);
	b = exec_builder(&f, "true");
	blob_append(b, SEC_BPF, &allow, sizeof(allow));
	blob_landlock(b, "/srv", 4, false);
	judge(b, EXEC_MAGIC, "nothing would hold");
	f.narrow.landlock_fs = 4;
	b = exec_builder(&f, "true");
	blob_append(b, SEC_BPF, &allow, sizeof(allow));
	blob_landlock(b, "/srv", 4, false);
	judge(b, EXEC_MAGIC, NULL);
	b = exec_builder(&f, "true");
	blob_append(b, SEC_BPF, &allow, sizeof(allow));
	blob_landlock(b, "/srv/../etc", 4, false);
	judge(b, EXEC_MAGIC, "path of a Landlock rule");
	f.narrow.open_files = 1;
	b = exec_builder(&f, "true");
	blob_append(b, SEC_BPF, &allow, sizeof(allow));
	judge(b, EXEC_MAGIC, "open file limit");
	f = (struct exec_fixed){ 0 };
	b = exec_builder(&f, "true");
	blob_append(b, SEC_BPF, &allow, sizeof(allow));
	judge(b, EXEC_MAGIC, "filter of an exec request");
	b = exec_builder(&f, "true");
	blob_landlock(b, "/srv", 4, false);
	judge(b, EXEC_MAGIC, "that has none");
}
END_TEST

START_TEST(exec_arguments)
{
	struct exec_fixed f = { 0 };
	struct blob_builder *b;
	str_off off;

	judge(exec_builder(&f, "true"), EXEC_MAGIC, NULL);
	judge(exec_builder(&f, ""), EXEC_MAGIC, NULL);
	judge(exec_builder(&f, NULL), EXEC_MAGIC, "empty argument vector");
	judge(exec_builder(&f, WILD), EXEC_MAGIC, "argument");
	b = exec_builder(&f, "true");
	off = blob_str(b, "NAME");
	blob_append(b, SEC_ENV, &off, sizeof(off));
	judge(b, EXEC_MAGIC, "without '='");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("plan rules");
	TCase *tc = tcase_create("rules");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_loop_test(tc, operation, 0, ARRAY_SIZE(ops));
	tcase_add_test(tc, path_lengths);
	tcase_add_test(tc, every_operation);
	tcase_add_test(tc, last_offset);
	tcase_add_loop_test(tc, landlock, 0, ARRAY_SIZE(rules));
	tcase_add_loop_test(tc, variable, 0, ARRAY_SIZE(variables));
	tcase_add_test(tc, variable_length);
	tcase_add_loop_test(tc, output, 0, ARRAY_SIZE(outputs));
	tcase_add_test(tc, output_length);
	tcase_add_loop_test(tc, number, 0, ARRAY_SIZE(numbers));
	tcase_add_loop_test(tc, text, 0, ARRAY_SIZE(texts));
	tcase_add_loop_test(tc, exec_number, 0, ARRAY_SIZE(execs));
	tcase_add_test(tc, exec_arguments);
	tcase_add_test(tc, exec_narrow);
	suite_add_tcase(s, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
