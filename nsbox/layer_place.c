/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a layer: the place of an entry, never through a link; its owner and attributes. */
#include "nsbox/layer_writer.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "nsbox/ids.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

/* ------------------------------------------------------------------ owners and attributes */

/*
 * Inside, 1000 is the run's own id and not the image's (nsbox/ids.h), so nothing in a layer can
 * belong to it; what lies beyond the map belongs to nobody.
 */
uint32_t layer_stored_id(const struct layer_writer *w, uint32_t id)
{
	if (id == IDS_INSIDE && !w->opt->upper)
		return 0;
	return id < 65536 ? id : 65534;
}

int layer_own(struct layer_writer *w, int fd)
{
	return w->own ? fchown(fd, layer_stored_id(w, w->f.uid), layer_stored_id(w, w->f.gid)) : 0;
}

int layer_own_link(struct layer_writer *w, int parent, const char *name)
{
	return w->own ? fchownat(parent, name, layer_stored_id(w, w->f.uid),
				 layer_stored_id(w, w->f.gid), AT_SYMLINK_NOFOLLOW)
		      : 0;
}

int layer_keep_xattr(struct layer_writer *w)
{
	size_t name = strlen(w->extra) + 1, total = w->f.extra + sizeof(uint32_t);
	uint32_t len = (uint32_t)(w->f.extra - name);

	if (name > w->f.extra || !layer_xattr_ok(w->extra))
		return layer_refuse(w, NSBOX_E_PROTOCOL, "an attribute that layers do not have");
	if (total > sizeof(w->xattr) - w->xattr_len)
		return layer_refuse(w, NSBOX_E_LIMIT, "its attributes are too large");
	memcpy(w->xattr + w->xattr_len, w->extra, name);
	memcpy(w->xattr + w->xattr_len + name, &len, sizeof(len));
	memcpy(w->xattr + w->xattr_len + name + sizeof(len), w->extra + name, len);
	w->xattr_len += total;
	return 0;
}

int layer_set_xattrs(struct layer_writer *w, int fd)
{
	size_t at = 0;

	while (at < w->xattr_len) {
		const char *name = w->xattr + at, *value = name + strlen(name) + 1;
		uint32_t len;

		memcpy(&len, value, sizeof(len));
		value += sizeof(len);
		if (fsetxattr(fd, name, value, len, 0) < 0)
			return layer_fail(w, errno, "set an attribute of");
		at = (size_t)(value - w->xattr) + len;
	}
	w->xattr_len = 0;
	return 0;
}

/* ------------------------------------------------------------------ places */

/* The directory that w->path lies in; *ret_name points into w->path. */
int layer_parent_of(struct layer_writer *w, int *ret_fd, const char **ret_name)
{
	const char *slash = strrchr(w->path, '/');
	size_t len = slash ? (size_t)(slash - w->path) : 0;

	if (w->parent_fd < 0 || strlen(w->parent) != len || memcmp(w->parent, w->path, len) != 0) {
		close_fd(&w->parent_fd);
		if (files_open_parent(w->top_fd, w->path, &w->parent_fd, ret_name, w->err) < 0)
			return w->err && w->err->errnum ? -w->err->errnum : -EINVAL;
		memcpy(w->parent, w->path, len);
		w->parent[len] = '\0';
	}
	*ret_fd = w->parent_fd;
	*ret_name = slash ? slash + 1 : w->path;
	return 0;
}

/* Make room: a file or link that is there goes, an empty directory too. 1: it was a whiteout. */
int layer_clear_place(struct layer_writer *w, int parent, const char *name)
{
	struct stat st;

	if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : layer_fail(w, errno, "look at");
	if (S_ISDIR(st.st_mode))
		return layer_refuse(w, NSBOX_E_INVALID,
				    "it replaces a directory of the same archive");
	if (unlinkat(parent, name, 0) < 0)
		return layer_fail(w, errno, "replace");
	return S_ISCHR(st.st_mode);
}

int layer_set_opaque(struct layer_writer *w, int fd)
{
	if (fsetxattr(fd, OVL_OPAQUE, "y", 1, 0) == 0)
		return 0;
	if (errno == EOPNOTSUPP)
		return nsbox_fail(
			w->err, NSBOX_E_UNSUPPORTED, errno,
			"the file system of the state directory has no user.* attributes, "
			"which this image's layers need: put the state directory "
			"(NSBOX_STATE_DIR) on ext4, xfs or btrfs");
	return layer_fail(w, errno, "hide lower layers in");
}
