/* SPDX-License-Identifier: Apache-2.0 */
/* See names.h. Addresses are read by inet_pton() alone, which knows no short or octal forms. */
#include "policy/names.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nsbox/egress_format.h"

static bool fail(const char **why, const char *text)
{
	*why = text;
	return false;
}

/* ------------------------------------------------------------------ addresses */

struct address {
	int family, bits;
	unsigned char b[16];
};

static bool read_address(const char *text, struct address *a)
{
	*a = (struct address){ .family = strchr(text, ':') ? AF_INET6 : AF_INET };
	a->bits = a->family == AF_INET ? 32 : 128;
	return inet_pton(a->family, text, a->b) == 1;
}

static bool is_mapped(const struct address *a)
{
	static const unsigned char prefix[12] = { [10] = 0xff, [11] = 0xff };

	return a->family == AF_INET6 && !memcmp(a->b, prefix, sizeof(prefix));
}

/* ------------------------------------------------------------------ names */

static bool label_check(const char *label, size_t len, const char **why)
{
	if (!len)
		return fail(why, "has an empty label");
	if (len > 63)
		return fail(why, "has a label of more than 63 characters");
	if (label[0] == '-' || label[len - 1] == '-')
		return fail(why, "has a label that begins or ends with '-'");
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)label[i];

		if (c >= 0x80)
			return fail(why, "is not ASCII: write the name in its xn-- form");
		if (c == '*')
			return fail(why, "has a '*' that is not the whole first label");
		if (!isalnum(c) && c != '-' && c != '_')
			return fail(why, "has a character that no host name has");
	}
	return true;
}

/* Resolvers take "1.2.3", "0x7f.1" and "2130706433" for addresses: the last label decides. */
static bool is_numeric(const char *label, size_t len)
{
	size_t i = len >= 2 && label[0] == '0' && (label[1] == 'x' || label[1] == 'X') ? 2 : 0;
	bool hex = i == 2;

	for (; i < len; i++)
		if (hex ? !isxdigit((unsigned char)label[i]) : !isdigit((unsigned char)label[i]))
			return false;
	return len > 0;
}

static bool name_check(const char *name, size_t least, const char **why)
{
	size_t len = strlen(name), labels = 0;
	const char *end, *p = name;

	if (len && name[len - 1] == '.') /* fully qualified */
		len--;
	if (!len)
		return fail(why, "is empty");
	if (len > HOST_MAX)
		return fail(why, "is longer than 253 characters");
	for (end = name + len;; p++) {
		const char *dot = memchr(p, '.', (size_t)(end - p));
		size_t n = (size_t)((dot ? dot : end) - p);

		if (!label_check(p, n, why))
			return false;
		labels++;
		p += n;
		if (p == end && is_numeric(p - n, n))
			return fail(why, "is neither a name nor an address like 192.0.2.1");
		if (p == end)
			break;
	}
	return labels >= least || fail(why, "covers a whole top level: name at least two labels");
}

bool host_check(const char *text, const char **why)
{
	struct address a;

	if (read_address(text, &a)) {
		if (is_mapped(&a))
			return fail(why, "is an IPv4 address in IPv6 form: write it as IPv4");
		return true;
	}
	if (strchr(text, '/') && strspn(text, "0123456789abcdefABCDEF.:/") == strlen(text))
		return cidr_check(text, why);
	if (strchr(text, ':') || strchr(text, '/') || strchr(text, '@'))
		return fail(why, "is not a host alone: no scheme, user, port or path");
	if (!strcmp(text, "*"))
		return fail(why, "is every host: that is network.mode \"open\"");
	if (text[0] == '*' && text[1] == '.')
		return name_check(text + 2, 2, why);
	return name_check(text, 1, why);
}

static void put_address(const struct address *a, char *buf, size_t size)
{
	if (!inet_ntop(a->family, a->b, buf, (socklen_t)size))
		buf[0] = '\0';
}

void host_normalise(const char *text, char *buf, size_t size)
{
	struct address a;
	size_t len = strlen(text);

	if (read_address(text, &a)) {
		put_address(&a, buf, size);
		return;
	}
	if (strchr(text, '/')) {
		cidr_normalise(text, buf, size);
		return;
	}
	if (len && text[len - 1] == '.')
		len--;
	if (len >= size)
		len = size - 1;
	for (size_t i = 0; i < len; i++)
		buf[i] = (char)tolower((unsigned char)text[i]);
	buf[len] = '\0';
}

/* ------------------------------------------------------------------ networks */

static bool read_cidr(const char *text, struct address *a, int *prefix, const char **why)
{
	const char *slash = strchr(text, '/');
	char host[64], *end;
	long n;

	if (!slash)
		return fail(why, "has no prefix length, like 192.0.2.0/24");
	if ((size_t)(slash - text) >= sizeof(host))
		return fail(why, "is not an address");
	memcpy(host, text, (size_t)(slash - text));
	host[slash - text] = '\0';
	if (!read_address(host, a))
		return fail(why, "is not an address in full form, like 192.0.2.0/24");
	if (is_mapped(a))
		return fail(why, "is an IPv4 network in IPv6 form: write it as IPv4");
	if (!isdigit((unsigned char)slash[1]) || (slash[1] == '0' && slash[2]))
		return fail(why, "has no plain prefix length");
	n = strtol(slash + 1, &end, 10);
	if (*end || strlen(slash + 1) > 3 || n > a->bits)
		return fail(why, a->bits == 32 ? "has a prefix length that is not 0 to 32"
					       : "has a prefix length that is not 0 to 128");
	*prefix = (int)n;
	return true;
}

bool cidr_check(const char *text, const char **why)
{
	struct address a;
	int prefix;

	if (!read_cidr(text, &a, &prefix, why))
		return false;
	for (int bit = prefix; bit < a.bits; bit++)
		if (a.b[bit / 8] & (0x80 >> bit % 8))
			return fail(why, "has bits beyond its prefix length");
	return true;
}

void cidr_normalise(const char *text, char *buf, size_t size)
{
	struct address a;
	const char *why;
	char host[64];
	int prefix;

	buf[0] = '\0';
	if (!read_cidr(text, &a, &prefix, &why))
		return;
	put_address(&a, host, sizeof(host));
	snprintf(buf, size, "%s/%d", host, prefix);
}

/* ------------------------------------------------------------------ what covers what */

bool host_net(const char *host, struct egress_net *ret)
{
	struct address a;
	const char *why;
	int prefix;

	if (read_address(host, &a))
		prefix = a.bits;
	else if (!strchr(host, '/') || !read_cidr(host, &a, &prefix, &why))
		return false;
	*ret = (struct egress_net){ .family = a.family == AF_INET ? 4 : 6,
				    .prefix = (uint8_t)prefix };
	memcpy(ret->addr, a.b, a.family == AF_INET ? 4 : 16);
	return true;
}

bool host_covers(const char *pattern, const char *host)
{
	struct egress_net outer, inner;

	if (host_net(pattern, &outer))
		return host_net(host, &inner) && inner.prefix >= outer.prefix &&
		       egress_net_has(&outer, inner.family, inner.addr);
	return egress_covers(pattern, host);
}
