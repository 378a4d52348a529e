/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `nsbox top`: what the daemon is at. One look is a few requests that anybody may make and that
 * show to each what is theirs; on a terminal it is looked again and again, until 'q'.
 *
 * What is shown of others' choosing, names above all, is made printable first.
 */
#include <json-c/json.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/client.h"
#include "nsbox/cli/ask.h"
#include "nsbox/cli/cli.h"
#include "nsbox/util.h"
#include "policy/skill/text.h"

#define RECENT	     12 /* jobs that have ended */
#define HEAD	     '\1'
#define BAD	     '\2'
#define INTERVAL_MAX 3600

struct top {
	const char *socket;
	unsigned interval;
	bool once, json;
	struct json_object *denials; /* by job: a finished one's do not change */
};

/* ------------------------------------------------------------------ looking */

static struct json_object *member(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	if (json_object_is_type(o, json_type_object))
		json_object_object_get_ex(o, key, &v);
	return v;
}

static long long number(struct json_object *o, const char *key)
{
	return json_object_get_int64(member(o, key));
}

/* NULL after a message. */
static struct json_object *ask(const struct top *t, const char *path)
{
	struct answer a = { 0 };
	struct json_object *o = NULL;

	if (ask_daemon(t->socket, "GET", path, NULL, &a) == 0)
		o = json_object_get(a.body);
	answer_done(&a);
	return o;
}

/* The numbers without labels of the Prometheus text. */
static struct json_object *read_metrics(const struct top *t)
{
	auto_free char *text = NULL;
	struct json_object *o = json_object_new_object();
	struct nsbox_error err = { 0 };
	size_t len;
	int status;

	if (client_request(ask_socket(t->socket), "GET", "/metrics", NULL, 0, &status, &text, &len,
			   &err) < 0)
		return o;
	for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
		char *space = strchr(line, ' ');

		if (*line == '#' || !space || strchr(line, '{') || strchr(space, '.'))
			continue;
		*space = 0;
		json_object_object_add(o, line,
				       json_object_new_int64(strtoll(space + 1, NULL, 10)));
	}
	return o;
}

/* What was refused to a job that has ended: its receipt says so. */
static struct json_object *denials_of(struct top *t, const char *id)
{
	struct json_object *found = member(t->denials, id), *receipt;
	auto_free char *path = NULL, *text = NULL;
	struct nsbox_error err = { 0 };
	size_t len;
	int status;

	if (found)
		return json_object_get(found);
	if (asprintf(&path, "/v1/receipts/%s", id) < 0 ||
	    client_request(ask_socket(t->socket), "GET", path, NULL, 0, &status, &text, &len,
			   &err) < 0)
		return json_object_new_array();
	receipt = json_tokener_parse(text);
	found = member(receipt, "denials") ? json_object_get(member(receipt, "denials"))
					   : json_object_new_array();
	json_object_put(receipt);
	json_object_object_add(t->denials, id, json_object_get(found));
	return found;
}

static void add_jobs(struct top *t, struct json_object *look, struct json_object *jobs)
{
	struct json_object *alive = json_object_new_array(), *recent = json_object_new_array();
	size_t n = json_object_is_type(jobs, json_type_array) ? json_object_array_length(jobs) : 0;

	for (size_t i = 0; i < n; i++) {
		struct json_object *j = json_object_array_get_idx(jobs, i);
		const char *state = answer_text(j, "state"), *id = answer_text(j, "id");

		if (!state || !id)
			continue;
		if (strcmp(state, "finished") != 0) {
			json_object_array_add(alive, json_object_get(j));
		} else if (json_object_array_length(recent) < RECENT) {
			json_object_object_add(j, "denials", denials_of(t, id));
			json_object_array_add(recent, json_object_get(j));
		}
	}
	json_object_object_add(look, "jobs", alive);
	json_object_object_add(look, "recent", recent);
}

static struct json_object *take_look(struct top *t)
{
	struct json_object *look = json_object_new_object(), *jobs = NULL, *sessions = NULL;
	struct json_object *service = ask(t, "/v1/capabilities"), *o;

	if (service)
		jobs = ask(t, "/v1/jobs");
	if (jobs)
		sessions = ask(t, "/v1/sessions");
	if (!sessions) {
		json_object_put(service);
		json_object_put(jobs);
		json_object_put(look);
		return NULL;
	}
	o = json_object_new_object();
	json_object_object_add(o, "version", json_object_get(member(service, "version")));
	json_object_object_add(o, "tier", json_object_get(member(service, "tier")));
	json_object_object_add(o, "socket", json_object_new_string(ask_socket(t->socket)));
	json_object_object_add(look, "service", o);
	json_object_object_add(look, "metrics", read_metrics(t));
	json_object_object_add(look, "sessions", json_object_get(member(sessions, "sessions")));
	add_jobs(t, look, member(jobs, "jobs"));
	json_object_put(service);
	json_object_put(jobs);
	json_object_put(sessions);
	return look;
}

/* ------------------------------------------------------------------ as text */

static void put_cell(FILE *f, struct json_object *o, const char *key, int width)
{
	const char *text = answer_text(o, key);
	auto_free char *shown = text_shown(text ? text : "", text ? strlen(text) : 0);

	fprintf(f, "%-*.*s ", width, width, shown && *shown ? shown : "-");
}

static long long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void put_age(FILE *f, long long since_ms)
{
	long long s = since_ms ? (now_ms() - since_ms) / 1000 : 0;

	if (s < 100)
		fprintf(f, "%4llds ", s);
	else if (s < 6000)
		fprintf(f, "%4lldm ", s / 60);
	else
		fprintf(f, "%4lldh ", s / 3600);
}

static void put_service(FILE *f, struct json_object *look)
{
	struct json_object *s = member(look, "service"), *m = member(look, "metrics");

	fprintf(f, "%cnsboxd %s, tier %s: %lld of %lld runners at work, %lld of %lld jobs wait\n",
		HEAD, answer_text(s, "version"), answer_text(s, "tier"),
		number(m, "nsbox_jobs_running"), number(m, "nsbox_runners"),
		number(m, "nsbox_queue_waiting"), number(m, "nsbox_queue_max"));
	fprintf(f,
		"%lld sandboxes alive, %lld sessions; denied: %lld calls, %lld connections, "
		"%lld requests\n",
		number(m, "nsbox_sandboxes_alive"), number(m, "nsbox_sessions"),
		number(m, "nsbox_denied_calls_total"), number(m, "nsbox_denied_network_total"),
		number(m, "nsbox_requests_denied_total"));
}

static size_t length(struct json_object *list)
{
	return json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
}

static void put_alive(FILE *f, struct json_object *list)
{
	fprintf(f, "\n%c%-22s %-16s %-16s %-8s %5s\n", HEAD, "JOB", "WORKSPACE", "KIND", "STATE",
		"FOR");
	for (size_t i = 0; i < length(list); i++) {
		struct json_object *j = json_object_array_get_idx(list, i);

		put_cell(f, j, "id", 22);
		put_cell(f, j, "workspace_id", 16);
		put_cell(f, j, "kind", 16);
		put_cell(f, j, "state", 8);
		put_age(f, number(j, number(j, "started_ms") ? "started_ms" : "created_ms"));
		fputc('\n', f);
	}
}

static void put_sessions(FILE *f, struct json_object *list)
{
	fprintf(f, "\n%c%-22s %-16s %-16s %8s %8s\n", HEAD, "SESSION", "WORKSPACE", "STATE",
		"RUNNING", "COMMANDS");
	for (size_t i = 0; i < length(list); i++) {
		struct json_object *s = json_object_array_get_idx(list, i);

		put_cell(f, s, "id", 22);
		put_cell(f, s, "workspace_id", 16);
		put_cell(f, s, "state", 16);
		fprintf(f, "%8lld %8lld\n", number(s, "running"), number(s, "commands"));
	}
}

/* The first is told, and how many more there are. */
static void put_denials(FILE *f, struct json_object *list)
{
	struct json_object *first = length(list) ? json_object_array_get_idx(list, 0) : NULL;
	const char *what = answer_text(first, "what"), *name = answer_text(first, "name");
	auto_free char *shown = NULL;

	if (!first)
		return;
	name = name ? name : answer_text(first, "pointer");
	shown = text_shown(name ? name : "", name ? strlen(name) : 0);
	fprintf(f, "%s %s", what ? what : "refused", shown ? shown : "");
	if (length(list) > 1)
		fprintf(f, ", and %zu more", length(list) - 1);
}

static void put_recent(FILE *f, struct json_object *list)
{
	fprintf(f, "\n%c%-22s %-16s %-16s %-12s %5s DENIED\n", HEAD, "ENDED", "WORKSPACE", "KIND",
		"CAUSE", "AGO");
	for (size_t i = 0; i < length(list); i++) {
		struct json_object *j = json_object_array_get_idx(list, i);
		const char *cause = answer_text(j, "cause");

		if (!cause || strcmp(cause, "exit") != 0)
			fputc(BAD, f);
		put_cell(f, j, "id", 22);
		put_cell(f, j, "workspace_id", 16);
		put_cell(f, j, "kind", 16);
		put_cell(f, j, "cause", 12);
		put_age(f, number(j, "finished_ms"));
		put_denials(f, member(j, "denials"));
		fputc('\n', f);
	}
}

static char *as_text(struct json_object *look)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	put_service(f, look);
	put_alive(f, member(look, "jobs"));
	put_sessions(f, member(look, "sessions"));
	put_recent(f, member(look, "recent"));
	fclose(f);
	return text;
}

/* Lines, without their marks; on a terminal with what these stand for. */
static void print(char *text, bool colours, unsigned max)
{
	unsigned n = 0;

	for (char *rest = text, *line; (line = strsep(&rest, "\n")) && rest; n++) {
		bool marked = *line == HEAD || *line == BAD;

		if (n == max)
			break;
		if (marked && colours)
			fputs(*line == HEAD ? "\033[1m" : "\033[31m", stdout);
		fputs(line + marked, stdout);
		fputs(colours ? "\033[0m\033[K\r\n" : "\n", stdout);
	}
}

static int look_once(struct top *t)
{
	struct json_object *look = take_look(t);
	auto_free char *text = NULL;

	if (!look)
		return EXIT_NSBOX;
	if (t->json) {
		puts(json_object_to_json_string_ext(look, JSON_C_TO_STRING_PLAIN |
								  JSON_C_TO_STRING_NOSLASHESCAPE));
	} else {
		text = as_text(look);
		print(text, false, UINT32_MAX);
	}
	json_object_put(look);
	return 0;
}

/* ------------------------------------------------------------------ on a terminal */

static unsigned rows_of_terminal(void)
{
	struct winsize w = { 0 };

	return ioctl(1, TIOCGWINSZ, &w) == 0 && w.ws_row > 2 ? w.ws_row : 24;
}

static int draw(struct top *t)
{
	struct json_object *look = take_look(t);
	auto_free char *text = NULL;

	if (!look)
		return EXIT_NSBOX;
	text = as_text(look);
	json_object_put(look);
	fputs("\033[H", stdout);
	print(text, true, rows_of_terminal() - 1);
	fputs("\033[J\033[2mq: quit\033[0m", stdout);
	fflush(stdout);
	return 0;
}

/* 1: go on; 0: the end. Any key but 'q' looks again at once. */
static int wait_for(int signals, unsigned seconds)
{
	struct pollfd fds[] = { { .fd = 0, .events = POLLIN },
				{ .fd = signals, .events = POLLIN } };
	struct signalfd_siginfo info;
	char c;

	if (poll(fds, 2, (int)seconds * 1000) < 0 && errno != EINTR)
		return 0;
	if (fds[1].revents && read(signals, &info, sizeof(info)) == sizeof(info))
		return info.ssi_signo == SIGWINCH;
	if (fds[0].revents)
		return read(0, &c, 1) == 1 && c != 'q' && c != 3;
	return 1;
}

static int look_on(struct top *t)
{
	struct termios old, raw;
	auto_close int signals = -1;
	sigset_t set;
	int r;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGWINCH);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signals = signalfd(-1, &set, SFD_CLOEXEC);
	if (signals < 0 || tcgetattr(0, &old) < 0)
		return cli_usage("this terminal cannot be used; see --once");
	raw = old;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	tcsetattr(0, TCSANOW, &raw);
	fputs("\033[?1049h\033[?25l\033[?7l", stdout);
	do {
		r = draw(t);
	} while (r == 0 && wait_for(signals, t->interval));
	fputs("\033[?7h\033[?25h\033[?1049l", stdout);
	fflush(stdout);
	tcsetattr(0, TCSANOW, &old);
	return r ? look_once(t) : 0; /* what went wrong was told on a screen that is gone */
}

/* ------------------------------------------------------------------ command */

static int set_once(void *ctx, const char *value)
{
	((struct top *)ctx)->once = true;
	return 0;
}

static int set_json(void *ctx, const char *value)
{
	((struct top *)ctx)->json = true;
	return 0;
}

static int set_socket(void *ctx, const char *value)
{
	((struct top *)ctx)->socket = value;
	return 0;
}

static int set_interval(void *ctx, const char *value)
{
	uint64_t s;

	if (!parse_u64(value, &s) || s < 1 || s > INTERVAL_MAX)
		return cli_usage("--interval: '%s' is no number of seconds from 1 to %d", value,
				 INTERVAL_MAX);
	((struct top *)ctx)->interval = (unsigned)s;
	return 0;
}

static const struct option_row rows[] = {
	{ "once", '1', NULL, "one look; so where standard output is no terminal", set_once },
	{ "json", 'j', NULL, "one look, as JSON", set_json },
	{ "interval", 'i', "SECONDS", "between two looks (default 2)", set_interval },
	{ "socket", 'S', "PATH", "of the daemon (default: $NSBOX_SOCKET)", set_socket },
	{ NULL },
};

int cmd_top(int argc, char **argv)
{
	struct top t = { .interval = 2 };
	int r = cli_options(argc, argv, "nsbox top [OPTION...]", rows, &t);

	if (r >= 0)
		return r;
	if (argv[optind])
		return cli_usage("unexpected argument '%s'", argv[optind]);
	t.denials = json_object_new_object();
	r = t.once || t.json || !isatty(0) || !isatty(1) ? look_once(&t) : look_on(&t);
	json_object_put(t.denials);
	return r;
}
