/* SPDX-License-Identifier: Apache-2.0 */
/* The order: the files as such, the two documents, entry points, then what each file would need. */
#include "policy/skill/check.h"

#include <errno.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/internal.h"

#define DOCUMENT_MAX (4u << 20)

static int check_document(struct skill_check *c)
{
	auto_free char *text = NULL;
	struct nsbox_error why = { 0 };
	size_t len = 0;
	int r = skill_read(c->opt->dir_fd, "SKILL.md", DOCUMENT_MAX, &text, &len, &why);

	if (r == -ENOENT) {
		report_add(c->rep, SKILL_F_NO_DOCUMENT, "",
			   "write one: agents read it to know what the skill is for",
			   "there is no SKILL.md");
		return 0;
	}
	if (r == -ENOMEM) {
		*c->err = why;
		return r;
	}
	if (r < 0) {
		report_add(c->rep, SKILL_F_UNREADABLE, "SKILL.md", NULL, "%s", why.msg);
		return 0;
	}
	skill_agree(c->opt->has_manifest ? c->opt->manifest : NULL, c->opt->has_manifest, text, len,
		    c->rep);
	return 0;
}

static const char *environment(const struct skill_check *c, const char *name)
{
	size_t n = strlen(name);

	for (char **e = c->opt->policy ? c->opt->policy->env : NULL; e && *e; e++)
		if (!strncmp(*e, name, n) && (*e)[n] == '=')
			return *e + n + 1;
	return NULL;
}

/* What resolves and yet has no enforcement here: a run is refused for it. */
static void check_gaps(struct skill_check *c)
{
	const struct nsbox_policy *p = c->opt->policy;

	for (size_t i = 0; p && i < p->n_gaps; i++)
		report_add(c->rep, SKILL_F_MANIFEST, "skill.json",
			   "leave it out, or run it elsewhere", "%s: %s", p->gaps[i].pointer,
			   p->gaps[i].why);
}

static int prepare(struct skill_check *c)
{
	const char *path = environment(c, "PATH");
	int r = view_new(c->opt->root, &c->view, c->err);

	if (r == 0)
		r = view_add(c->view, c->opt->inside, c->opt->dir_fd, c->err);
	c->path = path ? path : "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
	return r;
}

int skill_check(const struct skill_check_options *opt, struct skill_report *rep,
		struct nsbox_error *err)
{
	struct nsbox_error own;
	struct skill_check c = { .opt = opt, .rep = rep, .err = err ? err : &own };
	int r = prepare(&c);

	if (r == 0)
		r = tree_read(opt->dir_fd, &c.tree, rep, c.err);
	if (r == 0)
		r = check_document(&c);
	if (r == 0) {
		check_gaps(&c);
		check_platforms(&c);
		check_entries(&c);
		check_digests(&c);
		check_starts(&c);
		r = check_elfs(&c);
	}
	tree_done(&c.tree);
	view_free(c.view);
	return r;
}
