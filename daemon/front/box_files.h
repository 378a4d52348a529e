/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests about the files of a live sandbox: from an HTTP request to its reply. What is asked is
 * encoded here and carried out inside the sandbox (nsbox/files.h); what comes back is checked,
 * bounded, and turned into JSON, bytes or a tar file. Archives go through nsbox-unpack first.
 */
#ifndef FRONT_BOX_FILES_H
#define FRONT_BOX_FILES_H

#include <nsbox/files.h>
#include <nsbox/sandbox.h>

#include "daemon/front/http.h"

struct front;
struct json_object;

#define BOX_FILES_BYTES_MAX  (UINT64_C(64) << 20) /* of one answer; more comes in ranges */
#define BOX_FILES_FRAMES_MAX 20000
#define BOX_FILES_OPS_MAX    32 /* under way, of all sandboxes */

enum box_files_answer {
	BOX_FILES_JSON, /* {"entries", "matches", "left_out"} */
	BOX_FILES_RAW,	/* the content; `range` says whether a part was asked for */
	BOX_FILES_TAR,
};

struct box_files_want {
	struct nsbox_file_request req; /* strings are borrowed for the call */
	enum box_files_answer answer;
	bool range;
	char *body; /* PUT, UPLOAD: taken */
	size_t body_len;
	bool unpack;  /* the body is an archive */
	bool created; /* 201 instead of 200 */
};

/* Replies to rq, at once or later; the body is taken in any case. */
void box_files_start(struct front *f, uint64_t sandbox, struct http_request *rq,
		     const struct box_files_want *want);
/*
 * Put a file stream into the working directory, for no HTTP request. `done` is called once, why NULL
 * where all is there, unless that is forgotten first; also where the sandbox goes. The descriptor is
 * taken in any case.
 */
struct box_files_op;
typedef void box_files_done_fn(void *ctx, const struct nsbox_error *why);
int box_files_put(struct front *f, uint64_t sandbox, int *fd, box_files_done_fn *done, void *ctx,
		  struct box_files_op **ret, struct nsbox_error *err);
void box_files_forget(struct box_files_op **op); /* NULL is fine */
/* The status that says why an operation failed; 0: that of the code. */
int box_files_status(const struct nsbox_error *e);
/* NSBOX_EVENT_FILES of a sandbox. */
void box_files_event(struct front *f, uint64_t sandbox, const struct nsbox_event *ev);
/* The sandbox is no more (0: all of them). */
void box_files_lost(struct front *f, uint64_t sandbox);
/* The client of a request is gone; false: it is none of ours. */
bool box_files_gone(struct front *f, struct http_request *rq);

/* box_answer.c: what comes out of a sandbox, as it comes. */
struct box_answer;
int box_answer_new(enum box_files_answer kind, struct box_answer **ret, struct nsbox_error *err);
void box_answer_free(struct box_answer *a);
int box_answer_feed(struct box_answer *a, const void *buf, size_t len, struct nsbox_error *err);
bool box_answer_done(const struct box_answer *a);
/* The reply to a request that went well; status 200 or 201. */
void box_answer_reply(struct box_answer *a, struct http_request *rq, int status, bool range,
		      uint64_t offset, struct json_object *notices);

#endif
