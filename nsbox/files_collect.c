/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collecting outputs inside the sandbox.
 *
 * The tree that is walked was made by hostile code, and in a session that code may still run and
 * change it. So: a file is opened only after lstat said that it is regular (opening a device or a
 * FIFO can have effects) and judged again by its descriptor; depth, entries, files and bytes are
 * bounded. The walk (files_walk.c) stays on the file system it starts on and out of /proc.
 */
#include <fcntl.h>
#include <string.h>

#include "nsbox/files_child.h"
#include "nsbox/files_sender.h"
#include "nsbox/files_walk.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

struct collect {
	struct files_walk walk;
	const struct files_rule *rules;
	unsigned n;
	struct files_sender out;
	uint32_t taken[FILES_RULES_MAX];
};

static struct collect *collect_of(struct files_walk *w)
{
	return (struct collect *)w->ctx;
}

static int on_note(struct files_walk *w, const char *why, struct nsbox_error *err)
{
	return files_send_note(&collect_of(w)->out, w->path, why, err);
}

/* Why a file of this size is not sent, or NULL. */
static const char *over_limit(const struct collect *c, unsigned rule, uint64_t size)
{
	const struct files_rule *r = &c->rules[rule];

	if (r->max_bytes && size > r->max_bytes)
		return "larger than the output rule allows";
	if (r->max_files && c->taken[rule] >= r->max_files)
		return "more files than the output rule allows";
	if (size > c->out.lim.total_bytes - c->out.count.bytes)
		return "the outputs are larger than allowed, together";
	return NULL;
}

static int send_match(struct collect *c, int dir_fd, const char *name, unsigned rule,
		      struct nsbox_error *err)
{
	auto_close int fd = files_open(dir_fd, name, O_RDONLY | O_NOFOLLOW, 0, 0);
	const char *why;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return on_note(&c->walk, "cannot be read", err);
	if (!S_ISREG(st.st_mode))
		return on_note(&c->walk, "not a regular file", err);
	why = over_limit(c, rule, (uint64_t)st.st_size);
	if (why)
		return on_note(&c->walk, why, err);
	c->taken[rule]++;
	return files_send_open(&c->out, fd, c->walk.path, &st, err);
}

static int on_dir(struct files_walk *w, int dir_fd, const char *name, const struct stat *st,
		  struct nsbox_error *err)
{
	const struct collect *c = collect_of(w);

	for (unsigned i = 0; i < c->n; i++) {
		if (files_glob_may_contain(c->rules[i].glob, w->path))
			return 1;
	}
	return 0;
}

static int on_other(struct files_walk *w, int dir_fd, const char *name, const struct stat *st,
		    struct nsbox_error *err)
{
	struct collect *c = collect_of(w);

	for (unsigned i = 0; i < c->n; i++) {
		if (!files_glob_match(c->rules[i].glob, w->path))
			continue;
		/* The last frame of the limit says that there is more. */
		if (c->out.lim.files - c->out.count.frames <= 1)
			return on_note(w, "more files than allowed: this and others are left out",
				       err);
		if (S_ISLNK(st->st_mode))
			return on_note(w, "symbolic link", err);
		if (!S_ISREG(st->st_mode))
			return on_note(w, "not a regular file", err);
		return send_match(c, dir_fd, name, i, err);
	}
	return 0;
}

static int collect_below(struct collect *c, int root_fd, const char *base, struct nsbox_error *err)
{
	const char *below = base + (base[0] == '/');
	int fd = files_open(root_fd, below[0] ? below : ".", O_RDONLY | O_DIRECTORY, 0,
			    RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);

	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_IO, -fd, "look for outputs in '%s'", base);
	return files_walk(&c->walk, fd, err);
}

int files_child_collect(int root_fd, const char *base, const struct files_rule *rules, unsigned n,
			int out_fd, const struct nsbox_files_limits *lim, struct nsbox_error *err)
{
	struct collect c;
	struct nsbox_error local = { 0 };
	int r;

	/* Not by an initialiser: that would clear hundreds of kilobytes of buffers. */
	c.walk.dir = on_dir;
	c.walk.other = on_other;
	c.walk.left = NULL;
	c.walk.note = on_note;
	c.walk.ctx = &c;
	c.rules = rules;
	c.n = MIN(n, FILES_RULES_MAX);
	c.out = files_sender(out_fd, lim);
	memset(c.taken, 0, sizeof(c.taken));

	r = n > FILES_RULES_MAX ? nsbox_fail(&local, NSBOX_E_LIMIT, 0, "more than %d output rules",
					     FILES_RULES_MAX)
				: collect_below(&c, root_fd, base, &local);
	return files_send_end(&c.out, r, &local, err);
}
