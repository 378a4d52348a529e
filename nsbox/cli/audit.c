/* SPDX-License-Identifier: Apache-2.0 */
/* `nsbox audit verify`: is the daemon's audit whole, line by line, file by file? */
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/audit_chain.h"
#include "nsbox/cli/cli.h"
#include "nsbox/util.h"

struct audit_options {
	const char *last, *contains;
	bool json;
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

static int set_json(void *ctx, const char *v)
{
	((struct audit_options *)ctx)->json = true;
	return 0;
}

static const struct option_row verify_rows[] = {
	{ "last", 'l', "SHA256", "the last line's hash has to be this", set_last },
	{ "contains", 'c', "SHA256", "a line's hash has to be this (noted earlier)", set_contains },
	{ "json", 'j', NULL, "as JSON", set_json },
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

static int verify_all(struct verification *v, char **paths, const char *last,
		      struct nsbox_error *err)
{
	int r = 0;

	for (; *paths && r == 0; paths++)
		r = verify_path(v, *paths, err);
	if (r == 0 && last && strcmp(last, v->chain.hash) != 0)
		r = nsbox_fail(err, NSBOX_E_INVALID, 0, "the last line's hash is %s",
			       v->chain.hash);
	if (r == 0 && v->contains && !v->found)
		r = nsbox_fail(err, NSBOX_E_INVALID, 0, "no line has the hash %s", v->contains);
	return r;
}

static uint64_t first_of(const struct verification *v)
{
	return v->chain.seq - v->lines + (v->lines > 0);
}

/* error NULL: whole. */
static void print_json(const struct verification *v, const char *error)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "whole", json_object_new_boolean(!error));
	json_object_object_add(o, "lines", json_object_new_uint64(v->lines));
	json_object_object_add(o, "first", json_object_new_uint64(first_of(v)));
	json_object_object_add(o, "last", json_object_new_uint64(v->chain.seq));
	json_object_object_add(o, "hash", json_object_new_string(v->chain.hash));
	if (error)
		json_object_object_add(o, "error", json_object_new_string(error));
	printf("%s\n", json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
								 JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
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
	r = verify_all(&v, argv + optind, o.last, &err);
	if (o.json)
		print_json(&v, r < 0 ? err.msg : NULL);
	else if (r < 0)
		cli_error(&err);
	else
		printf("whole: %" PRIu64 " lines, %" PRIu64 " to %" PRIu64 "\nlast   %s\n", v.lines,
		       first_of(&v), v.chain.seq, v.chain.hash);
	return r < 0 ? 1 : 0;
}

static const struct command verbs[] = {
	{ "verify", audit_verify, "check that no line was changed, removed or put in" },
	{ NULL, NULL, NULL },
};

int cmd_audit(int argc, char **argv)
{
	return cli_verbs(argc, argv, "audit", verbs, "");
}
