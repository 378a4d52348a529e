/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /v1/jobs/ID/outputs/PATH: one file that a job handed back, as it is. It is kept with the job's
 * result; a result that is asked for holds small files itself and names the place of the others.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/media_type.h"
#include "daemon/common/text.h"
#include "daemon/front/front.h"
#include "daemon/front/json_reply.h"
#include "nsbox/util.h"

#define INLINE_MAX 65536

/*
 * Where the list of outputs begins in a reply, or NULL. It is the last of this name: what follows it
 * is ours, and inside a string the quotes would be escaped. The reply is not parsed as a whole, for
 * what a function returned has to stay as it was written, to the last digit.
 */
static const char *outputs_in(const char *reply)
{
	static const char key[] = "\"outputs\":[";
	const char *found = NULL;

	for (const char *p = reply; p && (p = strstr(p, key)); p++)
		found = p;
	return found ? found + sizeof(key) - 2 : NULL;
}

/* The same text without the content of large files. */
static size_t cut_contents(char *text)
{
	static const char key[] = ",\"content_base64\":\"";
	const char *list = outputs_in(text), *from = text;
	const char *at = list ? strstr(list, key) : NULL;
	char *to = text;

	while (at) {
		const char *end = at + sizeof(key) - 1 + strcspn(at + sizeof(key) - 1, "\"");
		size_t len = (size_t)(end - at) - (sizeof(key) - 1);

		if (len / 4 * 3 > INLINE_MAX && *end) {
			memmove(to, from, (size_t)(at - from));
			to += at - from;
			from = end + 1;
		}
		at = strstr(end, key);
	}
	memmove(to, from, strlen(from) + 1);
	return (size_t)(to - text) + strlen(to);
}

struct json_object *api_result_object(const char *reply, size_t len)
{
	auto_free char *copy = len > INLINE_MAX ? strndup(reply, len) : NULL;

	return copy ? json_raw_new(copy, cut_contents(copy)) : json_raw_new(reply, len);
}

static const char *text_of(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	json_object_object_get_ex(o, key, &v);
	return v ? json_object_get_string(v) : "";
}

static void reply_file(struct http_request *rq, struct json_object *output)
{
	const char *text = text_of(output, "content_base64");
	unsigned char *data = NULL;
	size_t len;
	char etag[80];
	const char *const headers[] = { "Content-Type",
					media_type_of(text_of(output, "path")),
					"ETag",
					etag,
					"Content-Disposition",
					"attachment",
					"X-Content-Type-Options",
					"nosniff",
					NULL };

	snprintf(etag, sizeof(etag), "\"%.64s\"", text_of(output, "sha256"));
	if (base64_decode(text, strlen(text), &data, &len) < 0)
		http_reply_error(rq, 503, "nomem", "out of memory");
	else
		http_reply(rq, 200, (char *)data, len, headers);
}

void api_reply_output(struct http_request *rq, const char *reply, const char *path)
{
	const char *text = reply ? outputs_in(reply) : NULL;
	struct json_object *list = text ? json_tokener_parse(text) : NULL, *found = NULL;

	for (size_t i = 0; list && !found && i < json_object_array_length(list); i++) {
		struct json_object *one = json_object_array_get_idx(list, i);

		if (strcmp(text_of(one, "path"), path) == 0)
			found = one;
	}
	if (found)
		reply_file(rq, found);
	else
		http_reply_error(rq, 404, "not_found", "the job has handed back no file '%.200s'",
				 path);
	json_object_put(list);
}
