/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See share.h. Programs change the directory as who owns it, and with them everything that already has
 * its ids outside; so the payload is that owner, nothing is chowned and no id is shifted. Root's is
 * refused: a run may never be root outside.
 *
 * The path is gone through twice: here, to learn who owns what is there, and in the child, where it is
 * mounted. Neither goes through a link, and it has to be the same directory: who can rename above it
 * gains nothing.
 */
#include "nsbox/share.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "nsbox/plan_build.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

bool nsbox_plan_shares(const struct nsbox_plan *plan)
{
	const struct blob *b = plan_blob(plan);
	size_t n;
	const struct mount_op *ops = blob_get(b, SEC_OPS, sizeof(*ops), &n);

	for (size_t i = 0; i < n; i++)
		if (ops[i].kind == OP_SHARED)
			return true;
	return false;
}

static int refuse(struct nsbox_error *err, const char *path, const char *why)
{
	return nsbox_fail_at(err, NSBOX_STAGE_PROBE, NSBOX_E_UNSUPPORTED, EPERM,
			     "share the directory '%s': %s", path, why);
}

/* Those of images and of other sandboxes are mapped already, or somebody else's. */
static bool is_reserved(uint32_t id)
{
	return id >= IDS_IMAGE_BASE && id < IDS_END;
}

static int check_owner(const struct stat *st, bool choose, const char *path,
		       struct nsbox_error *err)
{
	if (st->st_uid == 0)
		return refuse(err, path,
			      "it belongs to root, which no run may be outside: give it to an "
			      "ordinary user (chown)");
	if (geteuid() != 0 && st->st_uid != geteuid())
		return refuse(err, path, "it belongs to another user");
	if (choose && st->st_gid == 0)
		return refuse(err, path,
			      "its group is root's, which no run may have outside: give it "
			      "another (chgrp)");
	if (choose && (is_reserved(st->st_uid) || is_reserved(st->st_gid)))
		return refuse(err, path, "its owner is a sandbox's: give it to an ordinary user");
	return 0;
}

int share_open(const struct nsbox_plan *plan, const char *path, bool choose, struct share *ret,
	       struct nsbox_error *err)
{
	bool wanted = nsbox_plan_shares(plan);
	auto_close int fd = -1;
	struct stat st;
	int r;

	*ret = (struct share){ 0 };
	if (!wanted && !path)
		return 0;
	if (!wanted || !path)
		return nsbox_fail_at(err, NSBOX_STAGE_PROBE, NSBOX_E_INVALID, 0,
				     wanted ? "filesystem.workspace is \"rw\", and no directory of "
					      "the host is shared with this run (--share DIR)"
					    : "a directory is shared with a run whose "
					      "filesystem.workspace is not \"rw\"");
	if (*path != '/')
		return nsbox_fail_at(err, NSBOX_STAGE_PROBE, NSBOX_E_INVALID, 0,
				     "share the directory '%s': the path is not absolute", path);
	fd = sys_openat2(AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0,
			 RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
	if (fd < 0 || fstat(fd, &st) < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_PROBE, NSBOX_E_INVALID, errno,
				     "share the directory '%s'%s", path,
				     errno == ELOOP ? ", on the way to which there is a link" : "");
	r = check_owner(&st, choose, path, err);
	if (r < 0)
		return r;
	*ret = (struct share){ path, st.st_dev, st.st_ino, { st.st_uid, st.st_gid } };
	return 0;
}
