/* SPDX-License-Identifier: Apache-2.0 */
/* How a run went: JSON for programs (--result), a table for people (--verbose). */
#include "nsbox/cli/run.h"

#include <fcntl.h>
#include <json-c/json.h>
#include <nsbox/gap.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/denials.h"
#include "daemon/common/result_json.h"
#include "daemon/common/text.h"
#include "nsbox/cli/cli.h"
#include "nsbox/util.h"

static const char *const cgroup_names[] = { "rlimits and a watchdog", "control groups v1",
					    "control groups v2" };

/* What shows that a layer holds, beyond its set-up having succeeded. */
static const struct {
	int layer, witness;
} evidence[] = {
	{ NSBOX_LAYER_ROOT, NSBOX_WITNESS_WRITE },
	{ NSBOX_LAYER_LANDLOCK_FS, NSBOX_WITNESS_LANDLOCK },
	{ NSBOX_LAYER_NET, NSBOX_WITNESS_CONNECT },
	{ NSBOX_LAYER_SECCOMP, NSBOX_WITNESS_SYSCALL },
	{ NSBOX_LAYER_USER, NSBOX_WITNESS_PTRACE },
	{ NSBOX_LAYER_PID, NSBOX_WITNESS_PROCESS },
	{ NSBOX_LAYER_CAPABILITIES, NSBOX_WITNESS_CAPABILITY },
	{ NSBOX_LAYER_NO_NEW_PRIVS, NSBOX_WITNESS_CAPABILITY },
};

static const char *evidence_of(const struct nsbox_result *r, int layer)
{
	for (unsigned i = 0; i < ARRAY_SIZE(evidence); i++)
		if (evidence[i].layer == layer && (r->witness_held & (1U << evidence[i].witness)))
			return nsbox_witness_name(evidence[i].witness);
	return NULL;
}

static struct json_object *str(const char *s)
{
	return json_text_new(s, strlen(s)); /* some of it is the payload's */
}

/* What the manifest asked for beyond its profile, and what came of it. */
static void add_grants(struct json_object *o, const struct nsbox_policy *p)
{
	struct json_object *granted = json_object_new_array(), *refused = json_object_new_array();
	struct nsbox_grant g;

	for (size_t i = 0; nsbox_policy_grant(p, i, &g); i++) {
		struct json_object *row = json_object_new_object();

		json_object_object_add(row, "pointer", str(g.pointer));
		json_object_object_add(row, "value", str(g.value));
		if (g.refused)
			json_object_object_add(row, "why", str(g.refused));
		json_object_array_add(g.refused ? refused : granted, row);
	}
	json_object_object_add(o, "granted", granted);
	json_object_object_add(o, "refused", refused);
}

/* The library's remarks are notes where they are no error. */
static struct json_object *notes_json(const struct report *rep)
{
	const struct nsbox_error *e = &rep->result->error;
	struct json_object *list = json_object_new_array();

	if (!e->code && e->msg[0])
		json_object_array_add(list, str(e->msg));
	if (rep->note)
		json_object_array_add(list, str(rep->note));
	if (denials_lack(rep->result))
		json_object_array_add(list, str(denials_lack(rep->result)));
	return list;
}

static struct json_object *report_json(const struct report *rep)
{
	const struct nsbox_result *r = rep->result;
	const struct result_json held = { .result = r,
					  .host = rep->host,
					  .limits = rep->limits,
					  .wall_ms = rep->wall_ms,
					  .is_python = rep->is_python };
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "cause", str(nsbox_cause_name((int)r->cause)));
	json_object_object_add(o, "exit_code", json_object_new_int(r->exit_status));
	if (r->signal)
		json_put(o, "signal", json_object_new_int(r->signal));
	else
		json_put_null(o, "signal");
	if (r->error.code)
		json_put(o, "error", json_error_new(&r->error));
	json_object_object_add(o, "notes", notes_json(rep));
	json_object_object_add(o, "stdout_truncated", json_object_new_boolean(rep->out_truncated));
	json_object_object_add(o, "stderr_truncated", json_object_new_boolean(rep->err_truncated));
	json_put_u64(o, "duration_ms", (r->setup_us + r->wall_us) / 1000);
	json_put_u64(o, "setup_ms", r->setup_us / 1000);
	json_put_u64(o, "wall_ms", r->wall_us / 1000);
	json_put_u64(o, "cpu_ms", r->cpu_us / 1000);
	if (rep->marks)
		json_put(o, "timings", timings_json(rep->marks, r));
	json_object_object_add(o, "memory_peak", json_object_new_int64((int64_t)r->memory_peak));
	json_object_object_add(o, "oom_kills", json_object_new_int64(r->oom_kills));
	json_object_object_add(o, "pids_limit_hits", json_object_new_int64(r->pids_limit_hits));
	json_object_object_add(o, "manifest", str(rep->profile_manifest));
	json_object_object_add(o, "policy_sha256", str(rep->policy_digest));
	add_grants(o, rep->policy);
	json_put(o, "network", egress_log_json(rep->egress, true));
	json_put(o, "denials", json_object_get(rep->denials));
	result_put_held(o, &held);
	if (rep->outputs)
		json_object_object_add(o, "outputs", json_object_get(rep->outputs));
	if (rep->changes)
		json_object_object_add(o, "changes", json_object_get(rep->changes));
	if (rep->is_python) {
		json_put_u64(o, "code", rep->python_ok ? 200 : 500);
		json_object_object_add(o, "data", json_object_get(rep->value));
		json_object_object_add(o, "msg", rep->msg ? str(rep->msg) : NULL);
	}
	return o;
}

int report_write(const struct report *rep, const char *path, struct nsbox_error *err)
{
	struct json_object *o = report_json(rep);
	const char *text = json_object_to_json_string_ext(
		o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE);
	auto_close int fd = strcmp(path, "-")
				    ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)
				    : dup(STDOUT_FILENO);
	int r = fd < 0 ? -errno : write_full(fd, text, strlen(text));

	if (r == 0)
		r = write_full(fd, "\n", 1);
	json_object_put(o);
	return r < 0 ? nsbox_fail(err, NSBOX_E_IO, r, "write the report to '%s'", path) : 0;
}

static void print_refused(const struct nsbox_policy *p)
{
	struct nsbox_grant g;

	for (size_t i = 0; nsbox_policy_grant(p, i, &g); i++)
		if (g.refused)
			fprintf(stderr, "refused   %s: %s: %s\n", g.pointer, g.value, g.refused);
}

/* As JSON strings: names are the program's, and this may be a terminal. */
static void print_denials(struct json_object *list)
{
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *d = json_object_array_get_idx(list, i);
		struct json_object *pointer = json_object_object_get(d, "pointer");

		fprintf(stderr, "denied    %s: %s",
			json_object_get_string(json_object_object_get(d, "layer")),
			json_object_to_json_string_ext(json_object_object_get(d, "name"),
						       JSON_C_TO_STRING_NOSLASHESCAPE));
		fprintf(stderr, ", %s times%s%s\n",
			json_object_get_string(json_object_object_get(d, "times")),
			pointer ? "; see " : "", pointer ? json_object_get_string(pointer) : "");
	}
}

static void print_gaps(uint32_t gaps)
{
	if (gaps)
		fprintf(stderr, "not stopped from");
	for (int i = 0; i < NSBOX_GAP_MAX; i++)
		if (gaps & NSBOX_GAP_BIT(i))
			fprintf(stderr, " %s", nsbox_gap_name(i));
	if (gaps)
		fprintf(stderr, "; see nsbox(1), THE TIER PROCESS\n");
}

void report_print(const struct report *rep)
{
	const struct nsbox_result *r = rep->result;

	fprintf(stderr, "cause     %s, exit status %d\n", nsbox_cause_name((int)r->cause),
		r->exit_status);
	fprintf(stderr, "time      %.1f ms (set-up %.1f ms), cpu %.1f ms\n",
		(double)r->wall_us / 1000.0, (double)r->setup_us / 1000.0,
		(double)r->cpu_us / 1000.0);
	if (r->memory_peak)
		fprintf(stderr, "memory    peak %llu KiB of ",
			(unsigned long long)r->memory_peak / 1024);
	else /* over before the watchdog looked */
		fprintf(stderr, "memory    peak unknown, limit ");
	fprintf(stderr, "%llu KiB, by %s\n", (unsigned long long)r->memory_limit / 1024,
		cgroup_names[r->cgroup_kind % 3]);
	print_refused(rep->policy);
	print_denials(rep->denials);
	for (int i = 0; i < NSBOX_LAYER_MAX; i++) {
		bool on = r->enforced & NSBOX_LAYER_BIT(i);
		const char *ev = on ? evidence_of(r, i) : NULL;

		if (!on && !(r->not_enforced & NSBOX_LAYER_BIT(i)))
			continue;
		fprintf(stderr, "%-10s%-16s %s%s%s\n", on ? "enforced" : "MISSING",
			nsbox_layer_name(i), nsbox_layer_text(i), ev ? "; tried: " : "",
			ev ? ev : "");
	}
	print_gaps(result_gaps(r));
}
