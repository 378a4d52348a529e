/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warnings. Whether a member has any effect is not looked up but tried: without it the manifest is
 * resolved again, and what comes out is compared.
 */
#include <limits.h>
#include <string.h>

#include "nsbox/util.h"
#include "overlay/root.h"
#include "policy/lint.h"
#include "policy/skill/view.h"

/* ------------------------------------------------------------------ without effect */

/* The canonical form, but for what only says where it came from. NULL: it does not resolve. */
static struct json_object *meaning(const struct lint *l, struct json_object *json)
{
	static const char *const origin[] = { "manifest", "asked", "granted", "refused" };
	const char *text = json_object_to_json_string(json);
	struct nsbox_manifest *m = NULL;
	struct nsbox_policy *p = NULL;
	struct json_object *o = NULL;
	auto_free char *canonical = NULL;

	if (text && nsbox_manifest_parse(text, strlen(text), &m, NULL) == 0 &&
	    nsbox_policy_resolve(m, l->in->resolve, &p, NULL) == 0 &&
	    nsbox_policy_json(p, &canonical, NULL) == 0)
		o = json_tokener_parse(canonical);
	for (size_t i = 0; o && i < ARRAY_SIZE(origin); i++)
		json_object_object_del(o, origin[i]);
	nsbox_policy_free(p);
	nsbox_manifest_free(m);
	return o;
}

static void try_without(struct lint *l, struct json_object *json, struct json_object *whole,
			const char *object, const char *key)
{
	struct json_object *copy = NULL, *without;
	char pointer[128];

	if (json_object_deep_copy(json, &copy, NULL) < 0)
		return;
	json_object_object_del(report_at(copy, object), key);
	without = meaning(l, copy);
	nsbox_format(pointer, sizeof(pointer), "/%s/%s", object, key);
	if (without && json_object_equal(without, whole))
		lint_add(l, false, "noEffect", pointer,
			 "has no effect: it is what holds without it");
	json_object_put(without);
	json_object_put(copy);
}

static void warn_no_effect(struct lint *l, struct json_object *json)
{
	static const char *const objects[] = { "filesystem", "process", "resources",
					       "timeouts",   "require", "network" };
	struct json_object *whole = meaning(l, json);

	for (size_t i = 0; whole && i < ARRAY_SIZE(objects); i++) {
		struct json_object *o = report_at(json, objects[i]);

		if (!json_object_is_type(o, json_type_object))
			continue;
		json_object_object_foreach (o, key, value) {
			(void)value;
			try_without(l, json, whole, objects[i], key);
		}
	}
	json_object_put(whole);
}

/* ------------------------------------------------------------------ too wide */

/* A directory right below the root, or everything that a run may write anyway as one. */
static bool is_wide(const char *path)
{
	return *path == '/' && !strchr(path + 1, '/');
}

static void warn_wide_paths(struct lint *l, struct json_object *json)
{
	static const char *const keys[] = { "read", "write", "exec" };
	struct json_object *fs = report_at(json, "filesystem");

	for (size_t k = 0; k < ARRAY_SIZE(keys); k++) {
		struct json_object *list = report_at(fs, keys[k]);
		size_t n = json_object_is_type(list, json_type_array)
				   ? json_object_array_length(list)
				   : 0;

		for (size_t i = 0; i < n; i++) {
			struct json_object *v = json_object_array_get_idx(list, i);
			const char *path = json_object_is_type(v, json_type_object)
						   ? report_get(v, "path")
						   : json_object_get_string(v);
			char pointer[64];

			nsbox_format(pointer, sizeof(pointer), "/filesystem/%s/%zu", keys[k], i);
			if (is_wide(path))
				lint_add(l, false, "wide", pointer,
					 "\"%s\" is a whole top directory: name what is needed "
					 "below "
					 "it",
					 path);
		}
	}
}

static void warn_network(struct lint *l, struct json_object *json)
{
	struct json_object *network = report_at(json, "network"), *list;
	size_t n;

	if (!strcmp(report_get(network, "mode"), "open"))
		lint_add(l, false, "wide", "/network/mode",
			 "\"open\" reaches every public address: list hosts where they are known");
	list = report_at(network, "allow");
	n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
	for (size_t i = 0; i < n; i++) {
		const char *host = report_get(json_object_array_get_idx(list, i), "host");
		char pointer[64];

		nsbox_format(pointer, sizeof(pointer), "/network/allow/%zu/host", i);
		if (!strncmp(host, "*.", 2) && !strchr(host + 2, '.'))
			lint_add(l, false, "wide", pointer,
				 "\"%s\" covers every name of a top-level domain", host);
	}
}

/* ------------------------------------------------------------------ paths that are nowhere */

static void warn_missing(struct lint *l, struct json_object *json, struct view *view,
			 const char *key, char *const *resolved)
{
	struct json_object *list = report_at(report_at(json, "filesystem"), key);

	for (size_t i = 0; resolved && resolved[i]; i++) {
		char real[PATH_MAX], pointer[64];
		struct stat st;
		size_t at = 0, n = json_object_is_type(list, json_type_array)
					   ? json_object_array_length(list)
					   : 0;

		if (view_find(view, resolved[i], real, &st) != -ENOENT)
			continue;
		/* Lists are sorted when they are resolved: the entry that ends alike is meant. */
		for (; at < n; at++) {
			const char *s = json_object_get_string(json_object_array_get_idx(list, at));
			size_t len = strlen(s), all = strlen(resolved[i]);
			const char *tail = s + strcspn(s, "/");

			if ((*s == '$' && strlen(tail) <= all &&
			     !strcmp(resolved[i] + all - strlen(tail), tail)) ||
			    (len <= all && !strcmp(resolved[i] + all - len, s)))
				break;
		}
		nsbox_format(pointer, sizeof(pointer), "/filesystem/%s/%zu", key, at);
		lint_add(l, false, "missingPath", at < n ? pointer : "/filesystem",
			 "%s is neither in the skill nor in the image: this has no effect unless "
			 "the run makes it",
			 resolved[i]);
	}
}

static int warn_paths(struct lint *l, struct json_object *json, const struct nsbox_policy *p,
		      struct nsbox_error *err)
{
	struct view *view = NULL;
	int r;

	if (!l->in->root)
		return 0;
	r = view_new(nsbox_root_blob(l->in->root), &view, err);
	if (r == 0 && l->in->skill_fd >= 0 && p->skill_dir)
		r = view_add(view, p->skill_dir, l->in->skill_fd, err);
	if (r == 0) {
		warn_missing(l, json, view, "mask", p->mask);
		warn_missing(l, json, view, "readOnly", p->read_only);
	}
	if (view)
		view_free(view);
	return r;
}

/* ------------------------------------------------------------------ all */

int lint_warn(struct lint *l, struct json_object *json, const struct nsbox_policy *p,
	      struct nsbox_error *err)
{
	if (!*report_get(json, "description"))
		lint_add(l, false, "noDescription", NULL,
			 "there is no description: reviewers see nothing of what the skill is for");
	if (!report_at(json, "name"))
		lint_add(l, false, "noName", NULL, "there is no name");
	for (size_t i = 0; i < p->n_grants; i++)
		if (p->grants[i].refused)
			lint_add(l, false, "refused", p->grants[i].pointer,
				 "is optional and refused here: %s", p->grants[i].refused);
	for (size_t i = 0; i < p->n_gaps; i++)
		lint_add(l, false, "unsupported", p->gaps[i].pointer,
			 "%s; no run is possible with it", p->gaps[i].why);
	warn_wide_paths(l, json);
	warn_network(l, json);
	warn_no_effect(l, json);
	return warn_paths(l, json, p, err);
}
