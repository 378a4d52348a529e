/* SPDX-License-Identifier: Apache-2.0 */
/* See init_files.h. A helper that is due gets TERM, so that it removes what it was writing, and half
 * a second later KILL. */
#include "nsbox/init_files.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "nsbox/files_child.h"
#include "nsbox/files_verbs.h"
#include "nsbox/process_tier.h"
#include "nsbox/upper.h"
#include "nsbox/util.h"

#define COLLECT_LIMIT_US 600000000
#define TERM_GRACE_US	 500000
#define VIEW_MAX	 (FILES_PATH_MAX + PROCESS_PATH)

void init_files_init(struct init_files *f, struct child *c)
{
	memset(f, 0, sizeof(*f));
	f->child = c;
}

static void tell(struct init_files *f, uint32_t id, struct ctl_report *rep)
{
	rep->magic = CTL_MAGIC;
	rep->kind = id ? CTL_FILES_DONE : CTL_COLLECTED;
	rep->id = id;
	if (rep->error.code && !id)
		rep->error.stage = NSBOX_STAGE_COLLECT;
	if (ctl_send(f->child->control, rep, sizeof(*rep), NULL, 0) < 0)
		init_end(f->child, 0); /* no one is there to hear it */
}

static void close_all(int *fds, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		close_fd(&fds[i]);
}

static struct init_helper *find_helper(struct init_files *f, uint32_t id)
{
	for (unsigned i = 0; i < INIT_HELPERS_MAX; i++)
		if (f->helper[i].helper.pid && f->helper[i].id == id)
			return &f->helper[i];
	return NULL;
}

static struct init_helper *place_for(struct init_files *f, uint32_t id)
{
	struct init_helper *free_place = NULL;

	for (unsigned i = 0; i < INIT_HELPERS_MAX; i++) {
		struct init_helper *h = &f->helper[i];

		if (h->helper.pid && h->id == id)
			return NULL;
		if (!h->helper.pid)
			free_place = h;
	}
	return free_place;
}

/* Everything in the namespace but us; helpers that run are stopped, too, and go on later. */
static void stop_all(struct init_files *f)
{
	if (f->stopping++ == 0)
		init_signal_all(f->child, SIGSTOP);
}

static void go_on(struct init_files *f)
{
	if (--f->stopping == 0)
		init_signal_all(f->child, SIGCONT);
}

static void start(struct init_files *f, uint32_t id, const struct helper_job *job, uint64_t us,
		  struct ctl_report *rep)
{
	struct init_helper *h = place_for(f, id);

	if (!h)
		nsbox_fail(&rep->error, NSBOX_E_LIMIT, EBUSY,
			   "too many requests about files at once, or one of the same number");
	else if (child_helper_start(f->child, job, &h->helper, &rep->error) == 0)
		*h = (struct init_helper){ .helper = h->helper,
					   .id = id,
					   .due_us = monotonic_us() + us };
	else
		h->helper.pid = 0;
	if (rep->error.code)
		tell(f, id, rep);
}

/* ------------------------------------------------------------------ verbs */

struct verb_job {
	const struct blob *request;
	int in, out;
};

/* In the helper: what its files may hold, as for a payload. */
static void limit_files(const struct plan_limits *l)
{
	struct rlimit now, want = { l->file_size, l->file_size };

	if (!l->file_size || getrlimit(RLIMIT_FSIZE, &now) < 0)
		return;
	want.rlim_max = MIN(want.rlim_max, now.rlim_max);
	want.rlim_cur = want.rlim_max;
	setrlimit(RLIMIT_FSIZE, &want);
}

/* A path of a request, where this process finds it: without mounts, on the host. */
static const char *seen_as(const struct child *c, const char *path, char *buf)
{
	const char *real = c->process ? process_view(c, path, buf, VIEW_MAX) : NULL;

	return real ? real : path;
}

/* And a real path of the run's, as the root that init holds has it. */
static const char *below_root(const struct child *c, const char *path)
{
	size_t n = c->process ? strlen(c->process->path) : 0;

	return n && !strncmp(path, c->process->path, n) && path[n] == '/' ? path + n : path;
}

static int run_verb(struct child *c, void *arg, struct nsbox_error *err)
{
	const struct verb_job *job = arg;
	const struct plan_fixed *fixed = child_fixed(c);
	const struct verb_fixed *f = blob_fixed(job->request, struct verb_fixed);
	char room[3][VIEW_MAX];
	const struct verb_paths paths = {
		.workdir = seen_as(c, blob_get_str(c->plan, fixed->workdir), room[0]),
		.path = seen_as(c, blob_get_str(job->request, f->path), room[1]),
		.target = seen_as(c, blob_get_str(job->request, f->target), room[2]),
		.below = blob_get_str(c->plan, fixed->workdir),
		.into = below_root(c, blob_get_str(job->request, f->path)),
	};

	umask(0);
	files_child_on_term();
	limit_files(&fixed->limits);
	return files_child_verb(job->request, &paths, c->new_root, job->in, job->out, err);
}

void init_files_verb(struct init_files *f, const struct ctl_request *req, int *fds, unsigned n)
{
	struct ctl_report rep = { .magic = CTL_MAGIC };
	struct verb_job job = { .in = -1, .out = -1 };
	struct helper_job helper = { .run = run_verb, .arg = &job };
	struct blob request = { 0 };
	unsigned at = 1;

	if (req->flags & FILESF_IN)
		job.in = at < n ? fds[at++] : -1;
	if (req->flags & FILESF_OUT)
		job.out = at < n ? fds[at++] : -1;
	helper.keep[0] = job.in;
	helper.keep[1] = job.out;
	if (at != n || !req->id)
		nsbox_fail(&rep.error, NSBOX_E_PROTOCOL, 0, "malformed request about files");
	else
		blob_map(fds[0], VERB_MAGIC, &request, &rep.error);
	if (rep.error.code) {
		tell(f, req->id, &rep);
	} else {
		job.request = &request;
		start(f, req->id, &helper,
		      (uint64_t)blob_fixed(&request, struct verb_fixed)->deadline_ms * 1000, &rep);
	}
	blob_unmap(&request);
	close_all(fds, n);
}

/* ------------------------------------------------------------------ collect */

struct collect_job {
	struct ctl_request *req;
	int out;
};

static int run_collect(struct child *c, void *arg, struct nsbox_error *err)
{
	const struct collect_job *col = arg;
	const struct plan_limits *l = &child_fixed(c)->limits;
	struct nsbox_files_limits lim = { l->disk, (uint32_t)MIN(l->disk_inodes, UINT32_MAX) };
	struct files_rule rules[CTL_OUTPUTS_MAX];
	const char *base =
		col->req->base[0] ? col->req->base : blob_get_str(c->plan, child_fixed(c)->workdir);

	files_child_on_term();
	for (unsigned i = 0; i < col->req->rules; i++)
		rules[i] = (struct files_rule){ col->req->rule[i].glob, col->req->rule[i].max_bytes,
						col->req->rule[i].max_files };
	return files_child_collect(c->new_root, base, rules, col->req->rules, col->out, &lim, err);
}

void init_files_collect(struct init_files *f, struct ctl_request *req, int *fds, unsigned n)
{
	struct collect_job col = { req, n ? fds[0] : -1 };
	const struct helper_job job = { .run = run_collect, .arg = &col, .keep = { col.out, -1 } };
	struct ctl_report rep = { .magic = CTL_MAGIC };

	req->base[sizeof(req->base) - 1] = '\0';
	for (unsigned i = 0; i < CTL_OUTPUTS_MAX; i++)
		req->rule[i].glob[sizeof(req->rule[i].glob) - 1] = '\0';
	if (n != 1 || req->rules > CTL_OUTPUTS_MAX) {
		nsbox_fail(&rep.error, NSBOX_E_PROTOCOL, 0, "malformed request to collect files");
		tell(f, 0, &rep);
	} else {
		start(f, 0, &job, COLLECT_LIMIT_US, &rep);
	}
	close_all(fds, n);
}

/* ------------------------------------------------------------------ the upper layer */

struct upper_job {
	enum nsbox_upper form;
	int out;
};

static int run_upper(struct child *c, void *arg, struct nsbox_error *err)
{
	const struct upper_job *job = arg;

	files_child_on_term();
	return upper_send(c->upper, job->form, &c->ready, job->out, err);
}

/* What is kept shall be one state of the files: nothing runs while they are read. */
static void start_alone(struct init_files *f, uint32_t id, const struct helper_job *job,
			struct ctl_report *rep)
{
	struct init_helper *h;

	stop_all(f);
	start(f, id, job, COLLECT_LIMIT_US, rep);
	h = rep->error.code ? NULL : find_helper(f, id);
	if (h)
		h->alone = true;
	else
		go_on(f);
}

void init_files_upper(struct init_files *f, const struct ctl_request *req, int *fds, unsigned n)
{
	struct upper_job job = { (enum nsbox_upper)req->flags, n ? fds[0] : -1 };
	const struct helper_job helper = { .run = run_upper,
					   .arg = &job,
					   .keep = { job.out, f->child->upper } };
	struct ctl_report rep = { .magic = CTL_MAGIC };

	if (n != 1 || !req->id || req->flags >= UPPER_FORM_MAX || f->child->upper < 0) {
		nsbox_fail(&rep.error, NSBOX_E_PROTOCOL, 0,
			   "malformed request for the upper layer");
		tell(f, req->id, &rep);
	} else if (job.form == NSBOX_UPPER_LIST) {
		start(f, req->id, &helper, COLLECT_LIMIT_US, &rep);
	} else {
		start_alone(f, req->id, &helper, &rep);
	}
	close_all(fds, n);
}

/* ------------------------------------------------------------------ ends */

/* First TERM, and when that was not enough KILL: also a stopped process obeys that. */
static void end(struct init_helper *h, int code)
{
	kill(h->helper.pid, h->stopped ? SIGKILL : SIGTERM);
	if (!h->stopped)
		h->stopped = (uint32_t)code;
	h->due_us = monotonic_us() + TERM_GRACE_US;
}

void init_files_cancel(struct init_files *f, uint32_t id)
{
	for (unsigned i = 0; i < INIT_HELPERS_MAX; i++) {
		struct init_helper *h = &f->helper[i];

		if (id && h->helper.pid && h->id == id && !h->stopped)
			end(h, NSBOX_E_CANCELLED);
	}
}

int init_files_due(struct init_files *f)
{
	uint64_t now = 0, next = UINT64_MAX;

	for (unsigned i = 0; i < INIT_HELPERS_MAX; i++) {
		struct init_helper *h = &f->helper[i];

		if (!h->helper.pid)
			continue;
		if (!now)
			now = monotonic_us();
		if (h->due_us <= now)
			end(h, NSBOX_E_LIMIT);
		next = MIN(next, h->due_us);
	}
	return next == UINT64_MAX ? -1 : (int)MIN((next - now) / 1000 + 1, (uint64_t)INT32_MAX);
}

static void explain(const struct init_helper *h, struct nsbox_error *err)
{
	if (h->stopped == NSBOX_E_CANCELLED)
		nsbox_fail(err, NSBOX_E_CANCELLED, ECANCELED, "the request was ended by its owner");
	else if (h->stopped)
		nsbox_fail(err, NSBOX_E_LIMIT, ETIMEDOUT, "the request took longer than it may");
}

bool init_files_reaped(struct init_files *f, pid_t pid, int status)
{
	struct ctl_report rep = { .magic = CTL_MAGIC };

	for (unsigned i = 0; i < INIT_HELPERS_MAX; i++) {
		struct init_helper *h = &f->helper[i];

		if (!h->helper.pid || h->helper.pid != pid)
			continue;
		if (child_helper_over(&h->helper, status, &rep.error) < 0)
			explain(h, &rep.error);
		h->helper.pid = 0;
		if (h->alone)
			go_on(f);
		h->alone = false;
		tell(f, h->id, &rep);
		return true;
	}
	return false;
}
