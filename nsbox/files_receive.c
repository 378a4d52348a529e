/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file stream into a directory of the caller: outputs of a run, for `--output DIR`.
 *
 * The sender sat inside a sandbox: every name and every byte is hostile. Only files, directories
 * and notes are taken. A file is written beside its place under a name of ours and renamed when it
 * is complete, so that a stream that breaks leaves the old file, and what is there is replaced and
 * never written through. Modes are ours: the sender only says whether a file is executable.
 */
#include <fcntl.h>
#include <nsbox/files.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "nsbox/files_format.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

struct receive {
	int dir_fd;
	nsbox_files_fn *each;
	void *ctx;
	/* the frame that is coming in */
	int kind;
	uint64_t size;
	bool executable;
	char path[FILES_PATH_MAX];
	const char *name; /* within path */
	int parent, out;
	char part[48];
	char note[FILES_TEXT_MAX + 1];
	size_t note_len;
};

static int fail_file(const struct receive *rx, int errnum, struct nsbox_error *err)
{
	char show[200];

	nsbox_format(show, sizeof(show), "%s", rx->path);
	files_clean_text(show);
	return nsbox_fail(err, NSBOX_E_IO, errnum, "write '%s'", show);
}

static int begin_file(struct receive *rx, struct nsbox_error *err)
{
	int r = files_open_parent(rx->dir_fd, rx->path, &rx->parent, &rx->name, err);

	if (r < 0)
		return r;
	nsbox_format(rx->part, sizeof(rx->part), ".nsbox-part.%d", getpid());
	/* Left by an earlier process of the same number, if it is there at all. */
	unlinkat(rx->parent, rx->part, 0);
	rx->out = sys_openat2(rx->parent, rx->part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600,
			      FILES_RESOLVE);
	return rx->out < 0 ? fail_file(rx, errno, err) : 0;
}

static int on_begin(void *ctx, int kind, const char *path, uint32_t mode, uint64_t size,
		    struct nsbox_error *err)
{
	struct receive *rx = ctx;

	rx->kind = kind;
	rx->size = size;
	rx->executable = mode & 0111;
	rx->note_len = 0;
	nsbox_format(rx->path, sizeof(rx->path), "%s", path);
	switch ((enum nsbox_frame_kind)kind) {
	case NSBOX_FRAME_FILE: return begin_file(rx, err);
	case NSBOX_FRAME_DIR: return files_make_dir(rx->dir_fd, path, 0755, err);
	case NSBOX_FRAME_NOTE: return 0;
	case NSBOX_FRAME_SYMLINK:
	case NSBOX_FRAME_BASE:
	case NSBOX_FRAME_INFO:
	case NSBOX_FRAME_MATCH:
	case NSBOX_FRAME_END: break;
	}
	return nsbox_fail(err, NSBOX_E_PROTOCOL, EBADMSG,
			  "file stream: a frame that outputs do not have");
}

static int on_data(void *ctx, const void *buf, size_t len, struct nsbox_error *err)
{
	struct receive *rx = ctx;
	int r;

	if (rx->kind == NSBOX_FRAME_NOTE) { /* files_check_frame: it fits */
		memcpy(rx->note + rx->note_len, buf, len);
		rx->note_len += len;
		return 0;
	}
	r = write_full(rx->out, buf, len);
	return r < 0 ? fail_file(rx, -r, err) : 0;
}

static int finish_file(struct receive *rx, struct nsbox_error *err)
{
	if (fchmod(rx->out, rx->executable ? 0755 : 0644) < 0 ||
	    renameat(rx->parent, rx->part, rx->parent, rx->name) < 0)
		return fail_file(rx, errno, err);
	close_fd(&rx->out);
	close_fd(&rx->parent);
	return 0;
}

static int on_finish(void *ctx, struct nsbox_error *err)
{
	struct receive *rx = ctx;
	int r = rx->kind == NSBOX_FRAME_FILE ? finish_file(rx, err) : 0;

	if (r < 0 || !rx->each || rx->kind == NSBOX_FRAME_DIR)
		return r;
	rx->note[rx->note_len] = '\0';
	files_clean_text(rx->note);
	rx->each(rx->ctx, rx->kind, rx->path, rx->size,
		 rx->kind == NSBOX_FRAME_NOTE ? rx->note : NULL);
	return 0;
}

static int pump(int fd, struct nsbox_files_reader *reader, struct nsbox_error *err)
{
	char buf[65536];

	while (!nsbox_files_done(reader)) {
		ssize_t n = read(fd, buf, sizeof(buf));
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return nsbox_fail(err, NSBOX_E_IO, errno, "read the file stream");
		if (n == 0)
			return nsbox_fail(err, NSBOX_E_PROTOCOL, EPIPE, "file stream ends early");
		r = nsbox_files_feed(reader, buf, (size_t)n, err);
		if (r < 0)
			return r;
	}
	return 0;
}

int nsbox_files_receive_dir(int fd, int dir_fd, const struct nsbox_files_limits *lim,
			    nsbox_files_fn *each, void *ctx, struct nsbox_error *err)
{
	static const struct nsbox_files_sink sink = { on_begin, on_data, on_finish };
	struct receive *rx = calloc(1, sizeof(*rx));
	struct nsbox_files_reader *reader = NULL;
	int r;

	if (!rx)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "receive files");
	*rx = (struct receive){ .dir_fd = dir_fd, .each = each, .ctx = ctx };
	rx->parent = rx->out = -1;
	r = nsbox_files_reader_new(&sink, rx, lim, &reader, err);
	if (r == 0)
		r = pump(fd, reader, err);
	if (rx->out >= 0)
		unlinkat(rx->parent, rx->part, 0);
	close_fd(&rx->out);
	close_fd(&rx->parent);
	nsbox_files_reader_free(reader);
	free(rx);
	return r;
}
