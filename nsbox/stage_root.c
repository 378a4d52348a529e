/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stages that build the root: propagation, scratch, overlay, mount, pivot.
 *
 * While it is built, our root is the run's own scratch tmpfs:
 *
 *   /old    the host, as it was         (looked into with RESOLVE_IN_ROOT only)
 *   /disk   a directory of it, or the file system that the owner made (upper_disk.c):
 *     /up   upper layer of the overlay  } the run's writes, bounded by the file system's size
 *     /work overlay's work directory    }
 *   /root   the new root
 *
 * Every path of the host or of an image is resolved once, below the root it belongs to, and then
 * used by descriptor: a link in an image leads nowhere but into that image.
 */
#include "nsbox/child.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "nsbox/layer_stream.h"
#include "nsbox/stage.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"
#include "nsbox/weaken.h"

int stage_propagation(struct child *c, struct nsbox_error *err)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "make all mounts private");
	return 0;
}

/* ------------------------------------------------------------------ scratch */

/* Where the upper layer is elsewhere: some directories. */
#define SCRATCH_ALONE  UINT64_C(1048576)
#define SCRATCH_INODES UINT64_C(64)

/* Any directory that every host has; the tmpfs is moved away from it by the pivot at once. */
static const char *const footholds[] = { "/tmp", "/run", "/mnt", "/var" };

static int mount_scratch(const char *opts, struct nsbox_error *err)
{
	int last = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(footholds); i++) {
		if (mount("tmpfs", footholds[i], "tmpfs", MS_NOSUID | MS_NODEV, opts) == 0) {
			if (chdir(footholds[i]) == 0)
				return 0;
		}
		last = errno;
	}
	return nsbox_fail(err, NSBOX_E_SETUP, last, "mount the scratch tmpfs (%s)", opts);
}

/* Where the upper layer is: on the scratch tmpfs, or on the disk that the owner made for it. */
static int place_upper(struct child *c, struct nsbox_error *err)
{
	auto_close int at = open("/disk", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r = at < 0 ? -errno : c->disk < 0 ? 0 : attach_mount(c->disk, at);

	close_fd(&c->disk);
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, r, "mount the run's disk");
	if (mkdir("/disk/up", 0755) < 0 || mkdir("/disk/work", 0755) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno,
				  "make directories for the upper layer");
	return 0;
}

int stage_scratch(struct child *c, struct nsbox_error *err)
{
	const struct plan_limits *l = &child_fixed(c)->limits;
	bool on_disk = c->disk >= 0;
	char opts[128];
	int r;

	nsbox_format(opts, sizeof(opts), "size=%llu,nr_inodes=%llu,mode=0755",
		     (unsigned long long)(on_disk ? SCRATCH_ALONE : l->disk),
		     (unsigned long long)(on_disk ? SCRATCH_INODES : l->disk_inodes));
	r = mount_scratch(opts, err);
	if (r < 0)
		return r;
	if (mkdir("old", 0755) < 0 || mkdir("disk", 0755) < 0 || mkdir("root", 0755) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno,
				  "make directories on the scratch tmpfs");
	if (sys_pivot_root(".", "old") < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "pivot into the scratch tmpfs");
	if (chdir("/") < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "enter the scratch tmpfs");
	c->old_root = open("/old", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (c->old_root < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "open the host's root");
	return place_upper(c, err);
}

/* ------------------------------------------------------------------ the upper layer's content */

static int owner_of(const struct child *c, const struct mount_op *op, int fd)
{
	const struct plan_fixed *f = child_fixed(c);

	/* Where the payload's own user makes it, nothing has to be given to it. */
	if (c->single_id || c->process || !(op->flags & OPF_OWNER_PAYLOAD))
		return 0;
	return fchown(fd, f->uid, f->gid);
}

static int make_upper_dir(struct child *c, int up, const struct mount_op *op, const char *dst)
{
	auto_close int fd = -1;

	if (mkdirat(up, dst, 0755) < 0 && errno != EEXIST)
		return -errno;
	fd = sys_openat2(up, dst, O_RDONLY | O_DIRECTORY, 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	if (fd < 0 || owner_of(c, op, fd) < 0 || fchmod(fd, op->mode) < 0)
		return -errno;
	return 0;
}

static int make_upper_file(struct child *c, const struct blob *b, int up, const struct mount_op *op,
			   const char *dst)
{
	const unsigned char *data = blob_get(b, SEC_DATA, 1, NULL);
	auto_close int fd = sys_openat2(up, dst, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600,
					RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	int r;

	if (fd < 0)
		return -errno;
	r = write_full(fd, data + op->data, op->size);
	if (r < 0)
		return r;
	if (owner_of(c, op, fd) < 0 || fchmod(fd, op->mode) < 0)
		return -errno;
	return 0;
}

/* Directories above dst that no operation made: root's, 0755. */
static int make_parents(int up, const char *dst)
{
	char path[4096];

	for (const char *p = strchr(dst, '/'); p; p = strchr(p + 1, '/')) {
		nsbox_format(path, sizeof(path), "%.*s", (int)(p - dst), dst);
		if (mkdirat(up, path, 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

/*
 * What the plan wants to exist in the root is put into the upper layer before the overlay is
 * mounted: a directory there costs one system call, a mount of its own ten times that, and one
 * size limit holds for all of them.
 */
int stage_fill(struct child *c, const struct blob *b, int up, struct nsbox_error *err)
{
	size_t n;
	const struct mount_op *ops = blob_get(b, SEC_OPS, sizeof(*ops), &n);

	for (size_t i = 0; i < n; i++) {
		const char *dst = blob_get_str(b, ops[i].dst);
		int r;

		if (ops[i].kind != OP_DIR && ops[i].kind != OP_FILE && ops[i].kind != OP_SYMLINK)
			continue;
		/* A run that goes on from another has, or has removed, what that one was given. */
		if (ops[i].kind != OP_DIR && b == c->plan && c->upper_from >= 0)
			continue;
		dst++; /* relative to the layer */
		r = make_parents(up, dst);
		if (r < 0) {
			;
		} else if (ops[i].kind == OP_DIR) {
			r = make_upper_dir(c, up, &ops[i], dst);
		} else if (ops[i].kind == OP_FILE) {
			r = make_upper_file(c, b, up, &ops[i], dst);
		} else {
			r = symlinkat(blob_get_str(b, ops[i].src), up, dst) < 0 ? -errno : 0;
		}
		if (r < 0)
			return nsbox_fail(err, NSBOX_E_SETUP, r, "make '/%s' in the upper layer",
					  dst);
	}
	return 0;
}

/* ------------------------------------------------------------------ overlay */

/* "lowerdir=7:8", relative to /old/proc/self/fd: by descriptor, so that no character of a host path
 * needs escaping, none shows in the run's mount table, and as many layers fit the page that
 * mount(2) takes as overlayfs does. */
static int lower_option(struct child *c, char *buf, int size, struct nsbox_error *err)
{
	size_t n;
	const struct mount_op *ops = blob_get(c->root, SEC_OPS, sizeof(*ops), &n);
	int len = nsbox_format(buf, size, "lowerdir=");
	bool first = true;

	for (size_t i = 0; i < n; i++) {
		const char *src = blob_get_str(c->root, ops[i].src);
		int fd;

		if (ops[i].kind != OP_LOWER)
			continue;
		fd = sys_openat2(c->old_root, src, O_PATH | O_DIRECTORY, 0, RESOLVE_IN_ROOT);
		if (fd < 0)
			return nsbox_fail(err, NSBOX_E_SETUP, errno, "open the image layer '%s'",
					  src);
		len += nsbox_format(buf + len, size - len, "%s%d", first ? "" : ":", fd);
		first = false;
		if (len >= size - 64)
			return nsbox_fail(err, NSBOX_E_LIMIT, E2BIG, "too many image layers");
	}
	if (first)
		return nsbox_fail(err, NSBOX_E_SETUP, ENOENT, "the image has no layer");
	return len;
}

static int mount_overlay(struct child *c, struct nsbox_error *err)
{
	bool rdonly = child_fixed(c)->flags & PLAN_ROOT_RDONLY;
	char opts[4096];
	int r, len = lower_option(c, opts, sizeof(opts), err);

	if (len < 0)
		return len;
	/* userxattr: without it overlayfs needs trusted.* xattrs, which a user namespace lacks. */
	nsbox_format(opts + len, (int)sizeof(opts) - len,
		     ",upperdir=/disk/up,workdir=/disk/work,userxattr");
	if (chdir("/old/proc/self/fd") < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "enter /proc/self/fd of the host");
	r = mount("overlay", "/root", "overlay", MS_NOSUID | MS_NODEV | (rdonly ? MS_RDONLY : 0),
		  opts) < 0
		    ? -errno
		    : 0;
	if (chdir("/") < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "enter the scratch tmpfs");
	return r;
}

/* What another run left: sent by its init's helper, so a program's word in every name and mode. */
static int go_on_from(struct child *c, int up, struct nsbox_error *err)
{
	const struct plan_limits *l = &child_fixed(c)->limits;
	const struct layer_options opt = {
		.own = !c->single_id,
		.upper = true,
		.lim = { l->disk, (uint32_t)MIN(4 * l->disk_inodes, UINT32_MAX) },
	};
	struct layer_sums sums;
	int r = layer_write(c->upper_from, up, &opt, &sums, err);

	close_fd(&c->upper_from);
	return r;
}

int stage_overlay(struct child *c, struct nsbox_error *err)
{
	auto_close int up = open("/disk/up", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (up < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "open the upper layer");
	r = stage_fill(c, c->root, up, err);
	if (r == 0)
		r = stage_fill(c, c->plan, up, err);
	if (r == 0 && c->upper_from >= 0)
		r = go_on_from(c, up, err);
	if (r < 0)
		return r;
	if (c->track)
		c->upper = take_fd(&up);
	r = mount_overlay(c, err);
	if (r < 0)
		return err->code ? r
				 : nsbox_fail(err, NSBOX_E_UNSUPPORTED, r,
					      "mount an overlay in the user namespace (needs "
					      "CONFIG_OVERLAY_FS, Linux 5.11, and 6.6 for an upper "
					      "layer on tmpfs)");
	c->enforced |= c->want & (NSBOX_LAYER_BIT(NSBOX_LAYER_OVERLAY));
	c->new_root = open("/root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (c->new_root < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "open the new root");
	return 0;
}

/* ------------------------------------------------------------------ binds and tmpfs mounts */

static uint64_t attr_of(unsigned flags)
{
	return (flags & OPF_RDONLY ? MOUNT_ATTR_RDONLY : 0) |
	       (flags & OPF_NOEXEC ? MOUNT_ATTR_NOEXEC : 0) |
	       (flags & OPF_NODEV ? MOUNT_ATTR_NODEV : 0) |
	       (flags & OPF_NOSUID ? MOUNT_ATTR_NOSUID : 0);
}

int open_target(int root_fd, const char *dst)
{
	/* A target that is or leads through a link is refused: mounting through one would land
	 * wherever the image's author liked. */
	return sys_openat2(root_fd, dst + (*dst == '/'), O_PATH, 0,
			   RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
}

int attach_mount(int mount_fd, int target_fd)
{
	if (sys_move_mount(mount_fd, "", target_fd, "",
			   MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return -errno;
	return 0;
}

int set_mount_attr(int mount_fd, uint64_t attr, bool recursive)
{
	struct mount_attr a = { .attr_set = attr };

	if (sys_mount_setattr(mount_fd, "", AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0), &a,
			      sizeof(a)) < 0)
		return -errno;
	return 0;
}

int clone_tree(int dir_fd, const char *path, bool recursive, uint64_t attr, int target_fd)
{
	auto_close int tree = sys_open_tree(
		dir_fd, path, OPEN_TREE_CLONE | AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0));
	int r;

	if (tree < 0)
		return -errno;
	r = set_mount_attr(tree, attr, recursive);
	return r < 0 ? r : attach_mount(tree, target_fd);
}

static int bind(struct child *c, const struct mount_op *op, struct nsbox_error *err)
{
	const char *src = blob_get_str(c->root, op->src), *dst = blob_get_str(c->root, op->dst);
	auto_close int from = sys_openat2(c->old_root, src, O_PATH, 0, RESOLVE_IN_ROOT);
	auto_close int to = -1;
	int r;

	if (from < 0 && errno == ENOENT && (op->flags & OPF_OPTIONAL))
		return 0;
	if (from < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "open '%s' of the host", src);
	to = open_target(c->new_root, dst);
	if (to < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "open the mount point '%s'", dst);
	/* Recursive always: below a more privileged mount namespace the kernel refuses to uncover
	 * what a submount hides. */
	r = clone_tree(from, "", true, attr_of(op->flags), to);
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, r, "bind '%s' on '%s'", src, dst);
	return 0;
}

/* Every mount below it comes along, as with binds; none may bring programs more rights or devices. */
static int shared(struct child *c, const struct mount_op *op, struct nsbox_error *err)
{
	const char *src = c->share->path, *dst = blob_get_str(c->plan, op->dst);
	auto_close int from = -1, to = -1;
	struct stat st;
	int r;

	if (!src)
		return nsbox_fail(err, NSBOX_E_SETUP, 0, "no directory is shared for '%s'", dst);
	from = sys_openat2(c->old_root, src, O_PATH | O_DIRECTORY, 0,
			   RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
	if (from < 0 || fstat(from, &st) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno,
				  "open the shared directory '%s' (its owner has to be able to "
				  "reach it)",
				  src);
	if (st.st_dev != c->share->dev || st.st_ino != c->share->ino)
		return nsbox_fail(err, NSBOX_E_SETUP, ESTALE,
				  "the shared directory '%s' is another one now", src);
	to = open_target(c->new_root, dst);
	if (to < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "open the mount point '%s'", dst);
	r = clone_tree(from, "", true, attr_of(op->flags), to);
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, r, "bind '%s' on '%s'", src, dst);
	return 0;
}

int new_mount(const char *fs, const char *const *opts, uint64_t attr)
{
	auto_close int ctx = sys_fsopen(fs);

	if (ctx < 0)
		return -errno;
	for (; opts && *opts; opts += 2)
		if (syscall(SYS_fsconfig, ctx, 1 /* SET_STRING */, opts[0], opts[1], 0) < 0)
			return -errno;
	if (syscall(SYS_fsconfig, ctx, 6 /* CMD_CREATE */, NULL, NULL, 0) < 0)
		return -errno;
	{
		int fd = (int)syscall(SYS_fsmount, ctx, 1 /* FSMOUNT_CLOEXEC */, attr);

		return fd < 0 ? -errno : fd;
	}
}

static int tmpfs(struct child *c, const struct mount_op *op, struct nsbox_error *err)
{
	const char *dst = blob_get_str(c->plan, op->dst);
	char size[24], inodes[24], mode[12];
	const char *opts[] = { "size", size, "nr_inodes", inodes, "mode", mode, NULL };
	auto_close int fd = -1, to = open_target(c->new_root, dst);

	if (to < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "open the mount point '%s'", dst);
	nsbox_format(size, sizeof(size), "%llu", (unsigned long long)op->size);
	nsbox_format(inodes, sizeof(inodes), "%llu",
		     (unsigned long long)(op->inodes ? op->inodes : op->size / 1024 + 16));
	nsbox_format(mode, sizeof(mode), "0%o", op->mode);
	fd = new_mount("tmpfs", opts, attr_of(op->flags) | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, fd, "make a tmpfs for '%s'", dst);
	/* Through the mount itself: a mount descriptor is O_PATH, and fchown wants a real one. */
	{
		auto_close int top = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (top < 0 || owner_of(c, op, top) < 0 || attach_mount(fd, to) < 0)
			return nsbox_fail(err, NSBOX_E_SETUP, errno, "mount a tmpfs on '%s'", dst);
	}
	return 0;
}

/* Not in the product: see weaken.h. */
static int show_host(struct child *c, const char *path)
{
	auto_close int to = open_target(c->new_root, path);

	return to < 0 ? -errno : clone_tree(c->old_root, path, true, 0, to);
}

int stage_mount(struct child *c, struct nsbox_error *err)
{
	size_t n;
	const struct mount_op *ops = blob_get(c->root, SEC_OPS, sizeof(*ops), &n);
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		if (ops[i].kind == OP_BIND)
			r = bind(c, &ops[i], err);
	ops = blob_get(c->plan, SEC_OPS, sizeof(*ops), &n);
	for (size_t i = 0; r == 0 && i < n; i++)
		if (ops[i].kind == OP_TMPFS)
			r = tmpfs(c, &ops[i], err);
		else if (ops[i].kind == OP_SHARED)
			r = shared(c, &ops[i], err);
	if (r == 0 && left_out(ROOT))
		r = show_host(c, "var/tmp");
	if (r == 0 && left_out(OVERLAY))
		r = show_host(c, "home/sandbox");
	return r;
}

/* ------------------------------------------------------------------ pivot */

/* 0-2 were the host's /dev/null until here; from now on they are the sandbox's. */
static int own_stdio(struct nsbox_error *err)
{
	auto_close int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "open the sandbox's /dev/null");
	for (int i = 0; i < 3; i++)
		if (dup2(fd, i) < 0)
			return nsbox_fail(err, NSBOX_E_SETUP, errno, "replace descriptor %d", i);
	return 0;
}

int stage_pivot(struct child *c, struct nsbox_error *err)
{
	/* Before the pivot, so that no descriptor of the host outlives it; lower layers included. */
	const int keep[] = { c->control, c->files_fd, c->new_root, c->proc_mount, c->upper };
	int r = child_close_others(3, keep, ARRAY_SIZE(keep));

	if (r < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, r, "close the host's descriptors");
	c->old_root = -1;
	if (fchdir(c->new_root) < 0 || sys_pivot_root(".", ".") < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "pivot into the new root");
	/* The old root lies on top of the new one now: take it off, with the host below it. */
	if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "detach the host's root");
	close(c->new_root);
	c->new_root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (c->new_root < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "open the new root");
	c->enforced |= c->want & NSBOX_LAYER_BIT(NSBOX_LAYER_ROOT);
	return own_stdio(err);
}
