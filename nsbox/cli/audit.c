/* SPDX-License-Identifier: Apache-2.0 */
/* `nsbox audit verify`: is the daemon's audit whole, line by line, file by file? */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/audit_chain.h"
#include "nsbox/cli/cli.h"
#include "nsbox/util.h"

struct audit_options {
	const char *last, *contains;
};

static int set_last(void *ctx, const char *v)
{
	((struct audit_options *)ctx)->last = v;
	return 0;
}

static int set_contains(void *ctx, const char *v)
{
	((struct audit_options *)ctx)->contains = v;
	return 0;
}

static const struct option_row verify_rows[] = {
	{ "last", 'l', "SHA256", "the last line's hash has to be this", set_last },
	{ "contains", 'c', "SHA256", "a line's hash has to be this (noted earlier)", set_contains },
	{ NULL, 0, NULL, NULL, NULL },
};

struct verification {
	struct audit_chain chain;
	const char *contains;
	bool first, found;
	uint64_t lines;
};

/* One file; the chain goes on from the one before. */
static int verify_file(struct verification *v, FILE *f, const char *path, struct nsbox_error *err)
{
	auto_free char *line = NULL;
	size_t cap = 0;
	ssize_t n;

	for (uint64_t at = 1; (n = getline(&line, &cap, f)) > 0; at++) {
		int r;

		if (line[n - 1] != '\n')
			return nsbox_fail(err, NSBOX_E_INVALID, 0,
					  "%s:%" PRIu64 ": the last line is cut off", path, at);
		r = audit_chain_check(&v->chain, v->first, line, (size_t)n - 1, err);
		if (r < 0) {
			nsbox_error_prefix(err, "%s:%" PRIu64, path, at);
			return r;
		}
		v->first = false;
		v->lines++;
		if (v->contains && !strcmp(v->contains, v->chain.hash))
			v->found = true;
	}
	if (ferror(f))
		return nsbox_fail(err, NSBOX_E_IO, errno, "read '%s'", path);
	return 0;
}

static int verify_path(struct verification *v, const char *path, struct nsbox_error *err)
{
	FILE *f = fopen(path, "re");
	int r;

	if (!f)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open '%s'", path);
	r = verify_file(v, f, path, err);
	fclose(f);
	return r;
}

static int audit_verify(int argc, char **argv)
{
	struct audit_options o = { 0 };
	struct verification v = { .first = true };
	struct nsbox_error err = { 0 };
	int r = cli_options(argc, argv, "nsbox audit verify [OPTION...] FILE...", verify_rows, &o);

	if (r >= 0)
		return r;
	if (!argv[optind])
		return cli_usage("an audit is needed: audit.log in the daemon's data directory, "
				 "older files first");
	audit_chain_init(&v.chain);
	v.contains = o.contains;
	r = 0;
	for (char **p = argv + optind; *p && r == 0; p++)
		r = verify_path(&v, *p, &err);
	if (r == 0 && o.last && strcmp(o.last, v.chain.hash) != 0)
		r = nsbox_fail(&err, NSBOX_E_INVALID, 0, "the last line's hash is %s",
			       v.chain.hash);
	if (r == 0 && o.contains && !v.found)
		r = nsbox_fail(&err, NSBOX_E_INVALID, 0, "no line has the hash %s", o.contains);
	if (r < 0) {
		cli_error(&err);
		return 1;
	}
	printf("whole: %" PRIu64 " lines, %" PRIu64 " to %" PRIu64 "\nlast   %s\n", v.lines,
	       v.chain.seq - v.lines + (v.lines > 0), v.chain.seq, v.chain.hash);
	return 0;
}

static const struct command verbs[] = {
	{ "verify", audit_verify, "check that no line was changed, removed or put in" },
	{ NULL, NULL, NULL },
};

int cmd_audit(int argc, char **argv)
{
	return cli_verbs(argc, argv, "audit", verbs, "");
}
