/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `nsbox session shell`: an interactive command of a session, on a terminal of its own where ours
 * is one. The main thread prints the events of the command, another one sends what we read, a third
 * one waits for signals: who ends us ends the connection, and with it the command.
 */
#include "nsbox/cli/session_shell.h"

#include <errno.h>
#include <json-c/json.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/client.h"
#include "nsbox/cli/job_logs.h"
#include "nsbox/util.h"

#define BUSY_MS 50 /* until what the program has not read is sent again */

struct talk {
	const char *socket;
	char *path; /* where input goes */
	bool raw;
	struct termios saved;
	pthread_t input, signals;
};

static void leave_raw(struct talk *t)
{
	if (t->raw)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &t->saved);
	t->raw = false;
}

/* ------------------------------------------------------------------ input */

/* False: nobody takes any more. */
static bool send_piece(struct talk *t, const char *data, size_t len)
{
	const struct timespec pause = { .tv_nsec = BUSY_MS * 1000000L };
	int status;

	do {
		auto_free char *text = NULL;
		struct nsbox_error err = { 0 };
		size_t answer;

		status = 0;
		if (client_request(ask_socket(t->socket), "POST", t->path, data, len, &status,
				   &text, &answer, &err) < 0)
			return false; /* the stream of events ends as well, and says why */
		if (status == 429)
			nanosleep(&pause, NULL);
	} while (status == 429);
	return status == 200;
}

static void *on_input(void *ctx)
{
	struct talk *t = ctx;
	char buf[16384];
	ssize_t n;

	do {
		n = read(STDIN_FILENO, buf, sizeof(buf));
	} while ((n < 0 && errno == EINTR) || (n > 0 && send_piece(t, buf, (size_t)n)));
	if (n <= 0)
		send_piece(t, NULL, 0);
	return NULL;
}

/* The job is there: what we read is for it from now on. */
static void on_begun(void *ctx, const char *job)
{
	struct talk *t = ctx;
	struct termios raw;

	if (!job || asprintf(&t->path, "/v1/jobs/%s/stdin", job) < 0) {
		t->path = NULL;
		return;
	}
	if (t->raw) {
		raw = t->saved;
		cfmakeraw(&raw);
		tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
	}
	if (pthread_create(&t->input, NULL, on_input, t) != 0)
		cli_usage("no thread for what is read");
}

/* ------------------------------------------------------------------ signals */

static void end_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGHUP);
}

static void *on_signals(void *ctx)
{
	sigset_t set;
	int n;

	end_signals(&set);
	sigwait(&set, &n);
	leave_raw(ctx);
	_exit(128 + n);
	return NULL;
}

static int start_signals(struct talk *t)
{
	sigset_t set;

	signal(SIGPIPE, SIG_IGN);
	end_signals(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	return pthread_create(&t->signals, NULL, on_signals, t) ? -EAGAIN : 0;
}

/* ------------------------------------------------------------------ the request */

static void add_terminal(struct talk *t, struct json_object *body)
{
	struct winsize size = { 0 };

	t->raw = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) &&
		 tcgetattr(STDIN_FILENO, &t->saved) == 0;
	if (!t->raw)
		return;
	json_object_object_add(body, "tty", json_object_new_boolean(true));
	if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row && size.ws_col) {
		json_object_object_add(body, "tty_rows", json_object_new_int(size.ws_row));
		json_object_object_add(body, "tty_cols", json_object_new_int(size.ws_col));
	}
}

/* What the other threads use is theirs until the process ends, so it outlives this function. */
static int converse(const struct job_options *o, struct json_object *body)
{
	static struct talk t;
	struct json_object *end = NULL, *result = NULL;
	int r;

	t.socket = o->socket;
	json_object_object_add(body, "interactive", json_object_new_boolean(true));
	add_terminal(&t, body);
	if (start_signals(&t) < 0)
		return cli_usage("no thread for signals");
	r = job_talk_print(o->socket, body, on_begun, &t, &end);
	leave_raw(&t);
	if (r == 0 && json_object_object_get_ex(end, "result", &result))
		r = job_show_result(result);
	json_object_put(end);
	return r;
}

int session_shell(int argc, char **argv)
{
	struct job_options o = { 0 };
	struct json_object *body;
	int r = session_read_line(argc, argv,
				  "nsbox session shell [OPTION...] NAME [--] [PROGRAM [ARG...]]",
				  session_shell_rows, &o);

	if (r >= 0)
		return r;
	argv += optind;
	if (*argv && !strcmp(*argv, "--"))
		argv++;
	body = json_object_new_object();
	r = job_build(&o, *argv ? argv : cli_shell, true, body);
	if (r == 0)
		r = converse(&o, body);
	json_object_put(body);
	cli_inputs_done(&o.inputs);
	return r;
}
