/* SPDX-License-Identifier: Apache-2.0 */
/* What skill.json says against what is there: platforms, entry points, files.executable, tests. */
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/files_format.h"
#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/skill/check.h"

/* ------------------------------------------------------------------ platforms */

static const struct {
	const char *name;
	unsigned machine;
	bool is64;
} platforms[] = {
	{ "linux/amd64", EM_X86_64, true },	{ "linux/arm64", EM_AARCH64, true },
	{ "linux/386", EM_386, false },		{ "linux/arm", EM_ARM, false },
	{ "linux/riscv64", EM_RISCV, true },	{ "linux/ppc64le", EM_PPC64, true },
	{ "linux/s390x", EM_S390, true },	{ "linux/arm/v7", EM_ARM, false },
	{ "linux/arm64/v8", EM_AARCH64, true },
};

const char *check_platform_of(unsigned machine, bool is64)
{
	for (unsigned i = 0; i < ARRAY_SIZE(platforms); i++)
		if (platforms[i].machine == machine && platforms[i].is64 == is64)
			return platforms[i].name;
	return NULL;
}

static bool platform_known(const char *name)
{
	for (unsigned i = 0; i < ARRAY_SIZE(platforms); i++)
		if (!strcmp(platforms[i].name, name))
			return true;
	return false;
}

/* That this machine is among them is the resolver's to say: a run is refused for it. */
void check_platforms(struct skill_check *c)
{
	char **list = c->opt->manifest ? c->opt->manifest->platforms : NULL;

	for (; list && *list; list++)
		if (!platform_known(*list))
			report_add(c->rep, SKILL_F_PLATFORM_NAME, "skill.json",
				   "write it as linux/amd64 or linux/arm64",
				   "platforms names '%s', which is not known here", *list);
}

/* ------------------------------------------------------------------ places */

/* Below the skill: the part of the path behind its directory, else NULL. */
static const char *in_skill(const struct skill_check *c, const char *path)
{
	size_t n = strlen(c->opt->inside);

	return !strncmp(path, c->opt->inside, n) && path[n] == '/' ? path + n + 1 : NULL;
}

/* Take "." and ".." out by letters; false where it climbs above the root or does not fit. */
static bool plain_path(const char *base, const char *rel, char ret[PATH_MAX])
{
	char both[2 * PATH_MAX];
	size_t at = 0;

	if (strlen(base) + strlen(rel) + 2 > PATH_MAX)
		return false;
	snprintf(both, sizeof(both), "%s/%s", base, rel);
	for (const char *p = both; *p; p += strspn(p, "/")) {
		size_t n = strcspn(p, "/");

		if (n == 2 && !memcmp(p, "..", 2)) {
			while (at && ret[at - 1] != '/')
				at--;
			at -= at > 0;
		} else if (n && !(n == 1 && *p == '.')) {
			ret[at++] = '/';
			memcpy(ret + at, p, n);
			at += n;
		}
		p += n;
	}
	ret[at] = '\0';
	return true;
}

/* Places that are empty until a run fills them: nothing can be said about what is there. */
static bool made_by_the_run(const char *path)
{
	static const char *const places[] = { "/workspace/", "/tmp/", "/home/",
					      "/var/tmp/",   "/dev/", "/proc/" };

	for (unsigned i = 0; i < ARRAY_SIZE(places); i++)
		if (!strncmp(path, places[i], strlen(places[i])))
			return true;
	return false;
}

bool check_in_path(struct skill_check *c, const char *name)
{
	char path[PATH_MAX], real[PATH_MAX];
	struct stat st;

	for (const char *p = c->path; *p;) {
		size_t n = strcspn(p, ":");

		if ((size_t)snprintf(path, sizeof(path), "%.*s/%s", (int)n, p, name) <
			    sizeof(path) &&
		    view_find(c->view, path, real, &st) == 0 && S_ISREG(st.st_mode) &&
		    (st.st_mode & 0111))
			return true;
		p += n + (p[n] == ':');
	}
	return false;
}

/* ------------------------------------------------------------------ entry points */

struct entry {
	const struct manifest_entrypoint *e;
	char base[PATH_MAX]; /* where it is started, inside */
	char label[96];	     /* "entrypoints.ID" */
};

/* The file that a word of a command names, if it is one of the skill; complains where it is not
 * there or leads out. */
static struct skill_file *entry_file(struct skill_check *c, const struct entry *en,
				     const char *word)
{
	char path[PATH_MAX], real[PATH_MAX];
	bool relative = *word != '/';
	struct stat st;
	const char *rel;
	int r;

	if (!plain_path(relative ? en->base : "", word, path))
		return NULL;
	if (relative && !in_skill(c, path)) {
		report_add(c->rep, SKILL_F_ENTRY_OUTSIDE, "skill.json",
			   "name a file of the skill, or a program of the image by its name alone",
			   "%s starts '%s', which is outside the skill", en->label, word);
		return NULL;
	}
	r = view_find(c->view, path, real, &st);
	if (r < 0 && (relative || in_skill(c, path) || !made_by_the_run(path)))
		report_add(c->rep, SKILL_F_ENTRY_MISSING, "skill.json",
			   relative ? "correct the path; it counts from the skill's directory, or "
				      "from cwd"
				    : "correct the path; it is one inside the sandbox",
			   "%s starts '%s', which is not there", en->label, word);
	if (r < 0)
		return NULL;
	rel = in_skill(c, real);
	if (!rel && relative)
		report_add(c->rep, SKILL_F_ENTRY_OUTSIDE, "skill.json",
			   "put a copy of the file into the skill",
			   "%s starts '%s', a symbolic link that leads out of the skill", en->label,
			   word);
	return rel && S_ISREG(st.st_mode) ? tree_find(&c->tree, rel) : NULL;
}

/* Interpreters whose first word that is no option is a script. */
static bool takes_script(const char *program)
{
	static const char *const names[] = { "python", "python3", "sh",	     "bash", "dash",
					     "node",   "nodejs",  "perl",    "ruby", "php",
					     "lua",    "Rscript", "busybox", NULL };
	const char *slash = strrchr(program, '/');
	const char *name = slash ? slash + 1 : program;

	for (unsigned i = 0; names[i]; i++)
		if (!strcmp(names[i], name))
			return strcmp(name, "busybox") != 0;
	return !strncmp(name, "python3.", 8);
}

/* The script in a command, or NULL where there is none, or none that can be told. */
static const char *script_of(char *const *command)
{
	static const char *const harmless[] = { "-u", "-B", "-I", "-E", "-s", "-S",
						"-O", "-b", "-e", "-x", "--" };
	bool is_shell = strstr(command[0], "sh") != NULL;
	unsigned i = 1;

	if (!takes_script(command[0]))
		return NULL;
	for (; command[i] && *command[i] == '-'; i++) {
		bool known = false;

		for (unsigned k = 0; k < ARRAY_SIZE(harmless); k++)
			known |= !strcmp(command[i], harmless[k]);
		if (!known || (!is_shell && !strcmp(command[i], "-e")))
			return NULL;
	}
	return command[i];
}

static void check_program(struct skill_check *c, const struct entry *en)
{
	const char *program = en->e->command[0];
	struct skill_file *f;

	if (!strchr(program, '/')) {
		if (!check_in_path(c, program))
			report_add(c->rep, SKILL_F_ENTRY_MISSING, "skill.json",
				   "bring the program with the skill and name it with its path, or "
				   "use an image that has it",
				   "%s starts '%s', which is not in the image's PATH", en->label,
				   program);
		return;
	}
	f = entry_file(c, en, program);
	if (f)
		f->is_entry = true;
}

static void check_entry(struct skill_check *c, const struct manifest_entrypoint *e)
{
	struct entry en = { .e = e };
	const char *script;

	snprintf(en.label, sizeof(en.label), "entrypoints.%s", e->id);
	if (!e->command || !e->command[0])
		return;
	if (!e->cwd)
		snprintf(en.base, sizeof(en.base), "%s", c->opt->inside);
	else if (!plain_path(*e->cwd == '/' ? "" : c->opt->inside, e->cwd, en.base))
		return;
	check_program(c, &en);
	script = script_of(e->command);
	/* Started elsewhere, a script may be one that the run makes. */
	if (script && (in_skill(c, en.base) || !strcmp(en.base, c->opt->inside)))
		entry_file(c, &en, script);
}

/* ------------------------------------------------------------------ the rest */

static void check_pattern(struct skill_check *c, const char *pattern)
{
	bool any = false;

	for (size_t i = 0; i < c->tree.n; i++) {
		struct skill_file *f = &c->tree.file[i];

		if (!S_ISREG(f->st.st_mode) || !files_glob_match(pattern, f->path))
			continue;
		f->is_made_executable = any = true;
	}
	if (!any)
		report_add(c->rep, SKILL_F_EXECUTABLE, "skill.json",
			   "correct the pattern, or leave it out",
			   "files.executable: no file of the skill matches '%s'", pattern);
}

/* The manifest's own words and not the policy's: that one is not there where a part is refused. */
static void check_executable(struct skill_check *c)
{
	char **list = c->opt->manifest->executable;

	for (; list && *list; list++) {
		const char *word = !strncmp(*list, "${skill}/", 9) ? *list + 9 : *list;
		struct skill_file *f;
		char path[PATH_MAX];
		const char *rel;

		if (!plain_path(*word == '/' ? "" : c->opt->inside, word, path))
			continue;
		rel = in_skill(c, path);
		if (rel && strpbrk(rel, "*?[")) {
			check_pattern(c, rel);
			continue;
		}
		f = rel ? tree_find(&c->tree, rel) : NULL;
		if (f && S_ISREG(f->st.st_mode))
			f->is_made_executable = true;
		else if (rel)
			report_add(c->rep, SKILL_F_EXECUTABLE, "skill.json",
				   "correct the path, or leave it out",
				   "files.executable names '%s', which is not a file of the skill",
				   rel);
	}
}

static void check_tests(struct skill_check *c)
{
	const struct nsbox_manifest *m = c->opt->manifest;
	struct nsbox_entrypoint e;
	struct nsbox_error why;

	for (size_t i = 0; i < m->n_tests; i++)
		if (nsbox_manifest_entrypoint(m, m->tests[i].entrypoint, &e, &why) < 0)
			report_add(c->rep, SKILL_F_TEST, "skill.json", "correct its entrypoint",
				   "tests[%zu]: %s", i, why.msg);
}

void check_entries(struct skill_check *c)
{
	const struct nsbox_manifest *m = c->opt->manifest;

	if (!m)
		return;
	check_executable(c);
	for (size_t i = 0; i < m->n_entrypoints; i++)
		check_entry(c, &m->entrypoints[i]);
	check_tests(c);
}
