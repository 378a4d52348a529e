/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/front/tokens.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <string.h>
#include <strings.h>

#include "nsbox/util.h"

#define FILE_MAX   (128u << 10)
#define HEADER_MAX 4096

static int hex_digit(char c)
{
	const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

static bool take_hash(const char *hex, unsigned char out[32])
{
	for (size_t i = 0; i < 32; i++) {
		int high = hex_digit(hex[2 * i]);
		int low = high < 0 ? -1 : hex_digit(hex[2 * i + 1]);

		if (low < 0)
			return false;
		out[i] = (unsigned char)(high << 4 | low);
	}
	return hex[64] == 0;
}

/* NULL, or what is wrong; the line's text itself is never shown. */
static const char *take_line(struct tokens *t, char *line)
{
	char *save = NULL, *workspace = strtok_r(line, " \t\r", &save);
	char *token = workspace ? strtok_r(NULL, " \t\r", &save) : NULL;

	if (!workspace || *workspace == '#')
		return NULL;
	if (!token || strtok_r(NULL, " \t\r", &save))
		return "a line is: WORKSPACE TOKEN";
	if (strlen(workspace) > WHO_WORKSPACE_MAX)
		return "the workspace's name is too long";
	if (t->n == TOKENS_MAX)
		return "there are too many tokens";
	if (strncmp(token, "sha256:", 7) == 0) {
		if (!take_hash(token + 7, t->token[t->n].sha256))
			return "sha256: has 64 digits behind it, 0-9 and a-f";
	} else if (strlen(token) < TOKEN_BYTES_MIN) {
		return "a token has at least 20 characters; `openssl rand -hex 32` makes one";
	} else {
		SHA256((const unsigned char *)token, strlen(token), t->token[t->n].sha256);
	}
	strcpy(t->token[t->n++].workspace, workspace);
	return NULL;
}

static int take_lines(struct tokens *t, char *text, const char *name, struct nsbox_error *err)
{
	char *save = NULL;
	unsigned number = 0;

	for (char *at = text; at; at = save) {
		const char *wrong;

		save = strchr(at, '\n');
		if (save)
			*save++ = 0;
		number++;
		wrong = take_line(t, at);
		if (wrong)
			return nsbox_fail(err, NSBOX_E_INVALID, 0, "%s:%u: %s", name, number,
					  wrong);
	}
	return t->n ? 0 : nsbox_fail(err, NSBOX_E_INVALID, 0, "%s: holds no token", name);
}

int tokens_read(int fd, const char *name, struct tokens **ret, struct nsbox_error *err)
{
	auto_free struct tokens *t = calloc(1, sizeof(*t));
	char *text = calloc(1, FILE_MAX + 1);
	size_t len = 0;
	ssize_t n = -1;
	int r;

	if (!t || !text) {
		free(text);
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read '%s'", name);
	}
	while (len <= FILE_MAX && (n = read(fd, text + len, FILE_MAX + 1 - len)) > 0)
		len += (size_t)n;
	if (n < 0)
		r = nsbox_fail(err, NSBOX_E_IO, errno, "read '%s'", name);
	else if (len > FILE_MAX)
		r = nsbox_fail(err, NSBOX_E_INVALID, EFBIG, "'%s' has more than %u KiB", name,
			       FILE_MAX / 1024);
	else
		r = take_lines(t, text, name, err);
	OPENSSL_cleanse(text, FILE_MAX + 1);
	free(text);
	if (r == 0)
		*ret = take_ptr(&t);
	return r;
}

const char *tokens_workspace(const struct tokens *t, const char *header)
{
	static const char scheme[] = "Bearer ";
	unsigned char hash[32];
	const char *found = NULL;

	if (!t || !header || strncasecmp(header, scheme, sizeof(scheme) - 1) != 0 ||
	    strlen(header) > HEADER_MAX)
		return NULL;
	header += sizeof(scheme) - 1;
	SHA256((const unsigned char *)header, strlen(header), hash);
	for (unsigned i = 0; i < t->n; i++)
		if (CRYPTO_memcmp(hash, t->token[i].sha256, sizeof(hash)) == 0)
			found = t->token[i].workspace;
	return found;
}

bool tokens_own(const struct tokens *t, const char *workspace)
{
	for (unsigned i = 0; t && i < t->n; i++)
		if (strcmp(t->token[i].workspace, workspace) == 0)
			return true;
	return false;
}
