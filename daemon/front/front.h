/* SPDX-License-Identifier: Apache-2.0 */
/* The front: everything of nsboxd but the supervisor. */
#ifndef FRONT_FRONT_H
#define FRONT_FRONT_H

#include "daemon/front/http.h"
#include "daemon/front/job.h"

struct front_options {
	const char *socket_path; /* supervisor only */
	const char *user; /* whom the front becomes; NULL: "nsbox" as root, else the caller */
	const char *state_dir, *libexec; /* NULL: defaults */
	uint64_t runners, queue_max;
	struct http_peers peers;
};

struct front {
	struct job_services services;
	struct loop *loop;
	struct link *link;
	struct compiler *compiler;
	struct http *http;
	struct queue *queue;
	struct loop_timer turn; /* start what can be started */
	struct loop_timer last; /* the end, after the last replies */
	uint64_t numbers, runners, running;
	struct job *first, *last_job; /* all that are known, oldest first */
	uint64_t kept_jobs, kept_bytes;
	uint64_t asked_bytes; /* of the requests of all jobs that wait or run */
	uid_t owner;	      /* whom the service belongs to: the supervisor's user */
	bool closing;
	int status; /* of the process */
};

/* Takes both descriptors. Returns the exit status of the process. */
int front_main(const struct front_options *opt, int listen_fd, int spawn_fd);

/*
 * 0, or -EAGAIN where the queue is full. Takes the spec, which came of `size` bytes; *ret is
 * borrowed from the front's list.
 */
int front_submit(struct front *f, struct job_spec *spec, size_t size, struct job **ret,
		 struct nsbox_error *err);
struct job *front_find(struct front *f, const char *id);

/* api.c */
void api_request(void *ctx, struct http_request *rq);
void api_gone(void *ctx, struct http_request *rq);

#endif
