/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a finished image has at its top: directories and files, for Landlock rules beyond those of
 * every run, and its users, to which the run's own are added. Layers are an author's
 * files, so they are looked at by their owner, and the result is bounded.
 */
#include "overlay/image/import.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "nsbox/files_format.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

#define TOP_MAX	 64 /* directories, and files */
#define TEXT_MAX 65536

struct found {
	char name[256];
	mode_t type;
};

struct survey {
	int layers_fd;
	const struct import *m; /* before the fork */
	struct found top[4 * TOP_MAX];
	unsigned tops;
	char passwd[TEXT_MAX], group[TEXT_MAX]; /* "" where there is none */
};

/* ------------------------------------------------------------------ in the owner */

static bool known(const struct survey *v, const char *name)
{
	for (unsigned i = 0; i < v->tops; i++)
		if (!strcmp(v->top[i].name, name))
			return true;
	return false;
}

/* From the top: the first layer that has a name says what it is, or that it is gone. */
static void look_at_top(struct survey *v, int layer_fd)
{
	int fd = openat(layer_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct stat st;

	if (!d) {
		close_fd(&fd);
		return;
	}
	for (struct dirent *e; v->tops < ARRAY_SIZE(v->top) && (e = readdir(d));) {
		struct found *f = &v->top[v->tops];

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || known(v, e->d_name) ||
		    fstatat(layer_fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		nsbox_format(f->name, sizeof(f->name), "%s", e->d_name);
		f->type = st.st_mode & S_IFMT;
		v->tops++;
	}
	closedir(d);
}

/* 1: found, or known to be gone. */
static int read_text(int layer_fd, const char *path, char text[TEXT_MAX])
{
	auto_close int fd = sys_openat2(layer_fd, path, O_RDONLY | O_NONBLOCK, 0, FILES_RESOLVE);
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return errno != ENOENT;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size >= TEXT_MAX)
		return 1;
	n = read(fd, text, TEXT_MAX - 1);
	text[MAX(n, 0)] = '\0';
	return 1;
}

static int look(void *ctx, struct nsbox_error *err)
{
	struct survey *v = ctx;
	const struct image_index *x = &v->m->x;
	int passwd = 0, group = 0;

	for (size_t i = x->layers; i--;) {
		const char *place = import_layer_place(v->m, x->layer[i].digest);
		auto_close int fd = openat(v->layers_fd, place,
					   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (fd < 0)
			return nsbox_fail(err, NSBOX_E_IO, errno, "open the layer '%.20s'", place);
		look_at_top(v, fd);
		if (!passwd)
			passwd = read_text(fd, "etc/passwd", v->passwd);
		if (!group)
			group = read_text(fd, "etc/group", v->group);
	}
	return 0;
}

/* ------------------------------------------------------------------ in the importer */

/* Does the run's own entry take this line's place: its name, or its id in the third field? */
static bool is_replaced(const char *line, size_t len)
{
	const char *end = line + len, *id;

	if (len >= 8 && memcmp(line, "sandbox:", 8) == 0)
		return true;
	id = memchr(line, ':', len);
	id = id ? memchr(id + 1, ':', (size_t)(end - id) - 1) : NULL;
	return id && end - id >= 5 && memcmp(id, ":1000", 5) == 0 &&
	       (id + 5 == end || id[5] == ':');
}

/* The image's users or groups, with what every run has. */
static char *with_own(const char *text, const char *fallback, const char *own)
{
	char *out = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&out, &size);

	if (!f)
		return NULL;
	for (const char *line = *text ? text : fallback; *line;) {
		size_t len = strcspn(line, "\n");

		if (len && !is_replaced(line, len))
			fprintf(f, "%.*s\n", (int)len, line);
		line += len + (line[len] == '\n');
	}
	fputs(own, f);
	return fclose(f) == 0 ? out : NULL;
}

static int add_top(struct import *m, const struct found *f)
{
	struct strings *to = S_ISDIR(f->type) ? &m->x.dirs : S_ISREG(f->type) ? &m->x.files : NULL;

	return to && to->count < TOP_MAX ? strings_add(to, f->name, m->err) : 0;
}

static int take_results(struct import *m, const struct survey *v)
{
	int r = 0;

	m->x.passwd = with_own(v->passwd, "root:x:0:0:root:/root:/bin/sh\n",
			       "sandbox:x:1000:1000:sandbox:/home/sandbox:/bin/sh\n");
	m->x.group = with_own(v->group, "root:x:0:\ntty:x:5:\n", "sandbox:x:1000:\n");
	if (!m->x.passwd || !m->x.group)
		return nsbox_fail(m->err, NSBOX_E_NOMEM, ENOMEM, "look at the image");
	for (unsigned i = 0; r == 0 && i < v->tops && i < ARRAY_SIZE(v->top); i++)
		r = add_top(m, &v->top[i]);
	return r;
}

int import_survey(struct import *m)
{
	struct survey *v =
		mmap(NULL, sizeof(*v), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int r;

	if (v == MAP_FAILED)
		return nsbox_fail(m->err, NSBOX_E_NOMEM, ENOMEM, "look at the image");
	v->layers_fd = m->s.layers_fd;
	v->m = m;
	r = owner_run(&m->s, look, v, m->err);
	if (r == 0)
		r = take_results(m, v);
	munmap(v, sizeof(*v));
	return r;
}
