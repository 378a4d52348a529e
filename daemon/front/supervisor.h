/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FRONT_SUPERVISOR_H
#define FRONT_SUPERVISOR_H

#include "daemon/front/front.h"

/* Where the front's descriptors are after the exec. */
#define FRONT_LISTEN_FD 3
#define FRONT_SPAWN_FD	4
#define FRONT_DATA_FD	5
#define FRONT_ORDER_FD	6
#define FRONT_EGRESS_FD 7

/* Run the pair until told to end. Takes opt. */
int supervise(struct front_options *opt, const struct front_arguments *args,
	      struct nsbox_error *err);

/* listen.c */
int listen_open(const struct front_options *opt, gid_t gid, int *ret_fd, struct nsbox_error *err);
/* "ADDRESS:PORT"; any: also where that can be reached from elsewhere. */
int listen_tcp(const char *where, bool any, int *ret_fd, struct nsbox_error *err);
/* A file that holds secrets: of root, ours or the front's, and closed to all others. */
int keys_open(const char *path, uid_t front, int *ret_fd, struct nsbox_error *err);

#endif
