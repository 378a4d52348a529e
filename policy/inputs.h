/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run gets besides its program: values for the secrets of the manifest and for its
 * parameters (userConfig). The manifest says what there is (nsbox_manifest_inputs()); the values
 * come from elsewhere, are checked here, and are never part of a policy or a plan.
 *
 *   secret, env     variable NAME
 *   secret, file    /run/secrets/NAME (0400), and variable NAME_FILE with its path
 *   parameter       variable CONFIG_ID; of a Python function, keyword argument ID
 */
#ifndef POLICY_INPUTS_H
#define POLICY_INPUTS_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SECRETS_DIR	 "/run/secrets"
#define SECRETS_SIZE	 (UINT64_C(4) << 20) /* of that directory */
#define INPUT_VALUE_MAX	 65536
#define INPUTS_GIVEN_MAX 96

struct json_object;

struct input {
	char *name;
	char *value; /* NUL-terminated beyond its length; holds no NUL where it becomes a variable */
	size_t len;
};

struct inputs_given {
	struct input *secrets; /* for secrets by name, and for sensitive parameters by ID */
	size_t n_secrets;
	struct json_object *config; /* parameters that are not sensitive; NULL: none */
	bool config_is_text;	    /* its values are text of the type that the manifest says */
	/* What the operator keeps at a source; NULL: nothing. May itself be NULL. */
	const struct input *(*kept)(void *ctx, const char *source);
	void *ctx;
	/* Where errors point: "/secrets/" and "/user_config/", or options. */
	const char *at_secrets, *at_config;
};

struct inputs {
	char **env;	     /* NULL-terminated */
	struct input *files; /* to be in SECRETS_DIR */
	size_t n_files;
	struct input *hidden; /* what is not to be shown, the longest first */
	size_t n_hidden;
	struct json_object *config; /* all parameters that have a value */
};

/* described: of nsbox_manifest_inputs(). NSBOX_E_INVALID: what is missing, unknown or wrong. */
int inputs_settle(const char *described, const struct inputs_given *given, struct inputs *ret,
		  struct nsbox_error *err);
void inputs_done(struct inputs *in); /* values are overwritten */
/* The files of it, behind what is in a file stream already (*fd -1: nothing is). */
int inputs_put_files(const struct inputs *in, int *fd, struct nsbox_error *err);

/* A copy of it into a list of what is not to be shown, unless it is there; an empty one is not. */
int input_hide(struct input **list, size_t *n, const struct input *v);
int input_set(struct input *in, const char *name, const char *value, size_t len);
void input_done(struct input *in);

/*
 * digests.c: are the skill's files in a file stream (files_fd, not moved) what the description of
 * nsbox_manifest_inputs() says? NSBOX_E_INVALID where one is another, or missing.
 */
int digests_check(const char *described, int files_fd, const char *skill_dir,
		  struct nsbox_error *err);

#endif
