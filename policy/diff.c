/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two resolved policies compared: what the second one allows more (widened), less (narrowed), or
 * just otherwise (changed). One table says for each member of the canonical form which way is
 * wider. A difference in a member that the table does not know counts as widening: whoever adds a
 * member has to say.
 */
#include <json-c/json_pointer.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/explain.h"
#include "policy/internal.h"
#include "policy/names.h"
#include "policy/report.h"

enum row_kind {
	MORE_IS_WIDER,
	MORE_IS_NARROWER,
	TRUE_IS_WIDER,
	TRUE_IS_NARROWER,
	ENTRY_WIDENS, /* lists of strings */
	PATH_WIDENS,  /* lists of paths: what is below an entry is covered by it */
	ENTRY_NARROWS,
	WORD_ORDER, /* words, the widest last */
	HOSTS,
	TMPFS,
	JUST_CHANGED,
	IGNORED, /* says nothing about what is allowed, or is said by another member */
};

static const char *const subprocess_words[] = { "none", "skill", "any", NULL };
static const char *const network_words[] = { "none", "allowlist", "open", NULL };
static const char *const layer_words[] = { "require", "prefer", "off", NULL };
static const char *const tier_words[] = { "cgroup", "namespace", "process", NULL };

/* clang-format off */
static const struct row {
	const char *pointer; /* a trailing '*': any member */
	enum row_kind kind;
	const char *text;    /* what it is, for people */
	const char *const *words;
} rows[] = {
	{ "/filesystem/read",         PATH_WIDENS,      "may be read" },
	{ "/filesystem/write",        PATH_WIDENS,      "may be written" },
	{ "/filesystem/exec",         PATH_WIDENS,      "programs may be started from" },
	{ "/filesystem/executable",   ENTRY_WIDENS,     "gets the execute bit" },
	{ "/filesystem/mask",         ENTRY_NARROWS,    "is hidden" },
	{ "/filesystem/readOnly",     ENTRY_NARROWS,    "is read-only" },
	{ "/filesystem/optional",     JUST_CHANGED,     "paths that may be missing" },
	{ "/filesystem/rootReadOnly", TRUE_IS_NARROWER, "the root is read-only" },
	{ "/filesystem/skillReadOnly", TRUE_IS_NARROWER, "the skill is read-only" },
	{ "/filesystem/skill",        JUST_CHANGED,     "the skill's directory" },
	{ "/filesystem/workdir",      JUST_CHANGED,     "the working directory" },
	{ "/filesystem/workspace",    TRUE_IS_WIDER,    "there is a workspace" },
	{ "/filesystem/workspaceShared", TRUE_IS_WIDER, "the workspace is a directory of the host" },
	{ "/filesystem/tmpfs",        TMPFS,            "file system of its own" },
	{ "/process/subprocess",      WORD_ORDER,       "programs that may be started", subprocess_words },
	{ "/process/jit",             TRUE_IS_WIDER,    "memory may be writable and executable" },
	{ "/process/threads",         TRUE_IS_WIDER,    "threads" },
	{ "/process/ptrace",          TRUE_IS_WIDER,    "own processes may be traced" },
	{ "/process/netlink",         TRUE_IS_WIDER,    "netlink beyond lists of interfaces" },
	{ "/process/listen",          TRUE_IS_WIDER,    "may wait for connections" },
	{ "/process/uid",             MORE_IS_NARROWER, "the user inside" },
	{ "/network/mode",            WORD_ORDER,       "network", network_words },
	{ "/network/allow",           HOSTS,            "may be reached" },
	{ "/network/denyCidrs",       ENTRY_NARROWS,    "is never reached" },
	{ "/network/openNetworks",    ENTRY_WIDENS,     "may be reached though it is special" },
	{ "/network/bannedNetworks",  ENTRY_NARROWS,    "is banned" },
	{ "/network/bannedNames",     ENTRY_NARROWS,    "is banned" },
	{ "/network/certificates",    JUST_CHANGED,     "certificate authorities of the operator" },
	{ "/network/tlsPorts",        ENTRY_NARROWS,    "takes TLS for the name alone" },
	{ "/network/connections",     MORE_IS_WIDER,    "connections" },
	{ "/network/connectionIdle",  JUST_CHANGED,     "milliseconds without a byte" },
	{ "/network/connectionTime",  JUST_CHANGED,     "milliseconds of a connection" },
	{ "/network/transfer",        JUST_CHANGED,     "bytes to and from outside" },
	{ "/network/transferRate",    JUST_CHANGED,     "bytes in a second" },
	{ "/syscalls/allow",          ENTRY_WIDENS,     "system call allowed by name" },
	{ "/env/pass",                ENTRY_WIDENS,     "variable passed on from the caller" },
	{ "/env/set",                 JUST_CHANGED,     "variables" },
	{ "/limits/*",                MORE_IS_WIDER,    "limit" },
	{ "/layers/*",                WORD_ORDER,       "layer", layer_words },
	{ "/minTier",                 WORD_ORDER,       "weakest host", tier_words },
	{ "/landlock/abi",            MORE_IS_NARROWER, "Landlock ABI" },
	{ "/outputs",                 JUST_CHANGED,     "files that are returned" },
	{ "/hostname",                JUST_CHANGED,     "host name" },
	{ "/image",                   JUST_CHANGED,     "image" },
	{ "/session",                 JUST_CHANGED,     "life of a session" },
	{ "/profile",                 JUST_CHANGED,     "profile" },
	{ "/name",                    JUST_CHANGED,     "name" },
	{ "/manifest",                IGNORED,          "" },
	{ "/asked",                   IGNORED,          "" },
	{ "/granted",                 IGNORED,          "" },
	{ "/refused",                 IGNORED,          "" },
	{ "/unsupported",             IGNORED,          "" },
	{ "/landlockLost",            IGNORED,          "" },
};
/* clang-format on */

struct diff {
	struct json_object *list[3];
	unsigned n[3];
};
enum { WIDENED, NARROWED, CHANGED };
static const char *const way_names[] = { "widened", "narrowed", "changed" };

static void note(struct diff *d, int way, const char *pointer, struct json_object *from,
		 struct json_object *to, const char *text)
{
	struct json_object *o = report_add_to(d->list[way], json_object_new_object());

	report_str(o, "pointer", pointer);
	report_put(o, "from", json_object_get(from));
	report_put(o, "to", json_object_get(to));
	report_str(o, "text", text);
	d->n[way]++;
}

/* ------------------------------------------------------------------ kinds */

static void compare_numbers(struct diff *d, const struct row *r, const char *pointer,
			    struct json_object *a, struct json_object *b, bool more_is_wider)
{
	uint64_t x = json_object_get_uint64(a), y = json_object_get_uint64(b);
	bool wider = (y > x) == more_is_wider;

	/* Of a time on the cpu 0 means that there is no limit. */
	if (!strcmp(pointer, "/limits/cpuMs") && (!x || !y))
		wider = !y;
	if (x != y)
		note(d, wider ? WIDENED : NARROWED, pointer, a, b, r->text);
}

static int word_index(const char *const *words, const char *word)
{
	for (int i = 0; words[i]; i++)
		if (!strcmp(words[i], word))
			return i;
	return -1;
}

static void compare_words(struct diff *d, const struct row *r, const char *pointer,
			  struct json_object *a, struct json_object *b)
{
	int x = word_index(r->words, json_object_get_string(a));
	int y = word_index(r->words, json_object_get_string(b));

	if (x != y)
		note(d, x < 0 || y < 0 || y > x ? WIDENED : NARROWED, pointer, a, b, r->text);
}

static bool covers(enum row_kind kind, const char *entry, const char *what)
{
	size_t n = strlen(entry);

	if (kind == PATH_WIDENS)
		return !strncmp(entry, what, n) && (what[n] == '/' || !what[n]);
	return !strcmp(entry, what);
}

static bool is_covered(enum row_kind kind, struct json_object *list, const char *what)
{
	for (size_t i = 0; i < json_object_array_length(list); i++)
		if (covers(kind, json_object_get_string(json_object_array_get_idx(list, i)), what))
			return true;
	return false;
}

static void compare_lists(struct diff *d, const struct row *r, struct json_object *a,
			  struct json_object *b)
{
	int added = r->kind == ENTRY_NARROWS ? NARROWED : WIDENED;

	for (size_t i = 0; i < json_object_array_length(b); i++) {
		struct json_object *v = json_object_array_get_idx(b, i);

		if (!is_covered(r->kind, a, json_object_get_string(v)))
			note(d, added, r->pointer, NULL, v, r->text);
	}
	for (size_t i = 0; i < json_object_array_length(a); i++) {
		struct json_object *v = json_object_array_get_idx(a, i);

		if (!is_covered(r->kind, b, json_object_get_string(v)))
			note(d, added == WIDENED ? NARROWED : WIDENED, r->pointer, v, NULL,
			     r->text);
	}
}

/* Is one port of a host reached under some entry of the list? */
static bool host_is_in(struct json_object *list, const char *host, int64_t port,
		       const char *protocol)
{
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *h = json_object_array_get_idx(list, i);
		struct json_object *ports = report_at(h, "ports");

		if (!host_covers(report_get(h, "host"), host) ||
		    strcmp(report_get(h, "protocol"), protocol) != 0)
			continue;
		for (size_t k = 0; k < json_object_array_length(ports); k++)
			if (json_object_get_int64(json_object_array_get_idx(ports, k)) == port)
				return true;
	}
	return false;
}

static void compare_hosts(struct diff *d, const struct row *r, struct json_object *in,
			  struct json_object *other, int way)
{
	for (size_t i = 0; i < json_object_array_length(in); i++) {
		struct json_object *h = json_object_array_get_idx(in, i), *text;
		struct json_object *ports = report_at(h, "ports");
		char buf[320];

		for (size_t k = 0; k < json_object_array_length(ports); k++) {
			int64_t port = json_object_get_int64(json_object_array_get_idx(ports, k));

			if (host_is_in(other, report_get(h, "host"), port,
				       report_get(h, "protocol")))
				continue;
			nsbox_format(buf, sizeof(buf), "%s:%lld/%s", report_get(h, "host"),
				     (long long)port, report_get(h, "protocol"));
			text = json_object_new_string(buf);
			note(d, way, r->pointer, way == WIDENED ? NULL : text,
			     way == WIDENED ? text : NULL, r->text);
			json_object_put(text);
		}
	}
}

static void compare_mount(struct diff *d, const char *path, struct json_object *a,
			  struct json_object *b)
{
	static const struct row size = { .text = "size" };
	bool x = json_object_get_boolean(report_at(a, "exec"));
	bool y = json_object_get_boolean(report_at(b, "exec"));
	char pointer[300];
	int n = nsbox_format(pointer, sizeof(pointer), "/filesystem/tmpfs/");

	for (const char *c = path; *c; c++)
		n += nsbox_format(pointer + n, (int)sizeof(pointer) - n, "%s%c",
				  *c == '/' ? "~" : "", *c == '/' ? '1' : *c);
	/* One more or one less moves files to another limit: neither wider nor narrower. */
	if (!a || !b) {
		note(d, CHANGED, pointer, a, b, "file system of its own");
		return;
	}
	compare_numbers(d, &size, pointer, report_at(a, "size"), report_at(b, "size"), true);
	if (x != y)
		note(d, y ? WIDENED : NARROWED, pointer, report_at(a, "exec"), report_at(b, "exec"),
		     "programs may be started from it");
}

static void compare_tmpfs(struct diff *d, struct json_object *a, struct json_object *b)
{
	json_object_object_foreach (a, path, one) {
		compare_mount(d, path, one, report_at(b, path));
	}
	json_object_object_foreach (b, other, mount) {
		if (!report_at(a, other))
			compare_mount(d, other, NULL, mount);
	}
}

static void compare(struct diff *d, const struct row *r, const char *pointer, struct json_object *a,
		    struct json_object *b)
{
	bool x, y;

	if (r->kind == IGNORED || json_object_equal(a, b))
		return;
	if (!a || !b) { /* only where a member is new: which way it goes is not known */
		note(d, WIDENED, pointer, a, b, r->text);
		return;
	}
	switch (r->kind) {
	case MORE_IS_WIDER:
	case MORE_IS_NARROWER:
		compare_numbers(d, r, pointer, a, b, r->kind == MORE_IS_WIDER);
		return;
	case TRUE_IS_WIDER:
	case TRUE_IS_NARROWER:
		x = json_object_get_boolean(a);
		y = json_object_get_boolean(b);
		if (x != y)
			note(d, y == (r->kind == TRUE_IS_WIDER) ? WIDENED : NARROWED, pointer, a, b,
			     r->text);
		return;
	case ENTRY_WIDENS:
	case PATH_WIDENS:
	case ENTRY_NARROWS: compare_lists(d, r, a, b); return;
	case WORD_ORDER: compare_words(d, r, pointer, a, b); return;
	case HOSTS:
		compare_hosts(d, r, b, a, WIDENED);
		compare_hosts(d, r, a, b, NARROWED);
		return;
	case TMPFS: compare_tmpfs(d, a, b); return;
	case JUST_CHANGED: note(d, CHANGED, pointer, a, b, r->text); return;
	case IGNORED: return;
	}
}

/* ------------------------------------------------------------------ walking */

static const struct row *find_row(const char *pointer)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t n = strlen(rows[i].pointer);

		if (rows[i].pointer[n - 1] == '*' ? !strncmp(rows[i].pointer, pointer, n - 1)
						  : !strcmp(rows[i].pointer, pointer))
			return &rows[i];
	}
	return NULL;
}

static void walk(struct diff *d, const char *pointer, struct json_object *a, struct json_object *b);

static void walk_members(struct diff *d, const char *pointer, struct json_object *a,
			 struct json_object *b, struct json_object *of, bool only_new)
{
	json_object_object_foreach (of, key, ignored) {
		char sub[300];

		(void)ignored;
		if (only_new && report_at(a, key))
			continue;
		nsbox_format(sub, sizeof(sub), "%s/%s", pointer, key);
		walk(d, sub, report_at(a, key), report_at(b, key));
	}
}

static void walk(struct diff *d, const char *pointer, struct json_object *a, struct json_object *b)
{
	static const struct row unknown = { .text = "a member that diff does not know" };
	const struct row *r = find_row(pointer);

	if (r) {
		compare(d, r, pointer, a, b);
	} else if (json_object_is_type(a, json_type_object) &&
		   json_object_is_type(b, json_type_object)) {
		walk_members(d, pointer, a, b, a, false);
		walk_members(d, pointer, a, b, b, true);
	} else if (!json_object_equal(a, b)) {
		note(d, WIDENED, pointer, a, b, unknown.text);
	}
}

bool diff_knows(const char *pointer)
{
	return find_row(pointer) != NULL;
}

static void print_diff(struct json_object *o, FILE *to)
{
	unsigned total = 0;

	for (int way = WIDENED; way <= CHANGED; way++) {
		struct json_object *list = report_at(o, way_names[way]);

		for (size_t i = 0; i < json_object_array_length(list); i++, total++) {
			struct json_object *e = json_object_array_get_idx(list, i);
			struct json_object *from = report_at(e, "from"), *now = report_at(e, "to");

			fprintf(to, "%-9s %s (%s): %s -> %s\n", way_names[way],
				report_get(e, "pointer"), report_get(e, "text"),
				from ? json_object_get_string(from) : "-",
				now ? json_object_get_string(now) : "-");
		}
	}
	if (!total)
		fprintf(to, "no difference\n");
}

static int canonical(const struct nsbox_policy *p, struct json_object **ret,
		     struct nsbox_error *err)
{
	auto_free char *text = NULL;
	int r = nsbox_policy_json(p, &text, err);

	*ret = r == 0 ? json_tokener_parse(text) : NULL;
	if (r == 0 && !*ret)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "compare policies");
	return r;
}

int nsbox_policy_diff(const struct nsbox_policy *a, const struct nsbox_policy *b,
		      enum nsbox_report form, char **ret, unsigned *ret_widened,
		      struct nsbox_error *err)
{
	struct json_object *x = NULL, *y = NULL, *o = json_object_new_object();
	struct diff d = { .n = { 0 } };
	int r = canonical(a, &x, err);

	if (r == 0)
		r = canonical(b, &y, err);
	for (int way = WIDENED; way <= CHANGED; way++)
		d.list[way] = report_put(o, way_names[way], json_object_new_array());
	if (r == 0)
		walk(&d, "", x, y);
	json_object_put(x);
	json_object_put(y);
	if (r < 0) {
		json_object_put(o);
		return r;
	}
	*ret_widened = d.n[WIDENED];
	return report_finish(o, form, print_diff, ret, err);
}
