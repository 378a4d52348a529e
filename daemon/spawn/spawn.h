/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of nsbox-spawn: its sandboxes, and what the front may ask for. */
#ifndef DAEMON_SPAWN_H
#define DAEMON_SPAWN_H

#include <sys/types.h>

#include "daemon/common/wire.h"

#define SPAWN_BOXES_MAX	 1024
#define SPAWN_EXECS_MAX	 64
#define SPAWN_SHARES_MAX 32

/* A workspace's directory of the host, as the operator said. */
struct spawn_share {
	const char *workspace, *directory;
};

struct box_exec {
	uint32_t id;   /* the library's */
	uint64_t exec; /* the front's, 0: free place */
};

struct box {
	uint64_t id; /* 0: free place */
	struct nsbox_sandbox *sb;
	struct nsbox_plan *plan;
	const struct nsbox_root *root; /* what it runs in: the host's, or: */
	struct nsbox_root *own_root;   /* an imported image's */
	struct box_exec execs[SPAWN_EXECS_MAX];
	uint64_t collects[SPAWN_EXECS_MAX]; /* whose outputs are on their way, oldest first */
	unsigned n_collects;
	bool watched; /* its descriptor is in the epoll set */
	bool ending;  /* the front has done with it; freed when it is gone */
};

/* Images that are being made; their number is the front's, as one of a sandbox. */
#define SPAWN_COMMITS_MAX 4
struct spawn_commit {
	uint64_t number; /* 0: free place */
	pid_t pid;
	int pidfd;
};

/* template.c: an interpreter that forks. */
struct spawn_template {
	const char *library, *modules; /* of the operator; NULL: there shall be none */
	int sock, words;	       /* what it says before it ends */
	pid_t pid;		       /* 0: there is none */
	bool ready;
	unsigned forks, failures;
	uint64_t since_us;
};

/* epoll data beside the numbers of sandboxes, which are the front's choice but none of these. */
#define SPAWN_ID_SOCKET	  UINT64_MAX
#define SPAWN_ID_SIGNAL	  (UINT64_MAX - 1)
#define SPAWN_ID_COMMITS  (UINT64_MAX - 1 - SPAWN_COMMITS_MAX) /* and those behind it */
#define SPAWN_ID_TEMPLATE (SPAWN_ID_COMMITS - 1)	       /* the least of them */

struct spawn {
	int sock, epoll;
	int egress;	   /* socket to nsbox-egress, -1: none */
	bool greeted;	   /* the front is of our version */
	bool process_tier; /* the operator accepts plans of the tier "process" */
	struct nsbox_host host;
	uint32_t layers;
	const char *state_dir; /* NULL: the default */
	struct spawn_share shares[SPAWN_SHARES_MAX];
	unsigned n_shares;
	struct spawn_template template;
	struct nsbox_root *host_root; /* NULL until it is asked for */
	int kept_filter;	      /* of the first plan (nsbox_plan_keep_filter), -1: none */
	bool tried_filter;
	struct spawn_commit commits[SPAWN_COMMITS_MAX];
	struct box boxes[SPAWN_BOXES_MAX];
};

/* Carry out one request; a negative value ends the process (the front broke the rules). */
int spawn_request(struct spawn *s, const struct wire_request *q, int *fds, unsigned n,
		  struct nsbox_error *err);
/* Something happened in sandbox `id`: report it. A negative value: the front is gone. */
int spawn_events(struct spawn *s, uint64_t id, struct nsbox_error *err);
void spawn_free_all(struct spawn *s);

/* images.c: write what images there are. */
int spawn_tell_images(const struct spawn *s, int out, struct nsbox_error *err);

/* commit.c: start making one; which one has ended; end all. */
int spawn_commit_start(struct spawn *s, const struct wire_request *q, const int *fds,
		       struct nsbox_error *err);
uint64_t spawn_commit_ended(struct spawn *s, uint64_t id, struct nsbox_error *why);
void spawn_commits_end(struct spawn *s);
/* boxes.c: tell the front of the one that has. */
int spawn_commit_told(struct spawn *s, uint64_t id, struct nsbox_error *err);

/* template.c: start the one that is wanted; it has something to say; its socket for one fork, or 0. */
void spawn_template_start(struct spawn *s);
void spawn_template_told(struct spawn *s);
int spawn_template_use(struct spawn *s);
void spawn_template_end(struct spawn *s);

/* egress.c: hand a sandbox's listeners on; it will have no network any more. */
int spawn_give_listeners(struct spawn *s, struct box *b, struct nsbox_error *err);
void spawn_end_network(struct spawn *s, const struct box *b);

#endif
