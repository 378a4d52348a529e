/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as text for JSON: base64, UTF-8 that may be broken, and values passed on as they came. */
#ifndef DAEMON_TEXT_H
#define DAEMON_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct json_object;

/* malloc'd and NUL-terminated; NULL without memory. */
char *base64_encode(const void *data, size_t len);
/* RFC 4648, padded, no white space. 0, -EINVAL or -ENOMEM; *ret is malloc'd, never NULL on 0. */
int base64_decode(const char *s, size_t len, unsigned char **ret, size_t *ret_len);

/* As a path of a URL: all but letters, digits, "-._~/" as %XX. malloc'd; NULL without memory. */
char *path_encode(const char *path);

bool utf8_valid(const char *s, size_t len);
/* A JSON string in which each byte that is not UTF-8 became U+FFFD; NULL without memory. */
struct json_object *json_text_new(const char *s, size_t len);

/*
 * Is this exactly one JSON value as Python's json writes it (NaN and the infinities included),
 * of at most `depth` containers within each other? Builds nothing, so hostile text costs nothing.
 */
bool json_value_check(const char *s, size_t len, unsigned depth);
#define JSON_VALUE_DEPTH 1000

/* An object that serializes to this text, byte by byte: numbers keep their digits. */
struct json_object *json_raw_new(const char *s, size_t len);

#endif
