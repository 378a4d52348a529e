/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of nsbox-unpack. */
#ifndef UNPACK_H
#define UNPACK_H

#include <nsbox/files.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct unpack_limits {
	uint64_t input; /* bytes of the archive */
	uint64_t total; /* bytes of all files together, as inflated */
	uint32_t entries;
	uint32_t ratio; /* inflated : archive, once `ratio_from` bytes have come out */
	uint64_t ratio_from;
	uint64_t memory; /* address space */
	uint32_t cpu_s;
};

/* confine.c: give up everything but memory and the two descriptors. Before any input is read. */
int confine(const struct unpack_limits *lim, struct nsbox_error *err);

/* names.c: which names an archive may use, and which it has used. */
struct names;
enum name_kind { NAME_FILE, NAME_DIR, NAME_LINK };

int names_new(struct names **ret, struct nsbox_error *err);
void names_free(struct names *n);
/* In place: drop a leading "./" and a trailing "/"; the rest is refused or taken as it is. */
int name_normalise(char *name, struct nsbox_error *err);
/* Refuses a duplicate, and a name below one that is no directory. A directory may come twice. */
int names_add(struct names *n, const char *name, enum name_kind kind, struct nsbox_error *err);
/* A link below `name` that points to `target`: does it stay in the archive's tree? */
int name_check_link(const char *name, const char *target, struct nsbox_error *err);
/* "entry 'NAME': " before the message, with control bytes made visible. */
void name_blame(const char *name, struct nsbox_error *err);

/* names_legacy.c: names of zip files as UTF-8, whatever they were written in. Before confine(): */
void name_decode_open(void);
/* raw holds no NUL; false where the name does not fit. */
bool name_decode(const char *raw, size_t len, char *ret, size_t size);

/* zip_check.c: is this a zip file that every reader understands in the same way? */
struct zip_facts {
	unsigned entries;
	bool modes; /* of at least one entry it says who may execute it */
};
bool zip_is(const unsigned char *data, size_t len);
int zip_check(const unsigned char *data, size_t len, struct zip_facts *ret, struct nsbox_error *err)
	__attribute__((nonnull(1)));

/* source.c: what a compressed file holds, for libarchive to read a tar file from. */
struct archive;
struct source;
int source_new(const unsigned char *data, size_t len, struct source **ret, struct nsbox_error *err);
void source_free(struct source *s);
int source_open(struct archive *a, struct source *s); /* an ARCHIVE_ code; s has to outlive a */
/* Read the rest: is all of it whole? */
int source_finish(struct archive *a, struct source *s, struct nsbox_error *err);

/* gzip.c: its part for gzip, with checksums compared. */
struct gzip;
bool gzip_is(const unsigned char *data, size_t len);
int gzip_new(const unsigned char *data, size_t len, struct gzip **ret, struct nsbox_error *err);
/* The next bytes, 0 at the end, or an ARCHIVE_ code with the error set in a. */
ssize_t gzip_read(struct archive *a, struct gzip *g, const void **ret);
void gzip_free(struct gzip *g);

/* archive.c: the archive in memory to frames on fd, without END. */
int archive_to_stream(const unsigned char *data, size_t len, const struct unpack_limits *lim,
		      int fd, struct nsbox_error *err);

#endif
