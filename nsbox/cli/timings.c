/* SPDX-License-Identifier: Apache-2.0 */
/* What each part of a run took: `nsbox run --timings`. */
#include <json-c/json.h>
#include <nsbox/sandbox.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/result_json.h"
#include "nsbox/cli/run.h"
#include "nsbox/util.h"

struct part {
	const char *name, *text;
	uint64_t us;
};
#define PARTS 7

/* In order; the last two of the sandbox's own time are parts of others, and say so. */
static void parts(const struct run_marks *m, const struct nsbox_result *r, struct part ret[PARTS])
{
	const uint64_t inside = r->setup_us + r->start_us + r->wall_us;
	const uint64_t all = m->ended - m->sandbox;
	const struct part rows[PARTS] = {
		{ "policy", "manifest, host and filters", m->policy - m->began },
		{ "files", "files, root and streams", m->sandbox - m->policy },
		{ "setup", "the sandbox, until its init is ready", r->setup_us },
		{ "start", "the program's process, until it runs", r->start_us },
		{ "witness", "of that: forbidden acts, tried", r->witness_us },
		{ "program", "the program", r->wall_us },
		{ "end", "everything's end", all > inside ? all - inside : 0 },
	};

	memcpy(ret, rows, sizeof(rows));
}

struct json_object *timings_json(const struct run_marks *m, const struct nsbox_result *r)
{
	struct json_object *o = json_object_new_object(), *stages = json_object_new_object();
	struct part rows[PARTS];

	parts(m, r, rows);
	for (unsigned i = 0; i < PARTS; i++) {
		char name[32];

		snprintf(name, sizeof(name), "%s_us", rows[i].name);
		json_put_u64(o, name, rows[i].us);
	}
	for (int i = 0; i <= NSBOX_STAGE_READY; i++)
		if (r->stage_us[i])
			json_put_u64(stages, nsbox_stage_name(i), r->stage_us[i]);
	json_put(o, "stages_us", stages);
	return o;
}

void timings_print(const struct run_marks *m, const struct nsbox_result *r)
{
	struct part rows[PARTS];

	parts(m, r, rows);
	for (unsigned i = 0; i < PARTS; i++) {
		fprintf(stderr, "%8llu us  %-8s %s\n", (unsigned long long)rows[i].us, rows[i].name,
			rows[i].text);
		for (int s = 0; !strcmp(rows[i].name, "setup") && s <= NSBOX_STAGE_READY; s++)
			if (r->stage_us[s])
				fprintf(stderr, "%8u us    %s\n", r->stage_us[s],
					nsbox_stage_name(s));
	}
}
