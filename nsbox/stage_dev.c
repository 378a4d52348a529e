/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stages dev and proc: both are made fresh. The device nodes are the host's, bound one by one and
 * each checked to be the device it is taken for; nothing of the image's own /dev is used (an
 * image may ship /dev/null as a link to a file it wants overwritten).
 */
#include "nsbox/child.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "nsbox/stage.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"
#include "nsbox/weaken.h"

static const struct {
	const char *name;
	unsigned major, minor;
} nodes[] = {
	{ "null", 1, 3 },   { "zero", 1, 5 },	 { "full", 1, 7 },
	{ "random", 1, 8 }, { "urandom", 1, 9 }, { "tty", 5, 0 },
};

static const struct {
	const char *name, *target;
} links[] = {
	{ "fd", "/proc/self/fd" },	 { "stdin", "/proc/self/fd/0" },
	{ "stdout", "/proc/self/fd/1" }, { "stderr", "/proc/self/fd/2" },
	{ "ptmx", "pts/ptmx" },
};

static int bind_node(struct child *c, int dev, unsigned i, struct nsbox_error *err)
{
	char path[32];
	struct stat st;
	auto_close int from = -1, to = -1;
	int r;

	nsbox_format(path, sizeof(path), "dev/%s", nodes[i].name);
	from = sys_openat2(c->old_root, path, O_PATH | O_NOFOLLOW, 0, RESOLVE_IN_ROOT);
	if (from < 0 || fstat(from, &st) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "open the host's /%s", path);
	if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(nodes[i].major, nodes[i].minor))
		return nsbox_fail(err, NSBOX_E_SETUP, 0,
				  "the host's /%s is not the character device %u:%u", path,
				  nodes[i].major, nodes[i].minor);
	to = openat(dev, nodes[i].name, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (to < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "make /%s", path);
	r = clone_tree(from, "", false, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, to);
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, r, "bind /%s", path);
	return 0;
}

/* Make a directory in dev and mount on it. */
static int mount_below(int dev, const char *name, const char *fs, const char *const *opts,
		       uint64_t attr, struct nsbox_error *err)
{
	auto_close int fd = -1, to = -1;
	int r;

	if (mkdirat(dev, name, 0755) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "make /dev/%s", name);
	to = openat(dev, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	fd = new_mount(fs, opts, attr);
	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, fd, "make the %s of /dev/%s", fs, name);
	r = attach_mount(fd, to);
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, r, "mount /dev/%s", name);
	return 0;
}

static int fill_dev(struct child *c, int dev, uint64_t shm, struct nsbox_error *err)
{
	static const char *const pts[] = { "ptmxmode", "0666", "mode", "0620", "max", "64", NULL };
	char size[24];
	const char *shm_opts[] = { "size", size, "nr_inodes", "16384", "mode", "1777", NULL };
	int r = 0;

	for (unsigned i = 0; r == 0 && i < ARRAY_SIZE(nodes); i++)
		r = bind_node(c, dev, i, err);
	for (unsigned i = 0; r == 0 && i < ARRAY_SIZE(links); i++)
		if (symlinkat(links[i].target, dev, links[i].name) < 0)
			r = nsbox_fail(err, NSBOX_E_SETUP, errno, "make /dev/%s", links[i].name);
	if (r == 0)
		r = mount_below(dev, "pts", "devpts", pts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC,
				err);
	nsbox_format(size, sizeof(size), "%llu", (unsigned long long)shm);
	if (r == 0)
		r = mount_below(dev, "shm", "tmpfs", shm_opts,
				MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, err);
	return r;
}

static const struct mount_op *find_op(const struct child *c, enum mount_op_kind kind)
{
	size_t n;
	const struct mount_op *ops = blob_get(c->plan, SEC_OPS, sizeof(*ops), &n);

	for (size_t i = 0; i < n; i++)
		if (ops[i].kind == kind)
			return &ops[i];
	return NULL;
}

int stage_dev(struct child *c, struct nsbox_error *err)
{
	static const char *const opts[] = {
		"size", "64k", "nr_inodes", "64", "mode", "0755", NULL
	};
	const struct mount_op *op = find_op(c, OP_DEV);
	auto_close int fd = -1, to = -1, dev = -1;
	int r;

	if (!op)
		return 0;
	to = open_target(c->new_root, blob_get_str(c->plan, op->dst));
	if (to < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "open the mount point '/dev'");
	fd = new_mount("tmpfs", opts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, fd, "make a tmpfs for /dev");
	r = attach_mount(fd, to);
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, r, "mount /dev");
	dev = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dev < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "open /dev");
	r = fill_dev(c, dev, op->size, err);
	if (r < 0)
		return r;
	r = set_mount_attr(fd, MOUNT_ATTR_RDONLY, false);
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, r, "make /dev read-only");
	return 0;
}

int stage_proc(struct child *c, struct nsbox_error *err)
{
	/* invisible: processes of other ids (init's) do not show; numeric for kernels before 5.8. */
	static const char *const opts[] = { "hidepid", "2", NULL };
	const struct mount_op *op = find_op(c, OP_PROC);
	auto_close int to = -1;
	int r;

	if (!op || child_fixed(c)->layer[NSBOX_LAYER_PROC] == NSBOX_OFF)
		return 0;
	to = open_target(c->new_root, blob_get_str(c->plan, op->dst));
	if (to < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "open the mount point '/proc'");
	if (left_out(PROC))
		return clone_tree(c->old_root, "proc", true, 0, to);
	c->proc_mount =
		new_mount("proc", opts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	r = c->proc_mount < 0 ? c->proc_mount : attach_mount(c->proc_mount, to);
	if (r == -EPERM) {
		close_fd(&c->proc_mount);
		return layer_missing(c, NSBOX_LAYER_PROC, NSBOX_STAGE_PROC, EPERM,
				     "mount a fresh /proc: the host's has covered paths (in a "
				     "container: --security-opt systempaths=unconfined)",
				     err);
	}
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, r, "mount a fresh /proc");
	c->enforced |= c->want & NSBOX_LAYER_BIT(NSBOX_LAYER_PROC);
	return 0;
}
