/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Model Context Protocol: what runs in a session's sandbox, and functions that were registered,
 * as tools of a language model.
 *
 * Two eras are spoken at the same paths. Up to 2025-11-25 a client says `initialize` first and gets
 * an MCP session (struct mcp_session), whose event streams can be resumed; the HTTP+SSE transport of
 * 2024-11-05 is such a session with one stream. Since 2026-07-28 each request stands for itself.
 *
 *	mcp.c		what comes by HTTP: who, from where, which era
 *	mcp_rpc.c	JSON-RPC messages
 *	mcp_session.c	MCP sessions
 *	mcp_stream.c	where answers go: a body, or a stream of events
 *	mcp_methods.c	what can be asked for
 *	mcp_call.c	a tool that is being called
 *	mcp_tools.c	the tools of a session, mcp_tools.json what is told of them
 *	mcp_functions.c	registered functions as tools
 *
 * A tool acts by requests of our own (http_inner()) to the interface that everybody uses: one way
 * for everything, with the same limits, journal and audit.
 */
#ifndef FRONT_MCP_H
#define FRONT_MCP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/front/loop.h"
#include "daemon/front/session.h"
#include "daemon/front/who.h"

struct front;
struct http_request;
struct json_object;

#define MCP_SESSIONS_MAX     256	 /* of MCP, in all, */
#define MCP_SESSIONS_WHO_MAX 64		 /* of one client, */
#define MCP_SESSION_IDLE_S   1800	 /* and how long one may be left alone */
#define MCP_STREAMS_MAX	     128	 /* open connections with events */
#define MCP_CALLS_MAX	     64		 /* that go on, of one client */
#define MCP_BATCH_MAX	     32		 /* messages in one body */
#define MCP_KEPT_STREAMS_MAX 32		 /* that are over, of a session, to be resumed, */
#define MCP_KEPT_BYTES_MAX   (8u << 20)	 /* and of so many bytes */
#define MCP_EVENTS_MAX	     256	 /* kept of one stream */
#define MCP_DEPTH_MAX	     64		 /* containers within each other */
#define MCP_NODES_MAX	     200000	 /* values of one body */
#define MCP_READ_MAX	     (1u << 20)	 /* bytes that read_file and edit_file take of a file */
#define MCP_READ_LAST	     "1048575"	 /* the last of them, from 0 */
#define MCP_WRITE_MAX	     (32u << 20) /* that write_file takes */
#define MCP_WORKSPACE_SIZE   (WHO_WORKSPACE_MAX + 1)

/* Oldest first, as the dates sort. */
enum mcp_version {
	MCP_2024_11_05,
	MCP_2025_03_26,
	MCP_2025_06_18,
	MCP_2025_11_25,
	MCP_2026_07_28,
	MCP_VERSION_MAX,
};
#define MCP_LEGACY_LAST MCP_2025_11_25
extern const char *const mcp_versions[MCP_VERSION_MAX];
/* MCP_VERSION_MAX: unknown */
enum mcp_version mcp_version_of(const char *text);

enum mcp_code {
	MCP_E_PARSE = -32700,
	MCP_E_REQUEST = -32600,
	MCP_E_METHOD = -32601,
	MCP_E_PARAMS = -32602,
	MCP_E_INTERNAL = -32603,
	MCP_E_HEADER = -32020,
	MCP_E_VERSION = -32022,
};

/* What a path stands for, and what a request says of who it is. */
struct mcp_place {
	bool functions; /* /mcp/tools/ID; else a session's */
	char workspace[MCP_WORKSPACE_SIZE], id[SESSION_ID_MAX + 1];
};

struct mcp_client {
	uid_t uid;
	bool tied; /* by a token, to `workspace` */
	char workspace[MCP_WORKSPACE_SIZE];
};

struct mcp_stream;
struct mcp_call;
struct mcp_session;

/* All of it. */
struct mcp {
	struct front *f;
	struct mcp_session *sessions;
	struct mcp_stream *loose; /* of requests that stand for themselves */
	unsigned n_sessions, open_streams;
	struct json_object *tools; /* mcp_tools.json */
	struct loop_timer sweep;
};

struct mcp_session {
	struct mcp_session *next;
	struct mcp *m;
	char id[48];
	struct mcp_place place;
	struct mcp_client client;
	enum mcp_version version;
	bool sse;	  /* the transport of 2024-11-05 */
	bool initialized; /* has a version */
	uint64_t used_us, numbers;
	struct mcp_stream *streams;
};

/* What one message is handled with. */
struct mcp_turn {
	struct mcp *m;
	struct mcp_session *session; /* NULL: the message stands for itself */
	struct mcp_stream *stream;   /* where its answer goes */
	const struct mcp_place *place;
	const struct mcp_client *client;
	enum mcp_version version;
};

int mcp_new(struct front *f, struct mcp **ret, struct nsbox_error *err);
void mcp_free(struct mcp *m);
/* The front is about to end: no stream keeps it. */
void mcp_close(struct mcp *m);
/* /mcp/... */
void mcp_post(struct front *f, struct http_request *rq, const char *rest);
void mcp_get(struct front *f, struct http_request *rq, const char *rest);
void mcp_delete(struct front *f, struct http_request *rq, const char *rest);
/* The client of a request that waits is gone; false: it is none of ours. */
bool mcp_gone(struct front *f, struct http_request *rq);
/* The functions of a registered tool are others now, or gone. */
void mcp_tool_changed(struct mcp *m, const char *id);

/* mcp_rpc.c. `id` is borrowed; NULL: null. Results and data are taken. */
struct json_object *mcp_result_new(struct json_object *id, struct json_object *result);
struct json_object *mcp_error_new(struct json_object *id, int code, struct json_object *data,
				  const char *fmt, ...) __attribute__((format(printf, 4, 5)));
struct json_object *mcp_notification_new(const char *method, struct json_object *params);
/* The text of a member that is a string, else NULL. */
const char *mcp_text(struct json_object *o, const char *key);
struct json_object *mcp_member(struct json_object *o, const char *key);
struct mcp_message {
	const char *method;	    /* NULL: an answer to a request, which nobody has asked */
	struct json_object *id;	    /* of a request; NULL: a notification */
	struct json_object *params; /* an object, or NULL */
	const char *version;	    /* that it stands for by itself; NULL: none is named */
};
/* 0, or the code of what is wrong with it, *why in words. */
int mcp_message_read(struct json_object *o, struct mcp_message *ret, const char **why);
struct json_object *mcp_server_info(void);
/* {"code", "message"} of a reply of the interface, as words; borrowed from `reply`. */
const char *mcp_reply_error(struct json_object *reply);

/* mcp_session.c */
/* What it may see; borrows from the client. */
void mcp_who(const struct mcp *m, const struct mcp_client *client, struct who *ret);
bool mcp_client_same(const struct mcp_client *a, const struct mcp_client *b);
/* NULL: there are too many (*why), or no memory. */
struct mcp_session *mcp_session_new(struct mcp *m, const struct mcp_place *place,
				    const struct mcp_client *client, const char **why);
/* The one with this id, as far as this client and place may know of it. */
struct mcp_session *mcp_session_find(struct mcp *m, const char *id, const struct mcp_place *place,
				     const struct mcp_client *client);
/* Ends what goes on in it, and closes its streams. */
void mcp_session_end(struct mcp_session *s);
void mcp_sweep(void *ctx);

/* mcp_stream.c */
enum mcp_form {
	MCP_BODY,   /* one JSON text, when all is known */
	MCP_EVENTS, /* as it comes */
};
struct mcp_event {
	struct mcp_event *next;
	uint64_t seq;
	size_t len;
	char text[];
};
struct mcp_stream {
	struct mcp_stream *next; /* of its session, or loose */
	struct mcp *m;
	struct mcp_session *session; /* NULL: loose */
	uint64_t number;
	enum mcp_form form;
	bool ids;   /* events can be resumed */
	bool keep;  /* open for as long as somebody reads it, not for answers */
	bool batch; /* the answers are a list */
	bool over;  /* nothing more comes */
	struct mcp_client client;
	struct mcp_place place;
	unsigned pending;	     /* answers that are due */
	struct http_request *rq;     /* who waits for the body, NULL: nobody */
	struct mcp_reader *reader;   /* who reads the events, NULL: nobody */
	struct json_object *answers; /* of a body */
	struct json_object *listen;  /* id of subscriptions/listen; NULL: none */
	int status;		     /* of the body */
	struct mcp_event *first, *last;
	unsigned n_events;
	uint64_t seq;
	size_t bytes;
	struct mcp_call *calls;
};
/* session NULL: loose */
struct mcp_stream *mcp_stream_new(struct mcp *m, struct mcp_session *s, enum mcp_form form,
				  const struct mcp_place *place, const struct mcp_client *client);
/* A connection gets what comes after event `after`. Answered in any case; false: it gets nothing. */
bool mcp_stream_attach(struct mcp_stream *st, struct http_request *rq, uint64_t after);
/* It waits for the body. */
void mcp_stream_wait(struct mcp_stream *st, struct http_request *rq);
/* A message that is no answer. Taken. */
void mcp_stream_send(struct mcp_stream *st, struct json_object *message);
/* An event of the transport's own. */
void mcp_stream_event(struct mcp_stream *st, const char *name, const char *data);
/* One of the answers that are due; NULL: there will be none. Taken. May free the stream. */
void mcp_stream_answer(struct mcp_stream *st, struct json_object *message, int status);
void mcp_stream_end(struct mcp_stream *st);
void mcp_stream_free(struct mcp_stream *st);
/* What is over makes room, oldest first. */
void mcp_stream_trim(struct mcp_session *s);
struct mcp_stream *mcp_stream_find(struct mcp_session *s, uint64_t number);

/* mcp_methods.c: handle one message; what it asks for is answered into its stream. */
void mcp_handle(const struct mcp_turn *t, const struct mcp_message *msg);
/* {"supported", "requested"} */
struct json_object *mcp_version_error(struct json_object *id, const char *asked);
/* {"type": "text", ...} and the same as structuredContent (taken). */
struct json_object *mcp_tool_result(enum mcp_version v, struct json_object *structured,
				    bool is_error);

/* mcp_call.c */
typedef void mcp_answered_fn(struct mcp_call *c, int status, struct json_object *reply,
			     const char *body, size_t len);
struct mcp_call {
	struct mcp_call *next; /* of the stream */
	struct mcp_stream *stream;
	struct mcp *m;
	enum mcp_version version;
	struct json_object *id, *token; /* of progress, NULL: none is wanted */
	const struct mcp_tool *tool;
	struct json_object *args, *kept;
	struct http_request *inner; /* what it waits for */
	mcp_answered_fn *answered;
	struct loop_timer tick;
	uint64_t began_us;
	unsigned told; /* of its progress */
	char *text;    /* what a tool keeps from one step to the next */
};
struct mcp_tool {
	const char *name;
	const struct json_field *fields;
	size_t n_fields;
	bool in_session; /* whose sandbox has to be there */
	void (*start)(struct mcp_call *c);
};
/* Takes nothing; the answer comes into the turn's stream. */
void mcp_call_start(const struct mcp_turn *t, const struct mcp_message *msg,
		    const struct mcp_tool *tool, struct json_object *args,
		    struct json_object *kept);
/* The request with this id, as far as it goes on. */
bool mcp_call_cancel(struct mcp_stream *st, struct json_object *id);
void mcp_call_drop(struct mcp_call *c);
unsigned mcp_calls_of(const struct mcp *m, const struct mcp_client *client);
struct mcp_ask {
	const char *method, *path;
	const char *const *query, *const *headers;
	struct json_object *body; /* taken */
	const char *raw;	  /* or bytes */
	size_t len;
};
void mcp_call_ask(struct mcp_call *c, const struct mcp_ask *ask, mcp_answered_fn *answered);
/* The end of it; `structured` is taken. */
void mcp_call_done(struct mcp_call *c, struct json_object *structured, bool is_error);
void mcp_call_fail(struct mcp_call *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* That of a reply which is no success. */
void mcp_call_fail_reply(struct mcp_call *c, struct json_object *reply, int status);

/* mcp_tools.c */
const struct mcp_tool *mcp_tool_find(const char *name);
int mcp_tools_read(struct json_object **ret, struct nsbox_error *err);

/* mcp_functions.c: of a registered tool */
/* Its functions, as tools/list has them; NULL: there is no such tool, or not for this client. */
struct json_object *mcp_functions_list(struct mcp *m, const struct mcp_place *place,
				       const struct mcp_client *client);
/* false: it has no such function, or is none. */
bool mcp_functions_call(const struct mcp_turn *t, const struct mcp_message *msg, const char *name,
			struct json_object *args);
bool mcp_functions_there(struct mcp *m, const struct mcp_place *place,
			 const struct mcp_client *client);

#endif
