/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Would this act succeed in a run, and which layer decides? Answered from the compiled plan, the
 * image's root list and the filter itself, in the order in which the kernel asks them.
 */
#ifndef POLICY_WHY_H
#define POLICY_WHY_H

#include <limits.h>

#include "policy/internal.h"
#include "policy/skill/view.h"

enum why_verb { WHY_READ, WHY_WRITE, WHY_EXEC, WHY_CONNECT, WHY_SYSCALL };

struct why_question {
	enum why_verb verb;
	char path[PATH_MAX]; /* READ, WRITE, EXEC; absolute */
	char host[256];	     /* CONNECT */
	unsigned port;	     /* CONNECT */
	char call[64];	     /* SYSCALL */
	uint64_t args[6];    /* SYSCALL: the first n_args are known */
	unsigned n_args;
};

/* What the answer depends on; all borrowed. */
struct why_world {
	const struct nsbox_policy *policy;
	const struct nsbox_host *host;
	const struct blob *plan;
	const struct blob *root; /* the image's root list, NULL: not looked at */
	const struct view *view; /* of it; NULL with root */
};

enum why_verdict { WHY_PASSES, WHY_REFUSES, WHY_HIDES, WHY_DEPENDS };

#define WHY_STEPS 8
struct why_step {
	const char *layer; /* "image", "mount", "permissions", "landlock", "seccomp", "network" */
	enum why_verdict verdict;
	int errnum; /* of a refusal; 0: none, e.g. the process is ended */
	char text[400];
};

struct why {
	struct why_step step[WHY_STEPS];
	size_t n;
};

/* Text to question; "open" is "read". Relative paths begin at the run's working directory. */
int why_parse(const char *text, const char *workdir, struct why_question *ret,
	      struct nsbox_error *err);
int why_judge(const struct why_world *w, const struct why_question *q, struct why *ret,
	      struct nsbox_error *err);
/* Of all steps: the first that refuses (NULL: none), and the verdict of the whole. */
const struct why_step *why_refusal(const struct why *y);
enum why_verdict why_verdict(const struct why *y);

struct why_step *why_add(struct why *y, const char *layer, enum why_verdict v, int errnum,
			 const char *fmt, ...) __attribute__((format(printf, 5, 6)));
void why_path(const struct why_world *w, const struct why_question *q, struct why *y);
int why_call(const struct why_world *w, const struct why_question *q, struct why *y,
	     struct nsbox_error *err);
void why_connect(const struct why_world *w, const struct why_question *q, struct why *y);

/* The plan of a policy, also of one with gaps: as if they could be enforced. Unmap it. */
int why_compile(const struct nsbox_policy *p, struct blob *ret, struct nsbox_error *err);
/* The verdict of the payload's filter on one call of a run that has no other arguments. */
uint32_t why_filter(const struct blob *plan, const char *call, const uint64_t args[6]);

#endif
