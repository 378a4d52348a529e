/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names in zip files that are not UTF-8. The format says code page 437; Chinese Windows writes GBK,
 * with no mark of it. A name is taken for GBK where all of it is valid GBK whose first bytes are in
 * the range of Chinese characters: the accented letters of code page 437 lie below it. What cannot
 * be told apart is code page 437, as the format says.
 *
 * The tables of GBK are libc's, which loads them from files: that is done before the process
 * confines itself.
 */
#include <errno.h>
#include <iconv.h>
#include <string.h>

#include "nsbox/util.h"
#include "overlay/unpack/unpack.h"

static iconv_t gbk = (iconv_t)-1;

void name_decode_open(void)
{
	char in[] = "\xb0\xa1", out[8], *from = in, *to = out;
	size_t left = 2, room = sizeof(out);

	gbk = iconv_open("UTF-8", "GBK");
	if (gbk != (iconv_t)-1) /* all that is loaded at the first use, too */
		iconv(gbk, &from, &left, &to, &room);
}

/* 0x80 to 0xff */
static const uint16_t cp437[128] = {
	0x00c7, 0x00fc, 0x00e9, 0x00e2, 0x00e4, 0x00e0, 0x00e5, 0x00e7, 0x00ea, 0x00eb, 0x00e8,
	0x00ef, 0x00ee, 0x00ec, 0x00c4, 0x00c5, 0x00c9, 0x00e6, 0x00c6, 0x00f4, 0x00f6, 0x00f2,
	0x00fb, 0x00f9, 0x00ff, 0x00d6, 0x00dc, 0x00a2, 0x00a3, 0x00a5, 0x20a7, 0x0192, 0x00e1,
	0x00ed, 0x00f3, 0x00fa, 0x00f1, 0x00d1, 0x00aa, 0x00ba, 0x00bf, 0x2310, 0x00ac, 0x00bd,
	0x00bc, 0x00a1, 0x00ab, 0x00bb, 0x2591, 0x2592, 0x2593, 0x2502, 0x2524, 0x2561, 0x2562,
	0x2556, 0x2555, 0x2563, 0x2551, 0x2557, 0x255d, 0x255c, 0x255b, 0x2510, 0x2514, 0x2534,
	0x252c, 0x251c, 0x2500, 0x253c, 0x255e, 0x255f, 0x255a, 0x2554, 0x2569, 0x2566, 0x2560,
	0x2550, 0x256c, 0x2567, 0x2568, 0x2564, 0x2565, 0x2559, 0x2558, 0x2552, 0x2553, 0x256b,
	0x256a, 0x2518, 0x250c, 0x2588, 0x2584, 0x258c, 0x2590, 0x2580, 0x03b1, 0x00df, 0x0393,
	0x03c0, 0x03a3, 0x03c3, 0x00b5, 0x03c4, 0x03a6, 0x0398, 0x03a9, 0x03b4, 0x221e, 0x03c6,
	0x03b5, 0x2229, 0x2261, 0x00b1, 0x2265, 0x2264, 0x2320, 0x2321, 0x00f7, 0x2248, 0x00b0,
	0x2219, 0x00b7, 0x221a, 0x207f, 0x00b2, 0x25a0, 0x00a0,
};

static bool is_utf8(const unsigned char *s, size_t len)
{
	for (size_t i = 0; i < len;) {
		unsigned c = s[i], more = c < 0x80 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;

		if ((c >= 0x80 && c < 0xc2) || c > 0xf4 || len - i <= more)
			return false;
		for (unsigned k = 1; k <= more; k++)
			if ((s[i + k] & 0xc0) != 0x80)
				return false;
		if ((c == 0xe0 && s[i + 1] < 0xa0) || (c == 0xed && s[i + 1] > 0x9f) ||
		    (c == 0xf0 && s[i + 1] < 0x90) || (c == 0xf4 && s[i + 1] > 0x8f))
			return false;
		i += more + 1;
	}
	return true;
}

static bool may_be_gbk(const unsigned char *s, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (s[i] < 0x80)
			continue;
		if (s[i] < 0xa1 || s[i] == 0xff || i + 1 == len || s[i + 1] < 0x40)
			return false;
		i++;
	}
	return true;
}

static bool from_gbk(const char *raw, size_t len, char *ret, size_t size)
{
	char *from = (char *)(uintptr_t)raw, *to = ret; /* iconv does not write there */
	size_t room = size - 1;

	if (gbk == (iconv_t)-1 || !may_be_gbk((const unsigned char *)raw, len))
		return false;
	iconv(gbk, NULL, NULL, NULL, NULL);
	if (iconv(gbk, &from, &len, &to, &room) != 0 || len)
		return false;
	*to = '\0';
	return true;
}

static bool from_cp437(const char *raw, size_t len, char *ret, size_t size)
{
	char *to = ret;

	for (size_t i = 0; i < len; i++) {
		unsigned c = (unsigned char)raw[i];

		if ((size_t)(to - ret) + 4 > size)
			return false;
		if (c >= 0x80)
			c = cp437[c - 0x80];
		if (c < 0x80) {
			*to++ = (char)c;
		} else if (c < 0x800) {
			*to++ = (char)(0xc0 | c >> 6);
			*to++ = (char)(0x80 | (c & 0x3f));
		} else {
			*to++ = (char)(0xe0 | c >> 12);
			*to++ = (char)(0x80 | (c >> 6 & 0x3f));
			*to++ = (char)(0x80 | (c & 0x3f));
		}
	}
	*to = '\0';
	return true;
}

bool name_decode(const char *raw, size_t len, char *ret, size_t size)
{
	if (is_utf8((const unsigned char *)raw, len)) {
		if (len >= size)
			return false;
		memcpy(ret, raw, len);
		ret[len] = '\0';
		return true;
	}
	return from_gbk(raw, len, ret, size) || from_cp437(raw, len, ret, size);
}
