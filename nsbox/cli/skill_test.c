/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `nsbox skill test`: the tests of a skill.json, each in a sandbox of its own, through the same steps as
 * `nsbox run --skill`. What a program printed is hostile: it is shown escaped, and the manifest's
 * regular expressions are tried in a process of their own with limits, since a pattern can be made
 * to take all memory there is.
 */
#include <errno.h>
#include <fnmatch.h>
#include <json-c/json.h>
#include <nsbox/files.h>
#include <regex.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "nsbox/cli/run.h"
#include "nsbox/cli/skill.h"
#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/skill/text.h"

#define MANIFEST_MAX (256u << 10)
#define REASONS_MAX  16

struct test_options {
	const char *dir, *entry, *image;
	bool json, tap;
};

struct outcome {
	const struct manifest_test *t;
	char label[160];
	char *reason[REASONS_MAX];
	unsigned n_reasons;
	const char *cause;
	int exit_status;
	double ms;
	char **outputs; /* paths that came out */
	size_t n_outputs;
};

/* ------------------------------------------------------------------ options */

static int set_entry(void *ctx, const char *v)
{
	((struct test_options *)ctx)->entry = v;
	return 0;
}

static int set_image(void *ctx, const char *v)
{
	((struct test_options *)ctx)->image = v;
	return 0;
}

static int set_json(void *ctx, const char *v)
{
	((struct test_options *)ctx)->json = true;
	return 0;
}

static int set_tap(void *ctx, const char *v)
{
	((struct test_options *)ctx)->tap = true;
	return 0;
}

static const struct option_row rows[] = {
	{ "entry", 'e', "ID", "only tests of this entry point", set_entry },
	{ "image", 'i', "NAME", "root of the sandboxes (default: host)", set_image },
	{ "json", 'j', NULL, "the outcome as JSON", set_json },
	{ "tap", 't', NULL, "the outcome as TAP, for prove(1)", set_tap },
	{ NULL, 0, NULL, NULL, NULL },
};

/* ------------------------------------------------------------------ judging */

static void because(struct outcome *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void because(struct outcome *o, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (o->n_reasons < REASONS_MAX)
		o->reason[o->n_reasons++] = text_shown(text, strlen(text));
}

static int match_here(const char *pattern, const char *s, size_t len)
{
	const struct rlimit cpu = { 5, 5 }, core = { 0, 0 };
	regmatch_t all = { .rm_so = 0, .rm_eo = (regoff_t)len };
	regex_t re;

#ifndef __SANITIZE_ADDRESS__ /* its shadow alone takes terabytes of address space */
	const struct rlimit memory = { 512u << 20, 512u << 20 };

	setrlimit(RLIMIT_AS, &memory);
#endif
	setrlimit(RLIMIT_CPU, &cpu);
	setrlimit(RLIMIT_CORE, &core);
	if (regcomp(&re, pattern, REG_EXTENDED | REG_NEWLINE) != 0)
		return 2;
	return regexec(&re, s ? s : "", 1, &all, REG_STARTEND) == 0 ? 0 : 1;
}

static void match(struct outcome *o, const char *what, const char *pattern,
		  const struct relay_buffer *b)
{
	pid_t pid;
	int status = -1;

	if (!pattern)
		return;
	pid = fork();
	if (pid == 0)
		_exit(match_here(pattern, b->data, b->len));
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return;
	if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 1)
		because(o, "%s does not match \"%.200s\"; it ends in \"%.*s\"", what, pattern,
			(int)MIN(b->len, (size_t)200),
			b->data ? b->data + b->len - MIN(b->len, (size_t)200) : "");
	else
		because(o,
			"the pattern \"%.200s\" is no regular expression, or takes too much to "
			"match",
			pattern);
}

static void judge_end(struct outcome *o, const struct run *c)
{
	const struct nsbox_result *r = &c->result;
	bool own = r->cause == NSBOX_CAUSE_EXIT || r->cause == NSBOX_CAUSE_SIGNAL;

	if (r->error.code)
		because(o, "%s", r->error.msg);
	else if (!own)
		because(o, "it was ended: %s", nsbox_cause_name((int)r->cause));
	else if (r->exit_status != (int)o->t->exit)
		because(o, "exit status %d, expected %u", r->exit_status, o->t->exit);
	if (c->note[0])
		because(o, "%s", c->note);
}

static void judge_outputs(struct outcome *o)
{
	for (char **want = o->t->outputs; want && *want; want++) {
		bool found = false;

		for (size_t i = 0; i < o->n_outputs; i++)
			found |= fnmatch(*want, o->outputs[i], FNM_PATHNAME | FNM_PERIOD) == 0;
		if (!found)
			because(o, "no output '%s' (it has to match `outputs` of the manifest)",
				*want);
	}
}

/* ------------------------------------------------------------------ outputs */

static int begin(void *ctx, int kind, const char *path, uint32_t mode, uint64_t size,
		 struct nsbox_error *err)
{
	struct outcome *o = ctx;
	char **list;

	if (kind != NSBOX_FRAME_FILE)
		return 0;
	list = reallocarray(o->outputs, o->n_outputs + 1, sizeof(*list));
	if (!list)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "list the outputs");
	o->outputs = list;
	list[o->n_outputs] = strdup(path);
	o->n_outputs += list[o->n_outputs] != NULL;
	return 0;
}

static int ignore_data(void *ctx, const void *buf, size_t len, struct nsbox_error *err)
{
	return 0;
}

static int ignore_finish(void *ctx, struct nsbox_error *err)
{
	return 0;
}

static int list_outputs(struct run *c, struct outcome *o, struct nsbox_error *err)
{
	const struct nsbox_files_sink sink = { begin, ignore_data, ignore_finish };
	const struct nsbox_files_limits lim = NSBOX_FILES_LIMITS_DEFAULT;
	struct nsbox_files_reader *reader = NULL;
	auto_close int stream = -1;
	char buf[65536];
	ssize_t n;
	int r = o->t->outputs ? run_collect_stream(c, &stream, err) : 0;

	if (r < 0 || stream < 0)
		return r;
	r = nsbox_files_reader_new(&sink, o, &lim, &reader, err);
	while (r == 0 && (n = read(stream, buf, sizeof(buf))) > 0)
		r = nsbox_files_feed(reader, buf, (size_t)n, err);
	nsbox_files_reader_free(reader);
	return r;
}

/* ------------------------------------------------------------------ one test */

static void run_test(const struct test_options *opt, struct outcome *o)
{
	static char *none[] = { NULL };
	const struct run_options ro = { .skill = opt->dir,
					.entry = o->t->entrypoint,
					.image = opt->image,
					.tty = 0,
					.argv = o->t->args ? o->t->args : none };
	struct nsbox_error err = { 0 };
	struct run c;
	int r;

	run_init(&c, &ro);
	c.capture = true;
	c.choose_entry = true;
	c.input = o->t->input;
	r = run_execute(&c, &err);
	if (r == 0 && c.no_stdin && o->t->input)
		because(o, "the test has stdin, and the entry point says that it reads none");
	if (r == 0) {
		judge_end(o, &c);
		match(o, "standard output", o->t->stdout_matches, &c.relay.kept_out);
		match(o, "standard error", o->t->stderr_matches, &c.relay.kept_err);
		r = list_outputs(&c, o, &err);
	}
	if (r == 0)
		judge_outputs(o);
	else
		because(o, "%s", err.msg);
	if (o->n_reasons && !o->t->stderr_matches && c.relay.kept_err.len)
		because(o, "standard error ends in \"%.*s\"",
			(int)MIN(c.relay.kept_err.len, (size_t)300),
			c.relay.kept_err.data + c.relay.kept_err.len -
				MIN(c.relay.kept_err.len, (size_t)300));
	o->cause = nsbox_cause_name((int)c.result.cause);
	o->exit_status = c.result.exit_status;
	o->ms = (double)c.result.wall_us / 1000.0;
	run_done(&c);
}

static void name_test(struct outcome *o, size_t i)
{
	const char *entry = o->t->entrypoint ? o->t->entrypoint : "main";
	auto_free char *shown = o->t->name ? text_shown(o->t->name, strlen(o->t->name)) : NULL;

	if (shown)
		nsbox_format(o->label, sizeof(o->label), "%s: %s", entry, shown);
	else
		nsbox_format(o->label, sizeof(o->label), "%s: test %zu", entry, i + 1);
}

static void outcome_done(struct outcome *o)
{
	for (unsigned i = 0; i < o->n_reasons; i++)
		free(o->reason[i]);
	for (size_t i = 0; i < o->n_outputs; i++)
		free(o->outputs[i]);
	free(o->outputs);
}

/* ------------------------------------------------------------------ telling */

static void tell_text(const struct outcome *o)
{
	printf("%-5s %s  (%.0f ms)\n", o->n_reasons ? "FAIL" : "ok", o->label, o->ms);
	for (unsigned i = 0; i < o->n_reasons; i++)
		printf("      %s\n", o->reason[i] ? o->reason[i] : "out of memory");
}

/* '#' begins a directive in TAP. */
static void tell_tap(const struct outcome *o, unsigned number)
{
	printf("%s %u - ", o->n_reasons ? "not ok" : "ok", number);
	for (const char *p = o->label; *p; p++)
		printf(*p == '#' ? "\\#" : "%c", *p);
	putchar('\n');
	for (unsigned i = 0; i < o->n_reasons; i++)
		printf("# %s\n", o->reason[i] ? o->reason[i] : "out of memory");
}

static struct json_object *outcome_json(const struct outcome *o)
{
	struct json_object *row = json_object_new_object(), *list = json_object_new_array();

	json_object_object_add(row, "name", json_object_new_string(o->label));
	json_object_object_add(row, "ok", json_object_new_boolean(!o->n_reasons));
	json_object_object_add(row, "cause", json_object_new_string(o->cause));
	json_object_object_add(row, "exit_code", json_object_new_int(o->exit_status));
	json_object_object_add(row, "duration_ms", json_object_new_double(o->ms));
	for (unsigned i = 0; i < o->n_reasons; i++)
		json_object_array_add(list,
				      json_object_new_string(o->reason[i] ? o->reason[i] : ""));
	json_object_object_add(row, "reasons", list);
	return row;
}

static void tell_all(const struct test_options *opt, struct json_object *list, unsigned ran,
		     unsigned failed)
{
	struct json_object *o;

	if (opt->tap)
		printf("1..%u\n", ran);
	if (opt->tap || !opt->json) {
		if (!opt->tap)
			printf("%u of %u tests passed\n", ran - failed, ran);
		return;
	}
	o = json_object_new_object();
	json_object_object_add(o, "passed", json_object_new_int((int)(ran - failed)));
	json_object_object_add(o, "failed", json_object_new_int((int)failed));
	json_object_object_add(o, "tests", json_object_get(list));
	printf("%s\n", json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
								 JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
}

/* ------------------------------------------------------------------ all of them */

static bool wanted(const struct test_options *opt, const struct nsbox_manifest *m,
		   const struct manifest_test *t)
{
	struct nsbox_entrypoint e;
	const char *id = t->entrypoint;

	if (!opt->entry)
		return true;
	if (!id && nsbox_manifest_entrypoint(m, NULL, &e, NULL) == 0)
		id = e.id;
	return id && !strcmp(id, opt->entry);
}

static int run_all(const struct test_options *opt, const struct nsbox_manifest *m,
		   unsigned *ret_failed, struct nsbox_error *err)
{
	struct json_object *list = json_object_new_array();
	unsigned ran = 0, failed = 0;

	for (size_t i = 0; i < m->n_tests; i++) {
		struct outcome o = { .t = &m->tests[i] };

		if (!wanted(opt, m, o.t))
			continue;
		name_test(&o, i);
		run_test(opt, &o);
		ran++;
		failed += o.n_reasons > 0;
		if (opt->tap)
			tell_tap(&o, ran);
		else if (opt->json)
			json_object_array_add(list, outcome_json(&o));
		else
			tell_text(&o);
		fflush(stdout);
		outcome_done(&o);
	}
	if (ran)
		tell_all(opt, list, ran, failed);
	json_object_put(list);
	*ret_failed = failed;
	if (!ran)
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  opt->entry ? "skill.json has no tests of this entry point"
					     : "skill.json has no tests");
	return 0;
}

static int load(int dir_fd, struct nsbox_manifest **ret, struct nsbox_error *err)
{
	auto_free char *text = NULL;
	size_t len = 0;
	int r = skill_read(dir_fd, "skill.json", MANIFEST_MAX, &text, &len, err);

	if (r == -ENOENT)
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "there is no skill.json (`nsbox skill init` writes a first one)");
	if (r == 0)
		r = nsbox_manifest_parse(text, len, ret, err);
	if (r < 0)
		nsbox_error_prefix(err, "skill.json");
	return r;
}

int skill_cmd_test(int argc, char **argv)
{
	struct test_options opt = { 0 };
	struct nsbox_manifest *m = NULL;
	struct nsbox_error err = { 0 };
	char name[] = "nsbox skill test";
	auto_close int fd = -1;
	unsigned failed = 0;
	int r;

	argv[0] = name;
	r = skill_options(argc, argv, "nsbox skill test [OPTION...] DIR", rows, &opt, &opt.dir);
	if (r >= 0)
		return r;
	fd = skill_open_dir(opt.dir);
	if (fd < 0)
		return EXIT_NSBOX;
	r = load(fd, &m, &err);
	if (r == 0 && m)
		r = run_all(&opt, m, &failed, &err);
	nsbox_manifest_free(m);
	if (r < 0)
		return cli_error(&err);
	return failed ? 1 : 0;
}
