/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work on files inside init: helpers that run beside the programs, each with a deadline. Init keeps
 * serving meanwhile; a helper that hangs, or that hostile code of the same id has stopped, costs
 * nobody more than its place.
 */
#ifndef NSBOX_INIT_FILES_H
#define NSBOX_INIT_FILES_H

#include "nsbox/child.h"

#define INIT_HELPERS_MAX (NSBOX_FILES_AT_ONCE + 1) /* and one that collects */

struct init_helper {
	struct helper helper; /* pid 0: a free place */
	uint32_t id;	      /* of the request, 0: it collects */
	uint64_t due_us;      /* when it is asked to end, later killed */
	uint32_t stopped;     /* enum nsbox_error_code: why it was asked to, or 0 */
	bool alone;	      /* programs are stopped until it has ended */
};

struct init_files {
	struct child *child;
	struct init_helper helper[INIT_HELPERS_MAX];
	unsigned stopping; /* helpers that run alone */
};

void init_files_init(struct init_files *f, struct child *c);
/* Requests; the descriptors are taken. The answer goes to the owner when the helper has ended. */
void init_files_collect(struct init_files *f, struct ctl_request *req, int *fds, unsigned n);
void init_files_verb(struct init_files *f, const struct ctl_request *req, int *fds, unsigned n);
void init_files_upper(struct init_files *f, const struct ctl_request *req, int *fds, unsigned n);
void init_files_cancel(struct init_files *f, uint32_t id);
/* A child has ended: was it a helper? */
bool init_files_reaped(struct init_files *f, pid_t pid, int status);
/* End what is due; ms until the next is, for poll(2), or -1. */
int init_files_due(struct init_files *f);

#endif
