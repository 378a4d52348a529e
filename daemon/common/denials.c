/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/common/denials.h"

#include <json-c/json.h>

#include "daemon/common/text.h"
#include "policy/denied.h"

static void put(struct json_object *o, const char *key, const char *s)
{
	json_object_object_add(o, key, s && *s ? json_object_new_string(s) : NULL);
}

static struct json_object *call_json(const struct nsbox_denied_call *d)
{
	struct json_object *o = json_object_new_object();
	struct denied_words w;

	denied_describe(d, &w);
	put(o, "layer", "seccomp");
	put(o, "what", "call");
	put(o, "name", w.name);
	put(o, "arguments", w.arguments);
	put(o, "error", w.errnum);
	put(o, "why", w.note);
	put(o, "pointer", w.pointer);
	if (w.pointer)
		json_object_object_add(o, "value",
				       w.value ? json_tokener_parse(w.value)
					       : json_object_new_string(w.name));
	json_object_object_add(o, "times", json_object_new_uint64(d->times));
	return o;
}

/* Refusals that there was no room to tell apart. */
static struct json_object *rest_json(uint64_t times)
{
	struct json_object *o = json_object_new_object();

	put(o, "layer", "seccomp");
	put(o, "what", "call");
	put(o, "name", NULL);
	put(o, "why", "others, not told apart");
	put(o, "pointer", NULL);
	json_object_object_add(o, "times", json_object_new_uint64(times));
	return o;
}

struct json_object *denials_json(const struct egress_log *network, const struct nsbox_result *r)
{
	struct json_object *list = egress_log_denials(network);

	for (uint32_t i = 0; i < r->denied_calls && i < NSBOX_DENIED_MAX; i++)
		json_object_array_add(list, call_json(&r->denied[i]));
	if (r->denied_untold)
		json_object_array_add(list, rest_json(r->denied_untold));
	return list;
}
