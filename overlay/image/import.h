/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Importing images, between its files: import.c (what comes in and how it is put in place),
 * import_layer.c (one layer), import_oci.c (OCI layouts and `docker save`), import_survey.c (what
 * a finished image has at its top).
 *
 * Theory of operation. Nothing of an image is parsed here: archives and JSON go through the
 * confined reader (overlay/reader/, nsbox-import), and only its output, records and a layer
 * stream, is read, as checked text and frames. Hashes are computed here, over the bytes that the
 * reader is given: a reader that an archive has taken over can spoil that archive's layer and no
 * other's. Layers are written by the owner of layers (owner.c). They keep a name of their own
 * until all are whole and on disk; so whatever ends an import, no half of an image is left that
 * anything refers to.
 */
#ifndef OVERLAY_IMPORT_H
#define OVERLAY_IMPORT_H

#include <openssl/evp.h>

#include "nsbox/layer_stream.h"
#include "overlay/image/records.h"
#include "overlay/image/store.h"

struct image_import {
	const char *name;     /* what it will be called; NULL: as the source says */
	const char *source;   /* path of a directory or an archive; "-": standard input */
	const char *reader;   /* path of nsbox-import */
	const char *platform; /* "linux/amd64"; NULL: this machine's */
	const char *ref;      /* tag, where the source holds several images; or NULL */
	bool plain;	      /* a root file system, whatever it looks like */
	struct layer_limits limits;
	/* Called now and then; anything but 0 cancels. total 0: not known. May be NULL. */
	int (*progress)(void *ctx, const char *what, uint64_t done, uint64_t total);
	void *ctx;
	char *ret_name; /* IMAGE_NAME_MAX bytes for what it is called; or NULL */
};

/* Blocks; forks; SIGPIPE has to be ignored. ret_id: what the name refers to now. */
int image_import(const char *state_dir, const struct image_import *in, char ret_id[DIGEST_TEXT],
		 struct nsbox_error *err);
/*
 * The image `base` with one more layer, from a layer stream (NSBOX_UPPER_LAYER of a sandbox in it),
 * is called `name` from now on; that may be the same name. digest: what base has to be, as
 * nsbox_root_digest() says; NULL for anything.
 */
int image_commit(const char *state_dir, const char *base, const char *digest, const char *name,
		 int stream, char ret_id[DIGEST_TEXT], struct nsbox_error *err);
/* "linux/amd64" and so on: what this machine runs. */
const char *image_platform(void);

/* ------------------------------------------------------------------ between the files */

#define TMP_NAME 48

struct pending { /* a whole layer that waits for its name */
	char tmp[TMP_NAME], digest[DIGEST_TEXT];
};

struct import {
	const struct image_import *in;
	struct store s;
	struct image_index x;
	struct layer_limits left; /* of the whole image */
	unsigned serial;
	struct pending *pending;
	size_t pendings;
	char *named;	      /* what the source says it is called; or NULL */
	struct strings diffs; /* what the configuration says that layers inflate to */
	uint32_t skipped;
	struct nsbox_error *err;
};

/* A layer that came in, not yet one of the image. */
struct incoming {
	char tmp[TMP_NAME], digest[DIGEST_TEXT];
	struct layer_sums sums;
};

/* import_layer.c. `layered`: names of whiteouts are whiteouts. total: for the progress, or 0. */
int import_archive(struct import *m, int fd, const char *what, uint64_t total, bool layered,
		   struct incoming *ret);
int import_directory(struct import *m, int dir_fd, struct incoming *ret);
int import_stream(struct import *m, int fd, struct incoming *ret);
void import_drop(struct import *m, const struct incoming *in);
/* Takes it: the image's next layer. One without an entry is dropped. */
int import_keep(struct import *m, const struct incoming *in);
/* Is this layer in the store, or coming in? Then it is the image's next one. 1: yes */
int import_reuse(struct import *m, const char *digest);

/* import_oci.c: is there an image's layout in this directory? Then import it. 1: there was */
int import_layout(struct import *m, int dir_fd);
/* Start the reader with these as its standard input and output. */
pid_t import_start_reader(struct import *m, const char *const *args, int in, int out);
/* The digest of a finished context as hex. */
int import_hash_text(EVP_MD_CTX *ctx, char ret[DIGEST_TEXT], struct nsbox_error *err);

/* import_survey.c: fills dirs, passwd and group of the index, from the layers as they are. */
int import_survey(struct import *m);
/* Where a layer of the image lies now: its own name, or the one it came in under. */
const char *import_layer_place(const struct import *m, const char *digest);

#endif
