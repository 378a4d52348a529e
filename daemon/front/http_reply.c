/* SPDX-License-Identifier: Apache-2.0 */
/* A request as its handlers see it, and replies: whole ones, streams, errors. */
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "daemon/front/http_parts.h"
#include "daemon/front/json_reply.h"
#include "nsbox/util.h"

#define STREAM_BLOCK ((size_t)16 * 1024)

const char *http_method(const struct http_request *rq)
{
	return rq->method;
}

const char *http_path(const struct http_request *rq)
{
	return rq->path;
}

const char *http_body(const struct http_request *rq, size_t *ret_len)
{
	*ret_len = rq->len;
	return rq->body ? rq->body : "";
}

void http_set_body(struct http_request *rq, char *text)
{
	if (rq->body)
		explicit_bzero(rq->body, rq->cap);
	free(rq->body);
	rq->body = text;
	rq->len = rq->cap = strlen(text);
}

char *http_take_body(struct http_request *rq)
{
	rq->len = rq->cap = 0;
	return take_ptr(&rq->body);
}

const char *http_argument(struct http_request *rq, const char *name)
{
	if (rq->inner)
		return http_inner_value(rq->inner->query, name);
	return MHD_lookup_connection_value(rq->conn, MHD_GET_ARGUMENT_KIND, name);
}

const char *http_header(const struct http_request *rq, const char *name)
{
	if (rq->inner)
		return http_inner_value(rq->inner->headers, name);
	return MHD_lookup_connection_value(rq->conn, MHD_HEADER_KIND, name);
}

bool http_query(const struct http_request *rq, const char *name, const char **ret)
{
	const char *v = NULL;
	size_t len;

	if (rq->inner) {
		*ret = http_inner_value(rq->inner->query, name);
		return *ret;
	}
	if (MHD_lookup_connection_value_n(rq->conn, MHD_GET_ARGUMENT_KIND, name, strlen(name), &v,
					  &len) != MHD_YES)
		return false;
	*ret = v ? v : "";
	return true;
}

bool http_query_u64(const struct http_request *rq, const char *name, uint64_t otherwise,
		    uint64_t *ret)
{
	const char *text = http_argument((struct http_request *)rq, name);

	*ret = otherwise;
	return !text || parse_u64(text, ret);
}

const char *http_traceparent(const struct http_request *rq)
{
	return *rq->traceparent ? rq->traceparent : NULL;
}

uid_t http_peer(const struct http_request *rq)
{
	return rq->peer;
}

const char *http_workspace(const struct http_request *rq)
{
	return rq->workspace;
}

void **http_data(struct http_request *rq)
{
	return &rq->data;
}

void http_soon(struct http *h)
{
	h->again = true;
	loop_timer_set(h->loop, &h->timer, 0);
}

/*
 * On a Unix socket the kernel tells a client that is gone from one that has only said all it wanted
 * to. On TCP both are the same FIN, and hardly anybody means the second.
 * Without a http_watch, for lack of memory, a run simply goes to its end.
 */
void http_watch(struct http_request *rq)
{
	bool whole = rq->whole || rq->peer == WHO_NO_UID;

	if (loop_add(rq->h->loop, http_socket(rq->conn), whole ? EPOLLRDHUP : 0, http_on_hangup, rq,
		     &rq->watch, NULL) < 0)
		rq->watch = NULL;
}

void http_reply(struct http_request *rq, int status, char *body, size_t len,
		const char *const *headers)
{
	if (rq->status) {
		free(body);
		return;
	}
	rq->status = body ? status : 503;
	if (rq->inner) {
		http_inner_reply(rq, body, len);
		return;
	}
	rq->response = MHD_create_response_from_buffer(body ? len : 0, body, MHD_RESPMEM_MUST_FREE);
	if (!rq->response) {
		free(body);
	} else {
		if (!headers || strcmp(headers[0], "Content-Type") != 0)
			MHD_add_response_header(rq->response, "Content-Type", "application/json");
		if (*rq->traceparent)
			MHD_add_response_header(rq->response, "traceparent", rq->traceparent);
		for (; headers && headers[0]; headers += 2)
			MHD_add_response_header(rq->response, headers[0], headers[1]);
	}
	http_wake(rq);
}

/* libmicrohttpd asks for more of a stream. */
static ssize_t on_more(void *cls, uint64_t pos, char *buf, size_t max)
{
	struct http_request *rq = cls;
	ssize_t n;

	if (!rq->stream || rq->hung_up)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	n = rq->stream->read(rq->stream_ctx, buf, max);
	if (n != 0)
		return n > 0 ? n : MHD_CONTENT_READER_END_OF_STREAM;
	MHD_suspend_connection(rq->conn);
	rq->suspended = true;
	http_watch(rq);
	return 0;
}

void http_reply_stream(struct http_request *rq, const struct http_stream *stream, void *ctx,
		       const char *const *headers)
{
	if (rq->inner) { /* nothing that is asked for from inside is a stream */
		stream->done(ctx);
		http_reply_error(rq, 500, "unsupported", "a stream cannot be had here");
		return;
	}
	rq->status = 200;
	rq->stream = stream;
	rq->stream_ctx = ctx;
	rq->response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, on_more,
							 rq, NULL);
	for (; rq->response && headers && headers[0]; headers += 2)
		MHD_add_response_header(rq->response, headers[0], headers[1]);
	if (rq->response && *rq->traceparent)
		MHD_add_response_header(rq->response, "traceparent", rq->traceparent);
	http_wake(rq);
}

void http_needs_whole(struct http_request *rq)
{
	rq->whole = true;
}

void http_wake(struct http_request *rq)
{
	if (!rq->suspended)
		return;
	loop_del(rq->h->loop, &rq->watch);
	rq->suspended = false;
	MHD_resume_connection(rq->conn);
	http_soon(rq->h);
}

void http_reply_error(struct http_request *rq, int status, const char *code, const char *fmt, ...)
{
	struct json_object *o = json_object_new_object(), *e = json_object_new_object();
	char text[512], *body = NULL;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (json_put_text(e, "code", code) == 0 && json_put_text(e, "message", text) == 0 &&
	    json_put(o, "error", json_object_get(e)) == 0)
		body = strdup(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN));
	json_object_put(e);
	json_object_put(o);
	http_reply(rq, status, body, body ? strlen(body) : 0, NULL);
}
