/* SPDX-License-Identifier: Apache-2.0 */
/* System calls, by every way through the payload's filter; connections, by the network policy. */
#include <arpa/inet.h>
#include <linux/seccomp.h>
#include <string.h>

#include "nsbox/bpf_sim.h"
#include "nsbox/egress_format.h"
#include "nsbox/util.h"
#include "policy/calls.h"
#include "policy/names.h"
#include "policy/prove_walk.h"
#include "policy/why.h"

static struct program payload_filter(const struct blob *plan)
{
	struct program p;

	p.insn = blob_get(plan, SEC_BPF, sizeof(*p.insn), &p.n);
	return p;
}

uint32_t why_filter(const struct blob *plan, const char *call, const uint64_t args[6])
{
	struct program p = payload_filter(plan);
	struct seccomp_data d = { .nr = call_number(call, SECCOMP_ARCH_NATIVE),
				  .arch = call_audit_arch(SECCOMP_ARCH_NATIVE) };

	memcpy(d.args, args, sizeof(d.args));
	return bpf_sim_run(p.insn, p.n, &d);
}

/* ------------------------------------------------------------------ a call */

#define ACTIONS_MAX 8

struct actions {
	struct {
		uint32_t action;
		struct seccomp_data call; /* one that gets it */
	} v[ACTIONS_MAX];
	size_t n;
};

static int collect(void *ctx, const struct walk_path *path)
{
	struct actions *a = ctx;

	for (size_t i = 0; i < a->n; i++)
		if (a->v[i].action == path->action)
			return 0;
	if (a->n < ACTIONS_MAX) {
		a->v[a->n].action = path->action;
		a->v[a->n++].call = path->witness;
	}
	return 0;
}

static void describe(const struct why_question *q, const struct actions *a, struct why_step *s)
{
	int len = nsbox_format(s->text, sizeof(s->text), "it depends on the arguments:");

	for (size_t i = 0; i < a->n; i++) {
		const struct seccomp_data *d = &a->v[i].call;
		char buf[32];

		len += nsbox_format(s->text + len, (int)sizeof(s->text) - len,
				    "%s %s for %s(0x%llx, 0x%llx, 0x%llx, 0x%llx)", i ? ";" : "",
				    call_action_text(a->v[i].action, buf, sizeof(buf)), q->call,
				    (unsigned long long)d->args[0], (unsigned long long)d->args[1],
				    (unsigned long long)d->args[2], (unsigned long long)d->args[3]);
	}
}

static void judge_action(const struct why_question *q, uint32_t action, struct why *y)
{
	int errnum = (int)(action & SECCOMP_RET_DATA);
	char buf[32];

	if (action == SECCOMP_RET_ALLOW)
		why_add(y, "seccomp", WHY_PASSES, 0, "the filter lets %s through%s", q->call,
			q->n_args ? " with these arguments" : ", whatever its arguments are");
	else if (action == SECCOMP_RET_ERRNO)
		why_add(y, "seccomp", WHY_HIDES, 0,
			"the filter answers %s with success, and nothing is done", q->call);
	else if ((action & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO)
		why_add(y, "seccomp", WHY_REFUSES, errnum, "the filter answers %s with %s%s",
			q->call, call_errno_name(errnum, buf, sizeof(buf)),
			errnum == ENOSYS ? ", as a kernel without it" : "");
	else
		why_add(y, "seccomp", WHY_REFUSES, 0, "the filter ends the process");
}

int why_call(const struct why_world *w, const struct why_question *q, struct why *y,
	     struct nsbox_error *err)
{
	int nr = call_number(q->call, SECCOMP_ARCH_NATIVE);
	struct word_cond given[12];
	struct actions a = { .n = 0 };
	struct walk walk = { .prog = payload_filter(w->plan),
			     .arch = call_audit_arch(SECCOMP_ARCH_NATIVE),
			     .nr = (uint32_t)nr,
			     .given = given,
			     .n_given = (size_t)q->n_args * 2,
			     .each = collect,
			     .ctx = &a };
	int r;

	if (nr < 0)
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "this architecture has no call '%s'",
				  q->call);
	for (unsigned i = 0; i < q->n_args; i++) {
		given[(size_t)2 * i] = (struct word_cond){ WORD_LOW(i), WORD_EQ, true, UINT32_MAX,
							   (uint32_t)q->args[i] };
		given[(size_t)2 * i + 1] =
			(struct word_cond){ WORD_HIGH(i), WORD_EQ, true, UINT32_MAX,
					    (uint32_t)(q->args[i] >> 32) };
	}
	r = walk_program(&walk, err);
	if (r < 0)
		return r;
	if (a.n == 1)
		judge_action(q, a.v[0].action, y);
	else
		describe(q, &a, why_add(y, "seccomp", WHY_DEPENDS, 0, "%s", ""));
	return 0;
}

/* ------------------------------------------------------------------ a connection */

static bool is_loopback(const char *host)
{
	struct in_addr v4;

	if (!strcmp(host, "localhost") || !strcmp(host, "::1"))
		return true;
	return inet_pton(AF_INET, host, &v4) == 1 && (ntohl(v4.s_addr) >> 24) == 127;
}

static void ask_nothing(const struct why_question *q, struct why *y)
{
	struct egress_net net;

	if (host_net(q->host, &net))
		why_add(y, "network", WHY_REFUSES, ENETUNREACH,
			"nothing is granted: the namespace has loopback and no route");
	else
		why_add(y, "network", WHY_REFUSES, 0,
			"nothing is granted: the name cannot be looked up (EAI_AGAIN)");
}

static void ask_address(const struct egress_rules *r, const struct why_question *q,
			const struct egress_net *a, struct why *y)
{
	const struct egress_rule *rule =
		egress_find_addr(r, a->family, a->addr, EGRESS_TCP, (uint16_t)q->port);
	struct egress_denial d;

	if (egress_denied(r, a->family, a->addr, &d))
		why_add(y, "network", WHY_REFUSES, ECONNREFUSED, "the address is %s%s%s", d.why,
			*d.pointer ? ": " : "", d.pointer);
	else if (!rule && !r->head->open)
		why_add(y, "network", WHY_REFUSES, ECONNREFUSED,
			"no entry of network.allow covers %s port %u", q->host, q->port);
	else
		why_add(y, "network", WHY_PASSES, 0, "%s covers it",
			rule ? r->strings + rule->pointer : "mode \"open\"");
}

static bool is_banned(const struct nsbox_policy *p, const char *name)
{
	for (char *const *ban = p->network.banned_names; ban && *ban; ban++)
		if (ban_matches(*ban, name))
			return true;
	return false;
}

/* The kernel refuses a port that no name is granted at; at others the relay has to decide. */
static bool any_name_at(const struct egress_rules *r, uint16_t port)
{
	for (unsigned i = 0; i < r->head->rules; i++)
		if (r->strings[r->rule[i].host] && r->rule[i].protocol == EGRESS_TCP)
			for (unsigned k = 0; k < r->rule[i].ports; k++)
				if (r->port[r->rule[i].port + k] == port)
					return true;
	return false;
}

static void ask_name(const struct nsbox_policy *p, const struct egress_rules *r,
		     const struct why_question *q, const char *name, struct why *y)
{
	uint16_t port = (uint16_t)q->port;
	const struct egress_rule *rule = egress_find_name(r, name, EGRESS_TCP, port);

	if (is_banned(p, name))
		why_add(y, "network", WHY_REFUSES, 0, "the operator bans the name (EAI_NONAME)");
	else if (!egress_find_name(r, name, EGRESS_EITHER, 0) && !r->head->open)
		why_add(y, "network", WHY_REFUSES, 0,
			"no entry of network.allow covers %s: the name is not known (EAI_NONAME)",
			q->host);
	else if (!rule && !r->head->open)
		why_add(y, "network", WHY_REFUSES, any_name_at(r, port) ? ECONNRESET : ECONNREFUSED,
			"no entry of network.allow covers %s at port %u", q->host, q->port);
	else
		why_add(y, "network", WHY_PASSES, 0,
			"%s covers it, unless it is at an address that is always denied",
			rule ? r->strings + rule->pointer : "mode \"open\"");
}

static void ask_network(const struct why_world *w, const struct why_question *q, struct why *y)
{
	struct egress_rules r;
	struct egress_net net;
	char name[HOST_MAX + 1];
	const char *why;
	size_t size;
	const void *data = blob_get(w->plan, SEC_EGRESS, 1, &size);

	if (!size || egress_check(data, size, &r, NULL) < 0) {
		ask_nothing(q, y);
		return;
	}
	if (!host_check(q->host, &why)) {
		why_add(y, "network", WHY_REFUSES, 0, "'%.80s' %s (EAI_NONAME)", q->host, why);
		return;
	}
	host_normalise(q->host, name, sizeof(name));
	if (host_net(name, &net))
		ask_address(&r, q, &net, y);
	else
		ask_name(w->policy, &r, q, name, y);
}

void why_connect(const struct why_world *w, const struct why_question *q, struct why *y)
{
	const uint64_t tcp[6] = { AF_INET, SOCK_STREAM, 0 };

	if (why_filter(w->plan, "socket", tcp) == SECCOMP_RET_ALLOW)
		why_add(y, "seccomp", WHY_PASSES, 0, "TCP sockets can be made");
	else
		why_add(y, "seccomp", WHY_REFUSES, EPERM, "TCP sockets cannot be made");
	if (is_loopback(q->host))
		why_add(y, "network", WHY_PASSES, 0,
			"loopback is the run's own: it reaches the run's own servers, none of the "
			"host's");
	else
		ask_network(w, q, y);
}
