/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bearer tokens of clients over TCP, each of one workspace. A file has a line for each: the
 * workspace's name, blanks, and the token or "sha256:" with its hash in hex; "#" begins a comment.
 * Only hashes are kept.
 */
#ifndef FRONT_TOKENS_H
#define FRONT_TOKENS_H

#include <nsbox/error.h>
#include <stdbool.h>

#include "daemon/front/who.h"

#define TOKENS_MAX	256
#define TOKEN_BYTES_MIN 20

struct tokens {
	unsigned n;
	struct {
		char workspace[WHO_WORKSPACE_MAX + 1];
		unsigned char sha256[32];
	} token[TOKENS_MAX];
};

/* Read the file behind a descriptor; its name is for messages. */
int tokens_read(int fd, const char *name, struct tokens **ret, struct nsbox_error *err);
/*
 * The workspace of the token in an Authorization header (NULL: there is none); NULL: of none. How
 * long this takes depends on the number of tokens and the length of the header alone.
 */
const char *tokens_workspace(const struct tokens *t, const char *header);
bool tokens_own(const struct tokens *t, const char *workspace);

#endif
