/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `nsbox skill check`: the dependency doctor. The manifest is read and resolved as a run would do it,
 * then the directory is looked at against the image; nothing of it is run.
 */
#include <errno.h>
#include <json-c/json.h>
#include <nsbox/host.h>
#include <nsbox/image.h>
#include <string.h>

#include "nsbox/cli/run.h"
#include "nsbox/cli/skill.h"
#include "nsbox/exec_text.h"
#include "nsbox/util.h"
#include "overlay/root.h"

#define MANIFEST_MAX (256u << 10)

struct check {
	const char *image, *dir;
	bool json, fix, list;
	int dir_fd;
	char inside[128];
	struct nsbox_host host;
	struct nsbox_manifest *manifest;
	struct nsbox_policy *policy;
	struct nsbox_root *root;
	bool has_manifest;
	struct skill_report rep;
};

/* ------------------------------------------------------------------ options */

static int set_image(void *ctx, const char *v)
{
	((struct check *)ctx)->image = v;
	return 0;
}

static int set_json(void *ctx, const char *v)
{
	((struct check *)ctx)->json = true;
	return 0;
}

static int set_fix(void *ctx, const char *v)
{
	((struct check *)ctx)->fix = true;
	return 0;
}

static int set_list(void *ctx, const char *v)
{
	((struct check *)ctx)->list = true;
	return 0;
}

static const struct option_row rows[] = {
	{ "image", 'i', "NAME", "look for loaders and libraries there (default: host)", set_image },
	{ "json", 'j', NULL, "the findings as JSON", set_json },
	{ "fix", 'F', NULL, "set lost execute bits, convert CRLF line ends of scripts", set_fix },
	{ "list", 'l', NULL, "what can be found, and nothing else", set_list },
	{ NULL, 0, NULL, NULL, NULL },
};

static int print_list(void)
{
	for (int i = 0; i < SKILL_F_MAX; i++)
		printf("%-19s %-8s %s\n", skill_finding_name(i),
		       skill_severity_name(skill_finding_severity(i)), skill_finding_text(i));
	return 0;
}

/* ------------------------------------------------------------------ the manifest */

static int refused(struct check *c, struct nsbox_error *why)
{
	bool platform = !strncmp(why->msg, "/platforms", 10);

	if (why->code == NSBOX_E_NOMEM)
		return -ENOMEM;
	report_add(&c->rep, platform ? SKILL_F_PLATFORM : SKILL_F_MANIFEST, "skill.json",
		   platform
			   ? "run it on such a machine, or bring programs for this one and name it "
			     "under platforms"
			   : NULL,
		   "%s", why->msg);
	return 0;
}

static int read_manifest(struct check *c, struct nsbox_error *err)
{
	auto_free char *text = NULL;
	size_t len = 0;
	int r = skill_read(c->dir_fd, "skill.json", MANIFEST_MAX, &text, &len, err);

	if (r == -ENOENT)
		return nsbox_manifest_default(&c->manifest, err);
	c->has_manifest = true;
	if (r == 0)
		r = nsbox_manifest_parse(text, len, &c->manifest, err);
	return r < 0 ? refused(c, err) : 0;
}

static int make_policy(struct check *c, struct nsbox_error *err)
{
	struct nsbox_resolve_options opt = { .host = &c->host,
					     .skill_dir = c->inside,
					     .as_operator = true };
	int r = nsbox_host_probe(&c->host, err);

	if (r == 0)
		r = read_manifest(c, err);
	if (r < 0)
		return r;
	if (!c->manifest) {
		nsbox_format(c->inside, sizeof(c->inside), "/skills/skill");
		return 0;
	}
	run_name_skill(c->manifest, c->dir, c->inside, sizeof(c->inside));
	r = nsbox_policy_resolve(c->manifest, &opt, &c->policy, err);
	return r < 0 ? refused(c, err) : 0;
}

static int look(struct check *c, struct nsbox_error *err)
{
	struct skill_check_options opt = { .dir_fd = c->dir_fd,
					   .inside = c->inside,
					   .fix = c->fix };
	int r = make_policy(c, err);

	if (r == 0)
		r = nsbox_root_prepare(NULL,
				       c->image	   ? c->image
				       : c->policy ? nsbox_policy_image(c->policy)
						   : NULL,
				       &c->root, err);
	if (r < 0)
		return r;
	opt.manifest = c->manifest;
	opt.policy = c->policy;
	opt.has_manifest = c->has_manifest;
	opt.root = nsbox_root_blob(c->root);
	return skill_check(&opt, &c->rep, err);
}

/* ------------------------------------------------------------------ telling */

static void add_text(struct json_object *o, const char *key, const char *s)
{
	json_object_object_add(o, key, s ? json_object_new_string(s) : NULL);
}

static struct json_object *finding_json(const struct skill_finding *f)
{
	struct json_object *o = json_object_new_object();

	add_text(o, "id", skill_finding_name(f->id));
	add_text(o, "severity", skill_severity_name(f->severity));
	add_text(o, "path", f->path);
	add_text(o, "message", f->message);
	add_text(o, "remedy", f->remedy);
	json_object_object_add(o, "fixed", json_object_new_boolean(f->fixed));
	return o;
}

static void print_json(const struct check *c)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	for (size_t i = 0; i < c->rep.n; i++)
		json_object_array_add(list, finding_json(&c->rep.list[i]));
	add_text(o, "image", nsbox_root_name(c->root));
	add_text(o, "machine", c->host.machine);
	add_text(o, "manifest", c->has_manifest ? "skill.json" : "default");
	json_object_object_add(o, "errors", json_object_new_int64((int64_t)c->rep.errors));
	json_object_object_add(o, "warnings", json_object_new_int64((int64_t)c->rep.warnings));
	json_object_object_add(o, "fixed", json_object_new_int64((int64_t)c->rep.fixed));
	json_object_object_add(o, "leftOut", json_object_new_int64((int64_t)c->rep.left_out));
	json_object_object_add(o, "findings", list);
	printf("%s\n", json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
								 JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
}

static void print_summary(const struct check *c)
{
	const struct skill_report *r = &c->rep;

	if (!r->errors && !r->warnings && !r->fixed)
		printf("nothing found\n");
	else
		printf("%zu error%s, %zu warning%s, %zu fixed\n", r->errors,
		       r->errors == 1 ? "" : "s", r->warnings, r->warnings == 1 ? "" : "s",
		       r->fixed);
}

int skill_cmd_check(int argc, char **argv)
{
	struct check c = { .dir_fd = -1 };
	struct nsbox_error err = { 0 };
	char name[] = "nsbox skill check";
	int r;

	argv[0] = name;
	r = skill_options(argc, argv, "nsbox skill check [OPTION...] DIR", rows, &c, &c.dir);
	if (r >= 0)
		return r;
	if (c.list)
		return print_list();
	c.dir_fd = skill_open_dir(c.dir);
	if (c.dir_fd < 0)
		return EXIT_NSBOX;
	r = look(&c, &err);
	if (r < 0) {
		r = cli_error(&err);
	} else {
		if (c.json) {
			print_json(&c);
		} else {
			skill_print(stdout, &c.rep);
			print_summary(&c);
		}
		r = c.rep.errors ? 1 : 0;
	}
	report_done(&c.rep);
	nsbox_root_free(c.root);
	nsbox_policy_free(c.policy);
	nsbox_manifest_free(c.manifest);
	close_fd(&c.dir_fd);
	return r;
}
