/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/front/options.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"

#define DAY_S UINT64_C(86400)

struct taking {
	struct front_options *o;
	struct front_arguments *a;
};

/* ------------------------------------------------------------------ values */

static int take_text(char *place, size_t size, const char *text)
{
	size_t n = strlen(text);

	if (n == 0 || n >= size)
		return -EINVAL;
	memcpy(place, text, n + 1);
	return 0;
}

#define TEXT(name, field, test)                                                                    \
	static int on_##name(struct taking *t, const char *text)                                   \
	{                                                                                          \
		return (test) ? take_text(t->o->field, sizeof(t->o->field), text) : -EINVAL;       \
	}
#define ANY_TEXT true
#define ABSOLUTE (text[0] == '/' && text[1])
TEXT(socket, socket_path, ANY_TEXT)
TEXT(user, user, ANY_TEXT)
TEXT(tcp, tcp, ANY_TEXT)
TEXT(egress_dns, egress_dns, ANY_TEXT)
TEXT(egress_proxy, egress_proxy, ANY_TEXT)
/* Names of modules with commas between them. */
bool options_modules_ok(const char *text)
{
	static const char letters[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.,";

	return strspn(text, letters) == strlen(text);
}
TEXT(zygote, zygote, *text &&options_modules_ok(text))
TEXT(state_dir, state_dir, ABSOLUTE)
TEXT(libexec, libexec, ABSOLUTE)
TEXT(data_dir, data_dir, ABSOLUTE)
TEXT(tokens, tokens, ABSOLUTE)
TEXT(secrets, secrets, ABSOLUTE)

/* SCHEME://HOST[:PORT] and nothing behind it: a page's origin has no path. */
int options_add_origin(struct front_options *o, const char *text)
{
	const char *host = strstr(text, "://");

	if (!host || host == text || !host[3] || strchr(host + 3, '/') ||
	    o->n_origins >= OPTION_ORIGINS_MAX)
		return -EINVAL;
	return take_text(o->origins[o->n_origins], OPTION_ORIGIN_MAX, text) < 0
		       ? -EINVAL
		       : (int)(o->n_origins++, 0);
}

static int take_number(uint64_t *place, const char *text, uint64_t min, uint64_t max)
{
	return parse_u64(text, place) && *place >= min && *place <= max ? 0 : -EINVAL;
}

#define NUMBER(name, field, min, max)                                                              \
	static int on_##name(struct taking *t, const char *text)                                   \
	{                                                                                          \
		return take_number(&t->o->field, text, min, max);                                  \
	}
NUMBER(runners, runners, 1, 1000)
NUMBER(queue, queue_max, 1, 100000)
NUMBER(pool, pool, 0, 256)
NUMBER(pool_spare_mb, pool_spare_mb, 0, UINT64_C(1) << 30)
NUMBER(sessions, sessions, 1, 1000)
NUMBER(session_idle, session_idle_s, 1, 30 * DAY_S)
NUMBER(session_ttl, session_ttl_s, 1, 365 * DAY_S)
NUMBER(keep_results, keep_s, 1, 3650 * DAY_S)
NUMBER(keep_mb, keep_mb, 1, UINT64_C(1) << 30)
NUMBER(snapshots, snapshots, 1, 100000)
NUMBER(snapshot_mb, snapshot_mb, 1, UINT64_C(1) << 30)
NUMBER(keep_snapshots, snapshot_keep_s, 1, 3650 * DAY_S)
NUMBER(drain, drain_s, 0, DAY_S)
NUMBER(request_time, request_s, 1, 3600)

static int take_limit(struct taking *t, const char *text, uint64_t max, bool queue)
{
	struct workspace_limits *l = options_limits(t->o, "*");
	uint64_t n;

	if (!l || take_number(&n, text, 1, max) < 0)
		return -EINVAL;
	*(queue ? &l->queue : &l->runners) = (uint32_t)n;
	return 0;
}

static int on_workspace_runners(struct taking *t, const char *text)
{
	return take_limit(t, text, 1000, false);
}

static int on_workspace_queue(struct taking *t, const char *text)
{
	return take_limit(t, text, 100000, true);
}

static int on_workspace(struct taking *t, const char *text)
{
	return who_tie_parse(&t->o->ties, text);
}

static int take_id(uint32_t *list, unsigned *n, unsigned max, const char *text)
{
	uint64_t id;

	if (!parse_u64(text, &id) || id >= UINT32_MAX || *n >= max)
		return -EINVAL;
	list[(*n)++] = (uint32_t)id;
	return 0;
}

static int on_allow_uid(struct taking *t, const char *text)
{
	struct http_peers *p = &t->o->peers;

	return take_id(p->uids, &p->n_uids, ARRAY_SIZE(p->uids), text);
}

static int on_allow_gid(struct taking *t, const char *text)
{
	struct http_peers *p = &t->o->peers;

	return take_id(p->gids, &p->n_gids, ARRAY_SIZE(p->gids), text);
}

static int on_mcp_origin(struct taking *t, const char *text)
{
	return options_add_origin(t->o, text);
}

static int on_tcp_any(struct taking *t, const char *text)
{
	t->o->tcp_any = true;
	return 0;
}

static int on_config(struct taking *t, const char *text)
{
	t->a->config = text;
	return *text ? 0 : -EINVAL;
}

static int on_min_tier(struct taking *t, const char *text)
{
	return options_min_tier(t->o, text);
}

static int on_ceiling(struct taking *t, const char *text)
{
	t->a->ceiling = text;
	return *text ? 0 : -EINVAL;
}

static int on_check(struct taking *t, const char *text)
{
	t->a->check = true;
	return 0;
}

static int on_front(struct taking *t, const char *text)
{
	t->a->front = true;
	return 0;
}

static int on_nothing(struct taking *t, const char *text)
{
	return 0;
}

static int on_help(struct taking *t, const char *text);

static int on_version(struct taking *t, const char *text)
{
	puts("nsboxd " NSBOX_VERSION);
	return 1;
}

/* The table is the parser, the help and what the manual is checked against. */
static const struct {
	const char *name, *argument; /* argument NULL: a flag */
	int (*take)(struct taking *t, const char *text);
	const char *help; /* NULL: not shown */
} table[] = {
	/* clang-format off */
	{ "config",     "FILE", on_config,    "read this configuration file first" },
	{ "check",      NULL,   on_check,     "only say whether configuration and options are right" },
	{ "socket",     "PATH", on_socket,    "listen here (default /run/nsbox/nsbox.sock)" },
	{ "tcp",        "ADDRESS:PORT", on_tcp, "listen there too, for clients that have a token" },
	{ "tcp-any-address", NULL, on_tcp_any, "also where that is no loopback address" },
	{ "tokens",     "FILE", on_tokens,    "a line for each token: WORKSPACE TOKEN" },
	{ "secrets",    "FILE", on_secrets,   "values for secrets of manifests, JSON" },
	{ "min-tier",   "TIER", on_min_tier,  "weakest tier of runs: process, namespace (default), cgroup" },
	{ "ceiling",    "FILE", on_ceiling,   "what a run may have at most, JSON" },
	{ "user",       "NAME", on_user,      "whom the unprivileged part runs as (as root: nsbox)" },
	{ "allow-uid",  "N",    on_allow_uid, "a user who may use the service; may be repeated" },
	{ "allow-gid",  "N",    on_allow_gid, "a group that may use the service; may be repeated" },
	{ "workspace",  "UID=NAME", on_workspace, "tie a user to a workspace; may be repeated" },
	{ "mcp-origin", "ORIGIN", on_mcp_origin, "pages of this origin may use MCP; may be repeated" },
	{ "runners",    "N",    on_runners,   "runs at the same time (default: two per CPU)" },
	{ "queue",      "N",    on_queue,     "jobs that may wait (default 1000)" },
	{ "zygote",     "LIST", on_zygote, "fork interpreters of functions from one that has these modules, or \"none\"" },
	{ "pool",       "N",    on_pool,      "runs of functions and commands that are made ahead (default 0)" },
	{ "pool-spare-mb", "MB", on_pool_spare_mb, "none while the machine has less memory than this to spare (default 256)" },
	{ "workspace-runners", "N", on_workspace_runners, "of these, for one workspace (default: all)" },
	{ "workspace-queue", "N", on_workspace_queue, "jobs of one workspace that may wait (default: all)" },
	{ "sessions",   "N",    on_sessions,  "sandboxes that are kept between commands (default 256)" },
	{ "session-idle", "SECONDS", on_session_idle, "a session without a command ends after (default 1800)" },
	{ "session-ttl", "SECONDS", on_session_ttl, "a session ends after (default 86400)" },
	{ "snapshots",  "N",    on_snapshots, "states of sessions' files that are kept (default 64)" },
	{ "snapshot-mb", "MB",  on_snapshot_mb, "of so much in all (default 4096)" },
	{ "keep-snapshots", "SECONDS", on_keep_snapshots, "and for so long (default 604800)" },
	{ "keep-results", "SECONDS", on_keep_results, "how long results are kept (default 86400)" },
	{ "keep-mb",    "MB",   on_keep_mb,   "how much of results is kept (default 1024)" },
	{ "request-time", "SECONDS", on_request_time, "for the head of a request, five times that for its body (default 60)" },
	{ "drain",      "SECONDS", on_drain,  "what runs may take so long when TERM comes (default 30)" },
	{ "data-dir",   "DIR",  on_data_dir,  "queue, results, audit (default: front in the state directory)" },
	{ "state-dir",  "DIR",  on_state_dir, "where images are kept (default /var/lib/nsbox as root)" },
	{ "libexec",    "DIR",  on_libexec,   "where nsbox-spawn and the workers are" },
	{ "egress-dns", "ADDRESS[:PORT],...", on_egress_dns, "name servers for runs (default: of resolv.conf)" },
	{ "egress-proxy", "URL", on_egress_proxy, "a proxy that connects for runs: socks5:// or http://HOST:PORT" },
	{ "foreground", NULL,   on_nothing,   "stay in the foreground (always so)" },
	{ "help",       NULL,   on_help,      "show this" },
	{ "version",    NULL,   on_version,   "show the version" },
	{ "front",      NULL,   on_front,     NULL },
	/* clang-format on */
};

static int on_help(struct taking *t, const char *text)
{
	puts("usage: nsboxd [OPTION]...\n\nRuns untrusted code in sandboxes, on request over a "
	     "Unix socket.\n");
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		char left[40];

		if (!table[i].help)
			continue;
		snprintf(left, sizeof(left), "--%s %s", table[i].name,
			 table[i].argument ? table[i].argument : "");
		printf("  %-23s %s\n", left, table[i].help);
	}
	return 1;
}

/* ------------------------------------------------------------------ the whole */

void options_default(struct front_options *o)
{
	*o = (struct front_options){ .socket_path = "/run/nsbox/nsbox.sock",
				     .queue_max = 1000,
				     .keep_s = DAY_S,
				     .keep_mb = 1024,
				     .pool_spare_mb = 256,
				     .sessions = 256,
				     .session_commands = 8,
				     .session_idle_s = 1800,
				     .session_ttl_s = DAY_S,
				     .snapshots = 64,
				     .snapshot_mb = 4096,
				     .snapshot_keep_s = 7 * DAY_S,
				     .request_s = OPTION_REQUEST_S,
				     .drain_s = OPTION_DRAIN_S };
}

int options_parse(int argc, char **argv, struct front_options *o, struct front_arguments *ret)
{
	struct option options[ARRAY_SIZE(table) + 1] = { 0 };
	struct taking t = { .o = o, .a = ret };
	int i, c, r;

	*ret = (struct front_arguments){ .argc = argc, .argv = argv };
	for (size_t k = 0; k < ARRAY_SIZE(table); k++)
		options[k] = (struct option){ table[k].name,
					      table[k].argument ? required_argument : no_argument,
					      NULL, 'o' };
	optind = 0; /* it may be read again, after a change of the file */
	while ((c = getopt_long(argc, argv, "", options, &i)) != -1) {
		if (c != 'o')
			return -EINVAL; /* getopt_long has said why */
		r = table[i].take(&t, optarg);
		if (r > 0)
			return r;
		if (r < 0) {
			fprintf(stderr, "nsboxd: --%s: '%s' is not allowed\n", table[i].name,
				optarg);
			return -EINVAL;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "nsboxd: '%s' is not understood\n", argv[optind]);
		return -EINVAL;
	}
	return 0;
}

static int consistent(const struct front_options *o, struct nsbox_error *err)
{
	if (*o->tcp && !*o->tokens)
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "TCP '%s' needs a file of tokens: tcp.tokens, or --tokens",
				  o->tcp);
	if (*o->tokens && !*o->tcp)
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "tokens are for clients over TCP, and no address is given: "
				  "tcp.listen, or --tcp");
	return 0;
}

int options_load(const struct front_arguments *a, struct front_options *ret,
		 struct nsbox_error *err)
{
	struct front_arguments again;
	int r;

	options_default(ret);
	r = a->config ? config_read(a->config, ret, err) : 0;
	if (r == 0 && options_parse(a->argc, a->argv, ret, &again) != 0)
		r = nsbox_fail(err, NSBOX_E_INVALID, 0, "the command line does not go with '%s'",
			       a->config);
	if (r == 0 && a->ceiling)
		r = config_read_ceiling(a->ceiling, &ret->ceiling, err);
	return r == 0 ? consistent(ret, err) : r;
}

#define FIXED(field, name, is_text)                                                                \
	{                                                                                          \
		offsetof(struct front_options, field), sizeof(((struct front_options *)0)->field), \
			name, is_text                                                              \
	}
static const struct {
	size_t offset, size;
	const char *name;
	bool text;
} fixed[] = {
	FIXED(socket_path, "socket", true),	FIXED(user, "user", true),
	FIXED(state_dir, "stateDir", true),	FIXED(libexec, "libexec", true),
	FIXED(data_dir, "dataDir", true),	FIXED(tcp, "tcp.listen", true),
	FIXED(egress_dns, "egressDns", true),	FIXED(egress_proxy, "egressProxy", true),
	FIXED(zygote, "zygote", true),		FIXED(min_tier, "minTier", false),
	FIXED(request_s, "requestTime", false), FIXED(shares, "workspaces.directory", false),
};

const char *options_fixed(const struct front_options *was, const struct front_options *is)
{
	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++) {
		const char *a = (const char *)was + fixed[i].offset;
		const char *b = (const char *)is + fixed[i].offset;

		if (fixed[i].text ? strncmp(a, b, fixed[i].size) : memcmp(a, b, fixed[i].size))
			return fixed[i].name;
	}
	return NULL;
}

struct workspace_limits *options_limits(struct front_options *o, const char *workspace)
{
	for (unsigned i = 0; i < o->n_limits; i++)
		if (strcmp(o->limits[i].name, workspace) == 0)
			return &o->limits[i];
	if (o->n_limits == ARRAY_SIZE(o->limits) || strlen(workspace) >= sizeof(o->limits[0].name))
		return NULL;
	strcpy(o->limits[o->n_limits].name, workspace);
	return &o->limits[o->n_limits++];
}

int options_min_tier(struct front_options *o, const char *text)
{
	for (int t = NSBOX_TIER_PROCESS; t <= NSBOX_TIER_CGROUP; t++)
		if (strcmp(text, nsbox_tier_name(t)) == 0) {
			o->min_tier = (uint32_t)t;
			return 0;
		}
	return -EINVAL;
}

bool options_shares(const struct front_options *o, const char *workspace)
{
	for (unsigned i = 0; i < o->n_shares; i++)
		if (strcmp(o->shares[i].name, workspace) == 0)
			return true;
	return false;
}

struct workspace_limits options_limits_of(const struct front_options *o, const char *workspace)
{
	struct workspace_limits others = { 0 };

	for (unsigned i = 0; i < o->n_limits; i++) {
		if (strcmp(o->limits[i].name, workspace) == 0)
			return o->limits[i];
		if (strcmp(o->limits[i].name, "*") == 0)
			others = o->limits[i];
	}
	return others;
}
