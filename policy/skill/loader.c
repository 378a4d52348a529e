/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of the search, for a library `name` that object X needs (ld.so(8)):
 *
 *   a name with a '/' is a path;
 *   DT_RPATH of X, of what loaded X, and so on up to the program, where X has no DT_RUNPATH and each
 *   of these has none;
 *   LD_LIBRARY_PATH; DT_RUNPATH of X; the directories of ld.so.conf; the default ones.
 *
 * A file of another class or machine is passed over, as the loader does. musl's loader knows no
 * ld.so.conf but a file of its own, and inherits DT_RUNPATH like DT_RPATH.
 */
#include "policy/skill/loader.h"

#include <elf.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"

#define DIRS_MAX       128
#define TRIES_MAX      200000 /* a large skill takes some 20000 */
#define OBJECTS_MAX    512
#define CONF_MAX       65536
#define CONF_FILES_MAX 64

struct dirs {
	char *dir[DIRS_MAX];
	unsigned n;
};

struct loader {
	const struct view *view;
	char *library_path;
	struct dirs glibc, musl; /* in order; the glibc ones with the default directories */
	unsigned conf_files;
	unsigned tries; /* of all files together */
};

struct object {
	char *path, *real; /* as it was found, for $ORIGIN; where it is */
	char *name;	   /* that it was asked for by, NULL: the root */
	struct elf_info elf;
	int by;	     /* what loaded it, -1 */
	bool follow; /* look at what it needs */
};

struct check {
	struct loader *l;
	const char *inside;
	const struct loader_events *ev;
	struct nsbox_error *err;
	struct object obj[OBJECTS_MAX];
	int n;
};

/* ------------------------------------------------------------------ directories */

static void add_dir(struct dirs *d, const char *dir, size_t len)
{
	if (!len || *dir != '/' || d->n >= DIRS_MAX)
		return;
	for (unsigned i = 0; i < d->n; i++)
		if (strlen(d->dir[i]) == len && !memcmp(d->dir[i], dir, len))
			return;
	d->dir[d->n] = strndup(dir, len);
	if (d->dir[d->n])
		d->n++;
}

static char *read_text(const struct view *v, const char *path)
{
	char real[PATH_MAX];
	char *buf = NULL;
	struct stat st;
	auto_close int fd = -1;

	if (view_find(v, path, real, &st) < 0 || st.st_size > CONF_MAX)
		return NULL;
	fd = view_open(v, real);
	buf = fd < 0 ? NULL : malloc((size_t)st.st_size + 1);
	if (!buf)
		return NULL;
	if (read_full(fd, buf, (size_t)st.st_size) < 0)
		free_ptr(&buf);
	else
		buf[st.st_size] = '\0';
	return buf;
}

static void read_conf(struct loader *l, const char *path);

struct include {
	struct loader *l;
	const char *dir, *pattern;
	char *found[CONF_FILES_MAX];
	int n;
};

static int note_name(void *ctx, const char *name)
{
	struct include *inc = ctx;

	if (fnmatch(inc->pattern, name, FNM_PERIOD) == 0 && inc->n < CONF_FILES_MAX &&
	    asprintf(&inc->found[inc->n], "%s/%s", inc->dir, name) > 0)
		inc->n++;
	return 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* "include /etc/ld.so.conf.d/" followed by a pattern in the last place. */
static void read_include(struct loader *l, const char *pattern)
{
	char path[PATH_MAX];
	struct include inc = { .l = l };
	char *slash;

	if ((size_t)snprintf(path, sizeof(path), "%s%s", *pattern == '/' ? "" : "/etc/", pattern) >=
	    sizeof(path))
		return;
	slash = strrchr(path, '/');
	*slash = '\0';
	inc.dir = path;
	inc.pattern = slash + 1;
	view_list(l->view, path, note_name, &inc);
	qsort(inc.found, (size_t)inc.n, sizeof(*inc.found), by_text);
	for (int i = 0; i < inc.n; i++) {
		read_conf(l, inc.found[i]);
		free(inc.found[i]);
	}
}

static void read_conf(struct loader *l, const char *path)
{
	auto_free char *text = NULL;
	char *line, *save = NULL;

	if (l->conf_files++ >= CONF_FILES_MAX) /* files that include each other */
		return;
	text = read_text(l->view, path);
	for (line = text ? strtok_r(text, "\n", &save) : NULL; line;
	     line = strtok_r(NULL, "\n", &save)) {
		line[strcspn(line, "#")] = '\0';
		line += strspn(line, " \t");
		for (size_t n = strlen(line); n && strchr(" \t\r", line[n - 1]); n--)
			line[n - 1] = '\0';
		if (!strncmp(line, "include", 7) && (line[7] == ' ' || line[7] == '\t'))
			read_include(l, line + 7 + strspn(line + 7, " \t"));
		else
			add_dir(&l->glibc, line, strcspn(line, " \t="));
	}
}

#if defined(__x86_64__)
#define MULTIARCH "x86_64-linux-gnu"
#define MUSL_ARCH "x86_64"
#else
#define MULTIARCH "aarch64-linux-gnu"
#define MUSL_ARCH "aarch64"
#endif

static void musl_dirs(struct loader *l)
{
	auto_free char *text = read_text(l->view, "/etc/ld-musl-" MUSL_ARCH ".path");
	const char *p = text ? text : "/lib:/usr/local/lib:/usr/lib";

	while (*p) {
		size_t n = strcspn(p, ":\n");

		add_dir(&l->musl, p, n);
		p += n + (p[n] != '\0');
	}
}

int loader_new(const struct view *v, const char *library_path, struct loader **ret,
	       struct nsbox_error *err)
{
	static const char *const defaults[] = {
		"/lib/" MULTIARCH, "/usr/lib/" MULTIARCH, "/lib64", "/usr/lib64", "/lib", "/usr/lib"
	};
	struct loader *l = calloc(1, sizeof(*l));

	if (!l)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "look for libraries");
	l->view = v;
	l->library_path = library_path ? strdup(library_path) : NULL;
	read_conf(l, "/etc/ld.so.conf");
	for (unsigned i = 0; i < ARRAY_SIZE(defaults); i++)
		add_dir(&l->glibc, defaults[i], strlen(defaults[i]));
	musl_dirs(l);
	*ret = l;
	return 0;
}

void loader_free(struct loader *l)
{
	if (!l)
		return;
	for (unsigned i = 0; i < l->glibc.n; i++)
		free(l->glibc.dir[i]);
	for (unsigned i = 0; i < l->musl.n; i++)
		free(l->musl.dir[i]);
	free(l->library_path);
	free(l);
}

/* ------------------------------------------------------------------ one candidate */

static bool same_kind(const struct elf_info *a, const struct elf_info *b)
{
	return a->is64 == b->is64 && a->is_little == b->is_little && a->machine == b->machine;
}

static int read_elf(const struct view *v, const char *path, char real[PATH_MAX],
		    struct elf_info *ret, struct nsbox_error *err)
{
	struct elf_source src = { .fd = -1 };
	auto_close int fd = -1;
	struct stat st;
	int r = view_find(v, path, real, &st);

	if (r < 0)
		return r;
	fd = view_open(v, real);
	if (fd < 0)
		return fd;
	src.fd = fd;
	src.size = (uint64_t)st.st_size;
	return elf_read(&src, ret, err);
}

static int add_object(struct check *c, const char *path, const char *real, const char *name,
		      struct elf_info *elf, int by)
{
	size_t n = strlen(c->inside);
	struct object *o;

	if (c->n >= OBJECTS_MAX) {
		elf_done(elf);
		return nsbox_fail(c->err, NSBOX_E_LIMIT, 0, "more than %d libraries are loaded",
				  OBJECTS_MAX);
	}
	o = &c->obj[c->n++];
	*o = (struct object){ .path = strdup(path),
			      .real = strdup(real),
			      .name = name ? strdup(name) : NULL,
			      .elf = *elf,
			      .by = by,
			      .follow = !strncmp(real, c->inside, n) && real[n] == '/' };
	if (!o->path || !o->real || (name && !o->name))
		return nsbox_fail(c->err, NSBOX_E_NOMEM, ENOMEM, "look for libraries");
	if (o->follow && c->ev->visit)
		c->ev->visit(c->ev->ctx, real);
	return 0;
}

/* 1: found and added; 0: not this one. */
static int try_path(struct check *c, const char *path, const char *name, int by)
{
	char real[PATH_MAX];
	struct elf_info elf;
	struct nsbox_error ignored;
	int r;

	if (c->l->tries++ >= TRIES_MAX)
		return nsbox_fail(c->err, NSBOX_E_LIMIT, 0,
				  "the skill's files ask for libraries in more than %d places",
				  TRIES_MAX);
	r = read_elf(c->l->view, path, real, &elf, &ignored);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	if (!same_kind(&elf, &c->obj[0].elf) || elf.type != ET_DYN) {
		elf_done(&elf);
		return 0;
	}
	r = add_object(c, path, real, name, &elf, by);
	return r < 0 ? r : 1;
}

/* ------------------------------------------------------------------ paths in an object */

static size_t token(const char *s, const char *name)
{
	size_t n = strlen(name);

	if (s[1] == '{' && !strncmp(s + 2, name, n) && s[2 + n] == '}')
		return n + 3;
	return !strncmp(s + 1, name, n) ? n + 1 : 0;
}

/* One entry of a path list with $ORIGIN, $LIB and $PLATFORM put in; false: it does not fit. */
static bool expand(const struct object *o, const char *entry, size_t len, char *ret, size_t size)
{
	const char *slash = strrchr(o->path, '/');
	const struct {
		const char *name, *is;
		size_t len;
	} tokens[] = {
		{ "ORIGIN", o->path, (size_t)(slash - o->path) },
		{ "LIB", "lib/" MULTIARCH, strlen("lib/" MULTIARCH) },
		{ "PLATFORM", MUSL_ARCH, strlen(MUSL_ARCH) },
	};
	size_t at = 0;

	for (size_t i = 0; i < len;) {
		const char *put = entry + i;
		size_t n = 1, took = 1;

		for (unsigned t = 0; entry[i] == '$' && t < ARRAY_SIZE(tokens); t++)
			if (token(entry + i, tokens[t].name)) {
				took = token(entry + i, tokens[t].name);
				put = tokens[t].is;
				n = tokens[t].len;
			}
		if (at + n >= size)
			return false;
		memcpy(ret + at, put, n);
		at += n;
		i += took;
	}
	ret[at] = '\0';
	return at > 0;
}

static int try_dir(struct check *c, const char *dir, const char *name, int by)
{
	char path[PATH_MAX];

	/* A relative directory counts from where the program is started: the skill. */
	if ((size_t)snprintf(path, sizeof(path), "%s%s%s/%s", *dir == '/' ? "" : c->inside,
			     *dir == '/' ? "" : "/", dir, name) >= sizeof(path))
		return 0;
	return try_path(c, path, name, by);
}

static int try_list(struct check *c, const struct object *owner, const char *list, const char *name,
		    int by)
{
	char dir[PATH_MAX];
	int r = 0;

	while (list && *list && r == 0) {
		size_t n = strcspn(list, ":");

		if (n && expand(owner, list, n, dir, sizeof(dir)))
			r = try_dir(c, dir, name, by);
		list += n + (list[n] == ':');
	}
	return r;
}

/* ------------------------------------------------------------------ the search */

static bool is_musl(const struct check *c)
{
	const char *interp = c->obj[0].elf.interp;

	return interp && strstr(interp, "/ld-musl-");
}

static int try_rpaths(struct check *c, const char *name, int by)
{
	int r = 0;

	if (!is_musl(c) && c->obj[by].elf.runpath)
		return 0;
	for (int i = by; i >= 0 && r == 0; i = c->obj[i].by) {
		const struct object *o = &c->obj[i];

		if (is_musl(c))
			r = try_list(c, o, o->elf.runpath ? o->elf.runpath : o->elf.rpath, name,
				     by);
		else if (!o->elf.runpath)
			r = try_list(c, o, o->elf.rpath, name, by);
	}
	return r;
}

static int find_library(struct check *c, const char *name, int by)
{
	const struct dirs *d = is_musl(c) ? &c->l->musl : &c->l->glibc;
	char path[PATH_MAX];
	int r;

	if (strchr(name, '/'))
		return expand(&c->obj[by], name, strlen(name), path, sizeof(path))
			       ? try_path(c, path, name, by)
			       : 0;
	r = try_rpaths(c, name, by);
	if (r == 0)
		r = try_list(c, &c->obj[0], c->l->library_path, name, by);
	if (r == 0)
		r = try_list(c, &c->obj[by], c->obj[by].elf.runpath, name, by);
	for (unsigned i = 0; r == 0 && i < d->n; i++)
		r = try_dir(c, d->dir[i], name, by);
	return r;
}

static const struct object *loaded(const struct check *c, const char *name)
{
	for (int i = 0; i < c->n; i++) {
		const struct object *o = &c->obj[i];

		if ((o->name && !strcmp(o->name, name)) ||
		    (o->elf.soname && !strcmp(o->elf.soname, name)))
			return o;
	}
	return NULL;
}

static void check_versions(struct check *c, const struct object *o)
{
	for (size_t i = 0; i < o->elf.n_wants; i++) {
		const struct elf_version *w = &o->elf.wants[i];
		const struct object *lib = loaded(c, w->file);
		bool there = !lib || !lib->elf.n_offers || w->weak;

		for (size_t k = 0; !there && k < lib->elf.n_offers; k++)
			there = !strcmp(lib->elf.offers[k].name, w->name);
		if (!there)
			c->ev->lack(c->ev->ctx, LACK_VERSION, o->real, w->file, w->name);
	}
}

static int load_all(struct check *c)
{
	for (int i = 0; i < c->n; i++) {
		struct object *o = &c->obj[i];

		for (size_t k = 0; o->follow && k < o->elf.n_needed; k++) {
			const char *name = o->elf.needed[k];
			int r = loaded(c, name) ? 1 : find_library(c, name, i);

			if (r < 0)
				return r;
			if (r == 0)
				c->ev->lack(c->ev->ctx, LACK_LIBRARY, o->real, name, NULL);
		}
	}
	for (int i = 0; i < c->n; i++)
		if (c->obj[i].follow)
			check_versions(c, &c->obj[i]);
	return 0;
}

int loader_check(struct loader *l, const char *path, const char *inside,
		 const struct loader_events *ev, struct nsbox_error *err)
{
	struct check *c = calloc(1, sizeof(*c));
	char real[PATH_MAX];
	struct elf_info elf;
	int r;

	if (!c)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "look for libraries");
	*c = (struct check){ .l = l, .inside = inside, .ev = ev, .err = err };
	r = read_elf(l->view, path, real, &elf, err);
	if (r == 0)
		r = add_object(c, real, real, NULL, &elf, -1);
	if (r == 0)
		r = load_all(c);
	for (int i = 0; i < c->n; i++) {
		free(c->obj[i].path);
		free(c->obj[i].real);
		free(c->obj[i].name);
		elf_done(&c->obj[i].elf);
	}
	free(c);
	return r;
}
