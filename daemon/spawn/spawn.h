/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of nsbox-spawn: its sandboxes, and what the front may ask for. */
#ifndef DAEMON_SPAWN_H
#define DAEMON_SPAWN_H

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

struct spawn {
	int sock, epoll;
	int egress; /* socket to nsbox-egress, -1: none */
	struct nsbox_host host;
	uint32_t layers;
	const char *state_dir; /* NULL: the default */
	struct spawn_share shares[SPAWN_SHARES_MAX];
	unsigned n_shares;
	struct nsbox_root *host_root; /* NULL until it is asked for */
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

/* egress.c: hand a sandbox's listeners on; it will have no network any more. */
int spawn_give_listeners(struct spawn *s, struct box *b, struct nsbox_error *err);
void spawn_end_network(struct spawn *s, const struct box *b);

#endif
