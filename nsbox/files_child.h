/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving files inside a sandbox: what the helper that init forks does, confined as a payload.
 * System calls alone, buffers on the stack (collect: about 110 KiB): safe after clone.
 */
#ifndef NSBOX_FILES_CHILD_H
#define NSBOX_FILES_CHILD_H

#include <nsbox/files.h>

/*
 * Read a stream from fd and create what it says below `default_base`, or below what its BASE
 * frames name: /workspace, /skills/NAME, /tmp, /home/sandbox, default_base, or a directory in
 * one of these. root_fd is the sandbox's "/".
 */
int files_child_unpack(int fd, int root_fd, const struct nsbox_files_limits *lim,
		       const char *default_base, struct nsbox_error *err);

struct files_rule {
	const char *glob;
	uint64_t max_bytes; /* of each file; 0: the limits' */
	uint32_t max_files; /* 0: the limits' */
};
#define FILES_RULES_MAX 64

/*
 * Send the regular files below `base` that match a rule (the first that does, counts) to out_fd,
 * with END. What matches and is not sent is named in a NOTE. On an error END carries it, too.
 */
int files_child_collect(int root_fd, const char *base, const struct files_rule *rules, unsigned n,
			int out_fd, const struct nsbox_files_limits *lim, struct nsbox_error *err);

#endif
