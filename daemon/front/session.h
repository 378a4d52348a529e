/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: sandboxes that are kept, and the jobs that run in them.
 *
 *	new -> making -> up -> over
 *
 *	new      a job that waits in the queue has named it; nothing of it exists
 *	making   its first job has come to its turn: files, plan, and nsbox-spawn are under way
 *	up       commands run in it, several at once; or none does
 *	over     ended: by a client, by time, by its number of commands, because it could not be made,
 *	         or because its init ended
 *
 * What fixes the policy (image, manifest, resources, skill) is said by the first job; later ones
 * say nothing about it, or the same, or a manifest that is narrower (session_narrow.h). A session that is over is forgotten: its name makes a new one.
 */
#ifndef FRONT_SESSION_H
#define FRONT_SESSION_H

#include "daemon/common/compile.h"
#include "daemon/common/wire.h"
#include "daemon/front/loop.h"
#include "daemon/front/session_network.h"
#include "daemon/front/who.h"

struct front;
struct input;
struct job;
struct job_spec;
struct json_object;
struct recipe;
struct snapshot;

#define SESSION_ID_MAX 127 /* bytes */

enum session_state { SESSION_NEW, SESSION_MAKING, SESSION_UP, SESSION_OVER };

struct session {
	struct session *next;
	struct front *f;
	unsigned refs;	 /* of jobs, and one of the list */
	uint64_t number; /* of the sandbox on the wire */
	char id[SESSION_ID_MAX + 1];
	char *workspace;
	uid_t uid;
	enum session_state state;
	char terms[65]; /* hash of what fixes the policy; "": it was narrowed since, and is none */
	char *image;	/* as its maker's request has it, "" for none */
	unsigned held;	/* jobs that wait or run */
	uint32_t commands; /* so far */
	uint32_t promised; /* and those that wait */
	uint32_t max_commands;
	uint64_t idle_s, ttl_s;
	uint64_t created_unix_ms, created_us, used_us;
	struct loop_timer timer;
	struct snapshot *from; /* what it begins with, until it is made; NULL: nothing */
	unsigned frozen;       /* its files are being taken: no command starts */

	/* Once it is made: */
	struct recipe *recipe;
	char *manifest; /* of recipe->manifest_len bytes, NULL for none */
	struct compile_reply *plan;
	struct wire_output *rules;
	uint32_t n_rules;
	char image_digest[80], manifest_sha256[65], policy_sha256[65], plan_sha256[65];
	struct nsbox_plan
		*narrower; /* for commands that start from now on; NULL: that of the sandbox */
	struct session_network network;
	struct input *hidden; /* values of secrets that its commands had */
	size_t n_hidden;
	bool ready;
	struct nsbox_result set_up; /* of its READY */
};

/* What a job may do when its turn has come. */
enum session_turn { SESSION_MAKE, SESSION_WAIT, SESSION_ENTER };

/* session_join.c: before it is queued, the session that a job names, made where there is none. -EAGAIN: there are
 * too many, or too much is going on in it; -EEXIST: it is not as this job wants it. */
int session_join(struct front *f, const struct who *who, const char *workspace,
		 const struct job_spec *spec, struct session **ret, struct nsbox_error *err);
/* Does the request ask for another policy than the session's commands have? */
bool session_differs(const struct session *s, const struct job_spec *spec);
/* The job is over, or was not taken. */
void session_leave(struct session *s, struct job *j);
enum session_turn session_begin(struct session *s, struct job *j);
/* The maker's: nsbox-spawn was asked for it, or it cannot be made. */
int session_made(struct session *s, const struct job *j, int plan_fd, struct nsbox_error *err);
void session_failed(struct session *s, const struct nsbox_error *why);
/* An event that is about the sandbox and not about a program. */
void session_event(struct session *s, struct wire_event *w);
/* Its files are being taken, and were. */
void session_freeze(struct session *s);
void session_thaw(struct session *s);
/* End it, and what runs in it with this cause. */
void session_end(struct session *s, uint32_t cause, const char *why);

/* Between the files of sessions: one more holds it; a limit is lowered to a wish, in whole seconds, one
 * at least, where there is one (0: none). */
struct session *session_ref(struct session *s);
void session_lower(uint64_t *limit, uint64_t ms);

/* session_show.c */
struct session *session_by_number(struct front *f, uint64_t number);
/* Those that a client may see: how many have this id (and, not NULL, workspace), and one of them. */
unsigned session_find(struct front *f, const struct who *who, const char *id, const char *workspace,
		      struct session **ret);
unsigned sessions_alive(const struct front *f);
void sessions_close(struct front *f);
struct json_object *session_object(const struct session *s);
/* What a job's reply says of it. */
struct json_object *session_note(const struct session *s, const struct job *j);

#endif
