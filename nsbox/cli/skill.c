/* SPDX-License-Identifier: Apache-2.0 */
/* `nsbox skill`: the table of its commands, and what they share. */
#include "nsbox/cli/skill.h"

#include <fcntl.h>
#include <string.h>

#include "nsbox/cli/run.h"
#include "nsbox/util.h"

/* `nsbox skill run DIR [ENTRY] [-- ARG...]`: `nsbox run --skill` with fewer signs. */
static int skill_cmd_run(int argc, char **argv)
{
	auto_free char **v = calloc((size_t)argc + 5, sizeof(*v));
	struct run_options opt;
	int n = 0, i = 2, r;

	if (argc < 2 || *argv[1] == '-')
		return cli_usage("usage: nsbox skill run DIR [ENTRY] [-- ARG...]");
	if (!v)
		return cli_usage("out of memory");
	v[n++] = (char *)"run";
	v[n++] = (char *)"--skill";
	v[n++] = argv[1];
	if (i < argc && *argv[i] != '-') {
		v[n++] = (char *)"--entry";
		v[n++] = argv[i++];
	}
	if (i < argc && strcmp(argv[i], "--") != 0)
		return cli_usage("arguments of the program follow `--`; for options see `nsbox run "
				 "--help`");
	for (; i < argc; i++)
		v[n++] = argv[i];
	v[n] = NULL;
	r = run_parse(n, v, &opt);
	return r >= 0 ? r : run_main(&opt, true);
}

static const struct command skill_commands[] = {
	{ "check", skill_cmd_check,
	  "what would keep it from running: programs, libraries, scripts" },
	{ "init", skill_cmd_init, "write a first skill.json from what the directory holds" },
	{ "test", skill_cmd_test, "run the tests of its skill.json" },
	{ "run", skill_cmd_run, "run an entry point: DIR [ENTRY] [-- ARG...]" },
	{ NULL, NULL, NULL },
};

int cmd_skill(int argc, char **argv)
{
	return cli_verbs(
		argc, argv, "skill", skill_commands,
		"\nEach takes a DIR. Exit status of check and test: 0 in order, 1 not, 125 nsbox\n"
		"itself failed.\n");
}

int skill_options(int argc, char **argv, const char *usage_text, const struct option_row *rows,
		  void *ctx, const char **ret_dir)
{
	*ret_dir = NULL;
	for (;;) {
		int r = cli_options(argc, argv, usage_text, rows, ctx);

		if (r >= 0)
			return r;
		if (optind >= argc)
			break;
		if (*ret_dir)
			return cli_usage("one directory at a time: '%s'", argv[optind]);
		*ret_dir = argv[optind];
		argv[optind] = argv[0]; /* options may follow */
		argc -= optind;
		argv += optind;
	}
	return -1;
}

int skill_open_dir(const char *dir)
{
	int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	struct nsbox_error err = { 0 };

	if (!dir) {
		cli_usage("which directory? See `nsbox skill --help`");
	} else if (fd < 0) {
		nsbox_fail(&err, NSBOX_E_IO, errno, "open the directory '%s'", dir);
		cli_error(&err);
	}
	return fd;
}

void skill_print(FILE *to, const struct skill_report *rep)
{
	for (size_t i = 0; i < rep->n; i++) {
		const struct skill_finding *f = &rep->list[i];

		fprintf(to, "%-8s %s%s%s [%s]\n",
			f->fixed ? "fixed" : skill_severity_name(f->severity), f->path,
			*f->path ? ": " : "", f->message, skill_finding_name(f->id));
		if (f->remedy && !f->fixed)
			fprintf(to, "%-8s %s\n", "", f->remedy);
	}
	if (rep->left_out)
		fprintf(to, "%zu more are not shown\n", rep->left_out);
}
