/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The upper layer of a run that may write more than its memory holds: a file system of that size in a
 * file without a name, in the state directory, through a loop device that the kernel frees with the last
 * mount. So its size is a limit that the kernel keeps (ENOSPC), and nothing is left of it however the
 * run, or its owner, ends. The mount is a descriptor until the sandbox takes it; the host sees none.
 *
 * It takes CAP_SYS_ADMIN in the host's own namespaces, loop devices and mke2fs(8): where they are
 * missing there is no such run.
 */
#include "nsbox/upper_disk.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <spawn.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "nsbox/stage.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

#define NEEDS                                                                                      \
	"resources.disk is more than resources.memory, which takes a file system on disk: root "   \
	"of "                                                                                      \
	"the host, loop devices and mke2fs (package e2fsprogs)"
#define INODE_BYTES 256
#define TRIES	    16

static int fail(int errnum, const char *what, struct nsbox_error *err)
{
	return nsbox_fail_at(err, NSBOX_STAGE_SCRATCH, NSBOX_E_UNSUPPORTED, errnum, "%s: " NEEDS,
			     what);
}

/* Older kernels have no nameless files on overlayfs, which is what a container has for a root. */
static int open_nameless(const char *dir)
{
	static unsigned serial;
	char path[4096];
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0 || errno != EOPNOTSUPP)
		return fd;
	nsbox_format(path, sizeof(path), "%s/.disk.%d.%u", dir, (int)getpid(), serial++);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0)
		unlink(path);
	return fd;
}

/* Sparse: what is not written takes no room. On top of what was asked comes what the file system has for
 * itself: inodes, what it holds back against fragmentation (2 %, 16 MiB at most), maps. */
static int make_file(const char *dir, uint64_t bytes, uint64_t inodes, struct nsbox_error *err)
{
	auto_close int fd = open_nameless(dir);
	uint64_t size = bytes + inodes * INODE_BYTES + MIN(bytes / 48, UINT64_C(16) << 20) +
			bytes / 4096 + (UINT64_C(1) << 20);

	if (fd < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_SCRATCH, NSBOX_E_IO, errno,
				     "make a file for the run's disk in '%s'", dir);
	if (ftruncate(fd, (off_t)size) < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_SCRATCH, NSBOX_E_IO, errno,
				     "make a file of %llu bytes for the run's disk",
				     (unsigned long long)size);
	return take_fd(&fd);
}

/* No journal: nobody comes back to it. Its top belongs to who is root inside. */
static int make_fs(int fd, uint64_t inodes, uid_t uid, gid_t gid, struct nsbox_error *err)
{
	static const char *const places[] = { "/usr/sbin/mke2fs", "/sbin/mke2fs" };
	char count[24], extended[96];
	const char *const argv[] = { "mke2fs",
				     "-q",
				     "-F",
				     "-t",
				     "ext4",
				     "-m",
				     "0",
				     "-I",
				     "256",
				     "-b",
				     "4096",
				     "-O",
				     "^has_journal,^resize_inode",
				     "-N",
				     count,
				     "-E",
				     extended,
				     "/proc/self/fd/3",
				     NULL };
	posix_spawn_file_actions_t actions;
	int r = ENOENT, status = 0;
	pid_t pid;

	nsbox_format(count, sizeof(count), "%llu", (unsigned long long)inodes);
	nsbox_format(extended, sizeof(extended), "nodiscard,lazy_itable_init=1,root_owner=%u:%u",
		     uid, gid);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fd, 3);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
	for (unsigned i = 0; r == ENOENT && i < ARRAY_SIZE(places); i++)
		r = posix_spawn(&pid, places[i], &actions, NULL, (char *const *)argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (r)
		return fail(r, "run mke2fs", err);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status ? fail(0, "mke2fs failed", err) : 0;
}

static int configure(int loop, int file, bool direct)
{
	struct loop_config c = {
		.fd = (uint32_t)file,
		.info.lo_flags = LO_FLAGS_AUTOCLEAR | (direct ? LO_FLAGS_DIRECT_IO : 0),
	};

	if (ioctl(loop, LOOP_CONFIGURE, &c) == 0)
		return 0;
	if (errno != EINVAL || !direct)
		return -errno;
	c.info.lo_flags = LO_FLAGS_AUTOCLEAR; /* not every file system reads around its cache */
	return ioctl(loop, LOOP_CONFIGURE, &c) < 0 ? -errno : 0;
}

/* Another may take the free one first. */
static int attach(int file, bool direct, char *path, int size, struct nsbox_error *err)
{
	auto_close int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	int r = -EBUSY;

	if (control < 0)
		return fail(errno, "open /dev/loop-control", err);
	for (int i = 0; r == -EBUSY && i < TRIES; i++) {
		auto_close int loop = -1;
		int n = ioctl(control, LOOP_CTL_GET_FREE);

		if (n < 0)
			return fail(errno, "find a free loop device", err);
		nsbox_format(path, size, "/dev/loop%d", n);
		loop = open(path, O_RDWR | O_CLOEXEC);
		if (loop < 0)
			return fail(errno, "open a loop device", err);
		r = configure(loop, file, direct);
		if (r == 0)
			return take_fd(&loop);
	}
	return fail(-r, "set up a loop device", err);
}

static int mount_file(int file, bool direct, int *ret_mount, struct nsbox_error *err)
{
	char path[32];
	const char *const opts[] = { "source", path, NULL };
	auto_close int loop = attach(file, direct, path, sizeof(path), err);

	if (loop < 0)
		return loop;
	*ret_mount = new_mount("ext4", opts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	/* An overlay says that it can read around its cache, whatever is below it can. */
	if (*ret_mount == -EIO && direct)
		return -EAGAIN;
	return *ret_mount < 0 ? fail(-*ret_mount, "mount the run's disk", err) : 0;
}

int upper_disk_make(const char *dir, uint64_t bytes, uint64_t inodes, uid_t uid, gid_t gid,
		    int *ret_mount, struct nsbox_error *err)
{
	auto_close int file = -1;
	int r;

	/* Before anything is made: who may not mount has no use for it. */
	if (geteuid() != 0)
		return fail(EPERM, "make a disk for the run", err);
	file = make_file(dir, bytes, inodes, err);
	if (file < 0)
		return file;
	r = make_fs(file, inodes, uid, gid, err);
	if (r < 0)
		return r;
	r = mount_file(file, true, ret_mount, err);
	return r == -EAGAIN ? mount_file(file, false, ret_mount, err) : r;
}
