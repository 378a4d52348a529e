/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking the files of a session that is alive: a snapshot of it, a fork, the list of its changes, or a
 * layer of an image (snapshot.h). They come through a pipe, into a file that nothing inside ever holds, and no more of
 * them than may be kept. No command of the session starts before that is over, and those that run
 * are stopped by its init.
 */
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include "daemon/common/text.h"
#include "daemon/front/evidence.h"
#include "daemon/front/images.h"
#include "daemon/front/json_reply.h"
#include "daemon/front/snapshot.h"
#include "nsbox/util.h"
#include "overlay/image/records.h"

#define CHUNK		(1u << 20)
#define CHUNKS_PER_TURN 8
#define LIST_MAX	(UINT64_C(64) << 20)

struct snapshot_op {
	struct snapshot_op *next;
	struct front *f;
	struct session *s; /* a reference */
	uint64_t sandbox;
	uint32_t id;
	enum take_kind kind;
	struct http_request *rq; /* NULL: nobody waits any more */
	int out, file;		 /* our end of the pipe; what it goes to */
	struct loop_source *source;
	struct snapshot *snapshot; /* not there yet */
	char *image;		   /* of TAKE_COMMIT */
	uint64_t bytes;
	struct nsbox_error error;
};

static void op_free(struct snapshot_op *op)
{
	for (struct snapshot_op **p = &op->f->snapshot_ops; *p; p = &(*p)->next) {
		if (*p == op) {
			*p = op->next;
			break;
		}
	}
	loop_del(op->f->loop, &op->source);
	close_fd(&op->out);
	close_fd(&op->file);
	if (op->snapshot)
		(void)snapshot_commit(take_ptr(&op->snapshot), -1, NULL);
	session_thaw(op->s);
	free(op->image);
	free(op);
}

static void op_fail(struct snapshot_op *op, const struct nsbox_error *why)
{
	struct nsbox_error copy = *why;

	if (op->rq)
		api_reply_error(op->rq, why->code == NSBOX_E_LIMIT ? 507 : 0, &copy);
	op_free(op);
}

/* ------------------------------------------------------------------ what comes */

static void stop_reading(struct snapshot_op *op)
{
	loop_del(op->f->loop, &op->source);
	close_fd(&op->out);
}

/* Of all that is kept, and of what comes in. */
static bool is_too_much(const struct snapshot_op *op)
{
	uint64_t sum = snapshots_bytes(op->f->snapshots);

	if (op->kind == TAKE_CHANGES)
		return op->bytes > LIST_MAX;
	for (const struct snapshot_op *o = op->f->snapshot_ops; o; o = o->next)
		sum += o->kind == TAKE_CHANGES ? 0 : o->bytes;
	return sum > op->f->opt->snapshot_mb << 20;
}

/* Without copying it: from the pipe into the file's pages. */
static void drain(struct snapshot_op *op, int turns)
{
	while (op->out >= 0 && turns-- != 0) {
		ssize_t n = splice(op->out, NULL, op->file, NULL, CHUNK, SPLICE_F_NONBLOCK);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0)
			nsbox_fail(&op->error, NSBOX_E_IO, errno, "keep a session's files");
		op->bytes += n > 0 ? (uint64_t)n : 0;
		if (is_too_much(op))
			nsbox_fail(
				&op->error, NSBOX_E_LIMIT, 0,
				op->kind == TAKE_CHANGES
					? "the list of changes is too long"
					: "no more room for snapshots: the service keeps %llu MB "
					  "of them at most; remove some",
				(unsigned long long)op->f->opt->snapshot_mb);
		if (n <= 0 || op->error.code)
			stop_reading(op);
	}
}

static void on_data(void *ctx, uint32_t events)
{
	drain(ctx, CHUNKS_PER_TURN);
}

/* ------------------------------------------------------------------ the end */

static int add_change(void *ctx, const char *key, const char *value, struct nsbox_error *err)
{
	const char *path = strchr(value, '/');
	struct json_object *o = json_object_new_object();
	char number[24];
	uint64_t size = 0;

	snprintf(number, sizeof(number), "%.*s", path ? (int)MIN(path - value, 20) : 0, value);
	if (!path || !parse_u64(number, &size)) {
		json_object_put(o);
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EBADMSG, "malformed list of changes");
	}
	json_put(o, "path", json_text_new(path, strlen(path)));
	if (!utf8_valid(path, strlen(path))) {
		auto_free char *exact = base64_encode(path, strlen(path));

		json_put_text(o, "path_base64", exact ? exact : "");
	}
	json_put_text(o, "kind", key);
	json_put_u64(o, "size", size);
	json_object_array_add(ctx, o);
	return 0;
}

static void reply_changes(struct snapshot_op *op)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();
	auto_free char *text = malloc(op->bytes + 1);
	struct nsbox_error err = { 0 };

	json_put(o, "changes", list);
	if (!text || pread(op->file, text, op->bytes, 0) != (ssize_t)op->bytes)
		nsbox_fail(&err, NSBOX_E_NOMEM, ENOMEM, "read the list of changes");
	else
		records_parse(text, op->bytes, add_change, list, &err);
	if (err.code) {
		json_object_put(o);
		api_reply_error(op->rq, 0, &err);
	} else {
		api_reply(op->rq, 200, o, NULL);
	}
}

static void reply_snapshot(struct front *f, struct http_request *rq, const struct snapshot *n)
{
	char place[80];
	const char *const headers[] = { "Location", place, NULL };

	evidence_note(f, "snapshot", n->uid, n->id, n->session);
	snprintf(place, sizeof(place), "/v1/snapshots/%s", n->id);
	api_reply(rq, 201, snapshot_object(n), headers);
}

static void succeed(struct snapshot_op *op)
{
	struct snapshot *n = take_ptr(&op->snapshot);
	struct http_request *rq = op->rq;
	struct front *f = op->f;
	struct nsbox_error err = { 0 };

	if (n && (!rq || snapshot_commit(n, op->file, &err) < 0)) {
		if (!rq)
			snapshot_commit(n, -1, NULL);
		op_fail(op, &err);
		return;
	}
	if (rq && op->kind == TAKE_CHANGES)
		reply_changes(op);
	if (rq && op->kind == TAKE_COMMIT)
		images_commit(f, rq, op->s, op->image, take_fd(&op->file));
	op_free(op);
	if (n && !n->passing)
		reply_snapshot(f, rq, n);
	else if (n)
		api_fork_from(f, rq, n);
}

static struct snapshot_op *find(struct front *f, uint64_t sandbox, uint32_t id)
{
	struct snapshot_op *op = f->snapshot_ops;

	while (op && (op->sandbox != sandbox || op->id != id))
		op = op->next;
	return op;
}

bool snapshot_event(struct front *f, uint64_t sandbox, const struct nsbox_event *ev)
{
	struct snapshot_op *op = find(f, sandbox, ev->id);

	if (!op)
		return false;
	drain(op, -1); /* its writer is gone: what it wrote is all there is */
	if (op->error.code || ev->error.code)
		op_fail(op, op->error.code ? &op->error : &ev->error);
	else
		succeed(op);
	return true;
}

void snapshot_lost(struct front *f, uint64_t sandbox)
{
	struct nsbox_error why = { 0 };

	nsbox_fail(&why, NSBOX_E_CANCELLED, 0, "the session has ended");
	for (struct snapshot_op *op = f->snapshot_ops, *next; op; op = next) {
		next = op->next;
		if (op->sandbox == sandbox)
			op_fail(op, &why);
	}
}

bool snapshot_gone(struct front *f, struct http_request *rq)
{
	struct wire_request q = { .kind = WIRE_FILES_CANCEL };

	for (struct snapshot_op *op = f->snapshot_ops; op; op = op->next) {
		if (op->rq != rq)
			continue;
		op->rq = NULL;
		q.sandbox = op->sandbox;
		q.arg2 = op->id;
		link_send(f->link, &q, NULL, 0, NULL);
		return true;
	}
	return false;
}

/* ------------------------------------------------------------------ the beginning */

static int open_file(struct snapshot_op *op, struct nsbox_error *err)
{
	struct front *f = op->f;

	if (op->kind == TAKE_CHANGES) {
		op->file = make_memfd("nsbox-changes", NULL, 0, false);
		return op->file < 0 ? nsbox_fail(err, NSBOX_E_NOMEM, -op->file,
						 "list a session's changes")
				    : 0;
	}
	if (op->kind == TAKE_COMMIT) { /* without a name: nobody comes back to it */
		op->file = openat(f->data_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		return op->file < 0 ? nsbox_fail(err, NSBOX_E_IO, errno, "keep a session's files")
				    : 0;
	}
	snapshots_sweep(f->snapshots, f->opt->snapshot_keep_s);
	if (op->kind == TAKE_SNAPSHOT && snapshots_count(f->snapshots) >= f->opt->snapshots)
		return nsbox_fail(err, NSBOX_E_LIMIT, 0,
				  "%u snapshots are kept, and no more may be: remove some",
				  snapshots_count(f->snapshots));
	return snapshot_begin(f->snapshots, op->s, op->kind == TAKE_FORK, &op->snapshot, &op->file,
			      err);
}

static int send(struct snapshot_op *op, struct nsbox_error *err)
{
	static const enum nsbox_upper forms[] = {
		[TAKE_SNAPSHOT] = NSBOX_UPPER_WHOLE,
		[TAKE_FORK] = NSBOX_UPPER_WHOLE,
		[TAKE_CHANGES] = NSBOX_UPPER_LIST,
		[TAKE_COMMIT] = NSBOX_UPPER_LAYER,
	};
	struct wire_request q = {
		.kind = WIRE_UPPER, .sandbox = op->sandbox, .arg = forms[op->kind], .arg2 = op->id
	};
	auto_close int write_end = -1;
	int p[2], r;

	if (pipe2(p, O_CLOEXEC) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make a pipe");
	op->out = p[0];
	write_end = p[1];
	(void)fcntl(op->out, F_SETPIPE_SZ, CHUNK); /* faster where it may be */
	if (fcntl(op->out, F_SETFL, O_NONBLOCK) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "make a pipe non-blocking");
	r = loop_add(op->f->loop, op->out, EPOLLIN, on_data, op, &op->source, err);
	return r == 0 ? link_send(op->f->link, &q, &write_end, 1, err) : r;
}

void snapshot_take(struct front *f, struct session *s, struct http_request *rq, enum take_kind kind,
		   const char *image)
{
	struct snapshot_op *op = calloc(1, sizeof(*op));
	struct nsbox_error err = { 0 };
	unsigned n = 0;

	for (const struct snapshot_op *o = f->snapshot_ops; o; o = o->next)
		n++;
	if (!op || n >= SNAPSHOT_OPS_MAX) {
		free(op);
		nsbox_fail(&err, NSBOX_E_LIMIT, EBUSY, "%u snapshots are being taken", n);
		api_reply_busy(rq, &err, 1);
		return;
	}
	*op = (struct snapshot_op){ .next = f->snapshot_ops,
				    .image = image ? strdup(image) : NULL,
				    .f = f,
				    .s = s,
				    .sandbox = s->number,
				    .id = ++f->file_op_numbers ? f->file_op_numbers
							       : ++f->file_op_numbers,
				    .kind = kind,
				    .rq = rq,
				    .out = -1,
				    .file = -1 };
	f->snapshot_ops = op;
	session_freeze(s);
	if (image && !op->image)
		nsbox_fail(&err, NSBOX_E_NOMEM, ENOMEM, "commit a session's files");
	if (err.code || open_file(op, &err) < 0 || send(op, &err) < 0)
		op_fail(op, &err);
}
