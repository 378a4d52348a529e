/* SPDX-License-Identifier: Apache-2.0 */
/* See verb_kit.h. */
#include "tests/support/verb_kit.h"
#include "tests/support/box_kit.h"

#include <check.h>
#include <string.h>
#include <sys/mman.h>

#include "nsbox/util.h"

static struct verb_frame *current(struct verb_answer *a)
{
	return a->n <= VERB_FRAMES_MAX ? &a->frame[a->n - 1] : NULL;
}

static int on_begin(void *ctx, int kind, const char *path, uint32_t mode, uint64_t size,
		    struct nsbox_error *err)
{
	struct verb_answer *a = ctx;
	struct verb_frame *f;

	a->n++;
	f = current(a);
	if (!f)
		return 0;
	*f = (struct verb_frame){ .kind = kind, .mode = mode };
	nsbox_format(f->path, sizeof(f->path), "%s", path);
	return 0;
}

static int on_data(void *ctx, const void *buf, size_t len, struct nsbox_error *err)
{
	struct verb_answer *a = ctx;
	struct verb_frame *f = current(a);

	a->bytes += len;
	if (f && f->size < sizeof(f->data))
		memcpy(f->data + f->size, buf, MIN(len, sizeof(f->data) - 1 - (size_t)f->size));
	if (f)
		f->size += len;
	return 0;
}

/* The struct before the text is taken off. */
static void part(struct verb_frame *f, void *to, size_t n)
{
	memcpy(to, f->data, n);
	memmove(f->data, f->data + n, sizeof(f->data) - n);
	f->data[sizeof(f->data) - 1] = '\0';
	f->size -= n;
}

static int on_finish(void *ctx, struct nsbox_error *err)
{
	struct verb_frame *f = current(ctx);

	if (f && f->kind == NSBOX_FRAME_INFO)
		part(f, &f->info, sizeof(f->info));
	if (f && f->kind == NSBOX_FRAME_MATCH)
		part(f, &f->match, sizeof(f->match));
	return 0;
}

static void read_answer(int fd, struct verb_answer *a)
{
	static const struct nsbox_files_sink sink = { on_begin, on_data, on_finish };
	const struct nsbox_files_limits lim = { UINT64_C(16) << 30, 1000000 };
	struct nsbox_files_reader *reader = NULL;
	static char buf[65536];
	ssize_t n;
	int r = nsbox_files_reader_new(&sink, a, &lim, &reader, &a->stream);

	ck_assert_int_eq(r, 0);
	ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
	while (r == 0 && (n = read(fd, buf, sizeof(buf))) > 0)
		r = nsbox_files_feed(reader, buf, (size_t)n, &a->stream);
	if (r == 0 && !nsbox_files_done(reader))
		nsbox_fail(&a->stream, NSBOX_E_PROTOCOL, 0, "no end");
	nsbox_files_reader_free(reader);
}

void verb_ask(struct nsbox_sandbox *sb, const struct nsbox_file_request *req, int in,
	      struct verb_answer *ret)
{
	auto_close int out = memfd_create("answer", MFD_CLOEXEC);
	static uint32_t id;
	struct nsbox_error err = { 0 };
	struct nsbox_event ev;

	*ret = (struct verb_answer){ 0 };
	if (nsbox_sandbox_files(sb, req, ++id, in, out, &ret->error) < 0)
		return;
	do {
		ck_assert_msg(nsbox_sandbox_next(sb, 30000 * (int)box_slow(), &ev, &err) == 0, "%s",
			      err.msg);
		ck_assert_msg(ev.kind != NSBOX_EVENT_NONE && ev.kind != NSBOX_EVENT_GONE,
			      "no answer to a request about '%s'", req->path);
	} while (ev.kind != NSBOX_EVENT_FILES);
	ck_assert_uint_eq(ev.id, id);
	ret->error = ev.error;
	read_answer(out, ret);
}

int verb_do(struct nsbox_sandbox *sb, uint32_t verb, uint32_t flags, const char *path,
	    struct verb_answer *ret)
{
	static struct verb_answer own;
	const struct nsbox_file_request req = {
		.verb = verb,
		.flags = flags,
		.path = path,
		.mode = NSBOX_FILE_MODE_DEFAULT,
		.length = NSBOX_FILE_SIZE_UNKNOWN,
	};

	ret = ret ? ret : &own;
	verb_ask(sb, &req, -1, ret);
	return ret->error.code ? ret->error.errnum ? ret->error.errnum : -1 : 0;
}

int verb_put_text(struct nsbox_sandbox *sb, uint32_t flags, const char *path, const char *text)
{
	const struct nsbox_file_request req = {
		.verb = NSBOX_FILE_PUT,
		.flags = flags,
		.path = path,
		.mode = NSBOX_FILE_MODE_DEFAULT,
		.length = strlen(text),
	};
	auto_close int in = make_memfd("put", text, strlen(text), false);
	static struct verb_answer a;

	ck_assert_int_eq(lseek(in, 0, SEEK_SET), 0);
	verb_ask(sb, &req, in, &a);
	return a.error.code ? a.error.errnum ? a.error.errnum : -1 : 0;
}

const struct verb_frame *verb_find(const struct verb_answer *a, const char *path)
{
	for (unsigned i = 0; i < a->n && i < VERB_FRAMES_MAX; i++)
		if (strcmp(a->frame[i].path, path) == 0)
			return &a->frame[i];
	return NULL;
}
