/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's own: keeping the three (supervisor.c), leading the front (supervisor_lead.c). */
#ifndef FRONT_SUPERVISOR_PRIVATE_H
#define FRONT_SUPERVISOR_PRIVATE_H

#include "daemon/front/supervisor.h"

struct member {
	const char *name;
	pid_t pid; /* 0: not running */
	int status;
};

struct supervisor {
	struct front_options *opt, *next; /* in force; sent to the front, which has not said yes */
	const struct front_arguments *args;
	char self[4096];
	char *spawn_path, *egress_path, *template_path;
	char **env;
	int listen_fd, tcp_fd, data_fd, order_fd, signal_fd;
	bool own_socket; /* made here, not by the service manager */
	bool change_user;
	const char *user;
	uid_t uid;
	gid_t gid;
	struct member front, spawn, egress;
	bool ready, ready_once, drained;
	uint64_t drain_end; /* monotonic_us(); 0: nobody has asked for the end */
	uint64_t watchdog_us;
};

/* Options and the files that they name, to the front. */
int lead_options(struct supervisor *s, const struct front_options *o, struct nsbox_error *err);
/* Read everything again; the front has the last word. */
void lead_reload(struct supervisor *s);
/* Finish what runs, then end. */
void lead_drain(struct supervisor *s);
/* Take what the front says. */
void lead_hear(struct supervisor *s);
/* Ask it for a sign of life where one is due; *next: when the next one is. */
void lead_ping(struct supervisor *s, uint64_t *next);

#endif
