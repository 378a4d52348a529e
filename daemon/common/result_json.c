/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/common/result_json.h"

#include <errno.h>
#include <json-c/json.h>
#include <nsbox/gap.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/text.h"
#include "nsbox/util.h"

/* ------------------------------------------------------------------ small pieces */

int json_put(struct json_object *o, const char *key, struct json_object *value)
{
	if (value && json_object_object_add(o, key, value) == 0)
		return 0;
	json_object_put(value);
	return -ENOMEM;
}

int json_put_text(struct json_object *o, const char *key, const char *s)
{
	return json_put(o, key, json_text_new(s, strlen(s)));
}

int json_put_u64(struct json_object *o, const char *key, uint64_t v)
{
	return json_put(o, key, json_object_new_uint64(v));
}

int json_put_null(struct json_object *o, const char *key)
{
	return json_object_object_add(o, key, NULL);
}

/* "/a/b: text" -> pointer "/a/b" and the text; messages without a pointer stay whole. */
static size_t pointer_len(const char *msg)
{
	const char *end = msg[0] == '/' ? strstr(msg, ": ") : NULL;

	return end && !memchr(msg, ' ', (size_t)(end - msg)) ? (size_t)(end - msg) : 0;
}

struct json_object *json_error_new(const struct nsbox_error *e)
{
	struct json_object *o = json_object_new_object();
	size_t n = pointer_len(e->msg);

	if (!o)
		return NULL;
	json_put_text(o, "code", nsbox_error_code_name(e->code));
	if (e->stage != NSBOX_STAGE_NONE)
		json_put_text(o, "stage", nsbox_stage_name(e->stage));
	if (n > 0)
		json_put(o, "pointer", json_text_new(e->msg, n == 1 ? 0 : n));
	json_put_text(o, "message", n > 0 ? e->msg + n + 2 : e->msg);
	return o;
}

/* ------------------------------------------------------------------ what held */

/* Which of the witness's acts speaks for a layer. */
static const struct {
	uint8_t layer, witness;
} evidence[] = {
	{ NSBOX_LAYER_MOUNT, NSBOX_WITNESS_WRITE },
	{ NSBOX_LAYER_ROOT, NSBOX_WITNESS_WRITE },
	{ NSBOX_LAYER_NET, NSBOX_WITNESS_CONNECT },
	{ NSBOX_LAYER_PID, NSBOX_WITNESS_PROCESS },
	{ NSBOX_LAYER_USER, NSBOX_WITNESS_CAPABILITY },
	{ NSBOX_LAYER_CAPABILITIES, NSBOX_WITNESS_CAPABILITY },
	{ NSBOX_LAYER_SECCOMP, NSBOX_WITNESS_SYSCALL },
	{ NSBOX_LAYER_LANDLOCK_FS, NSBOX_WITNESS_LANDLOCK },
};

static int put_evidence(struct json_object *o, const struct nsbox_result *res, int layer)
{
	char text[160];

	for (size_t i = 0; i < ARRAY_SIZE(evidence); i++) {
		int w = evidence[i].witness;

		if (evidence[i].layer != layer || !(res->witness_held & (1u << w)))
			continue;
		snprintf(text, sizeof(text), "tried and refused: %s", nsbox_witness_text(w));
		return json_put_text(o, "evidence", text);
	}
	return 0;
}

static int put_layers(struct json_object *reply, const struct result_json *r)
{
	struct json_object *on = json_object_new_array(), *off = json_object_new_array();
	char buf[400];

	for (int l = 0; l < NSBOX_LAYER_MAX && on && off; l++) {
		struct json_object *o;
		const char *why;

		if (!((r->result->enforced | r->result->not_enforced) & NSBOX_LAYER_BIT(l)))
			continue;
		o = json_object_new_object();
		json_put_text(o, "layer", nsbox_layer_name(l));
		if (r->result->enforced & NSBOX_LAYER_BIT(l)) {
			json_put_text(o, "state", "enforced");
			put_evidence(o, r->result, l);
			json_object_array_add(on, o);
			continue;
		}
		why = nsbox_host_remedy(r->host, l, buf, sizeof(buf));
		if (why)
			json_put_text(o, "reason", why);
		json_object_array_add(off, o);
	}
	if (json_put(reply, "enforced", on) < 0) {
		json_object_put(off);
		return -ENOMEM;
	}
	return json_put(reply, "notEnforced", off);
}

/* By what held this run, not by what the host could have given it. */
static int tier_of(uint32_t enforced)
{
	if (!(enforced & NSBOX_LAYER_BIT(NSBOX_LAYER_USER)))
		return enforced ? NSBOX_TIER_PROCESS : NSBOX_TIER_NONE;
	return enforced & NSBOX_LAYER_BIT(NSBOX_LAYER_CGROUP) ? NSBOX_TIER_CGROUP
							      : NSBOX_TIER_NAMESPACE;
}

uint32_t result_gaps(const struct nsbox_result *r)
{
	return tier_of(r->enforced) == NSBOX_TIER_PROCESS ? nsbox_gaps(r->enforced) : 0;
}

static int put_tier(struct json_object *reply, const struct nsbox_result *res)
{
	uint32_t gaps = result_gaps(res);
	struct json_object *list;

	if (!res->enforced)
		return 0;
	json_put_text(reply, "tier", nsbox_tier_name(tier_of(res->enforced)));
	if (!gaps)
		return 0;
	list = json_object_new_array();
	for (int i = 0; list && i < NSBOX_GAP_MAX; i++)
		if (gaps & NSBOX_GAP_BIT(i))
			json_object_array_add(list, json_object_new_string(nsbox_gap_name(i)));
	return json_put(reply, "notStopped", list);
}

static int put_witness(struct json_object *reply, const struct nsbox_result *res)
{
	struct json_object *o = json_object_new_object();

	for (int w = 0; o && w < NSBOX_WITNESS_MAX; w++)
		if (res->witness_tried & (1u << w))
			json_put_text(o, nsbox_witness_name(w),
				      res->witness_held & (1u << w) ? "held" : "failed");
	json_put_u64(reply, "witness_us", res->witness_us);
	return json_put(reply, "witness", o);
}

static int put_limits(struct json_object *reply, const struct result_json *r)
{
	static const char *const kinds[] = { "process", "cgroup1", "cgroup2" };
	struct json_object *o = json_object_new_object();
	const struct nsbox_policy_limits *lim = r->limits;

	if (!o)
		return -ENOMEM;
	json_put_u64(o, "memory", lim->memory);
	json_put_u64(o, "disk", lim->disk);
	json_put_u64(o, "wall_ms", r->wall_ms);
	json_put_u64(o, "pids", lim->pids);
	json_put_u64(o, "cpu_milli", lim->cpu_milli);
	json_put_u64(o, "stdout", lim->stdout_max);
	json_put_u64(o, "stderr", lim->stderr_max);
	if (r->is_python)
		json_put_u64(o, "result", lim->result_max);
	if (r->result->cgroup_kind < ARRAY_SIZE(kinds))
		json_put_text(o, "by", kinds[r->result->cgroup_kind]);
	return json_put(reply, "limits", o);
}

int result_put_held(struct json_object *o, const struct result_json *r)
{
	int rc = put_layers(o, r);

	if (rc == 0)
		rc = put_tier(o, r->result);
	if (rc == 0)
		rc = put_witness(o, r->result);
	return rc == 0 && r->limits ? put_limits(o, r) : rc;
}
