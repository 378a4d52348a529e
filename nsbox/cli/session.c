/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `nsbox session`: sandboxes that the daemon keeps between commands. As with `nsbox job run` a
 * command's output is printed and its exit status is ours.
 */
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nsbox/cli/job_request.h"
#include "nsbox/cli/progress.h"
#include "nsbox/cli/session_files.h"
#include "nsbox/cli/session_shell.h"
#include "nsbox/cli/session_snapshot.h"
#include "nsbox/util.h"

/* ------------------------------------------------------------------ verbs */

bool session_name_ok(const char *s)
{
	static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				   "0123456789._:@-";

	return *s && *s != '.' && strlen(s) < 128 && strspn(s, good) == strlen(s);
}

int session_read_line(int argc, char **argv, const char *usage, const struct option_row *rows,
		      struct job_options *o)
{
	int r = cli_options(argc, argv, usage, rows, o);

	if (r >= 0)
		return r;
	o->session = argv[optind];
	if (!o->session)
		return cli_usage("a name for the session is needed: `%s`", usage);
	if (!session_name_ok(o->session))
		return cli_usage(
			"'%s' is no session's name: letters, digits and \"._:@-\", at most "
			"127",
			o->session);
	optind++;
	return -1;
}

static int integer(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	return json_object_object_get_ex(o, key, &v) ? json_object_get_int(v) : 0;
}

static void show(struct json_object *s)
{
	printf("%-32s %-16s %-7s %8d %8d %8d\n", answer_text(s, "id"),
	       answer_text(s, "workspace_id"), answer_text(s, "state"), integer(s, "running"),
	       integer(s, "commands"), integer(s, "idle_seconds"));
}

static void show_head(void)
{
	printf("%-32s %-16s %-7s %8s %8s %8s\n", "SESSION", "WORKSPACE", "STATE", "RUNNING",
	       "COMMANDS", "IDLE");
}

static int session_create(int argc, char **argv)
{
	struct job_options o = { 0 };
	struct json_object *body, *session = NULL;
	struct answer a = { 0 };
	pid_t pid;
	int r = session_read_line(argc, argv, "nsbox session create [OPTION...] NAME",
				  session_create_rows, &o);

	if (r >= 0)
		return r;
	body = json_object_new_object();
	r = session_build(&o, body);
	if (r == 0) {
		pid = progress_start(o.json, "making the session");
		r = job_ask(&o, "POST", "/v1/sessions", body, &a);
		progress_stop(pid);
	}
	if (r == 0 && !o.json && json_object_object_get_ex(a.body, "session", &session))
		printf("%s\n", answer_text(session, "id"));
	answer_done(&a);
	json_object_put(body);
	cli_inputs_done(&o.inputs);
	return r;
}

static int session_exec(int argc, char **argv)
{
	struct job_options o = { 0 };
	struct json_object *body;
	struct answer a = { 0 };
	pid_t pid;
	int r = session_read_line(argc, argv,
				  "nsbox session exec [OPTION...] NAME [--] [PROGRAM [ARG...]]",
				  session_exec_rows, &o);

	if (r >= 0)
		return r;
	argv += optind;
	if (*argv && !strcmp(*argv, "--"))
		argv++;
	body = json_object_new_object();
	r = job_build(&o, argv, true, body);
	if (r == 0) {
		pid = progress_start(o.json, "running");
		r = job_ask(&o, "POST",
			    o.python ? "/v1/execute/python-function" : "/v1/execute/command", body,
			    &a);
		progress_stop(pid);
	}
	if (r == 0 && !o.json)
		r = job_show_result(a.body);
	answer_done(&a);
	json_object_put(body);
	cli_inputs_done(&o.inputs);
	return r;
}

static int session_list(int argc, char **argv)
{
	struct job_options o = { 0 };
	struct answer a = { 0 };
	struct json_object *list = NULL;
	int r = cli_options(argc, argv, "nsbox session list [OPTION...]", job_plain_rows, &o);

	if (r >= 0)
		return r;
	r = job_ask(&o, "GET", "/v1/sessions", NULL, &a);
	if (r == 0 && !o.json && json_object_object_get_ex(a.body, "sessions", &list)) {
		show_head();
		for (size_t i = 0; i < json_object_array_length(list); i++)
			show(json_object_array_get_idx(list, i));
	}
	answer_done(&a);
	return r;
}

static int one(int argc, char **argv, const char *usage, const char *method)
{
	struct job_options o = { 0 };
	struct answer a = { 0 };
	char path[160];
	int r = session_read_line(argc, argv, usage, job_plain_rows, &o);

	if (r >= 0)
		return r;
	snprintf(path, sizeof(path), "/v1/sessions/%s", o.session);
	r = job_ask(&o, method, path, NULL, &a);
	if (r == 0 && !o.json) {
		show_head();
		show(a.body);
	}
	answer_done(&a);
	return r;
}

static int session_info(int argc, char **argv)
{
	return one(argc, argv, "nsbox session info [OPTION...] NAME", "GET");
}

static int session_delete(int argc, char **argv)
{
	return one(argc, argv, "nsbox session delete [OPTION...] NAME", "DELETE");
}

static int narrow_body(const struct job_options *o, struct json_object **ret)
{
	struct json_object *body = json_object_new_object(), *policy = NULL;
	struct json_object *allow = o->allows ? json_object_new_array() : NULL;
	int r = 0;

	for (unsigned i = 0; i < o->allows; i++)
		json_object_array_add(allow, json_object_new_string(o->allow[i]));
	if (o->allows || o->no_network) {
		policy = json_object_new_object();
		job_add_str(policy, "mode", o->allows ? "allowlist" : "none");
		json_object_object_add(body, "network_policy", policy);
	}
	if (allow)
		json_object_object_add(policy, "allow", allow);
	if (o->manifest)
		r = job_add_file(body, "manifest", o->manifest);
	*ret = body;
	return r;
}

static void show_network(struct json_object *session)
{
	struct json_object *policy = NULL, *allow = NULL;

	json_object_object_get_ex(session, "network_policy", &policy);
	printf("network: %s\n", answer_text(policy, "mode"));
	if (!policy || !json_object_object_get_ex(policy, "allow", &allow))
		return;
	for (size_t i = 0; i < json_object_array_length(allow); i++)
		printf("  %s\n", json_object_get_string(json_object_array_get_idx(allow, i)));
}

static int session_narrow(int argc, char **argv)
{
	struct job_options o = { 0 };
	struct json_object *body;
	struct answer a = { 0 };
	char path[160];
	int r = session_read_line(
		argc, argv,
		"nsbox session narrow [OPTION...] {--allow HOST[:PORT][/udp]... | "
		"--no-network | --manifest FILE} NAME",
		session_narrow_rows, &o);

	if (r >= 0)
		return r;
	if (o.allows && o.no_network)
		return cli_usage("either --allow or --no-network says what it may still reach");
	if (!o.allows && !o.no_network && !o.manifest)
		return cli_usage("--allow, --no-network or --manifest says what is left");
	snprintf(path, sizeof(path), "/v1/sessions/%s", o.session);
	r = narrow_body(&o, &body);
	if (r == 0)
		r = job_ask(&o, "PATCH", path, body, &a);
	if (r == 0 && !o.json)
		show_network(a.body);
	answer_done(&a);
	json_object_put(body);
	return r;
}

static const struct command verbs[] = {
	{ "create", session_create, "make one" },
	{ "exec", session_exec, "run a program in one, which is made where there is none" },
	{ "shell", session_shell, "a shell in one, which is made where there is none" },
	{ "list", session_list, "those that are alive" },
	{ "info", session_info, "one of them" },
	{ "delete", session_delete, "end one, with all that runs in it" },
	{ "narrow", session_narrow, "take away some of what it may do, or reach outside" },
	{ "snapshot", session_snapshot, "keep its files as they are" },
	{ "snapshots", session_snapshots, "those that are kept" },
	{ "fork", session_fork, "make another session that begins with its files" },
	{ "restore", session_restore, "make a session that begins with a snapshot" },
	{ "commit", session_commit, "make an image of its image and what has changed" },
	{ "forget", session_forget, "remove snapshots" },
	{ "changes", session_changes, "what has changed in its root" },
	{ "ls", session_ls, "list its files" },
	{ "get", session_get, "take a file out" },
	{ "put", session_put, "put a file in" },
	{ "mkdir", session_mkdir, "make a directory" },
	{ "mv", session_mv, "move or rename" },
	{ "rm", session_rm, "remove" },
	{ "upload", session_upload, "unpack a zip or tar archive" },
	{ "download", session_download, "take a directory out, as a tar file" },
	{ NULL, NULL, NULL },
};

int cmd_session(int argc, char **argv)
{
	return cli_verbs(argc, argv, "session", verbs, "");
}
