/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP over the Unix socket, and over TCP for clients with a token, by libmicrohttpd without
 * threads.
 *
 * libmicrohttpd has an epoll set of its own, whose descriptor sits in the front's loop; it runs
 * when that is readable, when its own timeout says so, and after a connection was resumed. It
 * must not be called from within its own callbacks, so everything that wants it to run sets a
 * timer of zero.
 *
 * A request that waits for a job is suspended: libmicrohttpd then no longer looks at its socket.
 * The front does, for a hang-up alone (a client that only shut down its sending side still wants
 * the answer; over TCP that is as good as gone), so that a job whose caller is gone is not run to
 * its end.
 *
 * libmicrohttpd knows a time of silence only, and a byte now and then is no silence. So each
 * connection has a deadline of its own for what it is at: the head of a request, its body, taking
 * the reply. Waiting for a job, and reading a stream of events, have none.
 */
#include "daemon/front/http.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "daemon/front/door.h"
#include "daemon/front/http_parts.h"
#include "nsbox/util.h"

#define CONNECTIONS_MAX 512
/* Times that a request may take, in those of its head. */
#define BODY_TIMES	  5
#define REPLY_TIMES	  10
#define CONNECTION_MEMORY (128 * 1024)

/* ------------------------------------------------------------------ who speaks */

int http_socket(struct MHD_Connection *conn)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);

	return info ? info->connect_fd : -1;
}

static struct visitor *visitor_of(struct MHD_Connection *conn)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

/* times 0: as long as it takes. */
static void allow_time(struct http_request *rq, unsigned times)
{
	if (rq->visitor)
		rq->visitor->deadline =
			times ? monotonic_us() + times * rq->h->request_s * 1000000 : 0;
}

static uint64_t look_us(const struct http *h)
{
	return MIN(h->request_s * 1000000 / 4, UINT64_C(5000000));
}

/* Shut down, a connection is closed by libmicrohttpd as if the client had gone. */
static void on_look(void *ctx)
{
	struct http *h = ctx;
	uint64_t now = monotonic_us();

	for (struct visitor *v = h->visitors; v; v = v->next) {
		if (v->deadline == 0 || v->deadline > now)
			continue;
		v->deadline = 0;
		shutdown(v->fd, SHUT_RDWR);
	}
	loop_timer_set(h->loop, &h->look, look_us(h));
}

/* ------------------------------------------------------------------ requests */

static enum MHD_Result send_reply(struct http_request *rq)
{
	enum MHD_Result r;

	if (!rq->response)
		return MHD_NO; /* out of memory: the connection is closed */
	allow_time(rq, rq->stream ? 0 : REPLY_TIMES);
	r = MHD_queue_response(rq->conn, (unsigned)rq->status, rq->response);
	MHD_destroy_response(rq->response);
	rq->response = NULL;
	return r;
}

void http_on_hangup(void *ctx, uint32_t events)
{
	struct http_request *rq = ctx;

	if (rq->stream) {
		rq->hung_up = true;
		http_wake(rq);
		return;
	}
	loop_del(rq->h->loop, &rq->watch);
	rq->h->handlers.gone(rq->h->handlers.ctx, rq);
	/* Nobody reads it; it makes libmicrohttpd look at the socket and close it. */
	http_reply_error(rq, 503, "cancelled", "the client went away");
}

static enum MHD_Result dispatch(struct http_request *rq)
{
	struct http *h = rq->h;

	rq->dispatched = true;
	allow_time(rq, 0);
	if (rq->too_large)
		http_reply_error(rq, 413, "limit", "the body has more than %zu bytes", h->body_max);
	else
		h->handlers.request(h->handlers.ctx, rq);
	if (rq->status)
		return send_reply(rq);
	MHD_suspend_connection(rq->conn);
	rq->suspended = true;
	http_watch(rq);
	return MHD_YES;
}

static int append(struct http_request *rq, const char *data, size_t n)
{
	if (rq->too_large || n > rq->h->body_max - rq->len) {
		rq->too_large = true;
		return 0;
	}
	if (rq->len + n > rq->cap) {
		size_t cap = MIN(MAX(rq->cap * 2, rq->len + n), rq->h->body_max);
		char *p = realloc(rq->body, cap);

		if (!p)
			return -ENOMEM;
		rq->body = p;
		rq->cap = cap;
	}
	memcpy(rq->body + rq->len, data, n);
	rq->len += n;
	return 0;
}

static bool is_hex(const char *s, size_t n)
{
	return strspn(s, "0123456789abcdef") >= n && strspn(s, "0") < n;
}

/* version-trace-parent-flags; what is not of that form is as good as not there. */
static void take_traceparent(struct http_request *rq)
{
	const char *s = http_header(rq, "traceparent");

	if (!s || strlen(s) != sizeof(rq->traceparent) - 1 || s[2] != '-' || s[35] != '-' ||
	    s[52] != '-' || strncmp(s, "00", 2) != 0 || !is_hex(s + 3, 32) || !is_hex(s + 36, 16) ||
	    strspn(s + 53, "0123456789abcdef") != 2)
		return;
	memcpy(rq->traceparent, s, sizeof(rq->traceparent));
}

static void refuse(struct http_request *rq, int status, const char *why)
{
	const struct http_handlers *to = &rq->h->handlers;

	http_reply_error(rq, status, status == 401 ? "unauthorized" : "forbidden", "%s", why);
	if (status == 401 && rq->response)
		MHD_add_response_header(rq->response, "WWW-Authenticate", "Bearer");
	to->refused(to->ctx, rq, why);
}

/* The kernel's word on a Unix socket, a token on TCP. */
static bool let_in(struct http_request *rq)
{
	const struct http_handlers *to = &rq->h->handlers;

	if (!door_may_speak(http_socket(rq->conn), &rq->h->peers, &rq->peer)) {
		refuse(rq, 403,
		       "this user may not use the service; see nsboxd --allow-uid and --allow-gid");
		return false;
	}
	if (rq->peer != WHO_NO_UID)
		return true;
	rq->workspace = to->token(to->ctx, http_header(rq, "Authorization"));
	if (!rq->workspace && to->open(rq))
		return true;
	if (!rq->workspace)
		refuse(rq, 401, "a token is needed: Authorization: Bearer TOKEN");
	return rq->workspace;
}

/* What can be said before the body is read; the connection is closed after such a reply. */
static void check_early(struct http_request *rq)
{
	const char *len = MHD_lookup_connection_value(rq->conn, MHD_HEADER_KIND,
						      MHD_HTTP_HEADER_CONTENT_LENGTH);
	uint64_t n;

	if (!let_in(rq))
		return;
	if (len && (!parse_u64(len, &n) || n > rq->h->body_max))
		http_reply_error(rq, 413, "limit", "the body has more than %zu bytes",
				 rq->h->body_max);
}

static enum MHD_Result first(struct http *h, struct MHD_Connection *conn, const char *url,
			     const char *method, void **con_cls)
{
	struct http_request *rq = calloc(1, sizeof(*rq));

	if (!rq)
		return MHD_NO;
	*con_cls = rq;
	rq->h = h;
	rq->conn = conn;
	rq->visitor = visitor_of(conn);
	allow_time(rq, BODY_TIMES);
	snprintf(rq->method, sizeof(rq->method), "%s", method);
	rq->path = strdup(url);
	if (!rq->path)
		return MHD_NO;
	take_traceparent(rq);
	check_early(rq);
	return rq->status ? send_reply(rq) : MHD_YES;
}

static enum MHD_Result on_access(void *cls, struct MHD_Connection *conn, const char *url,
				 const char *method, const char *version, const char *data,
				 size_t *size, void **con_cls)
{
	struct http_request *rq = *con_cls;

	if (!rq)
		return first(cls, conn, url, method, con_cls);
	if (*size > 0) {
		if (append(rq, data, *size) < 0)
			return MHD_NO;
		*size = 0;
		return MHD_YES;
	}
	if (!rq->dispatched)
		return dispatch(rq);
	return rq->status ? send_reply(rq) : MHD_YES;
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **con_cls,
			 enum MHD_RequestTerminationCode why)
{
	struct http_request *rq = *con_cls;

	if (!rq)
		return;
	*con_cls = NULL;
	loop_del(rq->h->loop, &rq->watch);
	if (rq->dispatched && !rq->status) {
		rq->suspended = false; /* nothing to resume any more */
		rq->h->handlers.gone(rq->h->handlers.ctx, rq);
	}
	if (rq->stream)
		rq->stream->done(rq->stream_ctx);
	rq->stream = NULL;
	if (rq->response)
		MHD_destroy_response(rq->response);
	allow_time(rq, 1); /* for the next one */
	free(rq->path);
	free(rq->body);
	free(rq);
}

/* ------------------------------------------------------------------ life */

void http_run(struct http *h)
{
	MHD_UNSIGNED_LONG_LONG ms;

	h->again = false;
	MHD_run(h->daemon);
	/* A connection that was resumed by a callback is looked at by the next run. */
	if (h->again)
		loop_timer_set(h->loop, &h->timer, 0);
	else if (MHD_get_timeout(h->daemon, &ms) == MHD_YES)
		loop_timer_set(h->loop, &h->timer, ms * 1000);
	else
		loop_timer_cancel(h->loop, &h->timer);
}

static void on_timer(void *ctx)
{
	http_run(ctx);
}

static void on_ready(void *ctx, uint32_t events)
{
	http_run(ctx);
}

/* libmicrohttpd closes what it cannot take; run at once, so that the door counts what it took. */
static void on_connection(void *ctx, int fd)
{
	const struct sockaddr addr = { .sa_family = AF_UNIX };
	struct http *h = ctx;

	if (h->n_visitors >= CONNECTIONS_MAX) {
		door_say_full(fd);
		close(fd);
		return;
	}
	MHD_add_connection(h->daemon, fd, &addr, sizeof(addr));
	http_run(h);
}

static struct door *door_of(struct http *h, const struct visitor *v)
{
	return v->uid == WHO_NO_UID && h->tcp_door ? h->tcp_door : h->door;
}

static void visitor_enter(struct http *h, struct visitor *v)
{
	v->next = h->visitors;
	if (v->next)
		v->next->prev = v;
	h->visitors = v;
	h->n_visitors++;
	door_entered(door_of(h, v), v->uid, v->may_speak);
}

static void visitor_leave(struct http *h, struct visitor *v)
{
	*(v->prev ? &v->prev->next : &h->visitors) = v->next;
	if (v->next)
		v->next->prev = v->prev;
	h->n_visitors--;
	door_left(door_of(h, v), v->uid, v->may_speak);
	free(v);
}

/* What the door has to know again when the connection ends and its socket is gone. */
static void on_notify(void *cls, struct MHD_Connection *conn, void **socket_context,
		      enum MHD_ConnectionNotificationCode code)
{
	struct http *h = cls;
	struct visitor *v = *socket_context;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		v = calloc(1, sizeof(*v));
		if (!v)
			return; /* not counted: the memory's end is nearer than the door's */
		v->fd = http_socket(conn);
		v->may_speak = door_may_speak(v->fd, &h->peers, &v->uid);
		v->deadline = monotonic_us() + h->request_s * 1000000;
		visitor_enter(h, v);
		*socket_context = v;
	} else if (v) {
		visitor_leave(h, v);
		*socket_context = NULL;
	}
}

void http_set_peers(struct http *h, const struct http_peers *peers)
{
	h->peers = *peers;
	door_set_peers(h->door, peers);
}

unsigned http_connections(const struct http *h)
{
	return h->n_visitors;
}

/* A path that holds a NUL would end there: it stays as it was sent, which is the name of nothing. */
static size_t on_unescape(void *cls, struct MHD_Connection *conn, char *s)
{
	return strstr(s, "%00") ? strlen(s) : MHD_http_unescape(s);
}

int http_new(struct loop *l, int listen_fd, int tcp_fd, const struct http_peers *peers,
	     size_t body_max, uint64_t request_s, const struct http_handlers *handlers,
	     struct http **ret, struct nsbox_error *err)
{
	struct http *h = calloc(1, sizeof(*h));
	const union MHD_DaemonInfo *info;
	int r;

	if (!h)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "HTTP service");
	*h = (struct http){ .loop = l,
			    .peers = *peers,
			    .handlers = *handlers,
			    .body_max = body_max,
			    .request_s = request_s };
	h->timer = (struct loop_timer){ .fn = on_timer, .ctx = h };
	h->look = (struct loop_timer){ .fn = on_look, .ctx = h };
	h->daemon = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL,
		on_access, h, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
		MHD_OPTION_NOTIFY_CONNECTION, on_notify, h, MHD_OPTION_CONNECTION_LIMIT,
		(unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)request_s,
		MHD_OPTION_UNESCAPE_CALLBACK, on_unescape, h, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)CONNECTION_MEMORY, MHD_OPTION_END);
	info = h->daemon ? MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
	if (!info) {
		http_free(h);
		return nsbox_fail(err, NSBOX_E_IO, 0, "the HTTP service could not be started");
	}
	r = loop_add(l, info->epoll_fd, EPOLLIN, on_ready, h, &h->source, err);
	if (r == 0)
		r = door_new(l, listen_fd, peers, CONNECTIONS_MAX, on_connection, h, &h->door, err);
	if (r == 0 && tcp_fd >= 0)
		r = door_new(l, tcp_fd, peers, CONNECTIONS_MAX, on_connection, h, &h->tcp_door,
			     err);
	if (r < 0) {
		http_free(h);
		return r;
	}
	loop_timer_set(l, &h->look, look_us(h));
	http_soon(h);
	*ret = h;
	return 0;
}

void http_free(struct http *h)
{
	if (!h)
		return;
	loop_del(h->loop, &h->source);
	loop_timer_cancel(h->loop, &h->timer);
	loop_timer_cancel(h->loop, &h->look);
	if (h->daemon)
		MHD_stop_daemon(h->daemon);
	door_free(h->tcp_door);
	door_free(h->door); /* which hears of each connection's end until here */
	loop_timer_cancel(h->loop, &h->timer);
	free(h);
}
