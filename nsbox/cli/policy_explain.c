/* SPDX-License-Identifier: Apache-2.0 */
/* `nsbox policy explain`, `diff`, `prove`: reports of the library, printed. */
#include <json-c/json.h>
#include <nsbox/image.h>
#include <stdlib.h>
#include <string.h>

#include "nsbox/cli/policy.h"
#include "nsbox/util.h"

/* ------------------------------------------------------------------ explain */

static int set_why(void *ctx, const char *v)
{
	((struct policy_options *)ctx)->why = v;
	return 0;
}

static int set_image(void *ctx, const char *v)
{
	((struct policy_options *)ctx)->image = v;
	return 0;
}

static int set_skill(void *ctx, const char *v)
{
	((struct policy_options *)ctx)->skill = v;
	return 0;
}

static const struct option_row explain_rows[] = {
	{ "why", 'w', "QUESTION",
	  "would it succeed: 'open|write|exec PATH', 'connect HOST:PORT', "
	  "'syscall NAME [ARG...]'",
	  set_why },
	{ "image", 'i', "NAME", "look for paths in this image (default: host)", set_image },
	{ "skill-dir", 's', "PATH", "where the skill is inside, e.g. /skills/NAME", set_skill },
	{ NULL, 0, NULL, NULL, NULL },
};

/* Status 0: allowed, 1: refused. */
static int answer(const struct policy_options *o, const char *path)
{
	const struct nsbox_resolve_options ro = policy_resolve_options(o);
	struct nsbox_root *root = NULL;
	struct nsbox_error err = { 0 };
	auto_free char *text = NULL;
	bool allowed = false;
	char *report;
	size_t len;
	int r = policy_read(o, path, &text, &len, &err);

	if (r == 0)
		r = nsbox_root_prepare(NULL, o->image, &root, &err);
	if (r == 0)
		r = nsbox_manifest_why(text, len, &ro, root, o->why, policy_form(o), &report,
				       &allowed, &err);
	nsbox_root_free(root);
	return r < 0 ? cli_error(&err) : policy_print(report, allowed ? 0 : 1);
}

int policy_cmd_explain(int argc, char **argv)
{
	struct policy_options o = { .profile = NULL };
	struct nsbox_policy *p = NULL;
	struct nsbox_error err = { 0 };
	const char *path = NULL;
	unsigned n;
	char *text;
	int r = policy_options(argc, argv,
			       "nsbox policy explain [OPTION...] FILE|DIR [--why QUESTION]\n"
			       "       nsbox policy explain --profile NAME [--why QUESTION]",
			       explain_rows, &o, 1, 1, &path, &n);

	if (r >= 0)
		return r;
	r = policy_prepare(&o);
	if (r)
		return r;
	if (o.why)
		return answer(&o, path);
	r = policy_make(&o, path, &p, &err);
	if (r == 0)
		r = nsbox_policy_explain(p, &o.host, policy_form(&o), &text, &err);
	nsbox_policy_free(p);
	return r < 0 ? cli_error(&err) : policy_print(text, 0);
}

/* ------------------------------------------------------------------ diff */

static int set_fail(void *ctx, const char *v)
{
	((struct policy_options *)ctx)->fail_on_widening = true;
	return 0;
}

static const struct option_row diff_rows[] = {
	{ "fail-on-widening", 'F', NULL, "exit 1 where B allows anything that A does not",
	  set_fail },
	{ NULL, 0, NULL, NULL, NULL },
};

int policy_cmd_diff(int argc, char **argv)
{
	struct policy_options o = { .profile = NULL };
	struct nsbox_policy *p[2] = { NULL, NULL };
	struct nsbox_error err = { 0 };
	const char *paths[2] = { NULL, NULL };
	unsigned n, widened = 0;
	char *text;
	int r = policy_options(argc, argv,
			       "nsbox policy diff [OPTION...] A B\n"
			       "       nsbox policy diff --profile NAME B",
			       diff_rows, &o, 2, 2, paths, &n);

	if (r >= 0)
		return r;
	if (n == 0 || n + (o.profile != NULL) != 2)
		return cli_usage("diff takes two manifests, or --profile and one");
	r = policy_prepare(&o);
	if (r)
		return r;
	r = policy_make(&o, o.profile ? NULL : paths[0], &p[0], &err);
	if (r == 0)
		r = policy_make(&o, paths[n - 1], &p[1], &err);
	if (r == 0)
		r = nsbox_policy_diff(p[0], p[1], policy_form(&o), &text, &widened, &err);
	nsbox_policy_free(p[0]);
	nsbox_policy_free(p[1]);
	if (r < 0)
		return cli_error(&err);
	return policy_print(text, o.fail_on_widening && widened ? 1 : 0);
}

/* ------------------------------------------------------------------ prove */

static int prove_one(const struct policy_options *o, const char *path, struct json_object *all,
		     unsigned *violations)
{
	struct nsbox_policy *p = NULL;
	struct nsbox_error err = { 0 };
	unsigned found = 0;
	char *text;
	int r = policy_make(o, path, &p, &err);

	if (r == 0)
		r = nsbox_policy_prove(p, policy_form(o), &text, &found, &err);
	nsbox_policy_free(p);
	if (r < 0)
		return cli_error(&err);
	*violations += found;
	if (!o->json)
		return policy_print(text, 0);
	json_object_array_add(all, json_tokener_parse(text));
	free(text);
	return 0;
}

int policy_cmd_prove(int argc, char **argv)
{
	static const char *const profiles[] = { "standard", "strict", "network", "build", NULL };
	struct policy_options o = { .profile = NULL };
	struct json_object *all;
	const char *path = NULL;
	unsigned n, violations = 0;
	int r = policy_options(
		argc, argv, "nsbox policy prove [OPTION...] [FILE|DIR]   (default: all profiles)",
		NULL, &o, 0, 1, &path, &n);

	if (r >= 0)
		return r;
	r = policy_prepare(&o);
	if (r)
		return r;
	all = json_object_new_array();
	if (path || o.profile) {
		r = prove_one(&o, path, all, &violations);
	} else {
		for (size_t i = 0; r == 0 && profiles[i]; i++) {
			o.profile = profiles[i];
			r = prove_one(&o, NULL, all, &violations);
		}
	}
	if (r == 0 && o.json)
		printf("%s\n",
		       json_object_to_json_string_ext(all, JSON_C_TO_STRING_PRETTY |
								   JSON_C_TO_STRING_NOSLASHESCAPE));
	else if (r == 0)
		printf("%s: %u violations\n", violations ? "BROKEN" : "proved", violations);
	json_object_put(all);
	return r ? r : violations ? 1 : 0;
}
