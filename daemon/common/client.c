/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One blocking HTTP request over a Unix socket. The connection is used once and closed by the
 * service, so the answer is what comes until the end; its Content-Length tells a whole answer from
 * one that broke off.
 */
#include "daemon/common/client.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "nsbox/util.h"

#define ANSWER_MAX (UINT64_C(512) << 20)

struct answer {
	char *data;
	size_t len, cap;
};

static int connect_to(const char *path, int *ret, struct nsbox_error *err)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	auto_close int fd = -1;

	if (strlen(path) >= sizeof(addr.sun_path))
		return nsbox_fail(err, NSBOX_E_INVALID, ENAMETOOLONG, "socket '%s'", path);
	strcpy(addr.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make a socket");
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "connect to '%s' (is nsboxd running?)",
				  path);
	*ret = take_fd(&fd);
	return 0;
}

static int send_all(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

static int send_request(int fd, const char *method, const char *path, const char *body, size_t len,
			struct nsbox_error *err)
{
	char head[32768]; /* a path may be long, and each byte of it three */
	int n = snprintf(head, sizeof(head),
			 "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
			 "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
			 method, path, len);
	int r;

	if (n < 0 || (size_t)n >= sizeof(head) || strpbrk(path, " \r\n"))
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "'%.100s' is no path of the service",
				  path);
	r = send_all(fd, head, (size_t)n);
	if (r == 0 && len > 0)
		r = send_all(fd, body, len);
	/* A service that refuses a body early answers and closes: the answer says why. */
	if (r < 0 && r != -EPIPE && r != -ECONNRESET)
		return nsbox_fail(err, NSBOX_E_IO, -r, "send the request");
	return 0;
}

static int read_answer(int fd, struct answer *a, struct nsbox_error *err)
{
	for (;;) {
		ssize_t n;

		if (a->cap - a->len < 65536) {
			size_t cap = a->cap ? a->cap * 2 : (size_t)256 * 1024;
			char *p = cap <= ANSWER_MAX ? realloc(a->data, cap) : NULL;

			if (!p)
				return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read the answer");
			a->data = p;
			a->cap = cap;
		}
		n = read(fd, a->data + a->len, a->cap - a->len - 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && a->len == 0)
			return nsbox_fail(err, NSBOX_E_IO, errno, "read the answer");
		if (n <= 0)
			break;
		a->len += (size_t)n;
	}
	a->data[a->len] = 0;
	return 0;
}

/* The value of Content-Length within [head, end), or -1. */
static long long content_length(const char *head, const char *end)
{
	static const char name[] = "\r\ncontent-length:";

	for (const char *p = head; p + sizeof(name) < end; p++)
		if (strncasecmp(p, name, sizeof(name) - 1) == 0)
			return strtoll(p + sizeof(name) - 1, NULL, 10);
	return -1;
}

/* "HTTP/1.1 200 ..." -> 200; 0 where it is something else. */
static int status_of(const char *text)
{
	if (strncmp(text, "HTTP/1.", 7) != 0 || !text[7] || text[8] != ' ')
		return 0;
	return (int)strtol(text + 9, NULL, 10);
}

static int parse(struct answer *a, int *ret_status, size_t *ret_at, struct nsbox_error *err)
{
	char *end = a->len ? strstr(a->data, "\r\n\r\n") : NULL;
	int status = end ? status_of(a->data) : 0;
	long long want;

	if (status < 100 || status > 999)
		return nsbox_fail(err, NSBOX_E_PROTOCOL, 0,
				  a->len ? "the service's answer is not HTTP"
					 : "the service closed the connection without an answer");
	*ret_status = status;
	*ret_at = (size_t)(end + 4 - a->data);
	want = content_length(a->data, end + 2);
	if (want >= 0 && (unsigned long long)want != a->len - *ret_at)
		return nsbox_fail(err, NSBOX_E_PROTOCOL, 0, "the service's answer broke off");
	return 0;
}

int client_request(const char *socket_path, const char *method, const char *path, const char *body,
		   size_t len, int *ret_status, char **ret_body, size_t *ret_len,
		   struct nsbox_error *err)
{
	auto_close int fd = -1;
	struct answer a = { 0 };
	size_t at = 0;
	int r;

	r = connect_to(socket_path, &fd, err);
	if (r == 0)
		r = send_request(fd, method, path, body, len, err);
	if (r == 0)
		r = read_answer(fd, &a, err);
	if (r == 0)
		r = parse(&a, ret_status, &at, err);
	if (r < 0 || !a.data) {
		free(a.data);
		return r;
	}
	memmove(a.data, a.data + at, a.len - at + 1);
	*ret_body = a.data;
	*ret_len = a.len - at;
	return 0;
}

/* The head, and then what is for the caller; the end of the connection is the end. */
static int read_lines(FILE *from, void (*line)(void *ctx, int status, const char *text), void *ctx,
		      struct nsbox_error *err)
{
	auto_free char *text = NULL;
	size_t cap = 0;
	int status = 0;
	bool head = true;

	while (getline(&text, &cap, from) > 0) {
		text[strcspn(text, "\r\n")] = 0;
		if (!status)
			status = status_of(text);
		if (!status)
			return nsbox_fail(err, NSBOX_E_PROTOCOL, 0,
					  "the service's answer is not HTTP");
		if (!head)
			line(ctx, status, text);
		head = head && *text;
	}
	return head ? nsbox_fail(err, NSBOX_E_PROTOCOL, 0, "the service's answer broke off") : 0;
}

int client_lines(const char *socket_path, const char *method, const char *path, const char *body,
		 void (*line)(void *ctx, int status, const char *text), void *ctx,
		 struct nsbox_error *err)
{
	auto_close int fd = -1;
	size_t len = body ? strlen(body) : 0;
	char head[512];
	FILE *from;
	int n, r = connect_to(socket_path, &fd, err);

	if (r < 0)
		return r;
	/* 1.0: without chunks. */
	n = snprintf(head, sizeof(head),
		     "%s %s HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
		     "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
		     method, path, len);
	if ((size_t)n >= sizeof(head) || send_all(fd, head, (size_t)n) < 0 ||
	    send_all(fd, body, len) < 0)
		return nsbox_fail(err, NSBOX_E_IO, EPIPE, "send the request");
	from = fdopen(fd, "r");
	if (!from)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "read the answer");
	fd = -1;
	r = read_lines(from, line, ctx, err);
	fclose(from);
	return r;
}
