/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `nsbox job`: the daemon's queue from the command line. A finished job's output and value are
 * printed and its exit status is ours, as with `nsbox run`; --json gives the daemon's own answer.
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "nsbox/cli/job_request.h"

static int submit(int argc, char **argv, const char *usage, bool wait)
{
	struct job_options o = { 0 };
	struct json_object *body = json_object_new_object();
	struct answer a = { 0 };
	int r = cli_options(argc, argv, usage, job_submit_rows, &o);

	if (r >= 0) {
		json_object_put(body);
		return r;
	}
	r = job_build(&o, argv + optind, wait, body);
	if (r == 0)
		r = job_ask(&o, "POST",
			    !wait      ? "/v1/jobs"
			    : o.python ? "/v1/execute/python-function"
				       : "/v1/execute/command",
			    body, &a);
	if (r == 0 && !o.json) {
		if (wait)
			r = job_show_result(a.body);
		else
			printf("%s\n", answer_text(a.body, "id") ? answer_text(a.body, "id") : "");
	}
	answer_done(&a);
	json_object_put(body);
	cli_inputs_done(&o.inputs);
	return r;
}

static int job_submit(int argc, char **argv)
{
	return submit(argc, argv, "nsbox job submit [OPTION...] [--] [PROGRAM [ARG...]]", false);
}

static int job_run(int argc, char **argv)
{
	return submit(argc, argv, "nsbox job run [OPTION...] [--] [PROGRAM [ARG...]]", true);
}

static int job_list(int argc, char **argv)
{
	struct job_options o = { 0 };
	struct answer a = { 0 };
	struct json_object *list = NULL;
	int r = cli_options(argc, argv, "nsbox job list [OPTION...]", job_plain_rows, &o);

	if (r >= 0)
		return r;
	r = job_ask(&o, "GET", "/v1/jobs", NULL, &a);
	if (r == 0 && !o.json && json_object_object_get_ex(a.body, "jobs", &list)) {
		for (size_t i = 0; i < json_object_array_length(list); i++) {
			struct json_object *j = json_object_array_get_idx(list, i);
			const char *cause = answer_text(j, "cause");

			printf("%-40s %-16s %-10s %s\n", answer_text(j, "id"),
			       answer_text(j, "kind"), answer_text(j, "state"), cause ? cause : "");
		}
	}
	answer_done(&a);
	return r;
}

/* show and cancel: one job by its id. */
static int one(int argc, char **argv, const char *usage, const char *method)
{
	struct job_options o = { 0 };
	struct answer a = { 0 };
	struct json_object *result = NULL;
	char path[128];
	int r = cli_options(argc, argv, usage, job_plain_rows, &o);

	if (r >= 0)
		return r;
	if (!argv[optind] || argv[optind + 1])
		return cli_usage("one job id is needed; see `nsbox job list`");
	if (strlen(argv[optind]) > 64 ||
	    strcspn(argv[optind], "/?#% \t\r\n") != strlen(argv[optind]))
		return cli_usage("'%s' is no job id", argv[optind]);
	snprintf(path, sizeof(path), "/v1/jobs/%s", argv[optind]);
	r = job_ask(&o, method, path, NULL, &a);
	if (r == 0 && !o.json) {
		fprintf(stderr, "state     %s\n", answer_text(a.body, "state"));
		if (json_object_object_get_ex(a.body, "result", &result) && result &&
		    !strcmp(method, "GET"))
			r = job_show_result(result);
	}
	answer_done(&a);
	return r;
}

static int job_show(int argc, char **argv)
{
	return one(argc, argv, "nsbox job show [OPTION...] ID", "GET");
}

static int job_cancel(int argc, char **argv)
{
	return one(argc, argv, "nsbox job cancel [OPTION...] ID", "DELETE");
}

static const struct command verbs[] = {
	{ "run", job_run, "run and wait: print its output and value, exit with its status" },
	{ "submit", job_submit, "put it into the queue and print its id" },
	{ "list", job_list, "jobs that the daemon remembers" },
	{ "show", job_show, "state and result of a job" },
	{ "cancel", job_cancel, "end a job" },
	{ NULL, NULL, NULL },
};

int cmd_job(int argc, char **argv)
{
	return cli_verbs(argc, argv, "job", verbs, "");
}
