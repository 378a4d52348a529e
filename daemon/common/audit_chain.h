/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chain of an audit: JSON lines of which each has a number, `seq`, one more than that of the
 * line before, and `prev`, the SHA-256 of the line before (its bytes without the newline; 64 zeros
 * before the first). Whoever changes, removes or inserts a line has to change all that follow, up
 * to the last hash, which is easily noted elsewhere.
 */
#ifndef DAEMON_AUDIT_CHAIN_H
#define DAEMON_AUDIT_CHAIN_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/digest.h"

#define AUDIT_LINE_MAX 16384

struct audit_chain {
	uint64_t seq; /* of the last line, 0: there is none */
	char hash[DIGEST_HEX];
};

void audit_chain_init(struct audit_chain *c);
/* Move on over a line of our own. */
int audit_chain_add(struct audit_chain *c, const char *line, size_t len, struct nsbox_error *err);
/* Its number and what it says of the line before; NSBOX_E_INVALID where it is no line of an audit. */
int audit_line_read(const char *line, size_t len, uint64_t *ret_seq, char ret_prev[DIGEST_HEX],
		    struct nsbox_error *err);
/*
 * Move on over a line that was read; it has to continue the chain. With `first` it may begin
 * anywhere: a file that continues an older one.
 */
int audit_chain_check(struct audit_chain *c, bool first, const char *line, size_t len,
		      struct nsbox_error *err);

#endif
