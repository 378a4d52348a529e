/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/skill/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <nsbox/files.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/sys.h"
#include "nsbox/util.h"
#include "policy/skill/text.h"

#define DEPTH_MAX 64 /* as what sends the files */

struct scan {
	struct skill_tree *t;
	struct skill_report *rep;
	struct nsbox_error *err;
	size_t room;
	bool full; /* more files than a run takes: said once, and the end */
};

int skill_open(int dir_fd, const char *path, int flags)
{
	int fd = sys_openat2(dir_fd, path, (uint64_t)flags | O_NONBLOCK | O_NOCTTY, 0,
			     RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);

	return fd < 0 ? -errno : fd;
}

int skill_read(int dir_fd, const char *path, size_t max, char **ret, size_t *ret_len,
	       struct nsbox_error *err)
{
	auto_close int fd = skill_open(dir_fd, path, O_RDONLY);
	auto_free char *buf = NULL;
	struct stat st;
	int r;

	if (fd == -ENOENT)
		return -ENOENT;
	if (fd == -ELOOP)
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "'%s' is a symbolic link", path);
	if (fd < 0 || fstat(fd, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, fd < 0 ? -fd : errno, "open '%s'", path);
	if (!S_ISREG(st.st_mode))
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "'%s' is not a regular file", path);
	if ((uint64_t)st.st_size > max)
		return nsbox_fail(err, NSBOX_E_LIMIT, 0, "'%s' is larger than %zu bytes", path,
				  max);
	buf = malloc((size_t)st.st_size + 1);
	if (!buf)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read '%s'", path);
	r = read_full(fd, buf, (size_t)st.st_size);
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_IO, -r, "read '%s'", path);
	buf[st.st_size] = '\0';
	*ret = take_ptr(&buf);
	*ret_len = (size_t)st.st_size;
	return 0;
}

/* ------------------------------------------------------------------ what a file is */

static int out_of_memory(struct scan *s)
{
	return nsbox_fail(s->err, NSBOX_E_NOMEM, ENOMEM, "look at the skill");
}

static int look_elf(struct scan *s, struct skill_file *f, int fd)
{
	const struct elf_source src = { .fd = fd, .size = (uint64_t)f->st.st_size };
	struct nsbox_error why = { 0 };
	int r;

	f->elf = calloc(1, sizeof(*f->elf));
	if (!f->elf)
		return out_of_memory(s);
	r = elf_read(&src, f->elf, &why);
	if (r == -ENOMEM)
		return out_of_memory(s);
	f->content = r < 0 ? CONTENT_BAD_ELF : CONTENT_ELF;
	if (r < 0) {
		free_ptr(&f->elf);
		report_add(s->rep, SKILL_F_ELF, f->path, "copy it anew from where it came",
			   "it is a damaged ELF file: %s", why.msg[0] ? why.msg : "cut off");
	}
	return 0;
}

static int look_script(struct scan *s, struct skill_file *f, const char *head, size_t len)
{
	size_t n = 0;

	while (n < len && head[n] && head[n] != '\n')
		n++;
	f->content = CONTENT_SCRIPT;
	f->is_crlf = n && n < len && head[n] == '\n' && head[n - 1] == '\r';
	f->shebang = strndup(head, n - f->is_crlf);
	return f->shebang ? 0 : out_of_memory(s);
}

static int look_content(struct scan *s, struct skill_file *f)
{
	auto_close int fd = skill_open(s->t->dir_fd, f->path, O_RDONLY);
	char head[SHEBANG_MAX + 2];
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0 || (n = pread(fd, head, sizeof(head), 0)) < 0) {
		report_add(s->rep, SKILL_F_UNREADABLE, f->path, NULL, "it cannot be read: %s",
			   strerror(fd < 0 ? -fd : errno));
		return 0;
	}
	if (!S_ISREG(st.st_mode))
		return 0;
	f->st = st;
	if (n >= 4 && !memcmp(head, "\177ELF", 4))
		return look_elf(s, f, fd);
	if (n >= 3 && head[0] == '#' && head[1] == '!')
		return look_script(s, f, head + 2, (size_t)n - 2);
	return 0;
}

/* Would the target, read by its letters alone, climb above the skill's directory? */
static bool stays_inside(const char *path, const char *target)
{
	int depth = 0;

	if (*target == '/')
		return false;
	for (const char *p = path; (p = strchr(p, '/')); p++)
		depth++;
	for (const char *p = target; *p; p += strspn(p, "/")) {
		size_t n = strcspn(p, "/");

		if (n == 2 && !memcmp(p, "..", 2))
			depth--;
		else if (n != 1 || *p != '.')
			depth++;
		if (depth < 0)
			return false;
		p += n;
	}
	return true;
}

static void look_link(struct scan *s, const struct skill_file *f, int dir_fd, const char *name)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(dir_fd, name, target, sizeof(target) - 1);

	target[MAX(n, 0)] = '\0';
	if (n > 0 && !stays_inside(f->path, target))
		report_add(s->rep, SKILL_F_LINK, f->path,
			   "put a copy of what it means in its place",
			   "it is a symbolic link to '%s', which leads out of the skill", target);
}

static void look_name(struct scan *s, const char *path)
{
	bool odd = !text_is_utf8(path, strlen(path));

	for (const char *p = path; *p; p++)
		odd |= (unsigned char)*p < 0x20 || *p == 0x7f;
	if (odd)
		report_add(s->rep, SKILL_F_NAME, path, "rename it",
			   "its name has control characters or is not UTF-8: no manifest can name "
			   "it");
}

/* ------------------------------------------------------------------ the walk */

static struct skill_file *add_file(struct scan *s, const char *path, const struct stat *st)
{
	struct skill_tree *t = s->t;

	if (t->n == s->room) {
		size_t room = s->room ? 2 * s->room : 64;
		struct skill_file *file = reallocarray(t->file, room, sizeof(*file));

		if (!file)
			return NULL;
		t->file = file;
		s->room = room;
	}
	t->file[t->n] = (struct skill_file){ .path = strdup(path), .st = *st };
	return t->file[t->n].path ? &t->file[t->n++] : NULL;
}

static int scan_dir(struct scan *s, int fd, const char *path, int depth);

static int scan_one(struct scan *s, int dir_fd, const char *name, const char *path, int depth)
{
	struct skill_file *f;
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0
				       : nsbox_fail(s->err, NSBOX_E_IO, errno, "look at the skill");
	f = add_file(s, path, &st);
	if (!f)
		return out_of_memory(s);
	look_name(s, path);
	if (S_ISREG(st.st_mode)) {
		s->t->bytes += (uint64_t)st.st_size;
		return look_content(s, f);
	}
	if (S_ISLNK(st.st_mode)) {
		look_link(s, f, dir_fd, name);
		return 0;
	}
	if (!S_ISDIR(st.st_mode)) {
		report_add(s->rep, SKILL_F_SPECIAL, path, "remove it",
			   "it is neither a file, a directory nor a symbolic link");
		return 0;
	}
	auto_close int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		report_add(s->rep, SKILL_F_UNREADABLE, path, NULL, "it cannot be opened: %s",
			   strerror(errno));
		return 0;
	}
	return scan_dir(s, fd, path, depth + 1);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_dots(const struct dirent *e)
{
	return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

static int scan_name(struct scan *s, int fd, const char *path, const char *name, int depth)
{
	const uint32_t max = NSBOX_FILES_LIMITS_DEFAULT.files;
	char sub[PATH_MAX];

	if (s->full)
		return 0;
	if (s->t->n >= max) {
		s->full = true;
		report_add(s->rep, SKILL_F_SIZE, "", "leave out what the skill does not need",
			   "it has more than %u files; the rest was not looked at", max);
		return 0;
	}
	if ((size_t)snprintf(sub, sizeof(sub), "%s%s%s", path, *path ? "/" : "", name) >=
	    sizeof(sub)) {
		report_add(s->rep, SKILL_F_NAME_LONG, path, "use shorter names",
			   "a path below it is longer than %d bytes", PATH_MAX - 1);
		return 0;
	}
	return scan_one(s, fd, name, sub, depth);
}

static int scan_dir(struct scan *s, int fd, const char *path, int depth)
{
	struct dirent **names = NULL;
	int n, r = 0;

	if (depth > DEPTH_MAX) {
		report_add(s->rep, SKILL_F_SIZE, path, "nest directories less deeply",
			   "more than %d directories within each other; what is in it was not "
			   "looked at",
			   DEPTH_MAX);
		return 0;
	}
	n = scandirat(fd, ".", &names, not_dots, by_name);
	if (n < 0)
		return nsbox_fail(s->err, NSBOX_E_IO, errno, "list the skill's directory");
	for (int i = 0; i < n; i++) {
		if (r == 0)
			r = scan_name(s, fd, path, names[i]->d_name, depth);
		free(names[i]);
	}
	free(names);
	return r;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct skill_file *)a)->path, ((const struct skill_file *)b)->path);
}

int tree_read(int dir_fd, struct skill_tree *ret, struct skill_report *rep, struct nsbox_error *err)
{
	const uint64_t max = NSBOX_FILES_LIMITS_DEFAULT.total_bytes;
	struct skill_tree t = { .dir_fd = dir_fd };
	struct scan s = { .t = &t, .rep = rep, .err = err };
	int r = scan_dir(&s, dir_fd, "", 0);

	if (r < 0) {
		tree_done(&t);
		return r;
	}
	if (t.bytes > max)
		report_add(rep, SKILL_F_SIZE, "", "leave out what the skill does not need",
			   "its files have %llu MiB; a run takes %llu MiB at most",
			   (unsigned long long)t.bytes >> 20, (unsigned long long)max >> 20);
	if (t.n)
		qsort(t.file, t.n, sizeof(*t.file), by_path);
	*ret = t;
	return 0;
}

void tree_done(struct skill_tree *t)
{
	for (size_t i = 0; i < t->n; i++) {
		free(t->file[i].path);
		free(t->file[i].shebang);
		if (t->file[i].elf)
			elf_done(t->file[i].elf);
		free(t->file[i].elf);
	}
	free(t->file);
	memset(t, 0, sizeof(*t));
}

struct skill_file *tree_find(const struct skill_tree *t, const char *path)
{
	const struct skill_file key = { .path = (char *)(uintptr_t)path };

	return t->n ? bsearch(&key, t->file, t->n, sizeof(key), by_path) : NULL;
}

struct skill_file *tree_find_name(const struct skill_tree *t, const char *name)
{
	for (size_t i = 0; i < t->n; i++) {
		const char *slash = strrchr(t->file[i].path, '/');

		if (!strcmp(slash ? slash + 1 : t->file[i].path, name) &&
		    !S_ISDIR(t->file[i].st.st_mode))
			return &t->file[i];
	}
	return NULL;
}

bool file_is_executable(const struct skill_file *f)
{
	return (f->st.st_mode & 0111) || f->is_made_executable;
}
