/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the supervisor says, and the interface's part about the service itself: options, a reload,
 * the end.
 *
 * A reload reads everything into new objects first, and only then puts them in the place of the
 * old ones: what fails leaves nothing changed. A drain takes nothing new, leaves what waits in the
 * journal and ends the front when the last run has ended, or its time is over.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include "daemon/front/evidence.h"
#include "daemon/front/json_reply.h"
#include "daemon/front/log.h"
#include "daemon/front/orders.h"
#include "daemon/front/session_network.h"
#include "nsbox/util.h"

/* ------------------------------------------------------------------ options */

struct config {
	struct front_options *opt;
	struct tokens *tokens;
	struct kept_secrets *kept;
	int tcp_fd;
};

static void config_done(struct config *c)
{
	free(c->opt);
	free(c->tokens);
	kept_free(c->kept);
	close_fd(&c->tcp_fd);
}

static int read_options(int fd, struct front_options **ret, struct nsbox_error *err)
{
	auto_free struct front_options *o = calloc(1, sizeof(*o));
	struct stat st;

	if (!o)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read the options");
	if (fstat(fd, &st) < 0 || st.st_size != (off_t)sizeof(*o) ||
	    pread(fd, o, sizeof(*o), 0) != (ssize_t)sizeof(*o))
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EPROTO, "read the options");
	*ret = take_ptr(&o);
	return 0;
}

/* Descriptors are taken. */
static int read_config(const struct order *o, int *fds, unsigned n, struct config *ret,
		       struct nsbox_error *err)
{
	auto_close int tokens = -1, secrets = -1;
	unsigned at = 1;
	int r;

	*ret = (struct config){ .tcp_fd = -1 };
	if (n != 1 + (unsigned)__builtin_popcountll(o->arg)) {
		wire_close_fds(fds, n);
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EPROTO, "read the options");
	}
	if (o->arg & ORDER_TCP)
		ret->tcp_fd = take_fd(&fds[at++]);
	if (o->arg & ORDER_TOKENS)
		tokens = take_fd(&fds[at++]);
	if (o->arg & ORDER_SECRETS)
		secrets = take_fd(&fds[at++]);
	r = read_options(fds[0], &ret->opt, err);
	if (r == 0 && tokens >= 0)
		r = tokens_read(tokens, ret->opt->tokens, &ret->tokens, err);
	if (r == 0 && secrets >= 0)
		r = kept_read(secrets, ret->opt->secrets, &ret->kept, err);
	wire_close_fds(fds, n);
	return r;
}

static void use(struct front *f, struct config *c)
{
	struct front_options *opt = f->opt;
	struct tokens *tokens = f->tokens;
	struct kept_secrets *kept = f->kept;

	f->opt = take_ptr(&c->opt);
	f->tokens = take_ptr(&c->tokens);
	f->kept = take_ptr(&c->kept);
	kept_free(kept);
	free(opt);
	free(tokens);
}

int control_options(struct front *f, int *ret_tcp, struct nsbox_error *err)
{
	struct config c = { .tcp_fd = -1 };
	struct order o;
	int fds[WIRE_FDS_MAX], r;
	unsigned n = 0;

	r = order_recv(f->order_fd, &o, fds, &n, err);
	if (r < 0)
		return r;
	if (r == 0 || o.kind != ORDER_OPTIONS)
		return nsbox_fail(err, NSBOX_E_SETUP, 0,
				  "the front is started by nsboxd, not by hand");
	r = read_config(&o, fds, n, &c, err);
	if (r == 0) {
		*ret_tcp = take_fd(&c.tcp_fd);
		use(f, &c);
	}
	config_done(&c);
	return r;
}

static void answer_reload(struct front *f, const struct nsbox_error *why)
{
	struct http_request *rq = take_ptr(&f->reload_rq);
	struct json_object *o;

	evidence_note(f, "reload", f->owner, why->code ? "refused" : "in force", why->msg);
	if (!rq)
		return;
	if (why->code) {
		api_reply_error(rq, 409, why);
		return;
	}
	o = json_object_new_object();
	json_put_text(o, "status", "reloaded");
	api_reply(rq, 200, o, NULL);
}

static void on_options(struct front *f, const struct order *o, int *fds, unsigned n)
{
	struct nsbox_error err = { 0 };
	struct config c;

	if (read_config(o, fds, n, &c, &err) == 0) {
		use(f, &c);
		front_apply(f);
		session_network_reload(f);
		http_set_peers(f->http, &f->opt->peers);
	}
	config_done(&c);
	order_send(f->order_fd, ORDER_TAKEN, 0, &err, NULL, 0);
	answer_reload(f, &err);
}

/* ------------------------------------------------------------------ the end */

/* Nothing runs any more, or may: the supervisor is to know that this end is meant. */
static void end(struct front *f)
{
	loop_timer_cancel(f->loop, &f->drain);
	order_send(f->order_fd, ORDER_DRAINED, 0, NULL, NULL, 0);
	front_close(f, 0);
}

static void on_drain_end(void *ctx)
{
	end(ctx);
}

void control_ended(struct front *f)
{
	if (f->draining && !f->closing && f->running == 0 && !f->ended.first && !f->held)
		loop_timer_set(f->loop, &f->drain, 0);
}

static void drain(struct front *f, uint64_t seconds)
{
	char running[24];

	if (f->draining || f->closing)
		return;
	f->draining = true;
	snprintf(running, sizeof(running), "%llu", (unsigned long long)f->running);
	log_line(5, "drain", "running", running, NULL);
	/* A caller that waits for a job that will not start now would wait in vain. */
	for (struct job *j = f->first; j; j = j->next)
		if (j->sync && j->phase == JOB_QUEUED && !j->wait.running)
			job_interrupt(j);
	f->drain = (struct loop_timer){ .fn = on_drain_end, .ctx = f };
	loop_timer_set(f->loop, &f->drain, seconds * 1000000);
	front_soon(f);
	control_ended(f);
}

/* ------------------------------------------------------------------ orders */

static void carry_out(struct front *f, const struct order *o, int *fds, unsigned n)
{
	if (o->kind == ORDER_OPTIONS)
		on_options(f, o, fds, n);
	else if (o->kind == ORDER_FAILED)
		answer_reload(f, &o->error);
	else if (o->kind == ORDER_DRAIN)
		drain(f, o->arg);
	else if (o->kind == ORDER_PING)
		order_send(f->order_fd, ORDER_PONG, 0, NULL, NULL, 0);
}

static void on_order(void *ctx, uint32_t events)
{
	struct front *f = ctx;
	struct order o;
	int fds[WIRE_FDS_MAX];
	unsigned n = 0;
	int r = order_recv(f->order_fd, &o, fds, &n, NULL);

	if (r > 0) {
		carry_out(f, &o, fds, n);
	} else if (r != -EAGAIN) {
		loop_del(f->loop, &f->orders);
		front_close(f, 1); /* without a supervisor there is no service */
	}
}

int control_watch(struct front *f, struct nsbox_error *err)
{
	return loop_add(f->loop, f->order_fd, EPOLLIN, on_order, f, &f->orders, err);
}

void control_ready(struct front *f)
{
	order_send(f->order_fd, ORDER_READY, 0, NULL, NULL, 0);
}

/* ------------------------------------------------------------------ interface */

void control_gone(struct front *f, struct http_request *rq)
{
	if (f->reload_rq == rq)
		f->reload_rq = NULL;
}

static bool is_operator(struct front *f, struct http_request *rq)
{
	struct who who;

	api_who(f, rq, &who);
	if (!who.all)
		api_deny(f, rq, "only root and the service's owner may do this");
	return who.all;
}

static void put_counts(struct front *f, struct json_object *o)
{
	struct json_object *q = json_object_new_object();

	json_put_u64(q, "waiting", queue_length(f->queue));
	json_put_u64(q, "max", queue_max(f->queue));
	json_put_u64(q, "running", f->running);
	json_put_u64(q, "runners", f->runners);
	json_put(o, "queue", q);
}

void control_status(struct front *f, struct json_object *o)
{
	json_put_text(o, "status",
		      f->closing	? "stopping"
		      : f->draining	? "draining"
		      : f->trouble.code ? "no journal"
					: "ok");
	if (f->trouble.code)
		json_put_text(o, "reason", f->trouble.msg);
	json_put_text(o, "version", NSBOX_VERSION);
	json_put_text(o, "tier", nsbox_tier_name(nsbox_host_tier(&f->services.host)));
	put_counts(f, o);
}

void api_daemon_status(struct front *f, struct http_request *rq, const char *rest)
{
	struct json_object *o;

	if (!is_operator(f, rq))
		return;
	o = json_object_new_object();
	control_status(f, o);
	json_put_u64(o, "uptime_ms", (monotonic_us() - f->began_us) / 1000);
	if (f->opt->pool)
		json_put_u64(o, "pool", pool_waiting(f->pool));
	json_put_u64(o, "accepted", f->metrics.counter[METRIC_ACCEPTED]);
	json_put_u64(o, "connections", http_connections(f->http));
	json_put_u64(o, "drain_s", f->opt->drain_s);
	if (*f->opt->tcp)
		json_put_text(o, "tcp", f->opt->tcp);
	api_reply(rq, 200, o, NULL);
}

void api_daemon_drain(struct front *f, struct http_request *rq, const char *rest)
{
	struct json_object *o;

	if (!is_operator(f, rq))
		return;
	evidence_note(f, "drain", http_peer(rq), "", "");
	drain(f, f->opt->drain_s);
	o = json_object_new_object();
	control_status(f, o);
	api_reply(rq, 202, o, NULL);
}

void api_daemon_reload(struct front *f, struct http_request *rq, const char *rest)
{
	if (!is_operator(f, rq))
		return;
	if (f->reload_rq || f->draining || f->closing ||
	    order_send(f->order_fd, ORDER_RELOAD, 0, NULL, NULL, 0) < 0)
		http_reply_error(rq, 409, "conflict", "the service is reloading, or ending");
	else
		f->reload_rq = rq;
}
