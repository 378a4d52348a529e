/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a JSON pointer to the line and column of what it names. Values are skipped without a tree:
 * json-c keeps no positions. Nothing here judges the text; where it is not what is expected, there
 * is no place to report, and that is all.
 */
#include <string.h>

#include "policy/lint.h"

struct scan {
	const char *p, *end;
};

static void skip_space(struct scan *s)
{
	while (s->p < s->end && strchr(" \t\r\n", *s->p))
		s->p++;
}

/* Past a string, whose opening quote is next. */
static bool skip_string(struct scan *s)
{
	if (s->p >= s->end || *s->p != '"')
		return false;
	for (s->p++; s->p < s->end; s->p++) {
		if (*s->p == '\\')
			s->p++;
		else if (*s->p == '"') {
			s->p++;
			return true;
		}
	}
	return false;
}

static bool skip_value(struct scan *s)
{
	int depth = 0;

	do {
		skip_space(s);
		if (s->p >= s->end)
			return false;
		if (*s->p == '"') {
			if (!skip_string(s))
				return false;
			continue;
		}
		if (*s->p == '{' || *s->p == '[')
			depth++;
		else if (*s->p == '}' || *s->p == ']')
			depth--;
		else if (depth == 0 || !strchr(",:", *s->p)) {
			while (s->p < s->end && !strchr(",:]} \t\r\n", *s->p))
				s->p++;
			continue;
		}
		s->p++;
	} while (depth > 0);
	return depth == 0;
}

/* "a~1b" and "a/b": a key as a pointer writes it. Escapes of JSON are not looked into. */
static bool same_key(const char *key, size_t n, const char *token, size_t len)
{
	size_t i = 0, k = 0;

	for (; i < n && k < len; i++, k++) {
		char c = token[k];

		if (c == '~' && k + 1 < len)
			c = token[++k] == '1' ? '/' : '~';
		if (c != key[i])
			return false;
	}
	return i == n && k == len;
}

/* To the value of a member; *at: its key, which is where a person looks. */
static bool enter_member(struct scan *s, const char *token, size_t len, const char **at)
{
	for (;;) {
		const char *key;
		size_t n;

		skip_space(s);
		key = s->p;
		if (!skip_string(s))
			return false;
		n = (size_t)(s->p - key) - 2;
		skip_space(s);
		if (s->p >= s->end || *s->p++ != ':')
			return false;
		skip_space(s);
		if (same_key(key + 1, n, token, len)) {
			*at = key;
			return true;
		}
		if (!skip_value(s))
			return false;
		skip_space(s);
		if (s->p >= s->end || *s->p++ != ',')
			return false;
	}
}

static bool enter_element(struct scan *s, const char *token, size_t len, const char **at)
{
	size_t index = 0;

	for (size_t i = 0; i < len; i++) {
		if (token[i] < '0' || token[i] > '9' || index > 1000000)
			return false;
		index = index * 10 + (size_t)(token[i] - '0');
	}
	for (;; index--) {
		skip_space(s);
		if (index == 0) {
			*at = s->p;
			return s->p < s->end && *s->p != ']';
		}
		if (!skip_value(s))
			return false;
		skip_space(s);
		if (s->p >= s->end || *s->p++ != ',')
			return false;
	}
}

bool lint_locate(const char *json, size_t len, const char *pointer, unsigned *line,
		 unsigned *column)
{
	struct scan s = { json, json + len };
	const char *at;

	skip_space(&s);
	at = s.p;
	while (*pointer == '/') {
		size_t n = strcspn(++pointer, "/");
		char open = s.p < s.end ? *s.p++ : '\0';
		bool found = open == '{'   ? enter_member(&s, pointer, n, &at)
			     : open == '[' ? enter_element(&s, pointer, n, &at)
					   : false;

		if (!found)
			return false;
		pointer += n;
	}
	*line = *column = 1;
	for (const char *p = json; p < at; p++, ++*column)
		if (*p == '\n') {
			++*line;
			*column = 0;
		}
	return true;
}
