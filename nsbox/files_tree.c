/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs on trees: list, glob and download, each a walk with its own idea of what to send. */
#include <fcntl.h>
#include <string.h>

#include "nsbox/files_verbs.h"
#include "nsbox/util.h"

/* Ends a walk whose answer is as long as was asked for. */
#define FULL (-E2BIG)

static int on_note(struct files_walk *w, const char *why, struct nsbox_error *err)
{
	return files_send_note(&verb_of(w)->send, w->path, why, err);
}

int verb_walk(struct verb *v, files_walk_fn *dir, files_walk_fn *other, struct nsbox_error *err)
{
	struct files_walk w; /* not by an initialiser: that would clear all its buffers */
	int fd = verb_open_dir(v->path), r;

	if (fd < 0)
		return verb_fail("open the directory", v->path, -fd, err);
	w.dir = dir;
	w.other = other;
	w.left = NULL;
	w.note = on_note;
	w.ctx = v;
	r = files_walk(&w, fd, err);
	return r == FULL && !err->code ? 0 : r;
}

/* Is there room for one more frame? The last one of the limit says that there is more. */
static bool full(struct files_walk *w, int *ret, struct nsbox_error *err)
{
	struct files_sender *s = &verb_of(w)->send;

	if (s->lim.files - s->count.frames > 1)
		return false;
	*ret = on_note(w, "more entries than asked for: this and others are left out", err);
	if (*ret == 0)
		*ret = FULL;
	return true;
}

/* ------------------------------------------------------------------ list, glob */

static int send_entry(struct files_walk *w, int dir_fd, const char *name, struct nsbox_error *err)
{
	int r;

	if (full(w, &r, err))
		return r;
	return verb_send_info(verb_of(w), dir_fd, name, w->path, err);
}

static int list_dir(struct files_walk *w, int dir_fd, const char *name, const struct stat *st,
		    struct nsbox_error *err)
{
	int r = send_entry(w, dir_fd, name, err);

	return r < 0 ? r : (verb_of(w)->f->flags & NSBOX_FILE_RECURSIVE) != 0;
}

static int list_other(struct files_walk *w, int dir_fd, const char *name, const struct stat *st,
		      struct nsbox_error *err)
{
	return send_entry(w, dir_fd, name, err);
}

int verb_list(struct verb *v, struct nsbox_error *err)
{
	return verb_walk(v, list_dir, list_other, err);
}

static int glob_other(struct files_walk *w, int dir_fd, const char *name, const struct stat *st,
		      struct nsbox_error *err)
{
	if (!files_glob_match(verb_of(w)->pattern, w->path))
		return 0;
	return send_entry(w, dir_fd, name, err);
}

static int glob_dir(struct files_walk *w, int dir_fd, const char *name, const struct stat *st,
		    struct nsbox_error *err)
{
	int r = glob_other(w, dir_fd, name, st, err);

	return r < 0 ? r : files_glob_may_contain(verb_of(w)->pattern, w->path);
}

int verb_glob(struct verb *v, struct nsbox_error *err)
{
	return verb_walk(v, glob_dir, glob_other, err);
}

/* ------------------------------------------------------------------ download */

static int download_dir(struct files_walk *w, int dir_fd, const char *name, const struct stat *st,
			struct nsbox_error *err)
{
	struct files_sender *s = &verb_of(w)->send;
	int r;

	if (full(w, &r, err))
		return r;
	s->count.frames++;
	r = files_put_header(s->fd, NSBOX_FRAME_DIR, w->path, st->st_mode & 0777, 0, err);
	return r < 0 ? r : 1;
}

static int download_link(struct files_walk *w, int dir_fd, const char *name,
			 struct nsbox_error *err)
{
	struct files_sender *s = &verb_of(w)->send;
	char target[FILES_TEXT_MAX + 1];
	ssize_t n = readlinkat(dir_fd, name, target, sizeof(target));

	if (n <= 0 || n > FILES_TEXT_MAX)
		return on_note(w, "symbolic link that cannot be read", err);
	target[n] = '\0';
	if (!files_link_stays(w->path, target))
		return on_note(w, "symbolic link that leads out of the tree", err);
	s->count.frames++;
	return nsbox_files_put_frame(s->fd, NSBOX_FRAME_SYMLINK, w->path, 0, target, (uint64_t)n,
				     err);
}

static int download_file(struct files_walk *w, int dir_fd, const char *name,
			 struct nsbox_error *err)
{
	auto_close int fd = files_open(dir_fd, name, O_RDONLY | O_NOFOLLOW, 0, 0);
	struct files_sender *s = &verb_of(w)->send;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return on_note(w, "cannot be read", err);
	if (!S_ISREG(st.st_mode))
		return on_note(w, "not a regular file", err);
	if ((uint64_t)st.st_size > s->lim.total_bytes - s->count.bytes)
		return on_note(w, "the files are larger than allowed, together", err);
	return files_send_open(s, fd, w->path, &st, err);
}

static int download_other(struct files_walk *w, int dir_fd, const char *name, const struct stat *st,
			  struct nsbox_error *err)
{
	int r;

	if (full(w, &r, err))
		return r;
	if (S_ISLNK(st->st_mode))
		return download_link(w, dir_fd, name, err);
	if (!S_ISREG(st->st_mode))
		return on_note(w, "neither a file, a directory nor a symbolic link", err);
	return download_file(w, dir_fd, name, err);
}

int verb_download(struct verb *v, struct nsbox_error *err)
{
	return verb_walk(v, download_dir, download_other, err);
}
