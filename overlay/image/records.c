/* SPDX-License-Identifier: Apache-2.0 */
#include "overlay/image/records.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static int malformed(struct nsbox_error *err, unsigned line)
{
	return nsbox_fail(err, NSBOX_E_PROTOCOL, EBADMSG, "malformed record in line %u", line);
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* value[0..len), decoded and terminated; false where it is not what record_put() writes. */
static bool decode(char *value, size_t len)
{
	char *to = value;

	for (size_t i = 0; i < len; i++) {
		int hi, lo;

		if (value[i] < '!' || value[i] > '~')
			return false;
		if (value[i] != '%') {
			*to++ = value[i];
			continue;
		}
		if (i + 2 >= len)
			return false;
		hi = hex_digit(value[i + 1]);
		lo = hex_digit(value[i + 2]);
		if (hi < 0 || lo < 0 || !(hi | lo))
			return false;
		*to++ = (char)(hi << 4 | lo);
		i += 2;
	}
	*to = '\0';
	return true;
}

int records_parse(char *text, size_t len, record_fn *each, void *ctx, struct nsbox_error *err)
{
	char *end = text + len;
	unsigned line = 0;

	while (text < end) {
		char *newline = memchr(text, '\n', (size_t)(end - text)), *space;
		int r;

		line++;
		if (!newline)
			return malformed(err, line);
		space = memchr(text, ' ', (size_t)(newline - text));
		if (!space || space == text)
			return malformed(err, line);
		for (const char *p = text; p < space; p++)
			if (*p < 'a' || *p > 'z')
				return malformed(err, line);
		*space = '\0';
		if (!decode(space + 1, (size_t)(newline - space) - 1))
			return malformed(err, line);
		/* decode() ends the text at the newline at the latest. */
		r = each(ctx, text, space + 1, err);
		if (r < 0)
			return r;
		text = newline + 1;
	}
	return 0;
}

void record_put(FILE *to, const char *key, const char *value)
{
	fprintf(to, "%s ", key);
	for (const unsigned char *p = (const unsigned char *)value; *p; p++) {
		if (*p < '!' || *p > '~' || *p == '%')
			fprintf(to, "%%%02X", *p);
		else
			fputc(*p, to);
	}
	fputc('\n', to);
}
