/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a run, as one file stream for the sandbox (nsbox/files.h). */
#ifndef FRONT_STAGE_H
#define FRONT_STAGE_H

#include "daemon/front/loop.h"
#include "daemon/front/request.h"

struct stage;

struct staged {
	int fd;		     /* the stream, at its start; -1: no files. The receiver takes it. */
	char skill_dir[256]; /* inside path, "" for none */
	char *manifest;	     /* the skill's skill.json, NULL for none; malloc'd, the receiver's */
	size_t manifest_len;
	char *notices; /* what the archives' files may have wrong, lines; NULL for none; as above */
};
/* `why` is NULL on success. `what` is only valid then. */
typedef void stage_done_fn(void *ctx, const struct nsbox_error *why, struct staged *what);

/* The spec is borrowed until `done`, which is always called later, from the loop. */
int stage_start(struct loop *l, const char *unpacker, const struct job_spec *spec,
		stage_done_fn *done, void *ctx, struct stage **ret, struct nsbox_error *err);
void stage_cancel(struct stage **s); /* NULL is fine */

#endif
