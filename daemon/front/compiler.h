/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests to plans, by a worker process each, with a cache. */
#ifndef FRONT_COMPILER_H
#define FRONT_COMPILER_H

#include "daemon/common/compile.h"
#include "daemon/front/loop.h"

struct compiler;
struct compile_ticket;
/* reply->error says how it went; plan_fd is borrowed, -1 after an error. */
typedef void compile_done_fn(void *ctx, const struct compile_reply *reply, int plan_fd);

int compiler_new(struct loop *l, const char *worker, struct compiler **ret,
		 struct nsbox_error *err);
void compiler_free(struct compiler *c);
/*
 * Compile; `done` is called once, where the plan is known already before this returns (and then
 * *ret is NULL). q has to be zeroed before it is filled; text is the manifest (len 0: none).
 */
int compiler_start(struct compiler *c, struct compile_request *q, const char *text, size_t len,
		   compile_done_fn *done, void *ctx, struct compile_ticket **ret,
		   struct nsbox_error *err);
void compiler_cancel(struct compile_ticket **t); /* `done` will not be called; NULL is fine */

#endif
