/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is different in the tier "process": which layer answers there for one of namespaces, and which
 * probes reach what that tier does not promise (nsbox/gap.h).
 *
 * Every probe is tried there, also one whose layers are all missing: what it does all the same is
 * "declared" where the table below names it and the run had nothing that closes that gap, else an escape.
 */
#include <nsbox/gap.h>
#include <string.h>

#include "nsbox/util.h"
#include "selftest/selftest.h"

/* clang-format off */
static const struct {
	const char *id; /* of a probe */
	int gap;
} declared[] = {
	{ "A02", NSBOX_GAP_HOST },
	{ "A06-user", NSBOX_GAP_HOST },
	{ "A06-mount", NSBOX_GAP_HOST },
	{ "A06-pid", NSBOX_GAP_PROCESSES },
	{ "A06-net", NSBOX_GAP_HOST },
	{ "A06-ipc", NSBOX_GAP_HOST },
	{ "A06-uts", NSBOX_GAP_HOST },
	{ "A06-cgroup", NSBOX_GAP_HOST },
	{ "A09", NSBOX_GAP_SIGNALS },
	{ "A10", NSBOX_GAP_SIGNALS },
	{ "B13", NSBOX_GAP_SET_ID },
	{ "B25-paths", NSBOX_GAP_HOST },
	{ "C02", NSBOX_GAP_HOST },
	{ "C05", NSBOX_GAP_PATHS },
	{ "C10", NSBOX_GAP_PROCESSES },
	{ "E05", NSBOX_GAP_ATTRIBUTES },
	{ "E06", NSBOX_GAP_SIGNALS },
	{ "F07", NSBOX_GAP_GROUPS },
	{ "H06", NSBOX_GAP_DISK },
	{ "H11-inotify", NSBOX_GAP_USER_LIMITS },
};
/* clang-format on */

int process_gap(const struct probe_row *row, uint32_t enforced)
{
	for (size_t i = 0; i < ARRAY_SIZE(declared); i++)
		if (!strcmp(declared[i].id, row->id) &&
		    (nsbox_gaps(enforced) & NSBOX_GAP_BIT(declared[i].gap)))
			return declared[i].gap;
	return -1;
}

/* A probe names the layer by the answer that it got, which is that of another one here. */
static const struct {
	int layer;
	uint32_t by;
} answers[] = {
	{ NSBOX_LAYER_USER, LB(OWN_ID) },
	{ NSBOX_LAYER_PID, LB(OWN_ID) | LB(LANDLOCK_SCOPES) },
	{ NSBOX_LAYER_NET, LB(SECCOMP) },
	{ NSBOX_LAYER_NFTABLES, LB(SECCOMP) },
	{ NSBOX_LAYER_ROOT, LB(LANDLOCK_FS) },
	{ NSBOX_LAYER_PROC, LB(LANDLOCK_FS) },
};

static void name_layer(struct verdict *v, uint32_t enforced)
{
	int named = nsbox_layer_by_name(v->layer);
	const char *name = "setup";

	if (named < 0 || (enforced & NSBOX_LAYER_BIT(named)))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(answers); i++)
		for (int l = 0; answers[i].layer == named && l < NSBOX_LAYER_MAX; l++)
			if (answers[i].by & enforced & NSBOX_LAYER_BIT(l))
				name = nsbox_layer_name(l);
	nsbox_format(v->layer, sizeof(v->layer), "%s", name);
}

void process_verdict(const struct probe_row *row, uint32_t enforced, struct verdict *v)
{
	bool ran = enforced && !(enforced & LB(USER)); /* and in this tier */
	int gap = v->kind == V_ESCAPED && ran ? process_gap(row, enforced) : -1;

	if (v->kind == V_HELD && enforced)
		name_layer(v, enforced);
	if (gap < 0)
		return;
	v->kind = V_DECLARED;
	nsbox_format(v->layer, sizeof(v->layer), "%s", nsbox_gap_name(gap));
}
