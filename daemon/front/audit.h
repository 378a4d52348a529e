/* SPDX-License-Identifier: Apache-2.0 */
/* The audit: what was asked of the service and what came of it, line by line in a file. */
#ifndef FRONT_AUDIT_H
#define FRONT_AUDIT_H

#include "daemon/common/audit_chain.h"
#include "daemon/front/journal.h"

struct json_object;

struct audit {
	int dir_fd, fd;
	struct journal *journal;
	struct audit_chain chain; /* as committed */
	struct audit_chain next;  /* with the lines of the open transaction */
	char *text;		  /* lines that are not in the file yet */
	size_t len, cap;
	size_t committed; /* bytes of these that the journal has */
	uint64_t in_file; /* number of the file's last line */
	uint64_t lines;	  /* since the start */
};

/* After the journal: brings the file up to what that knows, or says why it cannot be trusted. */
int audit_open(struct audit *a, int dir_fd, struct journal *j, struct nsbox_error *err);
void audit_close(struct audit *a); /* zeroed structs are fine */

/* An event of this kind, numbered; NULL without memory. Only within a transaction of the journal. */
struct json_object *audit_event(const struct audit *a, const char *kind);
/* Takes the event. */
int audit_add(struct audit *a, struct json_object *event, struct nsbox_error *err);
/* How the transaction ended. The lines are in the file when this returns 0. */
int audit_commit(struct audit *a, struct nsbox_error *err);
void audit_rollback(struct audit *a);
/* What could not be written may fit now. */
int audit_flush(struct audit *a, struct nsbox_error *err);
/* See that the file is on disk, so that the journal may forget its lines; in a transaction. */
int audit_sync(struct audit *a, struct nsbox_error *err);

#endif
