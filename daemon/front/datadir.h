/* SPDX-License-Identifier: Apache-2.0 */
/* The front's own directory: journal and audit. */
#ifndef FRONT_DATADIR_H
#define FRONT_DATADIR_H

#include <nsbox/error.h>
#include <sys/types.h>

/*
 * Open it, making what is missing. `path` is absolute; NULL: "front" in state_dir (NULL: the
 * default one). It has to be a directory of `uid`, closed to all others, at a place where nobody
 * else could put one.
 */
int datadir_open(const char *path, const char *state_dir, uid_t uid, gid_t gid, int *ret_fd,
		 struct nsbox_error *err);

#endif
