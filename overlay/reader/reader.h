/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of nsbox-import, the confined reader of images. */
#ifndef READER_H
#define READER_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "nsbox/layer_stream.h"

/* ---- inflate.c: standard input as inflated, whatever it was compressed with */

struct archive;
struct inflate;
int inflate_new(struct inflate **ret, struct nsbox_error *err);
void inflate_free(struct inflate *s);
/* The next bytes, 0 at the end, -1 with an error. */
ssize_t inflate_next(struct inflate *s, const void **ret);
const char *inflate_error(const struct inflate *s);
/* Compressed bytes that were read so far. */
uint64_t inflate_input(const struct inflate *s);

/* ---- tar.c: standard input to a layer stream on standard output, END included. `layered`: names
 * of whiteouts are whiteouts. */
int tar_to_stream(bool layered, const struct layer_limits *lim, struct nsbox_error *err);

/* ---- documents.c: JSON to records */

struct document_options {
	const char *platform; /* "os/arch" */
	const char *ref;      /* tag, or "" */
};
typedef int document_fn(const char *text, size_t len, const struct document_options *o, FILE *out,
			struct nsbox_error *err);
document_fn document_index, document_manifest, document_docker, document_config;

#endif
