/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Certificate authorities that the operator adds to what a run trusts (OP_TRUST): one file on a tmpfs
 * of its own at `dst`, of the image's own list with the operator's behind it, and that file once more
 * over each list of the image that is there. Variables of the plan name it to programs that look
 * elsewhere.
 *
 * Should: leave the image's own authorities as they are, and the file where nobody can change it.
 * Must not: follow a link of the image's, wait for what is no file, or look at what is in it.
 */
#include "nsbox/stage.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "nsbox/child.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

#define LIST_MAX (UINT64_C(4) << 20) /* bytes of an image's own */
#define READABLE (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

/* Debian, Alpine; Fedora; SUSE. The first that is there is what the image trusts. */
static const char *const lists[] = {
	"etc/ssl/certs/ca-certificates.crt",
	"etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"etc/pki/tls/certs/ca-bundle.crt",
	"etc/ssl/ca-bundle.pem",
	"etc/ssl/cert.pem",
};

/* A descriptor; -ENOENT where there is none. */
static int open_list(const struct child *c, const char *path, int flags)
{
	auto_close int fd =
		sys_openat2(c->new_root, path, flags, 0,
			    RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
	struct stat st;

	if (fd < 0)
		return errno == ENOTDIR || errno == ELOOP ? -ENOENT : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) ? take_fd(&fd) : -ENOENT;
}

static int copy(int from, int to)
{
	char buf[16384];
	uint64_t total = 0;
	int r = 0;

	while (r == 0) {
		ssize_t n = read(from, buf, sizeof(buf));

		if (n <= 0)
			return n < 0 ? -errno : write_full(to, "\n", 1);
		total += (uint64_t)n;
		r = total > LIST_MAX ? -EFBIG : write_full(to, buf, (size_t)n);
	}
	return r;
}

static int copy_list(struct child *c, int to, struct nsbox_error *err)
{
	for (unsigned i = 0; i < ARRAY_SIZE(lists); i++) {
		auto_close int from = open_list(c, lists[i], O_RDONLY | O_NONBLOCK);
		int r = from < 0 ? from : copy(from, to);

		if (r == -ENOENT)
			continue;
		return r < 0 ? nsbox_fail(err, NSBOX_E_SETUP, r, "copy the image's '/%s'", lists[i])
			     : 0;
	}
	return 0;
}

static int make_file(struct child *c, const struct mount_op *op, int dir, struct nsbox_error *err)
{
	const unsigned char *data = blob_get(c->plan, SEC_DATA, 1, NULL);
	auto_close int fd = openat(dir, TRUST_FILE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	int r;

	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "make the list of certificates");
	r = copy_list(c, fd, err);
	if (r < 0)
		return r;
	r = write_full(fd, data + op->data, op->size);
	if (r < 0 || fchmod(fd, 0644) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, r < 0 ? r : errno,
				  "write the list of certificates");
	return 0;
}

/* Where the image's programs look by themselves. */
static int cover_lists(struct child *c, const char *file, struct nsbox_error *err)
{
	for (unsigned i = 0; i < ARRAY_SIZE(lists); i++) {
		auto_close int to = open_list(c, lists[i], O_PATH);
		int r = to < 0 ? to : clone_tree(c->new_root, file, false, READABLE, to);

		if (r < 0 && r != -ENOENT)
			return nsbox_fail(err, NSBOX_E_SETUP, r, "cover the image's '/%s'",
					  lists[i]);
	}
	return 0;
}

int trust_op(struct child *c, const struct mount_op *op, struct nsbox_error *err)
{
	static const char *const opts[] = { "size", "5m", "nr_inodes", "8", "mode", "0755", NULL };
	const char *dst = blob_get_str(c->plan, op->dst);
	auto_close int to = open_target(c->new_root, dst);
	auto_close int fd =
		new_mount("tmpfs", opts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	auto_close int top = fd < 0 ? -1 : openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char file[4096];
	int r;

	if (to < 0 || top < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "make a place for certificates, '%s'",
				  dst);
	r = make_file(c, op, top, err);
	if (r < 0)
		return r;
	r = set_mount_attr(fd, MOUNT_ATTR_RDONLY, false);
	if (r == 0)
		r = attach_mount(fd, to);
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, r, "mount certificates on '%s'", dst);
	nsbox_format(file, sizeof(file), "%s/" TRUST_FILE, dst + 1);
	return cover_lists(c, file, err);
}
