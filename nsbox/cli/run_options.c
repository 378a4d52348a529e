/* SPDX-License-Identifier: Apache-2.0 */
#include "nsbox/cli/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nsbox/cli/cli.h"
#include "nsbox/util.h"
#include "policy/env_names.h"

#define SETTER(field)                                                                              \
	static int set_##field(void *ctx, const char *v)                                           \
	{                                                                                          \
		((struct run_options *)ctx)->field = v;                                            \
		return 0;                                                                          \
	}
SETTER(manifest)
SETTER(skill)
SETTER(entry)
SETTER(image)
SETTER(unpack)
SETTER(output)
SETTER(result)
SETTER(cwd)
SETTER(python)
SETTER(function)
SETTER(params)
SETTER(commit)
SETTER(save)
SETTER(restore)
SETTER(ceiling)
SETTER(share)
SETTER(egress_servers)
SETTER(egress_banned)
SETTER(egress_proxy)
SETTER(ca_certificates)

static int append(const char **list, unsigned *n, unsigned max, const char *v, const char *option)
{
	if (*n >= max)
		return cli_usage("--%s may be given %u times at most", option, max);
	list[(*n)++] = v;
	return 0;
}

static int set_put(void *ctx, const char *v)
{
	struct run_options *o = ctx;

	return append(o->put, &o->puts, RUN_LIST_MAX, v, "put");
}

static int set_collect(void *ctx, const char *v)
{
	struct run_options *o = ctx;

	return append(o->collect, &o->collects, 16, v, "collect");
}

static int set_egress_open(void *ctx, const char *v)
{
	struct run_options *o = ctx;

	return append(o->egress_open, &o->opens, RUN_OPEN_MAX, v, "egress-allow-private");
}

static int set_env(void *ctx, const char *v)
{
	struct run_options *o = ctx;

	char name[ENV_NAME_MAX + 1];

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(v, "="), v);
	if (!strchr(v, '=') || !env_name_valid(name))
		return cli_usage(
			"--env takes NAME=VALUE, a name of letters, digits and '_', not '%s'", v);
	return append(o->env, &o->envs, RUN_LIST_MAX, v, "env");
}

static int set_secret(void *ctx, const char *v)
{
	return cli_secret(&((struct run_options *)ctx)->inputs, v);
}

static int set_config(void *ctx, const char *v)
{
	return cli_config(&((struct run_options *)ctx)->inputs, v);
}

static int set_timeout(void *ctx, const char *v)
{
	struct run_options *o = ctx;
	char *end;
	double s = strtod(v, &end);

	if (end == v || *end || !(s > 0) || s > 31536000)
		return cli_usage("--timeout takes seconds (a number above 0), not '%s'", v);
	o->timeout_ms = (uint64_t)(s * 1000 + 0.5);
	if (!o->timeout_ms)
		o->timeout_ms = 1;
	return 0;
}

static int set_tier(void *ctx, const char *v)
{
	for (int t = NSBOX_TIER_PROCESS; t <= NSBOX_TIER_CGROUP; t++)
		if (!strcmp(v, nsbox_tier_name(t))) {
			((struct run_options *)ctx)->tier = (uint32_t)t;
			return 0;
		}
	return cli_usage("--tier takes process, namespace or cgroup, not '%s'", v);
}

static int set_tty(void *ctx, const char *v)
{
	((struct run_options *)ctx)->tty = 1;
	return 0;
}

static int set_no_tty(void *ctx, const char *v)
{
	((struct run_options *)ctx)->tty = 0;
	return 0;
}

static int set_json(void *ctx, const char *v)
{
	((struct run_options *)ctx)->result = "-";
	return 0;
}

static int set_timings(void *ctx, const char *v)
{
	((struct run_options *)ctx)->timings = true;
	return 0;
}

static int set_verbose(void *ctx, const char *v)
{
	((struct run_options *)ctx)->verbose = true;
	return 0;
}

static int set_trace(void *ctx, const char *v)
{
	((struct run_options *)ctx)->trace = true;
	return 0;
}

static int set_changes(void *ctx, const char *v)
{
	((struct run_options *)ctx)->changes = true;
	return 0;
}

static const struct option_row rows[] = {
	{ "manifest", 'm', "FILE", "policy: a skill.json (default: profile standard)",
	  set_manifest },
	{ "skill", 's', "DIR", "copy a skill directory in; its skill.json is the policy",
	  set_skill },
	{ "entry", 'e', "ID", "entry point of the skill (default: main)", set_entry },
	{ "ceiling", 0, "FILE", "what it may have at most, JSON, as for nsboxd", set_ceiling },
	{ "image", 'i', "NAME", "root of the sandbox (default: host)", set_image },
	{ "put", 'p', "SRC[:DST]", "copy a file or directory into the working directory", set_put },
	{ "unpack", 'u', "ARCHIVE", "unpack a zip or tar into the working directory", set_unpack },
	{ "output", 'o', "DIR", "write the run's outputs there", set_output },
	{ "collect", 'c', "GLOB",
	  "an output, besides those of the manifest (** across directories)", set_collect },
	{ "share", 0, "DIR",
	  "share a directory: what it changes in /workspace it changes there (filesystem.workspace "
	  "\"rw\")",
	  set_share },
	{ "changes", 0, NULL, "list what it changed in the root", set_changes },
	{ "commit", 0, "NAME", "make an image of --image and what it changed", set_commit },
	{ "save", 0, "FILE", "keep the root's changes, for --restore", set_save },
	{ "restore", 0, "FILE", "begin with what --save of another run kept", set_restore },
	{ "result", 'r', "FILE", "write a report as JSON (- for standard output)", set_result },
	{ "json", 'j', NULL, "as --result -", set_json },
	{ "env", 'E', "NAME=VALUE", "set a variable", set_env },
	SECRET_ROW(set_secret),
	CONFIG_ROW(set_config),
	{ "cwd", 'C', "DIR", "working directory inside (default: /workspace, or the skill)",
	  set_cwd },
	{ "timeout", 't', "SECONDS", "end it after so long (at most the policy's limit)",
	  set_timeout },
	{ "tier", 0, "TIER",
	  "hold it by this tier: process (weaker, no namespaces), namespace, cgroup", set_tier },
	{ "tty", 'T', NULL, "give it a terminal of its own", set_tty },
	{ "no-tty", 0, NULL, "do not, even where this is one", set_no_tty },
	{ "python", 'P', "FILE",
	  "call a Python function of this file; its value is printed as JSON", set_python },
	{ "function", 'f', "NAME", "which one (default: the last defined)", set_function },
	{ "params", 'a', "JSON|@FILE", "its keyword arguments, a JSON object", set_params },
	{ "ca-certificates", 0, "FILE",
	  "authorities that a run with a network trusts beside the image's, PEM",
	  set_ca_certificates },
	{ "egress-allow-private", 0, "NETWORK",
	  "an address or network that the run may reach though it is private or special",
	  set_egress_open },
	{ "egress-ban", 0, "LIST", "addresses, networks and patterns of names never to be reached",
	  set_egress_banned },
	{ "egress-dns", 0, "ADDRESS[:PORT],...", "name servers (default: those of resolv.conf)",
	  set_egress_servers },
	{ "egress-proxy", 0, "URL", "a proxy that connects: socks5://HOST:PORT or http://HOST:PORT",
	  set_egress_proxy },
	{ "trace", 0, NULL, "tell which files it could not open, with --result (slow)", set_trace },
	{ "timings", 0, NULL, "print what each part of the run took", set_timings },
	{ "verbose", 'v', NULL, "print what was enforced", set_verbose },
	{ NULL, 0, NULL, NULL, NULL },
};

static const char run_usage[] =
	"nsbox run [OPTION...] [--] PROGRAM [ARG...]\n"
	"       nsbox run --image NAME [OPTION...]\n"
	"       nsbox run --skill DIR [OPTION...] [--entry ID [-- ARG...]]\n"
	"       nsbox run --skill DIR [OPTION...] -- PROGRAM [ARG...]\n"
	"       nsbox run --python FILE [--function NAME] [--params JSON]";

static int parse(int argc, char **argv, const char *usage, struct run_options *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->tty = -1;
	return cli_options(argc, argv, usage, rows, ret);
}

/* -1, or an exit status after a message. */
static int check_together(const struct run_options *o)
{
	if (o->collects && !o->output)
		return cli_usage("--collect goes with --output: where are the files to go?");
	if (o->manifest && o->skill)
		return cli_usage(
			"--manifest and --skill exclude each other: the skill has its own");
	return -1;
}

int run_parse_shell(int argc, char **argv, struct run_options *ret)
{
	int r = parse(argc, argv, "nsbox shell [OPTION...]", ret);

	if (r >= 0)
		return r;
	if (argv[optind])
		return cli_usage("shell takes no program: `nsbox run -- %s`", argv[optind]);
	if (ret->python || ret->function || ret->params || ret->entry)
		return cli_usage("--python, --function, --params and --entry say what to run: see "
				 "`nsbox run --help`");
	ret->argv = cli_shell;
	return check_together(ret);
}

int run_parse(int argc, char **argv, struct run_options *ret)
{
	int r = parse(argc, argv, run_usage, ret);

	if (r >= 0)
		return r;
	ret->argv = argv + optind;
	if (ret->python && *ret->argv)
		return cli_usage("--python takes no program: '%s'", *ret->argv);
	if (!ret->python && (ret->function || ret->params))
		return cli_usage("--function and --params go with --python");
	if (!ret->python && !ret->skill && !ret->image && !ret->manifest && !*ret->argv)
		return cli_usage("what is to be run? See `nsbox run --help`");
	if (ret->entry && !ret->skill)
		return cli_usage("--entry goes with --skill");
	return check_together(ret);
}
