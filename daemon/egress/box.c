/* SPDX-License-Identifier: Apache-2.0 */
/* One sandbox: what it may reach, and everything that is open for it. */
#include <stdio.h>
#include <string.h>

#include "daemon/egress/egress.h"
#include "nsbox/util.h"

/* ------------------------------------------------------------------ rules */

static void ruleset_free(struct ruleset *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < s->n_bans; i++)
		regfree(&s->bans[i]);
	free(s->bans);
	free(s);
}

static int compile_bans(struct ruleset *s, struct nsbox_error *err)
{
	/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): egress_check() has set it */
	unsigned n = s->rules.head->bans;

	s->bans = calloc(n + 1u, sizeof(*s->bans));
	if (!s->bans)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read rules");
	for (unsigned i = 0; i < n; i++) {
		const char *text = s->rules.strings + s->rules.ban[i];
		auto_free char *whole = NULL;

		if (asprintf(&whole, "^(%s)$", text) < 0)
			whole = NULL;
		/* A ban that cannot be read bans everything rather than nothing. */
		if (!whole ||
		    regcomp(&s->bans[i], whole, REG_EXTENDED | REG_ICASE | REG_NOSUB) != 0)
			return nsbox_fail(err, NSBOX_E_INVALID, 0,
					  "the ban '%.100s' cannot be read", text);
		s->n_bans++;
	}
	return 0;
}

static int ruleset_new(const void *bytes, size_t len, struct ruleset **ret, struct nsbox_error *err)
{
	struct ruleset *s = calloc(1, sizeof(*s) + len);
	int r;

	if (!s)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read rules");
	memcpy(s->bytes, bytes, len);
	r = egress_check(s->bytes, len, &s->rules, err);
	if (r == 0)
		r = compile_bans(s, err);
	if (r < 0) {
		ruleset_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

const struct egress_limits *box_limits(const struct box *x)
{
	return &x->sets->rules.head->limits;
}

/* ------------------------------------------------------------------ judging */

static void refuse(struct judgement *ret, const char *why, const char *pointer)
{
	ret->allowed = false;
	snprintf(ret->why, sizeof(ret->why), "%s", why);
	snprintf(ret->pointer, sizeof(ret->pointer), "%s", pointer);
}

static void allow(struct judgement *ret, const struct egress_rules *r,
		  const struct egress_rule *rule)
{
	ret->allowed = true;
	ret->why[0] = '\0';
	snprintf(ret->pointer, sizeof(ret->pointer), "%s",
		 rule ? r->strings + rule->pointer : "/network/mode");
}

static bool is_banned(const struct ruleset *s, const char *name)
{
	for (unsigned i = 0; i < s->n_bans; i++)
		if (regexec(&s->bans[i], name, 0, NULL, 0) == 0)
			return true;
	return false;
}

void box_judge_name(const struct box *x, const char *name, unsigned protocol, uint16_t port,
		    struct judgement *ret)
{
	for (const struct ruleset *s = x->sets; s; s = s->next) {
		const struct egress_rule *rule = egress_find_name(&s->rules, name, protocol, port);

		if (is_banned(s, name)) {
			refuse(ret, "the name is banned by the operator", "");
			return;
		}
		if (!rule && !s->rules.head->open) {
			bool known = port && egress_find_name(&s->rules, name, EGRESS_EITHER, 0);

			refuse(ret,
			       known ? "the name is granted at other ports" : "no entry covers it",
			       "/network/allow");
			return;
		}
		if (s == x->sets)
			allow(ret, &s->rules, rule);
	}
}

void box_judge_addr(const struct box *x, uint8_t family, const uint8_t *addr, unsigned protocol,
		    uint16_t port, struct judgement *ret)
{
	for (const struct ruleset *s = x->sets; s; s = s->next) {
		const struct egress_rule *rule =
			egress_find_addr(&s->rules, family, addr, protocol, port);

		if (!rule && !s->rules.head->open) {
			refuse(ret, "no entry covers it", "/network/allow");
			return;
		}
		if (s == x->sets)
			allow(ret, &s->rules, rule);
	}
}

bool box_takes_tls(const struct box *x, uint16_t port)
{
	for (const struct ruleset *s = x->sets; s; s = s->next)
		for (unsigned i = 0; i < s->rules.head->tls; i++)
			if (s->rules.port[i] == port)
				return true;
	return false;
}

bool box_denies(const struct box *x, uint8_t family, const uint8_t *addr, struct judgement *ret)
{
	struct egress_denial d;

	for (const struct ruleset *s = x->sets; s; s = s->next)
		if (egress_denied(&s->rules, family, addr, &d)) {
			refuse(ret, d.why, d.pointer);
			return true;
		}
	return false;
}

/* ------------------------------------------------------------------ making and ending */

struct box *box_find(struct broker *b, uint64_t id)
{
	for (struct box *x = b->boxes; x; x = x->next)
		if (x->id == id)
			return x;
	return NULL;
}

int box_new(struct broker *b, uint64_t id, const void *rules, size_t len,
	    int fd[NSBOX_LISTENERS_MAX], struct nsbox_error *err)
{
	struct box *x = calloc(1, sizeof(*x));
	int r;

	if (!x) {
		for (int i = 0; i < NSBOX_LISTENERS_MAX; i++)
			close_fd(&fd[i]);
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "take a sandbox");
	}
	x->broker = b;
	x->id = id;
	for (int i = 0; i < NSBOX_LISTENERS_MAX; i++)
		x->fd[i] = take_fd(&fd[i]);
	r = ruleset_new(rules, len, &x->sets, err);
	if (r == 0)
		r = lookup_open(x, err);
	if (r == 0)
		r = relay_open(x, err);
	x->next = b->boxes;
	b->boxes = x;
	if (r < 0)
		box_free(x);
	return r;
}

int box_narrow(struct box *x, const void *rules, size_t len, struct nsbox_error *err)
{
	struct ruleset *s;
	int r = ruleset_new(rules, len, &s, err);

	if (r < 0)
		return r;
	/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): ruleset_new() has set it */
	s->next = x->sets->next;
	x->sets->next = s;
	relay_judge(x);
	return 0;
}

void box_free(struct box *x)
{
	relay_close(x);
	lookup_close(x);
	names_free(x);
	loop_timer_cancel(x->broker->loop, &x->refill);
	loop_timer_cancel(x->broker->loop, &x->accept_again);
	for (int i = 0; i < NSBOX_LISTENERS_MAX; i++)
		close_fd(&x->fd[i]);
	for (struct box **p = &x->broker->boxes; *p; p = &(*p)->next)
		if (*p == x) {
			*p = x->next;
			break;
		}
	while (x->sets) {
		struct ruleset *s = x->sets;

		x->sets = s->next;
		ruleset_free(s);
	}
	free(x);
}
