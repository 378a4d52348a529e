/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/front/log.h"

#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"

#define LINE_MAX_BYTES 2048

static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/@+-";

/* How one byte is written within quotes; bytes above 0x7f may be text in UTF-8, or terminal
 * controls of other character sets: hex. */
static size_t escape(unsigned char c, char out[5])
{
	if (c == '"' || c == '\\')
		return (size_t)snprintf(out, 5, "\\%c", c);
	if (c < 0x20 || c >= 0x7f)
		return (size_t)snprintf(out, 5, "\\x%02x", c);
	out[0] = (char)c;
	return 1;
}

void log_quote(const char *value, char *buf, size_t size)
{
	size_t at = 0;
	char one[5];

	if (*value && strspn(value, plain) == strlen(value)) {
		snprintf(buf, size, "%s", value);
		return;
	}
	buf[at++] = '"';
	for (; *value; value++) {
		size_t n = escape((unsigned char)*value, one);

		if (at + n + 2 > size)
			break;
		memcpy(buf + at, one, n);
		at += n;
	}
	buf[at++] = '"';
	buf[at] = 0;
}

void log_pairs(int level, const char *event, const char *const *pairs)
{
	char line[LINE_MAX_BYTES], value[768];
	size_t at = (size_t)snprintf(line, sizeof(line), "<%d>nsboxd %s", level, event);

	for (; pairs[0]; pairs += 2) {
		if (!pairs[1] || !*pairs[1])
			continue;
		log_quote(pairs[1], value, sizeof(value));
		if (at + strlen(pairs[0]) + strlen(value) + 3 < sizeof(line))
			at += (size_t)snprintf(line + at, sizeof(line) - at, " %s=%s", pairs[0],
					       value);
	}
	line[at++] = '\n';
	/* In one piece: other processes write to the same place. */
	(void)!write(STDERR_FILENO, line, at);
}
