/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MCP sessions: what a client of the revisions up to 2025-11-25 gets for its `initialize`. They are
 * names for event streams that can be resumed, and no more durable than the front; the sandbox that
 * their tools act in is a session of ours (session.c) with a life of its own.
 *
 * An id is a secret of 128 bits, and only good for the client and the path it was made for.
 */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/front/front.h"
#include "daemon/front/mcp.h"
#include "nsbox/util.h"

#define SWEEP_US UINT64_C(10000000)

void mcp_who(const struct mcp *m, const struct mcp_client *client, struct who *ret)
{
	if (client->tied)
		*ret = (struct who){ .uid = WHO_NO_UID, .workspace = client->workspace };
	else
		who_find(&m->f->opt->ties, client->uid, m->f->owner, ret);
}

bool mcp_client_same(const struct mcp_client *a, const struct mcp_client *b)
{
	return a->uid == b->uid && a->tied == b->tied && strcmp(a->workspace, b->workspace) == 0;
}

static bool place_same(const struct mcp_place *a, const struct mcp_place *b)
{
	return a->functions == b->functions && strcmp(a->workspace, b->workspace) == 0 &&
	       strcmp(a->id, b->id) == 0;
}

static bool make_id(char *ret, size_t size)
{
	unsigned char raw[16];
	size_t at = (size_t)snprintf(ret, size, "mcp-");

	if (getrandom(raw, sizeof(raw), 0) != sizeof(raw))
		return false;
	for (size_t i = 0; i < sizeof(raw); i++)
		at += (size_t)snprintf(ret + at, size - at, "%02x", raw[i]);
	return true;
}

static unsigned sessions_of(const struct mcp *m, const struct mcp_client *client)
{
	unsigned n = 0;

	for (const struct mcp_session *s = m->sessions; s; s = s->next)
		n += mcp_client_same(&s->client, client);
	return n;
}

struct mcp_session *mcp_session_new(struct mcp *m, const struct mcp_place *place,
				    const struct mcp_client *client, const char **why)
{
	struct mcp_session *s;

	*why = "there are too many MCP sessions: end one (DELETE), or wait";
	if (m->n_sessions >= MCP_SESSIONS_MAX || sessions_of(m, client) >= MCP_SESSIONS_WHO_MAX)
		return NULL;
	*why = "out of memory";
	s = calloc(1, sizeof(*s));
	if (!s || !make_id(s->id, sizeof(s->id))) {
		free(s);
		return NULL;
	}
	s->m = m;
	s->place = *place;
	s->client = *client;
	s->used_us = monotonic_us();
	s->next = m->sessions;
	m->sessions = s;
	if (m->n_sessions++ == 0)
		loop_timer_set(m->f->loop, &m->sweep, SWEEP_US);
	return s;
}

struct mcp_session *mcp_session_find(struct mcp *m, const char *id, const struct mcp_place *place,
				     const struct mcp_client *client)
{
	for (struct mcp_session *s = m->sessions; s; s = s->next)
		if (strcmp(s->id, id) == 0 && place_same(&s->place, place) &&
		    mcp_client_same(&s->client, client)) {
			s->used_us = monotonic_us();
			return s;
		}
	return NULL;
}

void mcp_session_end(struct mcp_session *s)
{
	struct mcp_session **p = &s->m->sessions;

	while (*p && *p != s)
		p = &(*p)->next;
	if (!*p)
		return; /* it is ending */
	*p = s->next;
	s->m->n_sessions--;
	while (s->streams)
		mcp_stream_free(s->streams);
	free(s);
}

static bool is_busy(const struct mcp_session *s)
{
	for (const struct mcp_stream *st = s->streams; st; st = st->next)
		if (st->calls || st->reader || st->rq)
			return true;
	return false;
}

void mcp_sweep(void *ctx)
{
	struct mcp *m = ctx;
	uint64_t now = monotonic_us();

	for (struct mcp_session *s = m->sessions, *next; s; s = next) {
		next = s->next;
		if (is_busy(s))
			s->used_us = now;
		else if (now - s->used_us > MCP_SESSION_IDLE_S * UINT64_C(1000000))
			mcp_session_end(s);
	}
	if (m->n_sessions)
		loop_timer_set(m->f->loop, &m->sweep, SWEEP_US);
}
