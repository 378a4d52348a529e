/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collecting outputs inside the sandbox.
 *
 * The tree that is walked was made by hostile code, and in a session that code may still run and
 * change it. So: nothing is opened by a path of more than one component, nothing through a link;
 * a file is opened only after lstat said that it is regular (opening a device or a FIFO can have
 * effects) and judged again by its descriptor; depth, entries, files and bytes are bounded. The
 * walk stays on the file system it starts on: "**" below "/" does not read /proc.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include "nsbox/files_child.h"
#include "nsbox/files_format.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

#define DEPTH_MAX   40
#define ENTRIES_MAX 200000
#define DENTS_SIZE  2048 /* a name of 255 bytes takes 280 */
#define SEND_CHUNK  (16 * 1024)

struct dirent64_raw {
	uint64_t ino;
	int64_t off;
	uint16_t reclen;
	uint8_t type;
	char name[];
};

struct level {
	int fd;
	size_t path_len; /* of this directory within the path buffer */
	size_t at, have; /* in dents */
	_Alignas(8) char dents[DENTS_SIZE];
};

struct collect {
	const struct files_rule *rules;
	unsigned n;
	int out_fd;
	struct nsbox_files_limits lim;
	struct files_count count;
	uint32_t taken[FILES_RULES_MAX];
	uint64_t entries;
	dev_t dev;
	unsigned depth; /* levels in use */
	struct level level[DEPTH_MAX];
	char path[FILES_PATH_MAX];
};

/* ------------------------------------------------------------------ sending */

static int note(struct collect *c, const char *text, struct nsbox_error *err)
{
	if (c->count.frames >= c->lim.files)
		return 0;
	c->count.frames++;
	return nsbox_files_put_frame(c->out_fd, NSBOX_FRAME_NOTE, c->path, 0, text, strlen(text),
				     err);
}

static int put_zeros(int fd, uint64_t left, struct nsbox_error *err)
{
	static const char zeros[512];

	while (left) {
		size_t n = (size_t)MIN(left, (uint64_t)sizeof(zeros));
		int r = write_full(fd, zeros, n);

		if (r < 0)
			return nsbox_fail(err, NSBOX_E_IO, -r, "send the outputs");
		left -= n;
	}
	return 0;
}

/* The header said `size`: a file that shrinks meanwhile is filled up and a note says so. */
static int send_content(struct collect *c, int fd, uint64_t size, struct nsbox_error *err)
{
	char buf[SEND_CHUNK];
	int r = 0;

	while (size) {
		ssize_t n = read(fd, buf, (size_t)MIN(size, (uint64_t)sizeof(buf)));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			r = put_zeros(c->out_fd, size, err);
			return r < 0 ? r : note(c, "changed while it was read", err);
		}
		r = write_full(c->out_fd, buf, (size_t)n);
		if (r < 0)
			return nsbox_fail(err, NSBOX_E_IO, -r, "send the outputs");
		size -= (uint64_t)n;
	}
	return 0;
}

/* Why a file of this size is not sent, or NULL. */
static const char *over_limit(const struct collect *c, unsigned rule, uint64_t size)
{
	const struct files_rule *r = &c->rules[rule];

	if (r->max_bytes && size > r->max_bytes)
		return "larger than the output rule allows";
	if (r->max_files && c->taken[rule] >= r->max_files)
		return "more files than the output rule allows";
	if (size > c->lim.total_bytes - c->count.bytes)
		return "the outputs are larger than allowed, together";
	return NULL;
}

static int send_file(struct collect *c, int dir_fd, const char *name, unsigned rule,
		     struct nsbox_error *err)
{
	auto_close int fd =
		openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	const char *why;
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return note(c, "cannot be read", err);
	if (!S_ISREG(st.st_mode))
		return note(c, "not a regular file", err);
	why = over_limit(c, rule, (uint64_t)st.st_size);
	if (why)
		return note(c, why, err);
	c->taken[rule]++;
	c->count.frames++;
	c->count.bytes += (uint64_t)st.st_size;
	r = files_put_header(c->out_fd, NSBOX_FRAME_FILE, c->path, st.st_mode & 0777,
			     (uint64_t)st.st_size, err);
	return r < 0 ? r : send_content(c, fd, (uint64_t)st.st_size, err);
}

/* ------------------------------------------------------------------ walking */

static int push(struct collect *c, int fd, size_t path_len)
{
	struct level *l;

	if (c->depth == DEPTH_MAX)
		return -ELOOP;
	l = &c->level[c->depth++];
	l->fd = fd;
	l->path_len = path_len;
	l->at = l->have = 0;
	return 0;
}

static void pop(struct collect *c)
{
	close_fd(&c->level[--c->depth].fd);
}

/* The next name of the innermost directory, or NULL at its end. */
static const char *next_name(struct level *l)
{
	struct dirent64_raw *d;

	if (l->at >= l->have) {
		long n = syscall(SYS_getdents64, l->fd, l->dents, sizeof(l->dents));

		if (n <= 0)
			return NULL;
		l->have = (size_t)n;
		l->at = 0;
	}
	d = (struct dirent64_raw *)(l->dents + l->at);
	l->at += d->reclen;
	return d->name;
}

static bool wanted_below(const struct collect *c)
{
	for (unsigned i = 0; i < c->n; i++) {
		if (files_glob_may_contain(c->rules[i].glob, c->path))
			return true;
	}
	return false;
}

static int visit_dir(struct collect *c, int dir_fd, const char *name, size_t len,
		     struct nsbox_error *err)
{
	auto_close int fd = -1;
	struct stat st;

	if (!wanted_below(c))
		return 0;
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return note(c, "directory that cannot be read", err);
	if (st.st_dev != c->dev)
		return note(c, "another file system", err);
	if (push(c, fd, len) < 0)
		return note(c, "nested too deeply", err);
	take_fd(&fd); /* the level's */
	return 0;
}

static int visit_file(struct collect *c, int dir_fd, const char *name, mode_t mode,
		      struct nsbox_error *err)
{
	for (unsigned i = 0; i < c->n; i++) {
		if (!files_glob_match(c->rules[i].glob, c->path))
			continue;
		/* The last frame of the limit says that there is more. */
		if (c->lim.files - c->count.frames <= 1)
			return note(c, "more files than allowed: this and others are left out",
				    err);
		if (S_ISLNK(mode))
			return note(c, "symbolic link", err);
		if (!S_ISREG(mode))
			return note(c, "not a regular file", err);
		return send_file(c, dir_fd, name, i, err);
	}
	return 0;
}

static int visit(struct collect *c, struct level *l, const char *name, struct nsbox_error *err)
{
	size_t at = l->path_len, len = strlen(name);
	struct stat st;

	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return 0;
	if (++c->entries > ENTRIES_MAX)
		return nsbox_fail(err, NSBOX_E_LIMIT, 0,
				  "more than %d entries where outputs are looked for", ENTRIES_MAX);
	if (at + 1 + len >= sizeof(c->path))
		return 0; /* beyond PATH_MAX: the frame could not say it */
	if (at)
		c->path[at++] = '/';
	memcpy(c->path + at, name, len + 1);
	if (fstatat(l->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0; /* gone meanwhile */
	if (S_ISDIR(st.st_mode))
		return visit_dir(c, l->fd, name, at + len, err);
	return visit_file(c, l->fd, name, st.st_mode, err);
}

static int walk(struct collect *c, struct nsbox_error *err)
{
	while (c->depth) {
		struct level *l = &c->level[c->depth - 1];
		const char *name = next_name(l);
		int r;

		if (!name) {
			pop(c);
			continue;
		}
		r = visit(c, l, name, err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int open_base(struct collect *c, int root_fd, const char *base, struct nsbox_error *err)
{
	const char *below = base + (base[0] == '/');
	auto_close int fd =
		sys_openat2(root_fd, below[0] ? below : ".", O_RDONLY | O_DIRECTORY, 0,
			    RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "look for outputs in '%s'", base);
	c->dev = st.st_dev;
	return push(c, take_fd(&fd), 0);
}

int files_child_collect(int root_fd, const char *base, const struct files_rule *rules, unsigned n,
			int out_fd, const struct nsbox_files_limits *lim, struct nsbox_error *err)
{
	struct collect c;
	struct nsbox_error local = { 0 };
	int r;

	/* Not by an initialiser: that would clear a hundred kilobytes of buffers. */
	c.rules = rules;
	c.n = MIN(n, FILES_RULES_MAX);
	c.out_fd = out_fd;
	c.lim = lim ? *lim : NSBOX_FILES_LIMITS_DEFAULT;
	c.count = (struct files_count){ 0 };
	memset(c.taken, 0, sizeof(c.taken));
	c.entries = 0;
	c.depth = 0;
	c.path[0] = '\0';

	r = n > FILES_RULES_MAX ? nsbox_fail(&local, NSBOX_E_LIMIT, 0, "more than %d output rules",
					     FILES_RULES_MAX)
				: open_base(&c, root_fd, base, &local);
	if (r == 0)
		r = walk(&c, &local);
	while (c.depth)
		pop(&c);
	if (r == 0)
		return nsbox_files_end(out_fd, err);
	files_put_error(out_fd, &local, NULL); /* the caller hears of it in any case */
	if (err)
		*err = local;
	return r;
}
