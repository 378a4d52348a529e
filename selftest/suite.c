/* SPDX-License-Identifier: Apache-2.0 */
/* The table of probes, and verdicts: of what one said, of what the kernel says of its end. */
#include <string.h>

#include "nsbox/plan_build.h"
#include "nsbox/util.h"
#include "selftest/selftest.h"

const struct probe_row probe_rows[] = {
#define X(name, id, attack, walls, control, flags, expected)                                       \
	{ #name, id, attack, walls, control, flags, expected, NULL },
	SELFTEST_PROBES(X)
#undef X
};
const size_t probe_n_rows = ARRAY_SIZE(probe_rows);

static const char *const names[V_MAX] = {
	[V_NONE] = "not tried",	 [V_HELD] = "held", [V_DECLARED] = "declared",
	[V_ESCAPED] = "ESCAPED", [V_NA] = "n/a",    [V_BROKEN] = "broken",
};

const char *verdict_name(int kind)
{
	return kind >= 0 && kind < V_MAX ? names[kind] : "?";
}

/* ------------------------------------------------------------------ what it said */

/* Hostile where the probe is not ours: printable ASCII of it. */
static void copy_text(char *to, size_t size, const char *from, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len && n < size - 1; i++)
		to[n++] = from[i] >= ' ' && from[i] < 127 ? from[i] : '?';
	to[n] = '\0';
}

static const char *last_line(const char *out, size_t *ret_len)
{
	size_t end = strlen(out), start;

	while (end && (out[end - 1] == '\n' || out[end - 1] == '\r'))
		end--;
	for (start = end; start && out[start - 1] != '\n';)
		start--;
	*ret_len = end - start;
	return out + start;
}

static const struct {
	const char *word;
	int status, kind;
} words[] = {
	{ "HELD", 0, V_HELD },
	{ "ESCAPED", 1, V_ESCAPED },
	{ "SKIP", 2, V_NA },
};

static bool is_layer(const char *name)
{
	return nsbox_layer_by_name(name) >= 0 || !strcmp(name, "setup") || !strcmp(name, "limits");
}

/* "HELD layer: text", "HELD", "ESCAPED: text", "SKIP why" */
static struct verdict judge_line(const struct ending *e)
{
	struct verdict v = { .kind = V_BROKEN };
	size_t len;
	const char *line = last_line(e->out, &len), *at;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		size_t n = strlen(words[i].word);

		if (len < n || strncmp(line, words[i].word, n) != 0 || words[i].status != e->status)
			continue;
		v.kind = words[i].kind;
		at = line + n;
		while (*at == ' ')
			at++;
		if (v.kind == V_HELD) {
			copy_text(v.layer, sizeof(v.layer), at, strcspn(at, ": \n"));
			if (is_layer(v.layer))
				at += strlen(v.layer);
			else
				v.layer[0] = '\0';
		}
		at += strspn(at, ": ");
		copy_text(v.text, sizeof(v.text), at, len - (size_t)(at - line));
		return v;
	}
	nsbox_format(v.text, sizeof(v.text), "no verdict: exit status %d, and its last line is \"",
		     e->status);
	copy_text(v.text + strlen(v.text), 100, line, len);
	strcat(v.text, "\"");
	return v;
}

/* ------------------------------------------------------------------ how it ended */

static struct verdict held_by_end(const char *layer, const char *text)
{
	struct verdict v = { .kind = V_HELD };

	nsbox_format(v.layer, sizeof(v.layer), "%s", layer);
	nsbox_format(v.text, sizeof(v.text), "%s", text);
	return v;
}

static struct verdict judge_witness(const struct nsbox_result *r)
{
	struct verdict v = { .kind = V_ESCAPED };
	int n = 0;

	for (int i = 0; i < NSBOX_WITNESS_MAX; i++)
		n += (r->witness_held & (1U << i)) != 0;
	if (!(r->enforced & NSBOX_LAYER_BIT(NSBOX_LAYER_WITNESS)) || n < NSBOX_WITNESS_MAX - 1 ||
	    r->witness_held != r->witness_tried) {
		nsbox_format(v.text, sizeof(v.text), "%d acts refused of 0x%x tried", n,
			     r->witness_tried);
		return v;
	}
	v = held_by_end("witness", "");
	nsbox_format(v.text, sizeof(v.text), "%d acts, all refused, in %u us", n, r->witness_us);
	return v;
}

struct verdict judge_ending(const struct probe_row *row, const struct ending *e)
{
	uint32_t cause = e->in_box ? e->result.cause : NSBOX_CAUSE_NONE;
	struct verdict v = { .kind = V_BROKEN };

	if (e->status >= 0 && e->in_box && (row->flags & PF_RESULT))
		return judge_witness(&e->result);
	if (e->status >= 0)
		return judge_line(e);
	if ((row->flags & PF_MEMORY) && cause == NSBOX_CAUSE_MEMORY)
		return held_by_end(e->result.cgroup_kind ? "cgroupLimits" : "limits",
				   "ended by the memory limit");
	if ((row->flags & PF_PIDS) && cause == NSBOX_CAUSE_PIDS)
		return held_by_end("limits", "ended by the limit of processes");
	if ((row->flags & PF_WALL_TIME) && cause == NSBOX_CAUSE_WALL_TIME)
		return held_by_end("limits", "ended by the time limit");
	nsbox_format(v.text, sizeof(v.text), "%s", e->why[0] ? e->why : "it could not be run");
	return v;
}

/* ------------------------------------------------------------------ what applies */

const char *not_applicable(const struct probe_row *row, const struct box *b, int tier)
{
	uint32_t have = nsbox_host_layers(&b->host);
	const struct plan_fixed *fixed = blob_fixed(plan_blob(b->plan), struct plan_fixed);
	const struct {
		unsigned flag;
		bool out;
		const char *why;
	} rules[] = {
		{ PF_CGROUP, tier < NSBOX_TIER_CGROUP, "only control groups count this" },
		{ PF_NO_PTRACE, b->ptrace, "the policy allows debugging" },
		{ PF_NO_MEMFD, b->memfd_exec, "the policy allows programs in memory" },
		{ PF_NO_NETWORK, b->network, "the policy allows a network" },
		{ PF_RANGE, b->host.ids_kind == NSBOX_IDS_SINGLE, "there is one id for all runs" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
		if ((row->flags & rules[i].flag) && rules[i].out)
			return rules[i].why;
	if (tier == NSBOX_TIER_PROCESS)
		return NULL; /* tried all the same: process.c */
	/* All of its walls are missing, and the policy goes without them. */
	for (int i = 0; row->walls && i < NSBOX_LAYER_MAX; i++)
		if ((row->walls & NSBOX_LAYER_BIT(i)) && (have & NSBOX_LAYER_BIT(i)) &&
		    fixed->layer[i] != NSBOX_OFF)
			return NULL;
	return row->walls ? "this host or the policy has none of its layers; see nsbox doctor"
			  : NULL;
}

int worst(const struct row_result *r)
{
	static const int order[] = { V_ESCAPED, V_BROKEN, V_DECLARED, V_HELD, V_NA };

	for (size_t i = 0; i < ARRAY_SIZE(order); i++)
		for (size_t t = 0; t < ARRAY_SIZE(r->tier); t++)
			if (r->tier[t].kind == order[i])
				return order[i];
	return V_NONE;
}

void count_verdicts(const struct suite *s, unsigned counts[V_MAX])
{
	memset(counts, 0, V_MAX * sizeof(*counts));
	for (size_t i = 0; i < s->n; i++)
		counts[worst(&s->rows[i])]++;
}
