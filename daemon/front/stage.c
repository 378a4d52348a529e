/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a run, as one file stream for the sandbox.
 *
 * Archives are never read here: each goes to nsbox-unpack, a confined process of its own, which
 * writes frames into a memfd. What it wrote is looked at frame by frame (a skill's own manifest is
 * found this way) and appended to the stream; the sandbox's helper checks all of it again where it
 * unpacks, with the payload's rights.
 *
 * Order: the skill, the archive of the working directory, then single files, which so win.
 *
 * A skill's archive holds its files at the top, or one top directory with everything in it. Inside
 * they are in /skills/NAME; without a name in the request it is the top directory's.
 */
#include "daemon/front/stage.h"

#include <nsbox/files.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "daemon/front/child.h"
#include "nsbox/util.h"

#define MANIFEST_MAX	  (256u << 10)
#define NOTICES_MAX	  8192
#define UNPACK_TIMEOUT_US (60 * UINT64_C(1000000))

enum step { STEP_SKILL, STEP_ARCHIVE, STEP_FILES };

struct stage {
	struct loop *loop;
	const char *unpacker;
	const struct job_spec *spec;
	stage_done_fn *done;
	void *ctx;
	enum step step;
	struct child *child;
	struct loop_timer timer; /* the next step, or the worker's time is up */
	int part;		 /* memfd the worker writes */
	struct staged out;
};

static void stage_free(struct stage *s)
{
	loop_timer_cancel(s->loop, &s->timer);
	child_forget(&s->child);
	close_fd(&s->part);
	close_fd(&s->out.fd);
	free(s->out.manifest);
	free(s->out.notices);
	free(s);
}

static void finish(struct stage *s, const struct nsbox_error *why)
{
	stage_done_fn *done = s->done;
	void *ctx = s->ctx;
	struct staged out = s->out;

	if (why) {
		stage_free(s);
		done(ctx, why, NULL);
		return;
	}
	s->out.fd = -1;
	s->out.manifest = s->out.notices = NULL;
	stage_free(s);
	done(ctx, NULL, &out);
}

/* ------------------------------------------------------------------ what a worker wrote */

struct part {
	const char *base;
	size_t size;
	size_t frames_size; /* up to the END frame */
	char top[256];	    /* the one top directory, "" where there are several or files */
	bool mixed, skill_at_top;
	const char *manifest;	  /* content of skill.json, top or in the one directory */
	const char *manifest_top; /* the same at the top, which goes first */
	size_t manifest_len, manifest_top_len;
};

static bool is_name(const struct nsbox_frame *f, const char *path, size_t skip, const char *name)
{
	size_t n = strlen(name);

	return f->kind == NSBOX_FRAME_FILE && f->path_len == skip + n &&
	       memcmp(path + skip, name, n) == 0;
}

static void note_path(struct part *p, const struct nsbox_frame *f, const char *path)
{
	const char *slash = memchr(path, '/', f->path_len);
	size_t n = slash ? (size_t)(slash - path) : f->path_len;
	bool in_dir = slash || f->kind == NSBOX_FRAME_DIR;
	const char *content = path + f->path_len;

	if (is_name(f, path, 0, "skill.json")) {
		p->manifest_top = content;
		p->manifest_top_len = f->size;
	}
	if (is_name(f, path, 0, "skill.json") || is_name(f, path, 0, "SKILL.md"))
		p->skill_at_top = true;
	if (slash && is_name(f, path, n + 1, "skill.json")) {
		p->manifest = content;
		p->manifest_len = f->size;
	}
	if (!in_dir || n >= sizeof(p->top) ||
	    (p->top[0] && (strlen(p->top) != n || memcmp(p->top, path, n) != 0)))
		p->mixed = true;
	else
		memcpy(p->top, path, n);
}

/* Hop from header to header. The frames' own rules are the sandbox's to check; here only bounds. */
static int walk(struct part *p, struct nsbox_error *err)
{
	size_t at = 0;

	while (p->size - at >= sizeof(struct nsbox_frame)) {
		struct nsbox_frame f;
		const char *path = p->base + at + sizeof(f);
		size_t left;

		memcpy(&f, p->base + at, sizeof(f));
		left = p->size - at - sizeof(f);
		if (f.magic != NSBOX_FRAME_MAGIC || f.path_len > left || f.size > left - f.path_len)
			break;
		if (f.kind == NSBOX_FRAME_END) {
			p->frames_size = at;
			if (f.aux == 0)
				return 0;
			return nsbox_fail_at(err, NSBOX_STAGE_FILES, NSBOX_E_INVALID, 0, "%.*s",
					     (int)MIN(f.size, UINT64_C(400)), path + f.path_len);
		}
		note_path(p, &f, path);
		at += sizeof(f) + f.path_len + f.size;
	}
	return nsbox_fail_at(err, NSBOX_STAGE_FILES, NSBOX_E_PROTOCOL, EPROTO,
			     "the unpack worker's answer is not whole");
}

static int take_manifest(struct stage *s, const struct part *p, struct nsbox_error *err)
{
	const char *text = p->skill_at_top ? p->manifest_top : p->manifest;
	size_t len = p->skill_at_top ? p->manifest_top_len : p->manifest_len;

	if (!text)
		return 0;
	if (len > MANIFEST_MAX)
		return nsbox_fail(err, NSBOX_E_MANIFEST, 0, "skill.json has more than %u bytes",
				  MANIFEST_MAX);
	s->out.manifest = malloc(len + 1);
	if (!s->out.manifest)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "keep skill.json");
	memcpy(s->out.manifest, text, len);
	s->out.manifest_len = len;
	return 0;
}

/* Where the skill goes; *ret_strip is what its paths lose in front. */
static int place_skill(struct stage *s, const struct part *p, size_t *ret_strip,
		       struct nsbox_error *err)
{
	bool nested = !p->skill_at_top && !p->mixed && p->top[0];
	const char *name = s->spec->skill_name ? s->spec->skill_name : nested ? p->top : "skill";

	if (strlen(name) > 100)
		return nsbox_fail(err, NSBOX_E_INVALID, ENAMETOOLONG, "the skill's directory");
	snprintf(s->out.skill_dir, sizeof(s->out.skill_dir), "/skills/%.100s", name);
	*ret_strip = nested ? strlen(p->top) + 1 : 0;
	return take_manifest(s, p, err);
}

/* Without its first `strip` bytes of path, which walk() saw in every frame; the directory itself,
 * which is all that is shorter, is the base and goes without saying. */
static int append_frame(int fd, struct nsbox_frame f, const char *path, size_t strip)
{
	int r;

	if (f.path_len <= strip)
		return 0;
	path += strip;
	f.path_len -= (uint16_t)strip;
	r = write_full(fd, &f, sizeof(f));
	return r < 0 ? r : write_full(fd, path, f.path_len + f.size);
}

/* "PATH: what", a line of a text that has an end. */
static void add_notice(struct stage *s, const struct nsbox_frame *f, const char *path, size_t strip)
{
	size_t skip = f->path_len > strip ? strip : 0;
	const char *text = path + f->path_len;
	size_t have = s->out.notices ? strlen(s->out.notices) : 0;
	size_t more = f->path_len - skip + f->size + 4;
	char *p = have + more < NOTICES_MAX ? realloc(s->out.notices, have + more) : NULL;

	if (!p)
		return;
	s->out.notices = p;
	snprintf(p + have, more, "%.*s: %.*s\n", (int)(f->path_len - skip), path + skip,
		 (int)f->size, text);
}

static int append(struct stage *s, const char *base, const struct part *p, size_t strip,
		  struct nsbox_error *err)
{
	int r = nsbox_files_put_frame(s->out.fd, NSBOX_FRAME_BASE, base, 0, NULL, 0, err);
	struct nsbox_frame f;

	if (r < 0)
		return r;
	for (size_t at = 0; at < p->frames_size && r == 0; at += sizeof(f) + f.path_len + f.size) {
		memcpy(&f, p->base + at, sizeof(f));
		if (f.kind == NSBOX_FRAME_NOTE)
			add_notice(s, &f, p->base + at + sizeof(f), strip);
		else
			r = append_frame(s->out.fd, f, p->base + at + sizeof(f), strip);
	}
	return r < 0 ? nsbox_fail(err, NSBOX_E_NOMEM, -r, "stage files") : 0;
}

static int take_part(struct stage *s, struct nsbox_error *err)
{
	struct part p = { 0 };
	size_t strip = 0;
	struct stat st;
	void *map;
	int r;

	if (fstat(s->part, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "stage files");
	p.size = (size_t)st.st_size;
	map = p.size ? mmap(NULL, p.size, PROT_READ, MAP_PRIVATE, s->part, 0) : NULL;
	if (map == MAP_FAILED)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "stage files");
	p.base = map;
	r = walk(&p, err);
	if (r == 0 && s->step == STEP_SKILL)
		r = place_skill(s, &p, &strip, err);
	if (r == 0)
		r = append(s, s->step == STEP_SKILL ? s->out.skill_dir : "/workspace", &p, strip,
			   err);
	if (map)
		munmap(map, p.size);
	return r;
}

/* ------------------------------------------------------------------ steps */

static const struct bytes *archive_of(const struct stage *s)
{
	return s->step == STEP_SKILL ? &s->spec->skill_archive : &s->spec->archive;
}

static void next(void *ctx);

static void on_unpacked(void *ctx, int code, int status)
{
	struct stage *s = ctx;
	struct nsbox_error err = { 0 };
	int r;

	s->child = NULL;
	loop_timer_cancel(s->loop, &s->timer);
	r = take_part(s, &err);
	close_fd(&s->part);
	if (r < 0) {
		nsbox_error_prefix(&err, "%s",
				   s->step == STEP_SKILL ? "/skill/archive_base64"
							 : "/archive_base64");
		finish(s, &err);
		return;
	}
	s->step++;
	next(s);
}

static void on_timeout(void *ctx)
{
	struct nsbox_error err = { 0 };

	nsbox_fail_at(&err, NSBOX_STAGE_FILES, NSBOX_E_LIMIT, 0, "unpacking took too long");
	finish(ctx, &err);
}

static int start_unpack(struct stage *s, struct nsbox_error *err)
{
	const char *const argv[] = { "nsbox-unpack", NULL };
	const struct bytes *a = archive_of(s);
	auto_close int in = make_memfd("nsbox-archive", a->data, a->len, true);

	s->part = make_memfd("nsbox-unpacked", NULL, 0, false);
	if (in < 0 || s->part < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, -MIN(in, s->part), "stage files");
	s->timer.fn = on_timeout;
	loop_timer_set(s->loop, &s->timer, UNPACK_TIMEOUT_US);
	return child_start(s->loop, s->unpacker, argv, (int[]){ in, s->part, 2 }, 3, on_unpacked, s,
			   &s->child, err);
}

static int put_files(struct stage *s, struct nsbox_error *err)
{
	int r = 0;

	if (s->spec->n_files)
		r = nsbox_files_put_frame(s->out.fd, NSBOX_FRAME_BASE, "/workspace", 0, NULL, 0,
					  err);
	for (size_t i = 0; i < s->spec->n_files && r == 0; i++) {
		const struct spec_file *f = &s->spec->files[i];

		if (f->symlink)
			r = nsbox_files_put_frame(s->out.fd, NSBOX_FRAME_SYMLINK, f->path, 0777,
						  f->symlink, strlen(f->symlink), err);
		else
			r = nsbox_files_put_frame(s->out.fd, NSBOX_FRAME_FILE, f->path, f->mode,
						  f->content.data, f->content.len, err);
		if (r < 0)
			nsbox_error_prefix(err, "/files/%zu", i);
	}
	if (r == 0)
		r = nsbox_files_end(s->out.fd, err);
	if (r == 0 && lseek(s->out.fd, 0, SEEK_SET) < 0)
		r = nsbox_fail(err, NSBOX_E_IO, errno, "stage files");
	return r;
}

static void next(void *ctx)
{
	struct stage *s = ctx;
	struct nsbox_error err = { 0 };
	int r;

	while (s->step < STEP_FILES && !archive_of(s)->data)
		s->step++;
	if (s->step == STEP_FILES) {
		r = s->out.fd >= 0 ? put_files(s, &err) : 0;
		finish(s, r < 0 ? &err : NULL);
		return;
	}
	if (start_unpack(s, &err) < 0)
		finish(s, &err);
}

int stage_start(struct loop *l, const char *unpacker, const struct job_spec *spec,
		stage_done_fn *done, void *ctx, struct stage **ret, struct nsbox_error *err)
{
	struct stage *s = calloc(1, sizeof(*s));

	if (!s)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "stage files");
	*s = (struct stage){ .loop = l,
			     .unpacker = unpacker,
			     .spec = spec,
			     .done = done,
			     .ctx = ctx,
			     .part = -1,
			     .out = { .fd = -1 } };
	s->timer = (struct loop_timer){ .fn = next, .ctx = s };
	if (spec->n_files || spec->archive.data || spec->skill_archive.data) {
		s->out.fd = make_memfd("nsbox-files", NULL, 0, false);
		if (s->out.fd < 0) {
			int r = s->out.fd;

			free(s);
			return nsbox_fail(err, NSBOX_E_NOMEM, -r, "stage files");
		}
	} else {
		s->step = STEP_FILES;
	}
	/* From the loop, so that `done` never comes before this returns. */
	loop_timer_set(l, &s->timer, 0);
	*ret = s;
	return 0;
}

void stage_cancel(struct stage **sp)
{
	struct stage *s = take_ptr(sp);

	if (s)
		stage_free(s);
}
