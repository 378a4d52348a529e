/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What strings of skill.json have to look like. Each check has a regular expression beside it, for
 * the schema and the reference: the check may be stricter, never laxer.
 */
#ifndef POLICY_MANIFEST_CHECK_H
#define POLICY_MANIFEST_CHECK_H

#include "policy/json_strict.h"

json_check_fn check_name, check_entrypoint_id, check_below, check_variable, check_host, check_cidr;
json_check_fn check_reference, check_sha256, check_skill_file, check_config_id, check_platform,
	check_image;
json_check_fn check_kernel, check_interpreter, check_time, check_hostname, check_layer;
json_check_fn check_group;

struct string_form {
	json_check_fn *check;
	const char *pattern; /* ECMAScript, as JSON Schema wants it; NULL: no simple one */
	const char *text;    /* what it is, for people: "a host name" */
};
const struct string_form *string_form(json_check_fn *check); /* NULL: a plain string */

#endif
