/* SPDX-License-Identifier: Apache-2.0 */
/* `nsbox policy compile`, `show`, `fields`. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "nsbox/cli/policy.h"
#include "nsbox/util.h"
#include "policy/fields.h"

static int set_output(void *ctx, const char *v)
{
	((struct policy_options *)ctx)->output = v;
	return 0;
}

static const struct option_row compile_rows[] = {
	{ "output", 'o', "PLAN", "where the plan goes", set_output },
	{ NULL, 0, NULL, NULL, NULL },
};

static int write_plan(int plan_fd, const char *path, struct nsbox_error *err)
{
	auto_close int out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	char buf[65536];
	off_t at = 0;
	ssize_t n;

	if (out < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open '%s'", path);
	while ((n = pread(plan_fd, buf, sizeof(buf), at)) > 0) {
		int r = write_full(out, buf, (size_t)n);

		if (r < 0)
			return nsbox_fail(err, NSBOX_E_IO, -r, "write '%s'", path);
		at += n;
	}
	return n < 0 ? nsbox_fail(err, NSBOX_E_IO, errno, "read the plan") : 0;
}

int policy_cmd_compile(int argc, char **argv)
{
	struct policy_options o = { .profile = NULL };
	struct nsbox_policy *p = NULL;
	struct nsbox_error err = { 0 };
	const char *path = NULL;
	unsigned n;
	int fd = -1, r = policy_options(argc, argv, "nsbox policy compile [OPTION...] FILE -o PLAN",
					compile_rows, &o, 1, 1, &path, &n);

	if (r >= 0)
		return r;
	if (!o.output)
		return cli_usage("compile: -o PLAN says where the plan goes");
	r = policy_prepare(&o);
	if (r)
		return r;
	r = policy_make(&o, path, &p, &err);
	if (r == 0) {
		r = nsbox_policy_compile(p, &fd, &err);
		if (r < 0 && path)
			nsbox_error_prefix(&err, "%s", path);
	}
	if (r == 0)
		r = write_plan(fd, o.output, &err);
	close_fd(&fd);
	nsbox_policy_free(p);
	return r < 0 ? cli_error(&err) : 0;
}

/* ------------------------------------------------------------------ show */

/* A file can change under its reader: it becomes a sealed copy first, as any plan must be. */
static int open_plan(const char *path, struct nsbox_plan **ret, struct nsbox_error *err)
{
	auto_free char *bytes = NULL;
	auto_close int fd = -1;
	size_t len;
	int r = cli_read_file(path, NSBOX_PLAN_MAX, &bytes, &len, err);

	if (r < 0)
		return r;
	fd = make_memfd("nsbox-plan", bytes, len, true);
	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, -fd, "copy '%s'", path);
	r = nsbox_plan_open(fd, ret, err);
	if (r < 0)
		nsbox_error_prefix(err, "%s", path);
	return r;
}

int policy_cmd_show(int argc, char **argv)
{
	struct policy_options o = { .profile = NULL };
	struct nsbox_plan *plan = NULL;
	struct nsbox_error err = { 0 };
	const char *path = NULL;
	unsigned n;
	char *text;
	int r = policy_options(argc, argv, "nsbox policy show [--json] PLAN", NULL, &o, 1, 1, &path,
			       &n);

	if (r >= 0)
		return r;
	if (!path)
		return cli_usage("show takes the file of a plan");
	r = open_plan(path, &plan, &err);
	if (r == 0)
		r = nsbox_plan_show(plan, policy_form(&o), &text, &err);
	nsbox_plan_close(plan);
	return r < 0 ? cli_error(&err) : policy_print(text, 0);
}

/* ------------------------------------------------------------------ fields */

struct fields_options {
	enum fields_format format;
};

static int set_format(void *ctx, const char *v)
{
	static const char *const words[] = { [FIELDS_TEXT] = "text",
					     [FIELDS_JSON] = "json",
					     [FIELDS_SCHEMA] = "schema",
					     [FIELDS_MDOC] = "mdoc" };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (!strcmp(v, words[i])) {
			((struct fields_options *)ctx)->format = (enum fields_format)i;
			return 0;
		}
	return cli_usage("--format takes text, json, schema or mdoc, not '%s'", v);
}

static int set_fields_json(void *ctx, const char *v)
{
	return set_format(ctx, "json");
}

static const struct option_row fields_rows[] = {
	{ "json", 'j', NULL, "as --format json", set_fields_json },
	{ "format", 'F', "FORMAT", "text, json, schema (JSON Schema 2020-12) or mdoc", set_format },
	{ NULL, 0, NULL, NULL, NULL },
};

int policy_cmd_fields(int argc, char **argv)
{
	struct fields_options o = { FIELDS_TEXT };
	struct nsbox_error err = { 0 };
	int r = cli_options(argc, argv, "nsbox policy fields [--format FORMAT]", fields_rows, &o);

	if (r >= 0)
		return r;
	if (argv[optind])
		return cli_usage("fields takes no operand: '%s'", argv[optind]);
	r = policy_fields_print(stdout, o.format, &err);
	if (r < 0)
		return cli_error(&err);
	return fflush(stdout) != 0 || ferror(stdout) ? EXIT_NSBOX : 0;
}
