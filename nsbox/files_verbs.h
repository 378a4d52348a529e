/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The helper that carries out one verb (nsbox_file_request) inside the sandbox: files_verbs.c for
 * single files, files_tree.c for trees, files_grep.c for searching in files. System calls alone.
 */
#ifndef NSBOX_FILES_VERBS_H
#define NSBOX_FILES_VERBS_H

#include "nsbox/files_sender.h"
#include "nsbox/files_walk.h"
#include "nsbox/plan_build.h"

struct verb {
	const struct verb_fixed *f;
	const char *path, *target, *pattern, *text;
	const char *below, *into; /* of verb_paths */
	int root_fd, in;	  /* borrowed; in -1: none */
	struct files_sender send;
};

typedef int verb_fn(struct verb *v, struct nsbox_error *err);

/* Do what the blob (VERB_MAGIC, checked) asks; out gets END with the error, too. */
struct verb_paths {
	const char *path, *target; /* as the helper has to open them, */
	const char *workdir;	   /* and what relative ones are below */
	const char *below, *into;  /* workdir and path as root_fd holds them */
};
int files_child_verb(const struct blob *b, const struct verb_paths *paths, int root_fd, int in,
		     int out, struct nsbox_error *err);
/* What a signal that asks the helper to end has to remove: from now on, or nothing (name NULL). */
void files_child_on_term(void);

/* "WHAT 'PATH': why", with a remedy where there is one. */
int verb_fail(const char *what, const char *path, int errnum, struct nsbox_error *err);
/* One INFO frame of dir_fd/name; path "" for the object itself. 0 also where it is gone. */
int verb_send_info(struct verb *v, int dir_fd, const char *name, const char *path,
		   struct nsbox_error *err);
/* Open a directory of the sandbox as `path` says. -errno. */
int verb_open_dir(const char *path);

/* files_tree.c */
verb_fn verb_list, verb_download, verb_glob, verb_remove_tree;
int verb_walk(struct verb *v, files_walk_fn *dir, files_walk_fn *other, struct nsbox_error *err);
static inline struct verb *verb_of(struct files_walk *w)
{
	return (struct verb *)w->ctx;
}

/* files_remove.c: the entry and all below it. -errno */
int files_remove_tree(int dir_fd, const char *name);

/* files_grep.c */
verb_fn verb_grep;

#endif
