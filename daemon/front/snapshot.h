/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots: the files of a session as they were, from which others begin.
 *
 * Each is a file in "snapshots" of the data directory: a head of fixed size, the manifest that the
 * session was made with, and what the session's sandbox sent (NSBOX_UPPER_WHOLE). They outlive the
 * session and the front. Files alone are kept: no process, no memory, no secret of a request, and
 * nothing of /tmp. A session that begins with one gets a new sandbox, whose policy is made anew of that
 * manifest, under today's ceiling.
 */
#ifndef FRONT_SNAPSHOT_H
#define FRONT_SNAPSHOT_H

#include "daemon/front/http.h"
#include "daemon/front/session.h"

#define SNAPSHOT_ID_MAX	 48 /* with the NUL */
#define SNAPSHOT_OPS_MAX 4  /* under way */

struct snapshots;

/* What a session was made of. */
struct recipe {
	char image[128], image_digest[80]; /* as nsbox-spawn said */
	char terms[65], manifest_sha256[65];
	char skill_dir[256];
	uint32_t as_operator;
	uint32_t manifest_len; /* 0: none */
};

struct snapshot {
	struct snapshot *next;
	struct snapshots *set;
	char id[SNAPSHOT_ID_MAX];
	char session[SESSION_ID_MAX + 1], workspace[WHO_WORKSPACE_MAX + 1];
	uid_t uid;
	uint64_t created_ms, bytes; /* of the file */
	struct recipe recipe;
	unsigned holds; /* sessions that are about to begin with it */
	bool passing;	/* of a fork: not listed, and gone with the last hold */
};

/* ---- snapshot.c */

/* What the directory has; files that are none are removed where they are unfinished, else left. */
int snapshots_open(int data_fd, struct snapshots **ret, struct nsbox_error *err);
void snapshots_close(struct snapshots *set); /* NULL is fine */
/* One that this client may see; NULL: there is none. */
struct snapshot *snapshot_find(const struct snapshots *set, const struct who *who, const char *id);
struct json_object *snapshots_list(const struct snapshots *set, const struct who *who);
struct json_object *snapshot_object(const struct snapshot *n);
uint64_t snapshots_bytes(const struct snapshots *set);
unsigned snapshots_count(const struct snapshots *set);

/* A file to write the stream to, at its place behind the head; `n` gets what is to be known. */
int snapshot_begin(struct snapshots *set, const struct session *s, bool passing,
		   struct snapshot **ret, int *ret_fd, struct nsbox_error *err);
/* It is whole: from now on it is there. On failure it is dropped. */
int snapshot_commit(struct snapshot *n, int fd, struct nsbox_error *err);
/* Nobody finds it any more; its file goes with the last hold. */
void snapshot_drop(struct snapshot *n);
void snapshot_hold(struct snapshot *n);
void snapshot_release(struct snapshot *n); /* NULL is fine */
/* The stream, at its start; and the manifest (malloc'd, NULL for none). */
int snapshot_stream(const struct snapshot *n, int *ret_fd, struct nsbox_error *err);
int snapshot_manifest(const struct snapshot *n, char **ret, struct nsbox_error *err);
/* Remove those that are older. */
void snapshots_sweep(struct snapshots *set, uint64_t keep_s);

/* ---- snapshot_take.c: of a session that is alive, which stands still meanwhile */

enum take_kind { TAKE_SNAPSHOT, TAKE_FORK, TAKE_CHANGES, TAKE_COMMIT };

/* Replies to rq, at once or later. image: what a commit is to be called, else NULL. */
void snapshot_take(struct front *f, struct session *s, struct http_request *rq, enum take_kind kind,
		   const char *image);
/* NSBOX_EVENT_FILES of a sandbox: false: it is about something else. */
bool snapshot_event(struct front *f, uint64_t sandbox, const struct nsbox_event *ev);
void snapshot_lost(struct front *f, uint64_t sandbox);
bool snapshot_gone(struct front *f, struct http_request *rq);

#endif
