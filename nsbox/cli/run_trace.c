/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What would have let a traced run open the files it was refused: each is put as a question to the
 * manifest (nsbox_manifest_why), which tries changes and says which one works.
 */
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "nsbox/cli/run.h"
#include "nsbox/util.h"

#define QUESTIONS_MAX 16 /* each takes some tens of milliseconds */

static const char *text_of(struct json_object *o, const char *key)
{
	return json_object_get_string(json_object_object_get(o, key));
}

static bool is_refused_file(struct json_object *d)
{
	const char *layer = text_of(d, "layer"), *error = text_of(d, "error");

	return layer && error && !strcmp(layer, "files") && strcmp(error, "ENOENT") != 0;
}

static void take_change(struct json_object *denial, const char *answer)
{
	struct json_object *o = json_tokener_parse(answer);
	struct json_object *change = json_object_object_get(o, "change");
	static const char *const keys[] = { "pointer", "op", "value" };

	for (unsigned i = 0; change && i < ARRAY_SIZE(keys); i++) {
		struct json_object *v = json_object_object_get(change, keys[i]);

		json_object_object_add(denial, keys[i], json_object_get(v));
	}
	json_object_put(o);
}

static void ask(const struct run *c, struct json_object *denial)
{
	const struct nsbox_resolve_options ro = {
		.host = &c->host,
		.skill_dir = c->skill_dir[0] ? c->skill_dir : NULL,
		.python_function = c->opt->python,
		.as_operator = true,
	};
	auto_free char *answer = NULL;
	bool allowed;

	/* Without an answer there is no pointer: a hint less, and no error of the run's. */
	if (nsbox_manifest_why(c->manifest_text, c->manifest_text ? strlen(c->manifest_text) : 0,
			       &ro, c->root, text_of(denial, "ask"), NSBOX_REPORT_JSON, &answer,
			       &allowed, NULL) == 0)
		take_change(denial, answer);
}

void run_explain_denials(const struct run *c, struct json_object *list)
{
	unsigned asked = 0;

	for (size_t i = 0; c->opt->trace && i < json_object_array_length(list); i++) {
		struct json_object *d = json_object_array_get_idx(list, i);

		if (is_refused_file(d) && asked++ < QUESTIONS_MAX)
			ask(c, d);
	}
}
