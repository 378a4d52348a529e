/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file stream between its writers and readers inside the library. Nothing here uses the heap
 * or stdio: the in-sandbox helpers (files_child.h) share it.
 */
#ifndef NSBOX_FILES_FORMAT_H
#define NSBOX_FILES_FORMAT_H

#include <linux/openat2.h>
#include <nsbox/files.h>

#define FILES_PATH_MAX 4096 /* with the NUL */
#define FILES_NAME_MAX 255
#define FILES_TEXT_MAX 4095 /* a link's target, a note */

/* Nothing below a directory of ours leads out of it, and no link is ever followed. */
#define FILES_RESOLVE (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

/* What was taken of the limits so far. */
struct files_count {
	uint64_t bytes;
	uint32_t frames;
};

/* Are the numbers of a header possible, and within the limits? Adds it to `count`. */
int files_check_frame(const struct nsbox_frame *f, const struct nsbox_files_limits *lim,
		      struct files_count *count, struct nsbox_error *err);
/* Path and header together; path need not end with a NUL. */
int files_check_frame_path(const struct nsbox_frame *f, const char *path, struct nsbox_error *err);
/* The error that an END frame with a code carries; returns negative, or 0 for a whole stream. */
int files_end_error(const struct nsbox_frame *f, const char *text, struct nsbox_error *err);

/* Header and path; exactly `size` bytes have to follow. */
int files_put_header(int fd, int kind, const char *path, uint32_t mode, uint64_t size,
		     struct nsbox_error *err);
/* The END of a stream that could not be completed. */
int files_put_error(int fd, const struct nsbox_error *why, struct nsbox_error *err);

/* Make printable what came from outside: control bytes become '?'. */
void files_clean_text(char *s);

/*
 * A descriptor of the directory that `path` (checked, relative) lies in, made with all that is
 * missing on the way (0755); *ret_name is the last component, within path.
 */
int files_open_parent(int base_fd, const char *path, int *ret_fd, const char **ret_name,
		      struct nsbox_error *err);
/* A directory; one that is there stays as it is, anything else in its place is removed. */
int files_make_dir(int base_fd, const char *path, uint32_t mode, struct nsbox_error *err);

/* Does a link at `path` stay in the tree? By its letters alone: absolute ones and those that climb
 * above the top do not. */
bool files_link_stays(const char *path, const char *target);

/*
 * Globs: '*', '?' and '[a-z]' ('[!a-z]') within one name, a component "**" for any number of
 * components. A leading dot is nothing special and there is no escape character.
 */
bool files_glob_match(const char *glob, const char *path);
/* Can anything below the directory match? */
bool files_glob_may_contain(const char *glob, const char *dir);

#endif
