/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is printed from the table of manifest fields: the reference for people and machines, the
 * JSON Schema, the reference section of skill.json(5).
 */
#ifndef POLICY_FIELDS_H
#define POLICY_FIELDS_H

#include <nsbox/error.h>
#include <stdio.h>

enum fields_format {
	FIELDS_TEXT,   /* a line per field */
	FIELDS_JSON,   /* an array of {pointer, type, default, ...} */
	FIELDS_SCHEMA, /* policy/skill.schema.json */
	FIELDS_MDOC,   /* between the markers of docs/skill.json.5 */
};

/* 0, or -ENOMEM; errors of writing are the stream's (ferror). */
int policy_fields_print(FILE *to, enum fields_format format, struct nsbox_error *err);

#endif
