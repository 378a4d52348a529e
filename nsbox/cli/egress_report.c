/* SPDX-License-Identifier: Apache-2.0 */
/* What nsbox-egress decided, for the report of a run. */
#include <json-c/json.h>
#include <string.h>

#include "daemon/common/text.h"
#include "nsbox/cli/egress.h"

static void put_str(struct json_object *o, const char *key, const char *s)
{
	/* Names are the payload's. */
	json_object_object_add(o, key, *s ? json_text_new(s, strlen(s)) : NULL);
}

static void put_u64(struct json_object *o, const char *key, uint64_t v)
{
	json_object_object_add(o, key, json_object_new_uint64(v));
}

static struct json_object *event_json(const struct egress_event *e)
{
	struct json_object *o = json_object_new_object();

	put_str(o, "what", egress_what_names[e->what]);
	put_str(o, "verdict", egress_verdict_names[e->verdict]);
	put_str(o, "name", e->name);
	put_str(o, "address", e->address);
	if (e->what == EGRESS_CONNECTION)
		put_u64(o, "port", e->port);
	put_str(o, "rule", e->pointer);
	if (*e->why)
		put_str(o, "why", e->why);
	if (e->errnum)
		put_str(o, "error",
			strerrorname_np((int)e->errnum) ? strerrorname_np((int)e->errnum) : "?");
	if (e->what == EGRESS_CONNECTION) {
		put_u64(o, "bytes_out", e->bytes_out);
		put_u64(o, "bytes_in", e->bytes_in);
	}
	json_object_object_add(o, "duration_ms",
			       json_object_new_double((double)e->duration_us / 1000.0));
	return o;
}

struct json_object *run_egress_json(const struct run_egress *e)
{
	const struct egress_totals *t = &e->totals;
	struct json_object *o, *list;

	if (!e->used)
		return NULL;
	o = json_object_new_object();
	list = json_object_new_array();
	put_u64(o, "connections", t->connections);
	put_u64(o, "connections_refused", t->refused);
	put_u64(o, "connections_failed", t->failed);
	put_u64(o, "lookups", t->lookups);
	put_u64(o, "lookups_refused", t->lookups_refused);
	put_u64(o, "lookups_failed", t->lookups_failed);
	put_u64(o, "bytes_out", t->bytes_out);
	put_u64(o, "bytes_in", t->bytes_in);
	for (size_t i = 0; i < e->n_kept; i++)
		json_object_array_add(list, event_json(&e->kept[i]));
	json_object_object_add(o, "decisions", list);
	put_u64(o, "decisions_left_out",
		t->untold +
			(e->n_kept == EGRESS_KEPT ? t->connections + t->lookups - EGRESS_KEPT : 0));
	json_object_object_add(o, "lost", json_object_new_boolean(e->lost));
	return o;
}

struct json_object *run_egress_denials(const struct run_egress *e)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < e->n_denials; i++) {
		const struct egress_event *f = &e->denials[i].first;
		struct json_object *o = json_object_new_object();

		put_str(o, "layer", "egress");
		put_str(o, "what", egress_what_names[f->what]);
		put_str(o, "name", f->name);
		put_str(o, "address", f->address);
		if (f->what == EGRESS_CONNECTION)
			put_u64(o, "port", f->port);
		put_str(o, "why", f->why);
		put_str(o, "pointer", f->pointer);
		put_u64(o, "times", e->denials[i].times);
		json_object_array_add(list, o);
	}
	return list;
}
