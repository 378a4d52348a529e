/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as strict JSON. What is accepted must be what json-c, written out and read again,
 * agrees on; what is refused must say where.
 */
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "policy/json_strict.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
	if (!ok)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct json_limits limits = { .max_size = 1u << 20,
						   .max_depth = 32,
						   .code = NSBOX_E_INVALID };
	/* Escapes may become longer: \u0080 is one character of two bytes, "/" is written "\/". */
	static const struct json_limits again = { .max_size = 8u << 20,
						  .max_depth = 32,
						  .code = NSBOX_E_INVALID };
	struct json_object *v = NULL, *w = NULL;
	struct nsbox_error err = { 0 };
	const char *text;

	if (json_strict_parse((const char *)data, size, &limits, &v, &err) < 0) {
		check(err.msg[0] && (err.code == NSBOX_E_INVALID || err.code == NSBOX_E_NOMEM));
		return 0;
	}
	text = json_object_to_json_string_ext(v, JSON_C_TO_STRING_PLAIN);
	check(json_strict_parse(text, strlen(text), &again, &w, &err) == 0);
	check(json_object_equal(v, w));
	json_object_put(v);
	json_object_put(w);
	return 0;
}
