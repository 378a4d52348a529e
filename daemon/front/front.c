/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front: HTTP, the queue, the jobs.
 *
 * It runs without privilege and reads everything that clients send. What needs privilege it asks
 * of nsbox-spawn over one socket; what is dangerous to read (manifests, archives) it gives to
 * workers. One loop, and beside it a thread that does nothing but wait for the disk (syncer.h).
 *
 * When nsbox-spawn is lost, or on TERM, the front ends: what runs is interrupted, and so are calls
 * whose caller waits; other jobs that wait stay in the journal, for the next front. The replies get
 * a moment to leave, the process exits. The supervisor starts a new pair; nothing is repaired in
 * place.
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
#include <sys/stat.h>

#include "daemon/front/evidence.h"
#include "daemon/front/hold.h"
#include "daemon/front/images.h"
#include "daemon/front/log.h"
#include "daemon/front/mcp.h"
#include "daemon/front/session_narrow.h"
#include "daemon/front/snapshot.h"
#include "daemon/front/tools.h"
#include "daemon/front/ui.h"
#include "nsbox/util.h"

#define ASKED_BYTES	(UINT64_C(512) << 20) /* a full queue of small jobs stays below */
#define LAST_REPLIES_US 300000
#define OVERFLOW_ID	65534
#define REFUSALS_TOLD	5 /* of a second, at the door */

/* ------------------------------------------------------------------ jobs */

void front_list_add(struct front *f, struct job *j)
{
	j->prev = f->last_job;
	*(f->last_job ? &f->last_job->next : &f->first) = j;
	f->last_job = j;
}

void front_list_drop(struct front *f, struct job *j)
{
	*(j->prev ? &j->prev->next : &f->first) = j->next;
	*(j->next ? &j->next->prev : &f->last_job) = j->prev;
	job_unref(j);
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

void front_soon(struct front *f)
{
	loop_timer_set(f->loop, &f->turn, 0);
}

static void on_turn(void *ctx)
{
	record_turn(ctx);
}

static int submit(struct front *f, const struct job_ident *ident, struct job **ret,
		  struct nsbox_error *err)
{
	struct job *j;
	int r = record_room(f, ident->sync ? 0 : ident->size, err);

	if (r < 0)
		return r;
	if (f->asked_bytes + ident->size > ASKED_BYTES)
		return -EAGAIN;
	r = job_new(&f->services, ++f->numbers, ident, &j, err);
	if (r < 0)
		return r;
	r = queue_push(f->queue, j->workspace, j->priority, &j->wait, j);
	if (r < 0) {
		job_unref(j);
		return r == -ENOMEM ? nsbox_fail(err, NSBOX_E_NOMEM, -r, "queue a job") : r;
	}
	*ret = j;
	return 0;
}

int front_submit(struct front *f, const struct job_ident *ident, struct job_spec **spec, char *body,
		 struct job **ret, struct nsbox_error *err)
{
	struct job *j = NULL;
	int r = submit(f, ident, &j, err);

	if (r < 0 || !j) {
		free(body);
		return r;
	}
	j->spec = take_ptr(spec);
	j->own = j->spec->own; /* the journal has none: it would be lost with the rest */
	j->spec->own = (struct own_secrets){ 0 };
	j->body = body;
	f->asked_bytes += j->asked_bytes;
	front_list_add(f, j);
	record_fresh(f, j);
	*ret = j;
	return 0;
}

static void on_finished(void *ctx, struct job *j)
{
	struct front *f = ctx;

	if (j->wait.running)
		f->running--;
	queue_done(f->queue, &j->wait); /* cancelled while it waited, or over */
	pool_wake(f->pool);
	f->asked_bytes -= j->asked_bytes;
	if (j->run->res.cpu_us && options_limits_of(f->opt, j->workspace).cpu_s)
		usage_add(f->usage, j->workspace, j->run->res.cpu_us, monotonic_us() / 1000000);
	f->metrics.counter[METRIC_POOLED] += j->ahead;
	record_ended(f, j);
}

/* From the options: also those that a reload brings. */
static void limits_of(void *ctx, const char *workspace, size_t *waiting, size_t *running)
{
	const struct front *f = ctx;
	struct workspace_limits l = options_limits_of(f->opt, workspace);

	*waiting = l.queue;
	*running = l.runners;
}

void front_apply(struct front *f)
{
	const struct queue_limits limits = { f->opt->queue_max, limits_of, f };
	const int tier = nsbox_host_tier(&f->services.host);

	queue_set_limits(f->queue, &limits);
	f->runners =
		f->opt->runners ? f->opt->runners : 2 * (uint64_t)MAX(f->services.host.cpus, 1);
	f->services.ceiling = f->opt->ceiling;
	f->services.ceiling.min_tier = f->opt->min_tier;
	/* Without namespaces a run that waits would have a user's processes, limits and files for nobody. */
	if (f->opt->pool && tier < NSBOX_TIER_NAMESPACE)
		log_line(5, "pool-none", "tier", nsbox_tier_name(tier), NULL);
	pool_resize(f->pool, tier < NSBOX_TIER_NAMESPACE ? 0 : f->opt->pool, f->opt->pool_spare_mb);
	f->services.kept = f->kept;
	/* Root may speak anyway, and so may whoever the service belongs to. The overflow id stands
	 * for anyone from another user namespace, so it is never meant by this. */
	if (f->owner != OVERFLOW_ID && f->opt->peers.n_uids < ARRAY_SIZE(f->opt->peers.uids))
		f->opt->peers.uids[f->opt->peers.n_uids++] = f->owner;
	front_soon(f);
}

static void on_news(void *ctx, struct job *j)
{
	events_news(j);
}

/* A run that is made for nobody yet shall be in nobody's way. */
static bool on_idle(void *ctx)
{
	const struct front *f = ctx;

	return !f->closing && !f->draining && f->running < (uint64_t)MAX(f->services.host.cpus, 1);
}

static bool on_busy(void *ctx)
{
	return ((const struct front *)ctx)->running > 0;
}

static void on_event(void *ctx, struct wire_event *w)
{
	struct session *s = w->exec ? NULL : session_by_number(ctx, w->sandbox);
	struct job *j = find_number(ctx, w->exec ? w->exec : w->sandbox);

	if (s)
		session_event(s, w);
	if (j)
		job_event(j, w);
	if (!s && !j && pool_event(((struct front *)ctx)->pool, w))
		return;
	if (!s && !j && w->event.kind == NSBOX_EVENT_FILES)
		images_event(ctx, w);
	if (w->event.fd >= 0)
		close_fd(&w->event.fd);
}

static void on_network(void *ctx, const struct egress_event *e)
{
	struct job *j = find_number(ctx, e->sandbox);
	struct session *s = j ? NULL : session_by_number(ctx, e->sandbox);

	if (s)
		session_network_event(s, e);
	if (j && j->run && j->phase != JOB_FINISHED)
		egress_log_take(&j->run->network, e);
}

/* ------------------------------------------------------------------ the end */

static void on_last(void *ctx)
{
	loop_stop(((struct front *)ctx)->loop);
}

/* Nothing of it has run: the next front will start it. */
static bool give_back(struct front *f, struct job *j)
{
	const struct journal_ops *op = f->journal->ops;

	/* First here: were the journal told first, and then the front killed, a job that runs
	 * would wait again. */
	if (!job_give_back(j) || op->begin(f->journal, NULL) < 0)
		return false;
	if (op->give_back(f->journal, j->id, NULL) < 0) {
		op->rollback(f->journal);
		return false;
	}
	return op->commit(f->journal, NULL) == 0 && op->sync(f->journal, NULL) == 0;
}

/* Taken from the queue, it could not be started: the disk never had that. */
static bool is_stuck(const struct job *j)
{
	return j->phase == JOB_QUEUED && j->wait.running;
}

void front_close(struct front *f, int status)
{
	struct nsbox_error stopping = { 0 };

	if (f->closing)
		return;
	nsbox_fail(&stopping, NSBOX_E_IO, 0, "the service is stopping");
	f->closing = true;
	f->status = status;
	hold_settle(f);
	for (struct job *j = f->first; j; j = j->next)
		if (j->sync || is_stuck(j) || (j->phase != JOB_QUEUED && !give_back(f, j)))
			job_interrupt(j);
	session_narrow_close(f);
	sessions_close(f);
	images_close(f);
	record_turn(f);
	hold_settle(f);
	for (struct job *j = f->first; j; j = j->next) {
		events_close(j);
		api_tell_refused(j, &stopping); /* its end could not be written */
	}
	evidence_note(f, "close", geteuid(), "", status ? "nsbox-spawn was lost" : "");
	f->last = (struct loop_timer){ .fn = on_last, .ctx = f };
	loop_timer_set(f->loop, &f->last, LAST_REPLIES_US);
}

static void on_lost(void *ctx, const struct nsbox_error *why)
{
	log_line(3, "lost-spawn", "err", why->msg, NULL);
	front_close(ctx, 1);
}

static void on_signal(void *ctx, uint32_t events)
{
	front_close(ctx, 0);
}

/* ------------------------------------------------------------------ life */

static const char *on_token(void *ctx, const char *header)
{
	return tokens_workspace(((struct front *)ctx)->tokens, header);
}

/*
 * Before there was a request. Whoever knocks without a right to enter shall not fill the audit: of a
 * second's refusals the first few are written one by one, the others as their number.
 */
static void on_refused(void *ctx, struct http_request *rq, const char *why)
{
	struct front *f = ctx;
	uint64_t second = monotonic_us() / 1000000;
	char more[96];

	f->metrics.counter[METRIC_DENIED]++;
	if (second != f->refused_second) {
		if (f->refused > REFUSALS_TOLD) {
			snprintf(more, sizeof(more), "%u more were refused at the door",
				 f->refused - REFUSALS_TOLD);
			evidence_note(f, "deny", WHO_NO_UID, "", more);
		}
		f->refused_second = second;
		f->refused = 0;
	}
	if (f->refused++ < REFUSALS_TOLD)
		evidence_note(f, "deny", http_peer(rq), http_path(rq), why);
}

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

static int make_pool(struct front *f, struct nsbox_error *err)
{
	const struct pool_uses uses = { .loop = f->loop,
					.link = f->link,
					.numbers = &f->numbers,
					.idle = on_idle,
					.busy = on_busy,
					.template = *f->opt->zygote,
					.ctx = f };

	return pool_new(&uses, &f->pool, err);
}

static int set_up(struct front *f, int listen_fd, int tcp_fd, int spawn_fd, int egress_fd,
		  const char *compile, struct nsbox_error *err)
{
	const struct http_handlers handlers = { api_request, api_gone,	 on_token,
						ui_is_open,  on_refused, f };
	const struct queue_limits none = { 0 };
	int r;

	r = loop_new(&f->loop, err);
	if (r == 0)
		r = link_new(f->loop, spawn_fd, on_event, on_lost, f, &f->services.host, &f->link,
			     err);
	if (r == 0)
		r = network_new(f->loop, egress_fd, on_network, on_lost, f, &f->network, err);
	if (r == 0)
		r = compiler_new(f->loop, compile, &f->compiler, err);
	if (r == 0)
		r = make_pool(f, err);
	if (r == 0)
		r = queue_new(&none, &f->queue, err);
	if (r == 0 && !(f->usage = usage_new()))
		r = nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "set up the front");
	if (r == 0)
		r = journal_open(f->data_fd, 0, &f->journal, err);
	if (r == 0)
		r = syncer_new(f->loop, f->journal, hold_synced, f, &f->syncer, err);
	if (r == 0)
		r = snapshots_open(f->data_fd, &f->snapshots, err);
	if (r < 0)
		return r;
	f->services.loop = f->loop;
	f->services.link = f->link;
	f->services.network = f->network;
	f->services.compiler = f->compiler;
	f->services.pool = f->pool;
	f->services.template = *f->opt->zygote;
	f->services.finished = on_finished;
	f->services.news = on_news;
	f->services.ctx = f;
	front_apply(f);
	r = audit_open(&f->audit, f->data_fd, f->journal, err);
	if (r == 0)
		r = record_recover(f, err);
	if (r < 0)
		return r;
	evidence_note(f, "open", geteuid(), "nsboxd " NSBOX_VERSION, "");
	r = http_new(f->loop, listen_fd, tcp_fd, &f->opt->peers, REQUEST_BODY_MAX,
		     f->opt->request_s, &handlers, &f->http, err);
	if (r == 0)
		r = tools_open(f->journal, &f->tools, err);
	if (r == 0)
		r = mcp_new(f, &f->mcp, err);
	return r == 0 ? control_watch(f, err) : r;
}

static void tear_down(struct front *f)
{
	if (f->loop)
		loop_del(f->loop, &f->orders);
	mcp_close(f->mcp);
	http_free(f->http);
	mcp_free(f->mcp);
	hold_done(f);
	while (f->first)
		front_list_drop(f, f->first);
	session_narrow_close(f);
	sessions_close(f);
	snapshots_close(f->snapshots);
	queue_free(f->queue);
	usage_free(f->usage);
	syncer_free(f->syncer);
	audit_close(&f->audit);
	tools_free(f->tools);
	journal_free(f->journal);
	compiler_free(f->compiler);
	pool_free(f->pool);
	link_free(f->link);
	network_free(f->network);
	loop_free(f->loop);
	free(f->opt);
	free(f->tokens);
	kept_free(f->kept);
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

int front_main(int listen_fd, int spawn_fd, int data_fd, int order_fd, int egress_fd)
{
	auto_free char *compile = NULL, *unpack = NULL;
	struct front f = { .data_fd = data_fd, .order_fd = order_fd, .began_us = monotonic_us() };
	struct nsbox_error err = { 0 };
	struct loop_source *signals = NULL;
	auto_close int sig = -1, tcp = -1;
	int r;

	raise_files();
	umask(077);
	f.turn = (struct loop_timer){ .fn = on_turn, .ctx = &f };
	record_init(&f);
	r = harden(&f, spawn_fd, &err);
	if (r == 0)
		r = control_options(&f, &tcp, &err);
	if (r == 0 && (asprintf(&compile, "%s/nsbox-compile", f.opt->libexec) < 0 ||
		       asprintf(&unpack, "%s/nsbox-unpack", f.opt->libexec) < 0))
		r = nsbox_fail(&err, NSBOX_E_NOMEM, ENOMEM, "set up the front");
	f.services.unpacker = unpack;
	if (r == 0)
		r = set_up(&f, listen_fd, tcp, spawn_fd, egress_fd, compile, &err);
	if (r == 0)
		r = watch_signals(&f, &signals, &sig, &err);
	if (r == 0) {
		control_ready(&f);
		r = loop_run(f.loop, &err);
	}
	if (r < 0) {
		log_line(3, "front", "err", err.msg, NULL);
		f.status = 1;
	}
	if (f.loop)
		loop_del(f.loop, &signals);
	tear_down(&f);
	return f.status;
}
