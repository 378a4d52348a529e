/* SPDX-License-Identifier: Apache-2.0 */
/* `nsbox selftest`: options, and the order of things. See selftest.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "nsbox/cli/cli.h"
#include "nsbox/plan_build.h"
#include "nsbox/util.h"
#include "selftest/selftest.h"

#define EXTRA_MAX 256
#define ONLY_MAX  64

struct options {
	struct box_options box;
	const char *daemon, *html, *probe_dir;
	const char *only[ONLY_MAX];
	const char *explain;
	unsigned n_only, tiers;
	bool tap, json, list, mutate;
};

/* ------------------------------------------------------------------ options */

#define SETTER(name, field, value)                                                                 \
	static int set_##name(void *ctx, const char *v)                                            \
	{                                                                                          \
		((struct options *)ctx)->field = value;                                            \
		return 0;                                                                          \
	}
SETTER(profile, box.profile, v)
SETTER(manifest, box.manifest, v)
SETTER(image, box.image, v)
SETTER(daemon, daemon, v)
SETTER(html, html, v)
SETTER(probe_dir, probe_dir, v)
SETTER(explain, explain, v)
SETTER(tap, tap, true)
SETTER(json, json, true)
SETTER(list, list, true)
SETTER(mutate, mutate, true)

static int set_tier(void *ctx, const char *v)
{
	struct options *o = ctx;

	for (int t = NSBOX_TIER_PROCESS; t <= NSBOX_TIER_CGROUP; t++)
		if (!strcmp(v, nsbox_tier_name(t))) {
			o->tiers |= 1U << t;
			return 0;
		}
	return cli_usage("--tier takes process, namespace or cgroup, not '%s'", v);
}

static int set_only(void *ctx, const char *v)
{
	struct options *o = ctx;

	if (o->n_only == ONLY_MAX)
		return cli_usage("--only: at most %d times", ONLY_MAX);
	for (size_t i = 0; i < probe_n_rows; i++)
		if (!strncmp(probe_rows[i].id, v, strlen(v))) {
			o->only[o->n_only++] = v;
			return 0;
		}
	return cli_usage("--only: there is no probe '%s'; see `nsbox selftest --list`", v);
}

static const struct option_row rows[] = {
	{ "profile", 'p', "NAME", "test this profile (default: standard)", set_profile },
	{ "manifest", 'm', "FILE", "test the policy of this skill.json", set_manifest },
	{ "image", 'i', "NAME", "root of the sandboxes (default: host)", set_image },
	{ "tier", 't', "TIER",
	  "process, namespace or cgroup; may be repeated (default: all with namespaces)",
	  set_tier },
	{ "daemon", 'D', "SOCKET", "have a running daemon make the sandboxes", set_daemon },
	{ "only", 'o', "ID", "probes whose id begins so; may be repeated", set_only },
	{ "mutate", 'M', NULL, "leave out each layer in turn: is it missed?", set_mutate },
	{ "probe-dir", 'd', "DIR", "try the programs of this directory as well", set_probe_dir },
	{ "tap", 'T', NULL, "the outcome as TAP, for prove(1)", set_tap },
	{ "json", 'j', NULL, "the outcome as JSON", set_json },
	{ "html", 'H', "FILE", "write a report to look at, one self-contained page", set_html },
	{ "list", 'l', NULL, "list the probes, and where each attack is tried", set_list },
	{ "explain", 'x', "ID", "what a probe tries, and what has to stop it", set_explain },
	{ NULL, 0, NULL, NULL, NULL },
};

static bool wanted(const struct options *o, const struct probe_row *row)
{
	for (unsigned i = 0; i < o->n_only; i++)
		if (!strncmp(row->id, o->only[i], strlen(o->only[i])))
			return true;
	return !o->n_only;
}

/* ------------------------------------------------------------------ programs of others */

static int compare_rows(const void *a, const void *b)
{
	return strcmp(((const struct probe_row *)a)->name, ((const struct probe_row *)b)->name);
}

static int read_probe_dir(const char *path, struct probe_row **ret, size_t *ret_n,
			  struct nsbox_error *err)
{
	struct probe_row *list = calloc(EXTRA_MAX, sizeof(*list));
	DIR *dir = opendir(path);
	struct dirent *e;
	size_t n = 0;

	if (!dir || !list) {
		free(list);
		return nsbox_fail(err, NSBOX_E_IO, errno, "open the directory '%s'", path);
	}
	while ((e = readdir(dir)) && n < EXTRA_MAX) {
		char *file = NULL, *name;
		struct stat st;

		if (asprintf(&file, "%s/%s", path, e->d_name) < 0)
			break;
		if (stat(file, &st) < 0 || !S_ISREG(st.st_mode) || access(file, X_OK) < 0) {
			free(file);
			continue;
		}
		name = strdup(e->d_name);
		list[n++] = (struct probe_row){ .name = name,
						.id = name,
						.attack = file,
						.file = file,
						.expected = "HELD on its last line" };
	}
	closedir(dir);
	qsort(list, n, sizeof(*list), compare_rows);
	*ret = list;
	*ret_n = n;
	return n ? 0
		 : nsbox_fail(err, NSBOX_E_INVALID, 0, "there is no executable file in '%s'", path);
}

static void free_extra(struct probe_row *list, size_t n)
{
	for (size_t i = 0; list && i < n; i++) {
		free((void *)list[i].name);
		free((void *)list[i].file);
	}
	free(list);
}

/* ------------------------------------------------------------------ plans */

struct boxes {
	struct box namespaces, process; /* no plan: none of their tiers is tested */
};

static const struct box *box_of(const struct boxes *b, int tier)
{
	return tier == NSBOX_TIER_PROCESS ? &b->process : &b->namespaces;
}

static int open_boxes(const struct options *o, unsigned tiers, int probe_fd, struct boxes *b,
		      struct nsbox_error *err)
{
	const unsigned process = 1U << NSBOX_TIER_PROCESS;
	int r = 0;

	if (tiers & ~process)
		r = box_open(&o->box, NSBOX_TIER_NAMESPACE, probe_fd, &b->namespaces, err);
	if (r == 0 && (tiers & process))
		r = box_open(&o->box, NSBOX_TIER_PROCESS, probe_fd, &b->process, err);
	return r;
}

static void close_boxes(struct boxes *b)
{
	box_close(&b->namespaces);
	box_close(&b->process);
}

/* ------------------------------------------------------------------ one row */

/* A probe that does not notice when it succeeds says nothing when it does not. */
static void try_control(struct row_result *r, const struct facts *f, int probe_fd)
{
	struct ending e;

	if (r->row->file)
		return;
	control_run(r->row, f, probe_fd, &e);
	r->control = judge_ending(r->row, &e);
}

static const char *why_not(const struct options *o, const struct probe_row *row,
			   const struct box *b, int tier)
{
	if (row->file)
		return NULL;
	if (o->daemon && (row->flags & PF_SMALL))
		return "a daemon's limits are not small";
	if (o->daemon && (row->flags & PF_NEIGHBOUR))
		return "a daemon is asked for one run at a time";
	return not_applicable(row, b, tier);
}

static bool applies(const struct options *o, const struct probe_row *row, const struct suite *s,
		    const struct boxes *b)
{
	for (int t = NSBOX_TIER_PROCESS; t <= NSBOX_TIER_CGROUP; t++)
		if ((s->tiers & (1U << t)) && !why_not(o, row, box_of(b, t), t))
			return true;
	return false;
}

static struct verdict try_tier(const struct options *o, const struct probe_row *row,
			       const struct box *b, struct facts *f, int tier,
			       const struct verdict *control)
{
	const char *why = why_not(o, row, b, tier);
	struct verdict v = { .kind = V_NA };
	struct ending e;

	if (why) {
		nsbox_format(v.text, sizeof(v.text), "%s", why);
		return v;
	}
	if (o->daemon)
		live_run(o->daemon, row, f, tier, &e);
	else
		box_run(b, row, f, tier, &e);
	v = judge_ending(row, &e);
	if (facts_check_decoy(f)) {
		v.kind = V_ESCAPED;
		nsbox_format(v.text, sizeof(v.text), "a process of the host died of it");
	}
	if (tier == NSBOX_TIER_PROCESS && !row->file)
		process_verdict(row, e.result.enforced, &v);
	/* An escape is one whatever its control says. */
	if (v.kind != V_HELD || row->file || control->kind == V_ESCAPED)
		return v;
	/* In a container a filter of the engine's is around the control as well. */
	v.kind = control->kind == V_NA || prctl(PR_GET_SECCOMP) > 0 ? V_NA : V_BROKEN;
	nsbox_format(v.text, sizeof(v.text), "refused, but so it is where it is allowed: %s",
		     control->text);
	return v;
}

static void try_row(const struct options *o, struct row_result *r, const struct suite *s,
		    const struct boxes *b, struct facts *f, int probe_fd)
{
	uint64_t start = monotonic_us();

	if (applies(o, r->row, s, b))
		try_control(r, f, probe_fd);
	facts_check_decoy(f);
	for (int t = NSBOX_TIER_PROCESS; t <= NSBOX_TIER_CGROUP; t++)
		if (s->tiers & (1U << t))
			r->tier[t] = try_tier(o, r->row, box_of(b, t), f, t, &r->control);
	r->ms = (double)(monotonic_us() - start) / 1000.0;
}

/* ------------------------------------------------------------------ all of them */

static int run_all(const struct options *o, const struct boxes *b, struct facts *f, int probe_fd,
		   struct suite *s)
{
	bool text = !o->tap && !o->json;

	for (size_t i = 0; i < probe_n_rows + o->box.n_extra; i++) {
		const struct probe_row *row =
			i < probe_n_rows ? &probe_rows[i] : &o->box.extra[i - probe_n_rows];
		struct row_result *r = &s->rows[s->n];

		/* NOLINTBEGIN(clang-analyzer-core.NullDereference): both are there: selftest() */
		if (!row->file && !wanted(o, row))
			continue;
		r->row = row;
		/* NOLINTEND(clang-analyzer-core.NullDereference) */
		s->n++;
		try_row(o, r, s, b, f, probe_fd);
		if (text)
			report_row_text(s, r);
	}
	return 0;
}

static int choose_tiers(const struct options *o, const struct nsbox_host *h, unsigned *ret,
			struct nsbox_error *err)
{
	int top = nsbox_host_tier(h);

	if (top == NSBOX_TIER_NONE)
		return nsbox_fail(err, NSBOX_E_UNSUPPORTED, 0,
				  "this host holds no sandboxes: see `nsbox doctor`");
	/* As with runs: what holds less is never taken by itself. */
	if (top == NSBOX_TIER_PROCESS && !o->tiers && !o->daemon)
		return nsbox_fail(
			err, NSBOX_E_UNSUPPORTED, 0,
			"this host reaches the tier 'process' alone, which is tested where "
			"it is asked for: --tier process; see `nsbox doctor`");
	*ret = o->tiers	   ? o->tiers
	       : o->daemon ? 1U << top /* it takes what there is */
			   : 1U << NSBOX_TIER_NAMESPACE | 1U << top;
	for (int t = top + 1; t <= NSBOX_TIER_CGROUP; t++)
		if (*ret & (1U << t))
			return nsbox_fail(err, NSBOX_E_UNSUPPORTED, 0,
					  "this host does not reach the tier '%s': see `nsbox "
					  "doctor`",
					  nsbox_tier_name(t));
	return 0;
}

static int tell_all(const struct options *o, const struct suite *s, struct nsbox_error *err)
{
	if (o->tap)
		report_tap(s);
	else if (o->json)
		report_json(s);
	else
		report_sum_text(s);
	return o->html ? report_html(s, o->html, err) : 0;
}

static int selftest(struct options *o, struct suite *s, struct nsbox_error *err)
{
	char path[4096];
	auto_close int probe_fd = -1;
	struct boxes b = { { .files = -1 }, { .files = -1 } };
	const struct box *any;
	struct facts f = { .n = 0, .decoy = -1, .listeners = { -1, -1, -1 } };
	int r = nsbox_host_probe(&s->host, err);

	b.namespaces.host = b.process.host = s->host;
	if (r == 0)
		r = choose_tiers(o, &s->host, &s->tiers, err);
	cli_libexec("nsbox-probe", path, sizeof(path));
	probe_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (r == 0 && probe_fd < 0)
		r = nsbox_fail(err, NSBOX_E_IO, errno, "open '%s'", path);
	if (r == 0)
		r = open_boxes(o, s->tiers, probe_fd, &b, err);
	if (r == 0)
		r = facts_init(&f, &s->host, o->daemon, err);
	any = b.namespaces.plan ? &b.namespaces : &b.process;
	if (r == 0)
		facts_add(&f, "files", "%u",
			  blob_fixed(plan_blob(any->plan), struct plan_fixed)->limits.open_files);
	if (r == 0 && o->daemon)
		r = live_prepare(&o->box, &f, probe_fd, err);
	if (r == 0 && o->mutate)
		s->unnoticed = mutate_all(&o->box, any, &f, !o->tap && !o->json);
	else if (r == 0)
		r = run_all(o, &b, &f, probe_fd, s);
	if (r == 0)
		r = tell_all(o, s, err);
	if (o->daemon)
		live_clean(&f);
	facts_done(&f);
	close_boxes(&b);
	nsbox_sweep();
	return r;
}

/* 0: all held; 1: not all. */
static int verdict_status(const struct suite *s)
{
	unsigned counts[V_MAX];

	if (s->mutated)
		return s->unnoticed ? 1 : 0;
	count_verdicts(s, counts);
	return counts[V_ESCAPED] || counts[V_BROKEN] || !counts[V_HELD] ? 1 : 0;
}

int cmd_selftest(int argc, char **argv)
{
	struct options o = { 0 };
	struct probe_row *extra = NULL;
	struct nsbox_error err = { 0 };
	struct suite s = { 0 };
	int r = cli_options(argc, argv, "nsbox selftest [OPTION...]", rows, &o);

	if (r >= 0)
		return r;
	if (argv[optind])
		return cli_usage("selftest takes no operand: '%s'", argv[optind]);
	if (o.tap && o.json)
		return cli_usage("--tap and --json exclude each other");
	if (o.box.profile && o.box.manifest)
		return cli_usage("--profile and --manifest exclude each other");
	if (o.daemon && (o.mutate || o.probe_dir || o.tiers || o.box.image))
		return cli_usage("--daemon excludes --mutate, --probe-dir, --tier and --image");
	if (o.mutate && (o.n_only || o.probe_dir || o.box.image))
		return cli_usage("--mutate chooses probes and image itself");
	if (o.mutate && o.tiers && o.tiers != 1U << NSBOX_TIER_PROCESS)
		return cli_usage(
			"--mutate goes with --tier process, or tries both tiers of namespaces");
	if (o.list) {
		report_list(o.json);
		return 0;
	}
	if (o.explain)
		return report_explain(o.explain);
	r = o.probe_dir ? read_probe_dir(o.probe_dir, &extra, &o.box.n_extra, &err) : 0;
	o.box.extra = extra;
	s.profile = o.box.manifest ? o.box.manifest : o.box.profile ? o.box.profile : "standard";
	s.mutated = o.mutate;
	s.rows = calloc(probe_n_rows + o.box.n_extra, sizeof(*s.rows));
	if (r == 0 && !s.rows)
		r = nsbox_fail(&err, NSBOX_E_NOMEM, ENOMEM, "make room for the outcome");
	if (r == 0)
		r = selftest(&o, &s, &err);
	r = r < 0 ? cli_error(&err) : verdict_status(&s);
	free_extra(extra, o.box.n_extra);
	free(s.rows);
	return r;
}
