/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See images.h. nsbox-spawn writes what there is, as records, into a memfd; what it says of an image
 * comes from the image's author and was checked when that was imported.
 */
#include "daemon/front/images.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/common/image_object.h"
#include "daemon/front/evidence.h"
#include "daemon/front/json_reply.h"
#include "daemon/front/session.h"
#include "daemon/front/snapshot.h"
#include "nsbox/util.h"
#include "overlay/image/records.h"

#define TEXT_MAX (64 << 20)
#define OPS_MAX	 16

struct images_op {
	struct images_op *next;
	uint64_t number;
	struct http_request *rq; /* NULL: nobody waits any more */
	char *name;		 /* of the one that is asked for, or made; NULL: all */
	bool made;
	int file;
};

static void op_free(struct front *f, struct images_op *op)
{
	for (struct images_op **p = &f->image_ops; *p; p = &(*p)->next) {
		if (*p == op) {
			*p = op->next;
			break;
		}
	}
	close_fd(&op->file);
	free(op->name);
	free(op);
}

/* ------------------------------------------------------------------ reading */

struct reading {
	const char *only; /* NULL: all */
	struct json_object *list;
	char name[IMAGE_NAME_MAX], id[DIGEST_TEXT];
	struct image_index x;
};

/* By name, or by the first digits of the id, as for a run. */
static bool is_meant(const struct reading *r)
{
	return !r->only || strcmp(r->only, r->name) == 0 ||
	       (strlen(r->only) >= 8 && strncmp(r->only, r->id, strlen(r->only)) == 0);
}

static void put_image(struct reading *r)
{
	if (*r->name && is_meant(r))
		json_object_array_add(r->list,
				      image_object(r->name, r->id, &r->x, r->only != NULL));
	index_done(&r->x);
	r->x = (struct image_index){ 0 };
}

static int on_record(void *ctx, const char *key, const char *value, struct nsbox_error *err)
{
	struct reading *r = ctx;

	if (strcmp(key, "image") == 0) {
		put_image(r);
		snprintf(r->name, sizeof(r->name), "%s", value);
		return 0;
	}
	if (strcmp(key, "id") == 0) {
		snprintf(r->id, sizeof(r->id), "%s", value);
		return 0;
	}
	return index_record(&r->x, key, value, err);
}

static int read_text(const struct images_op *op, struct reading *r, struct nsbox_error *err)
{
	auto_free char *text = NULL;
	struct stat st;
	int ret;

	if (fstat(op->file, &st) < 0 || st.st_size > TEXT_MAX)
		return nsbox_fail(err, NSBOX_E_LIMIT, EFBIG, "the list of images is too long");
	text = malloc((size_t)st.st_size + 1);
	if (!text || pread(op->file, text, (size_t)st.st_size, 0) != st.st_size)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read the list of images");
	ret = records_parse(text, (size_t)st.st_size, on_record, r, err);
	put_image(r);
	return ret;
}

/* ------------------------------------------------------------------ replies */

/* This machine's own files, which are always there and in no store. */
static struct json_object *host_object(void)
{
	struct json_object *o = json_object_new_object();

	json_put_text(o, "name", "host");
	json_put_text(o, "source", "host");
	return o;
}

static void reply(const struct images_op *op, struct json_object *list)
{
	struct json_object *o;

	if (!op->name) {
		o = json_object_new_object();
		json_put(o, "images", list);
		api_reply(op->rq, 200, o, NULL);
		return;
	}
	if (json_object_array_length(list))
		api_reply(op->rq, 200, json_object_get(json_object_array_get_idx(list, 0)), NULL);
	else
		http_reply_error(op->rq, 404, "not_found", "no image is called '%.127s'", op->name);
	json_object_put(list);
}

/* What nsbox-commit said. */
static int on_word(void *ctx, const char *key, const char *value, struct nsbox_error *err)
{
	struct json_object *o = ctx;

	if (strcmp(key, "error") == 0)
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "%s", value);
	json_put_text(o, key, value);
	return 0;
}

static void reply_made(struct front *f, const struct images_op *op, struct nsbox_error *err)
{
	struct json_object *o = json_object_new_object();
	char text[2048];
	ssize_t n = pread(op->file, text, sizeof(text) - 1, 0);

	json_put_text(o, "name", op->name);
	if (!err->code && n <= 0)
		nsbox_fail(err, NSBOX_E_PROTOCOL, 0, "nsbox-commit said nothing");
	else if (!err->code)
		records_parse(text, (size_t)n, on_word, o, err);
	if (op->rq && err->code)
		api_reply_error(op->rq, 0, err);
	else if (op->rq)
		api_reply(op->rq, 201, json_object_get(o), NULL);
	json_object_put(o);
}

void images_event(struct front *f, const struct wire_event *w)
{
	struct images_op *op = f->image_ops;
	struct nsbox_error err = w->event.error;
	struct reading r = { 0 };

	while (op && op->number != w->sandbox)
		op = op->next;
	if (!op)
		return;
	if (op->made) {
		reply_made(f, op, &err);
		op_free(f, op);
		return;
	}
	r.only = op->name;
	r.list = json_object_new_array();
	if (!op->name || strcmp(op->name, "host") == 0)
		json_object_array_add(r.list, host_object());
	if (!err.code)
		read_text(op, &r, &err);
	if (op->rq && !err.code)
		reply(op, take_ptr(&r.list));
	else if (op->rq)
		api_reply_error(op->rq, 0, &err);
	json_object_put(r.list);
	op_free(f, op);
}

bool images_gone(struct front *f, struct http_request *rq)
{
	for (struct images_op *op = f->image_ops; op; op = op->next) {
		if (op->rq != rq)
			continue;
		op->rq = NULL;
		return true;
	}
	return false;
}

void images_close(struct front *f)
{
	while (f->image_ops) {
		if (f->image_ops->rq)
			http_reply_error(f->image_ops->rq, 503, "unavailable",
					 "the service is about to end");
		op_free(f, f->image_ops);
	}
}

/* ------------------------------------------------------------------ asking */

static int start(struct front *f, struct images_op *op, struct nsbox_error *err)
{
	struct wire_request q = { .kind = WIRE_IMAGES, .sandbox = op->number };

	op->file = make_memfd("nsbox-images", NULL, 0, false);
	if (op->file < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, -op->file, "list the images");
	return link_send(f->link, &q, &op->file, 1, err);
}

/* NULL: answered. */
static struct images_op *op_new(struct front *f, struct http_request *rq, const char *name)
{
	struct images_op *op = calloc(1, sizeof(*op));
	struct nsbox_error err = { 0 };
	unsigned n = 0;

	for (const struct images_op *o = f->image_ops; o; o = o->next)
		n++;
	if (!op || n >= OPS_MAX || (name && !(op->name = strdup(name)))) {
		free(op);
		nsbox_fail(&err, NSBOX_E_LIMIT, EBUSY, "%u requests about images are under way", n);
		api_reply_busy(rq, &err, 1);
		return NULL;
	}
	op->next = f->image_ops;
	op->number = ++f->numbers;
	op->rq = rq;
	op->file = -1;
	f->image_ops = op;
	return op;
}

static void ask(struct front *f, struct http_request *rq, const char *name)
{
	struct images_op *op = op_new(f, rq, name);
	struct nsbox_error err = { 0 };

	if (!op || start(f, op, &err) == 0)
		return;
	api_reply_error(rq, 0, &err);
	op_free(f, op);
}

void images_commit(struct front *f, struct http_request *rq, const struct session *s,
		   const char *name, int file)
{
	struct wire_request q = { .kind = WIRE_COMMIT };
	struct images_op *op = op_new(f, rq, name);
	auto_close int stream = file;
	struct nsbox_error err = { 0 };
	int fds[2];

	if (!op)
		return;
	op->made = true;
	q.sandbox = op->number;
	memcpy(q.image, s->recipe->image, sizeof(q.image));
	snprintf(q.image_digest, sizeof(q.image_digest), "%s", s->image_digest);
	snprintf(q.base, sizeof(q.base), "%s", name);
	op->file = make_memfd("nsbox-commit", NULL, 0, false);
	fds[0] = stream;
	fds[1] = op->file;
	if (op->file < 0 || lseek(stream, 0, SEEK_SET) < 0)
		nsbox_fail(&err, NSBOX_E_NOMEM, errno, "commit a session's files");
	if (!err.code && link_send(f->link, &q, fds, 2, &err) == 0) {
		evidence_note(f, "commit", http_peer(rq), name, s->id);
		return;
	}
	api_reply_error(rq, 0, &err);
	op_free(f, op);
}

void api_list_images(struct front *f, struct http_request *rq, const char *rest)
{
	ask(f, rq, NULL);
}

void api_get_image(struct front *f, struct http_request *rq, const char *name)
{
	ask(f, rq, name);
}
