/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What --fix mends. The directory may be somebody else's trap: a file is opened below it without
 * following links, has to be the one that was looked at, and must have no second name, since that
 * one could be a file of the caller's far away.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/skill/check.h"

#define FIX_MAX (4u << 20)

static int open_same(struct skill_check *c, const struct skill_file *f, struct stat *st)
{
	auto_close int fd = skill_open(c->opt->dir_fd, f->path, O_RDONLY);

	if (fd < 0)
		return fd;
	if (fstat(fd, st) < 0)
		return -errno;
	if (!S_ISREG(st->st_mode) || st->st_ino != f->st.st_ino || st->st_dev != f->st.st_dev)
		return -ESTALE;
	if (st->st_nlink != 1)
		return -EMLINK;
	return take_fd(&fd);
}

int fix_execute_bit(struct skill_check *c, const struct skill_file *f)
{
	struct stat st;
	auto_close int fd = open_same(c, f, &st);

	if (fd < 0)
		return fd;
	/* Whoever may read it may start it. */
	return fchmod(fd, (st.st_mode & 0777) | ((st.st_mode & 0444) >> 2)) < 0 ? -errno : 0;
}

static size_t without_returns(char *s, size_t len)
{
	size_t at = 0;

	for (size_t i = 0; i < len; i++)
		if (s[i] != '\r' || i + 1 == len || s[i + 1] != '\n')
			s[at++] = s[i];
	return at;
}

/* A new file beside the old one, then in its place: never half of each. */
static int replace(int dir_fd, const char *name, const char *data, size_t len, mode_t mode)
{
	static const char temporary[] = ".nsbox-fix";
	auto_close int fd = openat(dir_fd, temporary,
				   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return -errno;
	r = write_full(fd, data, len);
	if (r == 0 && fchmod(fd, mode & 0777) < 0)
		r = -errno;
	if (r == 0 && renameat(dir_fd, temporary, dir_fd, name) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(dir_fd, temporary, 0);
	return r;
}

int fix_line_ends(struct skill_check *c, const struct skill_file *f)
{
	struct stat st;
	auto_close int fd = open_same(c, f, &st), dir = -1;
	const char *slash = strrchr(f->path, '/');
	auto_free char *data = NULL, *parent = NULL;
	int r;

	if (fd < 0)
		return fd;
	if (st.st_size > FIX_MAX)
		return -EFBIG;
	parent = slash ? strndup(f->path, (size_t)(slash - f->path)) : strdup(".");
	data = malloc((size_t)st.st_size + 1);
	if (!parent || !data)
		return -ENOMEM;
	dir = skill_open(c->opt->dir_fd, parent, O_RDONLY | O_DIRECTORY);
	if (dir < 0)
		return dir;
	r = read_full(fd, data, (size_t)st.st_size);
	if (r < 0)
		return r;
	return replace(dir, slash ? slash + 1 : f->path, data,
		       without_returns(data, (size_t)st.st_size), st.st_mode);
}
