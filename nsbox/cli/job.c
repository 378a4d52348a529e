/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `nsbox job`: the daemon's queue from the command line. A finished job's output and value are
 * printed and its exit status is ours, as with `nsbox run`; --json gives the daemon's own answer.
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nsbox/cli/job_files.h"
#include "nsbox/cli/job_logs.h"
#include "nsbox/cli/job_request.h"
#include "nsbox/cli/progress.h"
#include "nsbox/util.h"

static int write_outputs(struct json_object *result, const struct job_options *o)
{
	struct nsbox_error err = { 0 };

	if (!o->output || job_files_write(result, o->output, &err) == 0)
		return 0;
	return cli_error(&err);
}

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
	if (!wait && o.output)
		r = cli_usage("--output is for `job run`, `show` and `wait`: a job has none yet");
	else
		r = job_build(&o, argv + optind, wait, body);
	if (r == 0) {
		pid_t progress = progress_start(o.json || !wait, "running");

		r = job_ask(&o, "POST",
			    !wait      ? "/v1/jobs"
			    : o.python ? "/v1/execute/python-function"
				       : "/v1/execute/command",
			    body, &a);
		progress_stop(progress);
	}
	if (r == 0 && wait)
		r = write_outputs(a.body, &o);
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

/* The id that is the only operand, as a path; 0, or an exit status after a message. */
static int job_path(char **operands, char path[128])
{
	if (!operands[0] || operands[1])
		return cli_usage("one job id is needed; see `nsbox job list`");
	if (strlen(operands[0]) > 64 || strcspn(operands[0], "/?#% \t\r\n") != strlen(operands[0]))
		return cli_usage("'%s' is no job id", operands[0]);
	snprintf(path, 128, "/v1/jobs/%s", operands[0]);
	return 0;
}

/* What there is of its result; its exit status. */
static int show_job(struct json_object *job, const struct job_options *o)
{
	struct json_object *result = NULL;
	int r;

	if (!json_object_object_get_ex(job, "result", &result) || !result)
		return 0;
	r = write_outputs(result, o);
	return r == 0 && !o->json ? job_show_result(result) : r;
}

static int job_cancel(int argc, char **argv)
{
	struct job_options o = { 0 };
	struct answer a = { 0 };
	char path[128];
	int r = cli_options(argc, argv, "nsbox job cancel [OPTION...] ID", job_plain_rows, &o);

	if (r >= 0)
		return r;
	r = job_path(argv + optind, path);
	if (r == 0)
		r = job_ask(&o, "DELETE", path, NULL, &a);
	if (r == 0 && !o.json)
		fprintf(stderr, "state     %s\n", answer_text(a.body, "state"));
	answer_done(&a);
	return r;
}

static int job_show(int argc, char **argv)
{
	struct job_options o = { 0 };
	struct answer a = { 0 };
	char path[128];
	int r = cli_options(argc, argv, "nsbox job show [OPTION...] ID", job_show_rows, &o);

	if (r >= 0)
		return r;
	r = job_path(argv + optind, path);
	if (r == 0)
		r = job_ask(&o, "GET", path, NULL, &a);
	if (r == 0 && !o.json)
		fprintf(stderr, "state     %s\n", answer_text(a.body, "state"));
	if (r == 0)
		r = show_job(a.body, &o);
	answer_done(&a);
	return r;
}

static bool has_ended(struct json_object *job)
{
	const char *state = answer_text(job, "state");

	return state && !strcmp(state, "finished");
}

/* The daemon answers when it has ended, or after some seconds: then it is asked again. */
static int job_wait(int argc, char **argv)
{
	bool terminal = isatty(STDERR_FILENO);
	struct job_options o = { 0 };
	struct answer a = { 0 };
	char path[128], query[144];
	int r = cli_options(argc, argv, "nsbox job wait [OPTION...] ID", job_show_rows, &o);

	if (r >= 0)
		return r;
	r = job_path(argv + optind, path);
	snprintf(query, sizeof(query), "%s?wait=%d", path, terminal ? 1 : 60);
	for (time_t began = time(NULL); r == 0;) {
		answer_done(&a);
		r = ask_daemon(o.socket, "GET", query, NULL, &a);
		if (r == 0 && has_ended(a.body))
			break;
		if (r == 0 && terminal)
			fprintf(stderr, "\r\033[K%s, %lld s", answer_text(a.body, "state"),
				(long long)(time(NULL) - began));
	}
	if (terminal)
		fprintf(stderr, "\r\033[K");
	if (r == 0 && o.json)
		printf("%s\n", a.text);
	r = r < 0 ? EXIT_NSBOX : r == 0 ? show_job(a.body, &o) : r;
	answer_done(&a);
	return r;
}

static int job_logs(int argc, char **argv)
{
	struct job_options o = { 0 };
	char path[128];
	int r = cli_options(argc, argv, "nsbox job logs [OPTION...] ID", job_plain_rows, &o);

	if (r >= 0)
		return r;
	r = job_path(argv + optind, path);
	return r == 0 ? job_logs_print(o.socket, path, o.json) : r;
}

static const struct command verbs[] = {
	{ "run", job_run, "run and wait: print its output and value, exit with its status" },
	{ "submit", job_submit, "put it into the queue and print its id" },
	{ "list", job_list, "jobs that the daemon remembers" },
	{ "show", job_show, "state and result of a job" },
	{ "wait", job_wait, "wait for a job's end: as run from then on" },
	{ "logs", job_logs, "what a job writes, as it writes it, until its end" },
	{ "cancel", job_cancel, "end a job" },
	{ NULL, NULL, NULL },
};

int cmd_job(int argc, char **argv)
{
	return cli_verbs(argc, argv, "job", verbs, "");
}
