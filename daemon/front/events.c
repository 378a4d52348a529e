/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /v1/jobs/ID/events: a job's life and output as server-sent events, while it goes on.
 *
 * What a run writes is kept by its capture anyway, up to the policy's limit; a stream is a place in
 * it. A slow reader therefore costs nothing but its own delay, and an event's id, "STAGE-OUT-ERR",
 * says where a client goes on that comes back with Last-Event-ID, also when the job has ended and
 * only the journal has it.
 */
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/text.h"
#include "daemon/front/front.h"
#include "daemon/front/json_reply.h"
#include "nsbox/util.h"

#define STREAMS_MAX 64
#define CHUNK	    8192 /* of output, in one event */

enum told { BEGIN, QUEUED, STARTED, FINISHED };

struct events {
	struct events *next; /* of the job, while it is alive */
	struct front *f;
	struct http_request *rq;
	struct job *job;	 /* NULL: it ended before */
	struct json_object *row; /* the job as it ended; NULL: it is alive */
	struct bytes kept[2];	 /* without the job: its output, from the reply */
	uint64_t created_ms, started_ms;
	unsigned stage;
	uint64_t at[2]; /* how much of output and errors was sent */
	bool closing, owner;
	char *text; /* an event that is not sent yet, from `from` on */
	size_t len, from;
};

struct piece {
	const char *data;
	size_t len;
};

/* ------------------------------------------------------------------ events */

static int put_event(struct events *e, const char *name, struct json_object *data)
{
	const char *text = json_object_to_json_string_ext(
		data, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
	int n = text ? asprintf(&e->text, "id: %u-%" PRIu64 "-%" PRIu64 "\nevent: %s\ndata: %s\n\n",
				e->stage, e->at[0], e->at[1], name, text)
		     : -1;

	json_object_put(data);
	if (n < 0) {
		e->text = NULL;
		return -ENOMEM;
	}
	e->len = (size_t)n;
	e->from = 0;
	return 1;
}

static int put_stage(struct events *e, enum told stage, const char *name, const char *key,
		     uint64_t when)
{
	struct json_object *o = json_object_new_object();

	e->stage = stage;
	json_put_u64(o, key, when);
	return put_event(e, name, o);
}

static int put_queued(struct events *e)
{
	struct json_object *o = json_object_new_object();

	e->stage = QUEUED;
	json_put_u64(o, "created_ms", e->created_ms);
	if (e->job)
		json_put_text(o, "job_id", e->job->id);
	return put_event(e, "queued", o);
}

/* As much as can be shown as text: a character that is not whole yet waits for its rest. */
static size_t cut(const char *s, size_t len, bool more)
{
	size_t back = 0;

	if (!more || utf8_valid(s, len))
		return len;
	while (back < 3 && back < len && ((unsigned char)s[len - 1 - back] & 0xc0) == 0x80)
		back++;
	if (back < len && (unsigned char)s[len - 1 - back] >= 0xc0 && utf8_valid(s, len - 1 - back))
		return len - 1 - back;
	return len;
}

static int put_output(struct events *e, int which, const struct piece *p, bool more)
{
	static const char *const names[] = { "stdout", "stderr" };
	const char *s = p->data + e->at[which];
	size_t left = p->len - (size_t)e->at[which];
	size_t n = cut(s, MIN(left, (size_t)CHUNK), more || left > CHUNK);
	struct json_object *o;
	auto_free char *base64 = NULL;

	if (n == 0)
		return 0;
	o = json_object_new_object();
	json_put_u64(o, "offset", e->at[which]);
	if (utf8_valid(s, n)) {
		json_put(o, "text", json_text_new(s, n));
	} else {
		base64 = base64_encode(s, n);
		json_put(o, "base64", base64 ? json_object_new_string(base64) : NULL);
	}
	e->at[which] += n;
	return put_event(e, names[which], o);
}

/* 1: there is an event now; 0: nothing has happened since; negative: no memory. */
static int next_event(struct events *e)
{
	const struct job *j = e->job;
	const struct job_run *run = j ? j->run : NULL;
	const bool ended = e->row != NULL;
	const struct piece pieces[2] = {
		{ run ? run->out.data : (const char *)e->kept[0].data,
		  run ? run->out.len : e->kept[0].len },
		{ run ? run->err.data : (const char *)e->kept[1].data,
		  run ? run->err.len : e->kept[1].len },
	};

	if (e->stage < QUEUED)
		return put_queued(e);
	/* Not before its program runs: until then it may go back to the queue. */
	if (j && (j->started || ended || pieces[0].len || pieces[1].len))
		e->started_ms = j->started_unix_ms;
	if (e->stage < STARTED && e->started_ms)
		return put_stage(e, STARTED, "started", "started_ms", e->started_ms);
	for (int i = 0; i < 2; i++) {
		int r = pieces[i].len > e->at[i] ? put_output(e, i, &pieces[i], !ended) : 0;

		if (r)
			return r;
	}
	if (!ended || e->stage == FINISHED)
		return 0;
	e->stage = FINISHED;
	return put_event(e, "finished", json_object_get(e->row));
}

/* ------------------------------------------------------------------ the stream */

static ssize_t on_read(void *ctx, char *buf, size_t max)
{
	struct events *e = ctx;
	size_t n;

	if (!e->text) {
		int r = next_event(e);

		if (r < 0 || (r == 0 && (e->stage == FINISHED || e->closing)))
			return -1;
		if (r == 0)
			return 0;
	}
	n = MIN(max, e->len - e->from);
	memcpy(buf, e->text + e->from, n);
	e->from += n;
	if (e->from == e->len)
		free_ptr(&e->text);
	return (ssize_t)n;
}

static void on_done(void *ctx)
{
	struct events *e = ctx;

	if (e->job) {
		struct events **p = &e->job->streams;

		while (*p && *p != e)
			p = &(*p)->next;
		if (*p)
			*p = e->next;
		if (e->owner)
			job_cancel(e->job, NSBOX_CAUSE_CANCELLED);
		job_unref(e->job);
	}
	if (!e->owner)
		e->f->streams--;
	json_object_put(e->row);
	free(e->kept[0].data);
	free(e->kept[1].data);
	free(e->text);
	free(e);
}

void events_news(struct job *j)
{
	for (struct events *e = j->streams; e; e = e->next)
		http_wake(e->rq);
}

void events_ended(struct job *j, struct json_object *row)
{
	for (struct events *e = j->streams; e; e = e->next) {
		e->row = json_object_get(row);
		http_wake(e->rq);
	}
}

void events_close(struct job *j)
{
	for (struct events *e = j->streams; e; e = e->next) {
		e->closing = true;
		http_wake(e->rq);
	}
}

/* "STAGE-OUT-ERR": three decimal numbers. */
static bool read_id(const char *id, uint64_t ret[3])
{
	char text[72], *at = text, *part;

	if (!id || strlen(id) >= sizeof(text))
		return false;
	strcpy(text, id);
	for (int i = 0; i < 3; i++) {
		part = strsep(&at, "-");
		if (!part || !parse_u64(part, &ret[i]))
			return false;
	}
	return !at;
}

/*
 * Where a client goes on; what is not an id of ours is as good as none. After the end the end is
 * told again, so that a client that always comes back knows.
 */
static void resume(struct events *e, const char *id)
{
	uint64_t place[3];

	if (!read_id(id, place) || place[0] > FINISHED)
		return;
	e->stage = (unsigned)MIN(place[0], (uint64_t)STARTED);
	e->at[0] = place[1];
	e->at[1] = place[2];
}

static void start(struct events *e)
{
	static const struct http_stream stream = { on_read, on_done };
	static const char *const headers[] = { "Content-Type", "text/event-stream", "Cache-Control",
					       "no-store", NULL };

	resume(e, http_header(e->rq, "Last-Event-ID"));
	if (!e->owner)
		e->f->streams++;
	http_reply_stream(e->rq, &stream, e, headers);
}

/* Owners are as many as there are jobs: the queue's limits are theirs. */
static struct events *events_new(struct front *f, struct http_request *rq, bool owner)
{
	struct events *e = owner || f->streams < STREAMS_MAX ? calloc(1, sizeof(*e)) : NULL;

	if (e) {
		e->f = f;
		e->rq = rq;
		e->owner = owner;
	} else if (owner) {
		http_reply_error(rq, 503, "nomem", "out of memory");
	} else {
		http_reply_error(rq, 503, "limit", "%d streams are open", f->streams);
	}
	return e;
}

void events_alive(struct front *f, struct http_request *rq, struct job *j, bool owner)
{
	struct events *e = events_new(f, rq, owner);

	if (!e && owner)
		job_cancel(j, NSBOX_CAUSE_CANCELLED);
	if (!e)
		return;
	e->job = job_ref(j);
	e->created_ms = j->created_unix_ms;
	e->next = j->streams;
	j->streams = e;
	start(e);
}

/* The same bytes that the capture had: as text where that is the same, else beside it. */
static void take_kept(struct json_object *reply, const char *key, struct bytes *ret)
{
	char name[32];
	struct json_object *v = NULL;

	snprintf(name, sizeof(name), "%s_base64", key);
	if (json_object_object_get_ex(reply, name, &v)) {
		(void)base64_decode(json_object_get_string(v),
				    (size_t)json_object_get_string_len(v), &ret->data, &ret->len);
	} else if (json_object_object_get_ex(reply, key, &v)) {
		size_t n = (size_t)json_object_get_string_len(v);

		ret->data = malloc(n + 1);
		if (ret->data)
			memcpy(ret->data, json_object_get_string(v), n + 1);
		ret->len = ret->data ? n : 0;
	}
}

void events_past(struct front *f, struct http_request *rq, const struct journal_row *row,
		 struct json_object *object, const char *reply)
{
	struct json_object *o = reply ? json_tokener_parse(reply) : NULL;
	struct events *e = events_new(f, rq, false);

	if (e) {
		e->row = json_object_get(object);
		e->created_ms = row->created_ms;
		e->started_ms = row->started_ms;
		take_kept(o, "stdout", &e->kept[0]);
		take_kept(o, "stderr", &e->kept[1]);
		start(e);
	}
	json_object_put(o);
}
