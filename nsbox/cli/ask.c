/* SPDX-License-Identifier: Apache-2.0 */
#include "nsbox/cli/ask.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/client.h"
#include "nsbox/cli/cli.h"
#include "nsbox/util.h"
#include "policy/json_strict.h"

void answer_done(struct answer *a)
{
	json_object_put(a->body);
	free(a->text);
	memset(a, 0, sizeof(*a));
}

const char *answer_text(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	if (!json_object_is_type(o, json_type_object) || !json_object_object_get_ex(o, key, &v))
		return NULL;
	return json_object_is_type(v, json_type_string) ? json_object_get_string(v) : NULL;
}

/* The daemon's own words about a refusal. */
static int refused(const struct answer *a)
{
	struct json_object *e = NULL;
	const char *pointer, *msg;

	if (json_object_is_type(a->body, json_type_object))
		json_object_object_get_ex(a->body, "error", &e);
	pointer = answer_text(e, "pointer");
	msg = answer_text(e, "message");
	fprintf(stderr, "nsbox: %s%s%s (HTTP %d)\n", pointer ? pointer : "", pointer ? ": " : "",
		msg ? msg : "the daemon refused the request", a->status);
	return EXIT_NSBOX;
}

const char *ask_socket(const char *socket)
{
	if (!socket)
		socket = getenv("NSBOX_SOCKET");
	return socket ? socket : SOCKET_DEFAULT;
}

int ask_daemon(const char *socket, const char *method, const char *path, struct json_object *body,
	       struct answer *ret)
{
	const struct json_limits lim = { .max_size = 1u << 30,
					 .max_depth = JSON_DEPTH_MAX,
					 .code = NSBOX_E_PROTOCOL };
	size_t len = 0;
	const char *text =
		body ? json_object_to_json_string_length(body, JSON_C_TO_STRING_PLAIN, &len) : NULL;
	struct nsbox_error err = { 0 };

	memset(ret, 0, sizeof(*ret));
	if (client_request(ask_socket(socket), method, path, text, len, &ret->status, &ret->text,
			   &ret->len, &err) < 0 ||
	    json_strict_parse(ret->text, ret->len, &lim, &ret->body, &err) < 0) {
		cli_error(&err);
		return -1;
	}
	return ret->status >= 200 && ret->status < 300 ? 0 : refused(ret);
}
