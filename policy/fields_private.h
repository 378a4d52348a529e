/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that print the table of fields. */
#ifndef POLICY_FIELDS_PRIVATE_H
#define POLICY_FIELDS_PRIVATE_H

#include <stdbool.h>
#include <stdio.h>

#include "policy/json_strict.h"

enum fields_kind {
	KIND_STRING,
	KIND_STRINGS,
	KIND_BOOL,
	KIND_NUMBER,
	KIND_NUMBERS,
	KIND_CHOICE,
	KIND_BYTES,
	KIND_CPU,
	KIND_MS,
	KIND_MEMBERS,
	KIND_LIST,
	KIND_MAP,
	KIND_ANYOBJECT,
	KIND_ANY,
};

enum fields_kind fields_kind(const struct json_field *f);
int fields_schema(FILE *to, struct nsbox_error *err);
/* Takes o. */
int fields_write(FILE *to, struct json_object *o, bool failed, struct nsbox_error *err);

#endif
