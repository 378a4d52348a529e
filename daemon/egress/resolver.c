/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses outside, by c-ares: asynchronous, over UDP and, where an answer is cut, TCP. Servers are
 * those of the operator or of /etc/resolv.conf, read once at the start: later no file can be opened.
 * Names are asked for as they are, without search lists, and only of name servers: the host's own
 * files are not consulted.
 */
#include <ares.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>

#include "daemon/egress/egress.h"
#include "nsbox/util.h"

#define TIMEOUT_MS 2000
#define TRIES	   2
#define TTL_MIN	   1
#define TTL_MAX	   300
#define TTL_FAILED 1

struct ares_source {
	struct ares_source *next;
	struct resolver *resolver;
	int fd;
	struct loop_source *source;
};

struct resolver {
	struct loop *loop;
	ares_channel channel;
	bool ready;
	struct ares_source *sources;
	struct loop_timer timer;
};

/* ------------------------------------------------------------------ in the loop */

/* c-ares has no way to say when it wants to be called: ask after each call. */
static void arm(struct resolver *r)
{
	struct timeval most = { 3600, 0 }, tv, *t = ares_timeout(r->channel, &most, &tv);

	if (!r->sources)
		loop_timer_cancel(r->loop, &r->timer);
	else
		loop_timer_set(r->loop, &r->timer,
			       (uint64_t)t->tv_sec * 1000000 + (uint64_t)t->tv_usec + 1000);
}

static void on_timer(void *ctx)
{
	struct resolver *r = ctx;

	ares_process_fd(r->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	arm(r);
}

static void on_socket(void *ctx, uint32_t events)
{
	struct ares_source *s = ctx;
	struct resolver *r = s->resolver;
	int fd = s->fd;

	/* s may be gone after this. */
	ares_process_fd(r->channel, events & (EPOLLIN | EPOLLERR | EPOLLHUP) ? fd : ARES_SOCKET_BAD,
			events & EPOLLOUT ? fd : ARES_SOCKET_BAD);
	arm(r);
}

static void drop(struct ares_source **p)
{
	struct ares_source *s = *p;

	*p = s->next;
	loop_del(s->resolver->loop, &s->source);
	free(s);
}

/* What c-ares wants to hear of a socket has changed; neither: it is about to be closed. */
static void on_state(void *data, ares_socket_t fd, int readable, int writable)
{
	struct resolver *r = data;
	struct ares_source **p = &r->sources, *s;
	uint32_t events = (readable ? EPOLLIN : 0u) | (writable ? EPOLLOUT : 0u);

	while (*p && (*p)->fd != fd)
		p = &(*p)->next;
	if (*p) {
		if (!events)
			drop(p);
		else
			loop_change(r->loop, (*p)->source, events);
		return;
	}
	s = events ? calloc(1, sizeof(*s)) : NULL;
	if (!s)
		return; /* the question times out */
	*s = (struct ares_source){ r->sources, r, fd, NULL };
	if (loop_add(r->loop, fd, events, on_socket, s, &s->source, NULL) < 0)
		free(s);
	else
		r->sources = s;
}

/* ------------------------------------------------------------------ answers */

/* From alias to alias: the answers for both families are in one list, in any order. */
static void keep_chain(struct name *n, const struct ares_addrinfo *res)
{
	const char *at = n->text;

	for (unsigned k = 0; k < CHAIN_MAX; k++) {
		const struct ares_addrinfo_cname *c = res->cnames;

		while (c && (!c->alias || !c->name || strcasecmp(c->alias, at) != 0))
			c = c->next;
		if (!c || strlen(c->name) > 253)
			return;
		n->chain[k] = strdup(c->name);
		if (!n->chain[k])
			return;
		at = n->chain[k];
	}
}

static void keep_addresses(struct name *n, const struct ares_addrinfo *res)
{
	uint32_t ttl = TTL_MAX;

	for (const struct ares_addrinfo_node *a = res->nodes; a; a = a->ai_next) {
		struct outer *o = &n->outer[n->n_outer];

		if (n->n_outer == OUTER_MAX)
			break;
		if (a->ai_ttl >= 0)
			ttl = MIN(ttl, (uint32_t)a->ai_ttl);
		o->family = a->ai_family == AF_INET ? 4 : 6;
		if (o->family == 4)
			memcpy(o->addr, &((struct sockaddr_in *)a->ai_addr)->sin_addr, 4);
		else
			memcpy(o->addr, &((struct sockaddr_in6 *)a->ai_addr)->sin6_addr, 16);
		n->n_outer++;
	}
	n->ttl = MAX(ttl, (uint32_t)TTL_MIN);
}

static enum name_state state_of(int status, const struct name *n)
{
	switch (status) {
	case ARES_SUCCESS: return n->n_outer ? NAME_KNOWN : NAME_EMPTY;
	case ARES_ENOTFOUND: return NAME_MISSING;
	case ARES_ENODATA: return NAME_EMPTY;
	default: return NAME_FAILED;
	}
}

static void on_answer(void *ctx, int status, int timeouts, struct ares_addrinfo *res)
{
	struct resolver_ask *ask = ctx;
	struct name *n = ask->name;

	free(ask);
	if (n) {
		n->ask = NULL;
		n->n_outer = 0;
		n->ttl = TTL_FAILED;
		for (unsigned k = 0; k < CHAIN_MAX; k++)
			free_ptr(&n->chain[k]);
		if (status == ARES_SUCCESS && res) {
			keep_chain(n, res);
			keep_addresses(n, res);
		}
		n->state = state_of(status, n);
		n->fresh_until = monotonic_us() + (uint64_t)n->ttl * 1000000;
		name_answered(n);
	}
	if (res)
		ares_freeaddrinfo(res);
}

void resolver_ask(struct resolver *r, struct name *n)
{
	const struct ares_addrinfo_hints hints = { .ai_family = AF_UNSPEC,
						   .ai_socktype = SOCK_STREAM,
						   .ai_flags = ARES_AI_NUMERICSERV };
	struct resolver_ask *ask = calloc(1, sizeof(*ask));

	if (!ask) {
		n->state = NAME_FAILED;
		name_answered(n);
		return;
	}
	ask->name = n;
	n->ask = ask;
	ares_getaddrinfo(r->channel, n->text, NULL, &hints, on_answer, ask);
	arm(r);
}

/* ------------------------------------------------------------------ making and ending */

int resolver_new(struct loop *l, const char *servers, struct resolver **ret,
		 struct nsbox_error *err)
{
	struct resolver *r = calloc(1, sizeof(*r));
	struct ares_options o = { .flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES,
				  .timeout = TIMEOUT_MS,
				  .tries = TRIES,
				  .lookups = (char *)"b",
				  .sock_state_cb = on_state,
				  .sock_state_cb_data = r };
	const int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS |
			 ARES_OPT_SOCK_STATE_CB;
	int status = r ? ares_library_init(ARES_LIB_INIT_ALL) : ARES_ENOMEM;

	if (status == ARES_SUCCESS)
		status = ares_init_options(&r->channel, &o, mask);
	if (status == ARES_SUCCESS) {
		r->ready = true;
		r->loop = l;
		r->timer = (struct loop_timer){ .fn = on_timer, .ctx = r };
		if (servers)
			status = ares_set_servers_ports_csv(r->channel, servers);
	}
	if (status != ARES_SUCCESS) {
		resolver_free(r);
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "set up name servers%s%s: %s",
				  servers ? " " : "", servers ? servers : "",
				  ares_strerror(status));
	}
	*ret = r;
	return 0;
}

void resolver_free(struct resolver *r)
{
	if (!r)
		return;
	if (r->ready)
		ares_destroy(r->channel);
	loop_timer_cancel(r->loop, &r->timer);
	while (r->sources)
		drop(&r->sources);
	free(r);
}
