/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions as clients see them: which one a name means, and what is told of it. */
#include <json-c/json.h>
#include <string.h>

#include "daemon/front/front.h"
#include "daemon/front/json_reply.h"
#include "daemon/front/session.h"
#include "nsbox/util.h"

static const char *const state_names[] = { "new", "making", "up", "over" };

struct session *session_by_number(struct front *f, uint64_t number)
{
	for (struct session *s = f->sessions; s; s = s->next)
		if (s->number == number)
			return s;
	return NULL;
}

unsigned session_find(struct front *f, const struct who *who, const char *id, const char *workspace,
		      struct session **ret)
{
	unsigned n = 0;

	for (struct session *s = f->sessions; s; s = s->next) {
		if (strcmp(s->id, id) != 0 || !who_sees(who, s->uid, s->workspace) ||
		    (workspace && strcmp(s->workspace, workspace) != 0))
			continue;
		*ret = s;
		n++;
	}
	return n;
}

struct json_object *session_object(const struct session *s)
{
	struct json_object *o = json_object_new_object();
	uint64_t now = monotonic_us();

	json_put_text(o, "id", s->id);
	json_put_text(o, "workspace_id", s->workspace);
	json_put_text(o, "state", state_names[s->state]);
	json_put_u64(o, "created_ms", s->created_unix_ms);
	json_put_u64(o, "commands", s->commands);
	json_put_u64(o, "running", s->held);
	if (s->max_commands)
		json_put_u64(o, "max_commands", s->max_commands);
	json_put_u64(o, "idle_seconds", s->held ? 0 : (now - s->used_us) / 1000000);
	json_put_u64(o, "idle_timeout_seconds", s->idle_s);
	json_put_u64(o, "age_seconds", (now - s->created_us) / 1000000);
	json_put_u64(o, "ttl_seconds", s->ttl_s);
	if (s->plan) {
		json_put_u64(o, "command_timeout_ms", s->plan->limits.wall_ms);
		json_put_u64(o, "memory_limit", s->plan->limits.memory);
		json_put_u64(o, "pids_limit", s->plan->limits.pids);
		json_put_text(o, "policy_sha256", s->policy_sha256);
	}
	if (s->ready) {
		json_put_text(o, "image_digest", s->image_digest);
		session_network_put(s, o);
	}
	return o;
}

struct json_object *session_note(const struct session *s, const struct job *j)
{
	struct json_object *o = json_object_new_object();

	json_put_text(o, "id", s->id);
	json_put(o, "created", json_object_new_boolean(j->makes_session));
	json_put_u64(o, "commands", s->commands);
	return o;
}
