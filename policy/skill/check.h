/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of `nsbox skill check`. */
#ifndef POLICY_SKILL_CHECK_H
#define POLICY_SKILL_CHECK_H

#include "policy/skill/loader.h"
#include "policy/skill/skill.h"
#include "policy/skill/tree.h"
#include "policy/skill/view.h"

struct skill_check {
	const struct skill_check_options *opt;
	struct skill_tree tree;
	struct view *view;
	struct skill_report *rep;
	struct nsbox_error *err;
	const char *path; /* PATH of a run */
};

/* ---- check_manifest.c */
void check_platforms(struct skill_check *c);
void check_entries(struct skill_check *c); /* marks files as is_entry, is_made_executable */
/* Find a program in the run's PATH. */
bool check_in_path(struct skill_check *c, const char *name);

/* ---- check_digest.c */
void check_digests(struct skill_check *c);

/* ---- check_elf.c: machines, loaders, libraries */
int check_elfs(struct skill_check *c);
/* "linux/arm64" of a machine; NULL: none that platforms can name. */
const char *check_platform_of(unsigned machine, bool is64);

/* ---- check_script.c: execute bits, interpreters, carriage returns */
void check_starts(struct skill_check *c);

/* ---- fix.c. 0 or -errno */
int fix_execute_bit(struct skill_check *c, const struct skill_file *f);
int fix_line_ends(struct skill_check *c, const struct skill_file *f);

#endif
