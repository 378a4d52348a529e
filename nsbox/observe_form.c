/* SPDX-License-Identifier: Apache-2.0 */
/* Filters in the form that observe.h tells of, and what the plan's own filter says of a call. Pure:
 * the child, the observer and tests use it. */
#include "nsbox/observe.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "nsbox/bpf_sim.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

#define LOAD(field)	       BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ANSWER(what)	       BPF_STMT(BPF_RET | BPF_K, what)
#define IF(op, value, yes, no) BPF_JUMP(BPF_JMP | (op) | BPF_K, value, yes, no)

/* Numbers of another architecture mean other calls: those go to the filter as they are. */
static const struct sock_filter for_init[] = {
	LOAD(arch),
	IF(BPF_JEQ, NATIVE_AUDIT_ARCH, 0, 5),
	LOAD(nr),
	IF(BPF_JEQ, SYS_clone3, 0, 1),
	ANSWER(SECCOMP_RET_ERRNO | ENOSYS),
	/* The payload's own filter, which is loaded below this one, has a listener. */
	IF(BPF_JEQ, SYS_seccomp, 0, 1),
	ANSWER(SECCOMP_RET_ALLOW),
};
static const struct sock_filter for_payload[] = {
	LOAD(arch),
	IF(BPF_JEQ, NATIVE_AUDIT_ARCH, 0, 9),
	LOAD(nr),
	IF(BPF_JEQ, SYS_clone3, 0, 1),
	ANSWER(SECCOMP_RET_ERRNO | ENOSYS),
	IF(BPF_JEQ, SYS_seccomp, 0, 5),
	LOAD(args[0]),
	IF(BPF_JEQ, SECCOMP_SET_MODE_FILTER, 0, 3),
	LOAD(args[1]),
	IF(BPF_JSET, SECCOMP_FILTER_FLAG_NEW_LISTENER, 0, 1),
	ANSWER(SECCOMP_RET_ERRNO | EPERM),
};
#define AT_CLONE3 3 /* in both */

_Static_assert(ARRAY_SIZE(for_payload) <= OBSERVE_EXTRA, "the form has room");

static bool is_refusal(const struct sock_filter *f)
{
	return f->code == (BPF_RET | BPF_K) &&
	       (f->k & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO && (f->k & SECCOMP_RET_DATA);
}

/* As every policy does, unless an operator allows it by name. */
static bool hides_clone3(const struct sock_filter *in, size_t n)
{
	const struct seccomp_data d = { .nr = SYS_clone3, .arch = NATIVE_AUDIT_ARCH };

	return bpf_sim_run(in, n, &d) == (SECCOMP_RET_ERRNO | ENOSYS);
}

int observe_rewrite(const struct sock_filter *in, size_t n, enum observe_form form,
		    struct sock_filter *out)
{
	const struct sock_filter *head = form == OBSERVE_INIT ? for_init : for_payload;
	size_t n_head = form == OBSERVE_INIT ? ARRAY_SIZE(for_init) : ARRAY_SIZE(for_payload);

	if (n + n_head > OBSERVE_MAX)
		return -E2BIG;
	memcpy(out, head, n_head * sizeof(*out));
	if (!hides_clone3(in, n))
		out[AT_CLONE3].jt = out[AT_CLONE3].jf;
	memcpy(out + n_head, in, n * sizeof(*out));
	for (size_t i = n_head; i < n_head + n; i++)
		if (is_refusal(&out[i]))
			out[i].k = SECCOMP_RET_USER_NOTIF;
	return (int)(n_head + n);
}

uint32_t observe_judge(const struct sock_filter *prog, size_t n, const struct seccomp_data *d,
		       struct nsbox_denied_call *ret)
{
	uint32_t words, action = bpf_sim_words(prog, n, d, &words);
	const unsigned first = offsetof(struct seccomp_data, args) / 4;

	*ret = (struct nsbox_denied_call){ .nr = (uint32_t)d->nr, .errnum = EPERM };
	if ((action & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO && (action & SECCOMP_RET_DATA))
		ret->errnum = action & SECCOMP_RET_DATA;
	for (unsigned i = 0; i < 6; i++) /* both halves stand where either was looked at */
		if (words & (3u << (first + 2 * i)))
			ret->arg[i] = (uint32_t)d->args[i];
	return ret->errnum;
}

void observe_count(struct observed *o, const struct nsbox_denied_call *d)
{
	o->total++;
	for (uint32_t i = 0; i < o->rows; i++) {
		struct nsbox_denied_call *r = &o->row[i];

		if (r->nr == d->nr && r->errnum == d->errnum &&
		    !memcmp(r->arg, d->arg, sizeof(d->arg))) {
			r->times++;
			return;
		}
	}
	if (o->rows == NSBOX_DENIED_MAX) {
		o->untold++;
		return;
	}
	o->row[o->rows] = *d;
	o->row[o->rows++].times = 1;
}
