/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans for tests: compiled by policy/ as the product does, and taken apart again so that one
 * thing of them can be changed. All of these fail the running test where they do not succeed.
 */
#ifndef TESTS_PLAN_KIT_H
#define TESTS_PLAN_KIT_H

#include <nsbox/host.h>
#include <nsbox/policy.h>

#include "nsbox/plan_build.h"

/* A made-up host that has everything. */
struct nsbox_host kit_full_host(void);

/* A sealed plan of a manifest (NULL: the default one) for a host; the caller closes it. */
int kit_compile(const struct nsbox_host *host, const char *manifest);

/* A builder that holds what the blob holds: strings keep their offsets. */
struct blob_builder *kit_rebuild(const struct blob *b);
/* Its fixed part, to be changed in place by kit_set_fixed(). */
struct plan_fixed kit_fixed(const struct blob *b);
void kit_set_fixed(struct blob_builder *b, const struct plan_fixed *f);

/* Take the bytes of a builder and free it. */
void *kit_bytes(struct blob_builder *b, size_t *ret_len);
/* Open the plan that a builder makes, and free the builder. */
struct nsbox_plan *kit_open(struct blob_builder *b);

#endif
