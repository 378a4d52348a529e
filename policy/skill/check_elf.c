/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs and libraries that the skill brings: made for this machine and for those of `platforms`,
 * with a loader and with all their libraries. Programs come first; a library that some program loads
 * is judged there, where the program's search path counts. The rest is loaded by interpreters or at
 * will, whose ways are not known here: what it lacks is an error only where it is nowhere at all.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/exec_text.h"
#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/skill/check.h"

struct elf_check {
	struct skill_check *c;
	struct skill_file *root; /* whose libraries are being looked for */
	bool is_program;
};

/* ------------------------------------------------------------------ machines */

static bool for_this_machine(const struct elf_info *e)
{
	return e->machine == EXEC_OWN_MACHINE && e->is64 && e->is_little;
}

static bool is_listed(char *const *list, const char *platform)
{
	size_t n = platform ? strlen(platform) : 0;

	for (; platform && list && *list; list++)
		if (!strncmp(*list, platform, n) && ((*list)[n] == '\0' || (*list)[n] == '/'))
			return true;
	return false;
}

static const char *machine_text(const struct elf_info *e)
{
	if (e->machine == EXEC_OWN_MACHINE && !e->is64)
		return "32-bit programs";
	return exec_machine_name(e->machine);
}

static void check_machine(struct skill_check *c, const struct skill_file *f)
{
	char **list = c->opt->manifest ? c->opt->manifest->platforms : NULL;
	const char *platform = check_platform_of(f->elf->machine, f->elf->is64);
	bool named = list && *list;

	if (named && !is_listed(list, platform))
		report_add(c->rep, SKILL_F_MACHINE, f->path,
			   "name the platform in skill.json, or leave the file out",
			   "it is built for %s, which platforms does not name",
			   machine_text(f->elf));
	else if (!for_this_machine(f->elf) && (f->is_entry || !named))
		report_add(c->rep, SKILL_F_MACHINE, f->path,
			   "bring one that is built for this machine; a skill that brings several "
			   "names them under platforms",
			   EXEC_WRONG_MACHINE, machine_text(f->elf),
			   exec_machine_name(EXEC_OWN_MACHINE));
}

/* ------------------------------------------------------------------ loaders, libraries */

/* False: there is no loader, so the search for libraries has no meaning. */
static bool check_loader(struct skill_check *c, const struct skill_file *f)
{
	char real[PATH_MAX];
	struct stat st;

	if (!f->elf->interp)
		return true;
	if (*f->elf->interp == '/' && view_find(c->view, f->elf->interp, real, &st) == 0 &&
	    S_ISREG(st.st_mode))
		return true;
	report_add(c->rep, SKILL_F_LOADER, f->path,
		   strstr(f->elf->interp, "musl")
			   ? "it is built for musl (Alpine): bring a static one or one for glibc"
			   : "bring a static one, or one that is built for this image",
		   EXEC_NO_LOADER, f->elf->interp);
	return false;
}

static void on_visit(void *ctx, const char *path)
{
	struct elf_check *e = ctx;
	struct skill_file *f = tree_find(&e->c->tree, path + strlen(e->c->opt->inside) + 1);

	if (f)
		f->is_loaded = true;
}

static const char *relative(const struct elf_check *e, const char *path)
{
	size_t n = strlen(e->c->opt->inside);

	return !strncmp(path, e->c->opt->inside, n) && path[n] == '/' ? path + n + 1 : path;
}

static void lacks_library(struct elf_check *e, const char *by, const char *name)
{
	const struct skill_file *elsewhere = tree_find_name(&e->c->tree, name);
	struct skill_finding *found;
	char remedy[1024];

	if (!elsewhere) {
		found = report_add(
			e->c->rep, SKILL_F_LIBRARY, by,
			"bring the library with the skill and link with "
			"-Wl,-rpath,'$ORIGIN', or use an image that has it",
			"it needs the shared library '%s', which is neither in the image "
			"nor in the skill",
			name);
		if (!e->is_program)
			report_lower(e->c->rep, found);
		return;
	}
	snprintf(remedy, sizeof(remedy),
		 "give it a run path, like patchelf --set-rpath '$ORIGIN', that leads to '%.300s'",
		 elsewhere->path);
	report_add(e->c->rep, SKILL_F_LIBRARY_PLACE, by, remedy,
		   "it needs the shared library '%s', which is in the skill as '%s', where the "
		   "loader does not look",
		   name, elsewhere->path);
}

static void on_lack(void *ctx, enum loader_lack what, const char *by, const char *name,
		    const char *version)
{
	struct elf_check *e = ctx;

	by = relative(e, by);
	if (what == LACK_LIBRARY)
		lacks_library(e, by, name);
	else
		report_add(e->c->rep, SKILL_F_LIBRARY_OLD, by,
			   "build it against older libraries, or use a newer image",
			   "it needs version '%s' of '%s', and the one in the image does not have "
			   "it",
			   version, name);
}

static int check_libraries(struct elf_check *e, struct loader *l)
{
	const struct loader_events ev = { on_lack, on_visit, e };
	char path[PATH_MAX];
	struct nsbox_error why = { 0 };
	int r;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", e->c->opt->inside, e->root->path) >=
	    sizeof(path))
		return 0; /* said already: the name is too long */
	r = loader_check(l, path, e->c->opt->inside, &ev, &why);
	if (r == -ENOMEM) {
		*e->c->err = why;
		return r;
	}
	if (r < 0 && why.code == NSBOX_E_LIMIT)
		report_add(e->c->rep, SKILL_F_SIZE, "", NULL, "not all was looked at: %s", why.msg);
	else if (r < 0)
		report_add(e->c->rep, SKILL_F_ELF, e->root->path, NULL,
			   "its libraries cannot be looked for: %s",
			   why.msg[0] ? why.msg : strerror(-r));
	return 0;
}

static int check_round(struct skill_check *c, struct loader *l, bool programs)
{
	for (size_t i = 0; i < c->tree.n; i++) {
		struct skill_file *f = &c->tree.file[i];
		struct elf_check e = { .c = c, .root = f, .is_program = programs };
		int r;

		if (f->content != CONTENT_ELF || elf_is_program(f->elf) != programs)
			continue;
		if (f->elf->type != ET_EXEC && f->elf->type != ET_DYN)
			continue;
		check_machine(c, f);
		if (!for_this_machine(f->elf) || !f->elf->has_dynamic || f->is_loaded)
			continue;
		if (!check_loader(c, f))
			continue;
		r = check_libraries(&e, l);
		if (r < 0)
			return r;
	}
	return 0;
}

int check_elfs(struct skill_check *c)
{
	struct loader *l = NULL;
	const char *library_path = NULL;
	int r;

	for (char **e = c->opt->policy ? c->opt->policy->env : NULL; e && *e; e++)
		if (!strncmp(*e, "LD_LIBRARY_PATH=", 16))
			library_path = *e + 16;
	r = loader_new(c->view, library_path, &l, c->err);
	if (r == 0)
		r = check_round(c, l, true);
	if (r == 0)
		r = check_round(c, l, false);
	loader_free(l);
	return r;
}
