/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbs on single files.
 *
 * The helper has the payload's ids, mounts, Landlock domain and filter, so a path means what it
 * means to a command and reaches no further. Two things a command could do it must not: wait
 * (opens are non-blocking and only regular files are read or replaced) and show or reopen what it
 * holds itself, the owner's descriptors (no link of the kernel's is followed, nothing in a procfs
 * is opened).
 */
#include "nsbox/files_verbs.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>

#include "nsbox/files_child.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

#define COPY_CHUNK (32 * 1024)

int verb_fail(const char *what, const char *path, int errnum, struct nsbox_error *err)
{
	const char *hint = "";
	char show[200];

	if (errnum == ENOSPC || errnum == EDQUOT)
		hint = " (the sandbox's disk is full: resources.disk)";
	else if (errnum == EFBIG)
		hint = " (larger than the sandbox's files may be: resources.fileSize)";
	nsbox_format(show, sizeof(show), "%s", path);
	files_clean_text(show);
	return nsbox_fail(err, NSBOX_E_IO, errnum, "%s '%s'%s", what, show, hint);
}

/* ------------------------------------------------------------------ paths */

int verb_open_dir(const char *path)
{
	return files_open(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0, 0);
}

/* mkdir -p of what precedes the last component; every step is opened, so that none of them can be
 * a link of the kernel's. */
static int make_parents(const char *path, size_t len)
{
	auto_close int at =
		files_open(AT_FDCWD, *path == '/' ? "/" : ".", O_PATH | O_DIRECTORY, 0, 0);
	char name[FILES_NAME_MAX + 1];

	for (size_t i = 0; at >= 0 && i < len;) {
		size_t n = MIN(strcspn(path + i, "/"), len - i);
		int next, r;

		if (n >= sizeof(name))
			return -ENAMETOOLONG;
		if (n) {
			memcpy(name, path + i, n);
			name[n] = '\0';
			r = mkdirat(at, name, 0755) < 0 && errno != EEXIST ? -errno : 0;
			next = files_open(at, name, O_PATH | O_DIRECTORY, 0, 0);
			if (next == -ENOENT && r < 0)
				next = r; /* why it is not there */
			close_fd(&at);
			at = next;
		}
		i += n + 1;
	}
	return at < 0 ? at : take_fd(&at);
}

struct place {
	int dir;
	char name[FILES_NAME_MAX + 1];
};

/* The directory that path is in, and its last component. */
static int find_place(const char *path, bool parents, struct place *ret)
{
	char above[FILES_PATH_MAX];
	size_t len = strlen(path), at;

	while (len > 1 && path[len - 1] == '/')
		len--;
	for (at = len; at > 0 && path[at - 1] != '/';)
		at--;
	if (len - at > FILES_NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(ret->name, path + at, len - at);
	ret->name[len - at] = '\0';
	if (!ret->name[0] || !strcmp(ret->name, ".") || !strcmp(ret->name, ".."))
		return -EINVAL; /* it names no entry that could be made, moved or removed */
	memcpy(above, path, at);
	above[at] = '\0';
	ret->dir = files_open(AT_FDCWD, at ? above : ".", O_PATH | O_DIRECTORY, 0, 0);
	if (ret->dir == -ENOENT && parents)
		ret->dir = make_parents(path, at);
	return ret->dir < 0 ? ret->dir : 0;
}

/* ------------------------------------------------------------------ what a thing is */

static uint32_t type_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG: return NSBOX_FILE_TYPE_REGULAR;
	case S_IFDIR: return NSBOX_FILE_TYPE_DIRECTORY;
	case S_IFLNK: return NSBOX_FILE_TYPE_SYMLINK;
	default: return NSBOX_FILE_TYPE_OTHER;
	}
}

static int send_info(struct verb *v, const struct stat *st, const char *target, size_t len,
		     const char *path, struct nsbox_error *err)
{
	char buf[sizeof(struct nsbox_file_info) + FILES_TEXT_MAX];
	const struct nsbox_file_info info = {
		.type = type_of(st->st_mode),
		.mode = st->st_mode & 07777,
		.size = (uint64_t)st->st_size,
		.mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
		.links = (uint32_t)st->st_nlink,
	};

	memcpy(buf, &info, sizeof(info));
	memcpy(buf + sizeof(info), target, len);
	v->send.count.frames++;
	return nsbox_files_put_frame(v->send.fd, NSBOX_FRAME_INFO, *path ? path : NULL, 0, buf,
				     sizeof(info) + len, err);
}

int verb_send_info(struct verb *v, int dir_fd, const char *name, const char *path,
		   struct nsbox_error *err)
{
	char target[FILES_TEXT_MAX];
	ssize_t len = 0;
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (S_ISLNK(st.st_mode))
		len = readlinkat(dir_fd, name, target, sizeof(target));
	return send_info(v, &st, target, len < 0 ? 0 : (size_t)len, path, err);
}

static int verb_stat(struct verb *v, struct nsbox_error *err)
{
	bool follow = v->f->flags & NSBOX_FILE_FOLLOW;
	auto_close int fd = files_open(AT_FDCWD, v->path, O_PATH | (follow ? 0 : O_NOFOLLOW), 0, 0);
	char target[FILES_TEXT_MAX];
	ssize_t len = 0;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return verb_fail("look at", v->path, fd < 0 ? -fd : errno, err);
	if (S_ISLNK(st.st_mode))
		len = readlinkat(fd, "", target, sizeof(target));
	return send_info(v, &st, target, len < 0 ? 0 : (size_t)len, "", err);
}

/* ------------------------------------------------------------------ get */

/* Open a file to be read: regular, and not waited for. */
static int open_regular(const char *path, struct stat *st, struct nsbox_error *err)
{
	auto_close int fd = files_open(AT_FDCWD, path, O_RDONLY, 0, 0);
	char show[200];

	if (fd < 0 || fstat(fd, st) < 0)
		return verb_fail("open", path, fd < 0 ? -fd : errno, err);
	if (S_ISDIR(st->st_mode))
		return verb_fail("read", path, EISDIR, err);
	if (S_ISREG(st->st_mode))
		return take_fd(&fd);
	nsbox_format(show, sizeof(show), "%s", path);
	files_clean_text(show);
	return nsbox_fail(err, NSBOX_E_INVALID, 0, "read '%s': not a regular file", show);
}

static int verb_get(struct verb *v, struct nsbox_error *err)
{
	struct stat st;
	auto_close int fd = open_regular(v->path, &st, err);
	uint64_t size, n;
	int r;

	if (fd < 0)
		return fd;
	size = (uint64_t)st.st_size;
	n = v->f->offset < size ? MIN(size - v->f->offset, v->f->length) : 0;
	if (n > v->f->total_bytes)
		return nsbox_fail(err, NSBOX_E_LIMIT, 0,
				  "%llu bytes are more than the %llu that are handed out at once: "
				  "ask for ranges",
				  (unsigned long long)n, (unsigned long long)v->f->total_bytes);
	if (lseek(fd, (off_t)v->f->offset, SEEK_SET) < 0)
		return verb_fail("read", v->path, errno, err);
	r = send_info(v, &st, "", 0, "", err);
	if (r == 0)
		r = files_put_header(v->send.fd, NSBOX_FRAME_FILE, "content", st.st_mode & 0777, n,
				     err);
	return r < 0 ? r : files_send_content(&v->send, fd, "content", n, err);
}

/* ------------------------------------------------------------------ put */

/*
 * The file that is being written, for the handler of TERM: it is not to stay behind. Of the helper,
 * a process that carries out one verb.
 */
static struct {
	volatile sig_atomic_t dir;
	char name[48];
} part = { .dir = -1 };

static void on_term(int sig)
{
	if (part.dir >= 0)
		unlinkat(part.dir, part.name, 0);
	_exit(1);
}

void files_child_on_term(void)
{
	const struct sigaction term = { .sa_handler = on_term };
	const struct sigaction ignore = { .sa_handler = SIG_IGN };

	sigaction(SIGTERM, &term, NULL);
	sigaction(SIGPIPE, &ignore, NULL); /* both are errors of write then */
	sigaction(SIGXFSZ, &ignore, NULL);
}

static int copy(int from, int to, uint64_t length, const char *path, struct nsbox_error *err)
{
	const bool known = length != NSBOX_FILE_SIZE_UNKNOWN;
	char buf[COPY_CHUNK];

	for (uint64_t left = length; left;) {
		ssize_t n = read(from, buf, (size_t)MIN(left, (uint64_t)sizeof(buf)));
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return nsbox_fail(err, NSBOX_E_IO, errno, "read what is to be put");
		if (n == 0 && known)
			return nsbox_fail(err, NSBOX_E_PROTOCOL, EPIPE,
					  "what is to be put ends early: %llu of %llu bytes",
					  (unsigned long long)(length - left),
					  (unsigned long long)length);
		if (n == 0)
			break;
		r = write_full(to, buf, (size_t)n);
		if (r < 0)
			return verb_fail("write", path, -r, err);
		left -= (uint64_t)n;
	}
	return 0;
}

static int rename_to(int from_dir, const char *from, const struct place *to, bool exclusive)
{
	return syscall(SYS_renameat2, from_dir, from, to->dir, to->name,
		       exclusive ? RENAME_NOREPLACE : 0) < 0
		       ? -errno
		       : 0;
}

/* Write `from` beside its place and put it there in one step. */
static int put_from(int from, uint64_t length, const struct place *to, uint32_t mode,
		    bool exclusive, const char *path, struct nsbox_error *err)
{
	auto_close int fd = -1;
	int r;

	nsbox_format(part.name, sizeof(part.name), ".nsbox-put.%d", getpid());
	unlinkat(to->dir, part.name, 0); /* of one that was killed and had our number */
	part.dir = to->dir;
	fd = sys_openat2(to->dir, part.name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600,
			 FILES_RESOLVE);
	if (fd < 0) {
		part.dir = -1; /* what is there is not ours */
		return verb_fail("create", path, errno, err);
	}
	r = copy(from, fd, length, path, err);
	if (r == 0 && fchmod(fd, mode) < 0)
		r = verb_fail("set the mode of", path, errno, err);
	if (r == 0) {
		r = rename_to(to->dir, part.name, to, exclusive);
		if (r < 0)
			r = verb_fail("put", path, -r, err);
	}
	if (r < 0)
		unlinkat(to->dir, part.name, 0);
	part.dir = -1;
	return r;
}

/* What may be replaced, and the mode that a new content keeps. */
static int judge_old(const struct verb *v, const struct place *to, uint32_t *mode)
{
	struct stat st;

	*mode = v->f->mode == NSBOX_FILE_MODE_DEFAULT ? 0644 : v->f->mode;
	if (fstatat(to->dir, to->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (v->f->flags & NSBOX_FILE_EXCLUSIVE)
		return -EEXIST;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	if (S_ISREG(st.st_mode) && v->f->mode == NSBOX_FILE_MODE_DEFAULT)
		*mode = st.st_mode & 0777;
	return 0;
}

static int verb_put(struct verb *v, struct nsbox_error *err)
{
	struct place to = { .dir = -1 };
	uint32_t mode = 0;
	int r;

	if (v->in < 0)
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "nothing to put");
	r = find_place(v->path, v->f->flags & NSBOX_FILE_PARENTS, &to);
	if (r == 0)
		r = judge_old(v, &to, &mode);
	if (r < 0)
		r = verb_fail("put", v->path, -r, err);
	else
		r = put_from(v->in, v->f->length, &to, mode, v->f->flags & NSBOX_FILE_EXCLUSIVE,
			     v->path, err);
	if (r == 0 && v->send.fd >= 0)
		r = verb_send_info(v, to.dir, to.name, "", err);
	close_fd(&to.dir);
	return r;
}

/* ------------------------------------------------------------------ mkdir, remove, move */

static int verb_mkdir(struct verb *v, struct nsbox_error *err)
{
	bool parents = v->f->flags & NSBOX_FILE_PARENTS;
	uint32_t mode = v->f->mode == NSBOX_FILE_MODE_DEFAULT ? 0755 : v->f->mode;
	struct place at = { .dir = -1 };
	struct stat st;
	int r = find_place(v->path, parents, &at);

	if (r == 0 && mkdirat(at.dir, at.name, mode) < 0) {
		r = -errno;
		if (r == -EEXIST && parents && fstatat(at.dir, at.name, &st, 0) == 0 &&
		    S_ISDIR(st.st_mode))
			r = 0;
	}
	close_fd(&at.dir);
	return r < 0 ? verb_fail("make the directory", v->path, -r, err) : 0;
}

static int verb_remove(struct verb *v, struct nsbox_error *err)
{
	struct place at = { .dir = -1 };
	int r = find_place(v->path, false, &at);

	if (r == 0 && (v->f->flags & NSBOX_FILE_RECURSIVE))
		r = files_remove_tree(at.dir, at.name);
	else if (r == 0 && unlinkat(at.dir, at.name, 0) < 0)
		r = errno == EISDIR && unlinkat(at.dir, at.name, AT_REMOVEDIR) == 0 ? 0 : -errno;
	close_fd(&at.dir);
	return r < 0 ? verb_fail("remove", v->path, -r, err) : 0;
}

/* Between file systems a file is copied, a directory is not. */
static int move_across(struct verb *v, const struct place *from, const struct place *to,
		       struct nsbox_error *err)
{
	auto_close int fd = files_open(from->dir, from->name, O_RDONLY | O_NOFOLLOW, 0, 0);
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		verb_fail("move", v->path, EXDEV, err);
		nsbox_error_prefix(err, "only files move between file systems");
		return -EXDEV;
	}
	r = put_from(fd, (uint64_t)st.st_size, to, st.st_mode & 0777,
		     v->f->flags & NSBOX_FILE_EXCLUSIVE, v->target, err);
	if (r == 0 && unlinkat(from->dir, from->name, 0) < 0)
		r = verb_fail("remove", v->path, errno, err);
	return r;
}

static int verb_move(struct verb *v, struct nsbox_error *err)
{
	struct place from = { .dir = -1 }, to = { .dir = -1 };
	int r = find_place(v->path, false, &from);

	if (r < 0) {
		r = verb_fail("move", v->path, -r, err);
	} else {
		r = find_place(v->target, v->f->flags & NSBOX_FILE_PARENTS, &to);
		if (r == 0)
			r = rename_to(from.dir, from.name, &to, v->f->flags & NSBOX_FILE_EXCLUSIVE);
		if (r == -EXDEV)
			r = move_across(v, &from, &to, err);
		else if (r < 0)
			r = verb_fail(r == -ENOENT ? "move" : "move to",
				      r == -ENOENT ? v->path : v->target, -r, err);
	}
	close_fd(&from.dir);
	close_fd(&to.dir);
	return r;
}

/* ------------------------------------------------------------------ upload */

static int verb_upload(struct verb *v, struct nsbox_error *err)
{
	const struct nsbox_files_limits lim = { v->f->total_bytes, v->f->files };
	char base[2 * FILES_PATH_MAX];
	int len;

	if (v->in < 0)
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "nothing to unpack");
	len = *v->into == '/' ? nsbox_format(base, sizeof(base), "%s", v->into)
			      : nsbox_format(base, sizeof(base), "%s/%s", v->below, v->into);
	while (len > 1 && base[len - 1] == '/')
		base[--len] = '\0';
	return files_child_unpack(v->in, v->root_fd, &lim, base, err);
}

/* ------------------------------------------------------------------ dispatch */

static const struct {
	verb_fn *run;
	bool out; /* answers with a stream */
} verbs[NSBOX_FILE_VERB_MAX] = {
	/* clang-format off */
	[NSBOX_FILE_STAT]     = { verb_stat,     true },
	[NSBOX_FILE_LIST]     = { verb_list,     true },
	[NSBOX_FILE_GET]      = { verb_get,      true },
	[NSBOX_FILE_PUT]      = { verb_put,      false },
	[NSBOX_FILE_MKDIR]    = { verb_mkdir,    false },
	[NSBOX_FILE_REMOVE]   = { verb_remove,   false },
	[NSBOX_FILE_MOVE]     = { verb_move,     false },
	[NSBOX_FILE_UPLOAD]   = { verb_upload,   false },
	[NSBOX_FILE_DOWNLOAD] = { verb_download, true },
	[NSBOX_FILE_GLOB]     = { verb_glob,     true },
	[NSBOX_FILE_GREP]     = { verb_grep,     true },
	/* clang-format on */
};

int files_child_verb(const struct blob *b, const struct verb_paths *paths, int root_fd, int in,
		     int out, struct nsbox_error *err)
{
	const struct verb_fixed *f = blob_fixed(b, struct verb_fixed);
	const struct nsbox_files_limits lim = { f->total_bytes, f->files };
	struct verb v = {
		.f = f,
		.path = paths->path,
		.target = paths->target,
		.pattern = blob_get_str(b, f->pattern),
		.text = blob_get_str(b, f->text),
		.below = paths->below,
		.into = paths->into,
		.root_fd = root_fd,
		.in = in,
		.send = files_sender(out, &lim),
	};
	struct nsbox_error why = { 0 };
	int r;

	if (out < 0 && verbs[f->verb].out)
		r = nsbox_fail(&why, NSBOX_E_INVALID, 0, "nowhere to send the answer to");
	else if (chdir(paths->workdir) < 0 && (*v.path != '/' || (*v.target && *v.target != '/')))
		r = verb_fail("enter", paths->workdir, errno, &why);
	else
		r = verbs[f->verb].run(&v, &why);
	if (out >= 0)
		return files_send_end(&v.send, r, &why, err);
	if (r < 0 && err)
		*err = why;
	return r;
}
