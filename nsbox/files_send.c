/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory of the caller as a file stream (a skill, the files of a job).
 *
 * The tree is the caller's own, but it may come from anywhere: what a sandbox could not use, or
 * should not get by accident, is an error that names it and not a silent gap. Names are sent in
 * sorted order, so that the same tree gives the same bytes.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <nsbox/files.h>
#include <string.h>
#include <sys/stat.h>

#include "nsbox/files_format.h"
#include "nsbox/util.h"

#define SEND_DEPTH_MAX 64

struct send {
	int fd;
	struct nsbox_files_limits lim;
	struct files_count count;
	struct nsbox_error *err;
	char path[FILES_PATH_MAX];
};

static int send_tree(struct send *s, int dir_fd, const char *name, size_t len, int depth);

static int fail_here(struct send *s, int code, int errnum, const char *what)
{
	char show[200];

	nsbox_format(show, sizeof(show), "%s", s->path);
	files_clean_text(show);
	return nsbox_fail(s->err, code, errnum, "'%s': %s", show, what);
}

static int header(struct send *s, int kind, uint32_t mode, uint64_t size)
{
	struct nsbox_frame f = { .magic = NSBOX_FRAME_MAGIC,
				 .kind = (uint16_t)kind,
				 .path_len = (uint16_t)strlen(s->path),
				 .size = size };
	int r = files_check_frame(&f, &s->lim, &s->count, s->err);

	return r < 0 ? r : files_put_header(s->fd, kind, s->path, mode, size, s->err);
}

static int send_file(struct send *s, int dir_fd, const char *name)
{
	auto_close int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	char buf[32768];
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return fail_here(s, NSBOX_E_IO, errno, "open");
	if (!S_ISREG(st.st_mode))
		return fail_here(s, NSBOX_E_INVALID, 0, "no longer a regular file");
	r = header(s, NSBOX_FRAME_FILE, st.st_mode & 0777, (uint64_t)st.st_size);
	for (uint64_t left = (uint64_t)st.st_size; r == 0 && left;) {
		size_t n = (size_t)MIN(left, (uint64_t)sizeof(buf));

		r = read_full(fd, buf, n);
		if (r < 0)
			return fail_here(s, NSBOX_E_IO, -r, "changed while it was read");
		r = write_full(s->fd, buf, n);
		if (r < 0)
			return nsbox_fail(s->err, NSBOX_E_IO, -r, "write the file stream");
		left -= n;
	}
	return r;
}

static int send_link(struct send *s, int dir_fd, const char *name)
{
	char target[FILES_TEXT_MAX + 1];
	ssize_t n = readlinkat(dir_fd, name, target, sizeof(target));
	int r;

	if (n <= 0 || n > FILES_TEXT_MAX)
		return fail_here(s, NSBOX_E_IO, n < 0 ? errno : ENAMETOOLONG, "read the link");
	target[n] = '\0';
	if (!files_link_stays(s->path, target))
		return fail_here(s, NSBOX_E_INVALID, 0,
				 "a symbolic link that leads out of the directory");
	r = header(s, NSBOX_FRAME_SYMLINK, 0, (uint64_t)n);
	if (r < 0)
		return r;
	r = write_full(s->fd, target, (size_t)n);
	return r < 0 ? nsbox_fail(s->err, NSBOX_E_IO, -r, "write the file stream") : 0;
}

static int send_entry(struct send *s, int dir_fd, const char *name, size_t len, int depth)
{
	struct stat st;
	int r;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return fail_here(s, NSBOX_E_IO, errno, "stat");
	switch (st.st_mode & S_IFMT) {
	case S_IFREG: return send_file(s, dir_fd, name);
	case S_IFLNK: return send_link(s, dir_fd, name);
	case S_IFDIR:
		r = header(s, NSBOX_FRAME_DIR, st.st_mode & 0777, 0);
		return r < 0 ? r : send_tree(s, dir_fd, name, len, depth + 1);
	default:
		return fail_here(s, NSBOX_E_INVALID, 0,
				 "neither a file, a directory nor a symbolic link");
	}
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_dots(const struct dirent *e)
{
	return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

static int send_name(struct send *s, int dir_fd, const char *name, size_t len, int depth)
{
	size_t n = strlen(name);
	int r;

	if (len + 1 + n >= sizeof(s->path))
		return fail_here(s, NSBOX_E_INVALID, ENAMETOOLONG, "paths below it");
	memcpy(s->path + len + (len > 0), name, n + 1);
	if (len)
		s->path[len] = '/';
	r = send_entry(s, dir_fd, name, len + (len > 0) + n, depth);
	s->path[len] = '\0';
	return r;
}

/* What is in the directory dir_fd/name, whose path takes `len` bytes of s->path. */
static int send_tree(struct send *s, int dir_fd, const char *name, size_t len, int depth)
{
	auto_close int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct dirent **names = NULL;
	int n, r = 0;

	if (fd < 0)
		return fail_here(s, NSBOX_E_IO, errno, "open the directory");
	if (depth > SEND_DEPTH_MAX)
		return fail_here(s, NSBOX_E_LIMIT, 0, "nested too deeply");
	n = scandirat(fd, ".", &names, not_dots, by_name);
	if (n < 0)
		return fail_here(s, NSBOX_E_IO, errno, "list the directory");
	for (int i = 0; i < n; i++) {
		if (r == 0)
			r = send_name(s, fd, names[i]->d_name, len, depth);
		free(names[i]);
	}
	free(names);
	return r;
}

int nsbox_files_send_dir(int fd, int dir_fd, const struct nsbox_files_limits *lim,
			 struct nsbox_error *err)
{
	struct send s = { .fd = fd, .lim = lim ? *lim : NSBOX_FILES_LIMITS_DEFAULT, .err = err };

	return send_tree(&s, dir_fd, ".", 0, 0);
}
