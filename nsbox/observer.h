/* SPDX-License-Identifier: Apache-2.0 */
/* The process that answers refused calls (observe.h): prepared by the owner, then forked. */
#ifndef NSBOX_OBSERVER_H
#define NSBOX_OBSERVER_H

#include "nsbox/observe.h"

struct observer_task {
	int listener; /* or -1: it comes over this socket */
	int place;
	struct observed *table;
	int prober;			  /* who tries opens, or -1 */
	struct nsbox_trace *trace;	  /* NULL: opens are not observed */
	const struct sock_filter *filter; /* the plan's, not the form that is loaded */
	size_t n;
	/* observer_prepare() */
	char *answers; /* OBSERVE_ERRNOS times two pages */
	struct seccomp_notif *call;
	uint32_t errnum[OBSERVE_ERRNOS];
	unsigned errnums;
};

int observer_prepare(struct observer_task *t);
void observer_release(struct observer_task *t);
/* observer_open.c: see what the call is about to open, and what comes of trying it. */
void observer_look(struct observer_task *t);
_Noreturn void observer_main(struct observer_task *t);

#endif
