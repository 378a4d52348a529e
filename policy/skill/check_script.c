/* SPDX-License-Identifier: Apache-2.0 */
/* How a file is started: by its execute bit, and a script by the interpreter of its first line. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/exec_text.h"
#include "nsbox/util.h"
#include "policy/skill/check.h"

/* ------------------------------------------------------------------ execute bits */

static void lost_bit(struct skill_check *c, struct skill_file *f)
{
	const char *what =
		f->content == CONTENT_SCRIPT ? "a script with a '#!' line" : "an ELF program";
	char remedy[512];
	struct skill_finding *found;
	int r;

	snprintf(remedy, sizeof(remedy),
		 "chmod +x, or in skill.json \"files\": { \"executable\": [\"%.300s\"] }", f->path);
	if (f->is_entry)
		found = report_add(c->rep, SKILL_F_ENTRY_MODE, f->path, remedy,
				   EXEC_NOT_EXECUTABLE);
	else
		found = report_add(c->rep, SKILL_F_EXEC_BIT, f->path, remedy,
				   "it is %s and not executable", what);
	if (!c->opt->fix || !found)
		return;
	r = fix_execute_bit(c, f);
	if (r == 0) {
		f->st.st_mode |= 0111;
		report_fixed(c->rep, found);
	}
}

/* ------------------------------------------------------------------ interpreters */

struct words {
	char *word[8];
	unsigned n;
};

static void divide(char *line, struct words *w)
{
	char *save = NULL;

	for (char *p = strtok_r(line, " \t", &save); p && w->n < ARRAY_SIZE(w->word);
	     p = strtok_r(NULL, " \t", &save))
		w->word[w->n++] = p;
}

/* The program that env(1) starts: the first word that is neither an option nor NAME=VALUE. */
static const char *started_by_env(const struct words *w)
{
	const char *slash = w->n ? strrchr(w->word[0], '/') : NULL;

	if (!slash || strcmp(slash, "/env") != 0)
		return NULL;
	for (unsigned i = 1; i < w->n; i++)
		if (*w->word[i] != '-' && !strchr(w->word[i], '='))
			return w->word[i];
	return NULL;
}

static void check_interpreter(struct skill_check *c, const struct skill_file *f)
{
	char line[SHEBANG_MAX + 1], real[PATH_MAX], path[PATH_MAX];
	struct skill_finding *found = NULL;
	struct words w = { .n = 0 };
	const char *by_env;
	struct stat st;

	snprintf(line, sizeof(line), "%s", f->shebang);
	divide(line, &w);
	if (!w.n)
		return;
	if (*w.word[0] == '/')
		snprintf(path, sizeof(path), "%s", w.word[0]);
	else /* counts from where the script is started */
		snprintf(path, sizeof(path), "%s/%s", c->opt->inside, w.word[0]);
	by_env = started_by_env(&w);
	if (view_find(c->view, path, real, &st) < 0 || !S_ISREG(st.st_mode))
		found = report_add(c->rep, SKILL_F_INTERPRETER, f->path,
				   "name one that the image has, or use an image that has it",
				   EXEC_NO_INTERPRETER, w.word[0]);
	else if (by_env && !strchr(by_env, '/') && !check_in_path(c, by_env))
		found = report_add(c->rep, SKILL_F_INTERPRETER, f->path,
				   "name one that the image has, or use an image that has it",
				   "env looks for its interpreter '%s', which is not in the "
				   "image's PATH",
				   by_env);
	if (!file_is_executable(f)) /* then it is started some other way, if at all */
		report_lower(c->rep, found);
}

static void check_script(struct skill_check *c, struct skill_file *f)
{
	struct skill_finding *found;

	if (f->is_crlf) {
		found = report_add(c->rep, SKILL_F_CRLF, f->path,
				   "convert it: `nsbox skill check --fix` does", EXEC_CRLF);
		if (!file_is_executable(f))
			report_lower(c->rep, found);
		if (c->opt->fix && found && fix_line_ends(c, f) == 0)
			report_fixed(c->rep, found);
	}
	check_interpreter(c, f);
}

void check_starts(struct skill_check *c)
{
	for (size_t i = 0; i < c->tree.n; i++) {
		struct skill_file *f = &c->tree.file[i];
		bool starts = f->content == CONTENT_SCRIPT ||
			      (f->content == CONTENT_ELF && elf_is_program(f->elf));

		if (starts && !file_is_executable(f))
			lost_bit(c, f);
		else if (f->is_entry && !file_is_executable(f))
			report_add(c->rep, SKILL_F_ENTRY_MODE, f->path,
				   "begin it with a '#!' line and set its execute bit, or start it "
				   "through its interpreter",
				   EXEC_NOT_EXECUTABLE);
		if (f->content == CONTENT_SCRIPT)
			check_script(c, f);
	}
}
