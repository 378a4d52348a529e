/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files a run hands back.
 *
 * They come as a file stream from a helper inside the sandbox, so the stream is as untrusted as
 * the files: the library's reader checks it, this file bounds it. A fault in it costs the outputs
 * of this run (and the reply says so), nothing else.
 */
#include "daemon/front/outputs.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "nsbox/util.h"

#define CHUNK		(64 * 1024)
#define CHUNKS_PER_TURN 32

static struct output_file *current(struct outputs *o)
{
	return &o->files[o->n - 1];
}

static int grow(struct outputs *o)
{
	size_t cap = o->cap ? o->cap * 2 : 16;
	struct output_file *p;

	if (o->n < o->cap)
		return 0;
	p = realloc(o->files, cap * sizeof(*p));
	if (!p)
		return -ENOMEM;
	o->files = p;
	o->cap = cap;
	return 0;
}

static int begin(void *ctx, int kind, const char *path, uint32_t mode, uint64_t size,
		 struct nsbox_error *err)
{
	struct outputs *o = ctx;
	struct output_file *f;

	if (kind != NSBOX_FRAME_FILE && kind != NSBOX_FRAME_NOTE)
		return 0;
	if (grow(o) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "keep an output");
	f = &o->files[o->n++];
	*f = (struct output_file){ .path = strdup(path), .data = malloc(size + 1), .size = size };
	if (!f->path || !f->data)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "keep output '%s'", path);
	if (kind == NSBOX_FRAME_NOTE)
		f->note = (char *)f->data;
	return 0;
}

static int data(void *ctx, const void *buf, size_t len, struct nsbox_error *err)
{
	struct outputs *o = ctx;
	struct output_file *f;

	/* Content of frames that are not kept (the end's message) comes here as well. */
	if (o->n == 0 || current(o)->have + len > current(o)->size)
		return 0;
	f = current(o);
	memcpy(f->data + f->have, buf, len);
	f->have += len;
	return 0;
}

static int finish(void *ctx, struct nsbox_error *err)
{
	struct outputs *o = ctx;
	unsigned char md[32];
	struct output_file *f = o->n ? current(o) : NULL;

	if (!f || f->sha256[0] || f->have != f->size)
		return 0;
	f->data[f->size] = 0; /* a note is a string */
	if (EVP_Digest(f->data, f->size, md, NULL, EVP_sha256(), NULL) != 1)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "hash an output");
	for (size_t i = 0; i < sizeof(md); i++)
		snprintf(f->sha256 + 2 * i, 3, "%02x", md[i]);
	return 0;
}

static void stop(struct outputs *o)
{
	loop_del(o->loop, &o->source);
	close_fd(&o->fd);
}

static void drain(struct outputs *o, int turns)
{
	char buf[CHUNK];

	while (o->fd >= 0 && turns-- != 0) {
		ssize_t n = read(o->fd, buf, sizeof(buf));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0 || nsbox_files_feed(o->reader, buf, (size_t)n, &o->error) < 0)
			stop(o);
	}
}

static void on_ready(void *ctx, uint32_t events)
{
	drain(ctx, CHUNKS_PER_TURN);
}

int outputs_start(struct outputs *o, struct loop *l, int *ret_fd, struct nsbox_error *err)
{
	static const struct nsbox_files_sink sink = { begin, data, finish };
	const struct nsbox_files_limits lim = { OUTPUTS_MAX_BYTES, OUTPUTS_MAX_FILES };
	auto_close int out = -1;
	int p[2], r;

	*o = (struct outputs){ .loop = l, .fd = -1 };
	r = nsbox_files_reader_new(&sink, o, &lim, &o->reader, err);
	if (r < 0)
		return r;
	if (pipe2(p, O_CLOEXEC) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make a pipe");
	o->fd = p[0];
	out = p[1];
	if (fcntl(o->fd, F_SETFL, O_NONBLOCK) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "make a pipe non-blocking");
	r = loop_add(l, o->fd, EPOLLIN, on_ready, o, &o->source, err);
	if (r == 0)
		*ret_fd = take_fd(&out);
	return r;
}

void outputs_finish(struct outputs *o)
{
	if (!o->loop)
		return;
	drain(o, 64);
	stop(o);
	if (o->error.code == 0 && !nsbox_files_done(o->reader))
		nsbox_fail(&o->error, NSBOX_E_PROTOCOL, 0, "the outputs ended early");
}

void outputs_done(struct outputs *o)
{
	if (!o->loop)
		return;
	stop(o);
	nsbox_files_reader_free(o->reader);
	for (size_t i = 0; i < o->n; i++) {
		free(o->files[i].path);
		free(o->files[i].data);
	}
	free(o->files);
	*o = (struct outputs){ .fd = -1 };
}
