/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dynamic loader ends a program that lacks a library with status 127, the status of a program
 * that was not found; which of the two it was only its message says. The message is of the sandbox:
 * it may be forged, so the sentence made of it is a hint and says so.
 */
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/skill/skill.h"
#include "policy/skill/text.h"

static const struct {
	const char *before, *after; /* the library's name is between them */
} messages[] = {
	{ "error while loading shared libraries: ",
	  ": cannot open shared object file" },				    /* glibc */
	{ "Error loading shared library ", ": No such file or directory" }, /* musl */
};

bool skill_missing_library(const char *err_tail, size_t len, char *ret, size_t size)
{
	for (unsigned i = 0; i < ARRAY_SIZE(messages); i++) {
		const char *end = err_tail + len, *p, *q;
		auto_free char *name = NULL;

		p = memmem(err_tail, len, messages[i].before, strlen(messages[i].before));
		if (!p)
			continue;
		p += strlen(messages[i].before);
		q = memmem(p, (size_t)(end - p), messages[i].after, strlen(messages[i].after));
		if (!q || q == p || q - p > 255 || memchr(p, '\n', (size_t)(q - p)))
			continue;
		name = text_shown(p, (size_t)(q - p));
		if (!name)
			return false;
		snprintf(
			ret, size,
			"its loader said that the shared library '%.300s' is missing; `nsbox skill "
			"check` looks for such before a run",
			name);
		return true;
	}
	return false;
}
