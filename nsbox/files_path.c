/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making directories and finding parents below a directory of ours, and globs.
 *
 * A path of a stream is opened in one piece with openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS):
 * whatever someone else does to the tree meanwhile, the kernel does not follow a link and does not
 * leave the directory. Pure or system calls alone: the in-sandbox helpers use this file.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "nsbox/files_format.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

static int fail_path(struct nsbox_error *err, int errnum, const char *what, const char *path)
{
	char show[200];

	nsbox_format(show, sizeof(show), "%s", path);
	files_clean_text(show);
	if (errnum == ELOOP)
		return nsbox_fail(err, NSBOX_E_INVALID, ELOOP,
				  "%s '%s': a symbolic link is in the way", what, show);
	return nsbox_fail(err, NSBOX_E_IO, errnum, "%s '%s'", what, show);
}

static int open_dir(int base_fd, const char *path)
{
	/* Without O_NOFOLLOW: then a link in the last place is ELOOP as well, and not ENOTDIR. */
	return sys_openat2(base_fd, path, O_PATH | O_DIRECTORY, 0, FILES_RESOLVE);
}

/* One component of a path: enter it, make it where it is missing. */
static int enter(int dir_fd, const char *name)
{
	int fd = open_dir(dir_fd, name);

	if (fd >= 0 || errno != ENOENT)
		return fd;
	if (mkdirat(dir_fd, name, 0755) < 0 && errno != EEXIST)
		return -1;
	return open_dir(dir_fd, name);
}

/* mkdir -p of path[0..len); a descriptor of it, or -1. */
static int make_way(int base_fd, const char *path, size_t len)
{
	auto_close int at = open_dir(base_fd, ".");
	char name[FILES_NAME_MAX + 1];

	for (size_t i = 0; at >= 0 && i < len;) {
		const char *slash = memchr(path + i, '/', len - i);
		size_t n = slash ? (size_t)(slash - (path + i)) : len - i;
		int next;

		if (n >= sizeof(name)) {
			errno = ENAMETOOLONG;
			return -1;
		}
		memcpy(name, path + i, n);
		name[n] = '\0';
		next = enter(at, name);
		close_fd(&at);
		at = next;
		i += n + 1;
	}
	return take_fd(&at);
}

int files_open_parent(int base_fd, const char *path, int *ret_fd, const char **ret_name,
		      struct nsbox_error *err)
{
	const char *slash = strrchr(path, '/');
	char parent[FILES_PATH_MAX];
	int fd;

	if (!slash) {
		fd = open_dir(base_fd, ".");
	} else {
		memcpy(parent, path, (size_t)(slash - path));
		parent[slash - path] = '\0';
		fd = open_dir(base_fd, parent);
		if (fd < 0 && errno == ENOENT)
			fd = make_way(base_fd, parent, (size_t)(slash - path));
	}
	if (fd < 0)
		return fail_path(err, errno, "create", path);
	*ret_fd = fd;
	*ret_name = slash ? slash + 1 : path;
	return 0;
}

int files_make_dir(int base_fd, const char *path, uint32_t mode, struct nsbox_error *err)
{
	auto_close int parent = -1, fd = -1;
	const char *name = path;
	struct stat st;
	int r = files_open_parent(base_fd, path, &parent, &name, err);

	if (r < 0)
		return r;
	if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (S_ISDIR(st.st_mode))
			return 0;
		if (unlinkat(parent, name, 0) < 0)
			return fail_path(err, errno, "replace", path);
	}
	if (mkdirat(parent, name, 0700) < 0)
		return fail_path(err, errno, "create the directory", path);
	fd = sys_openat2(parent, name, O_RDONLY | O_DIRECTORY, 0, FILES_RESOLVE);
	/* Its owner can always add to it: what is in it comes next. */
	if (fd < 0 || fchmod(fd, (mode & 0777) | 0700) < 0)
		return fail_path(err, errno, "set the mode of", path);
	return 0;
}

/* ------------------------------------------------------------------ links */

bool files_link_stays(const char *path, const char *target)
{
	int depth = 0;

	if (target[0] == '/')
		return false;
	for (const char *p = path; (p = strchr(p, '/')); p++)
		depth++;
	for (const char *p = target; *p;) {
		size_t n = strcspn(p, "/");

		if (n == 2 && p[0] == '.' && p[1] == '.') {
			if (--depth < 0)
				return false;
		} else if (n && !(n == 1 && p[0] == '.')) {
			depth++;
		}
		p += n + (p[n] == '/');
	}
	return true;
}

/* ------------------------------------------------------------------ globs */

/* "[a-z]" at g, c against it; *ret_next behind the class, or NULL where it has no end. */
static bool match_class(const char *g, const char *end, unsigned char c, const char **ret_next)
{
	const char *p = g + 1;
	bool negate = p < end && (*p == '!' || *p == '^');
	bool hit = false;

	p += negate;
	*ret_next = NULL;
	for (const char *first = p; p < end; p++) {
		unsigned char lo = (unsigned char)*p, hi = lo;

		if (*p == ']' && p > first) {
			*ret_next = p + 1;
			return hit != negate;
		}
		if (p + 2 < end && p[1] == '-' && p[2] != ']') {
			hi = (unsigned char)p[2];
			p += 2;
		}
		hit |= lo <= c && c <= hi;
	}
	return false;
}

/* Does one character of a name match what stands at g? *ret_next: what stands behind it. */
static bool match_char(const char *g, const char *end, unsigned char c, const char **ret_next)
{
	if (*g == '[') {
		bool hit = match_class(g, end, c, ret_next);

		if (*ret_next)
			return hit;
	}
	*ret_next = g + 1;
	return *g == '?' || (unsigned char)*g == c;
}

/*
 * One component against one name, with a single point to go back to: a later '*' makes an earlier
 * one's choice irrelevant, so that the work is bounded by the product of the lengths.
 */
static bool match_name(const char *g, const char *gend, const char *s, const char *send)
{
	const char *star = NULL, *retry = NULL, *next;

	while (s < send) {
		if (g < gend && *g == '*') {
			star = ++g;
			retry = s;
		} else if (g < gend && match_char(g, gend, (unsigned char)*s, &next)) {
			g = next;
			s++;
		} else if (star) {
			g = star;
			s = ++retry;
		} else {
			return false;
		}
	}
	while (g < gend && *g == '*')
		g++;
	return g == gend;
}

static const char *component_end(const char *p)
{
	return p + strcspn(p, "/");
}

static bool is_any_depth(const char *g, const char *gend)
{
	return gend - g == 2 && g[0] == '*' && g[1] == '*';
}

/* Behind a component: the start of the next, or NULL. */
static const char *after(const char *end)
{
	return *end == '/' ? end + 1 : NULL;
}

/* The same walk over components; "**" is their '*'. */
bool files_glob_match(const char *glob, const char *path)
{
	const char *g = glob, *s = path, *star = NULL, *retry = NULL;
	bool starred = false;

	while (s) {
		const char *gend = g ? component_end(g) : NULL;
		const char *send = component_end(s);

		if (g && is_any_depth(g, gend)) {
			starred = true;
			g = star = after(gend);
			retry = s;
		} else if (g && match_name(g, gend, s, send)) {
			g = after(gend);
			s = after(send);
		} else if (starred && (retry = after(component_end(retry)))) {
			g = star;
			s = retry;
		} else {
			return starred && !star && !g; /* a "**" at the end takes all the rest */
		}
	}
	return !g; /* a "**" that is left over wants at least one name: it is no match of its parent */
}

bool files_glob_may_contain(const char *glob, const char *dir)
{
	const char *g = glob, *s = dir;

	while (g && s) {
		const char *gend = component_end(g), *send = component_end(s);

		if (is_any_depth(g, gend))
			return true;
		if (!match_name(g, gend, s, send))
			return false;
		g = after(gend);
		s = after(send);
	}
	return g != NULL;
}
