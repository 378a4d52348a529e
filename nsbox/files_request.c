/* SPDX-License-Identifier: Apache-2.0 */
/* Asking a sandbox for something about its files: the owner's side of the verbs of files.h. */
#include <string.h>

#include "nsbox/sandbox_private.h"
#include "nsbox/util.h"

#define DEADLINE_MS 60000

int nsbox_files_encode(const struct nsbox_file_request *req, int *ret_fd, struct nsbox_error *err)
{
	const struct nsbox_files_limits def = NSBOX_FILES_LIMITS_DEFAULT;
	struct blob_builder *b = blob_new(VERB_MAGIC);
	struct verb_fixed f = {
		.verb = req->verb,
		.flags = req->flags,
		.mode = req->mode,
		.deadline_ms = req->deadline_ms ? req->deadline_ms : DEADLINE_MS,
		.offset = req->offset,
		.length = req->length,
		.total_bytes = req->lim.total_bytes ? req->lim.total_bytes : def.total_bytes,
		.files = req->lim.files ? req->lim.files : def.files,
	};
	auto_free void *bytes = NULL;
	size_t len;
	int r;

	if (!b)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "encode a request about files");
	f.path = blob_str(b, req->path);
	f.target = blob_str(b, req->target);
	f.pattern = blob_str(b, req->pattern);
	f.text = blob_str(b, req->text);
	blob_append(b, SEC_FIXED, &f, sizeof(f));
	r = blob_bytes(b, &bytes, &len, err);
	/* Judged here as well: a caller's mistake is its own, not the sandbox's. */
	if (r == 0)
		r = blob_check(bytes, len, VERB_MAGIC, err);
	if (r < 0 && err && err->code == NSBOX_E_PROTOCOL)
		err->code = NSBOX_E_INVALID;
	if (r == 0)
		r = blob_seal(b, "nsbox-files", ret_fd, err);
	blob_free(b);
	return r;
}

static int send(struct nsbox_sandbox *sb, const struct ctl_request *req, const int *fds, unsigned n,
		struct nsbox_error *err)
{
	int r = sb->control < 0 ? -EPIPE : ctl_send(sb->control, req, sizeof(*req), fds, n);

	return r < 0 ? nsbox_fail(err, NSBOX_E_PROTOCOL, r, "reach the sandbox's init") : 0;
}

int nsbox_sandbox_files_blob(struct nsbox_sandbox *sb, int blob_fd, uint32_t id, int in, int out,
			     struct nsbox_error *err)
{
	struct ctl_request req = {
		.magic = CTL_MAGIC,
		.kind = CTL_FILES,
		.id = id,
		.flags = (in >= 0 ? FILESF_IN : 0u) | (out >= 0 ? FILESF_OUT : 0u),
	};
	int fds[3], r;
	unsigned n = 0;

	if (!id)
		return nsbox_fail(err, NSBOX_E_INVALID, EINVAL,
				  "a request about files without a number");
	if (sb->files_running >= NSBOX_FILES_AT_ONCE)
		return nsbox_fail(err, NSBOX_E_LIMIT, EBUSY,
				  "%d requests about the sandbox's files are under way",
				  NSBOX_FILES_AT_ONCE);
	fds[n++] = blob_fd;
	if (in >= 0)
		fds[n++] = in;
	if (out >= 0)
		fds[n++] = out;
	r = send(sb, &req, fds, n, err);
	if (r == 0)
		sb->files_running++;
	return r;
}

int nsbox_sandbox_files(struct nsbox_sandbox *sb, const struct nsbox_file_request *req, uint32_t id,
			int in, int out, struct nsbox_error *err)
{
	auto_close int fd = -1;
	int r = nsbox_files_encode(req, &fd, err);

	return r < 0 ? r : nsbox_sandbox_files_blob(sb, fd, id, in, out, err);
}

static bool workspace_is_apart(const struct nsbox_sandbox *sb)
{
	const struct blob *plan = plan_blob(sb->plan);
	size_t n;
	const struct mount_op *ops = blob_get(plan, SEC_OPS, sizeof(*ops), &n);

	for (size_t i = 0; i < n; i++)
		if ((ops[i].kind == OP_TMPFS || ops[i].kind == OP_SHARED) &&
		    strcmp(blob_get_str(plan, ops[i].dst), "/workspace") == 0)
			return true;
	return false;
}

int nsbox_sandbox_upper(struct nsbox_sandbox *sb, enum nsbox_upper form, uint32_t id, int out_fd,
			struct nsbox_error *err)
{
	const struct ctl_request req = {
		.magic = CTL_MAGIC, .kind = CTL_UPPER, .id = id, .flags = (uint32_t)form
	};
	int r;

	if (!id || !sb->opt.track)
		return nsbox_fail(err, NSBOX_E_INVALID, EINVAL,
				  "the sandbox's changes are not tracked (the tier 'process' "
				  "cannot), or have no number");
	if (sb->fixed->flags & PLAN_ROOT_RDONLY)
		return nsbox_fail(err, NSBOX_E_UNSUPPORTED, EROFS,
				  "the sandbox's root is read-only (profile strict): there are no "
				  "changes of it");
	if (form == NSBOX_UPPER_WHOLE && workspace_is_apart(sb))
		return nsbox_fail(
			err, NSBOX_E_UNSUPPORTED, EXDEV,
			"the workspace has a size of its own (filesystem.workspace.size) or is "
			"shared (\"rw\"), and so is no part of the root, whose files alone are "
			"kept: leave that out");
	if (sb->poor_upper)
		return nsbox_fail(err, NSBOX_E_UNSUPPORTED, ENOTSUP,
				  "the sandbox's changes cannot be told from its image's files: a "
				  "tmpfs of this kernel has no attributes for that, which takes "
				  "Linux 6.6, or an upper layer on disk (root of the host, loop "
				  "devices and mke2fs)");
	if (sb->files_running >= NSBOX_FILES_AT_ONCE)
		return nsbox_fail(err, NSBOX_E_LIMIT, EBUSY,
				  "%d requests about the sandbox's files are under way",
				  NSBOX_FILES_AT_ONCE);
	r = send(sb, &req, &out_fd, 1, err);
	if (r == 0)
		sb->files_running++;
	return r;
}

int nsbox_sandbox_files_cancel(struct nsbox_sandbox *sb, uint32_t id, struct nsbox_error *err)
{
	const struct ctl_request req = { .magic = CTL_MAGIC, .kind = CTL_FILES_CANCEL, .id = id };

	return send(sb, &req, NULL, 0, err);
}
