/* SPDX-License-Identifier: Apache-2.0 */
/* Reads line by line, one line of lookahead, in one pass; see frontmatter.h. */
#include "policy/skill/frontmatter.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/skill/text.h"

struct line {
	const char *s; /* behind the indentation */
	size_t len;    /* without line end and trailing blanks */
	unsigned indent;
	bool tabs; /* in the indentation */
};

struct reader {
	const char *at, *end; /* end: the closing line, or that of the text */
	unsigned number;      /* of the line at `at` */
	struct nsbox_error *err;
};

struct text {
	char *s;
	size_t len;
	bool failed;
};

/* ------------------------------------------------------------------ lines, text, errors */

static int fail(struct reader *r, unsigned number, const char *what)
{
	return nsbox_fail(r->err, NSBOX_E_INVALID, 0, "line %u: %s", number, what);
}

static bool peek(const struct reader *r, struct line *ret)
{
	const char *nl;
	const char *s = r->at;

	if (s >= r->end)
		return false;
	nl = memchr(s, '\n', (size_t)(r->end - s));
	*ret = (struct line){ .s = s, .len = (size_t)((nl ? nl : r->end) - s) };
	while (ret->len && strchr(" \t\r", ret->s[ret->len - 1]))
		ret->len--;
	while (ret->len && (*ret->s == ' ' || *ret->s == '\t')) {
		ret->tabs |= *ret->s == '\t';
		ret->s++;
		ret->len--;
		ret->indent++;
	}
	return true;
}

static void skip(struct reader *r)
{
	const char *nl = memchr(r->at, '\n', (size_t)(r->end - r->at));

	r->at = nl ? nl + 1 : r->end;
	r->number++;
}

static void put(struct text *t, const char *s, size_t n)
{
	char *p = t->failed ? NULL : realloc(t->s, t->len + n + 1);

	if (!p) {
		t->failed = true;
		return;
	}
	memcpy(p + t->len, s, n);
	t->s = p;
	t->len += n;
	p[t->len] = '\0';
}

static int take_text(struct reader *r, struct text *t, struct frontmatter_value *ret)
{
	put(t, "", 0);
	if (t->failed) {
		free(t->s);
		return nsbox_fail(r->err, NSBOX_E_NOMEM, ENOMEM, "read SKILL.md");
	}
	free(ret->text);
	ret->text = t->s;
	return 0;
}

/* ------------------------------------------------------------------ quoted */

static const struct {
	const char *is;
	char c;
	uint8_t hex; /* digits that follow */
} escapes[] = {
	{ "\"", '"', 0 }, { "\\", '\\', 0 }, { "/", '/', 0 },  { "\n", 'n', 0 }, { "\t", 't', 0 },
	{ "\r", 'r', 0 }, { " ", ' ', 0 },   { NULL, 'x', 2 }, { NULL, 'u', 4 }, { NULL, 'U', 8 },
};

/* The character that `digits` hexadecimal digits name; its length, 0: they name none. */
static size_t escaped_char(const char *s, size_t left, unsigned digits, char *ret)
{
	uint32_t c = 0;

	if (left < digits)
		return 0;
	for (unsigned i = 0; i < digits; i++) {
		const char *hex = "0123456789abcdef0123456789ABCDEF";
		const char *p = s[i] ? strchr(hex, s[i]) : NULL;

		if (!p)
			return 0;
		c = c << 4 | (uint32_t)((p - hex) & 15);
	}
	return c ? text_encode(c, ret) : 0;
}

/* s is behind the backslash; how much of it was taken, 0: nothing known. */
static size_t take_escape(struct text *t, const char *s, size_t left)
{
	for (unsigned i = 0; left && i < ARRAY_SIZE(escapes); i++) {
		char c[4];
		size_t n;

		if (escapes[i].c != *s)
			continue;
		if (escapes[i].is) {
			put(t, escapes[i].is, 1);
			return 1;
		}
		n = escaped_char(s + 1, left - 1, escapes[i].hex, c);
		put(t, c, n);
		return n ? 1U + escapes[i].hex : 0;
	}
	return 0;
}

static bool only_comment(const char *s, size_t len)
{
	size_t blanks = 0;

	while (blanks < len && (s[blanks] == ' ' || s[blanks] == '\t'))
		blanks++;
	return blanks == len || (blanks && s[blanks] == '#');
}

static int quoted(struct reader *r, unsigned number, const char *s, size_t len,
		  struct frontmatter_value *ret)
{
	struct text t = { 0 };
	char q = *s;

	for (size_t i = 1; i < len; i++) {
		size_t n;

		if (q == '\'' && s[i] == q && i + 1 < len && s[i + 1] == q) {
			put(&t, s + i++, 1);
		} else if (s[i] == q) {
			if (only_comment(s + i + 1, len - i - 1))
				return take_text(r, &t, ret);
			free(t.s);
			return fail(r, number, "something follows the closing quote");
		} else if (q == '"' && s[i] == '\\') {
			n = take_escape(&t, s + i + 1, len - i - 1);
			if (!n) {
				free(t.s);
				return fail(r, number, "an escape that is not known");
			}
			i += n;
		} else {
			put(&t, s + i, 1);
		}
	}
	free(t.s);
	return fail(r, number, "the quoted value does not end on its line");
}

/* ------------------------------------------------------------------ plain */

/* Up to a comment; false where it cannot be a plain scalar. */
static bool plain_piece(const char *s, size_t *len)
{
	for (size_t i = 0; i < *len; i++) {
		bool gap = i + 1 == *len || s[i + 1] == ' ' || s[i + 1] == '\t';

		if (s[i] == ':' && gap)
			return false;
		if (s[i] == '#' && i && (s[i - 1] == ' ' || s[i - 1] == '\t')) {
			while (i && (s[i - 1] == ' ' || s[i - 1] == '\t'))
				i--;
			*len = i;
		}
	}
	return true;
}

static const char not_plain[] = "the value contains ': '; it has to be in quotes";

/* It goes on in lines that are indented deeper than its key; each line break is a space. */
static int plain(struct reader *r, unsigned number, unsigned indent, const char *s, size_t len,
		 struct frontmatter_value *ret)
{
	struct text t = { 0 };
	struct line l;
	unsigned empty = 0;

	if (!plain_piece(s, &len))
		return fail(r, number, not_plain);
	put(&t, s, len);
	for (; peek(r, &l) && (!l.len || l.indent > indent); skip(r)) {
		if (!l.len) {
			empty++;
			continue;
		}
		if (*l.s == '#')
			continue;
		if (!plain_piece(l.s, &l.len)) {
			free(t.s);
			return fail(r, r->number, not_plain);
		}
		if (t.len && !empty)
			put(&t, " ", 1);
		for (; empty; empty--)
			put(&t, "\n", 1);
		put(&t, l.s, l.len);
	}
	if (t.len == 0 || (t.len == 1 && *t.s == '~') || (t.len == 4 && !memcmp(t.s, "null", 4))) {
		free(t.s);
		return 0;
	}
	return take_text(r, &t, ret);
}

/* ------------------------------------------------------------------ block */

static bool block_header(const char *s, size_t len, char *chomp, unsigned *digit)
{
	size_t i = 1;

	*chomp = 0;
	*digit = 0;
	for (; i < len && s[i] != ' ' && s[i] != '\t'; i++) {
		if ((s[i] == '-' || s[i] == '+') && !*chomp)
			*chomp = s[i];
		else if (s[i] >= '1' && s[i] <= '9' && !*digit)
			*digit = (unsigned)(s[i] - '0');
		else
			return false;
	}
	return only_comment(s + i, len - i);
}

/* Between two lines of a folded block; deeper indented lines keep their breaks. */
static void fold(struct text *t, unsigned empty, bool deeper)
{
	if (!t->len)
		;
	else if (deeper)
		empty++;
	else if (!empty)
		put(t, " ", 1);
	for (; empty; empty--)
		put(t, "\n", 1);
}

static int block(struct reader *r, unsigned number, unsigned indent, const char *s, size_t len,
		 struct frontmatter_value *ret)
{
	bool folded = *s == '>', deeper = false;
	struct text t = { 0 };
	struct line l;
	unsigned own, empty = 0;
	char chomp;

	if (!block_header(s, len, &chomp, &own))
		return fail(r, number, "the sign of a block is followed by something else");
	own = own ? own + indent : 0;
	for (; peek(r, &l) && (!l.len || l.indent > indent); skip(r)) {
		if (!l.len) {
			empty++;
			continue;
		}
		if (!own)
			own = l.indent;
		if (l.indent < own || l.tabs) {
			free(t.s);
			return fail(r, r->number, "the lines of a block are indented differently");
		}
		if (folded) {
			fold(&t, empty, deeper || l.indent > own);
			deeper = l.indent > own;
		} else {
			for (empty += t.len > 0; empty; empty--)
				put(&t, "\n", 1);
		}
		empty = 0;
		put(&t, l.s - (l.indent - own), l.len + (l.indent - own));
	}
	for (empty = chomp == '+' ? empty + 1 : !chomp && t.len; empty; empty--)
		put(&t, "\n", 1);
	return take_text(r, &t, ret);
}

/* ------------------------------------------------------------------ key: value */

/* The value behind "key:"; the reader is at the next line. ret NULL: of no concern. */
static int value(struct reader *r, unsigned number, unsigned indent, const char *s, size_t len,
		 struct frontmatter_value *ret)
{
	struct line l;

	if (!ret) {
		while (peek(r, &l) &&
		       (!l.len || l.indent > indent || (l.indent == indent && *l.s == '-')))
			skip(r);
		return 0;
	}
	ret->line = number;
	if (!len || *s == '#')
		return plain(r, number, indent, s, 0, ret);
	if (*s == '"' || *s == '\'')
		return quoted(r, number, s, len, ret);
	if (*s == '|' || *s == '>')
		return block(r, number, indent, s, len, ret);
	if (strchr("&*!%@`[]{},", *s) || (strchr("-?:", *s) && (len == 1 || s[1] == ' ')))
		return fail(r, number, "the value begins with a sign that is not for plain text");
	return plain(r, number, indent, s, len, ret);
}

/* Divide "key: rest". */
static bool divide(const struct line *l, size_t *key_len, const char **rest, size_t *rest_len)
{
	size_t n = 0;

	while (n < l->len && (l->s[n] == '-' || l->s[n] == '_' || l->s[n] == '.' ||
			      (l->s[n] >= '0' && l->s[n] <= '9') ||
			      ((l->s[n] | 32) >= 'a' && (l->s[n] | 32) <= 'z')))
		n++;
	*key_len = n;
	if (!n || n >= l->len || l->s[n] != ':')
		return false;
	if (++n < l->len && l->s[n] != ' ' && l->s[n] != '\t')
		return false;
	while (n < l->len && (l->s[n] == ' ' || l->s[n] == '\t'))
		n++;
	*rest = l->s + n;
	*rest_len = l->len - n;
	return true;
}

static bool is_key(const struct line *l, size_t len, const char *key)
{
	return strlen(key) == len && !memcmp(l->s, key, len);
}

/* metadata: the lines of one map; of its values only `sandbox` is of concern. */
static int metadata(struct reader *r, struct frontmatter *f)
{
	struct line l;
	unsigned own = 0;

	while (peek(r, &l) && (!l.len || l.indent)) {
		unsigned number = r->number;
		const char *rest;
		size_t key_len, n;
		int ret;

		skip(r);
		if (!l.len || *l.s == '#')
			continue;
		if (!own)
			own = l.indent;
		if (l.tabs || l.indent != own || !divide(&l, &key_len, &rest, &n))
			return fail(r, number, "metadata is not a map of 'key: value' lines");
		if (is_key(&l, key_len, "sandbox") && f->sandbox.line)
			return fail(r, number, "the key is there twice");
		ret = value(r, number, own, rest, n,
			    is_key(&l, key_len, "sandbox") ? &f->sandbox : NULL);
		if (ret < 0)
			return ret;
	}
	return 0;
}

static struct frontmatter_value *member(struct frontmatter *f, const struct line *l, size_t len)
{
	const struct {
		const char *key;
		struct frontmatter_value *v;
	} members[] = {
		{ "name", &f->name },
		{ "description", &f->description },
		{ "license", &f->license },
		{ "compatibility", &f->compatibility },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(members); i++)
		if (is_key(l, len, members[i].key))
			return members[i].v;
	return NULL;
}

static int read_keys(struct reader *r, struct frontmatter *f)
{
	struct line l;
	bool had_metadata = false;

	while (peek(r, &l)) {
		unsigned number = r->number;
		struct frontmatter_value *v;
		const char *rest;
		size_t key_len, n;
		int ret;

		skip(r);
		if (!l.len || *l.s == '#')
			continue;
		if (l.indent || !divide(&l, &key_len, &rest, &n))
			return fail(r, number, "is not 'key: value'");
		v = member(f, &l, key_len);
		if ((v && v->line) || (had_metadata && is_key(&l, key_len, "metadata")))
			return fail(r, number, "the key is there twice");
		if (is_key(&l, key_len, "metadata")) {
			had_metadata = true;
			ret = n && *rest != '#' ? fail(r, number, "metadata is not a nested map")
						: metadata(r, f);
		} else {
			ret = value(r, number, 0, rest, n, v);
		}
		if (ret < 0)
			return ret;
	}
	return 0;
}

/* ------------------------------------------------------------------ the whole */

static bool is_fence(const struct line *l, const char *fence)
{
	return !l->indent && l->len == 3 && !memcmp(l->s, fence, 3);
}

/* From behind the first fence up to the second; -ENOENT, -EINVAL. */
static int find_fences(struct reader *r)
{
	struct reader at;
	struct line l;

	if (!peek(r, &l) || !is_fence(&l, "---"))
		return -ENOENT;
	skip(r);
	for (at = *r; peek(&at, &l); skip(&at)) {
		if (at.at - r->at > FRONTMATTER_MAX)
			return fail(r, at.number, "the front matter is larger than 64 KiB");
		if (is_fence(&l, "---") || is_fence(&l, "...")) {
			r->end = at.at;
			return 0;
		}
	}
	return fail(r, 1, "the front matter has no closing '---'");
}

int frontmatter_read(const char *text, size_t len, struct frontmatter *ret, struct nsbox_error *err)
{
	struct reader r = { .at = text, .end = text + len, .number = 1, .err = err };
	struct frontmatter f = { 0 };
	int rc;

	if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
		r.at += 3;
	rc = find_fences(&r);
	if (rc < 0)
		return rc;
	if (!text_is_utf8(r.at, (size_t)(r.end - r.at)))
		return fail(&r, 1, "the front matter is not UTF-8 text");
	rc = read_keys(&r, &f);
	if (rc < 0) {
		frontmatter_done(&f);
		return rc;
	}
	*ret = f;
	return 0;
}

void frontmatter_done(struct frontmatter *f)
{
	free(f->name.text);
	free(f->description.text);
	free(f->license.text);
	free(f->compatibility.text);
	free(f->sandbox.text);
	memset(f, 0, sizeof(*f));
}
