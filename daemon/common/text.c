/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes as text for JSON.
 *
 * What comes out of a sandbox is bytes. Streams become strings with U+FFFD where they are not
 * UTF-8; a function's value is checked to be one JSON value and then passed on unread, so that the
 * front neither builds a tree from hostile text nor rounds a number it cannot hold.
 */
#include "daemon/common/text.h"

#include <json-c/json.h>
#include <json-c/printbuf.h>
#include <stdint.h>
#include <string.h>

#include "nsbox/util.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *base64_encode(const void *data, size_t len)
{
	const unsigned char *p = data;
	char *out = malloc((len + 2) / 3 * 4 + 1), *o = out;

	if (!out)
		return NULL;
	for (size_t i = 0; i < len; i += 3) {
		size_t n = MIN(len - i, (size_t)3);
		uint32_t v = (uint32_t)p[i] << 16 | (n > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
			     (n > 2 ? p[i + 2] : 0);

		*o++ = alphabet[v >> 18];
		*o++ = alphabet[v >> 12 & 63];
		*o++ = n > 1 ? alphabet[v >> 6 & 63] : '=';
		*o++ = n > 2 ? alphabet[v & 63] : '=';
	}
	*o = 0;
	return out;
}

static int digit(unsigned char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int base64_decode(const char *s, size_t len, unsigned char **ret, size_t *ret_len)
{
	size_t pad = len > 0 && s[len - 1] == '=' ? (len > 1 && s[len - 2] == '=' ? 2 : 1) : 0;
	auto_free unsigned char *out = malloc(len / 4 * 3 + 1);
	size_t n = 0;

	if (len % 4 != 0)
		return -EINVAL;
	if (!out)
		return -ENOMEM;
	for (size_t i = 0; i < len; i += 4) {
		size_t p = i + 4 == len ? pad : 0;
		uint32_t v = 0;

		for (size_t j = 0; j < 4; j++) {
			int d = j >= 4 - p ? 0 : digit((unsigned char)s[i + j]);

			if (d < 0)
				return -EINVAL;
			v = v << 6 | (uint32_t)d;
		}
		/* Bits that no byte uses have to be 0: one text for one value. */
		if ((p == 1 && (v & 0xff)) || (p == 2 && (v & 0xffff)))
			return -EINVAL;
		out[n++] = (unsigned char)(v >> 16);
		if (p < 2)
			out[n++] = (unsigned char)(v >> 8);
		if (p < 1)
			out[n++] = (unsigned char)v;
	}
	*ret_len = n;
	*ret = take_ptr(&out);
	return 0;
}

/* ------------------------------------------------------------------ UTF-8 */

/* Bytes of the character at s, 0 where there is none (overlong, surrogate, cut, too large). */
static size_t utf8_len(const char *str, size_t left)
{
	const unsigned char *s = (const unsigned char *)str;
	size_t n = s[0] < 0x80	 ? 1
		   : s[0] < 0xc2 ? 0
		   : s[0] < 0xe0 ? 2
		   : s[0] < 0xf0 ? 3
		   : s[0] < 0xf5 ? 4
				 : 0;

	if (n > left)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

bool utf8_valid(const char *s, size_t len)
{
	for (size_t i = 0, n; i < len; i += n) {
		n = utf8_len(s + i, len - i);
		if (n == 0)
			return false;
	}
	return true;
}

struct json_object *json_text_new(const char *s, size_t len)
{
	auto_free char *out = NULL;
	size_t o = 0;

	if (len > INT32_MAX / 3)
		return NULL;
	if (utf8_valid(s, len))
		return json_object_new_string_len(len ? s : "", (int)len);
	out = malloc(len * 3);
	if (!out)
		return NULL;
	for (size_t i = 0; i < len;) {
		size_t n = utf8_len(s + i, len - i);

		memcpy(out + o, n ? s + i : "\xef\xbf\xbd", n ? n : 3);
		o += n ? n : 3;
		i += n ? n : 1;
	}
	return json_object_new_string_len(out, (int)o);
}

/* ------------------------------------------------------------------ one JSON value */

struct scan {
	const char *s, *end;
};

static void skip_space(struct scan *c)
{
	while (c->s < c->end && (*c->s == ' ' || *c->s == '\t' || *c->s == '\n' || *c->s == '\r'))
		c->s++;
}

static bool eat(struct scan *c, const char *word)
{
	size_t n = strlen(word);

	if ((size_t)(c->end - c->s) < n || memcmp(c->s, word, n) != 0)
		return false;
	c->s += n;
	return true;
}

static bool scan_escape(struct scan *c)
{
	if (c->s == c->end)
		return false;
	if (*c->s != 'u')
		return *c->s != 0 && strchr("\"\\/bfnrt", *c->s++) != NULL;
	for (int i = 1; i <= 4; i++)
		if (c->end - c->s <= i || c->s[i] == 0 ||
		    !strchr("0123456789abcdefABCDEF", c->s[i]))
			return false;
	c->s += 5;
	return true;
}

static bool scan_string(struct scan *c)
{
	if (!eat(c, "\""))
		return false;
	while (c->s < c->end) {
		size_t n;

		if (eat(c, "\""))
			return true;
		if (eat(c, "\\")) {
			if (!scan_escape(c))
				return false;
			continue;
		}
		n = utf8_len(c->s, (size_t)(c->end - c->s));
		if (n == 0 || (unsigned char)*c->s < 0x20)
			return false;
		c->s += n;
	}
	return false;
}

static bool scan_digits(struct scan *c)
{
	const char *start = c->s;

	while (c->s < c->end && *c->s >= '0' && *c->s <= '9')
		c->s++;
	return c->s > start;
}

static bool scan_number(struct scan *c)
{
	eat(c, "-");
	if (!eat(c, "0") && !scan_digits(c))
		return false;
	if (eat(c, ".") && !scan_digits(c))
		return false;
	if (eat(c, "e") || eat(c, "E")) {
		if (!eat(c, "+"))
			eat(c, "-");
		return scan_digits(c);
	}
	return true;
}

static bool scan_scalar(struct scan *c)
{
	static const char *const words[] = {
		"null", "true", "false", "NaN", "Infinity", "-Infinity"
	};

	if (c->s < c->end && *c->s == '"')
		return scan_string(c);
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (eat(c, words[i]))
			return true;
	return scan_number(c);
}

/* After '{' or ',': the key of a member and its colon. */
static bool scan_key(struct scan *c)
{
	skip_space(c);
	if (!scan_string(c))
		return false;
	skip_space(c);
	return eat(c, ":");
}

bool json_value_check(const char *s, size_t len, unsigned depth)
{
	struct scan c = { s, s + len };
	char open[JSON_VALUE_DEPTH]; /* '{' or '[' of each container around */
	unsigned n = 0;

	for (;;) {
		/* A value begins here. */
		skip_space(&c);
		if (c.s < c.end && (*c.s == '{' || *c.s == '[')) {
			if (n >= MIN(depth, (unsigned)sizeof(open)))
				return false;
			open[n++] = *c.s++;
			skip_space(&c);
			if (!eat(&c, open[n - 1] == '{' ? "}" : "]")) {
				if (open[n - 1] == '{' && !scan_key(&c))
					return false;
				continue;
			}
			n--;
		} else if (!scan_scalar(&c)) {
			return false;
		}
		/* A value ended here: close what closes, or go on after a comma. */
		for (;;) {
			skip_space(&c);
			if (n == 0)
				return c.s == c.end;
			if (eat(&c, ",")) {
				if (open[n - 1] == '{' && !scan_key(&c))
					return false;
				break;
			}
			if (!eat(&c, open[n - 1] == '{' ? "}" : "]"))
				return false;
			n--;
		}
	}
}

char *path_encode(const char *path)
{
	static const char hex[] = "0123456789ABCDEF";
	char *ret = malloc(3 * strlen(path) + 1), *to = ret;

	for (; ret && *path; path++) {
		unsigned char c = (unsigned char)*path;
		bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
		bool plain = letter || (c >= '0' && c <= '9') || strchr("-._~/", c);

		if (plain) {
			*to++ = (char)c;
		} else {
			*to++ = '%';
			*to++ = hex[c >> 4];
			*to++ = hex[c & 15];
		}
	}
	if (to)
		*to = '\0';
	return ret;
}

struct raw {
	size_t len;
	char text[];
};

static int raw_print(struct json_object *o, struct printbuf *pb, int level, int flags)
{
	const struct raw *raw = json_object_get_userdata(o);

	return printbuf_memappend(pb, raw->text, (int)raw->len);
}

static void raw_delete(struct json_object *o, void *raw)
{
	free(raw);
}

struct json_object *json_raw_new(const char *s, size_t len)
{
	struct json_object *o = len < INT32_MAX / 2 ? json_object_new_boolean(0) : NULL;
	struct raw *raw = o ? malloc(sizeof(*raw) + len) : NULL;

	if (!raw) {
		json_object_put(o);
		return NULL;
	}
	raw->len = len;
	memcpy(raw->text, s, len);
	json_object_set_serializer(o, raw_print, raw, raw_delete);
	return o;
}
