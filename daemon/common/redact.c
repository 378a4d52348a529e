/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/common/redact.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"

#define STARS "***"

/* The value that begins here; *ret_part: one may, and more bytes would tell. */
static const struct input *begins(const struct input *hidden, size_t n, const char *s, size_t len,
				  bool *ret_part)
{
	for (size_t i = 0; i < n; i++) {
		if (memcmp(hidden[i].value, s, MIN(hidden[i].len, len)) != 0)
			continue;
		if (hidden[i].len <= len)
			return &hidden[i];
		*ret_part = true;
		return NULL; /* a longer one is still possible: the shorter ones wait */
	}
	return NULL;
}

/* Pass on what is certain; returns how many bytes that were. */
static size_t pass(struct redact *r, const char *s, size_t len, bool end, redact_fn *out, void *ctx)
{
	size_t at = 0, from = 0;

	while (at < len) {
		const struct input *v;
		bool part = false;

		v = begins(r->hidden, r->n, s + at, len - at, &part);
		for (size_t i = 0; part && end && !v && i < r->n; i++)
			if (r->hidden[i].len <= len - at &&
			    memcmp(r->hidden[i].value, s + at, r->hidden[i].len) == 0)
				v = &r->hidden[i];
		if (part && !end)
			break;
		if (!v) {
			at++;
			continue;
		}
		if (at > from)
			out(ctx, s + from, at - from);
		out(ctx, STARS, sizeof(STARS) - 1);
		at += v->len;
		from = at;
	}
	if (at > from)
		out(ctx, s + from, at - from);
	return at;
}

void redact_feed(struct redact *r, const char *buf, size_t len, bool end, redact_fn *out, void *ctx)
{
	size_t need = r->held_len + len, done;

	if (r->n == 0) {
		if (len)
			out(ctx, buf, len);
		return;
	}
	if (need > r->held_cap) {
		char *p = realloc(r->held, need);

		if (!p)
			return;
		r->held = p;
		r->held_cap = need;
	}
	if (len)
		memcpy(r->held + r->held_len, buf, len);
	done = pass(r, r->held, need, end, out, ctx);
	r->held_len = need - done;
	if (r->held_len)
		memmove(r->held, r->held + done, r->held_len);
}

void redact_done(struct redact *r)
{
	if (r->held)
		explicit_bzero(r->held, r->held_cap);
	free(r->held);
	*r = (struct redact){ 0 };
}

/* ------------------------------------------------------------------ whole texts */

struct text {
	char *data;
	size_t len, cap;
	bool failed;
};

static void append(void *ctx, const char *buf, size_t len)
{
	struct text *t = ctx;

	if (t->len + len + 1 > t->cap) {
		size_t cap = (t->len + len + 1) * 2;
		char *p = realloc(t->data, cap);

		if (!p) {
			t->failed = true;
			return;
		}
		t->data = p;
		t->cap = cap;
	}
	memcpy(t->data + t->len, buf, len);
	t->len += len;
}

char *redact_text(const struct input *hidden, size_t n, const char *s, size_t len, size_t *ret_len)
{
	struct redact r = { .hidden = hidden, .n = n };
	struct text t = { 0 };

	append(&t, "", 0);
	pass(&r, s, len, true, append, &t);
	if (t.failed) {
		free(t.data);
		return NULL;
	}
	t.data[t.len] = 0;
	*ret_len = t.len;
	return t.data;
}

void redact_here(const struct input *hidden, size_t n, char *s, size_t size)
{
	size_t len;
	auto_free char *text = redact_text(hidden, n, s, strnlen(s, size), &len);

	if (n)
		snprintf(s, size, "%s", text ? text : STARS);
}

/* Domain names come in whatever case; no value with a NUL is in one. */
void redact_name(const struct input *hidden, size_t n, char *s, size_t size)
{
	for (size_t i = 0; i < n; i++) {
		size_t len = hidden[i].len;
		char *at = s;

		while (strlen(hidden[i].value) == len && (at = strcasestr(at, hidden[i].value))) {
			size_t rest = strlen(at + len),
			       put = MIN(sizeof(STARS) - 1, size - 1 - (size_t)(at - s));

			rest = MIN(rest, size - 1 - (size_t)(at - s) - put);
			memmove(at + put, at + len, rest);
			memcpy(at, STARS, put);
			at[put + rest] = 0;
			at += put;
		}
	}
}

bool redact_finds(const struct input *hidden, size_t n, const void *s, size_t len)
{
	for (size_t i = 0; i < n; i++)
		if (memmem(s, len, hidden[i].value, hidden[i].len))
			return true;
	return false;
}

/* ------------------------------------------------------------------ JSON */

static struct json_object *redact_scalar(const struct input *hidden, size_t n,
					 struct json_object *v)
{
	bool string = json_object_is_type(v, json_type_string);
	const char *s = json_object_get_string(v);
	size_t len = string ? (size_t)json_object_get_string_len(v) : s ? strlen(s) : 0, out = 0;
	auto_free char *text = NULL;

	if (!s || !redact_finds(hidden, n, s, len))
		return json_object_get(v);
	text = redact_text(hidden, n, s, len, &out);
	return text ? json_object_new_string_len(text, (int)out) : NULL;
}

static struct json_object *redact_object(const struct input *hidden, size_t n,
					 struct json_object *v)
{
	struct json_object *o = json_object_new_object();

	json_object_object_foreach (v, key, one) {
		size_t len;
		auto_free char *name = redact_text(hidden, n, key, strlen(key), &len);

		if (name)
			json_object_object_add(o, name, redact_json(hidden, n, one));
	}
	return o;
}

struct json_object *redact_json(const struct input *hidden, size_t n, struct json_object *v)
{
	struct json_object *list;

	if (!v)
		return NULL;
	if (json_object_is_type(v, json_type_object))
		return redact_object(hidden, n, v);
	if (!json_object_is_type(v, json_type_array))
		return redact_scalar(hidden, n, v);
	list = json_object_new_array();
	for (size_t i = 0; list && i < json_object_array_length(v); i++)
		json_object_array_add(list,
				      redact_json(hidden, n, json_object_array_get_idx(v, i)));
	return list;
}
