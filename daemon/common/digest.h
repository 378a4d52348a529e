/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 as the hexadecimal text that sha256sum(1) prints. */
#ifndef DAEMON_DIGEST_H
#define DAEMON_DIGEST_H

#include <nsbox/error.h>
#include <stddef.h>

#define DIGEST_HEX 65 /* with its NUL */

int digest_hex(const void *data, size_t len, char ret[DIGEST_HEX], struct nsbox_error *err);

#endif
