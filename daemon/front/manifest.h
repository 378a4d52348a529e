/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FRONT_MANIFEST_H
#define FRONT_MANIFEST_H

#include "daemon/front/request.h"

/*
 * The manifest of a run: the skill's own text or the request's, with the wishes that a request can
 * state beside it (timeout_seconds, resources, outputs) put in. *ret is malloc'd; NULL with
 * *ret_len 0 where there is nothing to say. Fails with NSBOX_E_MANIFEST.
 */
int manifest_for(const struct job_spec *spec, const char *skill_text, size_t skill_len, char **ret,
		 size_t *ret_len, struct nsbox_error *err);
/* The same of a later command of a session: what it says instead of the session's manifest, or wishes
 * that are put into that. Always a text. */
int manifest_over(const struct job_spec *spec, const char *base, size_t len, char **ret,
		  size_t *ret_len, struct nsbox_error *err);
/* An error of the compiler points into the manifest: make it point into the request. */
void manifest_locate(const struct job_spec *spec, struct nsbox_error *err);

#endif
