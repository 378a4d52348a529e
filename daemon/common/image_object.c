/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/common/image_object.h"

#include <json-c/json.h>

#include "nsbox/util.h"

static void add_text(struct json_object *o, const char *key, const char *v)
{
	if (v && *v)
		json_object_object_add(o, key, json_object_new_string(v));
}

static void add_list(struct json_object *o, const char *key, const struct strings *s)
{
	struct json_object *a = json_object_new_array();

	for (size_t i = 0; i < s->count; i++)
		json_object_array_add(a, json_object_new_string(s->item[i]));
	json_object_object_add(o, key, a);
}

static void add_layers(struct json_object *o, const struct image_index *x)
{
	struct json_object *a = json_object_new_array();

	for (size_t i = 0; i < x->layers; i++) {
		struct json_object *l = json_object_new_object();
		char digest[DIGEST_TEXT + 8];

		nsbox_format(digest, sizeof(digest), "sha256:%s", x->layer[i].digest);
		add_text(l, "digest", digest);
		json_object_object_add(l, "bytes",
				       json_object_new_int64((int64_t)x->layer[i].bytes));
		json_object_array_add(a, l);
	}
	json_object_object_add(o, "layers", a);
}

struct json_object *image_object(const char *name, const char *id, const struct image_index *x,
				 bool whole)
{
	struct json_object *o = json_object_new_object();

	add_text(o, "name", name);
	add_text(o, "id", id);
	add_text(o, "digest", x->digest);
	add_text(o, "source", x->source);
	add_text(o, "platform", x->platform);
	json_object_object_add(o, "bytes", json_object_new_int64((int64_t)x->bytes));
	json_object_object_add(o, "files", json_object_new_int64((int64_t)x->entries));
	add_layers(o, x);
	if (!whole)
		return o;
	add_list(o, "env", &x->env);
	add_list(o, "entrypoint", &x->entrypoint);
	add_list(o, "cmd", &x->cmd);
	add_text(o, "workingDir", x->workdir);
	add_text(o, "user", x->user);
	return o;
}
