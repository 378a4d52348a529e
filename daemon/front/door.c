/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/front/door.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "nsbox/util.h"

#define GROUPS_MAX    256
#define USERS_MAX     256 /* users with a connection open */
#define STRANGERS_MAX 8	  /* may not speak, and shall hear so */
#define BATCH	      16  /* accepted before others have their turn */

struct door {
	struct loop *loop;
	struct loop_source *source;
	int listen_fd;
	struct http_peers peers;
	door_fn *fn;
	void *ctx;
	unsigned per_user, most; /* connections of one user; of all but root and the owner */
	unsigned users, all, strangers;
	struct {
		uid_t uid;
		unsigned count;
	} user[USERS_MAX];
};

/* ------------------------------------------------------------------ who speaks */

static bool in_group(int fd, const struct http_peers *p, gid_t gid)
{
	gid_t groups[GROUPS_MAX];
	socklen_t len = sizeof(groups);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len) < 0)
		len = 0;
	for (unsigned i = 0; i < p->n_gids; i++) {
		if (p->gids[i] == gid)
			return true;
		for (size_t j = 0; j < len / sizeof(gid_t); j++)
			if (p->gids[i] == groups[j])
				return true;
	}
	return false;
}

bool door_may_speak(int fd, const struct http_peers *p, uid_t *ret_uid)
{
	struct ucred cred;
	socklen_t len = sizeof(cred), domain_len = sizeof(int);
	int domain = AF_UNSPEC;

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_len) < 0)
		return false;
	*ret_uid = WHO_NO_UID;
	if (domain != AF_UNIX)
		return true; /* each request needs a token */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return false;
	*ret_uid = cred.uid;
	if (cred.uid == 0)
		return true;
	for (unsigned i = 0; i < p->n_uids; i++)
		if (p->uids[i] == cred.uid)
			return true;
	return in_group(fd, p, cred.gid);
}

/* ------------------------------------------------------------------ counting */

static unsigned *count_of(struct door *d, uid_t uid)
{
	for (unsigned i = 0; i < d->users; i++)
		if (d->user[i].uid == uid)
			return &d->user[i].count;
	return NULL;
}

void door_entered(struct door *d, uid_t uid, bool may_speak)
{
	unsigned *count = count_of(d, uid);

	if (!may_speak) {
		d->strangers++;
		return;
	}
	if (uid == 0 || uid == geteuid())
		return;
	d->all++;
	if (!count && d->users < USERS_MAX) {
		d->user[d->users].uid = uid;
		count = &d->user[d->users++].count;
		*count = 0;
	}
	if (count)
		++*count;
}

void door_left(struct door *d, uid_t uid, bool may_speak)
{
	unsigned *count = count_of(d, uid);

	if (!may_speak) {
		d->strangers -= d->strangers > 0;
		return;
	}
	if (uid == 0 || uid == geteuid())
		return;
	d->all -= d->all > 0;
	if (!count || --*count > 0)
		return;
	for (unsigned i = 0; i < d->users; i++)
		if (d->user[i].uid == uid)
			d->user[i] = d->user[--d->users];
}

/* Root and the service's owner always: they are who can mend things. */
static bool has_room(struct door *d, uid_t uid, bool may_speak)
{
	const unsigned *count = count_of(d, uid);

	if (!may_speak)
		return d->strangers < STRANGERS_MAX;
	if (uid == 0 || uid == geteuid())
		return true;
	if (d->all >= d->most || (!count && d->users == USERS_MAX))
		return false;
	return !count || *count < d->per_user;
}

/* Not waited for: who cannot take so little at once hears the connection's end alone. */
void door_say_full(int fd)
{
	static const char body[] =
		"{\"error\":{\"code\":\"limit\",\"message\":\"too many connections "
		"are open\"}}";
	char text[320];
	int n = snprintf(
		text, sizeof(text),
		"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
		"Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
		sizeof(body) - 1, body);

	(void)!send(fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ------------------------------------------------------------------ the door */

static void on_ready(void *ctx, uint32_t events)
{
	struct door *d = ctx;

	for (int i = 0; i < BATCH; i++) {
		auto_close int fd = accept4(d->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		uid_t uid = (uid_t)-1;
		bool ok;

		if (fd < 0)
			return;
		ok = door_may_speak(fd, &d->peers, &uid);
		if (has_room(d, uid, ok))
			d->fn(d->ctx, take_fd(&fd));
		else if (ok) /* strangers are not worth an answer each */
			door_say_full(fd);
	}
}

int door_new(struct loop *l, int listen_fd, const struct http_peers *peers, unsigned max,
	     door_fn *fn, void *ctx, struct door **ret, struct nsbox_error *err)
{
	struct door *d = calloc(1, sizeof(*d));
	int flags = fcntl(listen_fd, F_GETFL), r;

	if (!d)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "accept connections");
	d->loop = l;
	d->listen_fd = listen_fd;
	d->peers = *peers;
	d->fn = fn;
	d->ctx = ctx;
	d->per_user = max / 4;
	d->most = max - max / 8;
	if (flags < 0 || fcntl(listen_fd, F_SETFL, flags | O_NONBLOCK) < 0) {
		free(d);
		return nsbox_fail(err, NSBOX_E_IO, errno, "accept connections");
	}
	r = loop_add(l, listen_fd, EPOLLIN, on_ready, d, &d->source, err);
	if (r < 0) {
		free(d);
		return r;
	}
	*ret = d;
	return 0;
}

void door_set_peers(struct door *d, const struct http_peers *peers)
{
	d->peers = *peers;
}

void door_free(struct door *d)
{
	if (!d)
		return;
	loop_del(d->loop, &d->source);
	free(d);
}
