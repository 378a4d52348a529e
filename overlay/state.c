/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state directory: where skeletons (and later imported images) are kept between runs.
 *
 * It belongs to whoever owns the sandboxes. What is in it becomes the root of untrusted programs,
 * so nobody else may be able to put something there: a directory that is a link, is owned by
 * someone else or can be written by group or others is refused, not repaired.
 *
 * Locks are files of mode 0600 beside what they protect, never the protected directories
 * themselves: whoever can open a directory for reading (every local user, and a sandbox that sees
 * it as a layer) can hold a flock on it, and nsbox must not wait for them.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <nsbox/image.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "nsbox/util.h"
#include "overlay/internal.h"

static const char *env_path(const char *name)
{
	const char *v = secure_getenv(name);

	return v && v[0] == '/' ? v : NULL;
}

int nsbox_state_dir(char *buf, size_t size, struct nsbox_error *err)
{
	const char *set = secure_getenv("NSBOX_STATE_DIR");
	const char *base = NULL, *tail = "";
	int len;

	if (set && set[0]) {
		if (set[0] != '/')
			return nsbox_fail(err, NSBOX_E_INVALID, EINVAL,
					  "NSBOX_STATE_DIR '%s' is not an absolute path", set);
		base = set;
	} else if (geteuid() == 0) {
		base = "/var/lib/nsbox";
	} else if ((base = env_path("XDG_STATE_HOME"))) {
		tail = "/nsbox";
	} else if ((base = env_path("HOME"))) {
		tail = "/.local/state/nsbox";
	} else {
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "no place for state: set NSBOX_STATE_DIR or HOME");
	}
	len = nsbox_format(buf, (int)MIN(size, (size_t)INT_MAX), "%s%s", base, tail);
	if ((size_t)len != strlen(base) + strlen(tail))
		return nsbox_fail(err, NSBOX_E_INVALID, ENAMETOOLONG, "state directory");
	return 0;
}

/* mkdir -p for the parents; the last component is made by state_subdir(). */
static int make_parents(const char *path, struct nsbox_error *err)
{
	auto_free char *p = strdup(path);

	if (!p)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "state directory");
	for (char *s = strchr(p + 1, '/'); s; s = strchr(s + 1, '/')) {
		*s = '\0';
		if (mkdir(p, 0755) < 0 && errno != EEXIST)
			return nsbox_fail(err, NSBOX_E_IO, errno, "create directory '%s'", p);
		*s = '/';
	}
	return 0;
}

int state_subdir(int parent_fd, const char *name, int *ret_fd, struct nsbox_error *err)
{
	bool made = mkdirat(parent_fd, name, 0755) == 0;
	auto_close int fd = -1;
	struct stat st;

	if (!made && errno != EEXIST)
		return nsbox_fail(err, NSBOX_E_IO, errno, "create directory '%s'", name);
	fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno,
				  "open '%s' (it must be a directory, not a link)", name);
	if (made && fchmod(fd, 0755) < 0) /* whatever the umask is */
		return nsbox_fail(err, NSBOX_E_IO, errno, "set the mode of '%s'", name);
	if (fstat(fd, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "stat '%s'", name);
	if (st.st_uid != geteuid())
		return nsbox_fail(err, NSBOX_E_INVALID, EPERM,
				  "'%s' is owned by user %u, not by the caller (%u)", name,
				  st.st_uid, geteuid());
	if (st.st_mode & 022)
		return nsbox_fail(err, NSBOX_E_INVALID, EPERM,
				  "'%s' can be written by others (mode %o): chmod go-w it", name,
				  st.st_mode & 07777);
	*ret_fd = take_fd(&fd);
	return 0;
}

/* Will sandboxes get ids other than the caller's? The same question as NSBOX_IDS_PRIVILEGED. */
static bool may_set_ids(void)
{
	cap_flag_value_t uid = CAP_CLEAR, gid = CAP_CLEAR;
	cap_t caps = cap_get_proc();

	if (!caps)
		return true; /* the stricter answer */
	cap_get_flag(caps, CAP_SETUID, CAP_EFFECTIVE, &uid);
	cap_get_flag(caps, CAP_SETGID, CAP_EFFECTIVE, &gid);
	cap_free(caps);
	return uid == CAP_SET && gid == CAP_SET;
}

/*
 * A sandbox with ids of its own reaches the skeleton as "others" do: every directory on the way
 * has to be searchable by them.
 */
static int check_reachable(const char *path, struct nsbox_error *err)
{
	auto_free char *p = strdup(path);
	size_t len = strlen(path);
	struct stat st;

	if (!p)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "state directory");
	for (size_t i = 1; i <= len; i++) {
		if (path[i] != '/' && path[i] != '\0')
			continue;
		p[i] = '\0';
		if (stat(p, &st) < 0)
			return nsbox_fail(err, NSBOX_E_IO, errno, "stat '%s'", p);
		if (!(st.st_mode & S_IXOTH))
			return nsbox_fail(err, NSBOX_E_INVALID, EACCES,
					  "state directory '%s': sandboxes run under ids of their "
					  "own and cannot pass '%s' (mode %o): chmod o+x it or set "
					  "NSBOX_STATE_DIR",
					  path, p, st.st_mode & 07777);
		p[i] = path[i];
	}
	return 0;
}

/*
 * An image needs links, owners and modes. Tried in vain these give an EPERM that says nothing, so
 * file systems that are known to lack them are refused by name.
 */
static int check_file_system(int fd, const char *path, struct nsbox_error *err)
{
	static const struct {
		unsigned long type;
		const char *name;
	} lacking[] = {
		{ 0x4d44, "vfat" },	{ 0x2011bab0, "exfat" }, { 0xff534d42, "cifs" },
		{ 0xfe534d42, "smb2" }, { 0x5346544e, "ntfs" },	 { 0x7366746e, "ntfs3" },
	};
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "look at the file system of '%s'", path);
	for (unsigned i = 0; i < ARRAY_SIZE(lacking); i++)
		if (((unsigned long)fs.f_type & 0xffffffff) == lacking[i].type)
			return nsbox_fail(err, NSBOX_E_INVALID, EOPNOTSUPP,
					  "state directory '%s' is on a file system (%s) without "
					  "links and owners, which cannot hold an image: set "
					  "NSBOX_STATE_DIR",
					  path, lacking[i].name);
	return 0;
}

/* The closest ancestor that is there tells what the directory will be on. */
static int check_place(const char *path, struct nsbox_error *err)
{
	auto_free char *p = strdup(path);

	if (!p)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "state directory");
	for (;;) {
		auto_close int fd = open(p, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		char *slash = strrchr(p, '/');

		if (fd >= 0)
			return check_file_system(fd, path, err);
		if (!slash || slash == p || errno != ENOENT)
			return 0; /* whatever it is, making the directory will say it */
		*slash = '\0';
	}
}

int state_open(const char *dir, struct state_dir *ret, struct nsbox_error *err)
{
	char chosen[PATH_MAX];
	auto_free char *real = NULL;
	auto_close int fd = -1;
	size_t len;
	int r;

	if (!dir) {
		r = nsbox_state_dir(chosen, sizeof(chosen), err);
		if (r < 0)
			return r;
	} else if (dir[0] != '/' || strlen(dir) >= sizeof(chosen)) {
		return nsbox_fail(err, NSBOX_E_INVALID, EINVAL,
				  "state directory '%s' is not an absolute path", dir);
	} else {
		strcpy(chosen, dir);
	}
	/* A trailing slash would make the open below follow a link. */
	for (len = strlen(chosen); len > 1 && chosen[len - 1] == '/'; len--)
		chosen[len - 1] = '\0';

	r = check_place(chosen, err);
	if (r < 0)
		return r;
	r = make_parents(chosen, err);
	if (r < 0)
		return r;
	r = state_subdir(AT_FDCWD, chosen, &fd, err);
	if (r < 0) {
		nsbox_error_prefix(err, "state directory");
		return r;
	}
	real = realpath(chosen, NULL);
	if (!real)
		return nsbox_fail(err, NSBOX_E_IO, errno, "resolve '%s'", chosen);
	r = may_set_ids() ? check_reachable(real, err) : 0;
	if (r < 0)
		return r;
	ret->fd = take_fd(&fd);
	ret->path = take_ptr(&real);
	return 0;
}

void state_done(struct state_dir *s)
{
	close_fd(&s->fd);
	free_ptr(&s->path);
}

int state_lock(int dir_fd, const char *name, int operation, int *ret_fd, struct nsbox_error *err)
{
	for (;;) {
		auto_close int fd =
			openat(dir_fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
		struct stat st;
		int r;

		if (fd < 0)
			return nsbox_fail(err, NSBOX_E_IO, errno, "open lock file '%s'", name);
		do
			r = flock(fd, operation);
		while (r < 0 && errno == EINTR);
		if (r < 0)
			return nsbox_fail(err, NSBOX_E_IO, errno, "lock '%s'", name);
		/* Whoever held it before may have removed the file: then this locks nothing. */
		if (fstat(fd, &st) < 0)
			return nsbox_fail(err, NSBOX_E_IO, errno, "stat '%s'", name);
		if (st.st_nlink == 0)
			continue;
		*ret_fd = take_fd(&fd);
		return 0;
	}
}

static int remove_below(int dir_fd)
{
	DIR *d = fdopendir(dir_fd);
	int r = 0;

	if (!d) {
		r = -errno;
		close_fd(&dir_fd);
		return r;
	}
	for (struct dirent *e; r == 0 && (e = readdir(d));) {
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = state_remove_tree(dirfd(d), e->d_name);
	}
	closedir(d);
	return r;
}

int state_remove_tree(int dir_fd, const char *name)
{
	int fd, r;

	if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = remove_below(fd);
	if (r < 0)
		return r;
	return unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}
