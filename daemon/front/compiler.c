/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manifests to plans.
 *
 * Compiling is a function of the manifest's bytes, the options and the host, so its result is kept
 * by the hash of all three: most runs of a service use a handful of manifests. What is not known
 * yet goes to a worker process of its own that sees nothing but this one manifest; a worker that
 * dies or takes too long fails this compilation and nothing else. Errors are not cached.
 */
#include "daemon/front/compiler.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "daemon/front/child.h"
#include "nsbox/util.h"

#define CACHE_PLANS	  64
#define WORKER_TIMEOUT_US (15 * UINT64_C(1000000))

typedef unsigned char key_bytes[32];

struct cached {
	struct cached *next; /* most recently used first */
	key_bytes key;
	int plan_fd;
	struct compile_reply reply;
};

struct compiler {
	struct loop *loop;
	char *worker;
	struct cached *cache;
	unsigned n;
};

struct compile_ticket {
	struct compiler *c;
	struct loop_source *source;
	struct loop_timer timer;
	key_bytes key;
	int sock;
	struct child *child;
	compile_done_fn *done;
	void *ctx;
};

int compiler_new(struct loop *l, const char *worker, struct compiler **ret, struct nsbox_error *err)
{
	struct compiler *c = calloc(1, sizeof(*c));

	if (c)
		c->worker = strdup(worker);
	if (!c || !c->worker) {
		free(c);
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "compiler");
	}
	c->loop = l;
	*ret = c;
	return 0;
}

static void cached_free(struct cached *e)
{
	close_fd(&e->plan_fd);
	free(e);
}

void compiler_free(struct compiler *c)
{
	if (!c)
		return;
	while (c->cache) {
		struct cached *e = c->cache;

		c->cache = e->next;
		cached_free(e);
	}
	free(c->worker);
	free(c);
}

/* ------------------------------------------------------------------ cache */

static int hash(const struct compile_request *q, const char *text, size_t len, key_bytes key)
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	bool ok = md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) &&
		  EVP_DigestUpdate(md, q, sizeof(*q)) && EVP_DigestUpdate(md, text, len) &&
		  EVP_DigestFinal_ex(md, key, NULL);

	EVP_MD_CTX_free(md);
	return ok ? 0 : -ENOMEM;
}

static struct cached *cache_find(struct compiler *c, const key_bytes key)
{
	for (struct cached **p = &c->cache; *p; p = &(*p)->next) {
		struct cached *e = *p;

		if (memcmp(e->key, key, sizeof(e->key)) != 0)
			continue;
		*p = e->next;
		e->next = c->cache;
		c->cache = e;
		return e;
	}
	return NULL;
}

static void cache_trim(struct compiler *c)
{
	struct cached **p = &c->cache;

	if (c->n <= CACHE_PLANS)
		return;
	while ((*p)->next)
		p = &(*p)->next;
	cached_free(*p);
	*p = NULL;
	c->n--;
}

/* Best effort: without memory the next one compiles again. */
static void cache_put(struct compiler *c, const key_bytes key, const struct compile_reply *reply,
		      int plan_fd)
{
	struct cached *e = cache_find(c, key) ? NULL : malloc(sizeof(*e));

	if (!e)
		return;
	e->plan_fd = fcntl(plan_fd, F_DUPFD_CLOEXEC, 3);
	if (e->plan_fd < 0) {
		free(e);
		return;
	}
	memcpy(e->key, key, sizeof(e->key));
	e->reply = *reply;
	e->next = c->cache;
	c->cache = e;
	c->n++;
	cache_trim(c);
}

/* ------------------------------------------------------------------ worker */

static void ticket_free(struct compile_ticket *t)
{
	loop_del(t->c->loop, &t->source);
	loop_timer_cancel(t->c->loop, &t->timer);
	child_forget(&t->child); /* it has answered, or its answer is not wanted */
	close_fd(&t->sock);
	free(t);
}

void compiler_cancel(struct compile_ticket **tp)
{
	struct compile_ticket *t = take_ptr(tp);

	if (t)
		ticket_free(t);
}

static void finish(struct compile_ticket *t, const struct compile_reply *reply, int plan_fd)
{
	compile_done_fn *done = t->done;
	void *ctx = t->ctx;

	if (reply->error.code == 0)
		cache_put(t->c, t->key, reply, plan_fd);
	ticket_free(t);
	done(ctx, reply, plan_fd);
}

static void finish_error(struct compile_ticket *t, const char *text)
{
	struct compile_reply *reply = calloc(1, sizeof(*reply));
	static struct compile_reply spare;

	if (!reply)
		reply = &spare;
	nsbox_fail_at(&reply->error, NSBOX_STAGE_COMPILE, NSBOX_E_PROTOCOL, 0, "%s", text);
	finish(t, reply, -1);
	if (reply != &spare)
		free(reply);
}

static bool reply_sound(const struct compile_reply *r, unsigned n)
{
	return memchr(r->error.msg, 0, sizeof(r->error.msg)) &&
	       memchr(r->digest, 0, sizeof(r->digest)) &&
	       memchr(r->base_digest, 0, sizeof(r->base_digest)) &&
	       memchr(r->name, 0, sizeof(r->name)) && memchr(r->cwd, 0, sizeof(r->cwd)) &&
	       memchr(r->inputs, 0, sizeof(r->inputs)) && r->noexec_len <= sizeof(r->noexec) &&
	       r->command_len <= sizeof(r->command) && r->command_args <= r->command_len &&
	       (r->command_len == 0 || r->command[r->command_len - 1] == 0) &&
	       n == (r->error.code == 0 ? 1u : 0u);
}

static void on_reply(void *ctx, uint32_t events)
{
	struct compile_ticket *t = ctx;
	struct compile_reply *reply = malloc(sizeof(*reply));
	int fds[WIRE_FDS_MAX], r;
	unsigned n = 0;

	if (!reply) {
		finish_error(t, "out of memory");
		return;
	}
	r = wire_recv(t->sock, reply, sizeof(*reply), fds, &n, NULL);
	if (r == 1 && reply_sound(reply, n))
		finish(t, reply, n ? fds[0] : -1);
	else if (r != -EAGAIN)
		finish_error(t, "the compile worker ended without an answer");
	wire_close_fds(fds, n);
	free(reply);
}

static void on_timeout(void *ctx)
{
	finish_error(ctx, "the compile worker took too long");
}

/* The answer, if there was one, waits in the socket; its end is seen there. */
static void on_worker_exit(void *ctx, int code, int status)
{
	struct compile_ticket *t = ctx;

	t->child = NULL;
}

static int send_request(int sock, const struct compile_request *q, const char *text, size_t len,
			struct nsbox_error *err)
{
	auto_close int fd = -1;

	if (len == 0)
		return wire_send(sock, q, sizeof(*q), NULL, 0, err);
	fd = make_memfd("nsbox-manifest", text, len, true);
	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, -fd, "pass on the manifest");
	return wire_send(sock, q, sizeof(*q), &fd, 1, err);
}

static int start_worker(struct compile_ticket *t, const struct compile_request *q, const char *text,
			size_t len, struct nsbox_error *err)
{
	const char *const argv[] = { "nsbox-compile", NULL };
	auto_close int theirs = -1;
	int sv[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make a socket pair");
	t->sock = sv[0];
	theirs = sv[1];
	r = send_request(t->sock, q, text, len, err);
	if (r == 0)
		r = child_start(t->c->loop, t->c->worker, argv, (int[]){ -1, -1, 2, theirs }, 4,
				on_worker_exit, t, &t->child, err);
	if (r == 0 && fcntl(t->sock, F_SETFL, O_NONBLOCK) < 0)
		r = nsbox_fail(err, NSBOX_E_IO, errno, "make a socket non-blocking");
	return r;
}

int compiler_start(struct compiler *c, struct compile_request *q, const char *text, size_t len,
		   compile_done_fn *done, void *ctx, struct compile_ticket **ret,
		   struct nsbox_error *err)
{
	struct compile_ticket *t;
	struct cached *hit;
	key_bytes key;
	int r;

	q->magic = WIRE_MAGIC;
	q->manifest_len = len;
	*ret = NULL;
	if (hash(q, text, len, key) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "hash a manifest");
	hit = cache_find(c, key);
	if (hit) {
		done(ctx, &hit->reply, hit->plan_fd);
		return 0;
	}
	t = calloc(1, sizeof(*t));
	if (!t)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "compile a manifest");
	*t = (struct compile_ticket){ .c = c, .sock = -1, .done = done, .ctx = ctx };
	memcpy(t->key, key, sizeof(key));
	t->timer = (struct loop_timer){ .fn = on_timeout, .ctx = t };
	r = start_worker(t, q, text, len, err);
	if (r == 0)
		r = loop_add(c->loop, t->sock, EPOLLIN, on_reply, t, &t->source, err);
	if (r < 0) {
		ticket_free(t);
		return r;
	}
	loop_timer_set(c->loop, &t->timer, WORKER_TIMEOUT_US);
	*ret = t;
	return 0;
}
