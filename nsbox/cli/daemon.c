/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `nsbox daemon`: how the service is, and what its owner may tell it. `drain` waits for the end;
 * on a terminal one line shows how much still runs.
 */
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/client.h"
#include "nsbox/cli/ask.h"
#include "nsbox/cli/cli.h"
#include "nsbox/util.h"

struct daemon_options {
	const char *socket;
	bool json;
};

static int set_socket(void *ctx, const char *v)
{
	((struct daemon_options *)ctx)->socket = v;
	return 0;
}

static int set_json(void *ctx, const char *v)
{
	((struct daemon_options *)ctx)->json = true;
	return 0;
}

static const struct option_row daemon_rows[] = {
	{ "socket", 'S', "PATH",
	  "the daemon's socket (default: $NSBOX_SOCKET, else " SOCKET_DEFAULT ")", set_socket },
	{ "json", 'j', NULL, "print the daemon's answer as it is", set_json },
	{ NULL, 0, NULL, NULL, NULL },
};

static long long number(struct json_object *o, const char *object, const char *key)
{
	struct json_object *v = NULL;

	if (object && json_object_object_get_ex(o, object, &v))
		o = v;
	return json_object_object_get_ex(o, key, &v) ? json_object_get_int64(v) : 0;
}

static void show(struct json_object *o)
{
	const char *status = answer_text(o, "status"), *reason = answer_text(o, "reason");
	long long up = number(o, NULL, "uptime_ms") / 1000;

	printf("status       %s%s%s\n", status ? status : "?", reason ? ": " : "",
	       reason ? reason : "");
	printf("version      %s, tier %s\n", answer_text(o, "version"), answer_text(o, "tier"));
	printf("up           %lld:%02lld:%02lld\n", up / 3600, up / 60 % 60, up % 60);
	printf("running      %lld of %lld\n", number(o, "queue", "running"),
	       number(o, "queue", "runners"));
	printf("waiting      %lld of %lld\n", number(o, "queue", "waiting"),
	       number(o, "queue", "max"));
	printf("accepted     %lld since the start\n", number(o, NULL, "accepted"));
	printf("connections  %lld\n", number(o, NULL, "connections"));
	if (answer_text(o, "tcp"))
		printf("tcp          %s\n", answer_text(o, "tcp"));
}

/* Parse, ask; -1: *ret is there. */
static int ask(int argc, char **argv, const char *usage, const char *method, const char *path,
	       struct daemon_options *o, struct answer *ret)
{
	int r = cli_options(argc, argv, usage, daemon_rows, o);

	memset(ret, 0, sizeof(*ret));
	if (r >= 0)
		return r;
	if (argv[optind])
		return cli_usage("'%s' is one word too many", argv[optind]);
	r = ask_daemon(o->socket, method, path, NULL, ret);
	if (o->json && ret->len)
		printf("%s\n", ret->text);
	return r == 0 ? -1 : EXIT_NSBOX;
}

static int daemon_status(int argc, char **argv)
{
	struct daemon_options o = { 0 };
	struct answer a;
	int r = ask(argc, argv, "nsbox daemon status [OPTION...]", "GET", "/v1/daemon", &o, &a);

	if (r < 0 && !o.json)
		show(a.body);
	answer_done(&a);
	return MAX(r, 0);
}

static int daemon_reload(int argc, char **argv)
{
	struct daemon_options o = { 0 };
	struct answer a;
	int r = ask(argc, argv, "nsbox daemon reload [OPTION...]", "POST", "/v1/daemon/reload", &o,
		    &a);

	answer_done(&a);
	return MAX(r, 0);
}

/* 0: it still ends; 1: it is gone. */
static int look(const struct daemon_options *o, bool terminal)
{
	struct nsbox_error err = { 0 };
	auto_free char *text = NULL;
	struct json_object *v;
	size_t len;
	int status;

	if (client_request(ask_socket(o->socket), "GET", "/v1/daemon", NULL, 0, &status, &text,
			   &len, &err) < 0)
		return 1;
	v = json_tokener_parse(text);
	if (terminal && v)
		fprintf(stderr, "\r\033[Kdraining: %lld run, %lld wait",
			number(v, "queue", "running"), number(v, "queue", "waiting"));
	json_object_put(v);
	return 0;
}

static int daemon_drain(int argc, char **argv)
{
	const struct timespec tick = { 0, 200000000 };
	bool terminal = isatty(STDERR_FILENO);
	struct daemon_options o = { 0 };
	struct answer a;
	int r = ask(argc, argv, "nsbox daemon drain [OPTION...]", "POST", "/v1/daemon/drain", &o,
		    &a);

	answer_done(&a);
	if (r >= 0)
		return r;
	while (!look(&o, terminal))
		nanosleep(&tick, NULL);
	if (terminal)
		fprintf(stderr, "\r\033[K");
	return 0;
}

static const struct command verbs[] = {
	{ "status", daemon_status, "does it work, how much runs and waits" },
	{ "drain", daemon_drain, "finish what runs, keep what waits, end; waits for that" },
	{ "reload", daemon_reload, "read configuration, tokens and secrets again" },
	{ NULL, NULL, NULL },
};

int cmd_daemon(int argc, char **argv)
{
	return cli_verbs(argc, argv, "daemon", verbs, "");
}
