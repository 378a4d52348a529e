/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manifest of a run.
 *
 * timeout_seconds, resources and outputs of a request are shorthands for manifest fields; joining
 * them here gives one document that is resolved, hashed and explained like any other. What the
 * request says wins over what the manifest says: both come from the caller, and the ceiling is the
 * compiler's to hold either way.
 */
#include "daemon/front/manifest.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/json_strict.h"

#define COMMON_WALL_MS 120000 /* of the profiles that sessions mostly have */

/*
 * A session's limit is for all its commands, so the first one's wish is no reason to lower it. One
 * that wants more than most profiles give has to get it here, where the policy is made.
 */
static bool wishes_wall(const struct job_spec *s)
{
	struct json_object *t = NULL, *wall = NULL;

	if (!s->session_id || s->kind == JOB_SESSION)
		return s->timeout_ms;
	if (s->manifest && json_object_object_get_ex(s->manifest, "timeouts", &t) &&
	    json_object_is_type(t, json_type_object) && json_object_object_get_ex(t, "wall", &wall))
		return false;
	return s->timeout_ms > COMMON_WALL_MS;
}

static bool has_wishes(const struct job_spec *s)
{
	return wishes_wall(s) || s->cpu_milli || s->pids || s->memory_mb || s->network ||
	       (s->outputs && s->outputs[0]);
}

/* The member as an object or array; one of another type is left for the compiler to refuse. */
static struct json_object *member(struct json_object *m, const char *key, bool array)
{
	struct json_object *o = NULL;

	if (json_object_object_get_ex(m, key, &o))
		return json_object_is_type(o, array ? json_type_array : json_type_object) ? o
											  : NULL;
	o = array ? json_object_new_array() : json_object_new_object();
	if (o && json_object_object_add(m, key, o) < 0) {
		json_object_put(o);
		o = NULL;
	}
	return o;
}

static int set_text(struct json_object *m, const char *section, const char *key, uint64_t value,
		    const char *unit)
{
	struct json_object *o = member(m, section, false);
	char text[40];

	if (value == 0 || !o)
		return 0;
	snprintf(text, sizeof(text), "%" PRIu64 "%s", value, unit);
	return json_object_object_add(o, key, json_object_new_string(text));
}

static int add_outputs(struct json_object *m, char *const *globs)
{
	struct json_object *list = globs && globs[0] ? member(m, "outputs", true) : NULL;
	int r = 0;

	for (size_t i = 0; list && globs[i] && r == 0; i++) {
		struct json_object *o = json_object_new_object();

		r = o ? json_object_object_add(o, "glob", json_object_new_string(globs[i])) : -1;
		if (r == 0)
			r = json_object_array_add(list, o);
		else
			json_object_put(o);
	}
	return r;
}

static int join(struct json_object *m, const struct job_spec *s)
{
	struct json_object *res;
	int r = wishes_wall(s) ? set_text(m, "timeouts", "wall", s->timeout_ms, "ms") : 0;

	if (r == 0 && s->memory_mb)
		r = set_text(m, "resources", "memory", s->memory_mb, "Mi");
	if (r == 0 && s->cpu_milli)
		r = set_text(m, "resources", "cpu", s->cpu_milli, "m");
	res = s->pids ? member(m, "resources", false) : NULL;
	if (r == 0 && res)
		r = json_object_object_add(res, "pids", json_object_new_int64(s->pids));
	if (r == 0 && s->network)
		r = json_object_object_add(m, "network", json_object_get(s->network));
	return r == 0 ? add_outputs(m, s->outputs) : r;
}

/* Two that say what may be reached: only nothing at all goes with a manifest's own. */
static int check_network(struct json_object *m, const struct job_spec *s, struct nsbox_error *err)
{
	struct json_object *mode;

	if (!s->network || !json_object_object_get_ex(m, "network", NULL))
		return 0;
	json_object_object_get_ex(s->network, "mode", &mode);
	if (strcmp(json_object_get_string(mode), "none") == 0)
		return 0;
	return nsbox_fail(err, NSBOX_E_INVALID, 0,
			  "/network_policy: the manifest says itself what may be reached");
}

static int to_text(struct json_object *m, char **ret, size_t *ret_len, struct nsbox_error *err)
{
	const char *text = json_object_to_json_string_ext(m, JSON_C_TO_STRING_PLAIN);

	*ret = text ? strdup(text) : NULL;
	if (!*ret)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "join the manifest");
	*ret_len = strlen(*ret);
	return 0;
}

/* A skill without a manifest may write beside its code, with wishes as without. */
static struct json_object *empty_manifest(const struct job_spec *s)
{
	return json_tokener_parse(s->has_skill ? "{\"manifestVersion\":1,\"filesystem\":{\"skill\":"
						 "\"overlay\"}}"
					       : "{\"manifestVersion\":1}");
}

int manifest_for(const struct job_spec *spec, const char *skill_text, size_t skill_len, char **ret,
		 size_t *ret_len, struct nsbox_error *err)
{
	struct json_object *m = NULL;
	int r = 0;

	*ret = NULL;
	*ret_len = 0;
	if (skill_text && !has_wishes(spec)) {
		*ret = malloc(skill_len + 1);
		if (!*ret)
			return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "keep the manifest");
		memcpy(*ret, skill_text, skill_len);
		*ret_len = skill_len;
		/* An empty file is no manifest, but it is not "none" either. */
		return skill_len ? 0 : nsbox_fail(err, NSBOX_E_MANIFEST, 0, "skill.json is empty");
	}
	if (skill_text)
		r = json_strict_parse(skill_text, skill_len, &JSON_LIMITS_MANIFEST, &m, err);
	else if (spec->manifest)
		m = json_object_get(spec->manifest);
	else if (has_wishes(spec))
		m = empty_manifest(spec);
	else
		return 0;
	if (r == 0 && !json_object_is_type(m, json_type_object))
		r = nsbox_fail(err, NSBOX_E_MANIFEST, 0, "/: expected an object");
	if (r == 0)
		r = check_network(m, spec, err);
	if (r == 0 && join(m, spec) < 0)
		r = nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "join the manifest");
	if (r == 0)
		r = to_text(m, ret, ret_len, err);
	json_object_put(m);
	return r;
}

int manifest_over(const struct job_spec *spec, const char *base, size_t len, char **ret,
		  size_t *ret_len, struct nsbox_error *err)
{
	struct json_object *m = NULL;
	int r = 0;

	if (spec->manifest)
		return manifest_for(spec, NULL, 0, ret, ret_len, err);
	if (len)
		r = json_strict_parse(base, len, &JSON_LIMITS_MANIFEST, &m, err);
	else
		m = json_tokener_parse("{\"manifestVersion\":1}");
	if (r == 0 && (!m || join(m, spec) < 0))
		r = nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "join the manifest");
	if (r == 0)
		r = to_text(m, ret, ret_len, err);
	json_object_put(m);
	return r;
}

static bool wishes_timeout(const struct job_spec *s)
{
	return s->timeout_ms;
}

static bool wishes_memory(const struct job_spec *s)
{
	return s->memory_mb;
}

static bool wishes_cpu(const struct job_spec *s)
{
	return s->cpu_milli;
}

static bool wishes_pids(const struct job_spec *s)
{
	return s->pids;
}

static bool wishes_network(const struct job_spec *s)
{
	return s->network;
}

/* Which field of the request stands for one of the manifest, where the request has it. */
static const struct {
	const char *manifest, *request;
	bool (*used)(const struct job_spec *s);
} wishes[] = {
	{ "/timeouts/wall: ", "/timeout_seconds: ", wishes_timeout },
	{ "/resources/memory: ", "/resources/memory_mb: ", wishes_memory },
	{ "/resources/cpu: ", "/resources/cpu: ", wishes_cpu },
	{ "/resources/pids: ", "/resources/pids: ", wishes_pids },
	{ "/network/", "/network_policy/", wishes_network },
};

void manifest_locate(const struct job_spec *spec, struct nsbox_error *err)
{
	char rest[NSBOX_ERROR_MSG_MAX];

	if ((err->code != NSBOX_E_MANIFEST && err->code != NSBOX_E_UNSUPPORTED) ||
	    err->msg[0] != '/')
		return;
	for (size_t i = 0; i < ARRAY_SIZE(wishes); i++) {
		size_t n = strlen(wishes[i].manifest);

		if (strncmp(err->msg, wishes[i].manifest, n) != 0 || !wishes[i].used(spec))
			continue;
		memcpy(rest, err->msg + n, sizeof(rest) - n);
		snprintf(err->msg, sizeof(err->msg), "%s%.*s", wishes[i].request,
			 (int)(sizeof(rest) - n), rest);
		return;
	}
	if (spec->manifest) {
		memcpy(rest, err->msg, sizeof(rest));
		/* "/" alone is how the reader writes the whole document. */
		snprintf(err->msg, sizeof(err->msg), "/manifest%.*s", (int)sizeof(rest) - 10,
			 rest + (strncmp(rest, "/: ", 3) == 0));
	}
}
