/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who asks, and what that one may see.
 *
 * Root and the service's owner see all jobs. A user that is tied to a workspace sees the jobs of
 * that workspace, and whatever it sends belongs there. Any other user that may speak sees its own
 * jobs; it may name workspaces, for their turns in the queue, but none that others are tied to, by
 * their user or by a token. A client with a token is as one that is tied to the token's workspace.
 */
#ifndef FRONT_WHO_H
#define FRONT_WHO_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define WHO_WORKSPACE_MAX 128 /* bytes of a workspace's name */
#define WHO_TIES_MAX	  64
#define WHO_NO_UID	  ((uid_t)-1) /* of a client over TCP */

/* --workspace UID=NAME */
struct who_tie {
	uid_t uid;
	char workspace[WHO_WORKSPACE_MAX + 1];
};

struct who_ties {
	struct who_tie tie[WHO_TIES_MAX];
	unsigned n;
};

struct who {
	uid_t uid;
	bool all;
	const char *workspace; /* tied to it; NULL: to none */
};

/* "UID=NAME" into the list. */
int who_tie_parse(struct who_ties *t, const char *text);
void who_find(const struct who_ties *t, uid_t uid, uid_t owner, struct who *ret);
bool who_sees(const struct who *w, uid_t uid, const char *workspace);
/* Which workspace a request belongs to; NULL: it may not be `asked` ("" where it did not say). */
const char *who_workspace(const struct who_ties *t, const struct who *w, const char *asked);

#endif
