/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tool writes as its result, and as its streams: the verdict never fails, and a value that
 * is passed on is one JSON value that the strict half of the world would not trip over.
 */
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/pycall.h"
#include "daemon/common/text.h"
#include "nsbox/util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char prefix[] = "{\"ok\":true,\"value\":";

static void check_value(struct json_object *value)
{
	size_t len;
	const char *text = json_object_to_json_string_length(value, JSON_C_TO_STRING_PLAIN, &len);

	if (!text || !json_value_check(text, len, JSON_VALUE_DEPTH) || memchr(text, 0, len))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct nsbox_result res = { .cause = size ? data[0] % NSBOX_CAUSE_MAX : 0,
				    .exit_status = size > 1 ? data[1] & 1 : 0 };
	struct pycall call = { .memory = 1 << 20, .wall_ms = 1500 };
	struct pycall_outcome o;
	struct json_object *text;
	size_t skip = MIN(size, (size_t)2), n = size - skip;
	char *frame = malloc(sizeof(prefix) + n + 1);

	if (!frame)
		return 0;
	/* Half of the inputs are values inside a good frame, half are whole frames. */
	if (size > 1 && (data[1] & 2)) {
		memcpy(frame, prefix, sizeof(prefix) - 1);
		memcpy(frame + sizeof(prefix) - 1, data + skip, n);
		frame[sizeof(prefix) - 1 + n] = '}';
		n += sizeof(prefix);
	} else {
		memcpy(frame, data + skip, n);
	}
	if (pycall_judge(&call, &res, frame, n, false, frame, n, frame, n, &o, NULL) < 0 || !o.msg)
		abort();
	if (o.data)
		check_value(o.data);
	text = json_text_new(o.msg, strlen(o.msg));
	if (!text ||
	    !utf8_valid(json_object_get_string(text), strlen(json_object_get_string(text))))
		abort();
	json_object_put(text);
	pycall_outcome_done(&o);
	free(frame);
	return 0;
}
