/* SPDX-License-Identifier: Apache-2.0 */
/* What `nsbox job` and `nsbox session` have in common: options, the request, the answer. */
#ifndef NSBOX_CLI_JOB_REQUEST_H
#define NSBOX_CLI_JOB_REQUEST_H

#include "nsbox/cli/ask.h"
#include "nsbox/cli/cli.h"
#include "nsbox/cli/inputs.h"

#define JOB_ENVS_MAX  256
#define JOB_ALLOW_MAX 64

struct job_options {
	const char *socket, *manifest, *skill, *entry, *python, *function, *params, *cwd,
		*workspace, *input, *output;
	const char *env[JOB_ENVS_MAX + 1], *put[JOB_ENVS_MAX], *collect[16];
	unsigned envs, puts, collects;
	struct cli_inputs inputs; /* cli_inputs_done() */
	double timeout;
	bool json, redact;
	/* of a session */
	const char *session;
	double idle, ttl;
	unsigned long max_commands;
	const char *allow[JOB_ALLOW_MAX + 1];
	unsigned allows;
	bool no_network;
};

extern const struct option_row job_submit_rows[], job_show_rows[], job_plain_rows[],
	session_create_rows[], session_again_rows[], session_place_rows[], session_exec_rows[],
	session_shell_rows[], session_narrow_rows[];

/* An exit status; with --json the answer is printed as it is. */
int job_ask(const struct job_options *o, const char *method, const char *path,
	    struct json_object *body, struct answer *ret);
/* The request; *argv is the program, or NULL. */
int job_build(const struct job_options *o, char **argv, bool wait, struct json_object *body);
int session_build(const struct job_options *o, struct json_object *body);
/* Print a finished job's streams and value; its exit status. */
int job_show_result(struct json_object *result);
/* The file's JSON; 0, or the exit status. */
int job_add_file(struct json_object *o, const char *key, const char *path);
void job_add_str(struct json_object *o, const char *key, const char *v);

#endif
