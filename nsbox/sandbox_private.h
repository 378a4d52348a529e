/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The owner's side of a sandbox, shared by sandbox.c (making and ending it), exec.c (giving it
 * work), supervise.c (what it reports), stop.c (deadlines, and ending what runs), judge.c (causes),
 * event.c (the queue) and watchdog.c (memory where there are no control groups).
 */
#ifndef NSBOX_SANDBOX_PRIVATE_H
#define NSBOX_SANDBOX_PRIVATE_H

#include <nsbox/sandbox.h>
#include <stdbool.h>
#include <sys/types.h>

#include "nsbox/cgroup.h"
#include "nsbox/control.h"
#include "nsbox/egress_format.h"
#include "nsbox/ids.h"
#include "nsbox/plan_build.h"
#include "nsbox/process_tier.h"

enum phase {
	PHASE_SETUP, /* until READY */
	PHASE_UP,    /* takes work */
	PHASE_OVER,  /* failed or gone */
};

enum exec_phase {
	EXEC_START, /* was sent; until the channel closes */
	EXEC_RUN,   /* until the program ends or its time is up */
	EXEC_TERM,  /* asked to end; until grace is over */
	EXEC_KILL,  /* killed; init has to say so soon */
	EXEC_REST,  /* the program has ended, what it started is being ended */
};

/* A program in the sandbox. */
struct exec {
	struct exec *next;
	uint32_t id;
	enum exec_phase phase;
	bool keep_rest;
	bool waits; /* for nsbox_sandbox_begin() */
	int channel;
	int leaf;	      /* of the control group, or CGROUP_NO_LEAF */
	int leader_fd;	      /* pidfd of its leader, or -1 */
	pid_t leader;	      /* its number here */
	uint64_t deadline_us; /* of the phase, 0 = none */
	uint64_t asked_us, started_us, began_us, ended_us; /* began: its time did */
	uint64_t wall_us;
	uint32_t stop_cause; /* why it was asked to end, or NONE */
	uint32_t witness_tried, witness_held, witness_us;
	uint32_t refused; /* by the packet filter */
	bool witness_seen;
	int status; /* of the program, as wait(2) has it */
	uint64_t cpu_us;
	bool disk_full; /* when it had ended */
	uint32_t watch_kills;
	struct sock_filter *filter; /* of its own, or NULL: the plan's */
	size_t insns;
	struct observed *observed; /* what its observer counts, or NULL */
	struct nsbox_trace *trace; /* its caller's file, mapped, or NULL */
	int prober;		   /* until the observer has it, or -1 */
	struct cgroup_usage before;
	struct nsbox_error start_error; /* the program did not start */
};

struct nsbox_sandbox {
	const struct nsbox_plan *plan;
	const struct plan_fixed *fixed;
	struct nsbox_sandbox_options opt;
	uint32_t want;	  /* layers asked for and there */
	uint32_t missing; /* preferred and not there */
	bool forked;	  /* init is a fork of opt.template */
	bool poor_upper;  /* a tmpfs that overlayfs cannot do everything on */
	int ids_kind;
	struct slot slot;
	struct process_box *process; /* of the tier "process", else NULL */
	struct cgroup cg;

	pid_t pid; /* init */
	int pidfd, control, epoll, timer;
	bool gone;

	enum phase phase;
	uint64_t created_us, ready_us;
	uint32_t stage_us[NSBOX_STAGE_READY + 1];
	uint64_t deadline_us; /* of the set-up, 0 = none */
	uint32_t enforced, not_enforced;
	unsigned files_running; /* requests about files that init has not answered */

	struct observer *observers; /* observe.c: those that have not ended */
	struct observer *spare;	    /* and the one that waits for the first exec, or NULL */

	int listeners[EGRESS_LISTENERS]; /* of egress, until the owner takes them; else -1 */
	unsigned listener_set;
	int counters;	  /* netlink socket inside, of the packet filter's counters; -1 */
	uint64_t refused; /* that were told */

	uint32_t last_id; /* of an exec */
	struct exec *execs;
	unsigned running;
	bool kept; /* an exec was made that leaves its processes behind */

	uint64_t watch_at;     /* when to look at the memory next */
	uint64_t watch_peak;   /* bytes, by the watchdog */
	uint64_t watch_files;  /* bytes of tmpfs, as init said last, */
	uint64_t watch_memfds; /* and of memfds, as found last */
	unsigned watch_round;

	struct nsbox_event *queue; /* a ring of `room` */
	unsigned head, count, room;
};

/* sandbox.c: what epoll data says when fd is readable: a part of the sandbox, or an exec's id. */
enum watched { WATCH_CONTROL = 1, WATCH_PIDFD, WATCH_TIMER, WATCH_EXEC, WATCH_OBSERVER };
int sandbox_watch(struct nsbox_sandbox *sb, int fd, enum watched what, uint32_t id,
		  struct nsbox_error *err);

/* End init by force, with all that is there: by the kernel, or where no namespace does it, by us. */
void sandbox_kill_init(struct nsbox_sandbox *sb);

/* exec.c */
struct exec *exec_find(struct nsbox_sandbox *sb, uint32_t id);
void exec_free(struct nsbox_sandbox *sb, struct exec *ex);

/* event.c: a new event at the end of the queue, to be filled. */
struct nsbox_event *event_push(struct nsbox_sandbox *sb, uint32_t kind, uint32_t id);
bool event_take(struct nsbox_sandbox *sb, struct nsbox_event *ret);
int events_init(struct nsbox_sandbox *sb);
void events_free(struct nsbox_sandbox *sb);

/* refused.c: by the packet filter, ever; fd is sb->counters */
uint64_t refused_at_once(int fd);

/* judge.c: results */
void judge_state(const struct nsbox_sandbox *sb, const struct exec *ex, struct nsbox_result *r);
void judge_exit(const struct nsbox_sandbox *sb, const struct exec *ex, struct nsbox_result *r);
void judge_lost(const struct nsbox_sandbox *sb, const struct exec *ex, struct nsbox_result *r);

/* stop.c: ending execs, and the timer of all deadlines */
void stop_arm(struct nsbox_sandbox *sb);
void stop_enter(struct nsbox_sandbox *sb, struct exec *ex, enum exec_phase phase, uint64_t us);
void stop_exec(struct nsbox_sandbox *sb, struct exec *ex, int cause);
void stop_kill(struct nsbox_sandbox *sb, struct exec *ex);
void stop_rest(struct nsbox_sandbox *sb, struct exec *ex);
void stop_timer(struct nsbox_sandbox *sb);
int stop_signal(struct nsbox_sandbox *sb, const struct exec *ex, int signal, bool all);

/*
 * observe.c: start the observer of an exec's refused calls, which arrive at `listener` (borrowed);
 * collect one that has ended; end all; and put what was counted into a result.
 */
int observe_start(struct nsbox_sandbox *sb, struct exec *ex, int listener, struct nsbox_error *err);
void observe_spare(struct nsbox_sandbox *sb);
/* Map the caller's file, and make the pair between observer and prober (prober.c). */
int observe_trace(struct nsbox_sandbox *sb, struct exec *ex, int file, int *ret_prober,
		  struct nsbox_error *err);
/* From the program's start on: behind whatever the machine has to do. */
void observe_behind(struct nsbox_sandbox *sb, uint32_t id);
void observe_ended(struct nsbox_sandbox *sb, uint32_t id);
void observe_end_all(struct nsbox_sandbox *sb);
void observe_forget(struct exec *ex);
void observe_result(const struct exec *ex, struct nsbox_result *r);

/* supervise.c */
void supervise_control(struct nsbox_sandbox *sb);
void supervise_channel(struct nsbox_sandbox *sb, struct exec *ex);
void supervise_pidfd(struct nsbox_sandbox *sb);
void supervise_over(struct nsbox_sandbox *sb, struct exec *ex);

/*
 * watchdog.c: look at what the sandbox holds where no control group does, and end whom it has to.
 * How often to look, and how many looks are one at the files as well.
 */
#define WATCH_INTERVAL_US 20000
#define WATCH_FILES_EVERY 5
void watchdog_look(struct nsbox_sandbox *sb);

#endif
