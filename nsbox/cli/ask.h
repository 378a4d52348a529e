/* SPDX-License-Identifier: Apache-2.0 */
/* One request to the daemon, for the commands that speak to it. */
#ifndef NSBOX_CLI_ASK_H
#define NSBOX_CLI_ASK_H

#include <stddef.h>

#define SOCKET_DEFAULT "/run/nsbox/nsbox.sock"

struct json_object;

struct answer {
	int status;
	char *text;
	size_t len;
	struct json_object *body;
};

/* socket NULL: $NSBOX_SOCKET, else the default. */
const char *ask_socket(const char *socket);
/*
 * 0; an exit status after the daemon's own words about a refusal; -1 after a message where there
 * was no answer. *ret is the caller's either way.
 */
int ask_daemon(const char *socket, const char *method, const char *path, struct json_object *body,
	       struct answer *ret);
void answer_done(struct answer *a);
/* A member that is text; NULL: there is none. */
const char *answer_text(struct json_object *o, const char *key);

#endif
