/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front's own directory. The supervisor opens it, because it is the one that may make a
 * directory in root's place and give it away; the front gets the descriptor.
 *
 * What is there already is not trusted by its name: a link, another owner, or a mode that lets
 * others in is refused, and so is a parent in which others may rename things.
 */
#include "daemon/front/datadir.h"

#include <fcntl.h>
#include <limits.h>
#include <nsbox/image.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "nsbox/util.h"

static int make_parents(char *path, struct nsbox_error *err)
{
	for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
		int r;

		*p = 0;
		r = mkdir(path, 0755) < 0 && errno != EEXIST ? -errno : 0;
		if (r < 0)
			nsbox_fail(err, NSBOX_E_IO, -r, "make the directory '%s'", path);
		*p = '/';
		if (r < 0)
			return r;
	}
	return 0;
}

static int check_parent(int fd, const char *path, struct nsbox_error *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "look at the parent of '%s'", path);
	if (st.st_uid != 0 && st.st_uid != geteuid())
		return nsbox_fail(err, NSBOX_E_INVALID, EPERM,
				  "the parent of '%s' belongs to user %u, who could exchange it",
				  path, st.st_uid);
	if ((st.st_mode & 022) && !(st.st_mode & S_ISVTX))
		return nsbox_fail(err, NSBOX_E_INVALID, EPERM,
				  "others may write to the parent of '%s': chmod go-w it", path);
	return 0;
}

static int check(int fd, const char *path, uid_t uid, struct nsbox_error *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "look at '%s'", path);
	if (st.st_uid != uid)
		return nsbox_fail(err, NSBOX_E_INVALID, EPERM,
				  "'%s' belongs to user %u, not to the service's user %u", path,
				  st.st_uid, uid);
	if (st.st_mode & 077)
		return nsbox_fail(err, NSBOX_E_INVALID, EPERM,
				  "'%s' is open to others (mode %o): chmod 700 it", path,
				  st.st_mode & 07777);
	return 0;
}

static int open_in(int parent, const char *name, const char *path, uid_t uid, gid_t gid,
		   int *ret_fd, struct nsbox_error *err)
{
	bool made = mkdirat(parent, name, 0700) == 0;
	auto_close int fd = -1;
	int r;

	if (!made && errno != EEXIST)
		return nsbox_fail(err, NSBOX_E_IO, errno, "make the directory '%s'", path);
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_INVALID, errno, "open the directory '%s'", path);
	if (made && fchmod(fd, 0700) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "set the mode of '%s'", path);
	if (made && uid != geteuid() && fchown(fd, uid, gid) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "give '%s' to user %u", path, uid);
	r = check(fd, path, uid, err);
	if (r == 0)
		*ret_fd = take_fd(&fd);
	return r;
}

int datadir_open(const char *path, const char *state_dir, uid_t uid, gid_t gid, int *ret_fd,
		 struct nsbox_error *err)
{
	char buf[PATH_MAX], state[PATH_MAX - 8];
	auto_close int parent = -1;
	char *slash;
	int r = 0;

	if (!path && !state_dir) {
		r = nsbox_state_dir(state, sizeof(state), err);
		state_dir = state;
	}
	if (r < 0)
		return r;
	if (snprintf(buf, sizeof(buf), "%s%s", path ? path : state_dir, path ? "" : "/front") >=
	    (int)sizeof(buf))
		return nsbox_fail(err, NSBOX_E_INVALID, ENAMETOOLONG, "the data directory");
	while (buf[1] && buf[strlen(buf) - 1] == '/')
		buf[strlen(buf) - 1] = 0;
	r = make_parents(buf, err);
	if (r < 0)
		return r;
	slash = strrchr(buf, '/');
	*slash = 0;
	parent = open(slash == buf ? "/" : buf, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*slash = '/';
	if (parent < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open the parent of '%s'", buf);
	r = check_parent(parent, buf, err);
	return r == 0 ? open_in(parent, slash + 1, buf, uid, gid, ret_fd, err) : r;
}
