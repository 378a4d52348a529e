/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sandboxes: make one from a plan and a root, run programs in it, move files, end it.
 *
 * A sandbox is a set of fresh namespaces with an init (pid 1) that starts what runs in it. A
 * one-shot run is a sandbox with one exec; a session is a sandbox that is kept. Its owner is the
 * process that made it: when the owner goes, however it goes, the kernel ends everything inside.
 *
 * Nothing here blocks but nsbox_run(), nsbox_sandbox_next() with a timeout and the file helpers
 * that say so: one owner may drive many sandboxes from an event loop (nsbox_sandbox_fd()). An
 * object is used by one thread at a time; creating one needs a process without other threads.
 */
#ifndef NSBOX_SANDBOX_H
#define NSBOX_SANDBOX_H

#include <nsbox/error.h>
#include <nsbox/files.h>
#include <nsbox/image.h>
#include <nsbox/layer.h>
#include <nsbox/plan.h>
#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(default)

struct nsbox_sandbox;

/* ------------------------------------------------------------------ what is to run */

struct nsbox_output {
	const char *glob; /* relative to cwd */
	uint64_t max_bytes;
	uint32_t max_files;
};

struct nsbox_exec {
	const char *const *argv; /* NULL-terminated, not empty; argv[0]: looked up in PATH inside */
	const char *const *env;	 /* NULL-terminated "NAME=value", added to the plan's; NULL: none */
	const char *cwd;	 /* inside path; NULL: the plan's working directory */
	uint64_t wall_ms;	 /* 0: the plan's limit */
	bool tty;		 /* own terminal; see struct nsbox_io */
	uint16_t tty_rows, tty_cols;
	bool keep_rest; /* other processes of the sandbox outlive it (sessions) */
	bool waits;	/* wall_ms counts from nsbox_sandbox_begin() */
	/*
	 * A plan that allows less than the sandbox's, or NULL: its filter, Landlock rules, limits of each
	 * process and time hold for this program besides the sandbox's own, and its variables instead of
	 * those. Nothing of it can widen anything. What belongs to the sandbox as a whole (mounts, ids,
	 * memory, processes, network) stays as it is, whatever the plan says: nsbox_policy_narrower()
	 * tells whether that is all there is to it.
	 */
	const struct nsbox_plan *narrower;
};

/* Descriptors of one exec, borrowed. -1: /dev/null for 0-2, not passed for the others. */
struct nsbox_io {
	int in, out, err;
	int request; /* read end, becomes 3 inside */
	int result;  /* write end, becomes 4 inside */
	int trace;   /* a file of sizeof(struct nsbox_trace), or 0 or -1 */
};
#define NSBOX_IO_NONE ((struct nsbox_io){ -1, -1, -1, -1, -1, -1 })

/*
 * Files that a program tried to open and could not, for an exec with nsbox_io.trace in a sandbox that
 * observes. Each open waits until a process inside, with the program's rights, has tried the same:
 * slow, and only a hint, since names can change between the two. Written while the program runs;
 * paths are the program's, cut where they are longer.
 */
#define NSBOX_TRACE_ROWS 256
#define NSBOX_TRACE_PATH 240
struct nsbox_trace_row {
	uint32_t errnum;
	uint32_t flags; /* of open(2) */
	uint64_t times;
	char path[NSBOX_TRACE_PATH]; /* NUL-terminated */
};
struct nsbox_trace {
	uint32_t observed; /* 1: opens were seen */
	uint32_t rows;
	uint64_t opens;	 /* all that were seen */
	uint64_t untold; /* that failed beyond those rows, or that could not be tried */
	struct nsbox_trace_row row[NSBOX_TRACE_ROWS];
};

/* ------------------------------------------------------------------ how it ended */

/* clang-format off */
#define NSBOX_CAUSES(X)                                                                           \
	X(NONE, "none")		    /* still running, or never started */                         \
	X(EXIT, "exit")		    /* by itself, exit_status says how */                         \
	X(SIGNAL, "signal")	    /* by a signal of its own making or of the caller's */        \
	X(WALL_TIME, "wallTime")                                                                  \
	X(CPU_TIME, "cpuTime")                                                                    \
	X(MEMORY, "memory")                                                                       \
	X(PIDS, "pids")		    /* failed, and the limit of processes refused it a fork */    \
	X(OUTPUT, "output")                                                                       \
	X(DISK, "disk")		    /* failed, and left a file system of the run full */          \
	X(POLICY, "policy")	    /* killed by the system call filter */                        \
	X(CANCELLED, "cancelled")   /* nsbox_sandbox_kill, or the caller went away */             \
	X(INTERRUPTED, "interrupted") /* the owner or the init died under it */                   \
	X(EXEC, "exec")		    /* the program could not be started: 126 or 127 */            \
	X(SANDBOX, "sandbox")	    /* set-up failed or the witness found a hole: nothing ran */
enum nsbox_cause {
#define X(sym, name) NSBOX_CAUSE_##sym,
	NSBOX_CAUSES(X)
#undef X
	NSBOX_CAUSE_MAX
};
/* clang-format on */
const char *nsbox_cause_name(int cause);

/* Forbidden acts that the payload process itself tried after lock-down, before execve. */
/* clang-format off */
#define NSBOX_WITNESSES(X)                                                                        \
	X(WRITE, "write", "creating a file in /usr")                                              \
	X(LANDLOCK, "landlock", "reading a file outside the Landlock rules")                      \
	X(CONNECT, "connect", "connecting to an outside address")                                 \
	X(SYSCALL, "syscall", "a refused system call")                                            \
	X(PTRACE, "ptrace", "tracing the sandbox's init")                                         \
	X(PROCESS, "process", "signalling a process of the host")                                 \
	X(CAPABILITY, "capability", "holding a capability or the right to gain one")
enum nsbox_witness {
#define X(sym, name, text) NSBOX_WITNESS_##sym,
	NSBOX_WITNESSES(X)
#undef X
	NSBOX_WITNESS_MAX
};
/* clang-format on */
const char *nsbox_witness_name(int w);
const char *nsbox_witness_text(int w);

/* System calls that the filter refused, told where the sandbox was made with `observe`. */
#define NSBOX_DENIED_MAX 32
struct nsbox_denied_call {
	uint32_t nr;	 /* by this machine's numbers */
	uint32_t errnum; /* the rule's answer */
	uint64_t times;
	uint32_t arg[6]; /* lower halves of the arguments that decided, the others 0 */
};

struct nsbox_result {
	uint32_t cause;	       /* enum nsbox_cause */
	int32_t exit_status;   /* 0-255; 128+N after signal N; 126/127 could not start */
	int32_t signal;	       /* of the main program, 0 for none */
	uint32_t enforced;     /* NSBOX_LAYER_BIT set */
	uint32_t not_enforced; /* preferred, and not there on this host */
	uint32_t witness_tried, witness_held; /* bits of enum nsbox_witness */
	uint32_t cgroup_kind;		      /* enum nsbox_cgroup_kind that carried the limits */
	uint64_t setup_us;		      /* clone until ready */
	uint64_t wall_us;		      /* of the exec, monotonic */
	uint64_t cpu_us;		      /* user + system, of the exec and its children */
	uint64_t memory_peak;		      /* bytes, of the whole sandbox; 0 unknown */
	uint64_t memory_limit;		      /* bytes */
	uint32_t pids_limit_hits;	      /* forks refused by the limit */
	uint32_t oom_kills;
	uint32_t witness_us;   /* that its acts took; before the program's first instruction */
	uint32_t observed;     /* refused calls were counted: the following are all there are */
	uint32_t denied_calls; /* rows of `denied` */
	uint32_t start_us;     /* asked for and ready, until the program runs; witness included */
	/* Stages of the set-up inside, microseconds, by enum nsbox_stage; 0: none, or less than one. */
	uint32_t stage_us[NSBOX_STAGE_READY + 1];
	uint32_t refused;	/* connections and packets that the packet filter refused at once */
	uint64_t denied_untold; /* refusals beyond those rows */
	struct nsbox_denied_call denied[NSBOX_DENIED_MAX];
	struct nsbox_error error; /* cause exec and sandbox: what failed; else code 0 or a note */
};

/* ------------------------------------------------------------------ life of a sandbox */

#define NSBOX_EXECS_DEFAULT 16

struct nsbox_sandbox_options {
	uint32_t layers; /* host layers available, nsbox_host_layers() */
	int files_fd;	 /* file stream (files.h) unpacked before masks are set, or -1; borrowed */
	uint32_t execs;	 /* programs at once; 0: NSBOX_EXECS_DEFAULT, at most 64 */
	bool track;	 /* nsbox_sandbox_upper() will be called */
	int upper_from; /* begin with what NSBOX_UPPER_WHOLE of another gave, or 0 or -1; borrowed */
	/* Directory of the host that is /workspace where the plan says so (filesystem.workspace "rw"), else
	 * NULL: an absolute path without links. Its owner, who may not be root and is the caller unless
	 * that is root, is who the payload is outside. */
	const char *shared;
	/* nsbox_host.plain_tmpfs: the upper layer over an imported image is then on disk, as where
	 * resources.disk is more than memory. Where none can be made nsbox_result.error has a note, and
	 * nsbox_sandbox_upper() is refused. */
	bool plain_tmpfs;
	bool egress; /* the owner takes the listeners of a plan that grants egress */
	/* Count refused system calls. Each exec then has a process outside that answers them, with
	 * the errno that the plan's filter has for them and never otherwise. */
	bool observe;
	/* The operator accepts plans of the tier "process", which hold less (docs/THREAT-MODEL.md). They run
	 * from the host's image alone, have no terminal, and no upper layer. */
	bool process_tier;
	/* Socket of a template, an interpreter that forks (nsbox-spawn's own, nsbox/template.h), or 0; borrowed. */
	int template;
};

/*
 * Start making a sandbox. plan and root are borrowed until nsbox_sandbox_free(). On 0 the set-up
 * goes on in the child; its end arrives as NSBOX_EVENT_READY or NSBOX_EVENT_FAILED. An exec may be
 * given at once: it starts when the sandbox is ready.
 * Errors: NSBOX_E_UNSUPPORTED (a required layer is missing; the message has the remedy),
 * NSBOX_E_SETUP, NSBOX_E_NOMEM.
 */
int nsbox_sandbox_new(const struct nsbox_plan *plan, const struct nsbox_root *root,
		      const struct nsbox_sandbox_options *opt, struct nsbox_sandbox **ret,
		      struct nsbox_error *err);

/* Init is a fork of the template: runs made by it share the layout of their memory. */
bool nsbox_sandbox_forked(const struct nsbox_sandbox *sb);

/*
 * Run a program; ret_id (may be NULL) numbers it from 1. A program with keep_rest runs beside
 * others, as many at once as the options say (else NSBOX_E_LIMIT, -EBUSY), and when it has ended by
 * itself what it started runs on until the sandbox ends. One without runs alone (NSBOX_E_INVALID,
 * -EBUSY), and everything in the sandbox ends with it. All have one user id and see each other's
 * files and processes: they are one party's. The limits are the sandbox's, shared by all.
 */
int nsbox_sandbox_exec(struct nsbox_sandbox *sb, const struct nsbox_exec *ex,
		       const struct nsbox_io *io, uint32_t *ret_id, struct nsbox_error *err);
/* The same from an encoded, sealed exec request that another process made. */
int nsbox_sandbox_exec_blob(struct nsbox_sandbox *sb, int blob_fd, const struct nsbox_io *io,
			    uint32_t *ret_id, struct nsbox_error *err);
int nsbox_exec_encode(const struct nsbox_exec *ex, int *ret_fd, struct nsbox_error *err);

/*
 * The time of exec `id`, which was made with `waits`, begins now: a program that was started before
 * there was work for it, and gets that now. Until then no limit of wall time holds for it, while all
 * others do. -ESRCH where no such exec waits.
 */
int nsbox_sandbox_begin(struct nsbox_sandbox *sb, uint32_t id, struct nsbox_error *err);

/*
 * End exec `id` (0: all that run), with everything it has started, also what has left its process
 * group or session: TERM, the plan's grace, then KILL. Other execs and what earlier ones have left
 * running are not touched. `cause` is what the result will say (CANCELLED, OUTPUT, ...). signal != 0
 * is delivered instead, to the program's process group, and ends nothing by itself (a terminal's
 * INT). -ESRCH where no such exec runs.
 */
int nsbox_sandbox_kill(struct nsbox_sandbox *sb, uint32_t id, int cause, int signal,
		       struct nsbox_error *err);

/*
 * Collect files: a helper, confined as a payload, walks `base` (NULL: the working directory) and
 * writes those that match to out_fd (borrowed) as a file stream. NSBOX_EVENT_COLLECTED follows.
 * Symbolic links and devices are never followed nor sent.
 */
int nsbox_sandbox_collect(struct nsbox_sandbox *sb, const char *base,
			  const struct nsbox_output *rules, unsigned n, int out_fd,
			  struct nsbox_error *err);

/*
 * Do something with the files of the sandbox (files.h), while commands run and beside other such
 * requests: at most NSBOX_FILES_AT_ONCE, then -EBUSY. `id` is the caller's: not 0, and of no other
 * request that is under way. in and out are borrowed; -1 where the verb has none. NSBOX_EVENT_FILES
 * with that id follows, except where the sandbox goes first (NSBOX_EVENT_GONE).
 * A stream that ends with an error, or not at all, is not to be believed in any part.
 */
#define NSBOX_FILES_AT_ONCE 8
int nsbox_sandbox_files(struct nsbox_sandbox *sb, const struct nsbox_file_request *req, uint32_t id,
			int in, int out, struct nsbox_error *err);
int nsbox_sandbox_files_blob(struct nsbox_sandbox *sb, int blob_fd, uint32_t id, int in, int out,
			     struct nsbox_error *err);
/* End a request; its event says NSBOX_E_CANCELLED. One that is over already is no error. */
int nsbox_sandbox_files_cancel(struct nsbox_sandbox *sb, uint32_t id, struct nsbox_error *err);

/*
 * What the programs have changed in the root, while they run or after: written to out_fd (borrowed),
 * which may be a pipe. Needs a sandbox made with `track` from a plan whose root can be written.
 * NSBOX_EVENT_FILES with that id follows; id and number of requests as above.
 * While WHOLE and LAYER are read the programs that run are stopped, and go on afterwards (also one that
 * had stopped before); start none meanwhile. What is on mounts of its own is no part of either: /tmp,
 * and a workspace that has a size of its own, which WHOLE is refused for (NSBOX_E_UNSUPPORTED).
 *
 * A sandbox that begins with NSBOX_UPPER_WHOLE of another, made from the same image and a plan of
 * the same kind, has its files: a fork, or the way back to an earlier state. Files alone: no
 * process, no memory, no open connection. Files with several names become several files.
 */
enum nsbox_upper {
	NSBOX_UPPER_LIST,  /* a line for each change: "KIND SIZE/PATH"; bytes of a path outside
			    * '!'..'~', and '%', as %XX; kinds: added, changed, dir, link, removed,
			    * replaced (a directory whose earlier content is gone) */
	NSBOX_UPPER_WHOLE, /* everything */
	NSBOX_UPPER_LAYER, /* what belongs into a new layer of the image */
};
int nsbox_sandbox_upper(struct nsbox_sandbox *sb, enum nsbox_upper form, uint32_t id, int out_fd,
			struct nsbox_error *err);

enum nsbox_event_kind {
	NSBOX_EVENT_NONE,
	NSBOX_EVENT_READY,     /* set up; enforced layers are known */
	NSBOX_EVENT_FAILED,    /* set-up failed: error; only nsbox_sandbox_free is left */
	NSBOX_EVENT_STARTED,   /* the program of exec `id` runs */
	NSBOX_EVENT_TERMINAL,  /* fd: master of the exec's terminal, now the receiver's */
	NSBOX_EVENT_EXITED,    /* exec `id` is over: result */
	NSBOX_EVENT_COLLECTED, /* error.code 0 or what went wrong */
	NSBOX_EVENT_GONE,      /* the sandbox's init ended */
	NSBOX_EVENT_FILES,     /* file request `id` is over: error.code 0 or what went wrong */
	NSBOX_EVENT_LISTENERS, /* nsbox_sandbox_listeners() has them; before READY */
};

struct nsbox_event {
	uint32_t kind;
	uint32_t id; /* of the exec it is about, 0: the sandbox */
	int fd;	     /* -1 but for TERMINAL */
	struct nsbox_result result;
	struct nsbox_error error;
};

/* Readable when nsbox_sandbox_next() has something to do; an epoll descriptor, so it nests. */
int nsbox_sandbox_fd(const struct nsbox_sandbox *sb);
/*
 * Take the next event, doing what has to be done on the way (deadlines, limits). Waits up to
 * timeout_ms (0: not at all, -1: until there is one); NSBOX_EVENT_NONE where there was none.
 */
int nsbox_sandbox_next(struct nsbox_sandbox *sb, int timeout_ms, struct nsbox_event *ret,
		       struct nsbox_error *err);

/*
 * The listeners inside a sandbox whose plan grants egress, for nsbox-egress: from then on the
 * caller's. ret[i] is that of bit i of the returned set, -1 where there is none; 0 before
 * NSBOX_EVENT_LISTENERS, and once they were taken. Whoever keeps one open keeps programs waiting
 * that nobody serves: close them once they were handed on.
 */
#define NSBOX_LISTENERS_MAX 8
unsigned nsbox_sandbox_listeners(struct nsbox_sandbox *sb, int ret[NSBOX_LISTENERS_MAX]);

/* Kill everything inside and wait for nothing: NSBOX_EVENT_GONE says when nothing is left. */
void nsbox_sandbox_end(struct nsbox_sandbox *sb);
/* Kill what is left, release ids and cgroups. NULL is fine. Waits for init to be gone (< 1 s), which
 * it is after NSBOX_EVENT_GONE. */
void nsbox_sandbox_free(struct nsbox_sandbox *sb);

/*
 * Remove what owners that were killed have left on this host (control groups of slots that no one
 * holds), and empty parents. Owners call it when they start, or when they end.
 */
void nsbox_sweep(void);

/* ------------------------------------------------------------------ one call for a whole run */

/*
 * Make a sandbox, run, wait, take it down. Only for io without a terminal. Returns 0 when a result
 * was written, also where the program could not be started (cause EXEC or SANDBOX).
 */
int nsbox_run(const struct nsbox_plan *plan, const struct nsbox_root *root,
	      const struct nsbox_sandbox_options *opt, const struct nsbox_exec *ex,
	      const struct nsbox_io *io, struct nsbox_result *ret, struct nsbox_error *err);

#pragma GCC visibility pop

#endif
