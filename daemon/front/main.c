/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nsboxd: the command line. The same program is the supervisor and, started by it with --front as
 * its first argument, the front.
 */
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "daemon/front/supervisor.h"
#include "nsbox/util.h"

struct arguments {
	struct front_options opt;
	char libexec[4096];
	bool front;
};

static int take_string(const char **place, const char *text)
{
	*place = text;
	return *text ? 0 : -EINVAL;
}

static int on_socket(struct arguments *a, const char *text)
{
	return take_string(&a->opt.socket_path, text);
}

static int on_user(struct arguments *a, const char *text)
{
	return take_string(&a->opt.user, text);
}

static int on_state_dir(struct arguments *a, const char *text)
{
	return text[0] == '/' ? take_string(&a->opt.state_dir, text) : -EINVAL;
}

static int on_libexec(struct arguments *a, const char *text)
{
	return text[0] == '/' ? take_string(&a->opt.libexec, text) : -EINVAL;
}

static int on_data_dir(struct arguments *a, const char *text)
{
	return text[0] == '/' && text[1] ? take_string(&a->opt.data_dir, text) : -EINVAL;
}

static int take_number(uint64_t *place, const char *text, uint64_t min, uint64_t max)
{
	return parse_u64(text, place) && *place >= min && *place <= max ? 0 : -EINVAL;
}

static int on_workspace_runners(struct arguments *a, const char *text)
{
	return take_number(&a->opt.workspace_runners, text, 1, 1000);
}

static int on_workspace_queue(struct arguments *a, const char *text)
{
	return take_number(&a->opt.workspace_queue, text, 1, 100000);
}

static int on_keep_results(struct arguments *a, const char *text)
{
	return take_number(&a->opt.keep_s, text, 1, UINT64_C(3650) * 86400);
}

static int on_keep_mb(struct arguments *a, const char *text)
{
	return take_number(&a->opt.keep_mb, text, 1, UINT64_C(1) << 30);
}

static int on_workspace(struct arguments *a, const char *text)
{
	return who_tie_parse(&a->opt.ties, text);
}

static int on_runners(struct arguments *a, const char *text)
{
	return take_number(&a->opt.runners, text, 1, 1000);
}

static int on_queue(struct arguments *a, const char *text)
{
	return take_number(&a->opt.queue_max, text, 1, 100000);
}

static int take_id(uint32_t *list, unsigned *n, unsigned max, const char *text)
{
	uint64_t id;

	if (!parse_u64(text, &id) || id >= UINT32_MAX || *n >= max)
		return -EINVAL;
	list[(*n)++] = (uint32_t)id;
	return 0;
}

static int on_allow_uid(struct arguments *a, const char *text)
{
	return take_id(a->opt.peers.uids, &a->opt.peers.n_uids, ARRAY_SIZE(a->opt.peers.uids),
		       text);
}

static int on_allow_gid(struct arguments *a, const char *text)
{
	return take_id(a->opt.peers.gids, &a->opt.peers.n_gids, ARRAY_SIZE(a->opt.peers.gids),
		       text);
}

static int on_front(struct arguments *a, const char *text)
{
	a->front = true;
	return 0;
}

static int on_nothing(struct arguments *a, const char *text)
{
	return 0;
}

static int on_help(struct arguments *a, const char *text);

static int on_version(struct arguments *a, const char *text)
{
	puts("nsboxd " NSBOX_VERSION);
	exit(0);
}

/* The table is the parser, the help and what the manual is checked against. */
static const struct {
	const char *name, *argument; /* argument NULL: a flag */
	int (*take)(struct arguments *a, const char *text);
	const char *help; /* NULL: not shown */
} table[] = {
	/* clang-format off */
	{ "socket",     "PATH", on_socket,    "listen here (default /run/nsbox/nsbox.sock)" },
	{ "user",       "NAME", on_user,      "whom the unprivileged part runs as (as root: nsbox)" },
	{ "allow-uid",  "N",    on_allow_uid, "a user who may use the service; may be repeated" },
	{ "allow-gid",  "N",    on_allow_gid, "a group that may use the service; may be repeated" },
	{ "workspace",  "UID=NAME", on_workspace, "tie a user to a workspace; may be repeated" },
	{ "runners",    "N",    on_runners,   "runs at the same time (default: two per CPU)" },
	{ "queue",      "N",    on_queue,     "jobs that may wait (default 1000)" },
	{ "workspace-runners", "N", on_workspace_runners, "of these, for one workspace (default: all)" },
	{ "workspace-queue", "N", on_workspace_queue, "jobs of one workspace that may wait (default: all)" },
	{ "keep-results", "SECONDS", on_keep_results, "how long results are kept (default 86400)" },
	{ "keep-mb",    "MB",   on_keep_mb,   "how much of results is kept (default 1024)" },
	{ "data-dir",   "DIR",  on_data_dir,  "queue, results, audit (default: front in the state directory)" },
	{ "state-dir",  "DIR",  on_state_dir, "where images are kept (default /var/lib/nsbox as root)" },
	{ "libexec",    "DIR",  on_libexec,   "where nsbox-spawn and the workers are" },
	{ "foreground", NULL,   on_nothing,   "stay in the foreground (always so)" },
	{ "help",       NULL,   on_help,      "show this" },
	{ "version",    NULL,   on_version,   "show the version" },
	{ "front",      NULL,   on_front,     NULL },
	/* clang-format on */
};

static int on_help(struct arguments *a, const char *text)
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
	exit(0);
}

static int parse(struct arguments *a, int argc, char **argv)
{
	struct option options[ARRAY_SIZE(table) + 1] = { 0 };
	int i, c;

	for (size_t k = 0; k < ARRAY_SIZE(table); k++)
		options[k] = (struct option){ table[k].name,
					      table[k].argument ? required_argument : no_argument,
					      NULL, 'o' };
	while ((c = getopt_long(argc, argv, "", options, &i)) != -1) {
		if (c != 'o')
			return -EINVAL; /* getopt_long has said why */
		if (table[i].take(a, optarg) < 0) {
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

/* Where the workers are: as told, else beside this program (a build tree), else as installed. */
static void find_libexec(struct arguments *a)
{
	char spawn[4200];
	ssize_t n;
	char *slash;

	if (a->opt.libexec)
		return;
	a->opt.libexec = NSBOX_LIBEXECDIR;
	n = readlink("/proc/self/exe", a->libexec, sizeof(a->libexec) - 1);
	slash = n > 0 ? strrchr(a->libexec, '/') : NULL;
	if (!slash)
		return;
	*slash = 0;
	snprintf(spawn, sizeof(spawn), "%s/nsbox-spawn", a->libexec);
	if (access(spawn, X_OK) == 0)
		a->opt.libexec = a->libexec;
}

int main(int argc, char **argv)
{
	struct arguments a = { .opt = { .socket_path = "/run/nsbox/nsbox.sock",
					.queue_max = 1000,
					.keep_s = 86400,
					.keep_mb = 1024 } };
	struct nsbox_error err = { 0 };

	if (parse(&a, argc, argv) < 0) {
		fprintf(stderr, "Try `nsboxd --help'.\n");
		return 2;
	}
	find_libexec(&a);
	if (a.front)
		return front_main(&a.opt, FRONT_LISTEN_FD, FRONT_SPAWN_FD, FRONT_DATA_FD);
	if (supervise(&a.opt, argv, &err) < 0) {
		fprintf(stderr, "<3>nsboxd: %s\n", err.msg);
		return 1;
	}
	return 0;
}
