/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit.
 *
 * A line is written to the journal, in the transaction of what it tells of, and after the commit
 * to the file "audit.log". So it can neither be lost nor doubled, whenever the front is killed: the
 * next one finds in the journal the lines that the file lacks. The journal forgets lines once the
 * file was synced.
 *
 * Whoever moves the file away starts a new one, which continues the chain. A file that does not
 * end as the journal says was changed behind our back: that is an error, not a new beginning.
 */
#include "daemon/front/audit.h"

#include <fcntl.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "daemon/front/json_reply.h"
#include "nsbox/util.h"

#define NAME "audit.log"

/* ------------------------------------------------------------------ lines */

struct json_object *audit_event(const struct audit *a, const char *kind)
{
	struct json_object *o = json_object_new_object();
	struct timespec now;
	struct tm tm;
	char text[40];
	size_t n;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	n = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text + n, sizeof(text) - n, ".%03ldZ", now.tv_nsec / 1000000);
	if (!o)
		return NULL;
	json_put_u64(o, "seq", a->next.seq + 1);
	json_put_text(o, "prev", a->next.hash);
	json_put_text(o, "time", text);
	json_put_text(o, "event", kind);
	return o;
}

static int keep(struct audit *a, const char *line, size_t len)
{
	if (a->len + len + 1 > a->cap) {
		size_t cap = MAX(a->cap * 2, a->len + len + 1);
		char *p = realloc(a->text, cap);

		if (!p)
			return -ENOMEM;
		a->text = p;
		a->cap = cap;
	}
	memcpy(a->text + a->len, line, len);
	a->text[a->len + len] = '\n';
	a->len += len + 1;
	return 0;
}

int audit_add(struct audit *a, struct json_object *event, struct nsbox_error *err)
{
	size_t len = 0;
	const char *line =
		event ? json_object_to_json_string_length(
				event, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE,
				&len)
		      : NULL;
	struct journal_chain c;
	int r;

	if (!line || keep(a, line, len) < 0)
		r = nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "write to the audit");
	else
		r = audit_chain_add(&a->next, line, len, err);
	if (r == 0) {
		c.seq = a->next.seq;
		memcpy(c.hash, a->next.hash, sizeof(c.hash));
		r = a->journal->ops->audit(a->journal, &c, line, len, err);
	}
	json_object_put(event);
	return r;
}

void audit_rollback(struct audit *a)
{
	a->next = a->chain;
	a->len = a->committed;
}

/* ------------------------------------------------------------------ the file */

static int open_file(struct audit *a, struct nsbox_error *err)
{
	a->fd = openat(a->dir_fd, NAME, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	return a->fd < 0 ? nsbox_fail(err, NSBOX_E_IO, errno, "open the audit '%s'", NAME) : 0;
}

/* Moved away: what is written from now on belongs in a new one. */
static int follow_name(struct audit *a, struct nsbox_error *err)
{
	struct stat ours, named;

	if (fstat(a->fd, &ours) == 0 &&
	    fstatat(a->dir_fd, NAME, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	    ours.st_ino == named.st_ino && ours.st_dev == named.st_dev)
		return 0;
	if (fdatasync(a->fd) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "sync the audit");
	close_fd(&a->fd);
	return open_file(a, err);
}

/* All of it or nothing: a part of a line would end the chain. */
static int append(struct audit *a, struct nsbox_error *err)
{
	struct stat st;
	int r;

	if (fstat(a->fd, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "look at the audit");
	r = write_full(a->fd, a->text, a->committed);
	if (r == 0)
		return 0;
	if (ftruncate(a->fd, st.st_size) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "cut the audit");
	nsbox_fail(err, NSBOX_E_IO, -r, "write to the audit");
	return r;
}

int audit_flush(struct audit *a, struct nsbox_error *err)
{
	int r;

	if (!a->committed)
		return 0;
	r = a->fd < 0 ? open_file(a, err) : follow_name(a, err);
	if (r == 0)
		r = append(a, err);
	if (r < 0)
		return r;
	a->len -= a->committed;
	memmove(a->text, a->text + a->committed, a->len);
	a->committed = 0;
	a->in_file = a->chain.seq;
	return 0;
}

int audit_commit(struct audit *a, struct nsbox_error *err)
{
	a->lines += a->next.seq - a->chain.seq;
	a->chain = a->next;
	a->committed = a->len;
	return audit_flush(a, err);
}

int audit_sync(struct audit *a, struct nsbox_error *err)
{
	if (a->fd < 0)
		return 0;
	if (fdatasync(a->fd) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "sync the audit");
	return a->journal->ops->audit_drop(a->journal, a->in_file, err);
}

/* ------------------------------------------------------------------ after a start */

/* The last whole line, into buf; its length, 0 for none. What is behind it is cut off. */
static int last_line(struct audit *a, char *buf, size_t size, size_t *ret_len,
		     struct nsbox_error *err)
{
	struct stat st;
	size_t n, end, begin;
	off_t from;

	*ret_len = 0;
	if (fstat(a->fd, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "look at the audit");
	n = (size_t)MIN((uint64_t)st.st_size, (uint64_t)size);
	from = st.st_size - (off_t)n;
	if (pread(a->fd, buf, n, from) != (ssize_t)n)
		return nsbox_fail(err, NSBOX_E_IO, errno, "read the audit");
	for (end = n; end > 0 && buf[end - 1] != '\n'; end--)
		;
	if (end == 0 && from > 0)
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "the audit ends in no line of ours");
	if (end < n && ftruncate(a->fd, from + (off_t)end) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "cut the audit");
	if (end == 0)
		return 0;
	for (begin = end - 1; begin > 0 && buf[begin - 1] != '\n'; begin--)
		;
	*ret_len = end - 1 - begin;
	memmove(buf, buf + begin, *ret_len);
	return 0;
}

struct catch_up {
	struct audit *a;
	struct audit_chain at; /* where the file ends, then with what is added */
	bool any;	       /* the file has lines, so that what follows has to fit */
	struct nsbox_error *err;
	int r;
};

static void on_line(void *ctx, uint64_t seq, const char *line, size_t len)
{
	struct catch_up *c = ctx;

	if (c->r < 0 || (c->any && seq <= c->at.seq))
		return;
	c->r = audit_chain_check(&c->at, !c->any, line, len, c->err);
	c->any = true;
	if (c->r == 0 && keep(c->a, line, len) < 0)
		c->r = nsbox_fail(c->err, NSBOX_E_NOMEM, ENOMEM, "read the audit");
}

static int read_end(struct audit *a, struct catch_up *c, struct nsbox_error *err)
{
	auto_free char *buf = malloc(AUDIT_LINE_MAX);
	char prev[DIGEST_HEX];
	size_t len = 0;
	int r;

	audit_chain_init(&c->at);
	if (!buf)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read the audit");
	r = last_line(a, buf, AUDIT_LINE_MAX, &len, err);
	if (r < 0 || len == 0)
		return r;
	c->any = true;
	r = audit_line_read(buf, len, &c->at.seq, prev, err);
	return r == 0 ? digest_hex(buf, len, c->at.hash, err) : r;
}

int audit_open(struct audit *a, int dir_fd, struct journal *j, struct nsbox_error *err)
{
	struct catch_up c = { .a = a, .err = err };
	struct journal_chain known;
	int r;

	*a = (struct audit){ .dir_fd = dir_fd, .fd = -1, .journal = j };
	r = open_file(a, err);
	if (r == 0)
		r = read_end(a, &c, err);
	if (r == 0)
		r = j->ops->audit_state(j, &known, on_line, &c, err);
	if (r == 0)
		r = c.r;
	if (r == 0 && c.any && (c.at.seq != known.seq || strcmp(c.at.hash, known.hash) != 0))
		r = nsbox_fail(err, NSBOX_E_INVALID, 0,
			       "it ends with line %" PRIu64 ", the journal knows %" PRIu64,
			       c.at.seq, known.seq);
	if (r < 0) {
		nsbox_error_prefix(err,
				   "the audit '%s' is not what was written; move it away, and look",
				   NAME);
		return r;
	}
	a->chain.seq = known.seq;
	memcpy(a->chain.hash, known.hash, sizeof(known.hash));
	a->next = a->chain;
	a->committed = a->len;
	a->in_file = a->chain.seq;
	return audit_flush(a, err);
}

void audit_close(struct audit *a)
{
	if (a->journal)
		close_fd(&a->fd);
	free_ptr(&a->text);
}
