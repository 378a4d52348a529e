/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nsbox-probe NAME [FACT=VALUE...]: try one attack and say how it went.
 *
 * The last line of standard output is the verdict, the exit status says the same:
 *   HELD LAYER: text      0   the act was refused; by which layer, as far as the errno tells
 *   ESCAPED: text         1   it was not
 *   SKIP: text            2   it cannot be tried here
 * Facts are what the harness knows of the host (a decoy's pid, a canary's path). The program is
 * static: it needs nothing of the image it runs in, and no library's wrapper stands between it and
 * the kernel.
 */
#ifndef SELFTEST_PROBE_H
#define SELFTEST_PROBE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#include "selftest/probes.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

struct probe {
	const char *name;
	char **facts; /* NULL-terminated "name=value" */
	bool control; /* the act is allowed here */
};

/* What the harness knows; the whole probe is skipped where it does not. */
const char *fact(const struct probe *p, const char *name);
long fact_number(const struct probe *p, const char *name);
const char *fact_or(const struct probe *p, const char *name, const char *otherwise);

void held(const char *layer, const char *fmt, ...) __attribute__((noreturn, format(printf, 2, 3)));
void escaped(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
void skip(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
const char *errname(int errnum);

/* The tier "process" has neither a root nor pids of its own: where /tmp and the other places of a run are
 * (the buffer is of the next call, too), and who init is. */
bool in_process_tier(const struct probe *p);
const char *place(const char *path);
int init_of(const struct probe *p);

/* One act: what it is called, and the result of the system call (negative: errno is looked at). */
#define REFUSALS_MAX 8
/* Held where errno is one of the list, escaped where it is not. `done` is what the call returned. */
void judge(const char *layer, const char *what, long done, const int *refusals);
#define JUDGE(layer, what, call, ...)                                                              \
	do {                                                                                       \
		errno = 0;                                                                         \
		judge(layer, what, (long)(call), (const int[]){ __VA_ARGS__, 0 });                 \
	} while (0)

/* A system call with arguments that do no harm wherever it is made. */
struct raw_call {
	const char *name;
	long nr;
	long arg[6];
};
/* Each has to be refused with one of the list; a result that only the call itself can give, of any
 * of them, is an escape. */
void judge_calls(const char *layer, const struct raw_call *calls, size_t n, const int *refusals);

#define X(name, id, attack, walls, control, flags, expected)                                       \
	void probe_##name(const struct probe *p);
SELFTEST_PROBES(X)
#undef X

/* Contents of a small file, NUL-terminated; -1 with errno. */
long slurp(const char *path, char *buf, size_t size);
/* Wait for a child; its status as waitpid gives it. */
int reap(int pid);

#endif
