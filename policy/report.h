/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports are made once, as JSON; what is printed for people is written from the same object. A
 * member that could not be made for lack of memory is null, and the text of the whole then fails.
 */
#ifndef POLICY_REPORT_H
#define POLICY_REPORT_H

#include <json-c/json.h>
#include <nsbox/policy.h>
#include <stdio.h>

struct json_object *report_put(struct json_object *o, const char *key, struct json_object *v);
void report_str(struct json_object *o, const char *key, const char *v); /* NULL: null */
void report_u64(struct json_object *o, const char *key, uint64_t v);
void report_bool(struct json_object *o, const char *key, bool v);
struct json_object *report_add_to(struct json_object *array, struct json_object *v);
void report_add_str(struct json_object *array, const char *v);

/* Borrowed; "" / 0 / an empty list where it is not there. */
const char *report_get(struct json_object *o, const char *key);
struct json_object *report_at(struct json_object *o, const char *key);

/* Takes o. The text function prints for people. */
typedef void report_text_fn(struct json_object *o, FILE *to);
int report_finish(struct json_object *o, enum nsbox_report form, report_text_fn *text, char **ret,
		  struct nsbox_error *err);

/* "512Mi", "2m", "1.5" */
const char *report_bytes(uint64_t v, char *buf, int size);
const char *report_ms(uint64_t v, char *buf, int size);
const char *report_milli(uint64_t v, char *buf, int size);

#endif
