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

/* Calls that open a file by a name; which of their arguments are the directory, name and flags. */
static const struct observe_open opens[] = {
	{ SYS_openat, 0, 1, 2, false },
	{ SYS_openat2, 0, 1, 2, true },
#ifdef SYS_open
	{ SYS_open, -1, 0, 1, false },
#endif
};

_Static_assert(ARRAY_SIZE(for_payload) + ARRAY_SIZE(opens) + 4 <= OBSERVE_EXTRA,
	       "the form has room");

const struct observe_open *observe_open(uint32_t nr)
{
	for (size_t i = 0; i < ARRAY_SIZE(opens); i++)
		if (opens[i].nr == nr)
			return &opens[i];
	return NULL;
}

/* Opens wait for the observer as well; it asks the plan's filter before it lets one go on. */
static size_t head_of_opens(struct sock_filter *out)
{
	const uint8_t n = ARRAY_SIZE(opens);
	size_t at = 0;

	out[at++] = (struct sock_filter)LOAD(arch);
	out[at++] = (struct sock_filter)IF(BPF_JEQ, NATIVE_AUDIT_ARCH, 0, n + 2);
	out[at++] = (struct sock_filter)LOAD(nr);
	for (uint8_t i = 0; i < n; i++)
		out[at++] =
			(struct sock_filter)IF(BPF_JEQ, opens[i].nr, n - 1 - i, i == n - 1 ? 1 : 0);
	out[at++] = (struct sock_filter)ANSWER(SECCOMP_RET_USER_NOTIF);
	return at;
}

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
	size_t n_opens = 0;

	if (n + OBSERVE_EXTRA > OBSERVE_MAX)
		return -E2BIG;
	if (form == OBSERVE_TRACED)
		n_opens = head_of_opens(out);
	out += n_opens;
	memcpy(out, head, n_head * sizeof(*out));
	if (!hides_clone3(in, n))
		out[AT_CLONE3].jt = out[AT_CLONE3].jf;
	memcpy(out + n_head, in, n * sizeof(*out));
	for (size_t i = n_head; i < n_head + n; i++)
		if (is_refusal(&out[i]))
			out[i].k = SECCOMP_RET_USER_NOTIF;
	return (int)(n_opens + n_head + n);
}

uint32_t observe_judge(const struct sock_filter *prog, size_t n, const struct seccomp_data *d,
		       struct nsbox_denied_call *ret)
{
	uint32_t words, action = bpf_sim_words(prog, n, d, &words);
	const unsigned first = offsetof(struct seccomp_data, args) / 4;

	*ret = (struct nsbox_denied_call){ .nr = (uint32_t)d->nr, .errnum = EPERM };
	if (action == SECCOMP_RET_ALLOW)
		return 0;
	if ((action & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO && (action & SECCOMP_RET_DATA))
		ret->errnum = action & SECCOMP_RET_DATA;
	for (unsigned i = 0; i < 6; i++) /* both halves stand where either was looked at */
		if (words & (3u << (first + 2 * i)))
			ret->arg[i] = (uint32_t)d->args[i];
	return ret->errnum;
}

void observe_count_open(struct nsbox_trace *t, const char *path, uint32_t flags, uint32_t errnum)
{
	char name[NSBOX_TRACE_PATH];

	nsbox_format(name, sizeof(name), "%s", path);
	for (uint32_t i = 0; i < t->rows; i++) {
		struct nsbox_trace_row *r = &t->row[i];

		if (r->errnum == errnum && r->flags == flags && !strcmp(r->path, name)) {
			r->times++;
			return;
		}
	}
	if (t->rows == NSBOX_TRACE_ROWS) {
		t->untold++;
		return;
	}
	t->row[t->rows] = (struct nsbox_trace_row){ .errnum = errnum, .flags = flags, .times = 1 };
	memcpy(t->row[t->rows++].path, name, sizeof(name));
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
