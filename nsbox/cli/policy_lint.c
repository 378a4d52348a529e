/* SPDX-License-Identifier: Apache-2.0 */
/* `nsbox policy lint` and `import`: files in, findings out. */
#include <fcntl.h>
#include <json-c/json.h>
#include <nsbox/image.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "nsbox/cli/policy.h"
#include "nsbox/cli/run.h"
#include "nsbox/util.h"

#define DOCUMENT_MAX (1u << 20)
#define FILES_MAX    64

static int set_image(void *ctx, const char *v)
{
	((struct policy_options *)ctx)->image = v;
	return 0;
}

static const struct option_row lint_rows[] = {
	{ "image", 'i', "NAME", "look for paths in this image (default: host)", set_image },
	{ NULL, 0, NULL, NULL, NULL },
};

/* The skill that a file belongs to: the directory itself, or the one the skill.json is in. */
static void find_skill(const char *path, char *dir, int size)
{
	struct stat st;
	const char *slash = strrchr(path, '/');

	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		nsbox_format(dir, size, "%s", path);
	else if (strcmp(slash ? slash + 1 : path, "skill.json") != 0)
		*dir = '\0';
	else if (slash)
		nsbox_format(dir, size, "%.*s", (int)(slash - path), path);
	else
		nsbox_format(dir, size, ".");
}

static int read_document(const char *dir, char **ret, size_t *len, struct nsbox_error *err)
{
	char path[4096];

	nsbox_format(path, sizeof(path), "%s/SKILL.md", dir);
	if (access(path, F_OK) < 0)
		return 0;
	return cli_read_file(path, DOCUMENT_MAX, ret, len, err);
}

static int lint_one(struct policy_options *o, const struct nsbox_root *root, const char *path,
		    char **report, unsigned *errors, struct nsbox_error *err)
{
	struct nsbox_resolve_options ro;
	struct nsbox_lint in = { .name = path, .resolve = &ro, .root = root, .skill_fd = -1 };
	auto_free char *text = NULL, *document = NULL;
	auto_close int dir_fd = -1;
	char dir[4096], inside[128];
	int r = policy_read(o, path, &text, &in.len, err);

	if (r < 0)
		return r;
	find_skill(path, dir, sizeof(dir));
	if (*dir) {
		struct nsbox_manifest *m = NULL;

		r = read_document(dir, &document, &in.document_len, err);
		if (r < 0)
			return r;
		dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (text)
			nsbox_manifest_parse(text, in.len, &m, NULL);
		else
			nsbox_manifest_default(&m, NULL);
		if (m) {
			run_name_skill(m, dir, inside, sizeof(inside));
			o->skill = inside;
		}
		nsbox_manifest_free(m);
	}
	ro = policy_resolve_options(o);
	in.json = text;
	in.document = document;
	in.skill_fd = dir_fd;
	r = nsbox_manifest_lint(&in, policy_form(o), report, errors, err);
	o->skill = NULL;
	return r;
}

static int lint_all(struct policy_options *o, const char *const *paths, unsigned n,
		    const struct nsbox_root *root, unsigned *total)
{
	struct json_object *all = json_object_new_array();
	struct nsbox_error err = { 0 };
	int r = 0;

	for (unsigned i = 0; r == 0 && i < n; i++) {
		unsigned errors = 0;
		char *text = NULL;

		r = lint_one(o, root, paths[i], &text, &errors, &err);
		if (r < 0)
			break;
		*total += errors;
		if (o->json)
			json_object_array_add(all, json_tokener_parse(text));
		else
			fputs(text, stdout);
		free(text);
	}
	if (r == 0 && o->json)
		printf("%s\n",
		       json_object_to_json_string_ext(all, JSON_C_TO_STRING_PRETTY |
								   JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(all);
	return r < 0 ? cli_error(&err) : 0;
}

int policy_cmd_lint(int argc, char **argv)
{
	struct policy_options o = { .profile = NULL };
	struct nsbox_root *root = NULL;
	struct nsbox_error err = { 0 };
	const char *paths[FILES_MAX];
	unsigned n, errors = 0;
	int r = policy_options(argc, argv, "nsbox policy lint [OPTION...] FILE|DIR...", lint_rows,
			       &o, 1, FILES_MAX, paths, &n);

	if (r >= 0)
		return r;
	if (o.profile)
		return cli_usage("lint is about files; a profile has none");
	r = policy_prepare(&o);
	if (r)
		return r;
	if (nsbox_root_prepare(NULL, o.image, &root, &err) < 0)
		return cli_error(&err);
	r = lint_all(&o, paths, n, root, &errors);
	nsbox_root_free(root);
	if (r == 0 && fflush(stdout) != 0)
		return EXIT_NSBOX;
	return r ? r : errors ? 1 : 0;
}

/* ------------------------------------------------------------------ import */

int policy_cmd_import(int argc, char **argv)
{
	struct policy_options o = { .profile = NULL };
	struct nsbox_error err = { 0 };
	const char *operands[2];
	auto_free char *text = NULL;
	char *report;
	unsigned n;
	size_t len;
	int r = policy_options(argc, argv, "nsbox policy import [--json] docker|oci FILE", NULL, &o,
			       2, 2, operands, &n);

	if (r >= 0)
		return r;
	if (n != 2 || (strcmp(operands[0], "docker") != 0 && strcmp(operands[0], "oci") != 0))
		return cli_usage("import takes 'docker' or 'oci' and a file");
	r = cli_read_file(operands[1], 4u << 20, &text, &len, &err);
	if (r == 0) {
		r = nsbox_seccomp_import(text, len, policy_form(&o), &report, &err);
		if (r < 0)
			nsbox_error_prefix(&err, "%s", operands[1]);
	}
	return r < 0 ? cli_error(&err) : policy_print(report, 0);
}
