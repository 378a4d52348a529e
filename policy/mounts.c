/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run's own part of the file system, as mount operations: places to write, HOME's skeleton,
 * /dev and /proc, then what is hidden or held read-only once the run's files are in place. The
 * image (root, /usr, /etc) is the root list's business, see overlay/.
 *
 * With a writable root (standard) the places, but for /tmp, are directories of the upper layer,
 * which cost no mount and share its size limit. With a read-only root (strict) each is a tmpfs,
 * noexec unless the manifest says otherwise.
 */
#include <string.h>

#include "nsbox/util.h"
#include "policy/internal.h"

#define SAFE (OPF_NODEV | OPF_NOSUID)

static const struct dir {
	const char *path;
	unsigned mode;
	bool payload;
} dirs[] = {
	{ "/tmp", 01777, false },  { "/var", 0755, false },	{ "/var/tmp", 01777, false },
	{ "/home", 0755, false },  { POLICY_HOME, 0700, true }, { "/run", 0755, true },
	{ "/skills", 0755, true },
};

/* Quiet on purpose: a login shell prints nothing and finds ~/.local/bin. */
static const char profile_text[] = "PATH=\"$HOME/.local/bin:$PATH\"\n"
				   "export PATH\n";
static const char bashrc_text[] = "PS1='\\w\\$ '\n";

/* Of a fresh procfs, what tells of the host rather than of the run. */
static const char *const proc_masks[] = {
	"acpi",	       "asound",	"bus",
	"config.gz",   "driver",	"fs",
	"interrupts",  "iomem",		"irq",
	"kallsyms",    "kcore",		"key-users",
	"keys",	       "kmsg",		"kpagecgroup",
	"kpagecount",  "kpageflags",	"latency_stats",
	"modules",     "mtrr",		"pagetypeinfo",
	"pressure",    "sched_debug",	"scsi",
	"slabinfo",    "sysrq-trigger", "timer_list",
	"timer_stats", "tty",		"vmallocinfo",
};

static void add_dirs(const struct nsbox_policy *p, struct blob_builder *b)
{
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		blob_op(b, OP_DIR, dirs[i].payload ? OPF_OWNER_PAYLOAD : 0, dirs[i].mode, NULL,
			dirs[i].path, 0);
	if (p->network.certificates) {
		blob_op(b, OP_DIR, 0, 0755, NULL, POLICY_TRUST, 0);
		blob_trust(b, POLICY_TRUST, p->network.certificates,
			   strlen(p->network.certificates));
	}
	if (p->workspace)
		blob_op(b, OP_DIR, OPF_OWNER_PAYLOAD, 0755, NULL, POLICY_WORKSPACE, 0);
	if (p->skill_dir)
		blob_op(b, OP_DIR, OPF_OWNER_PAYLOAD, 0755, NULL, p->skill_dir, 0);
	if (p->tmpfs[TMPFS_SECRETS].used)
		blob_op(b, OP_DIR, OPF_OWNER_PAYLOAD, 0700, NULL, p->tmpfs[TMPFS_SECRETS].path, 0);
	blob_file(b, POLICY_HOME "/.profile", OPF_OWNER_PAYLOAD, 0644, profile_text,
		  sizeof(profile_text) - 1);
	blob_file(b, POLICY_HOME "/.bashrc", OPF_OWNER_PAYLOAD, 0644, bashrc_text,
		  sizeof(bashrc_text) - 1);
}

static void add_tmpfs(const struct nsbox_policy *p, struct blob_builder *b)
{
	for (size_t i = 0; i < TMPFS_MAX; i++) {
		const struct policy_tmpfs *t = &p->tmpfs[i];
		unsigned flags = SAFE | (t->exec ? 0u : (unsigned)OPF_NOEXEC);

		if (!t->used)
			continue;
		if (!(t->mode & 01000)) /* sticky ones are everybody's */
			flags |= OPF_OWNER_PAYLOAD;
		if (t->shared)
			blob_op(b, OP_SHARED, flags & ~(unsigned)OPF_OWNER_PAYLOAD, 0, NULL,
				t->path, 0);
		else
			blob_op(b, OP_TMPFS, flags, t->mode, NULL, t->path, t->size);
	}
}

static void add_masks(struct blob_builder *b)
{
	char path[64];

	for (size_t i = 0; i < ARRAY_SIZE(proc_masks); i++) {
		nsbox_format(path, sizeof(path), "/proc/%s", proc_masks[i]);
		blob_op(b, OP_MASK, OPF_OPTIONAL, 0, NULL, path, 0);
	}
}

static void add_paths(struct blob_builder *b, enum mount_op_kind kind, unsigned flags,
		      char *const *paths)
{
	for (; paths && *paths; paths++)
		blob_op(b, kind, flags, 0, NULL, *paths, 0);
}

/* One that is missing is an error, and so is a pattern that matches nothing. */
static void add_executable(const struct nsbox_policy *p, struct blob_builder *b)
{
	char base[4096];

	for (char *const *path = p->make_exec; path && *path; path++) {
		size_t n = policy_pattern_base(*path);

		nsbox_format(base, sizeof(base), "%.*s", (int)n, *path);
		blob_op(b, OP_MAKE_EXEC, 0, 0, (*path)[n] ? *path + n + 1 : NULL, base, 0);
	}
}

/* A place that was granted for writing is there, and the payload's. */
static void add_granted(const struct nsbox_policy *p, struct blob_builder *b)
{
	for (char *const *w = p->write; *w; w++)
		if (!policy_owns(*w))
			blob_op(b, OP_DIR, OPF_OWNER_PAYLOAD, 0755, NULL, *w, 0);
}

/* Directories of the run's own on the host; and what the witness may not read, though by mode it may. */
void compile_places(const struct nsbox_policy *p, struct blob_builder *b)
{
	static const char witness[] = "witness\n";

	add_dirs(p, b);
	blob_file(b, "/.nsbox/witness", 0, 0444, witness, sizeof(witness) - 1);
	add_executable(p, b);
}

void compile_mounts(const struct nsbox_policy *p, struct blob_builder *b)
{
	add_dirs(p, b);
	add_granted(p, b);
	blob_op(b, OP_DEV, OPF_NOSUID | OPF_NOEXEC, 0755, NULL, "/dev", p->limits.memory);
	blob_op(b, OP_PROC, SAFE | OPF_NOEXEC | OPF_RDONLY, 0, NULL, "/proc", 0);
	add_tmpfs(p, b);
	add_executable(p, b);
	add_masks(b);
	add_paths(b, OP_MASK, OPF_OPTIONAL, p->mask); /* nothing there, nothing to protect */
	if (p->skill_dir && p->skill_readonly)
		blob_op(b, OP_READONLY, 0, 0, NULL, p->skill_dir, 0);
	add_paths(b, OP_READONLY, OPF_OPTIONAL, p->read_only);
}
