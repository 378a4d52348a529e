/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A first skill.json: what SKILL.md and the files say for certain, and guesses at the rest that an
 * author can see and correct. Nothing is granted that a skill without a manifest would not have.
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/exec_text.h"
#include "nsbox/util.h"
#include "policy/skill/check.h"
#include "policy/skill/frontmatter.h"
#include "policy/skill/text.h"
#include "policy/skill/tree.h"

#define ENTRIES_MAX  32
#define DOCUMENT_MAX (4u << 20)
#define SOURCE_MAX   (256u << 10)

struct init {
	struct skill_tree tree;
	struct frontmatter doc;
	struct json_object *root, *entries, *executable;
	char *document; /* SKILL.md, or NULL */
	size_t document_len;
	bool has_out; /* something writes to out/ */
};

static struct json_object *str(const char *s)
{
	return json_object_new_string(s);
}

static void add(struct json_object *o, const char *key, struct json_object *v)
{
	json_object_object_add(o, key, v);
}

/* ------------------------------------------------------------------ names */

/* What a name or id may hold: lower-case letters, digits, '-', '_', '.'; it begins with the first two. */
static void make_name(const char *from, size_t len, char *ret, size_t size)
{
	size_t at = 0;

	for (size_t i = 0; i < len && at + 1 < size; i++) {
		char c = from[i];

		if (c >= 'A' && c <= 'Z')
			c = (char)(c + 32);
		if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
		    (at && (c == '_' || c == '.')))
			ret[at++] = c;
		else if (at && ret[at - 1] != '-')
			ret[at++] = '-';
	}
	while (at && (ret[at - 1] == '-' || ret[at - 1] == '.'))
		at--;
	ret[at] = '\0';
}

/* Words with single spaces: a block of SKILL.md becomes one line of JSON. */
static struct json_object *one_line(const char *s)
{
	auto_free char *buf = malloc(strlen(s) + 1);
	size_t at = 0;

	if (!buf)
		return NULL;
	for (; *s; s++) {
		bool blank = *s == ' ' || *s == '\n' || *s == '\t' || *s == '\r';

		if (!blank)
			buf[at++] = *s;
		else if (at && buf[at - 1] != ' ')
			buf[at++] = ' ';
	}
	while (at && buf[at - 1] == ' ')
		at--;
	buf[at] = '\0';
	return str(buf);
}

static void identity(struct init *in, const char *dir_name)
{
	const char *from = in->doc.name.text ? in->doc.name.text : dir_name;
	char name[65];

	make_name(from, strlen(from), name, sizeof(name));
	add(in->root, "manifestVersion", json_object_new_int(1));
	/* A name that SKILL.md has and a manifest cannot have is left to the author. */
	if (*name && (!in->doc.name.text || !strcmp(name, in->doc.name.text)))
		add(in->root, "name", str(name));
	add(in->root, "version", str("0.1.0"));
	if (in->doc.description.text && strlen(in->doc.description.text) <= 4096)
		add(in->root, "description", one_line(in->doc.description.text));
	if (in->doc.license.text && strlen(in->doc.license.text) <= 256)
		add(in->root, "license", one_line(in->doc.license.text));
	add(in->root, "profile", str("standard"));
}

/* ------------------------------------------------------------------ entry points */

static const struct {
	const char *suffix, *program;
} interpreters[] = {
	{ ".py", "python3" }, { ".sh", "sh" },	 { ".bash", "bash" }, { ".js", "node" },
	{ ".mjs", "node" },   { ".pl", "perl" }, { ".rb", "ruby" },
};

static bool ends_in(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n > m && !strcmp(s + n - m, end);
}

static const char *interpreter_of(const char *path)
{
	for (unsigned i = 0; i < ARRAY_SIZE(interpreters); i++)
		if (ends_in(path, interpreters[i].suffix))
			return interpreters[i].program;
	return NULL;
}

static const char *base_of(const struct skill_file *f)
{
	const char *slash = strrchr(f->path, '/');

	return slash ? slash + 1 : f->path;
}

/* At the top, in scripts/ or in bin/; no module, no test, nothing hidden. */
static bool is_candidate(const struct skill_file *f)
{
	const char *slash = strrchr(f->path, '/');
	const char *base = base_of(f);
	size_t dir = slash ? (size_t)(slash - f->path) : 0;
	bool place = !dir || (dir == 7 && !memcmp(f->path, "scripts", 7)) ||
		     (dir == 3 && !memcmp(f->path, "bin", 3));

	if (!S_ISREG(f->st.st_mode) || !place || !text_is_utf8(f->path, strlen(f->path)))
		return false;
	if (*base == '_' || *base == '.' || *base == '-' || !strncmp(base, "test_", 5) ||
	    !strncmp(base, "setup.", 6) || strstr(base, "_test.") || ends_in(base, "conftest.py"))
		return false;
	if (f->content == CONTENT_ELF)
		return elf_is_program(f->elf) && f->elf->machine == EXEC_OWN_MACHINE &&
		       f->elf->is64;
	return f->content == CONTENT_SCRIPT || interpreter_of(base);
}

/* A file that starts itself, or the interpreter that its name asks for. */
static struct json_object *command_of(struct init *in, struct skill_file *f)
{
	bool starts = f->content == CONTENT_ELF || (f->content == CONTENT_SCRIPT && !f->is_crlf);
	const char *program = interpreter_of(f->path);
	struct json_object *list = json_object_new_array();
	char path[PATH_MAX + 2];

	if (program && (!starts || !(f->st.st_mode & 0111))) {
		json_object_array_add(list, str(program));
		json_object_array_add(list, str(f->path));
		return list;
	}
	/* A name alone would be looked up in PATH. */
	snprintf(path, sizeof(path), "%s%s", strchr(f->path, '/') ? "" : "./", f->path);
	json_object_array_add(list, str(path));
	f->is_entry = true;
	return list;
}

/* The higher, the more likely it is what the skill is for. */
static size_t main_score(const struct init *in, const struct skill_file *f)
{
	static const char *const usual[] = { "main.", "run.", "index." };
	const char *at = in->document
				 ? memmem(in->document, in->document_len, f->path, strlen(f->path))
				 : NULL;

	for (unsigned i = 0; i < ARRAY_SIZE(usual); i++)
		if (!strncmp(base_of(f), usual[i], strlen(usual[i])))
			return SIZE_MAX - i;
	/* SKILL.md speaks of it first. */
	return at ? in->document_len - (size_t)(at - in->document) : 0;
}

static const struct skill_file *choose_main(const struct init *in)
{
	const struct skill_file *best = NULL;
	size_t n = 0, score = 0;

	for (size_t i = 0; i < in->tree.n; i++) {
		const struct skill_file *f = &in->tree.file[i];

		if (!is_candidate(f))
			continue;
		if (!n++ || main_score(in, f) > score) {
			best = f;
			score = main_score(in, f);
		}
	}
	return n == 1 || score ? best : NULL;
}

static void add_entry(struct init *in, struct skill_file *f, bool is_main)
{
	const char *base = base_of(f);
	struct json_object *e;
	char id[65];

	make_name(is_main ? "main" : base, is_main ? 4 : strcspn(base, "."), id, sizeof(id));
	if (!*id || json_object_object_get_ex(in->entries, id, NULL))
		return;
	e = json_object_new_object();
	add(e, "command", command_of(in, f));
	add(in->entries, id, e);
}

static void entries(struct init *in)
{
	const struct skill_file *first = choose_main(in);

	for (size_t i = 0; i < in->tree.n; i++)
		if (&in->tree.file[i] == first)
			add_entry(in, &in->tree.file[i], true);
	for (size_t i = 0; i < in->tree.n; i++)
		if (&in->tree.file[i] != first && is_candidate(&in->tree.file[i]) &&
		    json_object_object_length(in->entries) < ENTRIES_MAX)
			add_entry(in, &in->tree.file[i], false);
	if (json_object_object_length(in->entries))
		add(in->root, "entrypoints", json_object_get(in->entries));
}

/* ------------------------------------------------------------------ the rest */

static void lost_bits(struct init *in)
{
	struct json_object *files = json_object_new_object();

	for (size_t i = 0; i < in->tree.n; i++) {
		const struct skill_file *f = &in->tree.file[i];
		bool program = f->content == CONTENT_ELF && elf_is_program(f->elf);
		/* Python modules often have a '#!' line and no use for it. */
		bool script = f->content == CONTENT_SCRIPT && !ends_in(f->path, ".py");

		if ((program || script || f->is_entry) && !(f->st.st_mode & 0111) &&
		    text_is_utf8(f->path, strlen(f->path)) &&
		    json_object_array_length(in->executable) < 1000)
			json_object_array_add(in->executable, str(f->path));
	}
	if (json_object_array_length(in->executable)) {
		add(files, "executable", json_object_get(in->executable));
		add(in->root, "files", json_object_get(files));
	}
	json_object_put(files);
}

static bool listed(struct json_object *list, const char *s)
{
	for (size_t i = 0; i < json_object_array_length(list); i++)
		if (!strcmp(json_object_get_string(json_object_array_get_idx(list, i)), s))
			return true;
	return false;
}

static void platforms(struct init *in)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < in->tree.n; i++) {
		const struct skill_file *f = &in->tree.file[i];
		const char *p = f->content == CONTENT_ELF
					? check_platform_of(f->elf->machine, f->elf->is64)
					: NULL;

		if (p && !listed(list, p))
			json_object_array_add(list, str(p));
	}
	if (json_object_array_length(list))
		add(in->root, "platforms", list);
	else
		json_object_put(list);
}

/* "out/" as a word of its own. */
static bool mentions_out(const char *text, size_t len)
{
	const char *end = text + len;

	for (const char *p = text; (p = memmem(p, (size_t)(end - p), "out/", 4)); p += 4)
		if (p == text || !strchr("abcdefghijklmnopqrstuvwxyz0123456789_-/.", p[-1] | 32))
			return true;
	return false;
}

static void look_for_out(struct init *in)
{
	for (size_t i = 0; i < in->tree.n && !in->has_out; i++) {
		const struct skill_file *f = &in->tree.file[i];
		bool text = f->content == CONTENT_SCRIPT || interpreter_of(f->path) ||
			    !strcmp(f->path, "SKILL.md");
		auto_free char *s = NULL;
		struct nsbox_error ignored;
		size_t len = 0;

		if (text && S_ISREG(f->st.st_mode) &&
		    skill_read(in->tree.dir_fd, f->path, SOURCE_MAX, &s, &len, &ignored) == 0)
			in->has_out = mentions_out(s, len);
	}
}

static void outputs(struct init *in)
{
	struct json_object *fs = json_object_new_object();

	add(fs, "skill", str(in->has_out ? "overlay" : "ro"));
	add(in->root, "filesystem", fs);
	if (in->has_out) {
		struct json_object *list = json_object_new_array(), *o = json_object_new_object();

		add(o, "glob", str("out/**"));
		json_object_array_add(list, o);
		add(in->root, "outputs", list);
	}
}

static int read_document(struct init *in, struct nsbox_error *err)
{
	struct nsbox_error why = { 0 };
	int r = skill_read(in->tree.dir_fd, "SKILL.md", DOCUMENT_MAX, &in->document,
			   &in->document_len, &why);

	if (r == 0)
		r = frontmatter_read(in->document, in->document_len, &in->doc, &why);
	if (r == 0 || r == -ENOENT)
		return 0;
	*err = why;
	nsbox_error_prefix(err, "SKILL.md");
	return r;
}

static int write_out(struct init *in, char **ret, struct nsbox_error *err)
{
	const char *text = json_object_to_json_string_ext(
		in->root,
		JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE);
	struct nsbox_manifest *m = NULL;
	int r;

	if (!text || asprintf(ret, "%s\n", text) < 0) {
		*ret = NULL;
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "write a manifest");
	}
	r = nsbox_manifest_parse(*ret, strlen(*ret), &m, err);
	nsbox_manifest_free(m);
	if (r < 0)
		free_ptr(ret);
	return r;
}

int skill_init(int dir_fd, const char *dir_name, char **ret, struct nsbox_error *err)
{
	struct nsbox_error own;
	struct skill_report rep = { 0 };
	struct init in = { .root = json_object_new_object(),
			   .entries = json_object_new_object(),
			   .executable = json_object_new_array() };
	int r;

	err = err ? err : &own;
	r = tree_read(dir_fd, &in.tree, &rep,
		      err); /* what is wrong with them is for check to say */
	if (r == 0)
		r = read_document(&in, err);
	if (r == 0) {
		identity(&in, dir_name);
		platforms(&in);
		entries(&in);
		lost_bits(&in);
		look_for_out(&in);
		outputs(&in);
		r = write_out(&in, ret, err);
	}
	report_done(&rep);
	frontmatter_done(&in.doc);
	free(in.document);
	tree_done(&in.tree);
	json_object_put(in.entries);
	json_object_put(in.executable);
	json_object_put(in.root);
	return r;
}
