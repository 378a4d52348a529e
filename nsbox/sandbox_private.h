/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The owner's side of a sandbox, shared by sandbox.c (making and ending it), exec.c (giving it
 * work), supervise.c (what happens meanwhile) and watchdog.c (memory where there are no control
 * groups).
 */
#ifndef NSBOX_SANDBOX_PRIVATE_H
#define NSBOX_SANDBOX_PRIVATE_H

#include <nsbox/sandbox.h>
#include <stdbool.h>
#include <sys/types.h>

#include "nsbox/cgroup.h"
#include "nsbox/control.h"
#include "nsbox/ids.h"
#include "nsbox/plan_build.h"

/* What the one timer of a sandbox waits for. */
enum phase {
	PHASE_SETUP, /* until READY */
	PHASE_IDLE,  /* nothing runs */
	PHASE_START, /* an exec was sent; until the channel closes */
	PHASE_RUN,   /* until the program ends or its time is up */
	PHASE_TERM,  /* asked to end; until grace is over */
	PHASE_KILL,  /* killed; init has to say so soon */
	PHASE_OVER,  /* failed or gone */
};

#define EVENTS_MAX 32

struct nsbox_sandbox {
	const struct nsbox_plan *plan;
	const struct plan_fixed *fixed;
	struct nsbox_sandbox_options opt;
	uint32_t want;	  /* layers asked for and there */
	uint32_t missing; /* preferred and not there */
	int ids_kind;
	struct slot slot;
	struct cgroup cg;

	pid_t pid; /* init */
	int pidfd, control, channel, epoll, timer;
	bool gone;

	enum phase phase;
	uint64_t created_us, ready_us, sent_us, started_us;
	uint64_t deadline_us; /* of the phase, 0 = none */
	uint64_t wall_us;     /* of the running exec */

	uint32_t exec_id;
	bool keep_rest;
	uint32_t stop_cause; /* why it was asked to end, or NONE */
	uint32_t enforced, not_enforced;
	uint32_t witness_tried, witness_held, witness_us;
	uint32_t witness_seen;
	struct nsbox_error start_error; /* the program did not start */
	uint64_t watch_peak;		/* bytes, by the watchdog */
	uint64_t watch_files;		/* bytes of tmpfs, as init said last, */
	uint64_t watch_memfds;		/* and of memfds, as found last */
	unsigned watch_round;
	uint32_t watch_kills;
	struct cgroup_usage usage_before;
	unsigned files_running; /* requests about files that init has not answered */

	struct nsbox_event queue[EVENTS_MAX];
	unsigned head, count;
};

/* sandbox.c: call fn when fd is readable */
int sandbox_watch(struct nsbox_sandbox *sb, int fd, void (*fn)(struct nsbox_sandbox *),
		  struct nsbox_error *err);

/* supervise.c */
void supervise_control(struct nsbox_sandbox *sb);
void supervise_channel(struct nsbox_sandbox *sb);
void supervise_pidfd(struct nsbox_sandbox *sb);
void supervise_timer(struct nsbox_sandbox *sb);
void supervise_enter(struct nsbox_sandbox *sb, enum phase phase, uint64_t us);
int supervise_stop(struct nsbox_sandbox *sb, int cause, struct nsbox_error *err);
int supervise_signal(struct nsbox_sandbox *sb, int signal, bool all);

/*
 * watchdog.c: what init's tree holds, `files` being the bytes of its tmpfs mounts and memfds (exact
 * where over the limit), and what its memfds hold. How often to look, and how many looks are one at
 * the files as well.
 */
#define WATCH_INTERVAL_US 20000
#define WATCH_FILES_EVERY 5
uint64_t watchdog_memory(pid_t init, uint64_t files, uint64_t limit);
uint64_t watchdog_memfds(pid_t init);

#endif
