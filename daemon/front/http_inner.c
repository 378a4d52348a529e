/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of our own: to the handlers they are like a client's, but they have no connection, and
 * what is answered goes to a function.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "daemon/front/http_parts.h"
#include "nsbox/util.h"
#include "policy/json_strict.h"

const char *http_inner_value(char *const *list, const char *name)
{
	for (; list && *list; list += 2)
		if (strcasecmp(list[0], name) == 0)
			return list[1];
	return NULL;
}

/* Handlers may still look at a request that they have answered: its caller hears of it later. */
void http_inner_reply(struct http_request *rq, char *body, size_t len)
{
	rq->inner->reply = body;
	rq->inner->len = body ? len : 0;
	loop_timer_set(rq->h->loop, &rq->inner->done, 0);
}

static void inner_free(struct http_request *rq)
{
	json_strings_free(rq->inner->query);
	json_strings_free(rq->inner->headers);
	loop_timer_cancel(rq->h->loop, &rq->inner->done);
	free(rq->inner->reply);
	free(rq->inner);
	if (rq->body)
		explicit_bzero(rq->body, rq->cap);
	free(rq->body);
	free(rq->path);
	free(rq);
}

static void on_inner_done(void *ctx)
{
	struct http_request *rq = ctx;

	rq->inner->answered(rq->inner->ctx, rq->status, rq->inner->reply, rq->inner->len);
	inner_free(rq);
}

static char **copy_pairs(const char *const *list)
{
	char **copy;
	size_t n = 0;

	while (list && list[n])
		n++;
	copy = calloc(n + 1, sizeof(*copy));
	for (size_t i = 0; copy && i < n; i++) {
		copy[i] = strdup(list[i]);
		if (!copy[i]) {
			json_strings_free(copy);
			return NULL;
		}
	}
	return copy;
}

struct http_request *http_inner(struct http *h, const struct http_inner *in)
{
	struct http_request *rq = calloc(1, sizeof(*rq));

	if (rq)
		rq->inner = calloc(1, sizeof(*rq->inner));
	if (!rq || !rq->inner) {
		free(in->body);
		free(rq);
		return NULL;
	}
	rq->h = h;
	rq->body = in->body;
	rq->len = rq->cap = in->body ? in->len : 0;
	rq->peer = in->peer;
	rq->workspace = in->workspace;
	rq->dispatched = true;
	snprintf(rq->method, sizeof(rq->method), "%s", in->method);
	rq->path = strdup(in->path);
	rq->inner->query = copy_pairs(in->query);
	rq->inner->headers = copy_pairs(in->headers);
	rq->inner->answered = in->answered;
	rq->inner->ctx = in->ctx;
	rq->inner->done = (struct loop_timer){ .fn = on_inner_done, .ctx = rq };
	if (!rq->path || !rq->inner->query || !rq->inner->headers) {
		inner_free(rq);
		return NULL;
	}
	h->handlers.request(h->handlers.ctx, rq);
	return rq;
}

void http_inner_drop(struct http_request *rq)
{
	if (!rq->status)
		rq->h->handlers.gone(rq->h->handlers.ctx, rq);
	inner_free(rq);
}
