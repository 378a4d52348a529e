/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call of a Python function: the request that the runner (nsbox/runner/python.py) reads on
 * descriptor 3, the result it writes on descriptor 4, and what both become for the caller.
 * Shared by the front and the command line tool.
 */
#ifndef DAEMON_PYCALL_H
#define DAEMON_PYCALL_H

#include <nsbox/policy.h>
#include <nsbox/sandbox.h>
#include <stdbool.h>
#include <stddef.h>

struct json_object;

/* Behaviours of MaxKB's executor that are mended unless asked for: see nsbox/runner/python.py. */
enum pycall_compat {
	PYCALL_COMPAT_RECURSION,
	PYCALL_COMPAT_SUBPROCESS,
	PYCALL_COMPAT_ENVIRONMENT,
	PYCALL_COMPAT_MAX,
};
extern const char *const pycall_compat_names[]; /* NULL-terminated */
#define PYCALL_COMPAT_ALL ((1u << PYCALL_COMPAT_MAX) - 1)

struct pycall {
	const char *code;	    /* UTF-8 source */
	const char *function;	    /* NULL: the last one defined */
	struct json_object *params; /* an object, borrowed; NULL: none, or expression */
	const char *expression;	    /* NULL, or the arguments as a Python expression */
	const char *const *path;    /* more directories of modules, NULL-terminated, or NULL */
	const void *noexec;	    /* filter to stack before the code runs, or NULL */
	size_t noexec_len;
	uint64_t memory, wall_ms; /* for messages */
	unsigned compat;	  /* bits of enum pycall_compat */
};

/* The request's text, malloc'd; and a sealed memfd that holds it. */
int pycall_text(const struct pycall *c, char **ret, size_t *ret_len, struct nsbox_error *err);
int pycall_encode(const struct pycall *c, int *ret_fd, struct nsbox_error *err);
/* What runs it: {"python3", "-I", the runner, NULL}. */
#define PYCALL_ARGV 4
extern const char *const pycall_argv[PYCALL_ARGV];

struct pycall_outcome {
	int code;		  /* 200: data is the value; 500: msg says why */
	struct json_object *data; /* owned by the outcome, NULL is JSON null */
	char *msg;		  /* owned */
};
/*
 * Judge a finished call. result is what came on descriptor 4 (may be cut or forged: it is only the
 * tool's own value), out/errout the captured streams.
 */
int pycall_judge(const struct pycall *c, const struct nsbox_result *res, const void *result,
		 size_t result_len, bool result_truncated, const char *out, size_t out_len,
		 const char *errout, size_t errout_len, struct pycall_outcome *ret,
		 struct nsbox_error *err);
void pycall_outcome_done(struct pycall_outcome *o);

#endif
