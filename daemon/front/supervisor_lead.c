/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the supervisor leads the front: options and files, a reload, the end; and what the service
 * manager hears of it.
 *
 * A reload has two halves: here everything is read and checked, and what cannot change in a running
 * service is compared; then the front reads the files and says yes or no. Only after its yes are
 * the new options those of the supervisor, too: a front that is started anew gets them.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/front/orders.h"
#include "daemon/front/sd.h"
#include "daemon/front/supervisor_private.h"
#include "nsbox/util.h"

#define DRAIN_MORE_MS 5000 /* for the replies, beyond the time that runs are given */

/* ------------------------------------------------------------------ options and files */

int lead_options(struct supervisor *s, const struct front_options *o, struct nsbox_error *err)
{
	auto_close int options = make_memfd("nsboxd-options", o, sizeof(*o), true);
	auto_close int tokens = -1, secrets = -1;
	int fds[WIRE_FDS_MAX], r = 0;
	uint64_t which = 0;
	unsigned n = 0;

	if (options < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, -options, "pass on the options");
	if (*o->tokens)
		r = keys_open(o->tokens, s->uid, &tokens, err);
	if (r == 0 && *o->secrets)
		r = keys_open(o->secrets, s->uid, &secrets, err);
	if (r < 0)
		return r;
	fds[n++] = options;
	const struct {
		int fd;
		enum order_files bit;
	} files[] = { { s->tcp_fd, ORDER_TCP },
		      { tokens, ORDER_TOKENS },
		      { secrets, ORDER_SECRETS } };
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		if (files[i].fd < 0)
			continue;
		fds[n++] = files[i].fd;
		which |= files[i].bit;
	}
	r = order_send(s->order_fd, ORDER_OPTIONS, which, NULL, fds, n);
	return r < 0 ? nsbox_fail(err, NSBOX_E_PROTOCOL, -r, "pass on the options") : 0;
}

static void keep_libexec(const struct supervisor *s, struct front_options *o)
{
	if (!*o->libexec)
		strcpy(o->libexec, s->opt->libexec);
}

static int try_reload(struct supervisor *s, struct front_options *o, struct nsbox_error *err)
{
	const char *name;
	int r = options_load(s->args, o, err);

	if (r < 0)
		return r;
	keep_libexec(s, o);
	name = options_fixed(s->opt, o);
	if (name)
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "'%s' is another than the running service has: it takes a "
				  "restart",
				  name);
	return lead_options(s, o, err);
}

static void say_notify(const char *state)
{
	char text[80];

	/* Type=notify-reload wants the time with it; others ignore what they do not know. */
	snprintf(text, sizeof(text), "%s\nMONOTONIC_USEC=%llu", state,
		 (unsigned long long)monotonic_us());
	sd_notify_text(text);
}

void lead_reload(struct supervisor *s)
{
	struct nsbox_error err = { 0 };

	if (!s->ready || s->next || s->drain_end)
		return;
	say_notify("RELOADING=1");
	s->next = calloc(1, sizeof(*s->next));
	if (!s->next)
		nsbox_fail(&err, NSBOX_E_NOMEM, ENOMEM, "read the configuration");
	else if (try_reload(s, s->next, &err) == 0)
		return;
	free_ptr(&s->next);
	fprintf(stderr, "<3>nsboxd: nothing is changed: %s\n", err.msg);
	order_send(s->order_fd, ORDER_FAILED, 0, &err, NULL, 0);
	sd_notify_text("READY=1");
}

/* ------------------------------------------------------------------ what the front says */

static void on_ready(struct supervisor *s)
{
	s->ready = true;
	fprintf(stderr, "<6>nsboxd: ready on %s%s%s\n", s->opt->socket_path,
		s->tcp_fd >= 0 ? " and tcp " : "",
		s->tcp_fd >= 0 ? (*s->opt->tcp ? s->opt->tcp : "as given") : "");
	sd_notify_text("READY=1\nSTATUS=serving");
	s->ready_once = true;
}

static void on_taken(struct supervisor *s, const struct order *o)
{
	if (!s->next)
		return; /* the first ones */
	if (o->error.code) {
		fprintf(stderr, "<3>nsboxd: nothing is changed: %s\n", o->error.msg);
		free_ptr(&s->next);
	} else {
		fprintf(stderr, "<5>nsboxd: the configuration is in force\n");
		free(s->opt);
		s->opt = take_ptr(&s->next);
	}
	sd_notify_text("READY=1");
}

void lead_hear(struct supervisor *s)
{
	struct order o;
	int fds[WIRE_FDS_MAX];
	unsigned n = 0;
	int r = order_recv(s->order_fd, &o, fds, &n, NULL);

	if (r == -EAGAIN)
		return;
	if (r <= 0) {
		close_fd(&s->order_fd); /* its death follows */
		return;
	}
	wire_close_fds(fds, n);
	if (o.kind == ORDER_READY)
		on_ready(s);
	else if (o.kind == ORDER_TAKEN)
		on_taken(s, &o);
	else if (o.kind == ORDER_RELOAD)
		lead_reload(s);
	else if (o.kind == ORDER_DRAINED)
		s->drained = true;
	else if (o.kind == ORDER_PONG)
		sd_notify_text("WATCHDOG=1");
}

void lead_drain(struct supervisor *s)
{
	uint64_t seconds = s->opt->drain_s;

	s->drain_end = monotonic_us() + seconds * 1000000 + DRAIN_MORE_MS * UINT64_C(1000);
	sd_notify_text("STOPPING=1\nSTATUS=finishing what runs");
	if (!s->ready || order_send(s->order_fd, ORDER_DRAIN, seconds, NULL, NULL, 0) < 0)
		s->drain_end = 1; /* nothing runs, or nobody listens */
}

void lead_ping(struct supervisor *s, uint64_t *next)
{
	uint64_t now = monotonic_us();

	if (!s->watchdog_us || now < *next)
		return;
	*next = now + s->watchdog_us / 3;
	if (s->ready)
		order_send(s->order_fd, ORDER_PING, 0, NULL, NULL, 0);
}
