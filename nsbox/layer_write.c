/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer stream becomes a directory tree, in the form that overlayfs takes for a layer.
 *
 * Runs in a process of its own that has the ids of images and nothing else (overlay/image/owner.c),
 * or in a sandbox that is being set up. Still no path of a stream may lead out of its layer: every
 * one is opened with RESOLVE_BENEATH and through no link, and what is there is replaced and never
 * written through.
 *
 * Should:  write below dir_fd; drop set-id bits of files, which no sandbox would honour but the
 *          host would; make devices of one kind only, overlayfs' own whiteout.
 * Mustn't: follow a link, believe a size, leave a directory without its mode.
 *
 * Modes and times of directories come last: what is in them needs room before. For an image they
 * are remembered, and that is the only use of the heap.
 */
#include "nsbox/layer_writer.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "nsbox/files_format.h"
#include "nsbox/ids.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

int layer_fail(struct layer_writer *w, int errnum, const char *what)
{
	char show[200];

	nsbox_format(show, sizeof(show), "%s", w->path);
	files_clean_text(show);
	if (errnum == ENOSPC || errnum == EDQUOT)
		return nsbox_fail(w->err, NSBOX_E_IO, errnum,
				  "%s '%s': the file system of the state directory is full", what,
				  show);
	if (errnum == ELOOP)
		return nsbox_fail(w->err, NSBOX_E_INVALID, errnum,
				  "%s '%s': it lies behind a symbolic link of the archive", what,
				  show);
	return nsbox_fail(w->err, NSBOX_E_IO, errnum, "%s '%s'", what, show);
}

int layer_refuse(struct layer_writer *w, int code, const char *why)
{
	char show[160];

	nsbox_format(show, sizeof(show), "%s", w->path);
	files_clean_text(show);
	return nsbox_fail(w->err, code, 0, "entry '%s': %s", show, why);
}

/* ------------------------------------------------------------------ reading */

int layer_fill(struct layer_writer *w)
{
	ssize_t n;

	do
		n = read(w->in, w->buf, sizeof(w->buf));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return nsbox_fail(w->err, NSBOX_E_IO, errno, "read the layer stream");
	if (n == 0)
		return nsbox_fail(w->err, NSBOX_E_PROTOCOL, EPIPE, "the layer stream ends early");
	w->at = 0;
	w->have = (size_t)n;
	return 0;
}

static int layer_take(struct layer_writer *w, void *to, size_t len)
{
	char *p = to;

	while (len) {
		size_t n = MIN(len, w->have - w->at);
		int r;

		if (!n) {
			r = layer_fill(w);
			if (r < 0)
				return r;
			continue;
		}
		memcpy(p, w->buf + w->at, n);
		w->at += n;
		p += n;
		len -= n;
	}
	return 0;
}

static int next_frame(struct layer_writer *w)
{
	int r = layer_take(w, &w->f, sizeof(w->f));

	if (r == 0)
		r = layer_check(&w->f, w->err);
	if (r == 0)
		r = layer_take(w, w->path, w->f.path_len);
	if (r < 0)
		return r;
	w->path[w->f.path_len] = '\0';
	r = layer_check_path(&w->f, w->path, w->err);
	if (r == 0)
		r = layer_take(w, w->extra, w->f.extra);
	if (r < 0)
		return r;
	w->extra[w->f.extra] = '\0';
	if (w->f.kind == LAYER_END)
		return 0;
	if (++w->sums->entries > w->opt->lim.entries)
		return nsbox_fail(w->err, NSBOX_E_LIMIT, 0, "more than %u entries",
				  w->opt->lim.entries);
	if (w->f.size > w->opt->lim.bytes - MIN(w->sums->bytes, w->opt->lim.bytes))
		return nsbox_fail(w->err, NSBOX_E_LIMIT, 0,
				  "files of more than %llu bytes together",
				  (unsigned long long)w->opt->lim.bytes);
	w->sums->bytes += w->f.size;
	return 0;
}
static int end_of_stream(struct layer_writer *w)
{
	struct layer_end e;

	memcpy(&e, w->extra, sizeof(e));
	e.msg[sizeof(e.msg) - 1] = e.diff[sizeof(e.diff) - 1] = '\0';
	files_clean_text(e.msg);
	if (e.code)
		return nsbox_fail(w->err,
				  e.code < NSBOX_E_CODE_MAX ? (int)e.code : NSBOX_E_PROTOCOL, 0,
				  "%s", e.msg[0] ? e.msg : "the sender gave up");
	memcpy(w->sums->diff, e.diff, sizeof(w->sums->diff));
	return layer_finish_dirs(w);
}

static int write_frames(struct layer_writer *w)
{
	for (;;) {
		int r = next_frame(w);

		if (r < 0)
			return r;
		if (w->f.kind == LAYER_END)
			return end_of_stream(w);
		r = layer_handlers[w->f.kind](w);
		if (r < 0)
			return r;
	}
}

int layer_write(int fd, int dir_fd, const struct layer_options *opt, struct layer_sums *ret,
		struct nsbox_error *err)
{
	struct layer_writer *w =
		mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct nsbox_error local = { 0 };
	int r = 0;

	if (w == MAP_FAILED)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "write a layer");
	memset(ret, 0, sizeof(*ret));
	w->in = fd;
	w->top_fd = dir_fd;
	w->own = opt->own;
	w->opt = opt;
	w->sums = ret;
	w->err = err ? err : &local;
	w->parent_fd = -1;
	umask(0);
	/* Until an entry for the top says otherwise, or where there is none. */
	if (!opt->upper && fchmod(dir_fd, 0755) < 0)
		r = layer_fail(w, errno, "set the mode of");
	if (r == 0)
		r = write_frames(w);
	close_fd(&w->parent_fd);
	for (size_t i = 0; i < w->dirs; i++)
		free(w->dir[i].path);
	free(w->dir);
	munmap(w, sizeof(*w));
	return r;
}
