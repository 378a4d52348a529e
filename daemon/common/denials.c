/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/common/denials.h"

#include <json-c/json.h>

#include "daemon/common/text.h"
#include "nsbox/util.h"
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

/* What the kernel counts, or says of a death. */
static void add_limits(struct json_object *list, const struct nsbox_result *r)
{
	const struct {
		int layer;
		const char *what, *pointer;
		uint64_t times;
	} met[] = {
		{ NSBOX_LAYER_SECCOMP, "a system call of a foreign architecture", NULL,
		  r->cause == NSBOX_CAUSE_POLICY }, /* nothing allows it */
		{ NSBOX_LAYER_CGROUP, "new processes and threads", "/resources/pids",
		  r->pids_limit_hits },
		{ NSBOX_LAYER_CGROUP, "memory: processes were killed", "/resources/memory",
		  r->oom_kills },
	};

	for (size_t i = 0; i < ARRAY_SIZE(met); i++) {
		struct json_object *o = met[i].times ? json_object_new_object() : NULL;

		if (!o)
			continue;
		put(o, "layer", nsbox_layer_name(met[i].layer));
		put(o, "what", met[i].what);
		put(o, "pointer", met[i].pointer);
		json_object_object_add(o, "times", json_object_new_uint64(met[i].times));
		json_object_array_add(list, o);
	}
}

struct json_object *denials_json(const struct egress_log *network, const struct nsbox_result *r,
				 const struct trace_file *trace)
{
	struct json_object *list = egress_log_denials(network);

	for (uint32_t i = 0; i < r->denied_calls && i < NSBOX_DENIED_MAX; i++)
		json_object_array_add(list, call_json(&r->denied[i]));
	if (r->denied_untold)
		json_object_array_add(list, rest_json(r->denied_untold));
	add_limits(list, r);
	trace_file_tell(trace, list);
	return list;
}

const char *denials_lack(const struct nsbox_result *r)
{
	bool filtered = r->enforced & NSBOX_LAYER_BIT(NSBOX_LAYER_SECCOMP);

	return filtered && r->start_us && !r->observed
		       ? "refused system calls were not counted: another observer is there, a "
			 "container's perhaps"
		       : NULL;
}
