/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is let in: connections are accepted here and judged by the kernel's word on the peer before a
 * byte of them is read, so that none who may not speak can hold what others wait for.
 */
#ifndef FRONT_DOOR_H
#define FRONT_DOOR_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <sys/types.h>

#include "daemon/front/http.h"
#include "daemon/front/loop.h"

struct door;

/* Takes the connection; it is counted from door_entered() to door_left(). */
typedef void door_fn(void *ctx, int fd);

/* The listening socket is borrowed; max: connections that the receiver can hold. */
int door_new(struct loop *l, int listen_fd, const struct http_peers *peers, unsigned max,
	     door_fn *fn, void *ctx, struct door **ret, struct nsbox_error *err);
void door_free(struct door *d);
void door_set_peers(struct door *d, const struct http_peers *peers);

/*
 * SO_PEERCRED and the peer's groups against the list; false where it may not speak. Clients over TCP
 * may, as WHO_NO_UID: that is one user to the door, and their tokens are judged later.
 */
bool door_may_speak(int fd, const struct http_peers *p, uid_t *ret_uid);

/* Before it is closed: that there is no room for it. */
void door_say_full(int fd);

void door_entered(struct door *d, uid_t uid, bool may_speak);
void door_left(struct door *d, uid_t uid, bool may_speak);

#endif
