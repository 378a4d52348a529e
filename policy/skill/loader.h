/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which libraries would the dynamic loader find for a program in a view? The search of ld.so(8), done by
 * reading: DT_RPATH and DT_RUNPATH with $ORIGIN, LD_LIBRARY_PATH, the directories of
 * /etc/ld.so.conf, the default ones. Nothing is run, and no cache is trusted.
 */
#ifndef POLICY_SKILL_LOADER_H
#define POLICY_SKILL_LOADER_H

#include <limits.h>
#include <nsbox/error.h>

#include "policy/skill/elf.h"
#include "policy/skill/view.h"

struct loader;

/* library_path: LD_LIBRARY_PATH of the run, or NULL. The view is borrowed. */
int loader_new(const struct view *v, const char *library_path, struct loader **ret,
	       struct nsbox_error *err);
void loader_free(struct loader *l);

enum loader_lack { LACK_LIBRARY, LACK_VERSION };

/* by: inside path of the file that wants `name`; of LACK_VERSION: version of the library. */
typedef void loader_lack_fn(void *ctx, enum loader_lack what, const char *by, const char *name,
			    const char *version);
/* A file below `inside` was loaded. */
typedef void loader_visit_fn(void *ctx, const char *path);

struct loader_events {
	loader_lack_fn *lack;
	loader_visit_fn *visit; /* may be NULL */
	void *ctx;
};

/*
 * All that the file at `path` (inside, as view_find() gives it) loads, level by level. Files below
 * `inside` (the skill) are followed; those of the image are whole in themselves.
 */
int loader_check(struct loader *l, const char *path, const char *inside,
		 const struct loader_events *ev, struct nsbox_error *err);

#endif
