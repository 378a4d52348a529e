/* SPDX-License-Identifier: Apache-2.0 */
/* `nsbox run`: what was asked (run_options.c), carrying it out (run.c, run_files.c,
 * run_outputs.c), moving bytes while it runs
 * (relay.c), telling how it went (report.c). */
#ifndef NSBOX_CLI_RUN_H
#define NSBOX_CLI_RUN_H

#include <nsbox/host.h>
#include <nsbox/policy.h>
#include <nsbox/sandbox.h>
#include <stdbool.h>

#include "daemon/common/pycall.h"
#include "daemon/common/trace_file.h"
#include "nsbox/cli/egress.h"
#include "nsbox/cli/inputs.h"

struct json_object;

#define RUN_LIST_MAX 256
#define RUN_OPEN_MAX 32

struct run_options {
	const char *manifest, *skill, *entry, *image, *unpack, *output, *result, *cwd;
	const char *commit, *save, *restore; /* run_upper.c */
	const char *python, *function, *params, *ceiling, *share;
	const char *egress_servers, *egress_banned, *egress_proxy, *ca_certificates;
	const char *egress_open[RUN_OPEN_MAX + 1];
	const char *put[RUN_LIST_MAX + 1];
	const char *collect[17];
	const char *env[RUN_LIST_MAX + 1];
	unsigned puts, collects, envs, opens;
	struct cli_inputs inputs;
	uint64_t timeout_ms;
	uint32_t tier; /* enum nsbox_tier; 0: what the host reaches */
	int tty;       /* -1: where stdin and stdout are terminals */
	bool verbose, changes, trace, timings;
	char **argv;
};

/* -1: go on; else an exit status. */
int run_parse(int argc, char **argv, struct run_options *ret);
/* The same for a shell as the program. */
int run_parse_shell(int argc, char **argv, struct run_options *ret);

/* "NAME=value" of `set` and of the variables that the policy passes on; NULL without memory. */
char **run_env(const struct nsbox_policy *policy, const char *const *set);
void run_env_free(char **env);

/* ------------------------------------------------------------------ relay */

struct relay_buffer { /* what is kept of a stream, up to max */
	char *data;
	size_t len, max;
	bool truncated;
};

struct relay {
	struct nsbox_sandbox *sb;
	struct run_egress *egress;
	/* our ends of pipes, -1 when closed */
	int in, out, err, result;
	/* where their bytes go: our own 0-2, or -1 and only kept */
	int from, to_out, to_err;
	uint64_t out_left, err_left; /* bytes still to be passed on; UINT64_MAX: no limit */
	bool out_truncated, err_truncated;
	struct relay_buffer kept_out, kept_err, kept_result;
	int master;	 /* of the run's terminal */
	int write_error; /* errno of output that could not be passed on, but EPIPE */
	bool tty;
	char tail[2048]; /* the end of what went to standard error, or to the terminal */
	size_t tail_len;
};

/* Until the exec is over. Signals that reach this process are passed on. 0 with *ret filled. */
int relay_run(struct relay *r, struct nsbox_result *ret, struct nsbox_error *err);
void relay_done(struct relay *r);

/* ------------------------------------------------------------------ one run */

/* When it came so far, monotonic, microseconds. */
struct run_marks {
	uint64_t began, policy, sandbox, ended;
};

struct run {
	const struct run_options *opt;
	struct run_marks marks;
	struct nsbox_host host;
	struct nsbox_manifest *manifest;
	bool is_default;     /* there was none */
	char *manifest_text; /* NULL: there was none */
	struct nsbox_policy *policy;
	struct nsbox_policy_limits limits;
	char digest[65];
	struct nsbox_plan *plan;
	struct nsbox_root *root;
	char skill_dir[128]; /* inside, "" without a skill */
	char *cwd;	     /* inside; NULL: the plan's */
	const char *const *argv;
	char **image_argv; /* argv, where the image says it */
	char **env;
	struct inputs inputs;
	bool no_stdin;	   /* the entry point reads none */
	bool capture;	   /* output is kept in relay.kept_* and goes nowhere */
	bool choose_entry; /* argv are arguments of the entry point, as after --entry */
	const char *input; /* with capture: standard input; NULL: none */
	uint64_t wall_ms;
	int files;   /* memfd with the file stream, or -1 */
	int request; /* of the Python runner, or -1 */
	struct pycall call;
	char *code;
	struct json_object *params;
	struct nsbox_sandbox *sb;
	struct relay relay;
	struct run_egress egress;
	struct nsbox_result result;
	struct pycall_outcome outcome;
	char note[512]; /* what may have gone wrong, "": nothing known */
	struct json_object *outputs;
	struct json_object *changes;
	int restore; /* what --restore named, past its header, or -1 */
	struct trace_file trace;
};

/* Inside path of a skill: by its manifest's name, else its directory's. */
void run_name_skill(const struct nsbox_manifest *m, const char *dir, char *buf, int size);
void run_init(struct run *c, const struct run_options *opt);
/* Policy, program, files, and the run itself until it has ended; c->sb is left for collecting. */
int run_execute(struct run *c, struct nsbox_error *err);
void run_done(struct run *c);
/* All of `nsbox run`; returns the exit status. choose_entry: as in struct run. */
int run_main(const struct run_options *opt, bool choose_entry);

/* The image: of the command line, else of the manifest; NULL: neither names one. */
const char *run_image(const struct run *c);
const char *run_work_dir(const struct run *c); /* inside */
/* The file stream of --skill, --put and --unpack, in a memfd (run_files.c). */
int run_make_files(struct run *c, struct nsbox_error *err);
/* --restore: open it, before the sandbox is made; --changes, --commit, --save (run_upper.c). */
int run_open_restore(struct run *c, struct nsbox_error *err);
int run_upper(struct run *c, struct nsbox_error *err);
/* --trace: what in the manifest would allow what was refused (run_trace.c). */
void run_explain_denials(const struct run *c, struct json_object *list);
/* The outputs into --output (run_outputs.c). */
int run_collect(struct run *c, struct nsbox_error *err);
/* The same as a file stream; *ret_fd -1 where there is nothing to collect. */
int run_collect_stream(struct run *c, int *ret_fd, struct nsbox_error *err);

/* ------------------------------------------------------------------ report */

struct report {
	const struct nsbox_result *result;
	const struct nsbox_host *host;
	const struct nsbox_policy *policy;
	const struct nsbox_policy_limits *limits;
	uint64_t wall_ms; /* that was in force */
	bool out_truncated, err_truncated;
	bool is_python, python_ok;
	struct json_object *value; /* borrowed */
	const char *msg;
	const char *policy_digest;
	const char *profile_manifest; /* "default" or the file's name */
	struct json_object *outputs;  /* borrowed, may be NULL */
	struct json_object *changes;  /* borrowed, may be NULL */
	const char *note;	      /* NULL: none */
	const struct egress_log *egress;
	struct json_object *denials;   /* borrowed */
	const struct run_marks *marks; /* NULL: nobody asks what took how long */
};

int report_write(const struct report *rep, const char *path, struct nsbox_error *err);
void report_print(const struct report *rep); /* table for people, on stderr */

/* timings.c: what each part of a run took, as JSON and as a table on stderr. */
struct json_object *timings_json(const struct run_marks *m, const struct nsbox_result *r);
void timings_print(const struct run_marks *m, const struct nsbox_result *r);

#endif
