/* SPDX-License-Identifier: Apache-2.0 */
/* System calls that a filter refused, in words: name, arguments, and what would allow them. */
#ifndef POLICY_DENIED_H
#define POLICY_DENIED_H

#include <nsbox/sandbox.h>

struct denied_words {
	char name[64]; /* "mount"; "call 999" for one without a name */
	char errnum[32];
	char arguments[160]; /* those that decided: "0x11, 0x3, 0"; "" where none did */
	const char *pointer; /* into the manifest, what to set */
	const char *value;   /* as JSON; NULL: the call's name, to be added to that list */
	const char *note;    /* who may, where not everybody may; else NULL */
};
void denied_describe(const struct nsbox_denied_call *d, struct denied_words *ret);

/* What the tables answer a call with: an errno, 0 for success without a deed, or DENIED_ALLOWED.
 * The same that seccomp.c makes filters of, without making one. */
#define DENIED_ALLOWED UINT32_MAX
uint32_t denied_judge(const char *name, const uint32_t arg[6], unsigned traits);

#endif
