/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `nsbox mcp`: the daemon's Model Context Protocol over standard input and output, for clients that
 * start their servers as programs.
 *
 * Each line of input is one message, sent to the daemon as it is; what comes back, all of it on one
 * stream of events (the transport of 2024-11-05, which both eras of the protocol fit into), is
 * printed a line each. Nothing else is printed there.
 *
 * The main thread reads events, another one the input, a third one waits for signals.
 */
#include <json-c/json.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/client.h"
#include "daemon/common/text.h"
#include "nsbox/cli/ask.h"
#include "nsbox/cli/cli.h"
#include "nsbox/util.h"

#define LAST_ANSWERS_S 5 /* after the end of the input */

struct bridge {
	const char *socket, *workspace, *session, *tool;
	char made[48]; /* a session of our own, "" for none */
	char event[16];
	char *endpoint;
	int status;
	pthread_t input, signals;
	pthread_mutex_t lock; /* of standard output, and of: */
	pthread_cond_t answered;
	unsigned due; /* answers */
	bool over;
};

/* ------------------------------------------------------------------ the end */

static void remove_session(const struct bridge *b)
{
	auto_free char *text = NULL, *path = NULL;
	struct nsbox_error err;
	size_t len;
	int status;

	if (*b->made && asprintf(&path, "/v1/sessions/%s", b->made) > 0)
		client_request(ask_socket(b->socket), "DELETE", path, NULL, 0, &status, &text, &len,
			       &err);
}

/* With the connection whatever still goes on ends. */
static void finish(struct bridge *b, int status)
{
	pthread_mutex_lock(&b->lock);
	if (b->over) { /* another thread is at it, and takes the process with it */
		pthread_mutex_unlock(&b->lock);
		for (;;)
			pause();
	}
	b->over = true;
	pthread_mutex_unlock(&b->lock);
	remove_session(b);
	_exit(status);
}

static void *on_signals(void *ctx)
{
	sigset_t set;
	int n;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigwait(&set, &n);
	finish(ctx, 128 + n);
	return NULL;
}

/* ------------------------------------------------------------------ both directions */

/* What a message is to the count of answers: 1 asks for one, -1 is one. */
static int counts(const char *text)
{
	struct json_object *o = json_tokener_parse(text), *id = NULL, *v;
	int n = 0;

	if (json_object_is_type(o, json_type_object) && json_object_object_get_ex(o, "id", &id) &&
	    id)
		n = json_object_object_get_ex(o, "method", &v) ? 1 : -1;
	json_object_put(o);
	return n;
}

static void print_message(struct bridge *b, const char *text)
{
	bool good;

	pthread_mutex_lock(&b->lock);
	good = fputs(text, stdout) >= 0 && putchar('\n') != EOF && fflush(stdout) == 0;
	if (counts(text) < 0 && b->due)
		b->due--;
	pthread_cond_signal(&b->answered);
	pthread_mutex_unlock(&b->lock);
	if (!good)
		finish(b, EXIT_NSBOX);
}

/* A message that the daemon does not take is answered by its refusal. */
static void send_message(struct bridge *b, const char *line, size_t len)
{
	auto_free char *text = NULL;
	struct nsbox_error err = { 0 };
	size_t answer = 0;
	int status = 0;

	pthread_mutex_lock(&b->lock);
	b->due += counts(line) > 0;
	pthread_mutex_unlock(&b->lock);
	if (client_request(ask_socket(b->socket), "POST", b->endpoint, line, len, &status, &text,
			   &answer, &err) < 0) {
		cli_error(&err);
		finish(b, EXIT_NSBOX);
	}
	if (status != 202 && answer)
		print_message(b, text);
}

static void wait_for_answers(struct bridge *b)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += LAST_ANSWERS_S;
	pthread_mutex_lock(&b->lock);
	while (b->due && pthread_cond_timedwait(&b->answered, &b->lock, &until) == 0)
		;
	pthread_mutex_unlock(&b->lock);
}

static void *on_input(void *ctx)
{
	struct bridge *b = ctx;
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;

	while ((n = getline(&line, &cap, stdin)) > 0) {
		if (line[n - 1] == '\n')
			line[--n] = 0;
		if (n > 0 && strspn(line, " \t\r") != (size_t)n)
			send_message(b, line, (size_t)n);
	}
	free(line);
	wait_for_answers(b);
	finish(b, 0);
	return NULL;
}

static void on_event(struct bridge *b, const char *data)
{
	if (strcmp(b->event, "endpoint") != 0) {
		print_message(b, data);
		return;
	}
	b->endpoint = strdup(data);
	if (!b->endpoint || pthread_create(&b->input, NULL, on_input, b) != 0) {
		cli_usage("out of memory");
		finish(b, EXIT_NSBOX);
	}
}

static void refused(struct bridge *b, const char *text)
{
	struct json_object *o = json_tokener_parse(text), *e = NULL;
	const char *msg;

	json_object_object_get_ex(o, "error", &e);
	msg = answer_text(e, "message");
	fprintf(stderr, "nsbox: %s (HTTP %d)\n", msg ? msg : "the daemon refused the connection",
		b->status);
	json_object_put(o);
}

static void on_line(void *ctx, int status, const char *line)
{
	struct bridge *b = ctx;

	b->status = status;
	if (status != 200 && *line)
		refused(b, line);
	else if (!strncmp(line, "event: ", 7))
		snprintf(b->event, sizeof(b->event), "%s", line + 7);
	else if (!strncmp(line, "data: ", 6))
		on_event(b, line + 6);
}

/* ------------------------------------------------------------------ command */

#define SET(name)                                                                                  \
	static int set_##name(void *ctx, const char *value)                                        \
	{                                                                                          \
		((struct bridge *)ctx)->name = value;                                              \
		return 0;                                                                          \
	}
SET(socket)
SET(workspace)
SET(session)
SET(tool)

static const struct option_row rows[] = {
	{ "workspace", 'w', "ID", "of the session (default: default)", set_workspace },
	{ "session", 's', "NAME", "whose sandbox the tools act in (default: one of its own)",
	  set_session },
	{ "tool", 't', "ID", "the functions of this registered tool instead", set_tool },
	{ "socket", 'S', "PATH", "of the daemon (default: $NSBOX_SOCKET)", set_socket },
	{ NULL },
};

static int make_name(struct bridge *b)
{
	unsigned long long raw;

	if (getrandom(&raw, sizeof(raw), 0) != sizeof(raw))
		return -errno;
	snprintf(b->made, sizeof(b->made), "mcp-%016llx", raw);
	b->session = b->made;
	return 0;
}

static int make_path(struct bridge *b, char **ret)
{
	auto_free char *workspace = NULL;

	if (b->tool)
		return asprintf(ret, "/mcp/tools/%s", b->tool) < 0 ? -ENOMEM : 0;
	if (!b->session && make_name(b) < 0)
		return -ENOMEM;
	workspace = path_encode(b->workspace ? b->workspace : "default");
	if (!workspace || strchr(workspace, '/'))
		return -EINVAL;
	return asprintf(ret, "/mcp/%s/%s", workspace, b->session) < 0 ? -ENOMEM : 0;
}

int cmd_mcp(int argc, char **argv)
{
	struct bridge b = { .lock = PTHREAD_MUTEX_INITIALIZER,
			    .answered = PTHREAD_COND_INITIALIZER };
	struct nsbox_error err = { 0 };
	auto_free char *path = NULL;
	sigset_t set;
	int r = cli_options(argc, argv, "nsbox mcp [OPTION...]", rows, &b);

	if (r >= 0)
		return r;
	if (argv[optind])
		return cli_usage("unexpected argument '%s'", argv[optind]);
	if (b.tool && (b.session || b.workspace))
		return cli_usage("--tool goes without --session and --workspace");
	if (make_path(&b, &path) < 0)
		return cli_usage("'%s' cannot be a workspace here", b.workspace);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (pthread_create(&b.signals, NULL, on_signals, &b) != 0)
		return cli_usage("out of memory");
	if (client_lines(ask_socket(b.socket), "GET", path, NULL, on_line, &b, &err) < 0)
		cli_error(&err);
	else if (b.status == 200)
		fprintf(stderr, "nsbox: the daemon ended the connection\n");
	finish(&b, EXIT_NSBOX);
	return EXIT_NSBOX;
}
