/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/skill/text.h"

#include <stdio.h>
#include <stdlib.h>

#include "nsbox/util.h"

/* Length of the character at s, its number in *ret; 0: malformed. */
static size_t decode(const unsigned char *s, size_t len, uint32_t *ret)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t n = s[0] < 0x80	     ? 1
		   : s[0] >> 5 == 6  ? 2
		   : s[0] >> 4 == 14 ? 3
		   : s[0] >> 3 == 30 ? 4
				     : 0;
	uint32_t c = n == 1 ? s[0] : s[0] & (0x7fU >> n);

	if (!n || n > len)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if (s[i] >> 6 != 2)
			return 0;
		c = c << 6 | (s[i] & 63);
	}
	*ret = c;
	return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : n;
}

bool text_is_utf8(const char *s, size_t len)
{
	for (size_t i = 0, n; i < len; i += n) {
		uint32_t c;

		n = decode((const unsigned char *)s + i, len - i, &c);
		if (!n || !c)
			return false;
	}
	return true;
}

size_t text_encode(uint32_t c, char ret[4])
{
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	static const unsigned char lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };

	if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return 0;
	for (size_t i = n; i-- > 1; c >>= 6)
		ret[i] = (char)(0x80 | (c & 63));
	ret[0] = (char)(lead[n] | c);
	return n;
}

/* What a terminal may show as it is. */
static bool printable(uint32_t c)
{
	static const uint32_t odd[][2] = {
		{ 0, 0x1f },	    { 0x7f, 0x9f },	{ 0xad, 0xad },	      { 0x61c, 0x61c },
		{ 0x200b, 0x200f }, { 0x2028, 0x202e }, { 0x2060, 0x206f },   { 0xe000, 0xf8ff },
		{ 0xfeff, 0xfeff }, { 0xfff0, 0xfffb }, { 0xe0000, 0xe0fff },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(odd); i++)
		if (c >= odd[i][0] && c <= odd[i][1])
			return false;
	return true;
}

char *text_shown(const char *s, size_t len)
{
	char *ret = malloc(4 * len + 1);
	size_t at = 0;

	if (!ret)
		return NULL;
	for (size_t i = 0, n; i < len; i += n) {
		uint32_t c = 0;

		n = decode((const unsigned char *)s + i, len - i, &c);
		if (n && printable(c)) {
			for (size_t k = 0; k < n; k++)
				ret[at++] = s[i + k];
			continue;
		}
		n = n ? n : 1;
		for (size_t k = 0; k < n; k++)
			at += (size_t)sprintf(ret + at, "\\x%02x", (unsigned char)s[i + k]);
	}
	ret[at] = '\0';
	return ret;
}
