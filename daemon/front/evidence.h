/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of jobs for later: lines of the audit, of the log, and numbers. */
#ifndef FRONT_EVIDENCE_H
#define FRONT_EVIDENCE_H

#include "daemon/front/front.h"

/* Lines of the audit, within the journal's transaction. */
int evidence_accept(struct front *f, const struct job *j, struct nsbox_error *err);
int evidence_start(struct front *f, const struct job *j, struct nsbox_error *err);
int evidence_finish(struct front *f, const struct job *j, struct nsbox_error *err);
/* A transaction of its own: what was decided for a session while no command ran in it. */
void evidence_session_network(struct front *f, const char *session, const struct egress_log *l);
/* A transaction of its own: who did, or may not do, what (a path, an id) and why ("" for none). */
void evidence_note(struct front *f, const char *kind, uid_t uid, const char *what, const char *why);

/* After the transaction: numbers and a line of the log. */
void evidence_ended(struct front *f, const struct job *j);

/* The text of GET /metrics, malloc'd. */
char *evidence_metrics(struct front *f, size_t *ret_len);

#endif
