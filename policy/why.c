/* SPDX-License-Identifier: Apache-2.0 */
/* Questions: reading them, and handing them to those who know. */
#include "policy/why.h"

#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/calls.h"

struct why_step *why_add(struct why *y, const char *layer, enum why_verdict v, int errnum,
			 const char *fmt, ...)
{
	/* There are fewer layers than steps; the last one takes what would not fit. */
	struct why_step *s = &y->step[y->n < WHY_STEPS ? y->n++ : WHY_STEPS - 1];
	va_list ap;

	*s = (struct why_step){ .layer = layer, .verdict = v, .errnum = errnum };
	va_start(ap, fmt);
	vsnprintf(s->text, sizeof(s->text), fmt, ap);
	va_end(ap);
	return s;
}

const struct why_step *why_refusal(const struct why *y)
{
	for (size_t i = 0; i < y->n; i++)
		if (y->step[i].verdict == WHY_REFUSES)
			return &y->step[i];
	return NULL;
}

enum why_verdict why_verdict(const struct why *y)
{
	enum why_verdict v = WHY_PASSES;

	if (why_refusal(y))
		return WHY_REFUSES;
	for (size_t i = 0; i < y->n; i++)
		if (y->step[i].verdict != WHY_PASSES)
			v = y->step[i].verdict;
	return v;
}

/* ------------------------------------------------------------------ reading */

#define USAGE                                                                                      \
	"a question is: open PATH, write PATH, exec PATH, connect HOST:PORT, syscall NAME "        \
	"[ARG...]"

static int parse_path(const char *text, const char *workdir, struct why_question *q,
		      struct nsbox_error *err)
{
	char buf[PATH_MAX];
	size_t len = 0;
	int n = snprintf(buf, sizeof(buf), "%s%s%s", *text == '/' ? "" : workdir,
			 *text == '/' ? "" : "/", text);

	if (!*text || n < 0 || n >= (int)sizeof(buf))
		return nsbox_fail(err, NSBOX_E_INVALID, 0, *text ? "the path is too long" : USAGE);
	for (const char *p = buf; *p;) {
		size_t part;

		p += strspn(p, "/");
		part = strcspn(p, "/");
		if (part == 2 && !strncmp(p, "..", 2))
			return nsbox_fail(err, NSBOX_E_INVALID, 0,
					  "the path must not contain \"..\"");
		if (part && !(part == 1 && *p == '.')) {
			q->path[len++] = '/';
			memcpy(q->path + len, p, part);
			len += part;
		}
		p += part;
	}
	if (!len)
		q->path[len++] = '/';
	q->path[len] = '\0';
	return 0;
}

static int parse_connect(const char *text, struct why_question *q, struct nsbox_error *err)
{
	const char *colon = strrchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : 0;
	uint64_t port;

	if (len > 2 && text[0] == '[' && text[len - 1] == ']') { /* an IPv6 address */
		text++;
		len -= 2;
	}
	if (!len || len >= sizeof(q->host) || !parse_u64(colon + 1, &port) || !port || port > 65535)
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "'connect' takes HOST:PORT, for example db.example.com:5432");
	memcpy(q->host, text, len);
	q->host[len] = '\0';
	q->port = (unsigned)port;
	return 0;
}

static int parse_call(char *text, struct why_question *q, struct nsbox_error *err)
{
	char *save = NULL, *word = strtok_r(text, " ,\t", &save);

	if (!word || strlen(word) >= sizeof(q->call))
		return nsbox_fail(err, NSBOX_E_INVALID, 0, USAGE);
	if (!seccomp_name_known(word)) {
		const char *near = seccomp_name_near(word);

		return nsbox_fail(err, NSBOX_E_INVALID, 0, "unknown system call '%s'%s%s%s", word,
				  near ? ", did you mean '" : "", near ? near : "",
				  near ? "'?" : "");
	}
	strcpy(q->call, word);
	while ((word = strtok_r(NULL, " ,\t", &save))) {
		if (q->n_args == 6)
			return nsbox_fail(err, NSBOX_E_INVALID, 0,
					  "a system call has at most six arguments");
		if (!call_argument(word, &q->args[q->n_args++]))
			return nsbox_fail(err, NSBOX_E_INVALID, 0,
					  "'%s' is not a number and no constant that is known here",
					  word);
	}
	return 0;
}

int why_parse(const char *text, const char *workdir, struct why_question *ret,
	      struct nsbox_error *err)
{
	static const struct {
		const char *word;
		enum why_verb verb;
	} verbs[] = {
		{ "open", WHY_READ }, { "read", WHY_READ },	  { "write", WHY_WRITE },
		{ "exec", WHY_EXEC }, { "connect", WHY_CONNECT }, { "syscall", WHY_SYSCALL },
	};
	auto_free char *copy = strdup(text);
	size_t len = strcspn(text, " \t");

	if (!copy)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read a question");
	*ret = (struct why_question){ .verb = WHY_SYSCALL };
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		char *rest = copy + len + strspn(copy + len, " \t");

		if (strlen(verbs[i].word) != len || strncmp(text, verbs[i].word, len) != 0)
			continue;
		ret->verb = verbs[i].verb;
		if (ret->verb == WHY_CONNECT)
			return parse_connect(rest, ret, err);
		if (ret->verb == WHY_SYSCALL)
			return parse_call(rest, ret, err);
		return parse_path(rest, workdir, ret, err);
	}
	return nsbox_fail(err, NSBOX_E_INVALID, 0, USAGE);
}

int why_judge(const struct why_world *w, const struct why_question *q, struct why *ret,
	      struct nsbox_error *err)
{
	*ret = (struct why){ .n = 0 };
	switch (q->verb) {
	case WHY_CONNECT: why_connect(w, q, ret); return 0;
	case WHY_SYSCALL: return why_call(w, q, ret, err);
	case WHY_READ:
	case WHY_WRITE:
	case WHY_EXEC: why_path(w, q, ret); return 0;
	}
	return -EINVAL;
}
