/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front: HTTP, the queue, the jobs.
 *
 * It runs without privilege and reads everything that clients send. What needs privilege it asks
 * of nsbox-spawn over one socket; what is dangerous to read (manifests, archives) it gives to
 * workers. One thread, one loop.
 *
 * When nsbox-spawn is lost, or on TERM, the front ends: running and waiting jobs are answered as
 * interrupted, the replies get a moment to leave, the process exits. The supervisor starts a new
 * pair; nothing is repaired in place.
 */
#include "daemon/front/front.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include "nsbox/util.h"

#define KEEP_JOBS	1000
#define KEEP_BYTES	(UINT64_C(128) << 20)
#define ASKED_BYTES	(UINT64_C(512) << 20) /* a full queue of small jobs stays below */
#define LAST_REPLIES_US 300000
#define OVERFLOW_ID	65534

static void log_line(int level, const char *what, const char *text)
{
	fprintf(stderr, "<%d>nsboxd: %s%s%s\n", level, what, *text ? ": " : "", text);
}

/* ------------------------------------------------------------------ jobs */

static void list_add(struct front *f, struct job *j)
{
	j->prev = f->last_job;
	*(f->last_job ? &f->last_job->next : &f->first) = j;
	f->last_job = j;
	f->kept_jobs++;
}

static void list_drop(struct front *f, struct job *j)
{
	*(j->prev ? &j->prev->next : &f->first) = j->next;
	*(j->next ? &j->next->prev : &f->last_job) = j->prev;
	f->kept_jobs--;
	f->kept_bytes -= j->reply_len;
	job_unref(j);
}

/* The oldest finished ones go first; what waits or runs is bounded by queue and runners. */
static void trim(struct front *f)
{
	for (struct job *j = f->first, *next;
	     j && (f->kept_jobs > KEEP_JOBS || f->kept_bytes > KEEP_BYTES); j = next) {
		next = j->next;
		if (j->phase == JOB_FINISHED)
			list_drop(f, j);
	}
}

struct job *front_find(struct front *f, const char *id)
{
	for (struct job *j = f->last_job; j; j = j->prev)
		if (strcmp(j->id, id) == 0)
			return j;
	return NULL;
}

static struct job *find_number(struct front *f, uint64_t number)
{
	for (struct job *j = f->last_job; j; j = j->prev)
		if (j->number == number)
			return j;
	return NULL;
}

static void start_waiting(void *ctx)
{
	struct front *f = ctx;
	struct job *j;

	while (!f->closing && f->running < f->runners && (j = queue_pop(f->queue))) {
		f->running++;
		job_start(j);
	}
	trim(f);
}

int front_submit(struct front *f, struct job_spec *spec, size_t size, struct job **ret,
		 struct nsbox_error *err)
{
	struct job *j;
	int r;

	if (f->asked_bytes + size > ASKED_BYTES) {
		job_spec_free(spec);
		return -EAGAIN;
	}
	r = job_new(&f->services, ++f->numbers, spec, &j, err);
	if (r < 0)
		return r;
	r = queue_push(f->queue, j->workspace, &j->wait, j);
	if (r < 0) {
		job_unref(j);
		return r == -EAGAIN ? r : nsbox_fail(err, NSBOX_E_NOMEM, -r, "queue a job");
	}
	j->asked_bytes = size;
	f->asked_bytes += size;
	list_add(f, j);
	loop_timer_set(f->loop, &f->turn, 0);
	*ret = j;
	return 0;
}

static void on_finished(void *ctx, struct job *j)
{
	struct front *f = ctx;

	if (j->wait.lane)
		queue_remove(f->queue, &j->wait); /* cancelled while it waited */
	else
		f->running--;
	f->asked_bytes -= j->asked_bytes;
	f->kept_bytes += j->reply_len;
	loop_timer_set(f->loop, &f->turn, 0);
}

static void on_event(void *ctx, uint64_t sandbox, struct nsbox_event *ev)
{
	struct job *j = find_number(ctx, sandbox);

	if (j)
		job_event(j, ev);
	if (ev->fd >= 0)
		close_fd(&ev->fd);
}

/* ------------------------------------------------------------------ the end */

static void on_last(void *ctx)
{
	loop_stop(((struct front *)ctx)->loop);
}

static void close_down(struct front *f, int status)
{
	if (f->closing)
		return;
	f->closing = true;
	f->status = status;
	for (struct job *j = f->first, *next; j; j = next) {
		next = j->next;
		job_interrupt(j);
	}
	f->last = (struct loop_timer){ .fn = on_last, .ctx = f };
	loop_timer_set(f->loop, &f->last, LAST_REPLIES_US);
}

static void on_lost(void *ctx, const struct nsbox_error *why)
{
	log_line(3, "lost nsbox-spawn", why->msg);
	close_down(ctx, 1);
}

static void on_signal(void *ctx, uint32_t events)
{
	close_down(ctx, 0);
}

/* ------------------------------------------------------------------ life */

static int watch_signals(struct front *f, struct loop_source **ret, int *ret_fd,
			 struct nsbox_error *err)
{
	sigset_t set;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	*ret_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (*ret_fd < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "signalfd");
	return loop_add(f->loop, *ret_fd, EPOLLIN, on_signal, f, ret, err);
}

/* Each run needs a handful of descriptors, and so does each client that waits. */
static void raise_files(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) == 0) {
		rl.rlim_cur = MIN(rl.rlim_max, (rlim_t)65536);
		setrlimit(RLIMIT_NOFILE, &rl);
	}
}

static int set_up(struct front *f, const struct front_options *opt, int listen_fd, int spawn_fd,
		  const char *compile, struct nsbox_error *err)
{
	const struct http_handlers handlers = { api_request, api_gone, f };
	struct http_peers peers = opt->peers;
	int r;

	/* Root may speak anyway, and so may whoever the service belongs to. The overflow id stands
	 * for anyone from another user namespace, so it is never meant by this. */
	if (f->owner != OVERFLOW_ID && peers.n_uids < ARRAY_SIZE(peers.uids))
		peers.uids[peers.n_uids++] = f->owner;

	r = loop_new(&f->loop, err);
	if (r == 0)
		r = link_new(f->loop, spawn_fd, on_event, on_lost, f, &f->services.host, &f->link,
			     err);
	if (r == 0)
		r = compiler_new(f->loop, compile, &f->compiler, err);
	if (r == 0)
		r = queue_new(opt->queue_max, &f->queue, err);
	if (r < 0)
		return r;
	f->turn = (struct loop_timer){ .fn = start_waiting, .ctx = f };
	f->runners = opt->runners ? opt->runners : 2 * (uint64_t)MAX(f->services.host.cpus, 1);
	f->services.loop = f->loop;
	f->services.link = f->link;
	f->services.compiler = f->compiler;
	f->services.finished = on_finished;
	f->services.ctx = f;
	return http_new(f->loop, listen_fd, &peers, REQUEST_BODY_MAX, &handlers, &f->http, err);
}

static void tear_down(struct front *f)
{
	http_free(f->http);
	while (f->first)
		list_drop(f, f->first);
	if (f->queue)
		queue_free(f->queue);
	compiler_free(f->compiler);
	link_free(f->link);
	loop_free(f->loop);
}

/*
 * The supervisor made the pair's socket, so that is whose credentials it has. Where the front has
 * a user of its own no other process of that user may look into it; where it shares the caller's,
 * the caller may.
 */
static int harden(struct front *f, int spawn_fd, struct nsbox_error *err)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(spawn_fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno,
				  "the front is started by nsboxd, not by hand");
	f->owner = cred.uid;
	if (f->owner != geteuid() && prctl(PR_SET_DUMPABLE, 0) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "become non-dumpable");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "set no_new_privs");
	return 0;
}

int front_main(const struct front_options *opt, int listen_fd, int spawn_fd)
{
	auto_free char *compile = NULL, *unpack = NULL;
	struct front f = { 0 };
	struct nsbox_error err = { 0 };
	struct loop_source *signals = NULL;
	auto_close int sig = -1;
	int r;

	raise_files();
	r = harden(&f, spawn_fd, &err);
	if (r == 0 && (asprintf(&compile, "%s/nsbox-compile", opt->libexec) < 0 ||
		       asprintf(&unpack, "%s/nsbox-unpack", opt->libexec) < 0))
		r = nsbox_fail(&err, NSBOX_E_NOMEM, ENOMEM, "set up the front");
	f.services.unpacker = unpack;
	if (r == 0)
		r = set_up(&f, opt, listen_fd, spawn_fd, compile, &err);
	if (r == 0)
		r = watch_signals(&f, &signals, &sig, &err);
	if (r == 0)
		r = loop_run(f.loop, &err);
	if (r < 0) {
		log_line(3, "front", err.msg);
		f.status = 1;
	}
	if (f.loop)
		loop_del(f.loop, &signals);
	tear_down(&f);
	return f.status;
}
