/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values that are not to be shown, replaced by "***" wherever they stand byte for byte. A value
 * that the program writes in another form (base64, say) is not found.
 */
#ifndef DAEMON_REDACT_H
#define DAEMON_REDACT_H

#include <stdbool.h>
#include <stddef.h>

#include "policy/inputs.h"

struct json_object;

/* A stream: what could be the beginning of a value waits for the rest. Zeroed to begin with. */
struct redact {
	const struct input *hidden; /* borrowed, the longest first */
	size_t n;
	char *held;
	size_t held_len, held_cap;
};
typedef void redact_fn(void *ctx, const char *buf, size_t len);

/* Out comes what is certain; `end`: the rest of it, too. Without memory nothing comes. */
void redact_feed(struct redact *r, const char *buf, size_t len, bool end, redact_fn *out,
		 void *ctx);
void redact_done(struct redact *r);

/* malloc'd copy of a text with all values replaced; NULL without memory. */
char *redact_text(const struct input *hidden, size_t n, const char *s, size_t len, size_t *ret_len);
/* The same in place, cut where stars are longer than what they hide; of names case does not count. */
void redact_here(const struct input *hidden, size_t n, char *s, size_t size);
void redact_name(const struct input *hidden, size_t n, char *s, size_t size);
bool redact_finds(const struct input *hidden, size_t n, const void *s, size_t len);
/* The same of a JSON value: strings, keys, and numbers that contain one. A new reference. */
struct json_object *redact_json(const struct input *hidden, size_t n, struct json_object *v);

#endif
