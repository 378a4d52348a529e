/* SPDX-License-Identifier: Apache-2.0 */
/* One blocking HTTP request over a Unix socket, for the command line tool. */
#ifndef DAEMON_CLIENT_H
#define DAEMON_CLIENT_H

#include <nsbox/error.h>
#include <stddef.h>

/*
 * Send a request (body may be NULL) and read the whole answer. *ret_body is malloc'd and
 * NUL-terminated beyond its length. 0 also where the status says that something went wrong:
 * failures here are those of the socket (NSBOX_E_IO) and of the answer's form (NSBOX_E_PROTOCOL).
 */
int client_request(const char *socket_path, const char *method, const char *path, const char *body,
		   size_t len, int *ret_status, char **ret_body, size_t *ret_len,
		   struct nsbox_error *err);

/*
 * The same where the answer comes little by little: each line of its body, without its end, as it
 * comes. Failures are as above.
 */
int client_lines(const char *socket_path, const char *method, const char *path, const char *body,
		 void (*line)(void *ctx, int status, const char *text), void *ctx,
		 struct nsbox_error *err);

#endif
