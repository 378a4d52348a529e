/* SPDX-License-Identifier: Apache-2.0 */
/* The server's name at the beginning of a TLS connection. Pure: bytes in, a name out. */
#ifndef EGRESS_TLS_H
#define EGRESS_TLS_H

#include <stddef.h>
#include <stdint.h>

#define TLS_HELLO_MAX (16u << 10) /* bytes that a ClientHello may take, with what is around it */
#define TLS_NAME_MAX  256

enum tls_hello { TLS_MORE, TLS_NAMED, TLS_UNNAMED, TLS_OTHER };

/*
 * What begins so? TLS_MORE: too little to say. TLS_NAMED: ret has the name, lower case, without a
 * trailing dot. TLS_UNNAMED: TLS for nobody in particular. TLS_OTHER: no TLS, or malformed.
 */
enum tls_hello tls_read(const uint8_t *data, size_t len, char ret[TLS_NAME_MAX]);

#endif
