/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The outcome as one page that needs nothing else: sums by layer, a matrix of probes and tiers, and
 * the details of each. All text goes through put_text(), which leaves nothing to be read as markup.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>

#include "nsbox/util.h"
#include "selftest/selftest.h"

static const char head[] =
	"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	"<meta name=\"viewport\" content=\"width=device-width\">\n"
	"<title>nsbox selftest</title>\n<style>\n"
	":root { color-scheme: light dark; --line: #8884; --held: #1a7f37; --bad: #cf222e; "
	"--na: #777; --warn: #9a6700 }\n"
	"body { font: 15px/1.45 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; "
	"padding: 0 1rem }\n"
	"h1 { font-size: 1.5rem; margin-bottom: .2rem }\nh2 { font-size: 1.15rem; margin-top: 2rem "
	"}\n"
	"table { border-collapse: collapse; width: 100% }\n"
	"th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); "
	"vertical-align: top }\n"
	"td.id { white-space: nowrap; font-family: ui-monospace, monospace }\n"
	".held { color: var(--held) } .ESCAPED { color: var(--bad); font-weight: 700 }\n"
	".broken { color: var(--warn); font-weight: 700 } .declared { color: var(--warn) } .na { "
	"color: var(--na) }\n"
	".sum { font-size: 1.1rem } .dim { color: var(--na) }\n"
	"details { border-bottom: 1px solid var(--line); padding: .35rem 0 }\n"
	"summary { cursor: pointer } dl { display: grid; grid-template-columns: 8rem 1fr; "
	"gap: .2rem 1rem; margin: .5rem 1.2rem }\ndt { color: var(--na) } dd { margin: 0 }\n"
	"</style>\n</head>\n<body>\n";

static void put_text(FILE *to, const char *s)
{
	for (; *s; s++) {
		switch (*s) {
		case '<': fputs("&lt;", to); break;
		case '>': fputs("&gt;", to); break;
		case '&': fputs("&amp;", to); break;
		case '"': fputs("&quot;", to); break;
		default: fputc(*s, to); break;
		}
	}
}

static const char *class_of(int kind)
{
	return kind == V_NA || kind == V_NONE ? "na" : verdict_name(kind);
}

static void put_verdict(FILE *to, const char *tag, int kind)
{
	fprintf(to, "<%s class=\"%s\">%s</%s>", tag, class_of(kind), verdict_name(kind), tag);
}

/* ------------------------------------------------------------------ sums */

static void put_head(FILE *to, const struct suite *s)
{
	unsigned counts[V_MAX];
	char date[32];
	time_t now = time(NULL);
	struct tm tm;

	strftime(date, sizeof(date), "%Y-%m-%d %H:%M UTC", gmtime_r(&now, &tm));
	count_verdicts(s, counts);
	fprintf(to, "%s<h1>nsbox selftest</h1>\n<p class=\"dim\">nsbox %s, Linux ", head,
		NSBOX_VERSION);
	put_text(to, s->host.kernel);
	fprintf(to, " %s, Landlock ABI %d, profile ", s->host.machine, s->host.landlock_abi);
	put_text(to, s->profile);
	fprintf(to, ", %s</p>\n<p class=\"sum\">", date);
	for (int k = V_HELD; k < V_MAX; k++)
		if (counts[k])
			fprintf(to, "<span class=\"%s\">%u %s</span> ", class_of(k), counts[k],
				verdict_name(k));
	if (s->mutated)
		fprintf(to, "%u layers left out in turn, %u unnoticed</p>\n", mutations_tried(),
			s->unnoticed);
	else
		fprintf(to, "of %zu probes</p>\n", s->n);
}

static void put_layers(FILE *to, const struct suite *s)
{
	uint32_t have = nsbox_host_layers(&s->host);

	fputs("<h2>Layers</h2>\n<table>\n<tr><th>layer<th>what it is<th>on this host<th>probes "
	      "that "
	      "it is to stop<th>held by it\n",
	      to);
	for (int i = 0; i < NSBOX_LAYER_MAX; i++) {
		unsigned named = 0, by = 0;

		for (size_t k = 0; k < s->n; k++) {
			named += (s->rows[k].row->walls & NSBOX_LAYER_BIT(i)) != 0;
			for (size_t t = 0; t < ARRAY_SIZE(s->rows[k].tier); t++)
				if (!strcmp(s->rows[k].tier[t].layer, nsbox_layer_name(i))) {
					by++;
					break;
				}
		}
		fprintf(to, "<tr><td class=\"id\">%s<td>%s<td class=\"%s\">%s<td>%u<td>%u\n",
			nsbox_layer_name(i), nsbox_layer_text(i),
			have & NSBOX_LAYER_BIT(i) ? "held" : "broken",
			have & NSBOX_LAYER_BIT(i) ? "yes" : "missing", named, by);
	}
	fputs("</table>\n", to);
}

/* ------------------------------------------------------------------ matrix and details */

static void put_mutations(FILE *to)
{
	fputs("<h2>Each layer left out</h2>\n<table>\n<tr><th>without<th><th>probe<th>with the "
	      "layer"
	      "<th>without\n",
	      to);
	for (size_t i = 0; i < mutations_n; i++) {
		const struct mutation *m = &mutations[i];

		if (!mutation_tried(m))
			continue;
		fprintf(to, "<tr><td class=\"id\">%s<td class=\"%s\">%s<td class=\"id\">%s<td>",
			nsbox_layer_name(m->layer), class_of(m->kind), mutation_word(m),
			mutation_probe(m));
		put_text(to, m->with.text);
		fputs("<td>", to);
		put_text(to, m->without.text);
		fputc('\n', to);
	}
	fputs("</table>\n", to);
}

static void put_matrix(FILE *to, const struct suite *s)
{
	fputs("<h2>Probes and tiers</h2>\n<table>\n<tr><th>probe<th>attack", to);
	for (int t = NSBOX_TIER_PROCESS; t <= NSBOX_TIER_CGROUP; t++)
		if (s->tiers & (1U << t))
			fprintf(to, "<th>%s", nsbox_tier_name(t));
	fputc('\n', to);
	for (size_t i = 0; i < s->n; i++) {
		const struct row_result *r = &s->rows[i];

		fputs("<tr><td class=\"id\">", to);
		put_text(to, r->row->id);
		fputs("<td>", to);
		put_text(to, r->row->attack);
		for (int t = NSBOX_TIER_PROCESS; t <= NSBOX_TIER_CGROUP; t++)
			if (s->tiers & (1U << t))
				put_verdict(to, "td", r->tier[t].kind);
		fputc('\n', to);
	}
	fputs("</table>\n", to);
}

static void put_item(FILE *to, const char *name, const struct verdict *v)
{
	fprintf(to, "<dt>%s</dt><dd>", name);
	put_verdict(to, "span", v->kind);
	if (v->layer[0])
		fprintf(to, v->kind == V_DECLARED ? " (not stopped: %s)" : " by %s", v->layer);
	fputs(": ", to);
	put_text(to, v->text);
	fputs("</dd>", to);
}

static void put_details(FILE *to, const struct suite *s)
{
	if (s->n)
		fputs("<h2>Details</h2>\n", to);
	for (size_t i = 0; i < s->n; i++) {
		const struct row_result *r = &s->rows[i];
		int kind = worst(r);

		fprintf(to, "<details%s><summary>",
			kind == V_ESCAPED || kind == V_BROKEN ? " open" : "");
		put_verdict(to, "span", kind);
		fputs(" <code>", to);
		put_text(to, r->row->id);
		fputs("</code> ", to);
		put_text(to, r->row->attack);
		fputs("</summary><dl><dt>expected</dt><dd>", to);
		put_text(to, r->row->expected);
		fputs("</dd>", to);
		for (int t = NSBOX_TIER_PROCESS; t <= NSBOX_TIER_CGROUP; t++)
			if (s->tiers & (1U << t))
				put_item(to, nsbox_tier_name(t), &r->tier[t]);
		if (r->control.kind)
			put_item(to, "control", &r->control);
		fprintf(to, "<dt>took</dt><dd>%.0f ms</dd></dl></details>\n", r->ms);
	}
	fputs("</body>\n</html>\n", to);
}

int report_html(const struct suite *s, const char *path, struct nsbox_error *err)
{
	FILE *to = fopen(path, "we");
	bool failed;

	if (!to)
		return nsbox_fail(err, NSBOX_E_IO, errno, "write the report to '%s'", path);
	put_head(to, s);
	if (s->mutated) {
		put_mutations(to);
	} else {
		put_layers(to, s);
		put_matrix(to, s);
	}
	put_details(to, s);
	failed = ferror(to);
	if (fclose(to) || failed)
		return nsbox_fail(err, NSBOX_E_IO, errno, "write the report to '%s'", path);
	return 0;
}
