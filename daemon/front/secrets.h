/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of secrets in the front: the operator's, and a job's own from its request until its end.
 * None is ever written: journal, receipt, audit and log get none.
 */
#ifndef FRONT_SECRETS_H
#define FRONT_SECRETS_H

#include "policy/inputs.h"

struct json_object;
struct kept_secrets;

/*
 * The operator's file: {"WORKSPACE": {"SOURCE": "value"}}, "*" for all workspaces. Its name is for
 * messages.
 */
int kept_read(int fd, const char *name, struct kept_secrets **ret, struct nsbox_error *err);
void kept_free(struct kept_secrets *k);

/* What came with a request. */
struct own_secrets {
	struct input *v;
	size_t n;
};
void own_done(struct own_secrets *o);

/* All that a run gets, from a manifest's description: at `described`, in a workspace. */
int secrets_settle(const struct kept_secrets *k, const char *workspace, const char *described,
		   const struct own_secrets *own, struct json_object *config, struct inputs *ret,
		   struct nsbox_error *err);

#endif
