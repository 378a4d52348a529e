/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a job share: job.c, job_run.c, job_pool.c, job_event.c. */
#ifndef FRONT_JOB_PARTS_H
#define FRONT_JOB_PARTS_H

#include "daemon/front/job.h"

#define BACKSTOP_MS 30000

/* job.c: the sandbox's number on the wire; the only way to JOB_FINISHED, and with an error. */
uint64_t job_sandbox(const struct job *j);
void job_finish(struct job *j);
void job_fail(struct job *j, const struct nsbox_error *why);
/* Now, if not before. False: there is no memory for it; what it has says so, and is not to be written to. */
bool job_has_run(struct job *j);
/* It was ended before it had a result of its own. */
void job_finish_as(struct job *j, uint32_t cause);
/* What nsbox-egress has decided while it ran is known to it; before in_spawn is cleared, or it is not asked. */
void job_hear_network(struct job *j);
/* nsbox-spawn has so long to say something. */
void job_set_backstop(struct job *j, uint64_t ms);

/* job_hide.c: before its reply is made; and after that, before its receipt and the audit. */
void job_hide(struct job *j);
void job_hide_names(struct job *j);
/* What is hidden in its session is in it, and the other way round. */
int job_hide_in_session(struct job *j, struct nsbox_error *err);

/* job_run.c: what its captures keep and hide; the exec request; the call of a function; the image
 * by the caller's word or else the manifest's, NULL: the host's. */
void job_set_captures(struct job *j);
int job_encode_exec(const struct job *j, bool waits, int *ret_fd, struct nsbox_error *err);
void job_describe_call(const struct job *j, struct pycall *c);
const char *job_image(const struct job *j);
/* It was started; it, or nsbox-spawn for it, has an answer in time. */
void job_limit_wait(struct job *j);

/* Of a plan: its hash, and what it hands back (*ret is malloc'd, NULL for nothing). */
int job_plan_facts(int plan_fd, char sha256[65], struct wire_output **ret, uint32_t *ret_n,
		   struct nsbox_error *err);
/* job.c: as it was given, before wishes of the request are joined to it; NULL: "". */
void job_hash_manifest(struct json_object *manifest, char ret[65]);

/* job_pool.c: 1: it runs; 0: it has to be started. */
int job_take_from_pool(struct job *j, int plan_fd, struct nsbox_error *err);

/* job_run.c: into a sandbox that is to be made from a plan; into one that is there. */
int job_start_run(struct job *j, int plan_fd, struct nsbox_error *err);
int job_run(struct job *j, struct nsbox_error *err);
/* Secrets and parameters of the request and of the operator. */
int job_settle(struct job *j, struct nsbox_error *err);
/* A job that only makes its session is over. */
void job_session_ready(struct job *j, const struct nsbox_result *set_up);

#endif
