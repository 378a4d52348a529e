/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each step of a path is looked up without following anything: the mount with the longest matching
 * place decides, and for the root the topmost layer that has the name. Links are then followed by
 * text, here and not by the kernel, since the kernel would start at the wrong root.
 */
#include "policy/skill/view.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "nsbox/plan_build.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

#define VIEW_MOUNTS_MAX 128
#define VIEW_LAYERS_MAX 64
#define LINKS_MAX	40 /* as the kernel's */
#define BENEATH		(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

struct view {
	int layer[VIEW_LAYERS_MAX]; /* topmost first */
	unsigned n_layers;
	struct {
		char *dst;
		int fd;
	} mount[VIEW_MOUNTS_MAX];
	unsigned n_mounts;
};

/* ------------------------------------------------------------------ life */

static int add_mount(struct view *v, const char *dst, int fd)
{
	if (v->n_mounts >= VIEW_MOUNTS_MAX)
		return -E2BIG;
	v->mount[v->n_mounts].dst = strdup(dst);
	if (!v->mount[v->n_mounts].dst)
		return -ENOMEM;
	v->mount[v->n_mounts++].fd = fd;
	return 0;
}

static int add_op(struct view *v, const char *src, const char *dst, const struct mount_op *op)
{
	auto_close int fd = -1;
	int r;

	if (op->kind != OP_LOWER && op->kind != OP_BIND)
		return 0;
	fd = open(src, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return op->flags & OPF_OPTIONAL ? 0 : -errno;
	if (op->kind == OP_BIND) {
		r = add_mount(v, dst, fd);
		if (r < 0)
			return r;
	} else if (v->n_layers < VIEW_LAYERS_MAX) {
		v->layer[v->n_layers++] = fd;
	} else {
		return -E2BIG;
	}
	take_fd(&fd);
	return 0;
}

int view_new(const struct blob *root, struct view **ret, struct nsbox_error *err)
{
	struct view *v = calloc(1, sizeof(*v));
	size_t n = 0;
	const struct mount_op *op = blob_get(root, SEC_OPS, sizeof(*op), &n);

	if (!v)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "look at an image");
	for (size_t i = 0; i < n; i++) {
		const char *src = blob_get_str(root, op[i].src);
		int r = add_op(v, src, blob_get_str(root, op[i].dst), &op[i]);

		if (r < 0) {
			view_free(v);
			return nsbox_fail_at(err, NSBOX_STAGE_IMAGE, NSBOX_E_IO, -r, "look at '%s'",
					     src);
		}
	}
	*ret = v;
	return 0;
}

int view_add(struct view *v, const char *dst, int dir_fd, struct nsbox_error *err)
{
	auto_close int fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 3);
	int r = fd < 0 ? -errno : add_mount(v, dst, fd);

	if (r < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, -r, "look at '%s'", dst);
	take_fd(&fd);
	return 0;
}

void view_free(struct view *v)
{
	if (!v)
		return;
	for (unsigned i = 0; i < v->n_layers; i++)
		close_fd(&v->layer[i]);
	for (unsigned i = 0; i < v->n_mounts; i++) {
		close_fd(&v->mount[i].fd);
		free(v->mount[i].dst);
	}
	free(v);
}

/* ------------------------------------------------------------------ one name */

static int open_below(int fd, const char *rel, uint64_t flags)
{
	int got = sys_openat2(fd, *rel ? rel : ".", flags, 0, BENEATH);

	return got < 0 ? -errno : got;
}

/* The part of path below dst, or NULL. */
static const char *below(const char *path, const char *dst)
{
	size_t n = strlen(dst);

	if (strncmp(path, dst, n) != 0 || (path[n] && path[n] != '/'))
		return NULL;
	return path[n] ? path + n + 1 : path + n;
}

/* Is the path a directory on the way to a mount? It is there even if no layer has it. */
static bool leads_to_mount(const struct view *v, const char *path)
{
	size_t n = strlen(path);

	for (unsigned i = 0; i < v->n_mounts; i++)
		if (!strncmp(v->mount[i].dst, path, n) && v->mount[i].dst[n] == '/')
			return true;
	return false;
}

/* Does this layer hide what lower ones have below one of the path's directories? */
static bool hides(int layer, const char *rel)
{
	char dir[PATH_MAX], proc[64], value[2];

	snprintf(dir, sizeof(dir), "%s", rel);
	for (char *slash; (slash = strrchr(dir, '/'));) {
		struct stat st;

		*slash = '\0';
		auto_close int fd = open_below(layer, dir, O_PATH | O_NOFOLLOW);
		if (fd < 0 || fstat(fd, &st) < 0)
			continue;
		if (!S_ISDIR(st.st_mode))
			return true;
		snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
		if ((getxattr(proc, "user.overlay.opaque", value, sizeof(value)) == 1 ||
		     getxattr(proc, "trusted.overlay.opaque", value, sizeof(value)) == 1) &&
		    *value == 'y')
			return true;
	}
	return false;
}

static int open_in_layers(const struct view *v, const char *rel, uint64_t flags)
{
	for (unsigned i = 0; i < v->n_layers; i++) {
		struct stat st;
		int fd = open_below(v->layer[i], rel, flags);

		if (fd >= 0 && fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == 0) {
			close_fd(&fd); /* a whiteout */
			return -ENOENT;
		}
		if (fd >= 0 || (fd != -ENOENT && fd != -ENOTDIR && fd != -ELOOP))
			return fd;
		if (i + 1 < v->n_layers && hides(v->layer[i], rel))
			return -ENOENT;
	}
	return -ENOENT;
}

/* path: absolute, resolved but for its last name; "" is the root. */
static int open_path(const struct view *v, const char *path, uint64_t flags)
{
	const char *best = NULL;
	size_t longest = 0;
	int fd = -1;

	for (unsigned i = 0; i < v->n_mounts; i++) {
		const char *rel = below(path, v->mount[i].dst);

		if (rel && strlen(v->mount[i].dst) >= longest) {
			longest = strlen(v->mount[i].dst);
			best = rel;
			fd = v->mount[i].fd;
		}
	}
	if (best)
		return open_below(fd, best, flags);
	return open_in_layers(v, *path ? path + 1 : path, flags);
}

/* State of one name, and where it is a link its target. */
static int look(const struct view *v, const char *path, struct stat *st, char *target)
{
	auto_close int fd = open_path(v, path, O_PATH | O_NOFOLLOW);
	ssize_t n;

	if (fd < 0 && leads_to_mount(v, path)) {
		*st = (struct stat){ .st_mode = S_IFDIR | 0755 };
		return 0;
	}
	if (fd < 0)
		return fd;
	if (fstat(fd, st) < 0)
		return -errno;
	if (!S_ISLNK(st->st_mode))
		return 0;
	n = readlinkat(fd, "", target, PATH_MAX - 1);
	if (n <= 0)
		return n < 0 ? -errno : -ENOENT;
	target[n] = '\0';
	return 0;
}

/* ------------------------------------------------------------------ paths */

struct walk {
	char at[PATH_MAX];   /* resolved, "" is the root */
	char rest[PATH_MAX]; /* to be walked */
	unsigned links;
};

/* rest is empty or begins with a '/'. */
static int follow(struct walk *w, const char *target, const char *rest)
{
	char joined[PATH_MAX];

	if (++w->links > LINKS_MAX)
		return -ELOOP;
	if ((size_t)snprintf(joined, sizeof(joined), "%s%s", target, rest) >= sizeof(joined))
		return -ENAMETOOLONG;
	if (*target == '/')
		w->at[0] = '\0';
	memcpy(w->rest, joined, strlen(joined) + 1);
	return 0;
}

/* The first name of w->rest. */
static int step(const struct view *v, struct walk *w, struct stat *st)
{
	char next[PATH_MAX], target[PATH_MAX];
	const char *name = w->rest + strspn(w->rest, "/");
	size_t n = strcspn(name, "/");
	const char *rest = name + n;
	int r = 0;

	if (n == 2 && !memcmp(name, "..", 2)) {
		char *slash = strrchr(w->at, '/');

		*(slash ? slash : w->at) = '\0';
		r = look(v, w->at, st, target);
	} else if (n && !(n == 1 && *name == '.')) {
		if ((size_t)snprintf(next, sizeof(next), "%s/%.*s", w->at, (int)n, name) >=
		    sizeof(next))
			return -ENAMETOOLONG;
		r = look(v, next, st, target);
		if (r == 0 && S_ISLNK(st->st_mode))
			return follow(w, target, rest);
		memcpy(w->at, next, strlen(next) + 1);
	}
	if (r < 0)
		return r;
	if (*rest && !S_ISDIR(st->st_mode))
		return -ENOTDIR;
	memmove(w->rest, rest, strlen(rest) + 1);
	return 0;
}

int view_find(const struct view *v, const char *path, char ret[PATH_MAX], struct stat *st)
{
	struct walk w = { .at = "" };
	char target[PATH_MAX]; /* the root is no link */
	int r;

	if (*path != '/')
		return -EINVAL;
	if ((size_t)snprintf(w.rest, sizeof(w.rest), "%s", path) >= sizeof(w.rest))
		return -ENAMETOOLONG;
	r = look(v, "", st, target);
	while (r == 0 && w.rest[strspn(w.rest, "/")])
		r = step(v, &w, st);
	if (r == 0)
		snprintf(ret, PATH_MAX, "%s", *w.at ? w.at : "/");
	return r;
}

int view_open(const struct view *v, const char *path)
{
	int fd = open_path(v, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		return fd;
	close_fd(&fd);
	return -EINVAL;
}

static int list_one(int dir_fd, int (*each)(void *ctx, const char *name), void *ctx)
{
	DIR *d = fdopendir(dir_fd);
	struct dirent *e;
	int r = 0;

	if (!d) {
		close_fd(&dir_fd);
		return -errno;
	}
	while (r == 0 && (e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = each(ctx, e->d_name);
	closedir(d);
	return r;
}

int view_list(const struct view *v, const char *path, int (*each)(void *ctx, const char *name),
	      void *ctx)
{
	int r = 0;

	for (unsigned i = 0; i < v->n_mounts; i++)
		if (below(path, v->mount[i].dst)) {
			int fd = open_path(v, path, O_RDONLY | O_DIRECTORY);

			return fd < 0 ? fd : list_one(fd, each, ctx);
		}
	for (unsigned i = 0; r == 0 && i < v->n_layers; i++) {
		int fd = open_below(v->layer[i], path + (*path == '/'), O_RDONLY | O_DIRECTORY);

		if (fd >= 0)
			r = list_one(fd, each, ctx);
	}
	return r;
}
