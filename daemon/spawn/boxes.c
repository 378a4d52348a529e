/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sandboxes of nsbox-spawn: one handler per kind of request, and the way back for events.
 *
 * Two kinds of failure are kept apart. What a sandbox cannot do (a layer is missing, a plan was
 * refused, no memory) is an event about that sandbox. What a correct front never sends (a number
 * twice, an unknown number) ends the connection and with it the process.
 */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "daemon/spawn/spawn.h"
#include "nsbox/util.h"

static struct box *find(struct spawn *s, uint64_t id)
{
	for (size_t i = 0; i < SPAWN_BOXES_MAX; i++)
		if (s->boxes[i].id == id)
			return &s->boxes[i];
	return NULL;
}

/* ------------------------------------------------------------------ programs in it */

static struct box_exec *find_exec(struct box *b, uint64_t exec)
{
	for (size_t i = 0; i < SPAWN_EXECS_MAX; i++)
		if (b->execs[i].exec == exec)
			return &b->execs[i];
	return NULL;
}

/* The front's number for what an event of the library is about; its last event frees the place. */
static uint64_t exec_of(struct box *b, const struct nsbox_event *ev)
{
	uint64_t exec = 0;

	if (ev->kind == NSBOX_EVENT_COLLECTED && b->n_collects) {
		exec = b->collects[0];
		memmove(b->collects, b->collects + 1, --b->n_collects * sizeof(b->collects[0]));
		return exec;
	}
	if (ev->kind == NSBOX_EVENT_FILES)
		return 0; /* its number is of another kind */
	for (size_t i = 0; ev->id && i < SPAWN_EXECS_MAX; i++) {
		if (!b->execs[i].exec || b->execs[i].id != ev->id)
			continue;
		exec = b->execs[i].exec;
		if (ev->kind == NSBOX_EVENT_EXITED)
			b->execs[i] = (struct box_exec){ 0 };
	}
	return exec;
}

/* ------------------------------------------------------------------ to the front */

static int send_event(struct spawn *s, uint64_t id, uint64_t exec, struct nsbox_event *ev,
		      struct nsbox_error *err)
{
	struct wire_event w;
	bool fd = ev->kind == NSBOX_EVENT_TERMINAL;
	int r;

	memset(&w, 0, sizeof(w)); /* no byte of ours travels in the padding */
	w.magic = WIRE_MAGIC;
	w.kind = WIRE_EVENT;
	w.sandbox = id;
	w.exec = exec;
	w.fds = fd;
	w.event = *ev;
	w.event.fd = -1;
	if (ev->kind == NSBOX_EVENT_READY && find(s, id))
		w.forked = nsbox_sandbox_forked(find(s, id)->sb);
	if (ev->kind == NSBOX_EVENT_READY && find(s, id) && find(s, id)->root)
		nsbox_format(w.image, sizeof(w.image), "%s", nsbox_root_digest(find(s, id)->root));
	r = wire_send(s->sock, &w, sizeof(w), &ev->fd, fd, err);
	if (fd)
		close_fd(&ev->fd);
	return r;
}

static int send_failed(struct spawn *s, uint64_t id, uint64_t exec, uint32_t kind,
		       const struct nsbox_error *why, struct nsbox_error *err)
{
	struct nsbox_event ev = { .kind = kind, .fd = -1, .error = *why };

	return send_event(s, id, exec, &ev, err);
}

/* ------------------------------------------------------------------ roots */

/*
 * The host's root is prepared once. An imported image's is prepared for each sandbox, which takes a
 * look at a small file: its name may mean another image now, and what no sandbox uses can be
 * removed.
 */
static int root_for(struct spawn *s, struct box *b, const char *image, struct nsbox_error *err)
{
	bool host = !*image || strcmp(image, "host") == 0;
	int r = 0;

	if (!host) {
		r = nsbox_root_prepare(s->state_dir, image, &b->own_root, err);
		b->root = b->own_root;
		return r;
	}
	if (!s->host_root)
		r = nsbox_root_prepare(s->state_dir, NULL, &s->host_root, err);
	b->root = s->host_root;
	return r;
}

/* ------------------------------------------------------------------ requests */

static void box_free(struct spawn *s, struct box *b)
{
	if (b->watched)
		epoll_ctl(s->epoll, EPOLL_CTL_DEL, nsbox_sandbox_fd(b->sb), NULL);
	spawn_end_network(s, b);
	nsbox_sandbox_free(b->sb);
	nsbox_plan_close(b->plan);
	nsbox_root_free(b->own_root);
	*b = (struct box){ 0 };
}

static int watch(struct spawn *s, struct box *b, struct nsbox_error *err)
{
	struct epoll_event e = { .events = EPOLLIN, .data.u64 = b->id };

	if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, nsbox_sandbox_fd(b->sb), &e) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "watch a sandbox");
	b->watched = true;
	return 0;
}

/* Files of another sandbox are changes of its image: of another they would be anything. */
static int check_digest(const struct box *b, const char *want, struct nsbox_error *err)
{
	const char *is = nsbox_root_digest(b->root);
	bool host = strncmp(want, "host:", 5) == 0 && strncmp(is, "host:", 5) == 0;

	/* The host's digest changes with each update of it, and its files are bound, not layered. */
	if (!*want || host || strcmp(is, want) == 0)
		return 0;
	return nsbox_fail(err, NSBOX_E_INVALID, ESTALE,
			  "the files to begin with are changes of another image (%.20s) than the "
			  "name stands for now (%.20s)",
			  want, is);
}

/* The front says which workspace, and nothing else of the host. */
static int share_for(const struct spawn *s, const struct box *b, const char *workspace,
		     const char **ret, struct nsbox_error *err)
{
	if (!nsbox_plan_shares(b->plan))
		return 0;
	for (unsigned i = 0; i < s->n_shares; i++)
		if (strcmp(s->shares[i].workspace, workspace) == 0) {
			*ret = s->shares[i].directory;
			return 0;
		}
	return nsbox_fail(err, NSBOX_E_UNSUPPORTED, 0,
			  "filesystem.workspace is \"rw\", and the operator shares no directory "
			  "with the workspace '%s' (workspaces.NAME.directory of nsboxd.json)",
			  workspace);
}

/* Whoever wants filters wants them of all, so the first plan stands for the rest. */
static void keep_filter(struct spawn *s, const struct nsbox_plan *plan)
{
	struct nsbox_error why = { 0 };

	if (s->tried_filter)
		return;
	s->tried_filter = true;
	if (nsbox_plan_keep_filter(plan, &s->kept_filter, &why) < 0)
		fprintf(stderr, "<5>nsbox-spawn: starts take longer: %s\n", why.msg);
}

static int make(struct spawn *s, struct box *b, const struct wire_request *q, const int *fds,
		unsigned n, struct nsbox_error *err)
{
	struct nsbox_sandbox_options opt = { .layers = s->layers,
					     .plain_tmpfs = s->host.plain_tmpfs,
					     .files_fd = q->arg & WIRE_NEW_FILES ? fds[1] : -1,
					     .upper_from =
						     q->arg & WIRE_NEW_UPPER ? fds[n - 1] : -1,
					     .track = q->arg & WIRE_NEW_TRACK,
					     .execs = SPAWN_EXECS_MAX,
					     .egress = s->egress >= 0,
					     .observe = true,
					     .process_tier = s->process_tier };
	int r = root_for(s, b, q->image, err);

	/* Its interpreter is the host's. */
	if (r == 0 && q->arg & WIRE_NEW_TEMPLATE && b->root == s->host_root)
		opt.template = spawn_template_use(s);

	if (r == 0)
		r = check_digest(b, q->image_digest, err);
	if (r == 0)
		r = nsbox_plan_open(fds[0], &b->plan, err);
	if (r == 0)
		r = share_for(s, b, q->base, &opt.shared, err);
	if (r == 0)
		r = nsbox_sandbox_new(b->plan, b->root, &opt, &b->sb, err);
	if (r < 0)
		return r;
	keep_filter(s, b->plan); /* while its init works */
	return watch(s, b, err);
}

static int on_new(struct spawn *s, struct box *b, const struct wire_request *q, const int *fds,
		  unsigned n, struct nsbox_error *err)
{
	struct nsbox_error why = { 0 };

	b = find(s, 0);
	if (!b) {
		nsbox_fail(&why, NSBOX_E_LIMIT, 0, "%d sandboxes are alive", SPAWN_BOXES_MAX);
		return send_failed(s, q->sandbox, 0, NSBOX_EVENT_FAILED, &why, err);
	}
	b->id = q->sandbox;
	if (make(s, b, q, fds, n, &why) == 0)
		return 0;
	/* The number stays taken until the front ends it, as after any other failure. */
	nsbox_sandbox_free(take_ptr(&b->sb));
	return send_failed(s, q->sandbox, 0, NSBOX_EVENT_FAILED, &why, err);
}

static int on_exec(struct spawn *s, struct box *b, const struct wire_request *q, const int *fds,
		   unsigned n, struct nsbox_error *err)
{
	struct nsbox_io io = NSBOX_IO_NONE;
	int *const ends[] = { &io.in, &io.out, &io.err, &io.request, &io.result, &io.trace };
	struct box_exec *place = find_exec(b, 0);
	struct nsbox_error why = { 0 };
	unsigned next = 1;
	uint32_t id;

	if (find_exec(b, q->exec))
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EPROTO,
				  "a program's number that is taken");
	for (unsigned i = 0; i < ARRAY_SIZE(ends); i++)
		if (q->arg & (1u << i))
			*ends[i] = fds[next++];
	if (!b->sb)
		return 0; /* its failure is on the way already */
	if (!place)
		nsbox_fail(&why, NSBOX_E_LIMIT, EBUSY, "%d programs run in the sandbox",
			   SPAWN_EXECS_MAX);
	else if (nsbox_sandbox_exec_blob(b->sb, fds[0], &io, &id, &why) == 0)
		*place = (struct box_exec){ id, q->exec };
	return why.code ? send_failed(s, b->id, q->exec, NSBOX_EVENT_FAILED, &why, err) : 0;
}

static int on_begin(struct spawn *s, struct box *b, const struct wire_request *q, const int *fds,
		    unsigned n, struct nsbox_error *err)
{
	struct box_exec *x = find_exec(b, q->exec);

	/* One that has ended is no fault: its event is on the way. */
	if (b->sb && x)
		(void)nsbox_sandbox_begin(b->sb, x->id, NULL);
	return 0;
}

static int on_kill(struct spawn *s, struct box *b, const struct wire_request *q, const int *fds,
		   unsigned n, struct nsbox_error *err)
{
	struct box_exec *x = q->exec ? find_exec(b, q->exec) : NULL;

	if (q->arg >= NSBOX_CAUSE_MAX || q->arg2 > 64)
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EPROTO, "kill with a bad cause or signal");
	/* Nothing to kill is no fault: the exec may have ended while the message travelled. */
	if (b->sb && (x || !q->exec))
		(void)nsbox_sandbox_kill(b->sb, x ? x->id : 0, (int)q->arg, (int)q->arg2, NULL);
	return 0;
}

static int on_collect(struct spawn *s, struct box *b, const struct wire_request *q, const int *fds,
		      unsigned n, struct nsbox_error *err)
{
	struct nsbox_output rules[WIRE_OUTPUTS_MAX];
	struct nsbox_error why = { 0 };

	for (uint32_t i = 0; i < q->outputs; i++)
		rules[i] = (struct nsbox_output){ .glob = q->output[i].glob,
						  .max_bytes = q->output[i].max_bytes,
						  .max_files = q->output[i].max_files };
	if (!b->sb)
		nsbox_fail(&why, NSBOX_E_INVALID, 0, "there is no sandbox to collect from");
	else if (b->n_collects == ARRAY_SIZE(b->collects))
		nsbox_fail(&why, NSBOX_E_LIMIT, EBUSY, "too many outputs are on their way");
	else if (nsbox_sandbox_collect(b->sb, *q->base ? q->base : NULL, rules, q->outputs, fds[0],
				       &why) == 0)
		b->collects[b->n_collects++] = q->exec;
	return why.code ? send_failed(s, b->id, q->exec, NSBOX_EVENT_COLLECTED, &why, err) : 0;
}

static int on_files(struct spawn *s, struct box *b, const struct wire_request *q, const int *fds,
		    unsigned n, struct nsbox_error *err)
{
	struct nsbox_event ev = { .kind = NSBOX_EVENT_FILES, .id = q->arg2, .fd = -1 };
	int in = q->arg & WIRE_FILES_IN ? fds[1] : -1;
	int out = q->arg & WIRE_FILES_OUT ? fds[n - 1] : -1;

	if (!b->sb)
		nsbox_fail(&ev.error, NSBOX_E_INVALID, ESRCH, "the sandbox is gone");
	else
		nsbox_sandbox_files_blob(b->sb, fds[0], q->arg2, in, out, &ev.error);
	return ev.error.code ? send_event(s, b->id, 0, &ev, err) : 0;
}

static int on_upper(struct spawn *s, struct box *b, const struct wire_request *q, const int *fds,
		    unsigned n, struct nsbox_error *err)
{
	struct nsbox_event ev = { .kind = NSBOX_EVENT_FILES, .id = q->arg2, .fd = -1 };

	if (!b->sb)
		nsbox_fail(&ev.error, NSBOX_E_INVALID, ESRCH, "the sandbox is gone");
	else
		nsbox_sandbox_upper(b->sb, (enum nsbox_upper)q->arg, q->arg2, fds[0], &ev.error);
	return ev.error.code ? send_event(s, b->id, 0, &ev, err) : 0;
}

static int on_files_cancel(struct spawn *s, struct box *b, const struct wire_request *q,
			   const int *fds, unsigned n, struct nsbox_error *err)
{
	/* One that is over already is no fault: its event is on the way. */
	if (b->sb)
		(void)nsbox_sandbox_files_cancel(b->sb, q->arg2, NULL);
	return 0;
}

/* About no sandbox; the number is the front's, for the answer. */
static int on_images(struct spawn *s, struct box *b, const struct wire_request *q, const int *fds,
		     unsigned n, struct nsbox_error *err)
{
	struct nsbox_event ev = { .kind = NSBOX_EVENT_FILES, .fd = -1 };

	(void)spawn_tell_images(s, fds[0], &ev.error);
	return send_event(s, q->sandbox, 0, &ev, err);
}

static int on_commit(struct spawn *s, struct box *b, const struct wire_request *q, const int *fds,
		     unsigned n, struct nsbox_error *err)
{
	struct nsbox_event ev = { .kind = NSBOX_EVENT_FILES, .fd = -1 };

	(void)spawn_commit_start(s, q, fds, &ev.error);
	return ev.error.code ? send_event(s, q->sandbox, 0, &ev, err) : 0;
}

int spawn_commit_told(struct spawn *s, uint64_t id, struct nsbox_error *err)
{
	struct nsbox_event ev = { .kind = NSBOX_EVENT_FILES, .fd = -1 };
	uint64_t number = spawn_commit_ended(s, id, &ev.error);

	return send_event(s, number, 0, &ev, err);
}

/* Its processes take a moment to go, and nobody waits for that: the place is free afterwards. */
static int on_end(struct spawn *s, struct box *b, const struct wire_request *q, const int *fds,
		  unsigned n, struct nsbox_error *err)
{
	b->ending = true;
	if (b->sb && b->watched)
		nsbox_sandbox_end(b->sb);
	else
		box_free(s, b);
	return 0;
}

typedef int handler_fn(struct spawn *s, struct box *b, const struct wire_request *q, const int *fds,
		       unsigned n, struct nsbox_error *err);

static const struct {
	handler_fn *handle;
	bool known; /* the sandbox has to be there, or has to be new */
} handlers[WIRE_KIND_MAX] = {
	/* clang-format off */
	[WIRE_NEW]     = { on_new,     false },
	[WIRE_EXEC]    = { on_exec,    true },
	[WIRE_KILL]    = { on_kill,    true },
	[WIRE_COLLECT] = { on_collect, true },
	[WIRE_FILES]   = { on_files,   true },
	[WIRE_UPPER]   = { on_upper,   true },
	[WIRE_FILES_CANCEL] = { on_files_cancel, true },
	[WIRE_IMAGES]  = { on_images,  false },
	[WIRE_COMMIT]  = { on_commit,  false },
	[WIRE_BEGIN]   = { on_begin,   true },
	[WIRE_END]     = { on_end,     true },
	/* clang-format on */
};

int spawn_request(struct spawn *s, const struct wire_request *q, int *fds, unsigned n,
		  struct nsbox_error *err)
{
	struct box *b = find(s, q->sandbox);
	int r;

	if (b && b->ending)
		b = NULL;
	if ((b != NULL) != handlers[q->kind].known)
		r = nsbox_fail(err, NSBOX_E_PROTOCOL, EPROTO, "a sandbox number that is %s",
			       b ? "taken" : "unknown");
	else
		r = handlers[q->kind].handle(s, b, q, fds, n, err);
	wire_close_fds(fds, n);
	return r;
}

/* ------------------------------------------------------------------ events */

static bool is_last(uint32_t kind)
{
	return kind == NSBOX_EVENT_FAILED || kind == NSBOX_EVENT_GONE;
}

int spawn_events(struct spawn *s, uint64_t id, struct nsbox_error *err)
{
	struct box *b = find(s, id);
	struct nsbox_event ev;
	struct nsbox_error why = { 0 };
	int r = 0;

	while (b && b->sb && r == 0) {
		memset(&ev, 0, sizeof(ev));
		if (nsbox_sandbox_next(b->sb, 0, &ev, &why) < 0)
			ev = (struct nsbox_event){ .kind = NSBOX_EVENT_FAILED,
						   .fd = -1,
						   .error = why };
		if (ev.kind == NSBOX_EVENT_NONE)
			return 0;
		if (ev.kind == NSBOX_EVENT_LISTENERS) {
			if (spawn_give_listeners(s, b, &why) == 0)
				continue;
			ev = (struct nsbox_event){ .kind = NSBOX_EVENT_FAILED,
						   .fd = -1,
						   .error = why };
		}
		if (is_last(ev.kind) && b->watched) {
			/* Nothing more comes; a hung-up descriptor would keep us awake. */
			epoll_ctl(s->epoll, EPOLL_CTL_DEL, nsbox_sandbox_fd(b->sb), NULL);
			b->watched = false;
		}
		if (b->ending) {
			close_fd(&ev.fd);
			if (is_last(ev.kind))
				box_free(s, b);
			continue;
		}
		r = send_event(s, id, exec_of(b, &ev), &ev, err);
		if (is_last(ev.kind))
			return r;
	}
	return r;
}

void spawn_free_all(struct spawn *s)
{
	spawn_commits_end(s);
	for (size_t i = 0; i < SPAWN_BOXES_MAX; i++)
		if (s->boxes[i].id != 0)
			box_free(s, &s->boxes[i]);
	nsbox_root_free(take_ptr(&s->host_root));
	close_fd(&s->kept_filter);
}
