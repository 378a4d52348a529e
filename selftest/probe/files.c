/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of the root, its mounts and what is kept of it (B and E of the catalogue). */
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "selftest/probe/probe.h"

/* Places that a payload may write to in some profile; those it cannot are passed over. */
static const char *const places[] = {
	".", "/tmp", "/var/tmp", "/dev/shm", "/home/sandbox", "/run"
};

void probe_B02_descriptors(const struct probe *p)
{
	if (p->control) /* what an owner forgot to close */
		fcntl(0, F_DUPFD, 17);
	for (int fd = 3; fd < 1024; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			escaped("descriptor %d is open", fd);
	held("setup", "0, 1, 2 and no other");
}

void probe_B04_host_file(const struct probe *p)
{
	const char *path = fact(p, "canary");

	JUDGE("root", "a file of the host", open(path, O_RDONLY | O_CLOEXEC), ENOENT, EACCES);
}

void probe_B07_chroot(const struct probe *p)
{
	const char *dir = place("/tmp/.nsbox-probe-root");
	int top = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	mkdir(dir, 0755);
	if (chroot(dir) == 0) {
		if (fchdir(top) == 0 && chdir("..") == 0)
			escaped("chroot and fchdir: done");
		escaped("chroot: done");
	}
	JUDGE("seccomp", "chroot", chroot(dir), EPERM, ENOSYS);
}

void probe_B11_write_usr(const struct probe *p)
{
	const char *path = "/usr/.nsbox-probe";
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd >= 0) {
		unlink(path);
		escaped("a file can be made in /usr");
	}
	if (errno != EROFS && errno != EACCES && errno != EPERM)
		escaped("a file in /usr: %s", errname(errno));
	held(errno == EROFS ? "root" : "landlockFs", "a file in /usr: %s", errname(errno));
}

void probe_B11_remount(const struct probe *p)
{
	struct mount_attr attr = { .attr_clr = MOUNT_ATTR_RDONLY };

	if (syscall(SYS_mount_setattr, AT_FDCWD, "/usr", 0, &attr, sizeof(attr)) == 0)
		escaped("mount_setattr: done");
	if (umount2("/usr/lib", MNT_DETACH) == 0)
		escaped("umount: done");
	JUDGE("seccomp", "remount", mount("none", "/usr", NULL, MS_REMOUNT | MS_BIND, NULL), EPERM,
	      ENOSYS);
}

void probe_B13_setuid_file(const struct probe *p)
{
	int writable = 0;

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		const char *dir = place(places[i]);
		struct statvfs fs;

		if (access(dir, W_OK) < 0 || statvfs(dir, &fs) < 0)
			continue;
		writable++;
		if (!(fs.f_flag & ST_NOSUID))
			escaped("set-user-id programs work in '%s'", dir);
	}
	if (!writable)
		skip("nothing can be written");
	held("root", "all of %d places that can be written are nosuid", writable);
}

void probe_B22_whiteout(const struct probe *p)
{
	const char *path = place("/tmp/.nsbox-probe-node");
	int fd;

	unlink(path);
	if (mknod(path, S_IFCHR | 0600, makedev(0, 0)) == 0)
		escaped("a whiteout can be made");
	if (errno != EPERM && errno != ENOSYS)
		escaped("mknod: %s", errname(errno));
	if (mknod(path, S_IFCHR | 0600, makedev(1, 1)) == 0 ||
	    mknod(path, S_IFBLK | 0600, makedev(8, 0)) == 0)
		escaped("a device node can be made");
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	JUDGE("seccomp", "mknod; a trusted attribute",
	      fsetxattr(fd, "trusted.overlay.opaque", "y", 1, 0), EPERM, EOPNOTSUPP, ENOSYS);
}

void probe_B23_overlay(const struct probe *p)
{
	static const char *const dirs[] = { "l", "u", "w", "m" };

	if (open("/dev/fuse", O_RDWR | O_CLOEXEC) >= 0)
		escaped("/dev/fuse can be opened");
	if (chdir(place("/tmp")) < 0)
		skip("/tmp: %s", errname(errno));
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		mkdir(dirs[i], 0755);
	JUDGE("seccomp", "mount an overlay",
	      mount("overlay", "m", "overlay", 0, "lowerdir=l,upperdir=u,workdir=w,userxattr"),
	      EPERM, ENOSYS);
}

void probe_B24_immutable(const struct probe *p)
{
	int fd = open(place("/tmp/.nsbox-probe-flags"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int flags = FS_NODUMP_FL; /* the call is the same, and this flag is anyone's */

	if (fd < 0)
		skip("a file in /tmp: %s", errname(errno));
	JUDGE("seccomp", "FS_IOC_SETFLAGS", ioctl(fd, FS_IOC_SETFLAGS, &flags), EPERM);
}

void probe_B25_leftovers(const struct probe *p)
{
	int made = 0;

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		char path[4096 + 32];
		int fd;

		/* /dev/shm is the host's everywhere. */
		snprintf(path, sizeof(path), "%s/.nsbox-probe-left",
			 strcmp(places[i], "/dev/shm") ? place(places[i]) : places[i]);
		if (access(path, F_OK) == 0)
			escaped("'%s' is there, of an earlier run", path);
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		made += fd >= 0;
	}
	if (!made)
		skip("nothing can be written");
	held("overlay", "nothing of an earlier run in %d places", made);
}

/* The control's stand-in has a mount by that name. */
void probe_B25_mount_table(const struct probe *p)
{
	static char table[1 << 16];
	const char *dir = fact(p, "dir"), *mount = fact(p, "mount");

	if (slurp("/proc/self/mountinfo", table, sizeof(table)) <= 0)
		skip("mountinfo: %s", errname(errno));
	if (strstr(table, dir))
		escaped("the mount table names a directory of the owner's");
	if (!p->control && !strncmp(table, mount, strlen(mount)) && table[strlen(mount)] == ' ')
		escaped("the mount table is the host's");
	held("root", "the mount table names no directory of the owner's");
}

/* ------------------------------------------------------------------ Landlock */

void probe_E01_unlisted(const struct probe *p)
{
	const char *path = fact(p, "unlisted");

	JUDGE("landlockFs", "a file outside the rules", open(path, O_RDONLY | O_CLOEXEC), EACCES);
}

/* By the mount; where there is none, by who the owner is, of whom the caller's own files show it. */
static bool refused_attribute(const struct probe *p)
{
	return errno == EROFS || (in_process_tier(p) && (errno == EPERM || errno == EACCES));
}

void probe_E05_attributes(const struct probe *p)
{
	int r;

	if (chmod("/usr", 0755) == 0)
		escaped("the mode of /usr can be set");
	if (!refused_attribute(p))
		escaped("chmod of /usr: %s", errname(errno));
	if (setxattr("/usr", "user.nsbox", "x", 1, 0) == 0 || !refused_attribute(p))
		escaped("an attribute of /usr: %s", errname(errno));
	if (utimensat(AT_FDCWD, "/usr", NULL, 0) == 0 || !refused_attribute(p))
		escaped("times of /usr: %s", errname(errno));
	errno = 0;
	r = chmod(fact(p, "canary"), 0644);
	judge(errno == ENOENT ? "root" : "ownId",
	      "mode, attributes, times of /usr, mode of a file of the caller's", r,
	      (const int[]){ ENOENT, EPERM, EACCES, 0 });
}
