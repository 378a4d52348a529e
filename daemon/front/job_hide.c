/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is not to be told of a job: values of secrets. Streams are redacted as they come (capture.c),
 * values and denials when the reply is made (reply.c); here is the rest.
 *
 * Commands of a session can get at each other's secrets, and at those of the file system that it
 * began with. So what is hidden in one is hidden in all that come later, and once more, at its
 * end, in what ran meanwhile.
 */
#include <string.h>

#include "daemon/common/redact.h"
#include "daemon/front/job_parts.h"
#include "nsbox/util.h"

/* Of one session: a program that gets other secrets each time needs no session. */
#define SESSION_HIDDEN_MAX 256

/* A reply that is kept is kept without secrets; one that a caller waits for, as it wishes. */
bool job_redacts(const struct job *j)
{
	return j->run->inputs.n_hidden > 0 && (!j->sync || (j->spec && j->spec->redact));
}

static int add_all(struct input **list, size_t *n, const struct input *from, size_t n_from)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n_from; i++)
		r = input_hide(list, n, &from[i]);
	return r;
}

int job_hide_in_session(struct job *j, struct nsbox_error *err)
{
	struct inputs *in = &j->run->inputs;
	struct session *s = j->session;

	if (add_all(&s->hidden, &s->n_hidden, in->hidden, in->n_hidden) < 0 ||
	    add_all(&in->hidden, &in->n_hidden, s->hidden, s->n_hidden) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "keep secrets from what is told");
	if (s->n_hidden <= SESSION_HIDDEN_MAX)
		return 0;
	return nsbox_fail(err, NSBOX_E_LIMIT, 0,
			  "session '%.64s' has had %d different secrets: make a new one", s->id,
			  SESSION_HIDDEN_MAX);
}

/* Secrets that came into its session while it ran; without memory nothing is told at all. */
static void hide_late(struct job *j)
{
	struct session *s = j->session;
	size_t before = j->run->inputs.n_hidden;
	struct capture *streams[] = { &j->run->out, &j->run->err };

	if (!s || s->n_hidden <= before)
		return;
	(void)add_all(&j->run->inputs.hidden, &j->run->inputs.n_hidden, s->hidden, s->n_hidden);
	for (size_t i = 0; job_redacts(j) && i < ARRAY_SIZE(streams); i++)
		capture_hide(streams[i], s->hidden, s->n_hidden);
}

/* Files cannot be redacted and stay what they are. */
static void hold_back(const struct inputs *in, struct output_file *f)
{
	if (!f->note && (redact_finds(in->hidden, in->n_hidden, f->data, f->size) ||
			 redact_finds(in->hidden, in->n_hidden, f->path, strlen(f->path))))
		f->note = (char *)"it holds a secret of the run";
}

void job_hide(struct job *j)
{
	const struct inputs *in = &j->run->inputs;
	char *const messages[] = { j->run->error.msg, j->run->res.error.msg,
				   j->run->outputs.error.msg };

	hide_late(j);
	if (!job_redacts(j))
		return;
	for (size_t i = 0; i < j->run->outputs.n; i++)
		hold_back(in, &j->run->outputs.files[i]);
	for (size_t i = 0; i < ARRAY_SIZE(messages); i++)
		redact_here(in->hidden, in->n_hidden, messages[i], NSBOX_ERROR_MSG_MAX);
	for (size_t i = 0; i < j->run->outputs.n; i++)
		redact_here(in->hidden, in->n_hidden, j->run->outputs.files[i].path,
			    strlen(j->run->outputs.files[i].path) + 1);
}

void job_hide_events(const struct input *hidden, size_t n, struct egress_log *l)
{
	for (size_t i = 0; i < l->n_kept; i++) {
		redact_name(hidden, n, l->kept[i].name, sizeof(l->kept[i].name));
		redact_name(hidden, n, l->kept[i].why, sizeof(l->kept[i].why));
	}
	for (size_t i = 0; i < l->n_denials; i++) {
		redact_name(hidden, n, l->denials[i].first.name, sizeof(l->denials[i].first.name));
		redact_name(hidden, n, l->denials[i].first.why, sizeof(l->denials[i].first.why));
	}
}

/* Of what is kept of every job, whatever its caller was told. */
void job_hide_names(struct job *j)
{
	const struct inputs *in = &j->run->inputs;

	job_hide_events(in->hidden, in->n_hidden, &j->run->network);
	for (size_t i = 0; i < j->run->outputs.n; i++)
		redact_here(in->hidden, in->n_hidden, j->run->outputs.files[i].path,
			    strlen(j->run->outputs.files[i].path) + 1);
}
