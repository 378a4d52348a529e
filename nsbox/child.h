/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the sandbox: from clone3 to the program. Everything declared here runs after clone, in a
 * copy of the owner's memory that may have been taken while another thread held a lock: system
 * calls only, no heap, no stdio, no locale, no libc function that keeps state.
 */
#ifndef NSBOX_CHILD_H
#define NSBOX_CHILD_H

#include <nsbox/sandbox.h>
#include <sys/types.h>

#include <time.h>

#include "nsbox/cgroup.h"
#include "nsbox/control.h"
#include "nsbox/ids.h"
#include "nsbox/plan_build.h"
#include "nsbox/process_tier.h"
#include "nsbox/share.h"

struct child {
	const struct blob *plan;
	const struct blob *root;
	int control;		   /* our end of the control pair */
	int files_fd;		   /* file stream to unpack, or -1 */
	int upper_from;		   /* layer stream that the upper layer begins with, or -1 */
	int disk;		   /* mount of the upper layer where that is on disk, or -1 */
	bool on_disk;		   /* it is, also once that was mounted */
	const struct share *share; /* the host's directory of OP_SHARED */
	bool track;		   /* the upper layer will be asked for */
	bool single_id;		   /* one id is mapped: init and payload share it */
	struct ids_payload ids;	   /* the payload, as init sees it */
	const struct process_box *process; /* of the tier "process", else NULL */
	uint32_t want;			   /* layers that the plan asks for and the host has */
	bool cgroup;			   /* the payload waits to be put into a control group */
	bool forked;  /* by a template (template.h): a payload may go on as what that has started */
	bool observe; /* refused calls go to an observer outside, who answers as the rule says */
	int owner_pid; /* for the witness: must not exist inside */
	/* filled on the way */
	uint32_t enforced, not_enforced;
	uint32_t stage_us[NSBOX_STAGE_READY + 1];
	int old_root;	       /* the host's root while the new one is built, else -1 */
	int new_root;	       /* O_PATH of the root that is being built, then of "/" */
	int proc_mount;	       /* mount descriptor of our procfs, or -1 */
	int signals;	       /* init's signalfd */
	int upper;	       /* O_PATH of the upper layer where it is tracked, or -1 */
	struct timespec ready; /* what changes in it later is a program's doing */
	int parent_pid;	       /* of a payload: init, or its leader */
	int init_pid;	       /* as its children see it */
};

static inline const struct plan_fixed *child_fixed(const struct child *c)
{
	return blob_fixed(c->plan, struct plan_fixed);
}

/* The clone's main: set up, serve, exit with the sandbox. */
_Noreturn void child_main(struct child *c);

/* Stages, in order; each 0 or -errno with err filled. See child.c for what they should and must
 * not do. */
int stage_propagation(struct child *c, struct nsbox_error *err);
int stage_scratch(struct child *c, struct nsbox_error *err);
int stage_overlay(struct child *c, struct nsbox_error *err);
int stage_dev(struct child *c, struct nsbox_error *err);
int stage_proc(struct child *c, struct nsbox_error *err);
int stage_mount(struct child *c, struct nsbox_error *err);
int stage_pivot(struct child *c, struct nsbox_error *err);
int stage_files(struct child *c, struct nsbox_error *err);
int stage_mask(struct child *c, struct nsbox_error *err);
int stage_loopback(struct child *c, struct nsbox_error *err);
int stage_nftables(struct child *c, struct nsbox_error *err);
int stage_egress(struct child *c, struct nsbox_error *err);
int stage_sysctl(struct child *c, struct nsbox_error *err);
int stage_hostname(struct child *c, struct nsbox_error *err);
int stage_capabilities(struct child *c, struct nsbox_error *err);
int stage_landlock(struct child *c, struct nsbox_error *err);
int stage_init_filter(struct child *c, struct nsbox_error *err);
/* Of the tier "process" (stage_process.c). */
int stage_process_dir(struct child *c, struct nsbox_error *err);
int stage_process_exec(struct child *c, struct nsbox_error *err);

/* A layer that did not come about: the error where the plan requires it; else noted, and 0. */
int layer_missing(struct child *c, int layer, int stage, int errnum, const char *what,
		  struct nsbox_error *err);

/* init.c: serve exec requests until the owner goes. What can fail is done before it says ready. */
int init_prepare(struct child *c, struct nsbox_error *err);
_Noreturn void init_serve(struct child *c);

/* payload.c: become the program of an exec request; reports on channel. */
struct payload_fds {
	int channel;
	int std[3], request, result;
	bool traced; /* opens are observed as well */
	bool joins;  /* `join` holds what cgroup_open_join() gave */
	int join[CG_CONTROLLERS];
};
_Noreturn void payload_main(struct child *c, const struct blob *exec, struct payload_fds *fds);

/*
 * leader.c: the parent of an exec's program where no control group holds together what the program
 * starts. `note` is a page shared with init.
 */
struct leader_note {
	int32_t program; /* its pid */
	int32_t status;
	uint64_t cpu_us;
	uint32_t over; /* written last */
};
_Noreturn void leader_main(struct child *c, const struct blob *exec, struct payload_fds *fds,
			   struct leader_note *note);

/* Credentials, no filter: what the helpers that unpack and collect run with. */
int payload_credentials(const struct child *c, struct nsbox_error *err);
/* The request where it has rules of its own, else NULL. */
static inline const struct blob *exec_own(const struct blob *exec)
{
	return blob_fixed(exec, struct exec_fixed)->flags & EXECF_NARROW ? exec : NULL;
}
/* The plan's, then that of an exec request with rules of its own (NULL: none). */
int payload_filter(const struct child *c, const struct blob *own, struct nsbox_error *err);
/* The same where refused calls are observed: hands the place where they wait to the owner. */
int payload_filter_observed(const struct child *c, const struct blob *own, int channel, bool traced,
			    struct nsbox_error *err);
/* stage_lock.c: the Landlock domain of such a request, below that of the sandbox. */
int payload_landlock(struct child *c, const struct blob *own, struct nsbox_error *err);
/* Witness and set-up are over: what is refused from now on is the program's doing. */
void payload_observe_begin(const struct child *c);
int payload_drop_capabilities(struct nsbox_error *err);
/* Say hello on the channel and wait until the owner has dealt with it. */
int payload_hello(int channel, struct nsbox_error *err);
/*
 * Signal everything in the sandbox but init, and at its end, when nothing of it may be left, everything
 * until there is nothing. In the tier "process" that is nobody's work but ours.
 */
void init_signal_all(struct child *c, int signal);
void init_end(struct child *c, int status) __attribute__((noreturn));
/* fork(2) without libc's handlers: safe after clone. */
int child_fork(void);

/*
 * Helpers: processes that init forks for work on files, confined as payloads. They hold the root,
 * the descriptors of `keep` (-1: none) and nothing else. run's error comes back over a pipe.
 */
struct helper_job {
	int (*run)(struct child *c, void *arg, struct nsbox_error *err);
	void *arg;
	int keep[2];
};
struct helper {
	pid_t pid;
	int report; /* our end of the pipe */
};
int child_helper_start(struct child *c, const struct helper_job *job, struct helper *ret,
		       struct nsbox_error *err);
/* It ended with this status (wait(2)): what it had to say. */
int child_helper_over(struct helper *h, int status, struct nsbox_error *err);
/* Both, waiting in between. */
int child_helper(struct child *c, const struct helper_job *job, struct nsbox_error *err);
/* Close all descriptors from `from` on but those of the list (-1 entries are ignored). */
int child_close_others(int from, const int *keep, unsigned n);

/* prober.c: try what a program is about to open, for its observer at the socket. */
_Noreturn void prober_main(struct child *c, const struct blob *own, int socket);

/* witness.c */
/* Readable by mode and by mount; only the Landlock domain leaves it out. */
#define WITNESS_FILE "/.nsbox/witness"
int witness_run(const struct child *c, struct ctl_report *rep, struct nsbox_error *err);

/* diagnose.c: why execve of this file failed, as code and message; returns -errnum. */
int diagnose_exec(const char *path, int errnum, struct nsbox_error *err);

#endif
