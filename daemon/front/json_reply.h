/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of replies. The put functions take `value`, and fail only without memory. */
#ifndef FRONT_JSON_REPLY_H
#define FRONT_JSON_REPLY_H

#include <nsbox/error.h>
#include <stdint.h>

struct json_object;

int json_put(struct json_object *o, const char *key, struct json_object *value);
int json_put_text(struct json_object *o, const char *key, const char *s);
int json_put_u64(struct json_object *o, const char *key, uint64_t v);

/* {code, stage, pointer, message} */
struct json_object *json_error_new(const struct nsbox_error *e);
int http_status_of(const struct nsbox_error *e);

#endif
