/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths: what is there (image), on which mount, whose it is, and which Landlock rules cover it.
 *
 * The kernel judges a file that exists by its mode first, then by its mount, then by Landlock; the
 * making of one by the mount first. All layers are asked here, so that the answer also says which
 * others would refuse; the error that a program sees is the first one's.
 */
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/sys.h"
#include "nsbox/util.h"
#include "policy/why.h"

#define FS(x) LANDLOCK_ACCESS_FS_##x

static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	if (!strcmp(dir, "/"))
		return true;
	return !strncmp(path, dir, n) && (path[n] == '/' || path[n] == '\0');
}

struct place {
	const struct why_world *w;
	const struct why_question *q;
	char path[PATH_MAX]; /* after links */
	bool exists;
	struct stat st; /* where it exists in the image */
	/* The mount it is on: a plan's or an image's operation, or the overlay (NULL). */
	const struct mount_op *mount;
	const char *mount_at;
	bool mount_is_image, read_only, noexec;
	const char *read_only_by; /* NULL: by the mount itself */
};

/* ------------------------------------------------------------------ mounts */

static const struct mount_op *longest(const struct blob *b, const char *path, unsigned kinds,
				      const char **ret_at)
{
	size_t n = 0, best = 0;
	const struct mount_op *ops = b ? blob_get(b, SEC_OPS, sizeof(*ops), &n) : NULL;
	const struct mount_op *found = NULL;

	for (size_t i = 0; i < n; i++) {
		const char *dst = blob_get_str(b, ops[i].dst);

		if (!(kinds & (1u << ops[i].kind)) || !is_below(path, dst) || strlen(dst) < best)
			continue;
		best = strlen(dst);
		found = &ops[i];
		*ret_at = dst;
	}
	return found;
}

static void find_mount(struct place *p)
{
	const unsigned own =
		1u << OP_TMPFS | 1u << OP_DEV | 1u << OP_PROC | 1u << OP_BIND | 1u << OP_SHARED;
	const char *own_at = "", *image_at = "", *dst = NULL;
	const struct mount_op *o = longest(p->w->plan, p->path, own, &own_at);
	const struct mount_op *i = longest(p->w->root, p->path, 1u << OP_BIND, &image_at);
	const struct plan_fixed *f = blob_fixed(p->w->plan, struct plan_fixed);

	p->mount_is_image = i && (!o || strlen(image_at) > strlen(own_at));
	p->mount = p->mount_is_image ? i : o;
	p->mount_at = p->mount_is_image ? image_at : o ? own_at : "/";
	p->read_only =
		p->mount ? (p->mount->flags & OPF_RDONLY) != 0 : (f->flags & PLAN_ROOT_RDONLY) != 0;
	p->noexec = p->mount && (p->mount->flags & OPF_NOEXEC);
	if (longest(p->w->plan, p->path, 1u << OP_READONLY, &dst)) {
		p->read_only = true;
		p->read_only_by = dst;
	}
}

static const char *mount_text(const struct place *p)
{
	if (!p->mount)
		return "the overlay root";
	if (p->mount_is_image)
		return "a part of the image, bound";
	switch (p->mount->kind) {
	case OP_TMPFS: return "a tmpfs of the run";
	case OP_PROC: return "the run's own procfs";
	case OP_DEV: return "the run's own /dev";
	case OP_SHARED: return "a directory of the host, shared";
	default: return "a bind";
	}
}

static bool is_special(const struct place *p)
{
	return p->mount && !p->mount_is_image &&
	       (p->mount->kind == OP_PROC || p->mount->kind == OP_DEV);
}

static bool on_tmpfs(const struct place *p)
{
	return p->mount && !p->mount_is_image &&
	       (p->mount->kind == OP_TMPFS || p->mount->kind == OP_SHARED);
}

static void ask_mount(const struct place *p, struct why *y)
{
	const char *what = mount_text(p);

	if (p->q->verb == WHY_WRITE && p->read_only)
		why_add(y, "mount", WHY_REFUSES, EROFS,
			p->read_only_by ? "%s is held read-only by the plan (on %s)"
					: "%s is read-only (%s)",
			p->read_only_by ? p->read_only_by : p->mount_at, what);
	else if (p->q->verb == WHY_EXEC && p->noexec)
		why_add(y, "mount", WHY_REFUSES, EACCES, "%s is mounted noexec (%s)", p->mount_at,
			what);
	else
		why_add(y, "mount", WHY_PASSES, 0, "%s: %s, %s", p->mount_at, what,
			p->read_only ? "read-only" : "writable");
}

/* A mask hides what is below it; true: nothing more is to be said. */
static bool ask_masks(const struct place *p, struct why *y)
{
	const char *dst;

	if (!longest(p->w->plan, p->path, 1u << OP_MASK, &dst))
		return false;
	if (p->q->verb == WHY_WRITE)
		why_add(y, "mask", WHY_REFUSES, EACCES,
			"%s is masked: nothing can be written there", dst);
	else if (strcmp(dst, p->path) != 0)
		why_add(y, "mask", WHY_REFUSES, ENOENT, "%s is masked: an empty directory", dst);
	else if (p->q->verb == WHY_EXEC)
		why_add(y, "mask", WHY_REFUSES, EACCES,
			"%s is masked: an empty device or directory", dst);
	else
		why_add(y, "mask", WHY_HIDES, 0,
			"%s is masked: it opens, and there is nothing in it", dst);
	return true;
}

/* ------------------------------------------------------------------ the image and modes */

/* The deepest directory above that is there, resolved; false where there is none. */
static bool find_parent(const struct why_world *w, const char *path, char ret[PATH_MAX],
			struct stat *st, size_t *ret_rest)
{
	char dir[PATH_MAX];

	snprintf(dir, sizeof(dir), "%s", path);
	for (;;) {
		char *slash = strrchr(dir, '/');

		if (!slash)
			return false;
		*slash = '\0';
		if (view_find(w->view, *dir ? dir : "/", ret, st) == 0) {
			*ret_rest = (size_t)(slash - dir);
			return true;
		}
		if (!*dir)
			return false;
	}
}

static void resolve(struct place *p)
{
	char real[PATH_MAX];
	struct stat st;
	size_t rest;

	snprintf(p->path, sizeof(p->path), "%s", p->q->path);
	find_mount(p);
	if (!p->w->view || is_special(p) || on_tmpfs(p))
		return;
	if (view_find(p->w->view, p->q->path, real, &p->st) == 0) {
		snprintf(p->path, sizeof(p->path), "%s", real);
		p->exists = true;
	} else if (find_parent(p->w, p->q->path, real, &st, &rest)) {
		int n = snprintf(p->path, sizeof(p->path), "%s%s", strcmp(real, "/") ? real : "",
				 p->q->path + rest);

		if (n < 0 || n >= (int)sizeof(p->path))
			snprintf(p->path, sizeof(p->path), "%s", p->q->path);
	}
	find_mount(p);
}

/* Does the payload own the deepest directory that is known above the path? */
static bool is_own_place(const struct place *p)
{
	const struct plan_fixed *f = blob_fixed(p->w->plan, struct plan_fixed);
	const char *at = "";
	const struct mount_op *dir = longest(p->w->plan, p->path, 1u << OP_DIR, &at);
	char real[PATH_MAX];
	struct stat st;
	size_t rest;

	if (f->uid == 0 || p->w->host->ids_kind == NSBOX_IDS_SINGLE)
		return true; /* it is the owner of every file of the overlay */
	/* A directory of the image below the plan's one is the image's. */
	if (p->w->view && find_parent(p->w, p->path, real, &st, &rest) && strlen(real) > strlen(at))
		return st.st_mode & S_IWOTH;
	return dir && ((dir->flags & OPF_OWNER_PAYLOAD) || (dir->mode & S_IWOTH));
}

static bool dev_is_writable(const char *path)
{
	static const char *const nodes[] = { "/dev/null", "/dev/zero",	 "/dev/full",
					     "/dev/tty",  "/dev/random", "/dev/urandom",
					     "/dev/ptmx", "/dev/stdout", "/dev/stderr",
					     "/dev/fd",	  "/dev/shm",	 "/dev/pts" };

	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++)
		if (!strcmp(path, nodes[i]) || (i >= 9 && is_below(path, nodes[i])))
			return true;
	return false;
}

static bool may_write(const struct place *p)
{
	if (on_tmpfs(p))
		return true;
	if (is_special(p))
		return p->mount->kind == OP_DEV && dev_is_writable(p->path);
	if (p->exists && p->w->host->ids_kind != NSBOX_IDS_SINGLE && !S_ISDIR(p->st.st_mode))
		return p->st.st_mode & S_IWOTH;
	return !p->mount_is_image && is_own_place(p);
}

static void ask_modes(const struct place *p, struct why *y)
{
	mode_t bit = p->q->verb == WHY_EXEC ? S_IXOTH : S_IROTH;

	if (p->q->verb == WHY_WRITE) {
		if (!may_write(p))
			why_add(y, "permissions", WHY_REFUSES, EACCES,
				"the directory or file belongs to the image; the run is user %u "
				"there",
				blob_fixed(p->w->plan, struct plan_fixed)->uid);
		else
			why_add(y, "permissions", WHY_PASSES, 0, "the place is the run's own");
		return;
	}
	if (p->exists && !(p->st.st_mode & bit))
		why_add(y, "permissions", WHY_REFUSES, EACCES,
			"mode %04o gives others no right to %s it", p->st.st_mode & 07777u,
			p->q->verb == WHY_EXEC ? "execute" : "read");
	else if (p->exists)
		why_add(y, "permissions", WHY_PASSES, 0, "mode %04o", p->st.st_mode & 07777u);
}

/* What the rules do not give of `need`. Rights add up along the way to a file. */
static uint64_t lacking(const struct place *p, uint64_t need)
{
	const struct plan_fixed *f = blob_fixed(p->w->plan, struct plan_fixed);
	size_t n = 0;
	const struct landlock_rule *r = blob_get(p->w->plan, SEC_LANDLOCK, sizeof(*r), &n);

	need &= f->landlock_fs;
	for (size_t i = 0; i < n; i++)
		if (!r[i].port && is_below(p->path, blob_get_str(p->w->plan, r[i].path)))
			need &= ~r[i].access;
	return need;
}

/* Can the run put files and directories there itself? */
static bool can_be_made(const struct place *p)
{
	return !p->read_only && may_write(p) && !lacking(p, FS(MAKE_REG) | FS(MAKE_DIR));
}

/* A file can be made where its directory is, or where the run can make that as well. */
static void ask_directory(const struct place *p, struct why *y)
{
	char dir[PATH_MAX], real[PATH_MAX];
	char *slash;
	const char *at = "";
	struct stat st;

	snprintf(dir, sizeof(dir), "%s", p->path);
	slash = strrchr(dir, '/');
	if (!slash || slash == dir || can_be_made(p))
		return;
	*slash = '\0';
	if (view_find(p->w->view, dir, real, &st) == 0)
		return;
	if (longest(p->w->plan, dir, 1u << OP_DIR, &at) && !strcmp(at, dir))
		return;
	why_add(y, "image", WHY_REFUSES, ENOENT, "there is no directory %s in a run", dir);
}

/* What cannot be there in the image and cannot be made there. */
static void ask_image(const struct place *p, struct why *y)
{
	if (!p->w->view || is_special(p))
		return;
	if (p->exists) {
		why_add(y, "image", WHY_PASSES, 0,
			strcmp(p->path, p->q->path) ? "it leads to %s, which is there"
						    : "%s is there",
			p->path);
		return;
	}
	if (p->q->verb == WHY_WRITE) {
		ask_directory(p, y);
		return;
	}
	if (can_be_made(p)) {
		why_add(y, "image", WHY_PASSES, 0,
			"nothing is there at first; the run can put something there");
		return;
	}
	why_add(y, "image", WHY_REFUSES, ENOENT,
		"there is no such file in a run: the image does not have it");
}

/* ------------------------------------------------------------------ Landlock */

static uint64_t needed(const struct place *p, uint64_t handled)
{
	uint64_t need;

	if (p->q->verb == WHY_READ)
		need = p->exists && S_ISDIR(p->st.st_mode) ? FS(READ_DIR) : FS(READ_FILE);
	else if (p->q->verb == WHY_EXEC)
		need = FS(EXECUTE);
	else if (p->exists || is_special(p))
		need = FS(WRITE_FILE);
	else
		need = FS(WRITE_FILE) | FS(MAKE_REG);
	return need & handled;
}

/* The longest rule that gives something of `wanted` (0: the longest of all). NULL: none. */
static const char *nearest_rule(const struct place *p, uint64_t wanted)
{
	size_t n = 0;
	const struct landlock_rule *r = blob_get(p->w->plan, SEC_LANDLOCK, sizeof(*r), &n);
	const char *found = NULL;

	for (size_t i = 0; i < n; i++) {
		const char *path = blob_get_str(p->w->plan, r[i].path);

		if (!r[i].port && is_below(p->path, path) && (!wanted || (wanted & r[i].access)) &&
		    (!found || strlen(path) > strlen(found)))
			found = path;
	}
	return found;
}

static void ask_landlock(const struct place *p, struct why *y)
{
	const struct plan_fixed *f = blob_fixed(p->w->plan, struct plan_fixed);
	const uint64_t wanted = needed(p, f->landlock_fs);
	const char *nearest = nearest_rule(p, 0), *by = nearest_rule(p, wanted);

	if (!f->landlock_fs)
		why_add(y, "landlock", WHY_PASSES, 0, "not in this plan: %s",
			p->w->host->landlock_abi ? "its layer is off" : "this host has none");
	else if (!lacking(p, wanted))
		why_add(y, "landlock", WHY_PASSES, 0, "the rule on %s gives it", by ? by : "/");
	else
		why_add(y, "landlock", WHY_REFUSES, EACCES,
			nearest && strcmp(nearest, "/") ? "the rule on %s does not give it"
							: "no rule covers it (%s: listing alone)",
			nearest ? nearest : "/");
}

/* ------------------------------------------------------------------ all */

static void ask_filter(const struct place *p, struct why *y)
{
	static const char *const calls[] = { "openat", "openat", "execve" };
	const uint64_t none[6] = { 0 };
	const char *call = calls[p->q->verb];

	if (p->q->verb == WHY_EXEC && p->w->policy->n_noexec)
		why_add(y, "seccomp", WHY_REFUSES, EPERM,
			"process.subprocess is \"none\": a filter refuses execve once the "
			"interpreter runs");
	else if (why_filter(p->w->plan, call, none) != SECCOMP_RET_ALLOW)
		why_add(y, "seccomp", WHY_REFUSES, EPERM, "the filter refuses %s", call);
	else
		why_add(y, "seccomp", WHY_PASSES, 0, "%s is allowed", call);
}

void why_path(const struct why_world *w, const struct why_question *q, struct why *y)
{
	struct place p = { .w = w, .q = q };

	resolve(&p);
	ask_filter(&p, y);
	if (ask_masks(&p, y))
		return;
	ask_image(&p, y);
	if (q->verb == WHY_WRITE && !p.exists) {
		ask_mount(&p, y);
		ask_modes(&p, y);
	} else {
		ask_modes(&p, y);
		ask_mount(&p, y);
	}
	ask_landlock(&p, y);
}
