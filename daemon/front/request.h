/* SPDX-License-Identifier: Apache-2.0 */
/* What a client asks for: JSON to struct job_spec. */
#ifndef FRONT_REQUEST_H
#define FRONT_REQUEST_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/front/secrets.h"

#define REQUEST_BODY_MAX (UINT64_C(80) << 20)

struct json_object;

enum job_kind { JOB_PYTHON, JOB_COMMAND, JOB_SKILL, JOB_SESSION, JOB_KIND_MAX };
extern const char *const job_priority_names[];
extern const char *const job_kind_names[]; /* NULL-terminated, as in JSON */

struct bytes {
	unsigned char *data; /* NULL: not given */
	size_t len;
};

struct spec_file {
	char *path;
	char *symlink; /* target; NULL: a file */
	struct bytes content;
	uint32_t mode;
};

struct job_spec {
	uint32_t kind; /* enum job_kind */
	char *workspace_id, *trace_id, *image, *cwd;
	uint32_t priority;   /* enum queue_priority */
	uint64_t timeout_ms; /* 0: the manifest's */
	uint32_t cpu_milli, pids;
	uint64_t memory_mb;
	struct json_object *manifest; /* NULL: none */
	struct json_object *network;  /* network_policy, as a manifest writes it; NULL: none */
	struct bytes stdin_data;
	struct spec_file *files;
	size_t n_files;
	struct bytes archive;
	char **outputs;		    /* NULL-terminated, NULL for none */
	char **env;		    /* "NAME=value", NULL-terminated, NULL for none */
	struct own_secrets own;	    /* values of secrets and sensitive parameters */
	struct json_object *config; /* values of other parameters, NULL: none */
	char *without;		    /* the request without its secrets; NULL: it had none */
	bool redact;
	bool trace;		     /* tell which files it could not open */
	bool tty, as_operator;	     /* as_operator: the caller vouches for raw system call names */
	uint32_t tty_rows, tty_cols; /* 0: as ever */
	bool interactive;	     /* events at once, standard input as it comes */
	char *session_id;	     /* NULL: a sandbox of its own */
	bool session_must_exist;     /* it is not for this request to make it */
	uint64_t idle_ms, ttl_ms;    /* of a session, 0: as configured */
	uint32_t max_commands;	     /* of a session, 0: any number */
	char *snapshot_id;	     /* what a session begins with, NULL: nothing */
	/* Python function */
	char *code, *function, *expression;
	struct json_object *params;
	struct {
		char *interpreter; /* an absolute path; NULL: python3 */
		char **path;	   /* more directories of modules */
	} python;
	unsigned compat; /* bits of enum pycall_compat */
	/* command */
	char **argv; /* NULL-terminated; NULL: the skill's entry point */
	/* skill */
	bool has_skill;
	struct bytes skill_archive;
	char *skill_name, *entrypoint;
};

/*
 * Read a request. kind JOB_KIND_MAX: the body's "kind" says which. Errors are NSBOX_E_INVALID and
 * begin with a JSON pointer.
 */
int request_parse(const char *body, size_t len, uint32_t kind, struct job_spec **ret,
		  struct nsbox_error *err);
/* What a session is to be narrowed to: network_policy, manifest or both, and nothing else. */
int request_parse_narrowing(const char *body, size_t len, struct job_spec **ret,
			    struct nsbox_error *err);
/* Free the contents of files and archives. */
void job_spec_drop_files(struct job_spec *s);
void job_spec_free(struct job_spec *s);

#endif
