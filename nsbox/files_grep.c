/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Searching files for a text: literally, line by line, in a buffer of fixed size. Whoever wants
 * patterns runs grep as a command.
 */
#include <fcntl.h>
#include <string.h>

#include "nsbox/files_verbs.h"
#include "nsbox/util.h"

#define WINDOW	  65536
#define SHOWN	  2000 /* bytes of a line */
#define SHOWN_PRE 200  /* of a long line, before the match */

struct search {
	struct verb *v;
	const char *path; /* in the answer */
	size_t len;	  /* of the text */
	uint32_t line;
	uint64_t line_at; /* offset of the line in the file */
	uint64_t skipped; /* bytes of a long line that were searched and thrown away */
	bool found;	  /* in this line: the rest of it is passed over */
	size_t have;
	char buf[WINDOW];
};

static char fold(char c, bool ignore_case)
{
	return ignore_case && c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

/* Where the text begins in p[0..n), or -1. */
static ssize_t find(const struct search *s, const char *p, size_t n)
{
	const char *text = s->v->text, *hit;

	if (!(s->v->f->flags & NSBOX_FILE_IGNORE_CASE)) {
		hit = memmem(p, n, text, s->len);
		return hit ? hit - p : -1;
	}
	for (size_t i = 0; i + s->len <= n; i++) {
		size_t k = 0;

		while (k < s->len && fold(p[i + k], true) == fold(text[k], true))
			k++;
		if (k == s->len)
			return (ssize_t)i;
	}
	return -1;
}

/* p[0..n) of a line holds the text at `hit`; `whole`: that is all of the line. */
static int send_match(struct search *s, const char *p, size_t n, size_t hit, bool whole,
		      struct nsbox_error *err)
{
	char frame[sizeof(struct nsbox_file_match) + SHOWN];
	size_t from = hit + s->len > SHOWN ? hit - MIN(hit, (size_t)SHOWN_PRE) : 0;
	size_t shown = MIN(n - from, (size_t)SHOWN);
	struct files_sender *out = &s->v->send;
	const struct nsbox_file_match m = {
		.offset = s->line_at,
		.line = s->line,
		.cut = from || s->skipped || shown < n || !whole,
	};

	if (out->lim.files - out->count.frames <= 1)
		return -E2BIG;
	out->count.frames++;
	memcpy(frame, &m, sizeof(m));
	memcpy(frame + sizeof(m), p + from, shown);
	return nsbox_files_put_frame(out->fd, NSBOX_FRAME_MATCH, s->path, 0, frame,
				     sizeof(m) + shown, err);
}

/* A line, or a piece of one that is longer than the window. */
static int look(struct search *s, const char *p, size_t n, bool whole, struct nsbox_error *err)
{
	ssize_t hit;

	if (s->found)
		return 0;
	hit = find(s, p, n);
	if (hit < 0)
		return 0;
	s->found = true;
	return send_match(s, p, n, (size_t)hit, whole, err);
}

static int lines(struct search *s, bool end, struct nsbox_error *err)
{
	char *p = s->buf, *stop = s->buf + s->have, *nl;
	size_t keep;
	int r;

	while ((nl = memchr(p, '\n', (size_t)(stop - p)))) {
		r = look(s, p, (size_t)(nl - p), true, err);
		if (r < 0)
			return r;
		s->line_at += s->skipped + (uint64_t)(nl + 1 - p);
		s->skipped = 0;
		s->found = false;
		s->line++;
		p = nl + 1;
	}
	keep = (size_t)(stop - p);
	if (keep && (end || keep == WINDOW)) {
		r = look(s, p, keep, end, err);
		if (r < 0)
			return r;
		/* What could be the beginning of a match stays. */
		p = stop - MIN(keep, s->len - 1);
		s->skipped += keep - (size_t)(stop - p);
		keep = (size_t)(stop - p);
	}
	memmove(s->buf, p, keep);
	s->have = keep;
	return 0;
}

static int search_fd(struct search *s, int fd, struct nsbox_error *err)
{
	bool first = true;

	s->line = 1;
	s->line_at = s->skipped = s->have = 0;
	s->found = false;
	for (;;) {
		ssize_t n = read(fd, s->buf + s->have, WINDOW - s->have);
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 || (first && memchr(s->buf, '\0', (size_t)n)))
			return 0; /* nothing that could be searched */
		first = false;
		s->have += (size_t)n;
		r = lines(s, n == 0, err);
		if (r < 0 || n == 0)
			return r;
	}
}

static int search_at(struct verb *v, int dir_fd, const char *name, const char *path, uint64_t flags,
		     struct nsbox_error *err)
{
	auto_close int fd = files_open(dir_fd, name, O_RDONLY | flags, 0, 0);
	struct search s;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	s.v = v;
	s.path = path;
	s.len = strlen(v->text);
	return search_fd(&s, fd, err);
}

static int grep_dir(struct files_walk *w, int dir_fd, const char *name, const struct stat *st,
		    struct nsbox_error *err)
{
	const char *pattern = verb_of(w)->pattern;

	return !*pattern || files_glob_may_contain(pattern, w->path);
}

static int grep_other(struct files_walk *w, int dir_fd, const char *name, const struct stat *st,
		      struct nsbox_error *err)
{
	struct verb *v = verb_of(w);
	int r;

	if (!S_ISREG(st->st_mode) || (*v->pattern && !files_glob_match(v->pattern, w->path)))
		return 0;
	r = search_at(v, dir_fd, name, w->path, O_NOFOLLOW, err);
	if (r == -E2BIG && !err->code)
		files_send_note(&v->send, w->path, "more matches than asked for", err);
	return r;
}

int verb_grep(struct verb *v, struct nsbox_error *err)
{
	const char *name = strrchr(v->path, '/');
	struct stat st;
	auto_close int fd = files_open(AT_FDCWD, v->path, O_PATH, 0, 0);
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return verb_fail("search", v->path, fd < 0 ? -fd : errno, err);
	if (S_ISDIR(st.st_mode))
		return verb_walk(v, grep_dir, grep_other, err);
	name = name ? name + 1 : v->path;
	r = search_at(v, AT_FDCWD, v->path, name, 0, err);
	return r == -E2BIG && !err->code ? 0 : r;
}
