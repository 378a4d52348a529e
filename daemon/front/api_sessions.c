/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface's part about sessions: which there are, and ending one. They are made, and used, by
 * jobs (api_jobs.c).
 *
 * Sessions of others do not exist for a client, as with jobs. One that sees several workspaces says
 * which it means by ?workspace_id= where two of them have a session of the same name.
 */
#include <json-c/json.h>

#include "daemon/front/evidence.h"
#include "daemon/front/json_reply.h"
#include "daemon/front/session.h"

void api_list_sessions(struct front *f, struct http_request *rq, const char *rest)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();
	struct who who;

	api_who(f, rq, &who);
	for (const struct session *s = f->sessions; s; s = s->next)
		if (who_sees(&who, s->uid, s->workspace))
			json_object_array_add(list, session_object(s));
	json_put(o, "sessions", list);
	json_put_u64(o, "max", f->opt->sessions);
	api_reply(rq, 200, o, NULL);
}

struct session *api_find_session(struct front *f, struct http_request *rq, const char *id)
{
	struct session *s = NULL;
	struct who who;
	unsigned n;

	api_who(f, rq, &who);
	n = session_find(f, &who, id, http_argument(rq, "workspace_id"), &s);
	if (n == 1)
		return s;
	if (n)
		http_reply_error(rq, 409, "conflict",
				 "%u sessions are called '%.64s': say which by ?workspace_id=", n,
				 id);
	else
		http_reply_error(rq, 404, "not_found", "no session has the id '%.64s'", id);
	return NULL;
}

void api_get_session(struct front *f, struct http_request *rq, const char *id)
{
	const struct session *s = api_find_session(f, rq, id);

	if (s)
		api_reply(rq, 200, session_object(s), NULL);
}

void api_delete_session(struct front *f, struct http_request *rq, const char *id)
{
	struct session *s = api_find_session(f, rq, id);
	struct json_object *o;

	if (!s)
		return;
	o = session_object(s);
	json_put_text(o, "state", "over");
	session_end(s, NSBOX_CAUSE_CANCELLED, "deleted");
	api_reply(rq, 200, o, NULL);
}
