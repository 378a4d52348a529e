/* SPDX-License-Identifier: Apache-2.0 */
#include "nsbox/cli/cli.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "nsbox/util.h"
#include "policy/skill/text.h"

const struct command commands[] = {
	{ "run", cmd_run, "run a program, a skill or a Python function in a fresh sandbox" },
	{ "shell", cmd_shell, "the same with a shell, to look around" },
	{ "job", cmd_job, "have nsboxd run it: run, submit, list, show, wait, logs, cancel" },
	{ "session", cmd_session, "sandboxes that nsboxd keeps: create, exec, list, info, delete" },
	{ "daemon", cmd_daemon, "status, drain, reload: the service itself" },
	{ "mcp", cmd_mcp, "tools for a language model's client, over standard input and output" },
	{ "top", cmd_top, "sandboxes, queue and refusals of nsboxd, live" },
	{ "skill", cmd_skill, "look at, begin, test a skill: check, init, test, run" },
	{ "policy", cmd_policy, "lint, explain, diff, prove, compile: what a manifest allows" },
	{ "image", cmd_image, "roots for runs: import, list, inspect, rm, gc" },
	{ "audit", cmd_audit, "verify: is the daemon's audit whole?" },
	{ "selftest", cmd_selftest, "try to break out of a sandbox, layer by layer" },
	{ "doctor", cmd_doctor, "what this host can enforce, and what is missing" },
	{ NULL, NULL, NULL },
};

char *cli_shell[] = { (char *)"/bin/sh", (char *)"-c",
		      (char *)"command -v bash >/dev/null && exec bash; exec sh", NULL };

int cli_error(const struct nsbox_error *err)
{
	const char *msg = err->msg[0] ? err->msg : nsbox_error_code_name(err->code);
	auto_free char *shown = text_shown(msg, strlen(msg)); /* it may quote a payload's name */

	fprintf(stderr, "nsbox: %s", shown ? shown : "out of memory");
	if (err->stage != NSBOX_STAGE_NONE)
		fprintf(stderr, " [%s]", nsbox_stage_name(err->stage));
	fputc('\n', stderr);
	return EXIT_NSBOX;
}

int cli_usage(const char *fmt, ...)
{
	va_list ap;

	fputs("nsbox: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return EXIT_USAGE;
}

int cli_read_file(const char *path, size_t max, char **ret, size_t *ret_len,
		  struct nsbox_error *err)
{
	/* Not blocking: a FIFO that someone named like a file must not hold us up. */
	auto_close int fd = strcmp(path, "-")
				    ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
				    : dup(0);
	auto_free char *buf = malloc(max + 1);
	struct stat st;
	size_t len = 0;

	if (fd < 0 || fstat(fd, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open '%s'", path);
	if (strcmp(path, "-") && !S_ISREG(st.st_mode))
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "'%s' is not a regular file", path);
	if (!buf)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read '%s'", path);
	while (len <= max) {
		ssize_t n = read(fd, buf + len, max + 1 - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return nsbox_fail(err, NSBOX_E_IO, errno, "read '%s'", path);
		if (n == 0) {
			buf[len] = '\0';
			*ret = take_ptr(&buf);
			*ret_len = len;
			return 0;
		}
		len += (size_t)n;
	}
	return nsbox_fail(err, NSBOX_E_LIMIT, EFBIG, "read '%s' (at most %zu bytes)", path, max);
}

/* Beside us in a build; below our own prefix where an installation was moved, as a bundle is. */
static const char *const libexec_places[] = { "", "/../lib/nsbox" };

const char *cli_libexec(const char *name, char *buf, int size)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n > 0) {
		char *slash;

		self[n] = '\0';
		slash = strrchr(self, '/');
		if (slash) {
			*slash = '\0';
			for (size_t i = 0; i < ARRAY_SIZE(libexec_places); i++) {
				nsbox_format(buf, size, "%s%s/%s", self, libexec_places[i], name);
				if (access(buf, X_OK) == 0)
					return buf;
			}
		}
	}
	nsbox_format(buf, size, NSBOX_LIBEXECDIR "/%s", name);
	return buf;
}

/* ------------------------------------------------------------------ options */

#define OPTIONS_MAX 40

static void print_help(const char *usage, const struct option_row *rows)
{
	printf("Usage: %s\n", usage);
	if (rows->name)
		printf("\nOptions:\n");
	for (; rows->name; rows++) {
		char left[64];

		snprintf(left, sizeof(left), "%s%c%s--%s%s%s", rows->letter ? "-" : "  ",
			 rows->letter ? rows->letter : ' ', rows->letter ? ", " : "  ", rows->name,
			 rows->argument ? " " : "", rows->argument ? rows->argument : "");
		printf("  %-30s %s\n", left, rows->help);
	}
	printf("  %-30s %s\n", "-h, --help", "this text");
}

static int parse_options(int argc, char **argv, const char *usage, const struct option_row *rows,
			 void *ctx)
{
	struct option longs[OPTIONS_MAX] = { 0 };
	char shorts[2 * OPTIONS_MAX + 4] = "+h"; /* '+': the program's own options are its own */
	size_t at = 2;
	int n = 0, c;

	for (; n < OPTIONS_MAX - 2 && rows[n].name; n++) {
		longs[n] = (struct option){ rows[n].name,
					    rows[n].argument ? required_argument : no_argument,
					    NULL, 1000 + n };
		if (rows[n].letter)
			shorts[at++] = rows[n].letter;
		if (rows[n].letter && rows[n].argument)
			shorts[at++] = ':';
	}
	longs[n] = (struct option){ "help", no_argument, NULL, 'h' };
	optind = 1;
	while ((c = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		int row = c - 1000, r;

		if (c == 'h') {
			print_help(usage, rows);
			return 0;
		}
		if (c == '?')
			return cli_usage("try `%s --help`", argv[0]);
		for (int i = 0; c < 1000 && i < n; i++)
			if (rows[i].letter == c)
				row = i;
		r = rows[row].set(ctx, optarg);
		if (r)
			return r;
	}
	return -1;
}

int cli_options(int argc, char **argv, const char *usage, const struct option_row *rows, void *ctx)
{
	char name[64], *own = argv[0];
	int r, n = (int)strcspn(usage, "[-ABCDEFGHIJKLMNOPQRSTUVWXYZ");

	/* "nsbox job run [OPTION...] ..." -> "nsbox job run": what getopt puts before its messages. */
	snprintf(name, sizeof(name), "%.*s", n > 0 ? n - 1 : 0, usage);
	argv[0] = name;
	r = parse_options(argc, argv, usage, rows, ctx);
	argv[0] = own;
	return r;
}

/* ------------------------------------------------------------------ verbs of a command */

static int verbs_usage(FILE *to, const char *command, const struct command *verbs, const char *more)
{
	fprintf(to, "Usage: nsbox %s VERB [OPTION...]\n\nVerbs:\n", command);
	for (const struct command *v = verbs; v->name; v++)
		fprintf(to, "  %-10s %s\n", v->name, v->summary);
	fprintf(to, "\n  nsbox %s VERB --help   options of a verb\n%s", command, more);
	return to == stdout ? 0 : EXIT_USAGE;
}

int cli_verbs(int argc, char **argv, const char *command, const struct command *verbs,
	      const char *more)
{
	if (argc < 2)
		return verbs_usage(stderr, command, verbs, more);
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return verbs_usage(stdout, command, verbs, more);
	for (const struct command *v = verbs; v->name; v++)
		if (!strcmp(v->name, argv[1]))
			return v->run(argc - 1, argv + 1);
	return cli_usage("unknown verb '%s %s'; see `nsbox %s --help`", command, argv[1], command);
}

/* ------------------------------------------------------------------ main */

static int usage(FILE *to)
{
	fprintf(to, "Usage: nsbox COMMAND [OPTION...]\n\nCommands:\n");
	for (const struct command *c = commands; c->name; c++)
		fprintf(to, "  %-10s %s\n", c->name, c->summary);
	fprintf(to,
		"\n  nsbox COMMAND --help    options of a command\n"
		"  nsbox --version         version and build\n\n"
		"Exit status: the program's own; 128+N after signal N; 126 and 127 where it could\n"
		"not be started; 125 where nsbox itself failed.\n");
	return to == stdout ? 0 : EXIT_USAGE;
}

/*
 * All that may be had: descriptors in flight between the processes of a run count against the user
 * whose run it is, and we could send none of ours if they were as many as we may have open.
 */
static void raise_open_files(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
		l.rlim_cur = l.rlim_max;
		setrlimit(RLIMIT_NOFILE, &l);
	}
}

/* 0, 1 and 2 must be taken: else a descriptor of ours would get the number, and the run's output. */
static void fill_stdio(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	close_fd(&fd);
}

int main(int argc, char **argv)
{
	fill_stdio();
	raise_open_files();
	/* A reader that went away is an error to report, not a death. */
	signal(SIGPIPE, SIG_IGN);
	if (argc < 2)
		return usage(stderr);
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		return usage(stdout);
	if (!strcmp(argv[1], "--version")) {
		printf("nsbox %s\n", NSBOX_VERSION);
		return 0;
	}
	for (const struct command *c = commands; c->name; c++)
		if (!strcmp(c->name, argv[1]))
			return c->run(argc - 1, argv + 1);
	return cli_usage("unknown command '%s'; see `nsbox --help`", argv[1]);
}
