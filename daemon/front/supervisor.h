/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FRONT_SUPERVISOR_H
#define FRONT_SUPERVISOR_H

#include "daemon/front/front.h"

/* Where the pair's descriptors are after the exec. */
#define FRONT_LISTEN_FD 3
#define FRONT_SPAWN_FD	4
#define FRONT_DATA_FD	5

/* Run the pair until told to end. argv: this process's own, passed on to the front. */
int supervise(struct front_options *opt, char **argv, struct nsbox_error *err);

/* listen.c */
int listen_open(const struct front_options *opt, gid_t gid, int *ret_fd, struct nsbox_error *err);

#endif
