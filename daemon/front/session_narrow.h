/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies in a session that there is: a command's own, and another for all that come (PATCH
 * /v1/sessions/ID). They only ever narrow.
 */
#ifndef FRONT_SESSION_NARROW_H
#define FRONT_SESSION_NARROW_H

#include "daemon/front/compiler.h"

struct front;
struct http_request;
struct job;
struct job_spec;
struct session;

/*
 * What a request wants, compiled and compared with what the session's commands have: `done` as of
 * compiler_start(), and *ret_text the manifest that was compiled. The session is up.
 */
int session_compile(const struct session *s, const struct job_spec *spec, uint32_t flags,
		    compile_done_fn *done, void *ctx, struct compile_ticket **ret, char **ret_text,
		    struct nsbox_error *err);
/* Was that compared with what the commands have now? -EEXIST where it was not. */
int session_compared(const struct session *s, const struct compile_reply *reply,
		     struct nsbox_error *err);

/* Was it a request that waits for a narrower policy? Then it does not wait any more. */
bool session_narrow_gone(struct front *f, const struct http_request *rq);
void session_narrow_close(struct front *f);

#endif
