/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in a skeleton: the directories of a root, a small /etc of its own, the Python runner,
 * and the copies that host_image.c lists. Directories 0755, files 0644: the payload is "others"
 * here, and everything in a skeleton may be read by everyone.
 *
 * The users are those of the sandbox and not the host's. A lookup of a name fails at once where
 * nothing listens on the loopback address: the kernel answers "connection refused", without any
 * time-out (measured: 2 ms for a getaddrinfo() of a fresh Python; one attempt instead of two saves
 * half of it).
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "nsbox/plan_build.h"
#include "nsbox/util.h"
#include "overlay/internal.h"

static const char *const dir_table[] = {
	/* clang-format off */
	"etc", "usr", "proc", "dev", "sys", "sys/devices", "sys/devices/system",
	"sys/devices/system/cpu", "tmp", "run", "run/lock", "home", "home/sandbox", "root", "srv",
	"mnt", "media", "opt", "opt/nsbox", "workspace", "skills",
	"var", "var/cache", "var/lib", "var/log", "var/spool", "var/tmp",
	".nsbox",
	/* clang-format on */
};

static const struct {
	const char *path, *target;
} link_table[] = {
	{ "var/run", "../run" },
	{ "var/lock", "../run/lock" },
	{ "etc/mtab", "../proc/self/mounts" },
};

#define LOGIN_SHELL_TEXT                                                                           \
	"# A login shell keeps the environment that the run was given.\n"                          \
	"if [ -z \"$PATH\" ]; then\n"                                                              \
	"\tPATH=/usr/local/bin:/usr/bin:/bin\n"                                                    \
	"\texport PATH\n"                                                                          \
	"fi\n"

static const struct {
	const char *path;
	mode_t mode;
	const char *text;
	bool imported; /* imported images get it as well */
} file_table[] = {
	/* clang-format off */
	{ "etc/passwd", 0644,
	  "root:x:0:0:root:/root:/bin/sh\n"
	  "sandbox:x:1000:1000:sandbox:/home/sandbox:/bin/sh\n"
	  "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n" },
	{ "etc/group", 0644,
	  "root:x:0:\n"
	  "tty:x:5:\n"
	  "sandbox:x:1000:\n"
	  "nogroup:x:65534:\n" },
	{ "etc/nsswitch.conf", 0644,
	  "passwd: files\n"
	  "group: files\n"
	  "shadow: files\n"
	  "hosts: files dns\n"
	  "networks: files\n"
	  "protocols: files\n"
	  "services: files\n"
	  "ethers: files\n"
	  "rpc: files\n" },
	{ "etc/hosts", 0644,
	  "127.0.0.1 localhost sandbox\n"
	  "::1 localhost ip6-localhost ip6-loopback\n", true },
	{ "etc/resolv.conf", 0644,
	  "# No name server is reachable: a lookup is refused at once.\n"
	  "nameserver 127.0.0.1\n"
	  "options timeout:1 attempts:1\n", true },
	{ "etc/hostname", 0644, "sandbox\n", true },
	{ "etc/profile", 0644, LOGIN_SHELL_TEXT },
	{ "etc/bash.bashrc", 0644, "[ -z \"$PS1\" ] || PS1='\\u@\\h:\\w\\$ '\n" },
	/* Landlock rules leave /.nsbox out; the witness tries to read this. */
	{ ".nsbox/witness", 0444, "witness\n", true },
	/* clang-format on */
};

void skeleton_hash_template(struct hash128 *h)
{
	for (size_t i = 0; i < ARRAY_SIZE(dir_table); i++)
		hash128_add_str(h, dir_table[i]);
	for (size_t i = 0; i < ARRAY_SIZE(link_table); i++) {
		hash128_add_str(h, link_table[i].path);
		hash128_add_str(h, link_table[i].target);
	}
	for (size_t i = 0; i < ARRAY_SIZE(file_table); i++) {
		hash128_add_str(h, file_table[i].path);
		hash128_add_str(h, file_table[i].text);
		hash128_add(h, &file_table[i].mode, sizeof(file_table[i].mode));
	}
	hash128_add(h, runner_py_start, (size_t)runner_py_size);
}

static int fail(struct nsbox_error *err, int errnum, const char *path)
{
	return nsbox_fail(err, NSBOX_E_IO, errnum, "skeleton: create '/%s'", path);
}

static int make_dir(int dir_fd, const char *path, struct nsbox_error *err)
{
	if (mkdirat(dir_fd, path, 0755) < 0)
		return errno == EEXIST ? 0 : fail(err, errno, path);
	/* No link can be there: the tree is new and nobody else may write it. */
	return fchmodat(dir_fd, path, 0755, 0) < 0 ? fail(err, errno, path) : 0;
}

/* The table of copies may name a file whose directory is nothing else's business. */
static int make_parents(int dir_fd, const char *path, struct nsbox_error *err)
{
	char p[PATH_MAX];

	nsbox_format(p, sizeof(p), "%s", path);
	for (char *s = strchr(p, '/'); s; s = strchr(s + 1, '/')) {
		int r;

		*s = '\0';
		r = make_dir(dir_fd, p, err);
		*s = '/';
		if (r < 0)
			return r;
	}
	return 0;
}

static int create(int dir_fd, const char *path, mode_t mode, int *ret_fd, struct nsbox_error *err)
{
	auto_close int fd =
		openat(dir_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0 || fchmod(fd, mode) < 0)
		return fail(err, errno, path);
	*ret_fd = take_fd(&fd);
	return 0;
}

static int make_file(int dir_fd, const char *path, mode_t mode, const void *data, size_t len,
		     struct nsbox_error *err)
{
	auto_close int fd = -1;
	int r = create(dir_fd, path, mode, &fd, err);

	if (r < 0)
		return r;
	r = write_full(fd, data, len);
	return r < 0 ? fail(err, -r, path) : 0;
}

/*
 * The file is judged again after it was opened: between the scan and now it may have become
 * something that others may not read. A change of its content shows in the second hash.
 */
static int copy_file(int dir_fd, const struct source *s, struct nsbox_error *err)
{
	auto_close int in = -1, out = -1;
	char src[PATH_MAX];
	struct stat st;
	int r;

	nsbox_format(src, sizeof(src), "/%s", s->path);
	in = open(s->text ? s->text : src, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (in < 0 || fstat(in, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "skeleton: open '%s'", src);
	if (!S_ISREG(st.st_mode) || !(st.st_mode & S_IROTH))
		return nsbox_fail(err, NSBOX_E_IO, EAGAIN, "skeleton: '%s' changed", src);
	r = create(dir_fd, s->path, st.st_mode & 0111 ? 0755 : 0644, &out, err);
	for (uint64_t left = s->size; r == 0 && left;) {
		ssize_t n = sendfile(out, in, NULL, (size_t)left);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return fail(err, n ? errno : ENODATA, s->path);
		left -= (uint64_t)n;
	}
	return r;
}

static int build_source(int dir_fd, const struct source *s, struct nsbox_error *err)
{
	int r = make_parents(dir_fd, s->path, err);

	if (r < 0)
		return r;
	switch (s->kind) {
	case SOURCE_DIR:
	case SOURCE_BIND: return make_dir(dir_fd, s->path, err);
	case SOURCE_FILE: return copy_file(dir_fd, s, err);
	case SOURCE_LINK:
		if (symlinkat(s->text, dir_fd, s->path) < 0)
			return fail(err, errno, s->path);
		return 0;
	}
	return fail(err, EINVAL, s->path);
}

static int build_template(int dir_fd, struct nsbox_error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(dir_table); i++)
		r = make_dir(dir_fd, dir_table[i], err);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(link_table); i++) {
		if (symlinkat(link_table[i].target, dir_fd, link_table[i].path) < 0)
			r = fail(err, errno, link_table[i].path);
	}
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(file_table); i++)
		r = make_file(dir_fd, file_table[i].path, file_table[i].mode, file_table[i].text,
			      strlen(file_table[i].text), err);
	return r;
}

int skeleton_build(int dir_fd, const struct sources *src, struct nsbox_error *err)
{
	int r = build_template(dir_fd, err);

	if (r == 0)
		r = make_file(dir_fd, "opt/nsbox/runner.py", 0644, runner_py_start,
			      (size_t)runner_py_size, err);
	for (size_t i = 0; r == 0 && i < src->count; i++)
		r = build_source(dir_fd, &src->item[i], err);
	return r;
}

void skeleton_files(struct blob_builder *b)
{
	char dst[PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(file_table); i++) {
		if (!file_table[i].imported)
			continue;
		nsbox_format(dst, sizeof(dst), "/%s", file_table[i].path);
		blob_file(b, dst, 0, file_table[i].mode, file_table[i].text,
			  strlen(file_table[i].text));
	}
	blob_file(b, "/opt/nsbox/runner.py", 0, 0644, runner_py_start, (size_t)runner_py_size);
}
