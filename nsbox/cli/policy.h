/* SPDX-License-Identifier: Apache-2.0 */
/* `nsbox policy`: commands over manifests and plans; policy.c has the table of them. */
#ifndef NSBOX_CLI_POLICY_H
#define NSBOX_CLI_POLICY_H

#include <nsbox/host.h>
#include <nsbox/policy.h>

#include "nsbox/cli/cli.h"

struct policy_options {
	bool json, all_profiles, function, fail_on_widening;
	const char *profile, *ceiling, *output, *image, *why, *skill;
	const char *machine; /* of an import */
	/* made from them */
	struct nsbox_host host;
	struct nsbox_ceiling limits;
	bool has_limits;
};

/*
 * Options may stand before and after operands. Returns -1 with at most `max` operands in *ret (and
 * how many), or an exit status.
 */
int policy_options(int argc, char **argv, const char *usage, const struct option_row *rows,
		   struct policy_options *o, unsigned min, unsigned max, const char **ret,
		   unsigned *ret_n);
extern const struct option_row policy_rows_common[];

enum nsbox_report policy_form(const struct policy_options *o);
/* Probe the host and read the ceiling. 0, or an exit status after a message. */
int policy_prepare(struct policy_options *o);
struct nsbox_resolve_options policy_resolve_options(const struct policy_options *o);

/* The text of a manifest: a file, a directory's skill.json, or the profile that --profile names.
 * *ret NULL: the default one (a directory without a skill.json). */
int policy_read(const struct policy_options *o, const char *path, char **ret, size_t *ret_len,
		struct nsbox_error *err);
/* From text to policy; errors name the path. */
int policy_make(const struct policy_options *o, const char *path, struct nsbox_policy **ret,
		struct nsbox_error *err);
/* Print and free a report; returns status, or an exit status of its own. */
int policy_print(char *text, int status);

int policy_cmd_lint(int argc, char **argv);
int policy_cmd_explain(int argc, char **argv);
int policy_cmd_diff(int argc, char **argv);
int policy_cmd_prove(int argc, char **argv);
int policy_cmd_compile(int argc, char **argv);
int policy_cmd_show(int argc, char **argv);
int policy_cmd_import(int argc, char **argv);
int policy_cmd_fields(int argc, char **argv);

#endif
