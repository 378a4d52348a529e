/* SPDX-License-Identifier: Apache-2.0 */
/* Between explain.c, which finds out, and explain_text.c, which writes it for people. */
#ifndef POLICY_EXPLAIN_H
#define POLICY_EXPLAIN_H

#include <stdbool.h>
#include <stdio.h>

struct json_object;

/* Is there a row of diff.c for this member of the canonical form? */
bool diff_knows(const char *pointer);

void explain_print(struct json_object *o, FILE *to);

#endif
