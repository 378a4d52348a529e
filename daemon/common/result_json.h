/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon's replies, its receipts and the reports of the command line tool say in the same
 * words: errors, layers with their evidence, tier, witness, limits.
 */
#ifndef DAEMON_RESULT_JSON_H
#define DAEMON_RESULT_JSON_H

#include <nsbox/host.h>
#include <nsbox/policy.h>
#include <nsbox/sandbox.h>
#include <stdint.h>

struct json_object;

/* The put functions take `value`, and fail only without memory. */
int json_put(struct json_object *o, const char *key, struct json_object *value);
int json_put_text(struct json_object *o, const char *key, const char *s);
int json_put_u64(struct json_object *o, const char *key, uint64_t v);
int json_put_null(struct json_object *o, const char *key);

/* {code, stage, pointer, message} */
struct json_object *json_error_new(const struct nsbox_error *e);

struct result_json {
	const struct nsbox_result *result;
	const struct nsbox_host *host;
	const struct nsbox_policy_limits *limits; /* NULL: not known */
	uint64_t wall_ms;			  /* that was in force */
	const struct egress_log *network;	  /* NULL: has none */
	bool is_python;
};

/* What a run of the tier "process" was not stopped from (gap.h), as bits; of others 0. */
uint32_t result_gaps(const struct nsbox_result *r);

/* enforced, notEnforced, tier, notStopped, witness, limits */
int result_put_held(struct json_object *o, const struct result_json *r);

#endif
