/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walking the upper layer (upper.h).
 *
 * overlayfs keeps in it: a copy of each file and directory that was changed (with an attribute that
 * names its origin), whiteouts (character devices 0:0) for what was removed, and an attribute on
 * directories that hide a lower one. What nsbox itself put there before the programs started is
 * told by its time of change, which no program can set back.
 */
#include "nsbox/upper.h"

#include <fcntl.h>
#include <string.h>
#include <sys/xattr.h>

#include "nsbox/files_walk.h"
#include "nsbox/layer_stream.h"
#include "nsbox/util.h"

#define CHUNK	   32768
#define OVL_ORIGIN OVL_PREFIX "origin"

struct sender {
	int out;
	enum nsbox_upper form;
	struct timespec since;
	mode_t mode[WALK_DEPTH_MAX + 1]; /* of the directories that are open, by depth */
};

/* Places of the run and not of an image: they are made anew for each. */
static const char *const own_places[] = {
	"tmp", "var/tmp",   "run",    "dev",	      "proc",
	"sys", "workspace", "skills", "home/sandbox", ".nsbox",
};

static bool is_own_place(const char *path)
{
	for (unsigned i = 0; i < ARRAY_SIZE(own_places); i++)
		if (!strcmp(path, own_places[i]))
			return true;
	return false;
}

static int fail(const struct files_walk *w, int errnum, const char *what, struct nsbox_error *err)
{
	char show[200];

	nsbox_format(show, sizeof(show), "%s", w->path);
	files_clean_text(show);
	return nsbox_fail(err, NSBOX_E_IO, errnum, "%s '/%s'", what, show);
}

static bool is_newer(const struct timespec *t, const struct timespec *since)
{
	return t->tv_sec > since->tv_sec ||
	       (t->tv_sec == since->tv_sec && t->tv_nsec > since->tv_nsec);
}

static bool is_whiteout(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == 0;
}

static bool has_attribute(int fd, const char *name)
{
	char value[256];

	return fgetxattr(fd, name, value, sizeof(value)) >= 0 || errno == ERANGE;
}

/* ------------------------------------------------------------------ what its owner cannot read */

/*
 * The helper has the ids of the programs and no way around a mode. What they closed to themselves
 * is opened for as long as it takes: a directory until all of it was seen (close_dir()).
 */
static int open_dir(struct files_walk *w, int dir_fd, const char *name, const struct stat *st)
{
	struct sender *s = w->ctx;

	if (w->depth < WALK_DEPTH_MAX)
		s->mode[w->depth + 1] = st->st_mode & 07777;
	if ((st->st_mode & 0500) != 0500 && st->st_uid == geteuid() &&
	    fchmodat(dir_fd, name, (st->st_mode & 07777) | 0700, 0) < 0)
		return -errno;
	return files_open(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, 0);
}

static int close_dir(struct files_walk *w, int fd, struct nsbox_error *err)
{
	const struct sender *s = w->ctx;
	mode_t mode = s->mode[w->depth];
	struct stat st;

	if ((mode & 0500) != 0500 && fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
	    fchmod(fd, mode) < 0)
		return fail(w, errno, "set the mode of", err);
	return 0;
}

static int open_file(int dir_fd, const char *name, const struct stat *st)
{
	int fd = files_open(dir_fd, name, O_RDONLY | O_NOFOLLOW, 0, 0);

	if (fd != -EACCES || st->st_uid != geteuid())
		return fd;
	if (fchmodat(dir_fd, name, (st->st_mode & 07777) | 0400, 0) < 0)
		return fd;
	fd = files_open(dir_fd, name, O_RDONLY | O_NOFOLLOW, 0, 0);
	if (fchmodat(dir_fd, name, st->st_mode & 07777, 0) == 0 || fd < 0)
		return fd;
	close(fd);
	return -EACCES;
}

/* ------------------------------------------------------------------ the list */

static char hex(unsigned v)
{
	return (char)(v < 10 ? '0' + v : 'A' + v - 10);
}

/* As record_put() does, without stdio. */
static int put_record(const struct files_walk *w, const char *key, uint64_t size,
		      struct nsbox_error *err)
{
	const struct sender *s = w->ctx;
	char line[3 * FILES_PATH_MAX + 64];
	int n = nsbox_format(line, sizeof(line), "%s %llu/", key, (unsigned long long)size), r;

	for (const unsigned char *p = (const unsigned char *)w->path; *p; p++) {
		if (*p >= '!' && *p <= '~' && *p != '%') {
			line[n++] = (char)*p;
			continue;
		}
		line[n++] = '%';
		line[n++] = hex(*p >> 4);
		line[n++] = hex(*p & 15);
	}
	line[n++] = '\n';
	r = write_full(s->out, line, (size_t)n);
	return r < 0 ? nsbox_fail(err, NSBOX_E_IO, -r, "send the list of changes") : 0;
}

static int list_dir(struct files_walk *w, int dir_fd, const char *name, const struct stat *st,
		    struct nsbox_error *err)
{
	const struct sender *s = w->ctx;
	auto_close int fd = open_dir(w, dir_fd, name, st);
	struct statx x;
	int r = 0;

	if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &x) < 0)
		return fail(w, fd < 0 ? -fd : errno, "look at", err);
	if (has_attribute(fd, OVL_OPAQUE))
		r = put_record(w, "replaced", 0, err);
	else if (!has_attribute(fd, OVL_ORIGIN) && (x.stx_mask & STATX_BTIME)) {
		const struct timespec born = { .tv_sec = x.stx_btime.tv_sec,
					       .tv_nsec = x.stx_btime.tv_nsec };

		if (is_newer(&born, &s->since))
			r = put_record(w, "dir", 0, err);
	}
	return r < 0 ? r : 1;
}

static int list_other(struct files_walk *w, int dir_fd, const char *name, const struct stat *st,
		      struct nsbox_error *err)
{
	const struct sender *s = w->ctx;
	const char *key = "added";

	if (!is_newer(&st->st_ctim, &s->since))
		return 0;
	if (is_whiteout(st)) {
		key = "removed";
	} else if (S_ISLNK(st->st_mode)) {
		key = "link";
	} else if (S_ISREG(st->st_mode)) {
		auto_close int fd = open_file(dir_fd, name, st);

		if (fd >= 0 && has_attribute(fd, OVL_ORIGIN))
			key = "changed";
	}
	return put_record(w, key, is_whiteout(st) ? 0 : (uint64_t)st->st_size, err);
}

/* ------------------------------------------------------------------ a layer stream */

static struct layer_frame frame(int kind, const struct stat *st)
{
	return (struct layer_frame){ .kind = (uint16_t)kind,
				     .mode = st->st_mode & 07777,
				     .uid = st->st_uid,
				     .gid = st->st_gid,
				     .mtime = st->st_mtim.tv_sec };
}

static int put_attribute(struct files_walk *w, int fd, const char *name, struct nsbox_error *err)
{
	const struct sender *s = w->ctx;
	struct layer_frame f = { .kind = LAYER_XATTR };
	char buf[CHUNK];
	size_t n = strlen(name) + 1;
	ssize_t len;

	memcpy(buf, name, n);
	len = fgetxattr(fd, name, buf + n, sizeof(buf) - n);
	if (len < 0)
		return errno == ENODATA ? 0 : fail(w, errno, "read an attribute of", err);
	f.extra = (uint32_t)(n + (size_t)len);
	return layer_put(s->out, &f, w->path, buf, err);
}

static int put_attributes(struct files_walk *w, int fd, struct nsbox_error *err)
{
	char names[CHUNK];
	ssize_t len = flistxattr(fd, names, sizeof(names));
	int r = 0;

	if (len < 0)
		return errno == EOPNOTSUPP ? 0 : fail(w, errno, "list the attributes of", err);
	for (char *p = names; r == 0 && p < names + len; p += strlen(p) + 1)
		if (layer_xattr_ok(p))
			r = put_attribute(w, fd, p, err);
	return r;
}

static int send_dir(struct files_walk *w, int dir_fd, const char *name, const struct stat *st,
		    struct nsbox_error *err)
{
	const struct sender *s = w->ctx;
	struct layer_frame f = frame(LAYER_DIR, st), opaque = { .kind = LAYER_OPAQUE };
	auto_close int fd = -1;
	int r;

	if (s->form == NSBOX_UPPER_LAYER && is_own_place(w->path))
		return 0;
	fd = open_dir(w, dir_fd, name, st);
	if (fd < 0)
		return fail(w, -fd, "open the directory", err);
	f.mode |= 0700; /* until all is in it: send_left() says what it is */
	r = put_attributes(w, fd, err);
	if (r == 0)
		r = layer_put(s->out, &f, w->path, NULL, err);
	if (r == 0 && has_attribute(fd, OVL_OPAQUE))
		r = layer_put(s->out, &opaque, w->path, NULL, err);
	return r < 0 ? r : 1;
}

static int send_left(struct files_walk *w, int fd, struct nsbox_error *err)
{
	const struct sender *s = w->ctx;
	struct layer_frame f;
	struct stat st;

	if (close_dir(w, fd, err) < 0)
		return -EIO;
	if (fstat(fd, &st) < 0)
		return fail(w, errno, "look at", err);
	f = frame(LAYER_DIR, &st);
	return layer_put(s->out, &f, w->path, NULL, err);
}

static int put_content(struct files_walk *w, int fd, uint64_t left, struct nsbox_error *err)
{
	const struct sender *s = w->ctx;
	char buf[CHUNK];

	while (left) {
		size_t n = (size_t)MIN(left, (uint64_t)sizeof(buf));
		int r = read_full(fd, buf, n);

		if (r < 0)
			return fail(w, -r, "it changed while it was read:", err);
		r = write_full(s->out, buf, n);
		if (r < 0)
			return nsbox_fail(err, NSBOX_E_IO, -r, "send the upper layer");
		left -= n;
	}
	return 0;
}

static int send_file(struct files_walk *w, int dir_fd, const char *name, const struct stat *st,
		     struct nsbox_error *err)
{
	const struct sender *s = w->ctx;
	struct layer_frame f = frame(LAYER_FILE, st);
	auto_close int fd = open_file(dir_fd, name, st);
	struct stat now;
	int r;

	if (fd < 0 || fstat(fd, &now) < 0)
		return fail(w, fd < 0 ? -fd : errno, "open", err);
	if (!S_ISREG(now.st_mode))
		return fail(w, EAGAIN, "it changed while it was read:", err);
	f.size = (uint64_t)now.st_size;
	r = put_attributes(w, fd, err);
	if (r == 0)
		r = layer_put(s->out, &f, w->path, NULL, err);
	return r < 0 ? r : put_content(w, fd, f.size, err);
}

static int send_link(struct files_walk *w, int dir_fd, const char *name, const struct stat *st,
		     struct nsbox_error *err)
{
	const struct sender *s = w->ctx;
	struct layer_frame f = frame(LAYER_SYMLINK, st);
	char target[FILES_TEXT_MAX + 1];
	ssize_t n = readlinkat(dir_fd, name, target, sizeof(target));

	if (n <= 0 || n > FILES_TEXT_MAX)
		return fail(w, n < 0 ? errno : ENAMETOOLONG, "read the link", err);
	f.extra = (uint32_t)n;
	return layer_put(s->out, &f, w->path, target, err);
}

static int send_other(struct files_walk *w, int dir_fd, const char *name, const struct stat *st,
		      struct nsbox_error *err)
{
	const struct sender *s = w->ctx;
	struct layer_frame f = { .kind = is_whiteout(st) ? LAYER_WHITEOUT : LAYER_SKIPPED };

	if (s->form == NSBOX_UPPER_LAYER && !is_newer(&st->st_ctim, &s->since))
		return 0;
	if (S_ISREG(st->st_mode))
		return send_file(w, dir_fd, name, st, err);
	if (S_ISLNK(st->st_mode))
		return send_link(w, dir_fd, name, st, err);
	return layer_put(s->out, &f, w->path, NULL, err);
}

/* ------------------------------------------------------------------ all */

static int refuse_note(struct files_walk *w, const char *why, struct nsbox_error *err)
{
	return fail(w, E2BIG, why, err);
}

int upper_send(int upper_fd, enum nsbox_upper form, const struct timespec *since, int out,
	       struct nsbox_error *err)
{
	struct sender s = { .out = out, .form = form, .since = *since };
	struct files_walk w;
	int r, top = openat(upper_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	w.dir = form == NSBOX_UPPER_LIST ? list_dir : send_dir;
	w.other = form == NSBOX_UPPER_LIST ? list_other : send_other;
	w.left = form == NSBOX_UPPER_LIST ? close_dir : send_left;
	w.note = refuse_note;
	w.ctx = &s;
	if (top < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open the upper layer");
	r = files_walk(&w, top, err);
	if (r < 0)
		return r;
	return form == NSBOX_UPPER_LIST ? 0 : layer_put_end(out, NULL, NULL, err);
}
