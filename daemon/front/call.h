/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that wait to hear of a job (struct call), and a job as clients are told of it. */
#ifndef FRONT_CALL_H
#define FRONT_CALL_H

#include "daemon/front/front.h"

/* It is http_data(rq) from then on; -ENOMEM. */
int call_add(struct job *j, struct http_request *rq, enum call_kind kind);
void call_free(struct call *c);

struct json_object *call_row_object(const struct journal_row *row);
struct json_object *call_job_object(const struct job *j);
/* With the place of the job. */
void call_reply_place(struct http_request *rq, int status, const char *id, struct json_object *o);

#endif
