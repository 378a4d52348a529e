/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `nsbox selftest`: does every layer hold what it is for, on this host, now?
 *
 *   main.c      options, the order of things
 *   facts.c     what the probes are told of the host, and the decoys they are to reach
 *   outside.c   controls: the caller's own process, and the stand-in for a host
 *   box.c       plans, and one probe in one sandbox
 *   live.c      one probe as a job of a running daemon
 *   suite.c     all probes and tiers; a verdict of what was said, shown, caused
 *   process.c   what is different in the tier "process"
 *   mutate.c    each layer left out in turn, by the program nsbox-mutant (mutant/)
 *   catalogue.c every attack of the catalogue, and where it is tried
 *   report*.c   text, TAP, JSON, HTML
 */
#ifndef SELFTEST_H
#define SELFTEST_H

#include <nsbox/host.h>
#include <nsbox/image.h>
#include <nsbox/plan.h>
#include <nsbox/sandbox.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "selftest/probes.h"

struct probe_row {
	const char *name, *id, *attack;
	uint32_t walls;
	int control;
	unsigned flags;
	const char *expected;
	const char *file; /* of --probe-dir: what is run instead; NULL: built in */
};
extern const struct probe_row probe_rows[];
extern const size_t probe_n_rows;

/* V_DECLARED: done, and not promised: of the tier "process" alone. */
enum verdict_kind { V_NONE, V_HELD, V_DECLARED, V_ESCAPED, V_NA, V_BROKEN, V_MAX };
const char *verdict_name(int kind);

struct verdict {
	int kind;
	char layer[20]; /* by which it was held; of V_DECLARED the name of the gap */
	char text[300];
};

/* What came of a program: its output's end, and how it ended. */
struct ending {
	char out[4096];
	int status; /* exit status, or -1: not by itself */
	bool in_box;
	struct nsbox_result result; /* in_box */
	char why[256];		    /* status -1: what happened instead */
};

/* ------------------------------------------------------------------ facts */

#define FACTS_MAX 48

struct facts {
	char dir[64];
	int listeners[3];
	pid_t decoy;
	char *list[FACTS_MAX];
	unsigned n;
};
int facts_init(struct facts *f, const struct nsbox_host *host, const char *daemon,
	       struct nsbox_error *err);
void facts_done(struct facts *f);
void facts_add(struct facts *f, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
const char *facts_get(const struct facts *f, const char *name);
/* A new decoy where the last has died; true where it had. */
bool facts_check_decoy(struct facts *f);

/* A file that only Landlock keeps from a run, as a fact. */
void facts_unlisted(const struct facts *f, bool process, char *buf, int size);

/* argv for a probe: NAME, then facts and `more` (NULL-terminated); free() the array. */
const char **probe_argv(const char *program, const struct probe_row *row, const struct facts *f,
			const char *const *more);

/* ------------------------------------------------------------------ controls */

/* Run a row's probe where it is allowed to succeed. probe_fd: the program. */
void control_run(const struct probe_row *row, const struct facts *f, int probe_fd,
		 struct ending *ret);

/* ------------------------------------------------------------------ sandboxes */

/* What plans a selftest has of a tier, all from one manifest: those of namespaces differ in layers alone. */
struct box {
	struct nsbox_host host;
	struct nsbox_manifest *manifest;
	struct nsbox_policy *policy;
	struct nsbox_plan *plan, *small; /* small: with limits that are soon met */
	struct nsbox_root *root;
	int files; /* memfd: the file stream that brings the probes in */
	bool ptrace, memfd_exec, network, process;
};
struct box_options {
	const char *manifest, *profile, *image;
	const struct probe_row *extra; /* of --probe-dir */
	size_t n_extra;
};
int box_open(const struct box_options *opt, int tier, int probe_fd, struct box *ret,
	     struct nsbox_error *err);
void box_close(struct box *b);
void box_run(const struct box *b, const struct probe_row *row, const struct facts *f, int tier,
	     struct ending *ret);

#define BOX_DIR	     "/skills/nsbox-selftest"
#define SMALL_MEMORY (32u << 20)
#define SMALL_DISK   (8u << 20)
#define SMALL_PIDS   24
#define SMALL_CPU    200 /* thousandths of one */

/* ------------------------------------------------------------------ a daemon's sandboxes */

/* The skill that is sent with each job, below the facts' directory. */
int live_prepare(const struct box_options *opt, const struct facts *f, int probe_fd,
		 struct nsbox_error *err);
void live_clean(const struct facts *f);
void live_run(const char *socket, const struct probe_row *row, const struct facts *f, int tier,
	      struct ending *ret);

/* ------------------------------------------------------------------ the suite */

#define TIERS (NSBOX_TIER_CGROUP + 1)

struct row_result {
	const struct probe_row *row;
	struct verdict control;
	struct verdict tier[TIERS];
	double ms;
};

struct suite {
	struct row_result *rows;
	size_t n;
	unsigned tiers; /* bits of enum nsbox_tier */
	struct nsbox_host host;
	const char *profile; /* what was tested, for people */
	bool mutated;	     /* layers were left out instead: see mutations[] */
	unsigned unnoticed;
};

/* The verdict of an ending, as far as it alone tells. */
struct verdict judge_ending(const struct probe_row *row, const struct ending *e);
/* Why a row says nothing of this policy, or NULL. */
const char *not_applicable(const struct probe_row *row, const struct box *b, int tier);
/* In the tier "process", of a run that these layers held: what it reached is an escape, or declared. */
void process_verdict(const struct probe_row *row, uint32_t enforced, struct verdict *v);
/* Which enum nsbox_gap lets a probe through where a run has these layers, or -1. */
int process_gap(const struct probe_row *row, uint32_t enforced);
int worst(const struct row_result *r); /* enum verdict_kind */
void count_verdicts(const struct suite *s, unsigned counts[V_MAX]);

/* ------------------------------------------------------------------ mutation */

/*
 * A layer of a tier, the probe that has to notice its absence, and the other layers that would refuse the same:
 * with those left out the layer alone has to hold, and with itself left out as well nothing.
 */
struct mutation {
	int tier; /* that of namespaces stands for both of theirs */
	int layer;
	uint32_t others;
	const char *probe;
	const char *needs; /* what else a host must have, for people */
	bool witness;	   /* the run has to end before its program starts: the witness finds it */
	/* filled in */
	struct verdict with, without, found;
	int kind; /* V_HELD: noticed; V_BROKEN: not; V_NA */
};
extern struct mutation mutations[];
extern const size_t mutations_n;
bool mutation_tried(const struct mutation *m); /* else it is another tier's */
unsigned mutations_tried(void);
const char *mutation_word(const struct mutation *m);
const char *mutation_probe(const struct mutation *m); /* its id */
/* Try all; progress as text where asked for. Returns how many went unnoticed. */
unsigned mutate_all(const struct box_options *opt, const struct box *b, const struct facts *f,
		    bool text);

/* ------------------------------------------------------------------ catalogue */

/* Every attack of the catalogue, where it is tried and what is left of it. */
struct catalogue_row {
	const char *id, *attack;
	const char *where; /* "selftest", a test's path, or "-": not promised */
	const char *note;
};
extern const struct catalogue_row catalogue[];
extern const size_t catalogue_n;

/* ------------------------------------------------------------------ reports */

void report_row_text(const struct suite *s, const struct row_result *r);
void report_sum_text(const struct suite *s);
void report_tap(const struct suite *s);
void report_json(const struct suite *s);
void report_list(bool json);
int report_explain(const char *id);
int report_html(const struct suite *s, const char *path, struct nsbox_error *err);

#endif
