/* SPDX-License-Identifier: Apache-2.0 */
/* `nsbox skill`: check (skill_check.c), init (skill_init.c), test (skill_test.c). */
#ifndef NSBOX_CLI_SKILL_H
#define NSBOX_CLI_SKILL_H

#include "nsbox/cli/cli.h"
#include "policy/skill/skill.h"

int skill_cmd_check(int argc, char **argv);
int skill_cmd_init(int argc, char **argv);
int skill_cmd_test(int argc, char **argv);

/* Options before and after the one operand, the skill's directory (NULL: none). -1, or an exit
 * status. */
int skill_options(int argc, char **argv, const char *usage, const struct option_row *rows,
		  void *ctx, const char **ret_dir);
/* -1 after a message; dir may be NULL. */
int skill_open_dir(const char *dir);
/* Findings as text for people, those of the whole skill first. */
void skill_print(FILE *to, const struct skill_report *rep);

#endif
