/* SPDX-License-Identifier: Apache-2.0 */
/*
 * May a program of a live sandbox get this other policy? Only one that allows nothing more than the
 * sandbox's, and less only in what the kernel can hold for a single program: filters and Landlock
 * domains stack, limits of a process shrink. What belongs to the sandbox as a whole was settled when it
 * was made. What is not in the table counts as such: who adds a member of a policy has to say.
 */
#include <json-c/json.h>
#include <string.h>

#include "nsbox/sys.h"
#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/report.h"

enum holds {
	HOLDS, /* for one program: filter, limit, variables, or whoever captures and collects */
	HOLDS_BY_RULE, /* by Landlock, where the host has it */
	WHOLE,	       /* the sandbox's as a whole */
	ELSEWHERE, /* the network's rules are one for all programs, and compared by who has them */
};

/*
 * By member of the canonical form; the manifest's pointer where that is another. What others follow from
 * comes first: of several refusals the first is told.
 */
/* clang-format off */
static const struct {
	const char *pointer; /* a trailing '/': and all below it */
	enum holds holds;
	const char *manifest;
} members[] = {
	{ "/profile",                 WHOLE,         NULL },
	{ "/minTier",                 WHOLE,         NULL },
	{ "/process/subprocess",      WHOLE,         NULL },
	{ "/limits/cpuMs",            HOLDS,         "/timeouts/cpu" },
	{ "/limits/wallMs",           HOLDS,         "/timeouts/wall" },
	{ "/limits/graceMs",          WHOLE,         "/timeouts/grace" },
	{ "/limits/fileSize",         HOLDS,         "/resources/fileSize" },
	{ "/limits/openFiles",        HOLDS,         "/resources/openFiles" },
	{ "/limits/stdout",           HOLDS,         "/resources/stdout" },
	{ "/limits/stderr",           HOLDS,         "/resources/stderr" },
	{ "/limits/result",           HOLDS,         "/resources/result" },
	{ "/limits/memory",           WHOLE,         "/resources/memory" },
	{ "/limits/cpuMilli",         WHOLE,         "/resources/cpu" },
	{ "/limits/pids",             WHOLE,         "/resources/pids" },
	{ "/limits/disk",             WHOLE,         "/resources/disk" },
	{ "/limits/diskInodes",       WHOLE,         "/resources/disk" },
	{ "/filesystem/read",         HOLDS_BY_RULE, NULL },
	{ "/filesystem/write",        HOLDS_BY_RULE, NULL },
	{ "/filesystem/exec",         HOLDS_BY_RULE, NULL },
	{ "/filesystem/optional",     HOLDS,         NULL },
	{ "/filesystem/executable",   WHOLE,         "/files/executable" },
	{ "/filesystem/rootReadOnly", WHOLE,         "/profile" },
	{ "/filesystem/skillReadOnly", WHOLE,        "/filesystem/skill" },
	{ "/filesystem/workspaceShared", WHOLE,      "/filesystem/workspace" },
	{ "/filesystem/tmpfs/~1tmp",  WHOLE,         "/filesystem/tmp" },
	{ "/process/jit",             HOLDS,         NULL },
	{ "/process/threads",         HOLDS,         NULL },
	{ "/process/ptrace",          HOLDS,         NULL },
	{ "/process/netlink",         HOLDS,         NULL },
	{ "/process/listen",          HOLDS,         NULL },
	{ "/process/uid",             WHOLE,         "/process/user" },
	{ "/syscalls/allow",          HOLDS,         NULL },
	{ "/env/pass",                HOLDS,         NULL },
	{ "/env/set",                 HOLDS,         NULL },
	{ "/outputs",                 HOLDS,         NULL },
	{ "/name",                    HOLDS,         NULL },
	{ "/hostname",                WHOLE,         "/determinism/hostname" },
	{ "/image",                   WHOLE,         "/runtime/rootfs" },
	{ "/network/mode",            ELSEWHERE,     NULL },
	{ "/network/allow",           ELSEWHERE,     NULL },
	{ "/network/denyCidrs",       WHOLE,         NULL },
	{ "/network/",                ELSEWHERE,     NULL }, /* the operator's, and only where there is one */
	{ "/layers/",                 WHOLE,         "/require/" },
};
/* clang-format on */

struct found {
	char pointer[300]; /* into the manifest */
	enum holds holds;
	size_t rank;
};

static struct found find(const char *pointer)
{
	struct found ret = { .holds = WHOLE, .rank = ARRAY_SIZE(members) };

	nsbox_format(ret.pointer, sizeof(ret.pointer), "%s", pointer);
	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		const char *p = members[i].pointer, *m = members[i].manifest;
		size_t n = strlen(p);
		bool below = p[n - 1] == '/';

		if (below ? strncmp(p, pointer, n) != 0 : strcmp(p, pointer) != 0)
			continue;
		ret.holds = members[i].holds;
		ret.rank = i;
		if (m)
			nsbox_format(ret.pointer, sizeof(ret.pointer), "%s%s", m,
				     below ? pointer + n : "");
		break;
	}
	return ret;
}

static const char *text_of(struct json_object *entry, const char *key)
{
	struct json_object *v = report_at(entry, key);

	return v ? json_object_get_string(v) : "nothing";
}

static bool is_listed(char *const *list, const char *path)
{
	for (; list && *list; list++) {
		size_t n = strlen(*list);

		if (!strncmp(path, *list, n) && (path[n] == '/' || !path[n]))
			return true;
	}
	return false;
}

/* What may be written may be read. */
static bool could_read(const struct nsbox_policy *now, struct json_object *e, const char *pointer)
{
	return !strcmp(pointer, "/filesystem/read") && report_at(e, "to") &&
	       is_listed(now->write, report_get(e, "to"));
}

/* The packet filter is required where there is a network: that is the same difference. */
static bool is_of_network(struct json_object *report, struct json_object *e)
{
	static const char *const lists[] = { "widened", "narrowed", "changed" };
	bool network = false;

	for (size_t k = 0; k < ARRAY_SIZE(lists); k++) {
		struct json_object *list = report_at(report, lists[k]);

		for (size_t i = 0; i < json_object_array_length(list); i++)
			network |=
				!strncmp(report_get(json_object_array_get_idx(list, i), "pointer"),
					 "/network/", strlen("/network/"));
	}
	return network && !strcmp(report_get(e, "pointer"), "/layers/nftables");
}

/* Of a list the entry that is told: one that is not allowed, by `wider` or since it is the whole's. */
static struct json_object *worst(const struct nsbox_policy *now, struct json_object *report,
				 const char *way, bool wider, struct found *ret)
{
	struct json_object *list = report_at(report, way), *best = NULL;

	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *e = json_object_array_get_idx(list, i);
		struct found f = find(report_get(e, "pointer"));

		if (f.holds == ELSEWHERE || (!wider && f.holds != WHOLE) ||
		    could_read(now, e, report_get(e, "pointer")) || is_of_network(report, e))
			continue;
		if (!best || f.rank < ret->rank) {
			best = e;
			*ret = f;
		}
	}
	return best;
}

static int refuse_wider(const struct nsbox_policy *now, struct json_object *report,
			struct nsbox_error *err)
{
	struct found f;
	struct json_object *e = worst(now, report, "widened", true, &f);

	if (!e)
		return 0;
	nsbox_fail(
		err, NSBOX_E_MANIFEST, 0,
		"%s: wider than what the sandbox was made with (%.60s instead of %.60s), and what "
		"lives can only become narrower: make a new one",
		f.pointer, text_of(e, "to"), text_of(e, "from"));
	return -EEXIST;
}

static int refuse_whole(const struct nsbox_policy *now, struct json_object *report, const char *way,
			struct nsbox_error *err)
{
	struct found f;
	struct json_object *e = worst(now, report, way, false, &f);

	if (!e)
		return 0;
	nsbox_fail(
		err, NSBOX_E_UNSUPPORTED, 0,
		"%s: this belongs to the sandbox as a whole and is fixed when that is made (%.60s "
		"instead of %.60s): say it as it is, or make a new one",
		f.pointer, text_of(e, "to"), text_of(e, "from"));
	return -EEXIST;
}

/* ------------------------------------------------------------------ what Landlock has to hold */

static const struct {
	const char *pointer;
	uint64_t right;
} rights[] = {
	{ "/filesystem/read", LANDLOCK_ACCESS_FS_READ_FILE },
	{ "/filesystem/write", LANDLOCK_ACCESS_FS_WRITE_FILE },
	{ "/filesystem/exec", LANDLOCK_ACCESS_FS_EXECUTE },
};

static int take(struct nsbox_policy *then, const char *path, uint64_t right,
		struct nsbox_error *err)
{
	struct policy_taken *t = reallocarray(then->taken, then->n_taken + 1, sizeof(*then->taken));

	if (t)
		then->taken = t;
	if (!t || !(t[then->n_taken].path = strdup(path)))
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "compare policies");
	t[then->n_taken++].right = right;
	return 0;
}

static int take_rights(struct nsbox_policy *then, struct json_object *list, struct nsbox_error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < json_object_array_length(list); i++) {
		struct json_object *e = json_object_array_get_idx(list, i);

		for (size_t k = 0; r == 0 && k < ARRAY_SIZE(rights); k++)
			if (!strcmp(report_get(e, "pointer"), rights[k].pointer))
				r = take(then, report_get(e, "from"), rights[k].right, err);
	}
	return r;
}

static int refuse_lost(struct nsbox_policy *then, struct nsbox_error *err)
{
	const char *path, *pointer = "/filesystem";
	int r = then->n_taken ? landlock_taken(then, &path, err) : 0;

	if (r < 0 || !then->n_taken || !path)
		return r;
	for (size_t i = 0; i < then->n_taken; i++)
		for (size_t k = 0; k < ARRAY_SIZE(rights); k++)
			if (then->taken[i].path == path && then->taken[i].right == rights[k].right)
				pointer = rights[k].pointer;
	nsbox_fail(
		err, NSBOX_E_UNSUPPORTED, 0,
		then->landlock_abi
			? "%s: '%.200s' cannot be taken from one program: every run has what is "
			  "around it. Say it as it is, or make a new sandbox"
			: "%s: only Landlock could take '%.200s' from one program, and this host "
			  "has none: make a new sandbox",
		pointer, path);
	return -EEXIST;
}

int nsbox_policy_narrower(const struct nsbox_policy *now, struct nsbox_policy *then,
			  struct nsbox_error *err)
{
	auto_free char *text = NULL;
	struct json_object *o;
	unsigned widened;
	int r = nsbox_policy_diff(now, then, NSBOX_REPORT_JSON, &text, &widened, err);

	if (r < 0)
		return r;
	o = json_tokener_parse(text);
	if (!o)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "compare policies");
	r = refuse_wider(now, o, err);
	if (r == 0)
		r = refuse_whole(now, o, "narrowed", err);
	if (r == 0)
		r = refuse_whole(now, o, "changed", err);
	if (r == 0)
		r = take_rights(then, report_at(o, "narrowed"), err);
	if (r == 0)
		r = refuse_lost(then, err);
	json_object_put(o);
	return r;
}
