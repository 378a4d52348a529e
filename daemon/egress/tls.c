/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ClientHello (RFC 8446, 4.1.2; RFC 6066, 3), as far as to the name of the server it wants. It
 * comes from untrusted code: every length is checked against what is left, and what claims to be
 * longer than TLS_HELLO_MAX is none.
 */
#include "daemon/egress/tls.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#define RECORD_HANDSHAKE 22
#define CLIENT_HELLO	 1
#define EXTENSION_NAME	 0
#define NAME_HOST	 0

/* What is left of a message; an overrun leaves nothing and says so. */
struct cursor {
	const uint8_t *at;
	size_t left;
	bool bad;
};

static size_t number(struct cursor *c, unsigned bytes)
{
	size_t v = 0;

	if (c->left < bytes) {
		c->bad = true;
		c->left = 0;
		return 0;
	}
	for (unsigned i = 0; i < bytes; i++)
		v = v << 8 | c->at[i];
	c->at += bytes;
	c->left -= bytes;
	return v;
}

/* The next `len` bytes. */
static struct cursor part(struct cursor *c, size_t len)
{
	struct cursor p = { c->at, len, false };

	if (len > c->left) {
		c->bad = true;
		len = p.left = c->left;
	}
	c->at += len;
	c->left -= len;
	return p;
}

/* ------------------------------------------------------------------ records */

/* The handshake message out of its records, which may cut it anywhere. */
static enum tls_hello join(const uint8_t *data, size_t len, uint8_t *buf, size_t *ret_len)
{
	size_t have = 0, want = 4; /* its head, then all of it */

	while (have < want) {
		size_t n, all;

		/* No byte has to be there that is not looked at. */
		if (len && data[0] != RECORD_HANDSHAKE)
			return TLS_OTHER;
		if (len > 1 && data[1] != 3)
			return TLS_OTHER;
		if (len < 5)
			return TLS_MORE;
		n = (size_t)data[3] << 8 | data[4];
		if (!n || n > TLS_HELLO_MAX - have)
			return TLS_OTHER;
		all = n;
		if (n > len - 5)
			n = len - 5;
		memcpy(buf + have, data + 5, n);
		have += n;
		data += 5 + n;
		len -= 5 + n;
		if (have >= 1 && buf[0] != CLIENT_HELLO)
			return TLS_OTHER;
		if (have >= 4)
			want = 4 + ((size_t)buf[1] << 16 | (size_t)buf[2] << 8 | buf[3]);
		if (want > TLS_HELLO_MAX)
			return TLS_OTHER;
		if (have < want && n < all)
			return TLS_MORE;
	}
	*ret_len = want;
	return TLS_NAMED;
}

/* ------------------------------------------------------------------ the name */

static enum tls_hello take_name(struct cursor list, char ret[TLS_NAME_MAX])
{
	struct cursor names = part(&list, number(&list, 2)), name;
	size_t type = number(&names, 1);

	name = part(&names, number(&names, 2));
	if (list.bad || names.bad || names.left || list.left || type != NAME_HOST || !name.left ||
	    name.left >= TLS_NAME_MAX)
		return TLS_OTHER;
	for (size_t i = 0; i < name.left; i++) {
		int c = tolower(name.at[i]);

		if (!isalnum(c) && c != '-' && c != '_' && c != '.')
			return TLS_OTHER;
		ret[i] = (char)c;
	}
	ret[name.left] = '\0';
	if (ret[name.left - 1] == '.')
		ret[name.left - 1] = '\0';
	return *ret ? TLS_NAMED : TLS_OTHER;
}

static enum tls_hello find_name(struct cursor m, char ret[TLS_NAME_MAX])
{
	enum tls_hello found = TLS_UNNAMED;
	struct cursor list;

	part(&m, 4 + 2 + 32);	 /* head, version, random */
	part(&m, number(&m, 1)); /* session */
	part(&m, number(&m, 2)); /* ciphers */
	part(&m, number(&m, 1)); /* compressions */
	if (!m.bad && !m.left)
		return TLS_UNNAMED;
	list = part(&m, number(&m, 2));
	while (!m.bad && !list.bad && list.left) {
		size_t type = number(&list, 2);
		struct cursor e = part(&list, number(&list, 2));

		if (type != EXTENSION_NAME)
			continue;
		if (found != TLS_UNNAMED) /* twice: servers may differ in which they mean */
			return TLS_OTHER;
		found = take_name(e, ret);
		if (found == TLS_OTHER)
			return TLS_OTHER;
	}
	return m.bad || m.left || list.bad ? TLS_OTHER : found;
}

enum tls_hello tls_read(const uint8_t *data, size_t len, char ret[TLS_NAME_MAX])
{
	uint8_t buf[TLS_HELLO_MAX];
	size_t n = 0;
	enum tls_hello r = join(data, len, buf, &n);

	*ret = '\0';
	return r == TLS_NAMED ? find_name((struct cursor){ buf, n, false }, ret) : r;
}
