/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unpacking a file stream inside the sandbox.
 *
 * The helper runs with the payload's ids, in the sandbox's own root: the worst that a hostile
 * stream can reach is what the payload may write anyway. The checks below are there so that a
 * package does what its file list says, or is refused: no frame leaves the directory its BASE
 * names, no link of the package is followed by a later frame, and an existing file is replaced,
 * never written through.
 */
#include "nsbox/files_child.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "nsbox/files_format.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

#define COPY_CHUNK (32 * 1024)

struct unpack {
	int fd, root_fd, base_fd;
	const char *default_base;
	struct nsbox_files_limits lim;
	struct files_count count;
	struct nsbox_frame frame;
	char path[FILES_PATH_MAX];
	/* content of all kinds but FILE */
	char text[sizeof(struct nsbox_file_info) + FILES_TEXT_MAX + 1];
};

static int take(struct unpack *u, void *buf, size_t len, struct nsbox_error *err)
{
	int r = read_full(u->fd, buf, len);

	if (r == -ENODATA)
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EPIPE, "file stream ends early");
	return r < 0 ? nsbox_fail(err, NSBOX_E_IO, -r, "read the file stream") : 0;
}

/* ------------------------------------------------------------------ where to */

static bool is_in(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

static bool base_ok(const struct unpack *u, const char *path)
{
	static const char skills[] = "/skills/";

	return is_in(path, "/workspace") || is_in(path, "/run/secrets") || is_in(path, "/tmp") ||
	       is_in(path, "/home/sandbox") || strncmp(path, skills, sizeof(skills) - 1) == 0 ||
	       (u->default_base && is_in(path, u->default_base));
}

static int enter_base(struct unpack *u, const char *path, struct nsbox_error *err)
{
	auto_close int parent = -1;
	const char *name = "";
	int r;

	if (path[0] != '/' || !base_ok(u, path))
		return nsbox_fail(err, NSBOX_E_INVALID, EPERM, "files below '%s' are not allowed",
				  path);
	r = files_open_parent(u->root_fd, path + 1, &parent, &name, err);
	if (r < 0)
		return r;
	close_fd(&u->base_fd);
	u->base_fd = sys_openat2(parent, name, O_PATH | O_DIRECTORY, 0, FILES_RESOLVE);
	if (u->base_fd < 0 && errno == ENOENT && mkdirat(parent, name, 0755) == 0)
		u->base_fd = sys_openat2(parent, name, O_PATH | O_DIRECTORY, 0, FILES_RESOLVE);
	if (u->base_fd < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open the directory '%s'", path);
	return 0;
}

/* ------------------------------------------------------------------ frames */

static int fail_file(const struct unpack *u, int errnum, struct nsbox_error *err)
{
	char show[200];

	nsbox_format(show, sizeof(show), "%s", u->path);
	files_clean_text(show);
	return nsbox_fail(err, NSBOX_E_IO, errnum, "unpack '%s'", show);
}

/* Make room for a new file or link: what is there goes, unless it is a directory. */
static int clear_place(const struct unpack *u, int parent, const char *name,
		       struct nsbox_error *err)
{
	if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
		return 0;
	return fail_file(u, errno, err);
}

static int copy_content(struct unpack *u, int out, struct nsbox_error *err)
{
	char buf[COPY_CHUNK];

	for (uint64_t left = u->frame.size; left;) {
		size_t n = (size_t)MIN(left, (uint64_t)sizeof(buf));
		int r = take(u, buf, n, err);

		if (r < 0)
			return r;
		r = write_full(out, buf, n);
		if (r < 0)
			return fail_file(u, -r, err);
		left -= n;
	}
	return 0;
}

static int unpack_file(struct unpack *u, struct nsbox_error *err)
{
	auto_close int parent = -1, out = -1;
	const uint64_t how = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
	const char *name = "";
	int r = files_open_parent(u->base_fd, u->path, &parent, &name, err);

	if (r < 0)
		return r;
	out = sys_openat2(parent, name, how, 0600, FILES_RESOLVE);
	if (out < 0 && errno == EEXIST) {
		r = clear_place(u, parent, name, err);
		if (r < 0)
			return r;
		out = sys_openat2(parent, name, how, 0600, FILES_RESOLVE);
	}
	if (out < 0)
		return fail_file(u, errno, err);
	r = copy_content(u, out, err);
	if (r < 0)
		return r;
	return fchmod(out, u->frame.mode & 0777) < 0 ? fail_file(u, errno, err) : 0;
}

static int unpack_link(struct unpack *u, struct nsbox_error *err)
{
	auto_close int parent = -1;
	const char *name = "";
	int r;

	if (memchr(u->text, '\0', (size_t)u->frame.size))
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EBADMSG, "link target with a NUL byte");
	r = files_open_parent(u->base_fd, u->path, &parent, &name, err);
	if (r == 0)
		r = clear_place(u, parent, name, err);
	if (r == 0 && symlinkat(u->text, parent, name) < 0)
		r = fail_file(u, errno, err);
	return r;
}

/* Header, path, and the content of all kinds but FILE. */
static int next_frame(struct unpack *u, struct nsbox_error *err)
{
	struct nsbox_frame *f = &u->frame;
	int r = take(u, f, sizeof(*f), err);

	if (r == 0)
		r = files_check_frame(f, &u->lim, &u->count, err);
	if (r == 0)
		r = take(u, u->path, f->path_len, err);
	if (r < 0)
		return r;
	u->path[f->path_len] = '\0';
	r = files_check_frame_path(f, u->path, err);
	if (r < 0 || f->kind == NSBOX_FRAME_FILE)
		return r;
	r = take(u, u->text, (size_t)f->size, err); /* files_check_frame: it fits */
	u->text[f->size] = '\0';
	return r;
}

/* 1: go on, 0: the end, negative: an error. */
static int unpack_frame(struct unpack *u, struct nsbox_error *err)
{
	int r = next_frame(u, err);

	if (r < 0)
		return r;
	switch ((enum nsbox_frame_kind)u->frame.kind) {
	case NSBOX_FRAME_END: return files_end_error(&u->frame, u->text, err);
	case NSBOX_FRAME_BASE: r = enter_base(u, u->path, err); break;
	case NSBOX_FRAME_DIR: r = files_make_dir(u->base_fd, u->path, u->frame.mode, err); break;
	case NSBOX_FRAME_FILE: r = unpack_file(u, err); break;
	case NSBOX_FRAME_SYMLINK: r = unpack_link(u, err); break;
	case NSBOX_FRAME_NOTE: break;
	case NSBOX_FRAME_INFO:
	case NSBOX_FRAME_MATCH:
		r = nsbox_fail(err, NSBOX_E_PROTOCOL, EBADMSG,
			       "file stream: an answer where files were to come");
		break;
	}
	return r < 0 ? r : 1;
}

int files_child_unpack(int fd, int root_fd, const struct nsbox_files_limits *lim,
		       const char *default_base, struct nsbox_error *err)
{
	struct unpack u = { .fd = fd,
			    .root_fd = root_fd,
			    .base_fd = -1,
			    .default_base = default_base,
			    .lim = lim ? *lim : NSBOX_FILES_LIMITS_DEFAULT };
	int r = enter_base(&u, default_base, err);

	for (r = r < 0 ? r : 1; r > 0;)
		r = unpack_frame(&u, err);
	close_fd(&u.base_fd);
	return r;
}
