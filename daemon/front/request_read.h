/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers of a request's fields, for tables: each is a json_take_fn. Those without a place of their
 * own in the table (files, skill, network, compat, python, resources) fill the struct job_spec that
 * the table is of.
 */
#ifndef FRONT_REQUEST_READ_H
#define FRONT_REQUEST_READ_H

#include "daemon/front/request.h"
#include "policy/json_strict.h"

#define AT(member) offsetof(struct job_spec, member)

json_take_fn rq_base64, rq_text, rq_seconds, rq_resources, rq_network, rq_image, rq_env, rq_secrets,
	rq_argv, rq_command, rq_files, rq_skill, rq_python, rq_compat, rq_session;

#endif
