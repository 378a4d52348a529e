/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See box_files.h. An operation is over when nsbox-spawn says so; its answer comes through a pipe
 * meanwhile. A client that goes away cancels what it asked for.
 */
#include "daemon/front/box_files.h"

#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "daemon/common/text.h"
#include "daemon/front/child.h"
#include "daemon/front/front.h"
#include "daemon/front/json_reply.h"
#include "nsbox/util.h"

#define CHUNK		  65536
#define CHUNKS_PER_TURN	  32
#define UNPACK_TIMEOUT_US (60 * UINT64_C(1000000))

struct box_files_op {
	struct box_files_op *prev, *next;
	struct front *f;
	uint64_t sandbox;
	uint32_t id;
	struct http_request *rq; /* NULL: nobody waits any more */
	box_files_done_fn *done; /* of one that is for no request */
	void *ctx;
	bool range, created;
	bool cancelled;
	uint64_t offset;
	int blob, in, out; /* out: our end of the answer's pipe */
	struct loop_source *source;
	struct box_answer *answer;
	struct nsbox_error error; /* of the answer */
	struct child *child;	  /* unpacks the body */
	struct loop_timer timer;
	int part;		     /* memfd that it writes */
	struct json_object *notices; /* of the unpacked archive */
};

static void op_free(struct box_files_op *op)
{
	if (op->prev)
		op->prev->next = op->next;
	else
		op->f->file_ops = op->next;
	if (op->next)
		op->next->prev = op->prev;
	op->f->n_file_ops--;
	loop_timer_cancel(op->f->loop, &op->timer);
	child_forget(&op->child);
	loop_del(op->f->loop, &op->source);
	close_fd(&op->blob);
	close_fd(&op->in);
	close_fd(&op->out);
	close_fd(&op->part);
	box_answer_free(op->answer);
	json_object_put(op->notices);
	free(op);
}

/* ------------------------------------------------------------------ ends */

/* What a system call said, as HTTP says it. */
int box_files_status(const struct nsbox_error *e)
{
	static const struct {
		int errnum, status;
	} rows[] = {
		{ ENOENT, 404 },  { EEXIST, 409 }, { ENOTEMPTY, 409 }, { EISDIR, 409 },
		{ ENOTDIR, 409 }, { EXDEV, 409 },  { ELOOP, 409 },     { EACCES, 403 },
		{ EPERM, 403 },	  { EROFS, 403 },  { ENOSPC, 507 },    { EDQUOT, 507 },
		{ EFBIG, 413 },	  { EBUSY, 429 },  { ETIMEDOUT, 504 }, { ENAMETOOLONG, 400 },
		{ ENXIO, 409 },	  { EINVAL, 400 },
	};

	for (size_t i = 0; e->errnum && i < ARRAY_SIZE(rows); i++)
		if (rows[i].errnum == e->errnum)
			return rows[i].status;
	return e->code == NSBOX_E_LIMIT ? 413 : 0;
}

static void op_fail(struct box_files_op *op, const struct nsbox_error *why)
{
	box_files_done_fn *done = op->done;
	void *ctx = op->ctx;

	if (op->rq)
		api_reply_error(op->rq, box_files_status(why), why);
	op_free(op);
	if (done)
		done(ctx, why);
}

static void op_succeed(struct box_files_op *op)
{
	box_files_done_fn *done = op->done;
	void *ctx = op->ctx;

	if (op->rq)
		box_answer_reply(op->answer, op->rq, op->created ? 201 : 200, op->range, op->offset,
				 op->notices);
	op_free(op);
	if (done)
		done(ctx, NULL);
}

static void drain(struct box_files_op *op, int turns)
{
	char buf[CHUNK];

	while (op->out >= 0 && turns-- != 0) {
		ssize_t n = read(op->out, buf, sizeof(buf));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0 || box_answer_feed(op->answer, buf, (size_t)n, &op->error) < 0) {
			loop_del(op->f->loop, &op->source);
			close_fd(&op->out);
		}
	}
}

static void on_answer(void *ctx, uint32_t events)
{
	drain(ctx, CHUNKS_PER_TURN);
}

static struct box_files_op *find(struct front *f, uint64_t sandbox, uint32_t id)
{
	struct box_files_op *op = f->file_ops;

	while (op && (op->sandbox != sandbox || op->id != id))
		op = op->next;
	return op;
}

void box_files_event(struct front *f, uint64_t sandbox, const struct nsbox_event *ev)
{
	struct box_files_op *op = find(f, sandbox, ev->id);

	if (!op)
		return;
	drain(op, -1); /* the helper is gone: what it wrote is all there is */
	if (ev->error.code == 0 && op->error.code == 0 && !box_answer_done(op->answer))
		nsbox_fail(&op->error, NSBOX_E_PROTOCOL, 0, "the sandbox's answer is not whole");
	if (ev->error.code || op->error.code) {
		op_fail(op, ev->error.code ? &ev->error : &op->error);
		return;
	}
	op_succeed(op);
}

void box_files_lost(struct front *f, uint64_t sandbox)
{
	struct nsbox_error why = { 0 };

	nsbox_fail(&why, NSBOX_E_CANCELLED, 0, "the sandbox has ended");
	for (struct box_files_op *op = f->file_ops, *next; op; op = next) {
		next = op->next;
		if (!sandbox || op->sandbox == sandbox)
			op_fail(op, &why);
	}
}

/* Nobody waits for it. */
static void cancel(struct box_files_op *op)
{
	struct wire_request q = { .kind = WIRE_FILES_CANCEL,
				  .sandbox = op->sandbox,
				  .arg2 = op->id };

	op->rq = NULL;
	op->done = NULL;
	if (op->child || op->part >= 0) /* nothing was sent yet */
		op_free(op);
	else
		link_send(op->f->link, &q, NULL, 0, NULL);
}

void box_files_forget(struct box_files_op **opp)
{
	struct box_files_op *op = take_ptr(opp);

	if (op)
		cancel(op);
}

bool box_files_gone(struct front *f, struct http_request *rq)
{
	for (struct box_files_op *op = f->file_ops; op; op = op->next) {
		if (op->rq != rq)
			continue;
		cancel(op);
		return true;
	}
	return false;
}

/* ------------------------------------------------------------------ sending */

static int send(struct box_files_op *op, struct nsbox_error *err)
{
	struct wire_request q = { .kind = WIRE_FILES, .sandbox = op->sandbox, .arg2 = op->id };
	auto_close int write_end = -1;
	int p[2], fds[3], r;
	unsigned n = 0;

	if (pipe2(p, O_CLOEXEC) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make a pipe");
	op->out = p[0];
	write_end = p[1];
	if (fcntl(op->out, F_SETFL, O_NONBLOCK) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "make a pipe non-blocking");
	r = loop_add(op->f->loop, op->out, EPOLLIN, on_answer, op, &op->source, err);
	if (r < 0)
		return r;
	fds[n++] = op->blob;
	if (op->in >= 0) {
		q.arg |= WIRE_FILES_IN;
		fds[n++] = op->in;
	}
	q.arg |= WIRE_FILES_OUT;
	fds[n++] = write_end;
	r = link_send(op->f->link, &q, fds, n, err);
	close_fd(&op->blob);
	close_fd(&op->in);
	return r;
}

/* ------------------------------------------------------------------ archives */

struct check {
	struct box_files_op *op;
	int kind;
	char path[4096], text[4096];
	size_t have;
};

static int check_begin(void *ctx, int kind, const char *path, uint32_t mode, uint64_t size,
		       struct nsbox_error *err)
{
	struct check *c = ctx;

	c->kind = kind;
	c->have = 0;
	snprintf(c->path, sizeof(c->path), "%s", path);
	return 0;
}

static int check_data(void *ctx, const void *buf, size_t len, struct nsbox_error *err)
{
	struct check *c = ctx;

	if (c->kind == NSBOX_FRAME_NOTE && c->have + len < sizeof(c->text)) {
		memcpy(c->text + c->have, buf, len);
		c->have += len;
	}
	return 0;
}

static int check_finish(void *ctx, struct nsbox_error *err)
{
	struct check *c = ctx;
	struct json_object *o;

	if (c->kind != NSBOX_FRAME_NOTE)
		return 0;
	o = json_object_new_object();
	json_put(o, "path", json_text_new(c->path, strlen(c->path)));
	json_put(o, "note", json_text_new(c->text, c->have));
	if (!c->op->notices)
		c->op->notices = json_object_new_array();
	json_object_array_add(c->op->notices, o);
	return 0;
}

/* What the worker wrote is taken as a whole or not at all: it is read to its end before any of it
 * goes into the sandbox. */
static int check_part(struct box_files_op *op, struct nsbox_error *err)
{
	static const struct nsbox_files_sink sink = { check_begin, check_data, check_finish };
	auto_free struct check *c = calloc(1, sizeof(*c));
	struct nsbox_files_reader *reader;
	char buf[CHUNK];
	off_t at = 0;
	ssize_t n;
	int r;

	if (!c)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "check an archive");
	c->op = op;
	r = nsbox_files_reader_new(&sink, c, NULL, &reader, err);
	if (r < 0)
		return r;
	while (r == 0 && (n = pread(op->part, buf, sizeof(buf), at)) > 0) {
		r = nsbox_files_feed(reader, buf, (size_t)n, err);
		at += n;
	}
	if (r == 0 && !nsbox_files_done(reader))
		r = nsbox_fail(err, NSBOX_E_PROTOCOL, 0, "the unpacking worker ended early");
	nsbox_files_reader_free(reader);
	return r;
}

static void on_unpacked(void *ctx, int code, int status)
{
	struct box_files_op *op = ctx;
	struct nsbox_error err = { 0 };

	op->child = NULL;
	loop_timer_cancel(op->f->loop, &op->timer);
	if (check_part(op, &err) == 0) {
		close_fd(&op->in);
		op->in = take_fd(&op->part);
		if (lseek(op->in, 0, SEEK_SET) < 0)
			nsbox_fail(&err, NSBOX_E_IO, errno, "rewind an archive");
		else
			send(op, &err);
	}
	if (err.code)
		op_fail(op, &err);
}

static void on_timeout(void *ctx)
{
	struct nsbox_error err = { 0 };

	nsbox_fail(&err, NSBOX_E_LIMIT, ETIMEDOUT, "unpacking took too long");
	op_fail(ctx, &err);
}

static int start_unpack(struct box_files_op *op, struct nsbox_error *err)
{
	const char *const argv[] = { "nsbox-unpack", NULL };

	op->part = make_memfd("nsbox-unpacked", NULL, 0, false);
	if (op->part < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, -op->part, "unpack an archive");
	op->timer = (struct loop_timer){ .fn = on_timeout, .ctx = op };
	loop_timer_set(op->f->loop, &op->timer, UNPACK_TIMEOUT_US);
	return child_start(op->f->loop, op->f->services.unpacker, argv,
			   (int[]){ op->in, op->part, 2 }, 3, on_unpacked, op, &op->child, err);
}

/* ------------------------------------------------------------------ starting */

static struct box_files_op *op_new(struct front *f, uint64_t sandbox, struct http_request *rq,
				   const struct box_files_want *want)
{
	struct box_files_op *op = calloc(1, sizeof(*op));

	if (!op)
		return NULL;
	*op = (struct box_files_op){ .next = f->file_ops,
				     .f = f,
				     .sandbox = sandbox,
				     .id = ++f->file_op_numbers ? f->file_op_numbers
								: ++f->file_op_numbers,
				     .rq = rq,
				     .range = want->range,
				     .created = want->created,
				     .offset = want->req.offset,
				     .blob = -1,
				     .in = -1,
				     .out = -1,
				     .part = -1 };
	if (op->next)
		op->next->prev = op;
	f->file_ops = op;
	f->n_file_ops++;
	return op;
}

static int op_begin(struct box_files_op *op, const struct box_files_want *want,
		    struct nsbox_error *err)
{
	struct nsbox_file_request req = want->req;
	int r;

	req.lim = (struct nsbox_files_limits){ BOX_FILES_BYTES_MAX, BOX_FILES_FRAMES_MAX };
	if (want->unpack)
		req.lim = NSBOX_FILES_LIMITS_DEFAULT;
	r = nsbox_files_encode(&req, &op->blob, err);
	if (r == 0)
		r = box_answer_new(want->answer, &op->answer, err);
	if (r < 0)
		return r;
	if (req.verb == NSBOX_FILE_PUT || want->unpack) {
		op->in = make_memfd("nsbox-put", want->body, want->body_len, false);
		if (op->in < 0 || lseek(op->in, 0, SEEK_SET) < 0)
			return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "keep what is to be put");
	}
	return want->unpack ? start_unpack(op, err) : send(op, err);
}

void box_files_start(struct front *f, uint64_t sandbox, struct http_request *rq,
		     const struct box_files_want *want)
{
	struct nsbox_error err = { 0 };
	auto_free char *body = want->body;
	struct box_files_op *op = NULL;

	if (f->n_file_ops >= BOX_FILES_OPS_MAX)
		nsbox_fail(&err, NSBOX_E_LIMIT, EBUSY, "%d requests about files are under way",
			   BOX_FILES_OPS_MAX);
	else if (!(op = op_new(f, sandbox, rq, want)))
		nsbox_fail(&err, NSBOX_E_NOMEM, ENOMEM, "take a request about files");
	else
		op_begin(op, want, &err);
	if (!err.code)
		return;
	if (op)
		op_fail(op, &err);
	else
		api_reply_error(rq, box_files_status(&err), &err);
}

int box_files_put(struct front *f, uint64_t sandbox, int *fd, box_files_done_fn *done, void *ctx,
		  struct box_files_op **ret, struct nsbox_error *err)
{
	const struct nsbox_file_request req = { .verb = NSBOX_FILE_UPLOAD,
						.path = "/workspace",
						.lim = NSBOX_FILES_LIMITS_DEFAULT };
	const struct box_files_want want = { .answer = BOX_FILES_JSON };
	auto_close int in = take_fd(fd);
	struct box_files_op *op = NULL;
	int r;

	if (f->n_file_ops >= BOX_FILES_OPS_MAX)
		return nsbox_fail(err, NSBOX_E_LIMIT, EBUSY,
				  "%d requests about files are under way", BOX_FILES_OPS_MAX);
	op = op_new(f, sandbox, NULL, &want);
	if (!op)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "put files");
	op->in = take_fd(&in);
	r = nsbox_files_encode(&req, &op->blob, err);
	if (r == 0)
		r = box_answer_new(BOX_FILES_JSON, &op->answer, err);
	if (r == 0)
		r = send(op, err);
	if (r < 0) {
		op_free(op);
		return r;
	}
	op->done = done;
	op->ctx = ctx;
	*ret = op;
	return 0;
}
