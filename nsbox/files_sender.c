/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sending files out of the sandbox, as frames. The header promises a size and the size is sent,
 * whatever happens to the file meanwhile.
 */
#include "nsbox/files_sender.h"

#include <string.h>

#include "nsbox/util.h"

#define SEND_CHUNK (16 * 1024)

struct files_sender files_sender(int fd, const struct nsbox_files_limits *lim)
{
	return (struct files_sender){ .fd = fd, .lim = lim ? *lim : NSBOX_FILES_LIMITS_DEFAULT };
}

int files_send_note(struct files_sender *s, const char *path, const char *text,
		    struct nsbox_error *err)
{
	if (s->count.frames >= s->lim.files || !path[0])
		return 0;
	s->count.frames++;
	return nsbox_files_put_frame(s->fd, NSBOX_FRAME_NOTE, path, 0, text, strlen(text), err);
}

static int put(struct files_sender *s, const void *data, size_t len, struct nsbox_error *err)
{
	int r = write_full(s->fd, data, len);

	return r < 0 ? nsbox_fail(err, NSBOX_E_IO, -r, "write the file stream") : 0;
}

static int put_zeros(struct files_sender *s, uint64_t left, struct nsbox_error *err)
{
	static const char zeros[512];
	int r = 0;

	while (left && r == 0) {
		size_t n = (size_t)MIN(left, (uint64_t)sizeof(zeros));

		r = put(s, zeros, n, err);
		left -= n;
	}
	return r;
}

/* A file that shrinks meanwhile is filled up and a note says so. */
int files_send_content(struct files_sender *s, int fd, const char *path, uint64_t size,
		       struct nsbox_error *err)
{
	char buf[SEND_CHUNK];
	int r = 0;

	while (size) {
		ssize_t n = read(fd, buf, (size_t)MIN(size, (uint64_t)sizeof(buf)));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			r = put_zeros(s, size, err);
			return r < 0 ? r
				     : files_send_note(s, path, "changed while it was read", err);
		}
		r = put(s, buf, (size_t)n, err);
		if (r < 0)
			return r;
		size -= (uint64_t)n;
	}
	return 0;
}

int files_send_open(struct files_sender *s, int fd, const char *path, const struct stat *st,
		    struct nsbox_error *err)
{
	uint64_t size = (uint64_t)st->st_size;
	int r;

	s->count.frames++;
	s->count.bytes += size;
	r = files_put_header(s->fd, NSBOX_FRAME_FILE, path, st->st_mode & 0777, size, err);
	return r < 0 ? r : files_send_content(s, fd, path, size, err);
}

int files_send_end(struct files_sender *s, int r, const struct nsbox_error *why,
		   struct nsbox_error *err)
{
	if (r == 0)
		return nsbox_files_end(s->fd, err);
	files_put_error(s->fd, why, NULL); /* the caller hears of it in any case */
	if (err)
		*err = *why;
	return r;
}
