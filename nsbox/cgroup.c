/* SPDX-License-Identifier: Apache-2.0 */
#include "nsbox/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#include "nsbox/ids.h"
#include "nsbox/util.h"

#define CGROUP2_MAGIC 0x63677270
#define CGROUP_ROOT   "/sys/fs/cgroup"
#define RACE_ROUNDS   64

static const char *const controllers[CG_CONTROLLERS] = { "memory", "pids", "cpu" };

/* ------------------------------------------------------------------ where */

/* The path of this process in the hierarchy of a v1 controller, or of v2 (name NULL). */
static bool own_path(const char *name, char *ret, size_t size)
{
	char text[8192];

	if (read_small_file(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text)) < 0)
		return false;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
		bool hit;

		if (!path)
			continue;
		*path++ = '\0';
		list++;
		hit = name ? false : !*list;
		for (char *save, *c = strtok_r(list, ",", &save); name && c;
		     c = strtok_r(NULL, ",", &save))
			hit = hit || !strcmp(c, name);
		if (hit) {
			nsbox_format(ret, (int)size, "%s", path);
			return true;
		}
	}
	return false;
}

static int open_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int make_dir_in(int parent, const char *name)
{
	int fd;

	if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

static int base_v1(int controller)
{
	char own[1024], path[1200];
	auto_close int dir = -1;

	if (!own_path(controllers[controller], own, sizeof(own)))
		return -ENOENT;
	nsbox_format(path, sizeof(path), CGROUP_ROOT "/%s%s", controllers[controller], own);
	dir = open_dir(path);
	if (dir < 0) /* a container that shows its own group as the root */
		nsbox_format(path, sizeof(path), CGROUP_ROOT "/%s", controllers[controller]);
	if (dir < 0)
		dir = open_dir(path);
	return dir < 0 ? dir : make_dir_in(dir, "nsbox");
}

static bool has_word(const char *text, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = strstr(text, word); p; p = strstr(p + n, word))
		if ((p == text || p[-1] == ' ') && (!p[n] || p[n] == ' ' || p[n] == '\n'))
			return true;
	return false;
}

int cgroup_enable_v2(int dir, bool cpu)
{
	char have[256];

	if (read_small_file(dir, "cgroup.controllers", have, sizeof(have)) < 0)
		return -ENOENT;
	for (int i = 0; i < (cpu ? CG_CONTROLLERS : CG_CPU); i++) {
		char word[16];
		int r;

		if (!has_word(have, controllers[i]))
			return -ENOTSUP;
		nsbox_format(word, sizeof(word), "+%s", controllers[i]);
		r = write_small_file(dir, "cgroup.subtree_control", word);
		if (r < 0)
			return r;
	}
	return 0;
}

/*
 * v2 forbids processes beside sub-groups with controllers, except in the root. So: the root where
 * it may be written (a host's root user), else our own group, once we have moved out of its way
 * into a child of our own (a service with Delegate=yes).
 */
static int base_v2(void)
{
	char own[1024], path[1200], pid[16];
	auto_close int root = open_dir(CGROUP_ROOT), dir = -1, self = -1, base = -1;
	struct statfs fs;
	int r;

	if (root < 0)
		return root;
	if (fstatfs(root, &fs) < 0 || fs.f_type != CGROUP2_MAGIC)
		return -ENOTSUP;
	if (cgroup_enable_v2(root, true) == 0) {
		base = make_dir_in(root, "nsbox");
		if (base >= 0 && cgroup_enable_v2(base, true) == 0)
			return take_fd(&base);
	}
	if (!own_path(NULL, own, sizeof(own)) || !strcmp(own, "/"))
		return -EACCES;
	nsbox_format(path, sizeof(path), CGROUP_ROOT "%s", own);
	dir = open_dir(path);
	if (dir < 0)
		return dir;
	self = make_dir_in(dir, "nsbox-owner");
	if (self < 0)
		return self;
	nsbox_format(pid, sizeof(pid), "%d", (int)getpid());
	r = write_small_file(self, "cgroup.procs", pid);
	if (r == 0)
		r = cgroup_enable_v2(dir, true);
	if (r < 0)
		return r;
	close_fd(&base);
	base = make_dir_in(dir, "nsbox");
	if (base < 0)
		return base;
	r = cgroup_enable_v2(base, true);
	return r < 0 ? r : take_fd(&base);
}

static bool is_v2(void)
{
	struct statfs fs;

	return statfs(CGROUP_ROOT, &fs) == 0 && fs.f_type == CGROUP2_MAGIC;
}

/* v2 has one hierarchy: the same directory stands for every controller. */
static int same_for_all(int *fds)
{
	for (int i = 1; i < CG_CONTROLLERS; i++) {
		fds[i] = fcntl(fds[0], F_DUPFD_CLOEXEC, 3);
		if (fds[i] < 0)
			return -errno;
	}
	return 0;
}

void cgroup_init(struct cgroup *cg)
{
	memset(cg, 0, sizeof(*cg));
	cg->sandbox = cg->init = -1;
	for (int i = 0; i < CG_CONTROLLERS; i++)
		cg->base[i] = cg->leaf[i] = -1;
}

static int open_bases(struct cgroup *cg)
{
	cgroup_init(cg);
	if (is_v2()) {
		cg->base[0] = base_v2();
		if (cg->base[0] < 0)
			return cg->base[0];
		cg->kind = NSBOX_CGROUP_V2;
		return same_for_all(cg->base);
	}
	for (int i = 0; i < CG_CONTROLLERS; i++) {
		cg->base[i] = base_v1(i);
		if (cg->base[i] < 0)
			return cg->base[i];
	}
	cg->kind = NSBOX_CGROUP_V1;
	return 0;
}

/* ------------------------------------------------------------------ files by version */

static const struct {
	int controller;
	const char *name[3]; /* by enum nsbox_cgroup_kind */
	const char *key;     /* word before the value, NULL: the whole file */
} files[CGF_FILES] = {
	[CGF_MEMORY] = { CG_MEMORY, { NULL, "memory.limit_in_bytes", "memory.max" }, NULL },
	[CGF_SWAP] = { CG_MEMORY,
		       { NULL, "memory.memsw.limit_in_bytes", "memory.swap.max" },
		       NULL },
	[CGF_PIDS] = { CG_PIDS, { NULL, "pids.max", "pids.max" }, NULL },
	[CGF_CPU] = { CG_CPU, { NULL, "cpu.cfs_quota_us", "cpu.max" }, NULL },
	[CGF_PEAK] = { CG_MEMORY, { NULL, "memory.max_usage_in_bytes", "memory.peak" }, NULL },
	[CGF_OOM] = { CG_MEMORY, { NULL, "memory.oom_control", "memory.events" }, "oom_kill" },
	[CGF_PIDS_EVENTS] = { CG_PIDS, { NULL, "pids.events", "pids.events" }, "max" },
};

static void file_path(const struct cgroup *cg, int leaf, enum cgroup_file f, char *ret, int size)
{
	const char *name = files[f].name[cg->kind];

	if (leaf == CGROUP_NO_LEAF)
		nsbox_format(ret, size, "%s", name);
	else
		nsbox_format(ret, size, "%d/%s", leaf, name);
}

int cgroup_set(const struct cgroup *cg, int leaf, enum cgroup_file f, const char *value)
{
	char path[64];

	file_path(cg, leaf, f, path, sizeof(path));
	return write_small_file(cg->leaf[files[f].controller], path, value);
}

static int set(const struct cgroup *cg, enum cgroup_file f, const char *value)
{
	return cgroup_set(cg, CGROUP_NO_LEAF, f, value);
}

static uint64_t get(const struct cgroup *cg, int leaf, enum cgroup_file f)
{
	char path[64], text[2048], *save;

	file_path(cg, leaf, f, path, sizeof(path));
	if (read_small_file(cg->leaf[files[f].controller], path, text, sizeof(text)) < 0)
		return 0;
	if (!files[f].key)
		return strtoull(text, NULL, 10);
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		size_t n = strlen(files[f].key);

		if (!strncmp(line, files[f].key, n) && line[n] == ' ')
			return strtoull(line + n, NULL, 10);
	}
	return 0;
}

static int limit_error(int r, const char *what, struct nsbox_error *err)
{
	return nsbox_fail_at(err, NSBOX_STAGE_CGROUP, NSBOX_E_SETUP, r, "set the %s limit", what);
}

static int set_limits(const struct cgroup *cg, const struct plan_limits *l, struct nsbox_error *err)
{
	char v[48];
	int r;

	nsbox_format(v, sizeof(v), "%llu", (unsigned long long)l->memory);
	r = set(cg, CGF_MEMORY, v);
	/* A reused v1 group may hold a memsw limit below the new memory limit: raise it first. */
	if (r == -EINVAL && cg->kind == NSBOX_CGROUP_V1 && set(cg, CGF_SWAP, "-1") == 0)
		r = set(cg, CGF_MEMORY, v);
	if (r < 0)
		return limit_error(r, "memory", err);
	/* No swap. A kernel without swap accounting has no file for it. */
	r = set(cg, CGF_SWAP, cg->kind == NSBOX_CGROUP_V1 ? v : "0");
	if (r < 0 && r != -ENOENT)
		return limit_error(r, "swap", err);
	nsbox_format(v, sizeof(v), "%u", l->pids);
	r = set(cg, CGF_PIDS, v);
	if (r < 0)
		return limit_error(r, "process", err);
	nsbox_format(v, sizeof(v), cg->kind == NSBOX_CGROUP_V1 ? "%llu" : "%llu 100000",
		     (unsigned long long)l->cpu_milli * 100);
	r = set(cg, CGF_CPU, v);
	return r < 0 ? limit_error(r, "cpu", err) : 0;
}

/* ------------------------------------------------------------------ life of a leaf */

static int make_leaves_v1(struct cgroup *cg, const char *name)
{
	for (int i = 0; i < CG_CONTROLLERS; i++) {
		cg->leaf[i] = make_dir_in(cg->base[i], name);
		if (cg->leaf[i] < 0)
			return cg->leaf[i];
	}
	return 0;
}

static int make_leaves_v2(struct cgroup *cg, const char *name)
{
	int r;

	cg->sandbox = make_dir_in(cg->base[0], name);
	if (cg->sandbox < 0)
		return cg->sandbox;
	r = cgroup_enable_v2(cg->sandbox, true);
	if (r < 0)
		return r;
	cg->init = make_dir_in(cg->sandbox, "init");
	if (cg->init < 0)
		return cg->init;
	cg->leaf[0] = make_dir_in(cg->sandbox, "run");
	return cg->leaf[0] < 0 ? cg->leaf[0] : same_for_all(cg->leaf);
}

/* Another owner that ends may take the empty base away between two steps of ours: again, then. */
static bool was_taken_away(int r)
{
	return r == -ENOENT || r == -ENODEV;
}

static int make_groups(struct cgroup *cg, struct nsbox_error *err)
{
	char name[16];
	int r = -ENOENT;

	nsbox_format(name, sizeof(name), "%u", cg->slot);
	for (int i = 0; i < RACE_ROUNDS && was_taken_away(r); i++) {
		uint32_t slot = cg->slot;

		if (i)
			cgroup_close(cg);
		r = open_bases(cg);
		cg->slot = slot;
		if (r == 0)
			r = cg->kind == NSBOX_CGROUP_V2 ? make_leaves_v2(cg, name)
							: make_leaves_v1(cg, name);
	}
	if (r < 0 && cg->kind == NSBOX_CGROUP_NONE)
		return nsbox_fail_at(err, NSBOX_STAGE_CGROUP, NSBOX_E_UNSUPPORTED, r,
				     "use control groups below " CGROUP_ROOT);
	if (r < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_CGROUP, NSBOX_E_SETUP, r,
				     "make the control group nsbox/%s", name);
	return 0;
}

int cgroup_open(struct cgroup *cg, uint32_t slot, const struct plan_limits *l,
		struct nsbox_error *err)
{
	int r;

	cgroup_init(cg);
	cg->slot = slot;
	r = make_groups(cg, err);
	cg->pids = l->pids;
	if (r == 0)
		r = set_limits(cg, l, err);
	if (r < 0) {
		cgroup_close(cg);
		return r;
	}
	/* A leaf left by a dead owner keeps its counters. */
	if (cg->kind == NSBOX_CGROUP_V1)
		set(cg, CGF_PEAK, "0");
	cg->oom_at_start = get(cg, CGROUP_NO_LEAF, CGF_OOM);
	cg->pids_at_start = get(cg, CGROUP_NO_LEAF, CGF_PIDS_EVENTS);
	return 0;
}

/* A file of a leaf; programs of one sandbox share its processor time, and have no leaves there. */
static void leaf_file(int leaf, int controller, const char *file, char *ret, int size)
{
	if (leaf == CGROUP_NO_LEAF || controller == CG_CPU)
		nsbox_format(ret, size, "%s", file);
	else
		nsbox_format(ret, size, "%d/%s", leaf, file);
}

static int join_error(int r, int controller, struct nsbox_error *err)
{
	return nsbox_fail_at(err, NSBOX_STAGE_CGROUP, NSBOX_E_SETUP, r,
			     "put the payload into its %s group", controllers[controller]);
}

int cgroup_attach(const struct cgroup *cg, int leaf, pid_t pid, struct nsbox_error *err)
{
	const int n = cg->kind == NSBOX_CGROUP_V2 ? 1 : CG_CONTROLLERS;
	char text[16], path[32];

	nsbox_format(text, sizeof(text), "%d", (int)pid);
	for (int i = 0; i < n; i++) {
		int r;

		leaf_file(leaf, i, "cgroup.procs", path, sizeof(path));
		r = write_small_file(cg->leaf[i], path, text);
		if (r < 0)
			return join_error(r, i, err);
	}
	return 0;
}

int cgroup_open_join(const struct cgroup *cg, int leaf, int *ret, struct nsbox_error *err)
{
	char path[32];
	int r = 0;

	for (int i = 0; i < CG_CONTROLLERS; i++) {
		leaf_file(leaf, i, "tasks", path, sizeof(path));
		ret[i] = r < 0 ? -1 : openat(cg->leaf[i], path, O_WRONLY | O_CLOEXEC);
		if (r == 0 && ret[i] < 0)
			r = join_error(-errno, i, err);
	}
	for (int i = 0; r < 0 && i < CG_CONTROLLERS; i++)
		close_fd(&ret[i]);
	return r;
}

void cgroup_usage(const struct cgroup *cg, int leaf, struct cgroup_usage *ret)
{
	uint64_t pids;

	if (cg->kind == NSBOX_CGROUP_NONE)
		return;
	ret->memory_peak = get(cg, CGROUP_NO_LEAF, CGF_PEAK);
	pids = get(cg, CGROUP_NO_LEAF, CGF_PIDS_EVENTS) - cg->pids_at_start;
	if (leaf == CGROUP_NO_LEAF) {
		ret->oom_kills = (uint32_t)(get(cg, leaf, CGF_OOM) - cg->oom_at_start);
	} else {
		/* A refused fork counts in the group it happened in, or (v2 since 6.11) in the one
		 * whose limit it met. */
		ret->oom_kills = (uint32_t)get(cg, leaf, CGF_OOM);
		if (cg->kind == NSBOX_CGROUP_V1)
			pids = 0;
		pids = MAX(pids, get(cg, leaf, CGF_PIDS_EVENTS));
	}
	ret->pids_hits = (uint32_t)pids;
}

/* A process that was just reaped may still count for some milliseconds. */
void cgroup_remove_dir(int base, const char *name)
{
	const struct timespec pause = { 0, 2000000 };

	for (int i = 0; i < 100; i++) {
		if (unlinkat(base, name, AT_REMOVEDIR) == 0 || errno != EBUSY)
			return;
		nanosleep(&pause, NULL);
	}
}

/* The groups of a sandbox, whichever of them exist; `base` holds the one of its slot. */
static void remove_sandbox(int base, const char *name, int kind)
{
	auto_close int dir = openat(base, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), run = -1;

	if (dir >= 0 && kind == NSBOX_CGROUP_V2) {
		run = openat(dir, "run", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		cgroup_leaves_remove(run);
		cgroup_remove_dir(dir, "run");
		cgroup_remove_dir(dir, "init");
	} else {
		cgroup_leaves_remove(dir);
	}
	cgroup_remove_dir(base, name);
}

void cgroup_close(struct cgroup *cg)
{
	char name[16];

	nsbox_format(name, sizeof(name), "%u", cg->slot);
	for (int i = 0; i < CG_CONTROLLERS; i++)
		if (cg->leaf[i] >= 0 || cg->sandbox >= 0)
			remove_sandbox(cg->base[i], name, cg->kind);
	for (int i = 0; i < CG_CONTROLLERS; i++) {
		close_fd(&cg->leaf[i]);
		close_fd(&cg->base[i]);
	}
	close_fd(&cg->sandbox);
	close_fd(&cg->init);
	cg->kind = NSBOX_CGROUP_NONE;
}

static void sweep_dir(int base, int kind)
{
	int copy = openat(base, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;

	if (!dir) {
		close_fd(&copy);
		return;
	}
	while ((e = readdir(dir))) {
		struct slot slot;
		uint64_t n;

		if (!parse_u64(e->d_name, &n) || n >= IDS_SLOTS || slot_try((uint32_t)n, &slot) < 0)
			continue;
		remove_sandbox(base, e->d_name, kind);
		slot_release(&slot);
	}
	closedir(dir);
}

/* Empty parents: one would keep the owner's own group from being removed. */
static void remove_bases(const struct cgroup *cg)
{
	for (int i = 0; cg->kind != NSBOX_CGROUP_NONE && i < CG_CONTROLLERS; i++)
		unlinkat(cg->base[i], "../nsbox", AT_REMOVEDIR);
}

void cgroup_sweep(void)
{
	struct cgroup cg;

	if (open_bases(&cg) == 0)
		for (int i = 0; i < (cg.kind == NSBOX_CGROUP_V2 ? 1 : CG_CONTROLLERS); i++)
			sweep_dir(cg.base[i], cg.kind);
	remove_bases(&cg);
	cgroup_close(&cg);
}

/* A base that root once made is there for everyone to open: what counts is making a group in it. */
static int try_leaf(const struct cgroup *cg)
{
	char name[24];

	nsbox_format(name, sizeof(name), "probe-%d", (int)getpid());
	for (int i = 0; i < CG_CONTROLLERS; i++) {
		if (mkdirat(cg->base[i], name, 0755) < 0)
			return -errno;
		if (unlinkat(cg->base[i], name, AT_REMOVEDIR) < 0)
			return -errno;
		if (cg->kind == NSBOX_CGROUP_V2)
			break;
	}
	return 0;
}

int cgroup_probe(struct nsbox_host *host)
{
	struct cgroup cg;
	int r = -ENOENT;

	cgroup_init(&cg);
	for (int i = 0; i < RACE_ROUNDS && was_taken_away(r); i++) {
		cgroup_close(&cg);
		r = open_bases(&cg);
		if (r == 0)
			r = try_leaf(&cg);
	}
	remove_bases(&cg);
	if (r < 0)
		cg.kind = NSBOX_CGROUP_NONE;
	host->cgroup_kind = (uint32_t)cg.kind;
	host->cgroup_memory = host->cgroup_pids = host->cgroup_cpu = r == 0;
	if (r < 0)
		nsbox_format(host->cgroup_note, sizeof(host->cgroup_note),
			     "cgroup %s below " CGROUP_ROOT " cannot be written: %s",
			     is_v2() ? "v2" : "v1", strerrordesc_np(-r));
	cgroup_close(&cg);
	return r;
}
