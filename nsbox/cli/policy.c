/* SPDX-License-Identifier: Apache-2.0 */
/* `nsbox policy`: the table of its commands, and what they share. */
#include "nsbox/cli/policy.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "nsbox/util.h"

#define MANIFEST_MAX (256u << 10)
#define OPERANDS_MAX 8

static const struct command verbs[] = {
	{ "lint", policy_cmd_lint, "check manifests: errors, and what is wider than needed" },
	{ "explain", policy_cmd_explain, "what a manifest allows; --why: would this act succeed" },
	{ "diff", policy_cmd_diff, "what a second manifest allows more, and what less" },
	{ "prove", policy_cmd_prove, "walk every way through the filters and hold them to rules" },
	{ "compile", policy_cmd_compile, "write a manifest's plan to a file" },
	{ "show", policy_cmd_show, "everything in a plan, by name" },
	{ "import", policy_cmd_import, "a Docker or OCI seccomp profile as operator's input" },
	{ "fields", policy_cmd_fields, "every field of skill.json" },
	{ NULL, NULL, NULL },
};

int cmd_policy(int argc, char **argv)
{
	return cli_verbs(
		argc, argv, "policy", verbs,
		"\nExit status: 0; 1 where a check found something; 125 where nsbox itself "
		"failed.\n");
}

/* ------------------------------------------------------------------ options */

static int set_json(void *ctx, const char *v)
{
	((struct policy_options *)ctx)->json = true;
	return 0;
}

static int set_profile(void *ctx, const char *v)
{
	((struct policy_options *)ctx)->profile = v;
	return 0;
}

static int set_ceiling(void *ctx, const char *v)
{
	((struct policy_options *)ctx)->ceiling = v;
	return 0;
}

static int set_function(void *ctx, const char *v)
{
	((struct policy_options *)ctx)->function = true;
	return 0;
}

const struct option_row policy_rows_common[] = {
	{ "json", 'j', NULL, "print JSON", set_json },
	{ "profile", 'p', "NAME", "instead of a file: this profile as it is", set_profile },
	{ "ceiling", 'c', "FILE", "the operator's limits, JSON", set_ceiling },
	{ "function", 'f', NULL, "the run of a Python function, not of a command", set_function },
	{ NULL, 0, NULL, NULL, NULL },
};

int policy_options(int argc, char **argv, const char *usage_text, const struct option_row *own,
		   struct policy_options *o, unsigned min, unsigned max, const char **ret,
		   unsigned *ret_n)
{
	struct option_row rows[24];
	unsigned n = 0, operands = 0;

	for (const struct option_row *r = policy_rows_common; r->name; r++)
		rows[n++] = *r;
	for (; own && own->name && n < ARRAY_SIZE(rows) - 1; own++)
		rows[n++] = *own;
	rows[n] = (struct option_row){ NULL, 0, NULL, NULL, NULL };
	while (argc > 0) {
		int r = cli_options(argc, argv, usage_text, rows, o);

		if (r >= 0)
			return r;
		if (optind >= argc)
			break;
		if (operands == max)
			return cli_usage("'%s' is one operand too many; usage: %s", argv[optind],
					 usage_text);
		ret[operands++] = argv[optind];
		/* What is behind the operand is read as if it stood alone. */
		argv[optind] = argv[0];
		argc -= optind;
		argv += optind;
	}
	*ret_n = operands;
	if (operands < min && !o->profile)
		return cli_usage("usage: %s", usage_text);
	return -1;
}

enum nsbox_report policy_form(const struct policy_options *o)
{
	return o->json ? NSBOX_REPORT_JSON : NSBOX_REPORT_TEXT;
}

int policy_prepare(struct policy_options *o)
{
	struct nsbox_error err = { 0 };
	auto_free char *text = NULL;
	size_t len;
	int r = nsbox_host_probe(&o->host, &err);

	if (r == 0 && o->ceiling) {
		r = cli_read_file(o->ceiling, MANIFEST_MAX, &text, &len, &err);
		if (r == 0) {
			r = nsbox_ceiling_parse(text, len, &o->limits, &err);
			if (r < 0)
				nsbox_error_prefix(&err, "%s", o->ceiling);
		}
		o->has_limits = true;
	}
	return r < 0 ? cli_error(&err) : 0;
}

struct nsbox_resolve_options policy_resolve_options(const struct policy_options *o)
{
	return (struct nsbox_resolve_options){
		.host = &o->host,
		.ceiling = o->has_limits ? &o->limits : NULL,
		.python_function = o->function,
		.skill_dir = o->skill,
		.as_operator = true,
	};
}

/* ------------------------------------------------------------------ manifests */

static int profile_text(const char *profile, char **ret, size_t *ret_len, struct nsbox_error *err)
{
	if (strpbrk(profile, "\"\\"))
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "there is no profile '%s'", profile);
	if (asprintf(ret, "{\"manifestVersion\":1,\"profile\":\"%s\"}", profile) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "name a profile");
	*ret_len = strlen(*ret);
	return 0;
}

int policy_read(const struct policy_options *o, const char *path, char **ret, size_t *ret_len,
		struct nsbox_error *err)
{
	char file[4096];
	struct stat st;

	*ret = NULL;
	*ret_len = 0;
	if (!path)
		return profile_text(o->profile, ret, ret_len, err);
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		nsbox_format(file, sizeof(file), "%s/skill.json", path);
		if (access(file, F_OK) < 0 && errno == ENOENT)
			return 0;
		path = file;
	}
	return cli_read_file(path, MANIFEST_MAX, ret, ret_len, err);
}

int policy_make(const struct policy_options *o, const char *path, struct nsbox_policy **ret,
		struct nsbox_error *err)
{
	const struct nsbox_resolve_options ro = policy_resolve_options(o);
	struct nsbox_manifest *m = NULL;
	auto_free char *text = NULL;
	size_t len;
	int r = policy_read(o, path, &text, &len, err);

	if (r < 0)
		return r;
	r = text ? nsbox_manifest_parse(text, len, &m, err) : nsbox_manifest_default(&m, err);
	if (r == 0)
		r = nsbox_policy_resolve(m, &ro, ret, err);
	nsbox_manifest_free(m);
	if (r < 0 && path)
		nsbox_error_prefix(err, "%s", path);
	return r;
}

int policy_print(char *text, int status)
{
	int failed = fputs(text, stdout) < 0 || fflush(stdout) != 0;

	free(text);
	return failed ? EXIT_NSBOX : status;
}
