/* SPDX-License-Identifier: Apache-2.0 */
/* See manifest_check.h. */
#include "policy/manifest_check.h"

#include <ctype.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/names.h"
#include "policy/syscalls.h"

#define ID_MAX 64

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGIT "0123456789"

/* All of s is of `set`, and its first character of `first`. */
static bool is_of(const char *s, const char *first, const char *set, size_t max)
{
	size_t len = strlen(s);

	return len && len <= max && strchr(first, s[0]) && strspn(s, set) == len;
}

/* Names become parts of paths. */
static bool is_name(const char *s)
{
	return is_of(s, LOWER DIGIT "_", LOWER DIGIT "-_.", ID_MAX);
}

int check_name(struct json_reader *r, const char *s)
{
	if (is_name(s))
		return 0;
	return json_fail(r, "must be lower-case letters, digits, '-', '_' and '.', at most %d",
			 ID_MAX);
}

int check_entrypoint_id(struct json_reader *r, const char *s)
{
	return is_name(s) ? 0 : json_fail(r, "is not a name: lower-case letters, digits, '-', '_'");
}

int check_config_id(struct json_reader *r, const char *s)
{
	if (is_of(s, LOWER UPPER "_", LOWER UPPER DIGIT "_", ID_MAX))
		return 0;
	return json_fail(r, "is not the name of a parameter: letters, digits and '_'");
}

static bool has_control(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			return true;
	return false;
}

/* A path inside, resolved by whoever uses it: here only that it stays below its base. */
int check_below(struct json_reader *r, const char *s)
{
	if (has_control(s))
		return json_fail(r, "contains a control character");
	for (const char *p = s; *p; p += strcspn(p, "/"), p += *p == '/')
		if (p[0] == '.' && p[1] == '.' && (!p[2] || p[2] == '/'))
			return json_fail(r, "must not contain \"..\"");
	return 0;
}

/* Of the skill's own files: their name in the archive, in one spelling. */
int check_skill_file(struct json_reader *r, const char *s)
{
	if (has_control(s))
		return json_fail(r, "contains a control character");
	for (const char *p = s;; p++) {
		size_t len = strcspn(p, "/");

		if (!len || len > 255 || (len == 1 && *p == '.') ||
		    (len == 2 && !strncmp(p, "..", 2)))
			return json_fail(r, "is not a file of the skill: a relative path without "
					    "empty, \".\" or \"..\" parts");
		p += len;
		if (!*p)
			return 0;
	}
}

int check_variable(struct json_reader *r, const char *s)
{
	if (is_of(s, LOWER UPPER "_", LOWER UPPER DIGIT "_", ID_MAX))
		return 0;
	return json_fail(r, "is not the name of a variable: letters, digits and '_'");
}

int check_host(struct json_reader *r, const char *s)
{
	const char *why;

	return host_check(s, &why) ? 0 : json_fail(r, "\"%.80s\" %s", s, why);
}

int check_cidr(struct json_reader *r, const char *s)
{
	const char *why;

	return cidr_check(s, &why) ? 0 : json_fail(r, "\"%.80s\" %s", s, why);
}

/* Where a secret is kept. What looks like a value has characters that no reference has. */
int check_reference(struct json_reader *r, const char *s)
{
	if (is_of(s, LOWER UPPER, LOWER UPPER DIGIT "-_./:", 128))
		return 0;
	return json_fail(r, "must name a secret, like \"vault:team/token\": letters, digits and "
			    "-_./: alone; its value never stands here");
}

int check_sha256(struct json_reader *r, const char *s)
{
	if (strlen(s) == 64 && strspn(s, DIGIT "abcdef") == 64)
		return 0;
	return json_fail(r, "is not a SHA-256: 64 digits 0-9 and a-f");
}

int check_platform(struct json_reader *r, const char *s)
{
	static const char *const known[] = { "linux/amd64", "linux/arm64" };
	const char *slash = strchr(s, '/');

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (!strcmp(s, known[i]))
			return 0;
	if (slash && slash > s && slash[1] && strspn(s, LOWER DIGIT "/") == strlen(s))
		return 0; /* another system's; of no use here and no error */
	return json_fail(r, "\"%.40s\" is not a platform like \"linux/amd64\"", s);
}

/* ------------------------------------------------------------------ versions and times */

/* digits, up to `max` groups with dots; returns what follows, or NULL. */
static const char *skip_version(const char *s, int max)
{
	for (int n = 0; n < max; n++) {
		size_t len = strspn(s, DIGIT);

		if (!len || len > 6)
			return NULL;
		s += len;
		if (*s != '.')
			return s;
		s++;
	}
	return NULL;
}

int check_kernel(struct json_reader *r, const char *s)
{
	const char *end = strncmp(s, ">=", 2) ? NULL : skip_version(s + 2, 3);

	return end && !*end ? 0 : json_fail(r, "is not a least version like \">=5.13\"");
}

int check_interpreter(struct json_reader *r, const char *s)
{
	static const char *const operators[] = { ">=", "<=", "==", "!=", "<", ">" };

	for (const char *p = s;; p++) {
		size_t skip = 0;

		for (size_t i = 0; !skip && i < ARRAY_SIZE(operators); i++)
			if (!strncmp(p, operators[i], strlen(operators[i])))
				skip = strlen(operators[i]);
		p = skip ? skip_version(p + skip, 3) : NULL;
		if (!p || (*p && *p != ','))
			return json_fail(r, "is not a range of versions like \">=3.11,<3.13\"");
		if (!*p)
			return 0;
	}
}

int check_time(struct json_reader *r, const char *s)
{
	static const char form[] = "dddd-dd-ddTdd:dd:ddZ";

	for (size_t i = 0; i < sizeof(form); i++)
		if (form[i] == 'd' ? !isdigit((unsigned char)s[i]) : s[i] != form[i])
			return json_fail(r, "is not a time like \"2026-01-31T12:00:00Z\"");
	return 0;
}

/* As the store takes them (overlay/image/store.h); whether there is one is not known here. */
int check_image(struct json_reader *r, const char *s)
{
	for (const char *p = s; *p; p++)
		if (!isalnum((unsigned char)*p) && (p == s || !strchr("._-/:", *p) ||
						    (!isalnum((unsigned char)p[1]) && p[1] != '_')))
			return json_fail(r, "is not a name of an image like \"org/tool:1.2\"");
	return 0;
}

int check_hostname(struct json_reader *r, const char *s)
{
	const char *why;

	if (strlen(s) > 63 || strchr(s, '*') || strchr(s, '_') || !host_check(s, &why) ||
	    s[strlen(s) - 1] == '.')
		return json_fail(r, "is not a host name of at most 63 characters");
	return 0;
}

/* ------------------------------------------------------------------ names of tables */

static const char *next_layer(void *ctx, size_t i)
{
	return nsbox_layer_name((int)i);
}

static const char *next_group(void *ctx, size_t i)
{
	return syscall_raw_group(i);
}

static int unknown(struct json_reader *r, const char *what, const char *s,
		   const char *(*next)(void *ctx, size_t i))
{
	const char *near = json_did_you_mean(s, next, NULL);

	if (near)
		return json_fail(r, "unknown %s, did you mean \"%s\"?", what, near);
	return json_fail(r, "unknown %s \"%.40s\"", what, s);
}

int check_layer(struct json_reader *r, const char *s)
{
	return nsbox_layer_by_name(s) >= 0 ? 0 : unknown(r, "layer", s, next_layer);
}

int check_group(struct json_reader *r, const char *s)
{
	for (size_t i = 0; syscall_raw_group(i); i++)
		if (!strcmp(s, syscall_raw_group(i)))
			return 0;
	return unknown(r, "group of system calls", s, next_group);
}

/* ------------------------------------------------------------------ for the schema */

/* '.' does not match all that a path may hold, and these are what it may not. */
#define ANY "[^\\u0000-\\u001f\\u007f]"

/* clang-format off */
static const struct string_form forms[] = {
	{ check_name,          "^[a-z0-9_][a-z0-9._-]{0,63}$", "name" },
	{ check_entrypoint_id, "^[a-z0-9_][a-z0-9._-]{0,63}$", "name" },
	{ check_config_id,     "^[A-Za-z_][A-Za-z0-9_]{0,63}$", "name" },
	{ check_below,         "^(?!(" ANY "*/)?\\.\\.(/|$))" ANY "*$", "path" },
	{ check_skill_file,    "^(?!/)(?!" ANY "*//)(?!(" ANY "*/)?\\.{1,2}(/|$))" ANY "*[^/]$", "file of the skill" },
	{ check_variable,      "^[A-Za-z_][A-Za-z0-9_]{0,63}$", "variable" },
	{ check_host,          "^(\\*\\.)?[A-Za-z0-9_:]([A-Za-z0-9._:-]*[A-Za-z0-9_.:])?(/(0|[1-9][0-9]{0,2}))?$", "host" },
	{ check_cidr,          "^[0-9A-Fa-f.:]+/(0|[1-9][0-9]{0,2})$", "network" },
	{ check_reference,     "^[A-Za-z][A-Za-z0-9._/:-]{0,127}$", "reference" },
	{ check_sha256,        "^[0-9a-f]{64}$", "SHA-256" },
	{ check_platform,      "^[a-z0-9]+/[a-z0-9/]+$", "platform" },
	{ check_kernel,        "^>=[0-9]{1,6}(\\.[0-9]{1,6}){0,2}$", "least version" },
	{ check_interpreter,   "^([<>]=?|[=!]=)[0-9]{1,6}(\\.[0-9]{1,6}){0,2}"
			       "(,([<>]=?|[=!]=)[0-9]{1,6}(\\.[0-9]{1,6}){0,2})*$", "versions" },
	{ check_time,          "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$", "date and time" },
	{ check_image,         "^[A-Za-z0-9]([._/:-]?[A-Za-z0-9_])*$", "image" },
	{ check_hostname,      "^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$", "host name" },
	{ check_layer,         NULL, "layer" },
	{ check_group,         "^@[a-z]+$", "group" },
};
/* clang-format on */

const struct string_form *string_form(json_check_fn *check)
{
	for (size_t i = 0; check && i < ARRAY_SIZE(forms); i++)
		if (forms[i].check == check)
			return &forms[i];
	return NULL;
}
