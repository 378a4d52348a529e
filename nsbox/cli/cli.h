/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line tool. main.c has the table of commands; each command is a file with its own
 * option table. Only here is anything printed, and only here does a process exit.
 */
#ifndef NSBOX_CLI_H
#define NSBOX_CLI_H

#include <getopt.h>
#include <nsbox/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Exit status of nsbox's own failures; below 125 it is the program's. As env(1) and timeout(1). */
#define EXIT_NSBOX 125
#define EXIT_USAGE 125

struct command {
	const char *name;
	int (*run)(int argc, char **argv); /* argv[0] is the command's name; returns exit status */
	const char *summary;
};
extern const struct command commands[]; /* ends with a NULL name */

int cmd_run(int argc, char **argv);
int cmd_shell(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_job(int argc, char **argv);
int cmd_session(int argc, char **argv);
int cmd_daemon(int argc, char **argv);
int cmd_audit(int argc, char **argv);
int cmd_policy(int argc, char **argv);
int cmd_mcp(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_skill(int argc, char **argv);
int cmd_selftest(int argc, char **argv); /* selftest/ */
int cmd_image(int argc, char **argv);

/* One option of a command: the table is both what getopt_long gets and what --help prints. */
struct option_row {
	const char *name;
	char letter;	      /* 0: long only */
	const char *argument; /* NULL: none; shown in --help */
	const char *help;
	int (*set)(void *ctx, const char *value); /* 0, or an exit status after a message */
};

/*
 * Parse argv by the table (which ends with a NULL name). --help is handled. Returns -1 and leaves
 * optind at the first operand, or an exit status.
 */
int cli_options(int argc, char **argv, const char *usage, const struct option_row *rows, void *ctx);

/*
 * Run the verb that argv[1] names, or print what there are, with `more` ("" or lines) below. The
 * table ends with a NULL name.
 */
int cli_verbs(int argc, char **argv, const char *command, const struct command *verbs,
	      const char *more);

/* "nsbox: message", with the error's code and remedy; returns EXIT_NSBOX. */
int cli_error(const struct nsbox_error *err);
int cli_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A file of at most max bytes, NUL-terminated (malloc'd); "-" is standard input. */
int cli_read_file(const char *path, size_t max, char **ret, size_t *ret_len,
		  struct nsbox_error *err);
/* A shell's argv: the better one where there are two; interactive where it has a terminal. */
extern char *cli_shell[];
/* Path of a helper program: beside this one in a build tree, else the installed one. */
const char *cli_libexec(const char *name, char *buf, int size);

#endif
