/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the service is told to be: defaults, then the configuration file, then the command line.
 *
 * One struct without pointers, so that it can go from the worker that reads the file to the
 * supervisor, and from there to the front, as it is.
 */
#ifndef FRONT_OPTIONS_H
#define FRONT_OPTIONS_H

#include <nsbox/policy.h>
#include <sys/types.h>

#include "daemon/front/who.h"

#define OPTION_PATH_MAX	   1024
#define OPTION_ZYGOTE_MAX  512
#define OPTION_LIMITS_MAX  64
#define OPTION_SHARES_MAX  32
#define OPTION_DRAIN_S	   30
#define OPTION_REQUEST_S   60
#define OPTION_TOKEN_LINES 256
#define OPTION_ORIGINS_MAX 16
#define OPTION_ORIGIN_MAX  128

/* Who may speak: root always, and these. */
struct http_peers {
	uid_t uids[32];
	unsigned n_uids;
	gid_t gids[32];
	unsigned n_gids;
};

/* Of one workspace, or of each that has no entry of its own; 0: no limit. */
struct workspace_limits {
	char name[WHO_WORKSPACE_MAX + 1]; /* "*" for the others */
	uint32_t runners, queue;
	uint64_t cpu_s; /* processor seconds within an hour */
};

/* The directory of the host that runs of a workspace share where their filesystem.workspace is "rw". */
struct workspace_share {
	char name[WHO_WORKSPACE_MAX + 1];
	char directory[OPTION_PATH_MAX];
};

struct front_options {
	/* Fixed while the service runs: */
	struct workspace_share shares[OPTION_SHARES_MAX];
	unsigned n_shares;
	char socket_path[108];
	char user[64]; /* whom the front becomes; "": "nsbox" as root, else the caller */
	char state_dir[OPTION_PATH_MAX], libexec[OPTION_PATH_MAX]; /* "": defaults */
	char data_dir[OPTION_PATH_MAX];
	char egress_dns[256];	/* name servers of runs, "": those of resolv.conf */
	char egress_proxy[256]; /* that connects for runs, "": none */
	char tcp[80];		/* ADDRESS:PORT, "" for none */
	bool tcp_any;		/* also where that is no loopback address */
	uint32_t min_tier;	/* enum nsbox_tier: the weakest that runs may have; 0: namespace */
	/* Files that the supervisor opens for the front, "" for none: */
	char tokens[OPTION_PATH_MAX], secrets[OPTION_PATH_MAX];
	char zygote[OPTION_ZYGOTE_MAX]; /* modules, with commas, or "none"; "": there is none */
	/* The rest can be changed by a reload: */
	uint64_t runners, queue_max; /* runners 0: two for each processor */
	uint64_t pool;		     /* runs of functions that are made ahead, at most */
	uint64_t pool_spare_mb;	     /* and none while less memory is available */
	uint64_t keep_s, keep_mb;    /* results */
	uint64_t sessions;	     /* at most so many, */
	uint64_t session_commands;   /* commands of one at the same time, */
	uint64_t session_idle_s;     /* and how long one may be left alone, */
	uint64_t session_ttl_s;	     /* and may live */
	uint64_t snapshots;	     /* at most so many, */
	uint64_t snapshot_mb;	     /* of so much in all, */
	uint64_t snapshot_keep_s;    /* and for so long */
	uint64_t request_s;	     /* for the head of a request, and the more for the rest */
	uint64_t drain_s;	     /* how long what runs may take when the service ends */
	struct http_peers peers;
	/* Pages elsewhere that may use MCP, as browsers say them: "https://host:port" */
	char origins[OPTION_ORIGINS_MAX][OPTION_ORIGIN_MAX];
	unsigned n_origins;
	struct who_ties ties;
	struct workspace_limits limits[OPTION_LIMITS_MAX];
	unsigned n_limits;
	struct nsbox_ceiling ceiling;
};

/* What the command line alone says. */
struct front_arguments {
	const char *config, *ceiling; /* files, NULL for none */
	bool check, front;
	int argc;
	char **argv;
};

/* An origin into the list; 0 or -EINVAL. */
bool options_modules_ok(const char *text);
int options_add_origin(struct front_options *o, const char *text);
void options_default(struct front_options *o);
/*
 * The command line over what is in *o. Prints what is wrong, --help and --version; 0, a negative
 * errno, or 1 where it has printed what was asked for.
 */
int options_parse(int argc, char **argv, struct front_options *o, struct front_arguments *ret);
/* Defaults, file, command line; and whether that fits together. */
int options_load(const struct front_arguments *a, struct front_options *ret,
		 struct nsbox_error *err);
/* The name of what would have to change in a running service and cannot; NULL: nothing. */
const char *options_fixed(const struct front_options *was, const struct front_options *is);
/* The entry for a workspace, made where there is none; NULL: there are too many. */
struct workspace_limits *options_limits(struct front_options *o, const char *workspace);
/* A tier's name into what runs have at least; 0 or -EINVAL. */
int options_min_tier(struct front_options *o, const char *text);
bool options_shares(const struct front_options *o, const char *workspace);
/* That of a workspace, else that of "*", else none at all. */
struct workspace_limits options_limits_of(const struct front_options *o, const char *workspace);

/* config.c: the text of a configuration file over what is in *o. */
int config_parse(const char *text, size_t len, struct front_options *o, struct nsbox_error *err);
/* config_read.c: the same of a file, in a process that may do nothing else; and a ceiling's. */
int config_read(const char *path, struct front_options *o, struct nsbox_error *err);
int config_read_ceiling(const char *path, struct nsbox_ceiling *ret, struct nsbox_error *err);

#endif
