/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.1 over the Unix socket, and TCP: requests in, JSON replies out. */
#ifndef FRONT_HTTP_H
#define FRONT_HTTP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/front/loop.h"
#include "daemon/front/options.h"

struct http;
struct http_request;

struct http_handlers {
	/* A whole request is there. Ends in http_reply(), at once or later. */
	void (*request)(void *ctx, struct http_request *rq);
	/* The client of a request that waits for its reply is gone: forget the request. */
	void (*gone)(void *ctx, struct http_request *rq);
	/* The workspace that an Authorization header (NULL: none) stands for; NULL: none. */
	const char *(*token)(void *ctx, const char *header);
	/* It needs no token. */
	bool (*open)(const struct http_request *rq);
	/* It was refused at the door, and has been answered. */
	void (*refused)(void *ctx, struct http_request *rq, const char *why);
	void *ctx;
};

/*
 * The listening sockets are borrowed; tcp_fd -1: none. request_s: what the head of a request may
 * take, and how long a connection may be silent.
 */
int http_new(struct loop *l, int listen_fd, int tcp_fd, const struct http_peers *peers,
	     size_t body_max, uint64_t request_s, const struct http_handlers *handlers,
	     struct http **ret, struct nsbox_error *err);
void http_free(struct http *h);
void http_set_peers(struct http *h, const struct http_peers *peers);
unsigned http_connections(const struct http *h);
/* Send what can be sent without waiting. */
void http_run(struct http *h);

const char *http_method(const struct http_request *rq);
const char *http_path(const struct http_request *rq);
const char *http_body(const struct http_request *rq, size_t *ret_len);
/* Another in its place, malloc'd and taken; the old one is overwritten. */
void http_set_body(struct http_request *rq, char *text);
char *http_take_body(struct http_request *rq); /* the caller's to free; may be NULL */
/* A number of the query ("?name=12"); `otherwise` where it is not there; false: it is none. */
bool http_query_u64(const struct http_request *rq, const char *name, uint64_t otherwise,
		    uint64_t *ret);
const char *http_header(const struct http_request *rq, const char *name); /* NULL: not there */
const char *http_argument(struct http_request *rq, const char *name);	  /* of the query; NULL */
/* Is it in the query? *ret is its value, "" for none. */
bool http_query(const struct http_request *rq, const char *name, const char **ret);
/* The trace that the request is part of, as W3C Trace Context writes it; NULL: none. */
const char *http_traceparent(const struct http_request *rq);
uid_t http_peer(const struct http_request *rq);
/* That of a client's token; NULL: it came through the Unix socket. */
const char *http_workspace(const struct http_request *rq);
void **http_data(struct http_request *rq); /* a place for the handler's own pointer */

/* Takes body (malloc'd JSON; NULL: an empty 503). headers: "Name", "value", ..., NULL; or NULL. */
void http_reply(struct http_request *rq, int status, char *body, size_t len,
		const char *const *headers);
/* A body that comes piece by piece, as long as there is one. */
struct http_stream {
	/* Bytes put into buf; 0: none now, http_wake() says when; -1: the end. */
	ssize_t (*read)(void *ctx, char *buf, size_t max);
	void (*done)(void *ctx); /* nothing is read any more, and the request is about to go */
};
void http_reply_stream(struct http_request *rq, const struct http_stream *stream, void *ctx,
		       const char *const *headers);
void http_wake(struct http_request *rq);
/*
 * The end of a client's sending is its end: over TCP, unlike a Unix socket, a connection that was
 * closed looks the same as one that only was shut down for sending.
 */
void http_needs_whole(struct http_request *rq);

/*
 * A request of our own, handled and answered like a client's, for who speaks another protocol
 * (MCP): one way for everything that is done. It is the same client as the one that it is made for.
 */
struct http_inner {
	const char *method, *path;
	const char *const *query, *const *headers; /* "name", "value", ..., NULL; or NULL */
	char *body;				   /* malloc'd and taken; NULL: none */
	size_t len;
	uid_t peer;
	const char *workspace; /* of the client's token, or NULL; borrowed until the end */
	/* Its reply, which is borrowed; the request is gone afterwards. Never from http_inner(). */
	void (*answered)(void *ctx, int status, const char *body, size_t len);
	void *ctx;
};
/* NULL: no memory. The strings of `in` but the workspace are copied. */
struct http_request *http_inner(struct http *h, const struct http_inner *in);
/* As if its client had gone: nothing is answered any more. */
void http_inner_drop(struct http_request *rq);

/* {"error":{code,message}} */
void http_reply_error(struct http_request *rq, int status, const char *code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#endif
