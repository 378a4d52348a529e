/* SPDX-License-Identifier: Apache-2.0 */
/* What http.c and http_reply.c share: a connection and a request of libmicrohttpd. */
#ifndef FRONT_HTTP_PARTS_H
#define FRONT_HTTP_PARTS_H

#include <microhttpd.h>

#include "daemon/front/http.h"

/* A connection: who it is, and how long it may be at what it is at. */
struct visitor {
	struct visitor *prev, *next;
	int fd;
	uid_t uid;
	bool may_speak;
	uint64_t deadline; /* monotonic_us(); 0: none */
};

struct http {
	struct loop *loop;
	struct loop_source *source;
	struct loop_timer timer, look;
	bool again; /* libmicrohttpd is to run once more, whatever it says itself */
	struct visitor *visitors;
	unsigned n_visitors;
	struct MHD_Daemon *daemon;
	struct door *door, *tcp_door;
	struct http_peers peers;
	struct http_handlers handlers;
	size_t body_max;
	uint64_t request_s;
};

struct http_request {
	struct http *h;
	struct MHD_Connection *conn;
	struct loop_source *watch;
	char method[16];
	char *path;
	char *body;
	size_t len, cap;
	uid_t peer;
	const char *workspace; /* of its token */
	struct visitor *visitor;
	char traceparent[56];		  /* "" for none */
	const struct http_stream *stream; /* NULL: none, or over */
	void *stream_ctx;
	bool hung_up;
	bool whole; /* a client that sends no more is gone */
	bool too_large, dispatched, suspended;
	void *data;
	int status; /* 0: no reply yet */
	struct MHD_Response *response;
	struct inner *inner; /* one of our own, without a connection; else NULL */
};

/* http_inner.c */
struct inner {
	char **query, **headers;
	void (*answered)(void *ctx, int status, const char *body, size_t len);
	void *ctx;
	char *reply;
	size_t len;
	struct loop_timer done;
};
/* Of "name", "value", ..., NULL. */
const char *http_inner_value(char *const *list, const char *name);
/* Takes body. */
void http_inner_reply(struct http_request *rq, char *body, size_t len);

int http_socket(struct MHD_Connection *conn);
void http_on_hangup(void *ctx, uint32_t events);
/* libmicrohttpd is to run, but not within its own callbacks. */
void http_soon(struct http *h);
/* Of a request that is suspended: hear when the client is gone. */
void http_watch(struct http_request *rq);

#endif
