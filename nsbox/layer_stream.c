/* SPDX-License-Identifier: Apache-2.0 */
/* The layer stream: what a well-formed frame is, and putting frames on a pipe. */
#include "nsbox/layer_stream.h"

#include <string.h>

#include "nsbox/files_format.h"
#include "nsbox/util.h"

static int malformed(struct nsbox_error *err, const char *what)
{
	return nsbox_fail(err, NSBOX_E_PROTOCOL, EBADMSG, "layer stream: %s", what);
}

/* Of each kind: may it have no path, at least and at most how much extra, may it have content? */
static const struct {
	bool top, content;
	uint32_t extra_min, extra_max;
} shape[LAYER_KIND_MAX] = {
	/* clang-format off */
	[LAYER_END]	 = { true,  false, sizeof(struct layer_end), sizeof(struct layer_end) },
	[LAYER_DIR]	 = { true,  false, 0, 0 },
	[LAYER_FILE]	 = { false, true,  0, 0 },
	[LAYER_SYMLINK]	 = { false, false, 1, FILES_TEXT_MAX },
	[LAYER_HARDLINK] = { false, false, 1, FILES_PATH_MAX - 1 },
	[LAYER_WHITEOUT] = { false, false, 0, 0 },
	[LAYER_OPAQUE]	 = { true,  false, 0, 0 },
	[LAYER_XATTR]	 = { true,  false, 7, LAYER_EXTRA_MAX },
	[LAYER_SKIPPED]	 = { false, false, 0, 0 },
	/* clang-format on */
};

int layer_check(const struct layer_frame *f, struct nsbox_error *err)
{
	if (f->magic != LAYER_MAGIC || f->kind < LAYER_END || f->kind >= LAYER_KIND_MAX)
		return malformed(err, "not a frame");
	if (f->path_len >= FILES_PATH_MAX || (!f->path_len && !shape[f->kind].top))
		return malformed(err, "length of a path");
	if (f->extra < shape[f->kind].extra_min || f->extra > shape[f->kind].extra_max)
		return malformed(err, "length of a frame");
	if ((f->size && !shape[f->kind].content) || f->size > INT64_MAX)
		return malformed(err, "size of a file");
	return f->mode & ~07777u ? malformed(err, "mode") : 0;
}

int layer_check_path(const struct layer_frame *f, const char *path, struct nsbox_error *err)
{
	return f->path_len ? nsbox_files_check_path(path, f->path_len, err) : 0;
}

bool layer_xattr_ok(const char *name)
{
	return strncmp(name, "user.", 5) == 0 && name[5] && strlen(name) <= FILES_NAME_MAX &&
	       strncmp(name, OVL_PREFIX, sizeof(OVL_PREFIX) - 1) != 0;
}

int layer_put(int fd, const struct layer_frame *f, const char *path, const void *extra,
	      struct nsbox_error *err)
{
	struct layer_frame h = *f;
	char buf[sizeof(h) + FILES_PATH_MAX];
	size_t len = strlen(path);
	int r;

	h.magic = LAYER_MAGIC;
	h.path_len = (uint16_t)MIN(len, (size_t)FILES_PATH_MAX);
	r = layer_check(&h, err);
	if (r == 0)
		r = layer_check_path(&h, path, err);
	if (r < 0)
		return r;
	memcpy(buf, &h, sizeof(h));
	memcpy(buf + sizeof(h), path, len);
	r = write_full(fd, buf, sizeof(h) + len);
	if (r == 0 && h.extra)
		r = write_full(fd, extra, h.extra);
	return r < 0 ? nsbox_fail(err, NSBOX_E_IO, -r, "write the layer stream") : 0;
}

int layer_put_end(int fd, const struct nsbox_error *why, const char *diff, struct nsbox_error *err)
{
	struct layer_frame f = { .kind = LAYER_END, .extra = sizeof(struct layer_end) };
	struct layer_end e = { 0 };

	if (why && why->code) {
		e.code = (uint32_t)why->code;
		nsbox_format(e.msg, sizeof(e.msg), "%s", why->msg);
	}
	if (diff)
		nsbox_format(e.diff, sizeof(e.diff), "%s", diff);
	return layer_put(fd, &f, "", &e, err);
}
