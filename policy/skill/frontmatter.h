/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front matter of SKILL.md: the YAML between two lines of "---".
 *
 * Only the subset that skills are written in is read: `key: value` with plain, quoted and block
 * (| and >) scalars, lines that go on indented, and one nested map, metadata. What is odder, or not
 * YAML at all, is refused with the number of the line; keys that are of no concern here may have
 * any value.
 */
#ifndef POLICY_SKILL_FRONTMATTER_H
#define POLICY_SKILL_FRONTMATTER_H

#include <nsbox/error.h>
#include <stddef.h>

#define FRONTMATTER_MAX 65536 /* bytes of it */

struct frontmatter_value {
	char *text; /* NULL: not there, or null */
	unsigned line;
};

struct frontmatter {
	struct frontmatter_value name, description, license, compatibility;
	struct frontmatter_value sandbox; /* metadata.sandbox */
};

/* 0; -ENOENT where the text has none; -EINVAL with "line N: ..."; -ENOMEM. */
int frontmatter_read(const char *text, size_t len, struct frontmatter *ret,
		     struct nsbox_error *err);
void frontmatter_done(struct frontmatter *f);

#endif
