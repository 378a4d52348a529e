/* SPDX-License-Identifier: Apache-2.0 */
/* See job_logs.h: the job's server-sent events, of which its output is printed. */
#include "nsbox/cli/job_logs.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/client.h"
#include "daemon/common/text.h"
#include "nsbox/cli/ask.h"
#include "nsbox/cli/cli.h"
#include "nsbox/util.h"

struct logs {
	char event[16];
	bool json, refused, ended;
	/* of a conversation */
	void (*begun)(void *ctx, const char *job);
	void *ctx;
	struct json_object *end;
};

static void print(FILE *to, struct json_object *event)
{
	const char *text = answer_text(event, "text"), *exact = answer_text(event, "base64");
	auto_free unsigned char *data = NULL;
	size_t len = 0;

	if (text)
		fputs(text, to);
	else if (exact && base64_decode(exact, strlen(exact), &data, &len) == 0)
		fwrite(data, 1, len, to);
	fflush(to);
}

static void print_refusal(struct json_object *answer)
{
	struct json_object *e = NULL;
	const char *msg;

	json_object_object_get_ex(answer, "error", &e);
	msg = answer_text(e, "message");
	fprintf(stderr, "nsbox: %s\n", msg ? msg : "the daemon refused the request");
}

/* A line for each event, with its name beside what the service says. */
static void print_event(const struct logs *l, struct json_object *event)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "event", json_object_new_string(l->event));
	json_object_object_add(o, "data", json_object_get(event));
	printf("%s\n", json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN |
								 JSON_C_TO_STRING_NOSLASHESCAPE));
	fflush(stdout);
	json_object_put(o);
}

static void on_data(struct logs *l, const char *text)
{
	struct json_object *o = json_tokener_parse(text);

	if (l->refused)
		print_refusal(o);
	else if (l->json)
		print_event(l, o);
	else if (!strcmp(l->event, "stdout"))
		print(stdout, o);
	else if (!strcmp(l->event, "stderr"))
		print(stderr, o);
	else if (!strcmp(l->event, "queued") && l->begun)
		l->begun(l->ctx, answer_text(o, "job_id"));
	else if (!strcmp(l->event, "finished"))
		l->end = json_object_get(o);
	l->ended = l->ended || l->refused || !strcmp(l->event, "finished");
	json_object_put(o);
}

static void on_line(void *ctx, int status, const char *line)
{
	struct logs *l = ctx;

	l->refused = status != 200;
	if (l->refused)
		on_data(l, line);
	else if (!strncmp(line, "event: ", 7))
		snprintf(l->event, sizeof(l->event), "%s", line + 7);
	else if (!strncmp(line, "data: ", 6))
		on_data(l, line + 6);
}

static int follow(struct logs *l, const char *socket, const char *method, const char *path,
		  const char *body)
{
	struct nsbox_error err = { 0 };

	if (client_lines(ask_socket(socket), method, path, body, on_line, l, &err) < 0)
		return cli_error(&err);
	if (!l->ended)
		fprintf(stderr, "nsbox: the service ended before the job\n");
	return l->ended && !l->refused ? 0 : EXIT_NSBOX;
}

int job_logs_print(const char *socket, const char *path, bool json)
{
	struct logs l = { .json = json };
	char events[160];
	int r;

	snprintf(events, sizeof(events), "%s/events", path);
	r = follow(&l, socket, "GET", events, NULL);
	json_object_put(l.end);
	return r;
}

int job_talk_print(const char *socket, struct json_object *body,
		   void (*begun)(void *ctx, const char *job), void *ctx, struct json_object **ret)
{
	struct logs l = { .begun = begun, .ctx = ctx };
	int r = follow(&l, socket, "POST", "/v1/execute/command",
		       json_object_to_json_string_ext(body, JSON_C_TO_STRING_PLAIN));

	*ret = l.end;
	return r;
}
