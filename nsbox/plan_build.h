/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing blobs (plans, exec requests, root lists). For the unprivileged side only: it allocates.
 * A failed append is remembered and reported once, by blob_seal(); so callers chain without checks.
 */
#ifndef NSBOX_PLAN_BUILD_H
#define NSBOX_PLAN_BUILD_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <stddef.h>

#include <nsbox/plan.h>

#include "nsbox/plan_format.h"

struct blob_builder;

struct blob_builder *blob_new(uint32_t magic); /* NULL only without memory */
void blob_free(struct blob_builder *b);

/* Intern a string (same text, same offset). NULL means "". */
str_off blob_str(struct blob_builder *b, const char *s);
/* Append bytes to a section; returns their offset within the section. */
uint32_t blob_append(struct blob_builder *b, enum blob_section sec, const void *data, size_t len);
/* Replace the content of a section. */
void blob_set(struct blob_builder *b, enum blob_section sec, const void *data, size_t len);

/* Shorthands: */
void blob_op(struct blob_builder *b, enum mount_op_kind kind, unsigned flags, unsigned mode,
	     const char *src, const char *dst, uint64_t size);
/* OP_TRUST */
void blob_trust(struct blob_builder *b, const char *dst, const void *data, size_t len);
void blob_file(struct blob_builder *b, const char *dst, unsigned flags, unsigned mode,
	       const void *data, size_t len);
void blob_landlock(struct blob_builder *b, const char *path, uint64_t access, bool optional);
void blob_landlock_port(struct blob_builder *b, uint16_t port, uint64_t access);
void blob_env(struct blob_builder *b, const char *name, const char *value);
void blob_output(struct blob_builder *b, const char *glob, uint64_t max_bytes, uint32_t max_files);

/* The bytes (malloc'd, caller frees): for hashing, tests and `policy show`. */
int blob_bytes(struct blob_builder *b, void **ret, size_t *ret_len, struct nsbox_error *err);
/* A memfd with these bytes and all seals on it. */
int blob_seal(struct blob_builder *b, const char *name, int *ret_fd, struct nsbox_error *err);

/* ------------------------------------------------------------------ reading (no allocation) */

struct blob {
	const unsigned char *base;
	size_t size;
};

const char *blob_get_str(const struct blob *b, str_off off);
const void *blob_get(const struct blob *b, enum blob_section sec, size_t elem, size_t *ret_count);
#define blob_fixed(b, type) ((const type *)blob_get(b, SEC_FIXED, sizeof(type), NULL))

/* The blob behind an open plan. */
const struct blob *plan_blob(const struct nsbox_plan *plan);

/* Header, sections, strings; then the rules of the magic (plan, exec or root). */
int blob_check(const void *base, size_t size, uint32_t magic, struct nsbox_error *err);
/* Map a sealed memfd and check it. Unmap with blob_unmap. */
int blob_map(int fd, uint32_t magic, struct blob *ret, struct nsbox_error *err);
void blob_unmap(struct blob *b);

#endif
