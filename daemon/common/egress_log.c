/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/common/egress_log.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/text.h"

static bool same(const struct egress_event *a, const struct egress_event *b)
{
	return a->what == b->what && a->port == b->port && !strcmp(a->name, b->name) &&
	       !strcmp(a->address, b->address) && !strcmp(a->why, b->why);
}

static void count_denial(struct egress_log *l, const struct egress_event *e)
{
	for (size_t i = 0; i < l->n_denials; i++)
		if (same(&l->denials[i].first, e)) {
			l->denials[i].times++;
			return;
		}
	if (!l->denials)
		l->denials = calloc(EGRESS_DENIALS, sizeof(*l->denials));
	if (!l->denials || l->n_denials == EGRESS_DENIALS)
		return;
	l->denials[l->n_denials++] = (struct egress_denial_count){ *e, 1 };
}

/* Room grows with what comes: most runs decide little. */
static void keep(struct egress_log *l, const struct egress_event *e)
{
	if (l->n_kept == EGRESS_KEPT)
		return;
	if ((l->n_kept & (l->n_kept - 1)) == 0) {
		size_t room = l->n_kept ? 2 * l->n_kept : 1;
		struct egress_event *grown = reallocarray(l->kept, room, sizeof(*grown));

		if (!grown)
			return;
		l->kept = grown;
	}
	l->kept[l->n_kept++] = *e;
}

void egress_log_take(struct egress_log *l, const struct egress_event *e)
{
	l->used = true;
	if (e->kind == EGRESS_TOTALS)
		l->totals = e->totals;
	if (e->kind != EGRESS_DECISION)
		return;
	if (e->verdict == EGRESS_REFUSED)
		count_denial(l, e);
	keep(l, e);
}

void egress_log_count(struct egress_log *l, const struct egress_event *e)
{
	struct egress_totals *t = &l->totals;
	bool lookup = e->what == EGRESS_LOOKUP;

	egress_log_take(l, e);
	*(lookup ? &t->lookups : &t->connections) += 1;
	*(lookup ? &t->lookups_refused : &t->refused) += e->verdict == EGRESS_REFUSED;
	*(lookup ? &t->lookups_failed : &t->failed) += e->verdict == EGRESS_FAILED;
	t->bytes_out += e->bytes_out;
	t->bytes_in += e->bytes_in;
}

void egress_log_done(struct egress_log *l)
{
	free(l->kept);
	free(l->denials);
	*l = (struct egress_log){ .used = false };
}

/* ------------------------------------------------------------------ JSON */

static void put_str(struct json_object *o, const char *key, const char *s)
{
	/* Names are the payload's. */
	json_object_object_add(o, key, *s ? json_text_new(s, strlen(s)) : NULL);
}

static void put_u64(struct json_object *o, const char *key, uint64_t v)
{
	json_object_object_add(o, key, json_object_new_uint64(v));
}

struct json_object *egress_event_json(const struct egress_event *e)
{
	struct json_object *o = json_object_new_object();

	put_str(o, "what", egress_what_names[e->what]);
	put_str(o, "verdict", egress_verdict_names[e->verdict]);
	put_str(o, "name", e->name);
	put_str(o, "address", e->address);
	if (e->what != EGRESS_LOOKUP)
		put_u64(o, "port", e->port);
	put_str(o, "rule", e->pointer);
	if (*e->why)
		put_str(o, "why", e->why);
	if (e->errnum)
		put_str(o, "error",
			strerrorname_np((int)e->errnum) ? strerrorname_np((int)e->errnum) : "?");
	if (e->what != EGRESS_LOOKUP) {
		put_u64(o, "bytes_out", e->bytes_out);
		put_u64(o, "bytes_in", e->bytes_in);
	}
	json_object_object_add(o, "duration_ms",
			       json_object_new_double((double)e->duration_us / 1000.0));
	return o;
}

struct json_object *egress_log_json(const struct egress_log *l, bool decisions)
{
	const struct egress_totals *t = &l->totals;
	struct json_object *o, *list;

	if (!l->used)
		return NULL;
	o = json_object_new_object();
	list = json_object_new_array();
	put_u64(o, "connections", t->connections);
	put_u64(o, "connections_refused", t->refused);
	put_u64(o, "connections_failed", t->failed);
	put_u64(o, "refused_at_once", l->refused_at_once);
	put_u64(o, "lookups", t->lookups);
	put_u64(o, "lookups_refused", t->lookups_refused);
	put_u64(o, "lookups_failed", t->lookups_failed);
	put_u64(o, "bytes_out", t->bytes_out);
	put_u64(o, "bytes_in", t->bytes_in);
	for (size_t i = 0; decisions && i < l->n_kept; i++)
		json_object_array_add(list, egress_event_json(&l->kept[i]));
	json_object_object_add(o, "decisions", list);
	put_u64(o, "decisions_left_out",
		t->untold +
			(l->n_kept == EGRESS_KEPT ? t->connections + t->lookups - EGRESS_KEPT : 0));
	json_object_object_add(o, "lost", json_object_new_boolean(l->lost));
	return o;
}

struct json_object *egress_log_denials(const struct egress_log *l)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < l->n_denials; i++) {
		const struct egress_event *f = &l->denials[i].first;
		struct json_object *o = json_object_new_object();

		put_str(o, "layer", "egress");
		put_str(o, "what", egress_what_names[f->what]);
		put_str(o, "name", f->name);
		put_str(o, "address", f->address);
		if (f->what != EGRESS_LOOKUP)
			put_u64(o, "port", f->port);
		put_str(o, "why", f->why);
		put_str(o, "pointer", f->pointer);
		put_u64(o, "times", l->denials[i].times);
		json_object_array_add(list, o);
	}
	if (l->refused_at_once) {
		struct json_object *o = json_object_new_object();

		put_str(o, "layer", "nftables");
		put_str(o, "what", "connection");
		put_str(o, "name", "");
		put_str(o, "address", "");
		put_str(o, "why",
			"an address, port or protocol that is not granted, or is denied to all");
		put_str(o, "pointer", "/network/allow");
		put_u64(o, "times", l->refused_at_once);
		json_object_array_add(list, o);
	}
	return list;
}
