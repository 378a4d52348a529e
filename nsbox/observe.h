/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Telling which system calls a program was refused.
 *
 * The kernel does not say: of stacked filters the strictest answer wins, so a second filter that
 * only watches never sees a call that the first one answers with an errno. So where refusals are to
 * be told, init's filter and the payload's are loaded in a form in which each refusal is a
 * notification (SECCOMP_RET_USER_NOTIF) instead: the call waits for a process outside the sandbox,
 * the observer, which counts it and answers it with the errno that the plan's own filter has for it.
 *
 *   - What is refused does not change: what the filter allows never gets to the observer, and what
 *     gets there cannot be allowed by it. The observer is behind a filter of its own that lets it
 *     send nothing but answers that are in read-only memory, and all of these are errors. To let a
 *     call pass would take another one.
 *   - Where the observer has gone the kernel itself answers, with ENOSYS.
 *   - Nobody inside can become an observer: making a listener is an errno at once, in this form too,
 *     and so is success without a deed. clone3 is left out because every new thread tries it.
 *   - Each exec has an observer of its own, at low priority, that slows down who floods it.
 */
#ifndef NSBOX_OBSERVE_H
#define NSBOX_OBSERVE_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <nsbox/sandbox.h>
#include <stdbool.h>
#include <stddef.h>

#define OBSERVE_EXTRA	 32 /* instructions that the form has more */
#define OBSERVE_MAX	 4096
#define OBSERVE_ERRNOS	 16    /* different answers of one filter */
#define OBSERVE_FLOOD	 10000 /* refusals, after which each costs */
#define OBSERVE_PAUSE_NS 50000 /* so much */

/* SECCOMP_RET_ERRNO of `in` as notifications, into out (n + OBSERVE_EXTRA). The length, or -E2BIG. */
enum observe_form { OBSERVE_INIT, OBSERVE_PAYLOAD, OBSERVE_TRACED };
int observe_rewrite(const struct sock_filter *in, size_t n, enum observe_form form,
		    struct sock_filter *out);

/* The errno that the filter has for a call, and the arguments that decided; 0: it is allowed. */
uint32_t observe_judge(const struct sock_filter *prog, size_t n, const struct seccomp_data *d,
		       struct nsbox_denied_call *ret);

/* Shared by the owner and the observer. */
struct observed {
	uint32_t begun; /* the program's own calls are counted, after the mark */
	uint32_t rows;
	uint64_t untold;
	uint64_t total;
	struct nsbox_denied_call row[NSBOX_DENIED_MAX];
};
void observe_count(struct observed *o, const struct nsbox_denied_call *d);

/* Opens, where they are observed too (nsbox_io.trace): arguments by number, -1 where there is none. */
struct observe_open {
	uint32_t nr;
	int dir, path, flags;
	bool flags_in_memory; /* at the start of a struct */
};
const struct observe_open *observe_open(uint32_t nr);
void observe_count_open(struct nsbox_trace *t, const char *path, uint32_t flags, uint32_t errnum);

/* What the observer asks of the process inside that tries it (prober.c), and the answer. */
struct probe_ask {
	uint32_t number, flags;
	char path[4096];
};
struct probe_told {
	uint32_t number, errnum;
};

/* The call that a payload makes when its witness is over: refused by every filter. */
#define OBSERVE_MARK_NR SYS_mount
#define OBSERVE_MARK	UINT64_C(0x6e73626f78676f21)

#endif
