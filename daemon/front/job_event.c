/* SPDX-License-Identifier: Apache-2.0 */
/* What nsbox-spawn tells of a job's sandbox and program, and the collecting of outputs that follows. */
#include <stdio.h>
#include <string.h>

#include "daemon/common/redact.h"
#include "daemon/front/job_parts.h"
#include "nsbox/util.h"

#define COLLECT_MS 60000

/* Of a sandbox of its own, or of the session that it waits for. */
static void on_ready(struct job *j, struct nsbox_event *ev)
{
	if (j->kind == JOB_SESSION)
		job_session_ready(j, &ev->result);
}

static void on_started(struct job *j, struct nsbox_event *ev)
{
	j->started = true;
	j->sv->news(j->sv->ctx, j);
}

static void on_failed(struct job *j, struct nsbox_event *ev)
{
	job_fail(j, &ev->error);
}

static void on_terminal(struct job *j, struct nsbox_event *ev)
{
	struct nsbox_error err = { 0 };
	int r = 0;

	if (!j->spec->tty || j->run->out.loop)
		return;
	if (j->interactive)
		r = feed_terminal(&j->feed, ev->fd, &err);
	/* One stream: a terminal does not tell standard output from standard error. */
	if (r == 0)
		r = capture_attach(&j->run->out, j->sv->loop, j->run->plan->limits.stdout_max,
				   take_fd(&ev->fd), &err);
	if (r < 0)
		job_cancel(j, NSBOX_CAUSE_SANDBOX);
}

static int collect(struct job *j, struct nsbox_error *err)
{
	struct wire_request q = { .kind = WIRE_COLLECT,
				  .sandbox = job_sandbox(j),
				  .exec = j->number };
	auto_close int out = -1;
	int r = outputs_start(&j->run->outputs, j->sv->loop, &out, err);

	if (r < 0)
		return r;
	if (j->spec->cwd)
		snprintf(q.base, sizeof(q.base), "%s", j->spec->cwd);
	else if (!j->spec->argv && j->run->plan->cwd[0]) /* the entry point's own */
		snprintf(q.base, sizeof(q.base), "%.255s", j->run->plan->cwd);
	q.outputs = j->run->n_rules;
	memcpy(q.output, j->run->rules, j->run->n_rules * sizeof(q.output[0]));
	return link_send(j->sv->link, &q, &out, 1, err);
}

/* As a shell would, and the command line tool does: callers look at standard error. */
static void say_why(struct job *j)
{
	char text[NSBOX_ERROR_MSG_MAX + 16];

	if (job_redacts(j))
		redact_here(j->run->inputs.hidden, j->run->inputs.n_hidden, j->run->res.error.msg,
			    sizeof(j->run->res.error.msg));
	snprintf(text, sizeof(text), "nsbox: %s\n", j->run->res.error.msg);
	capture_add(&j->run->err, text, strlen(text));
}

static void on_exited(struct job *j, struct nsbox_event *ev)
{
	struct nsbox_error err = { 0 };

	if (j->has_result)
		return;
	j->has_result = true;
	j->run->res = ev->result;
	j->exited_us = monotonic_us();
	if (j->session) {
		job_hear_network(j);
		j->in_spawn = false; /* the program, that is */
	}
	capture_finish(&j->run->out);
	capture_finish(&j->run->err);
	capture_finish(&j->run->result);
	if (j->run->res.cause == NSBOX_CAUSE_EXEC)
		say_why(j);
	if (j->run->res.cause == NSBOX_CAUSE_SANDBOX || j->run->n_rules == 0) {
		job_finish(j);
		return;
	}
	j->phase = JOB_COLLECTING;
	job_set_backstop(j, COLLECT_MS);
	if (collect(j, &err) < 0) {
		j->run->outputs.error = err;
		job_finish(j);
	}
}

static void on_collected(struct job *j, struct nsbox_event *ev)
{
	if (j->phase != JOB_COLLECTING)
		return;
	outputs_finish(&j->run->outputs);
	if (ev->error.code != 0)
		j->run->outputs.error = ev->error;
	job_finish(j);
}

static void on_gone(struct job *j, struct nsbox_event *ev)
{
	if (j->phase == JOB_COLLECTING)
		on_collected(j, ev);
	else
		job_finish_as(j, NSBOX_CAUSE_INTERRUPTED);
}

static void (*const handlers[])(struct job *j, struct nsbox_event *ev) = {
	[NSBOX_EVENT_READY] = on_ready,	  [NSBOX_EVENT_STARTED] = on_started,
	[NSBOX_EVENT_FAILED] = on_failed, [NSBOX_EVENT_TERMINAL] = on_terminal,
	[NSBOX_EVENT_EXITED] = on_exited, [NSBOX_EVENT_COLLECTED] = on_collected,
	[NSBOX_EVENT_GONE] = on_gone,
};

/* It may wait still, where this is about its session: that it is ready, or is no more. */
void job_event(struct job *j, struct wire_event *w)
{
	const uint32_t kind = w->event.kind;

	if (kind >= ARRAY_SIZE(handlers) || !handlers[kind] || j->phase == JOB_FINISHED)
		return;
	if (!job_has_run(j)) {
		job_finish(j);
		return;
	}
	if (kind == NSBOX_EVENT_READY) {
		memcpy(j->run->image_digest, w->image, sizeof(j->run->image_digest));
		j->forked = w->forked;
	}
	handlers[kind](j, &w->event);
}
