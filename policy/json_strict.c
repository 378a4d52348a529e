/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict JSON text.
 *
 * json-c builds the tree, but it joins duplicate keys silently, cuts nothing at \u0000, saturates
 * large integers and accepts a few spellings that the RFC does not. So the text is first walked
 * here, once, without recursion: grammar, UTF-8, escapes, numbers, depth, and the keys of each
 * object. What passes means the same to every parser, and json-c gets only that.
 *
 * Keys are decoded into one growing arena. An object's keys are the top of a stack; when it closes
 * they are sorted and neighbours compared, so that a million keys cost n log n and a hostile set of
 * keys cannot do worse.
 */
#include "policy/json_strict.h"

#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"

struct key {
	size_t at, len; /* in the arena */
	size_t pos;	/* of its opening quote in the text */
};

struct frame {
	bool object;
	size_t first_key; /* index into keys: this object's first */
	size_t index;	  /* array: current element */
	bool has_key;	  /* object: keys[n_keys - 1] is the member being read */
};

struct scan {
	const unsigned char *s, *p, *end;
	const struct json_limits *lim;
	struct nsbox_error *err;
	char *arena;
	size_t arena_len, arena_cap;
	struct key *keys;
	size_t n_keys, cap_keys;
	struct frame stack[JSON_DEPTH_MAX];
	int depth;
	size_t nodes;
};

/* ------------------------------------------------------------------ errors */

static void append(char *buf, size_t size, size_t *len, const char *s, size_t n)
{
	for (size_t i = 0; i < n && *len + 7 < size; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c == '~')
			*len += (size_t)snprintf(buf + *len, size - *len, "~0");
		else if (c == '/')
			*len += (size_t)snprintf(buf + *len, size - *len, "~1");
		else if (c < 0x20 || c == 0x7f)
			*len += (size_t)snprintf(buf + *len, size - *len, "\\u%04x", c);
		else
			buf[(*len)++] = (char)c;
	}
	buf[*len] = '\0';
}

static void scan_pointer(const struct scan *sc, char *buf, size_t size)
{
	size_t len = 0;

	buf[0] = '\0';
	for (int i = 0; i < sc->depth && len + 32 < size; i++) {
		const struct frame *f = &sc->stack[i];
		size_t last = i + 1 < sc->depth ? sc->stack[i + 1].first_key : sc->n_keys;

		if (f->object && !f->has_key)
			break;
		buf[len++] = '/';
		buf[len] = '\0';
		if (f->object)
			append(buf, size, &len, sc->arena + sc->keys[last - 1].at,
			       sc->keys[last - 1].len);
		else
			len += (size_t)snprintf(buf + len, size - len, "%zu", f->index);
	}
}

static int scan_fail(struct scan *sc, const unsigned char *at, const char *what)
{
	char pointer[200];
	size_t line = 1, column = 1;

	for (const unsigned char *p = sc->s; p < at && p < sc->end; p++, column++)
		if (*p == '\n') {
			line++;
			column = 0;
		}
	scan_pointer(sc, pointer, sizeof(pointer));
	nsbox_fail(sc->err, sc->lim->code, 0, "%s%s%s (line %zu, column %zu)", pointer,
		   *pointer ? ": " : "", what, line, column);
	return -EINVAL;
}

static int scan_nomem(struct scan *sc)
{
	return nsbox_fail(sc->err, NSBOX_E_NOMEM, ENOMEM, "read JSON");
}

/* ------------------------------------------------------------------ strings */

static int arena_put(struct scan *sc, const void *data, size_t n)
{
	if (!sc->arena || sc->arena_len + n > sc->arena_cap) {
		size_t cap = MAX(sc->arena_cap * 2, sc->arena_len + n + 256);
		char *a = realloc(sc->arena, cap);

		if (!a)
			return scan_nomem(sc);
		sc->arena = a;
		sc->arena_cap = cap;
	}
	memcpy(sc->arena + sc->arena_len, data, n);
	sc->arena_len += n;
	return 0;
}

/* Length of the UTF-8 sequence at p, or 0: no overlong forms, no surrogates, nothing past 10FFFF. */
static size_t utf8_len(const unsigned char *p, const unsigned char *end)
{
	size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;

	if (n < 2)
		return n;
	if (p[0] > 0xf4 || (size_t)(end - p) < n)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	return n;
}

static size_t utf8_encode(uint32_t c, unsigned char out[4])
{
	if (c < 0x80) {
		out[0] = (unsigned char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (unsigned char)(0xc0 | c >> 6);
		out[1] = (unsigned char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (unsigned char)(0xe0 | c >> 12);
		out[1] = (unsigned char)(0x80 | (c >> 6 & 0x3f));
		out[2] = (unsigned char)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (unsigned char)(0xf0 | c >> 18);
	out[1] = (unsigned char)(0x80 | (c >> 12 & 0x3f));
	out[2] = (unsigned char)(0x80 | (c >> 6 & 0x3f));
	out[3] = (unsigned char)(0x80 | (c & 0x3f));
	return 4;
}

static bool hex4(const unsigned char *p, const unsigned char *end, uint32_t *ret)
{
	uint32_t v = 0;

	if (end - p < 4)
		return false;
	for (int i = 0; i < 4; i++) {
		unsigned char c = p[i];
		unsigned d = 16;

		if (c >= '0' && c <= '9')
			d = (unsigned)(c - '0');
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			d = (unsigned)((c | 32) - 'a' + 10);

		if (d > 15)
			return false;
		v = v << 4 | d;
	}
	*ret = v;
	return true;
}

/* sc->p is behind "\u". Reads one escape, or two that make a surrogate pair. */
static int scan_unicode(struct scan *sc, uint32_t *ret)
{
	const unsigned char *at = sc->p - 2;
	uint32_t c, low;

	if (!hex4(sc->p, sc->end, &c))
		return scan_fail(sc, at, "\\u needs four hexadecimal digits");
	sc->p += 4;
	if (c == 0)
		return scan_fail(sc, at, "\\u0000 is not allowed");
	if (c >= 0xdc00 && c <= 0xdfff)
		return scan_fail(sc, at, "lone low surrogate");
	if (c >= 0xd800 && c <= 0xdbff) {
		if (sc->end - sc->p < 6 || sc->p[0] != '\\' || sc->p[1] != 'u' ||
		    !hex4(sc->p + 2, sc->end, &low) || low < 0xdc00 || low > 0xdfff)
			return scan_fail(sc, at, "lone high surrogate");
		sc->p += 6;
		c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
	}
	*ret = c;
	return 0;
}

static int scan_escape(struct scan *sc, bool keep)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	unsigned char out[4];
	const char *known;
	uint32_t c = 0;
	int r;

	if (sc->p >= sc->end)
		return scan_fail(sc, sc->p, "the string does not end");
	if (*sc->p == 'u') {
		sc->p++;
		r = scan_unicode(sc, &c);
		if (r < 0)
			return r;
		return keep ? arena_put(sc, out, utf8_encode(c, out)) : 0;
	}
	known = *sc->p ? strchr(from, *sc->p) : NULL;
	if (!known)
		return scan_fail(sc, sc->p - 1, "unknown escape in a string");
	sc->p++;
	return keep ? arena_put(sc, &to[known - from], 1) : 0;
}

/* sc->p is on the opening quote. `keep`: the decoded text goes to the arena (keys). */
static int scan_string(struct scan *sc, bool keep)
{
	size_t n;
	int r;

	for (sc->p++; sc->p < sc->end; sc->p += n) {
		if (*sc->p == '"') {
			sc->p++;
			return 0;
		}
		n = 0;
		if (*sc->p == '\\') {
			sc->p++;
			r = scan_escape(sc, keep);
			if (r < 0)
				return r;
			continue;
		}
		if (*sc->p < 0x20)
			return scan_fail(sc, sc->p,
					 *sc->p ? "control character in a string" : "NUL byte");
		n = utf8_len(sc->p, sc->end);
		if (!n)
			return scan_fail(sc, sc->p, "invalid UTF-8");
		r = keep ? arena_put(sc, sc->p, n) : 0;
		if (r < 0)
			return r;
	}
	return scan_fail(sc, sc->p, "the string does not end");
}

/* ------------------------------------------------------------------ numbers, words */

static bool is_digit(const struct scan *sc)
{
	return sc->p < sc->end && *sc->p >= '0' && *sc->p <= '9';
}

static int check_range(struct scan *sc, const unsigned char *start, bool integer)
{
	char buf[512];
	size_t n = (size_t)(sc->p - start);
	char *rest;

	if (n >= sizeof(buf))
		return scan_fail(sc, start, "the number has too many digits");
	memcpy(buf, start, n);
	buf[n] = '\0';
	errno = 0;
	if (!integer)
		return isfinite(strtod(buf, &rest)) ? 0
						    : scan_fail(sc, start, "number out of range");
	if (buf[0] == '-')
		(void)strtoll(buf, &rest, 10);
	else
		(void)strtoull(buf, &rest, 10);
	return errno ? scan_fail(sc, start, "integer out of range") : 0;
}

static int scan_number(struct scan *sc)
{
	const unsigned char *start = sc->p;
	bool integer = true;

	if (*sc->p == '-')
		sc->p++;
	if (!is_digit(sc))
		return scan_fail(sc, start, "malformed number");
	if (*sc->p++ == '0' && is_digit(sc))
		return scan_fail(sc, start, "a number does not begin with 0");
	while (is_digit(sc))
		sc->p++;
	if (sc->p < sc->end && *sc->p == '.') {
		integer = false;
		sc->p++;
		if (!is_digit(sc))
			return scan_fail(sc, start, "malformed number");
		while (is_digit(sc))
			sc->p++;
	}
	if (sc->p < sc->end && (*sc->p | 32) == 'e') {
		integer = false;
		sc->p++;
		if (sc->p < sc->end && (*sc->p == '+' || *sc->p == '-'))
			sc->p++;
		if (!is_digit(sc))
			return scan_fail(sc, start, "malformed number");
		while (is_digit(sc))
			sc->p++;
	}
	return check_range(sc, start, integer);
}

static int scan_word(struct scan *sc)
{
	static const char *const words[] = { "true", "false", "null" };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		size_t n = strlen(words[i]);

		if ((size_t)(sc->end - sc->p) >= n && !memcmp(sc->p, words[i], n)) {
			sc->p += n;
			return 0;
		}
	}
	return scan_fail(sc, sc->p, *sc->p ? "unexpected character" : "NUL byte");
}

/* ------------------------------------------------------------------ containers */

static int compare_keys(const void *a, const void *b, void *arena)
{
	const struct key *x = a, *y = b;
	const char *base = arena;
	int c = memcmp(base + x->at, base + y->at, MIN(x->len, y->len));

	if (c)
		return c;
	if (x->len != y->len)
		return x->len < y->len ? -1 : 1;
	return x->pos < y->pos ? -1 : 1;
}

static int fail_duplicate(struct scan *sc, const struct key *k)
{
	char what[120];
	size_t len = (size_t)snprintf(what, sizeof(what), "duplicate key \"");

	append(what, sizeof(what) - 1, &len, sc->arena + k->at, MIN(k->len, (size_t)60));
	what[len++] = '"';
	what[len] = '\0';
	sc->stack[sc->depth - 1].has_key = false; /* the pointer is that of the object */
	return scan_fail(sc, sc->s + k->pos, what);
}

static int close_object(struct scan *sc)
{
	struct frame *f = &sc->stack[sc->depth - 1];
	size_t n = sc->n_keys - f->first_key;
	struct key *first = n ? &sc->keys[f->first_key] : NULL;

	if (n > 1)
		qsort_r(first, n, sizeof(*first), compare_keys, sc->arena);
	for (size_t i = 1; i < n; i++)
		if (first[i].len == first[i - 1].len &&
		    !memcmp(sc->arena + first[i].at, sc->arena + first[i - 1].at, first[i].len))
			return fail_duplicate(sc, &first[i]);
	sc->n_keys = f->first_key;
	return 0;
}

static void skip_space(struct scan *sc)
{
	while (sc->p < sc->end &&
	       (*sc->p == ' ' || *sc->p == '\t' || *sc->p == '\n' || *sc->p == '\r'))
		sc->p++;
}

static int count_node(struct scan *sc)
{
	if (sc->lim->max_nodes && ++sc->nodes > sc->lim->max_nodes)
		return scan_fail(sc, sc->p, "too many values");
	return 0;
}

static int push(struct scan *sc, bool object)
{
	if (sc->depth >= MIN(sc->lim->max_depth, JSON_DEPTH_MAX))
		return scan_fail(sc, sc->p, "nested too deeply");
	sc->stack[sc->depth++] = (struct frame){ .object = object, .first_key = sc->n_keys };
	sc->p++;
	return 0;
}

/* A key and its colon. */
static int scan_key(struct scan *sc)
{
	struct key k = { .at = sc->arena_len };
	int r;

	skip_space(sc);
	if (sc->p >= sc->end || *sc->p != '"')
		return scan_fail(sc, sc->p, "expected a key in double quotes");
	k.pos = (size_t)(sc->p - sc->s);
	r = count_node(sc);
	if (r < 0)
		return r;
	r = arena_put(sc, "", 0); /* an empty key has a place too */
	if (r == 0)
		r = scan_string(sc, true);
	if (r < 0)
		return r;
	k.len = sc->arena_len - k.at;
	if (sc->n_keys == sc->cap_keys) {
		size_t cap = sc->cap_keys ? sc->cap_keys * 2 : 64;
		struct key *keys = realloc(sc->keys, cap * sizeof(*keys));

		if (!keys)
			return scan_nomem(sc);
		sc->keys = keys;
		sc->cap_keys = cap;
	}
	sc->keys[sc->n_keys++] = k;
	sc->stack[sc->depth - 1].has_key = true;
	skip_space(sc);
	if (sc->p >= sc->end || *sc->p != ':')
		return scan_fail(sc, sc->p, "expected ':' after a key");
	sc->p++;
	return 0;
}

/* Behind a value: close what closes here, then stand before the next value or at the end. */
static int after_value(struct scan *sc)
{
	while (sc->depth) {
		struct frame *f = &sc->stack[sc->depth - 1];
		int r;

		skip_space(sc);
		if (sc->p < sc->end && *sc->p == ',') {
			sc->p++;
			f->index++;
			return f->object ? scan_key(sc) : 0;
		}
		if (sc->p >= sc->end || *sc->p != (f->object ? '}' : ']'))
			return scan_fail(sc, sc->p,
					 sc->p >= sc->end ? "the text ends too early"
					 : f->object	  ? "expected ',' or '}'"
							  : "expected ',' or ']'");
		r = f->object ? close_object(sc) : 0;
		if (r < 0)
			return r;
		sc->p++;
		sc->depth--;
	}
	return 1; /* the whole text was one value */
}

/* An opening bracket; 1 where the container is empty and thereby complete. */
static int open_container(struct scan *sc)
{
	bool object = *sc->p == '{';
	int r = push(sc, object);

	if (r < 0)
		return r;
	skip_space(sc);
	if (sc->p < sc->end && *sc->p == (object ? '}' : ']'))
		return 1; /* after_value() closes it */
	return object ? scan_key(sc) : 0;
}

static int scan_value(struct scan *sc)
{
	int r;

	skip_space(sc);
	if (sc->p >= sc->end)
		return scan_fail(sc, sc->p, sc->depth ? "the text ends too early" : "empty text");
	r = count_node(sc);
	if (r < 0)
		return r;
	if (*sc->p == '{' || *sc->p == '[') {
		r = open_container(sc);
		return r == 1 ? after_value(sc) : r;
	}
	r = *sc->p == '"'		    ? scan_string(sc, false)
	    : *sc->p == '-' || is_digit(sc) ? scan_number(sc)
					    : scan_word(sc);
	return r < 0 ? r : after_value(sc);
}

static int scan_text(struct scan *sc)
{
	int r;

	if (sc->end - sc->p >= 3 && !memcmp(sc->p, "\xef\xbb\xbf", 3))
		return scan_fail(sc, sc->p, "the text begins with a byte order mark");
	do
		r = scan_value(sc);
	while (r == 0);
	if (r < 0)
		return r;
	skip_space(sc);
	return sc->p < sc->end ? scan_fail(sc, sc->p, "text after the end of the value") : 0;
}

/* ------------------------------------------------------------------ the whole */

static int build(const char *s, size_t len, const struct json_limits *lim, struct json_object **ret,
		 struct nsbox_error *err)
{
	struct json_tokener *tok = json_tokener_new_ex(JSON_DEPTH_MAX + 1);
	enum json_tokener_error e;
	struct json_object *v;

	if (!tok)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read JSON");
	json_tokener_set_flags(tok, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	v = json_tokener_parse_ex(tok, s, (int)len);
	/* A number at the very end of the text is only known to be whole at a terminator. */
	if (!v && json_tokener_get_error(tok) == json_tokener_continue)
		v = json_tokener_parse_ex(tok, "", 1);
	e = json_tokener_get_error(tok);
	json_tokener_free(tok);
	if (e != json_tokener_success) {
		json_object_put(v);
		return nsbox_fail(err, lim->code, 0, "%s", json_tokener_error_desc(e));
	}
	*ret = v;
	return 0;
}

int json_strict_parse(const char *s, size_t len, const struct json_limits *lim,
		      struct json_object **ret, struct nsbox_error *err)
{
	struct scan sc = {
		.s = (const unsigned char *)s,
		.p = (const unsigned char *)s,
		.end = (const unsigned char *)s + len,
		.lim = lim,
		.err = err,
	};
	int r;

	if (len > lim->max_size || len > INT32_MAX - 1)
		return nsbox_fail(err, lim->code, 0, "%zu bytes of JSON, at most %zu are allowed",
				  len, lim->max_size);
	r = scan_text(&sc);
	free(sc.arena);
	free(sc.keys);
	return r < 0 ? r : build(s, len, lim, ret, err);
}
