/* SPDX-License-Identifier: Apache-2.0 */
/* The outcome as a table, as TAP and as JSON; what probes there are. */
#include <json-c/json.h>
#include <nsbox/gap.h>
#include <string.h>

#include "nsbox/cli/cli.h"
#include "nsbox/util.h"
#include "selftest/selftest.h"

/* ------------------------------------------------------------------ text */

/* The verdict that is worth a line: the worst, of the highest tier. */
static const struct verdict *main_verdict(const struct row_result *r)
{
	int kind = worst(r);

	for (int t = NSBOX_TIER_CGROUP; t >= 0; t--)
		if (r->tier[t].kind == kind)
			return &r->tier[t];
	return &r->tier[0];
}

void report_row_text(const struct suite *s, const struct row_result *r)
{
	const struct verdict *v = main_verdict(r);

	printf("%-8s %-16s %-52.52s %s%s%s\n", verdict_name(v->kind), r->row->id, r->row->attack,
	       v->layer, v->layer[0] ? ": " : "", v->text);
	fflush(stdout);
}

void report_sum_text(const struct suite *s)
{
	unsigned counts[V_MAX];

	if (s->mutated) {
		printf("\n%u layers, %u unnoticed\n", mutations_tried(), s->unnoticed);
		return;
	}
	count_verdicts(s, counts);
	printf("\n%zu probes, profile %s, tiers", s->n, s->profile);
	for (int t = NSBOX_TIER_PROCESS; t <= NSBOX_TIER_CGROUP; t++)
		if (s->tiers & (1U << t))
			printf(" %s", nsbox_tier_name(t));
	printf(": %u held", counts[V_HELD]);
	for (int k = V_DECLARED; k < V_MAX; k++)
		if (counts[k])
			printf(", %u %s", counts[k], verdict_name(k));
	putchar('\n');
}

/* ------------------------------------------------------------------ TAP */

static void mutations_tap(void)
{
	unsigned n = 0;

	for (size_t i = 0; i < mutations_n; i++) {
		const struct mutation *m = &mutations[i];

		if (!mutation_tried(m))
			continue;
		printf("%s %u - without %s: %s%s%s\n", m->kind == V_BROKEN ? "not ok" : "ok", ++n,
		       nsbox_layer_name(m->layer), mutation_probe(m),
		       m->kind == V_NA ? " # SKIP " : "", m->kind == V_NA ? m->without.text : "");
	}
	printf("1..%u\n", n);
}

void report_tap(const struct suite *s)
{
	if (s->mutated) {
		mutations_tap();
		return;
	}
	for (size_t i = 0; i < s->n; i++) {
		const struct row_result *r = &s->rows[i];
		const struct verdict *v = main_verdict(r);
		bool good = v->kind == V_HELD || v->kind == V_NA || v->kind == V_DECLARED;

		printf("%s %zu - %s %s%s%s\n", good ? "ok" : "not ok", i + 1, r->row->id,
		       r->row->attack, v->kind == V_NA ? " # SKIP " : "",
		       v->kind == V_NA ? v->text : "");
		if (v->kind == V_DECLARED)
			printf("# declared, %s: %s\n", v->layer, v->text);
		if (!good)
			printf("# %s: %s\n", verdict_name(v->kind), v->text);
	}
	printf("1..%zu\n", s->n);
}

/* ------------------------------------------------------------------ JSON */

static struct json_object *str(const char *s)
{
	return json_object_new_string(s);
}

static struct json_object *layers_json(uint32_t layers)
{
	struct json_object *list = json_object_new_array();

	for (int i = 0; i < NSBOX_LAYER_MAX; i++)
		if (layers & NSBOX_LAYER_BIT(i))
			json_object_array_add(list, str(nsbox_layer_name(i)));
	return list;
}

static struct json_object *row_json(const struct probe_row *row)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "id", str(row->id));
	json_object_object_add(o, "attack", str(row->attack));
	json_object_object_add(o, "layers", layers_json(row->walls));
	json_object_object_add(o, "expected", str(row->expected));
	return o;
}

static struct json_object *verdict_json(const struct verdict *v)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "verdict", str(verdict_name(v->kind)));
	json_object_object_add(o, v->kind == V_DECLARED ? "notStopped" : "by",
			       v->layer[0] ? str(v->layer) : NULL);
	json_object_object_add(o, "text", str(v->text));
	return o;
}

static struct json_object *result_json(const struct suite *s, const struct row_result *r)
{
	struct json_object *o = row_json(r->row), *tiers = json_object_new_object();

	json_object_object_add(o, "verdict", str(verdict_name(worst(r))));
	for (int t = NSBOX_TIER_PROCESS; t <= NSBOX_TIER_CGROUP; t++)
		if (s->tiers & (1U << t))
			json_object_object_add(tiers, nsbox_tier_name(t),
					       verdict_json(&r->tier[t]));
	json_object_object_add(o, "tiers", tiers);
	json_object_object_add(o, "control", r->control.kind ? verdict_json(&r->control) : NULL);
	json_object_object_add(o, "durationMs", json_object_new_double(r->ms));
	return o;
}

static struct json_object *mutations_json(void)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < mutations_n; i++) {
		const struct mutation *m = &mutations[i];
		struct json_object *o;

		if (!mutation_tried(m))
			continue;
		o = json_object_new_object();
		json_object_object_add(o, "layer", str(nsbox_layer_name(m->layer)));
		json_object_object_add(o, "leftOutToo", layers_json(m->others));
		json_object_object_add(o, "probe", str(mutation_probe(m)));
		json_object_object_add(o, "verdict", str(mutation_word(m)));
		json_object_object_add(o, "with", verdict_json(&m->with));
		json_object_object_add(o, "without", verdict_json(&m->without));
		json_object_object_add(o, "witness", m->witness ? verdict_json(&m->found) : NULL);
		json_object_array_add(list, o);
	}
	return list;
}

static void print_json(struct json_object *o)
{
	printf("%s\n", json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
								 JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
}

void report_json(const struct suite *s)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();
	struct json_object *sums = json_object_new_object();
	unsigned counts[V_MAX];

	count_verdicts(s, counts);
	json_object_object_add(o, "version", str(NSBOX_VERSION));
	json_object_object_add(o, "kernel", str(s->host.kernel));
	json_object_object_add(o, "profile", str(s->profile));
	if (s->mutated)
		json_object_object_add(o, "mutations", mutations_json());
	for (int k = V_HELD; !s->mutated && k < V_MAX; k++)
		json_object_object_add(sums, verdict_name(k), json_object_new_int((int)counts[k]));
	json_object_object_add(o, "counts", sums);
	for (size_t i = 0; i < s->n; i++)
		json_object_array_add(list, result_json(s, &s->rows[i]));
	json_object_object_add(o, "probes", list);
	print_json(o);
}

/* ------------------------------------------------------------------ what there is */

static void list_text(void)
{
	for (size_t i = 0; i < probe_n_rows; i++)
		printf("%-16s %s\n", probe_rows[i].id, probe_rows[i].attack);
}

static void list_json(void)
{
	struct json_object *o = json_object_new_object(), *probes = json_object_new_array();
	struct json_object *attacks = json_object_new_array();

	for (size_t i = 0; i < probe_n_rows; i++)
		json_object_array_add(probes, row_json(&probe_rows[i]));
	json_object_object_add(o, "probes", probes);
	for (size_t i = 0; i < catalogue_n; i++) {
		struct json_object *a = json_object_new_object();

		json_object_object_add(a, "id", str(catalogue[i].id));
		json_object_object_add(a, "attack", str(catalogue[i].attack));
		json_object_object_add(a, "where", str(catalogue[i].where));
		json_object_object_add(a, "note", str(catalogue[i].note));
		json_object_array_add(attacks, a);
	}
	json_object_object_add(o, "attacks", attacks);
	print_json(o);
}

void report_list(bool json)
{
	if (json)
		list_json();
	else
		list_text();
}

/* Of the tier "process", where it is not held. */
static void explain_gap(const struct probe_row *row)
{
	int gap = process_gap(row, 0);

	if (gap >= 0)
		printf("  process   not stopped%s: %s\n",
		       process_gap(row, LB(OWN_ID)) < 0 ? " where it has the caller's user" : "",
		       nsbox_gap_name(gap));
}

int report_explain(const char *id)
{
	int found = 0;

	for (size_t i = 0; i < probe_n_rows; i++) {
		const struct probe_row *row = &probe_rows[i];

		if (strncmp(row->id, id, strlen(id)) != 0)
			continue;
		printf("%s%s\n  tries     %s\n  expected  %s\n  held by   ", found++ ? "\n" : "",
		       row->id, row->attack, row->expected);
		for (int l = 0, n = 0; l < NSBOX_LAYER_MAX; l++)
			if (row->walls & NSBOX_LAYER_BIT(l))
				printf("%s%s", n++ ? ", each enough: " : "", nsbox_layer_name(l));
		printf("%s\n", row->walls ? "" : "the set-up of every run");
		explain_gap(row);
		printf("  control   %s\n", row->control == AS_CALLER
						   ? "the caller itself, outside"
						   : "a stand-in for a host, thrown away");
	}
	for (size_t i = 0; i < catalogue_n; i++)
		if (!strcmp(catalogue[i].id, id) && strcmp(catalogue[i].where, "selftest") != 0)
			printf("%s%s\n  tries     %s\n  tried in  %s\n  note      %s\n",
			       found++ ? "\n" : "", id, catalogue[i].attack, catalogue[i].where,
			       catalogue[i].note);
	return found ? 0 : cli_usage("there is no attack '%s'; see `nsbox selftest --list`", id);
}
