/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a skill, sorted by path, each with what its first bytes say it is. */
#ifndef POLICY_SKILL_TREE_H
#define POLICY_SKILL_TREE_H

#include <sys/stat.h>

#include "policy/skill/elf.h"
#include "policy/skill/skill.h"

#define SHEBANG_MAX 255

enum skill_content {
	CONTENT_OTHER, /* data, directories, links */
	CONTENT_SCRIPT,
	CONTENT_ELF,
	CONTENT_BAD_ELF,
};

struct skill_file {
	char *path; /* relative, as it is on disk */
	struct stat st;
	enum skill_content content;
	char *shebang; /* behind "#!", without the line end */
	bool is_crlf;
	struct elf_info *elf;
	bool is_made_executable; /* the manifest says so */
	bool is_entry;		 /* an entry point starts it itself */
	bool is_loaded;		 /* by a program of the skill */
};

struct skill_tree {
	int dir_fd;
	struct skill_file *file;
	size_t n;
	uint64_t bytes;
};

/* What is wrong with the files as such becomes findings. */
int tree_read(int dir_fd, struct skill_tree *ret, struct skill_report *rep,
	      struct nsbox_error *err);
void tree_done(struct skill_tree *t);
struct skill_file *tree_find(const struct skill_tree *t, const char *path);
/* A file whose last name is this, or NULL. */
struct skill_file *tree_find_name(const struct skill_tree *t, const char *name);

/* Open below the skill; no links, no waiting. -errno. */
int skill_open(int dir_fd, const char *path, int flags);
/* Could it be started itself, as far as its mode (and the manifest) goes? */
bool file_is_executable(const struct skill_file *f);

#endif
