/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records: the text in which images are described where nothing may read JSON. Lines of a key of
 * small letters, a space and a value; bytes of a value outside '!'..'~', and '%' itself, are
 * written as %XX. So each line is one record whatever an image's author put into it.
 */
#ifndef OVERLAY_RECORDS_H
#define OVERLAY_RECORDS_H

#include <nsbox/error.h>
#include <stddef.h>
#include <stdio.h>

/* The value is decoded and NUL-terminated, and holds no NUL byte besides. */
typedef int record_fn(void *ctx, const char *key, const char *value, struct nsbox_error *err);

/* Decodes in place. */
int records_parse(char *text, size_t len, record_fn *each, void *ctx, struct nsbox_error *err);
void record_put(FILE *to, const char *key, const char *value);

#endif
