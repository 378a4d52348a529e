/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SKILL.md beside skill.json. Both tell people and agents what the skill is called, does and may be
 * used for; where both say it they have to say the same, or a reviewer reads one thing and an agent
 * another.
 */
#include <errno.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/skill/frontmatter.h"
#include "policy/skill/skill.h"

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Equal but for how the words are spaced and broken into lines. */
static bool same_words(const char *a, const char *b)
{
	for (;;) {
		bool gap_a = is_blank(*a), gap_b = is_blank(*b);

		while (is_blank(*a))
			a++;
		while (is_blank(*b))
			b++;
		if (!*a || !*b)
			return !*a && !*b;
		if (gap_a != gap_b || *a != *b)
			return false;
		a++;
		b++;
	}
}

static const char *trimmed(const char *s)
{
	while (is_blank(*s))
		s++;
	return s;
}

static void compare(struct skill_report *rep, const char *key, const struct frontmatter_value *v,
		    const char *ours)
{
	if (!v->text || !ours || same_words(trimmed(v->text), trimmed(ours)))
		return;
	report_add(rep, SKILL_F_DISAGREE, "SKILL.md", "make both say the same",
		   "%s is \"%.200s\" in SKILL.md (line %u) and \"%.200s\" in skill.json (/%s)", key,
		   trimmed(v->text), v->line, ours, key);
}

static void complete(struct skill_report *rep, const char *key, const struct frontmatter_value *v)
{
	if (!v->text)
		report_add(rep, SKILL_F_DOCUMENT, "SKILL.md",
			   "agents choose a skill by its name and description: add both",
			   "its front matter has no %s", key);
}

static void check_sandbox(struct skill_report *rep, const struct frontmatter *f, bool has_manifest)
{
	if (!f->sandbox.text)
		return;
	if (strcmp(f->sandbox.text, "skill.json") != 0)
		report_add(rep, SKILL_F_OTHER_NAME, "SKILL.md",
			   "call the manifest skill.json, beside SKILL.md",
			   "metadata.sandbox (line %u) names '%s', and only skill.json is read",
			   f->sandbox.line, f->sandbox.text);
	else if (!has_manifest)
		report_add(rep, SKILL_F_OTHER_NAME, "SKILL.md",
			   "`nsbox skill init` writes a first one",
			   "metadata.sandbox (line %u) names skill.json, which is not there",
			   f->sandbox.line);
}

void skill_agree(const struct nsbox_manifest *m, bool has_manifest, const char *document,
		 size_t len, struct skill_report *rep)
{
	struct frontmatter f = { 0 };
	struct nsbox_error why = { 0 };
	int r = frontmatter_read(document, len, &f, &why);

	if (r < 0) {
		report_add(rep, SKILL_F_DOCUMENT, "SKILL.md",
			   "it begins with '---', lines of 'key: value', and '---'; quote what is "
			   "not plain text",
			   "its front matter cannot be read: %s",
			   r == -ENOENT ? "there is none" : why.msg);
		return;
	}
	complete(rep, "name", &f.name);
	complete(rep, "description", &f.description);
	check_sandbox(rep, &f, has_manifest);
	if (m) {
		compare(rep, "name", &f.name, m->name);
		compare(rep, "description", &f.description, m->description);
		compare(rep, "license", &f.license, m->license);
	}
	frontmatter_done(&f);
}
