/* SPDX-License-Identifier: Apache-2.0 */
/* A file system on disk for the upper layer of one run, see upper_disk.c. */
#ifndef NSBOX_UPPER_DISK_H
#define NSBOX_UPPER_DISK_H

#include <nsbox/error.h>
#include <stdint.h>
#include <sys/types.h>

/* A mount that is nowhere yet; with its descriptor's last copy, and the sandbox, everything of it
 * goes. uid, gid: of its top directory. NSBOX_E_UNSUPPORTED: the message says what it takes. */
int upper_disk_make(const char *dir, uint64_t bytes, uint64_t inodes, uid_t uid, gid_t gid,
		    int *ret_mount, struct nsbox_error *err);

#endif
