/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of a function that finds a run made ahead (pool.h): nothing is to be made then, only what
 * the interpreter waits for is to be written. And a command that finds a sandbox, in which it is started
 * as in one of its own.
 *
 * Only what brings nothing into the sandbox before it starts: no files, no secrets; a function no
 * standard input; in the host's root, which all share, since one of an image would hold that image.
 */
#include <string.h>
#include <unistd.h>

#include "daemon/front/job_parts.h"
#include "nsbox/util.h"

static bool fits(const struct job *j)
{
	const struct job_spec *s = j->spec;
	const char *image = job_image(j);

	return j->sv->pool && !j->session && !j->interactive && !s->tty && !s->trace &&
	       j->run->staged.fd < 0 && !j->run->staged.skill_dir[0] &&
	       j->run->inputs.n_hidden == 0 && (!image || !*image || strcmp(image, "host") == 0);
}

/* All or nothing: what a pipe takes at once. */
static bool give_call(const struct job *j, struct pool_run *run)
{
	auto_free char *text = NULL;
	struct pycall call;
	size_t len = 0;
	ssize_t n;

	job_describe_call(j, &call);
	if (pycall_text(&call, &text, &len, NULL) < 0)
		return false;
	do
		n = write(run->request, text, len);
	while (n < 0 && errno == EINTR);
	close_fd(&run->request);
	return n >= 0 && (size_t)n == len;
}

static int listen_to(struct job *j, struct pool_run *run, struct nsbox_error *err)
{
	const struct nsbox_policy_limits *lim = &j->run->plan->limits;
	int r;

	job_set_captures(j);
	r = capture_attach(&j->run->out, j->sv->loop, lim->stdout_max, take_fd(&run->out), err);
	if (r == 0)
		r = capture_attach(&j->run->err, j->sv->loop, lim->stderr_max, take_fd(&run->err),
				   err);
	if (r == 0)
		r = capture_attach(&j->run->result, j->sv->loop, lim->result_max,
				   take_fd(&run->result), err);
	return r;
}

static void take_over(struct job *j, const struct pool_run *run)
{
	j->number = run->number;
	j->in_spawn = j->ahead = true;
	j->forked = run->forked;
	memcpy(j->run->image_digest, run->image_digest, sizeof(j->run->image_digest));
}

static int take_sandbox(struct job *j, int plan_fd, struct nsbox_error *err)
{
	struct pool_run run = POOL_RUN_NONE;
	char key[DIGEST_HEX];
	int r = pool_key(j->run->plan_sha256, -1, key, err);

	if (r < 0)
		return r;
	if (!pool_take(j->sv->pool, key, &run)) {
		pool_learn(j->sv->pool, key, plan_fd, -1);
		return 0;
	}
	take_over(j, &run);
	r = job_run(j, err);
	return r < 0 ? r : 1;
}

static int take_interpreter(struct job *j, int plan_fd, struct nsbox_error *err)
{
	struct pool_run run = POOL_RUN_NONE;
	auto_close int exec = -1;
	char key[DIGEST_HEX];
	int r;

	r = job_encode_exec(j, true, &exec, err);
	if (r == 0)
		r = pool_key(j->run->plan_sha256, exec, key, err);
	if (r < 0)
		return r;
	if (!pool_take(j->sv->pool, key, &run)) {
		pool_learn(j->sv->pool, key, plan_fd, exec);
		return 0;
	}
	if (!give_call(j, &run)) {
		pool_spoil(j->sv->pool, &run); /* too long, or its end is on the way */
		return 0;
	}
	take_over(j, &run);
	j->started = true;
	r = listen_to(j, &run, err);
	if (r < 0) { /* the job's end is the sandbox's; these nobody has taken */
		close_fd(&run.err);
		close_fd(&run.result);
		return r;
	}
	job_limit_wait(j);
	j->sv->news(j->sv->ctx, j);
	return 1;
}

int job_take_from_pool(struct job *j, int plan_fd, struct nsbox_error *err)
{
	if (!fits(j))
		return 0;
	if (j->kind == JOB_COMMAND)
		return take_sandbox(j, plan_fd, err);
	if (j->kind == JOB_PYTHON && !j->spec->stdin_data.data)
		return take_interpreter(j, plan_fd, err);
	return 0;
}
