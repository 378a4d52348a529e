/* SPDX-License-Identifier: Apache-2.0 */
/* The explanation in words: sections of what a run may read, write, run, reach and use. */
#include "policy/explain.h"

#include <inttypes.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/report.h"

#define WIDTH 96

static bool is_true(struct json_object *o, const char *key)
{
	return json_object_get_boolean(report_at(o, key));
}

static uint64_t number(struct json_object *o, const char *key)
{
	return json_object_get_uint64(report_at(o, key));
}

static size_t count(struct json_object *a)
{
	return json_object_is_type(a, json_type_array) ? json_object_array_length(a) : 0;
}

/* "  label     a, b, c", wrapped; nothing where the list is empty. */
static void print_list(FILE *to, const char *label, struct json_object *a)
{
	size_t column = 0, n = count(a);

	if (!n)
		return;
	column = (size_t)fprintf(to, "  %-13s ", label);
	for (size_t i = 0; i < n; i++) {
		const char *s = json_object_get_string(json_object_array_get_idx(a, i));

		if (column > 16 && column + strlen(s) + 2 > WIDTH) {
			fprintf(to, ",\n  %-13s ", "");
			column = 16;
		} else if (i) {
			column += (size_t)fprintf(to, ", ");
		}
		column += (size_t)fprintf(to, "%s", s);
	}
	fputc('\n', to);
}

static void print_line(FILE *to, const char *label, const char *text)
{
	fprintf(to, "  %-13s %s\n", label, text);
}

static void head(struct json_object *o, FILE *to)
{
	const char *name = report_get(o, "name");

	fprintf(to, "%s%sprofile %s, policy %.16s\n", name, *name ? ": " : "",
		report_get(o, "profile"), report_get(o, "digest"));
	if (*report_get(o, "image"))
		fprintf(to, "image: %s\n", report_get(o, "image"));
	if (!strcmp(report_get(o, "manifest"), "default"))
		fprintf(to, "manifest: default (there is no skill.json)\n");
}

static void files(struct json_object *o, FILE *to)
{
	struct json_object *f = report_at(o, "files");

	fprintf(to, "\nMay read\n");
	print_list(to, "files below", report_at(f, "read"));
	print_line(to, "names", "directories can be listed anywhere");
	fprintf(to, "\nMay write\n");
	print_list(to, "files below", report_at(f, "write"));
	print_list(to, "but not", report_at(f, "notWritten"));
	print_list(to, "read-only", report_at(f, "readOnly"));
	print_line(to, "starts in", report_get(o, "workdir"));
}

static void run(struct json_object *o, FILE *to)
{
	static const struct {
		const char *key, *yes, *no;
	} words[] = {
		{ "threads", "yes", "no: one thread in each process" },
		{ "jit", "memory may be writable and executable at once",
		  "no memory is both writable and executable" },
		{ "ptrace", "own processes may be traced", "no process may be traced" },
	};
	static const char *const subprocess[][2] = {
		{ "none", "nothing, once a Python function's interpreter runs" },
		{ "skill", "programs of the image and the skill, not what the run wrote" },
		{ "any", "any program it can read and that has its execute bit" },
	};
	struct json_object *p = report_at(o, "process"), *f = report_at(o, "files");
	struct json_object *c = report_at(o, "calls");

	fprintf(to, "\nMay run\n");
	for (size_t i = 0; i < ARRAY_SIZE(subprocess); i++)
		if (!strcmp(report_get(p, "subprocess"), subprocess[i][0]))
			print_line(to, "programs", subprocess[i][1]);
	print_list(to, "files below", report_at(f, "execute"));
	print_list(to, "but not", report_at(f, "notExecuted"));
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		print_line(to, words[i].key, is_true(p, words[i].key) ? words[i].yes : words[i].no);
	fprintf(to, "  %-13s %" PRIu64 ", without capabilities\n", "user", number(p, "uid"));
	fprintf(to,
		"  %-13s %" PRIu64 " allowed, %" PRIu64 " more by their arguments, %" PRIu64
		" refused or unknown\n",
		"system calls", number(c, "allowed"), number(c, "judgedByArguments"),
		number(c, "refused"));
	print_list(to, "extra calls", report_at(report_at(o, "syscalls"), "allow"));
}

static void reach(struct json_object *o, FILE *to)
{
	struct json_object *n = report_at(o, "network"), *p = report_at(o, "process");
	struct json_object *allow = report_at(n, "allow");
	const char *mode = report_get(n, "mode");

	fprintf(to, "\nMay reach\n");
	print_line(to, "loopback", "its own: servers of this run, none of the host");
	if (!strcmp(mode, "none"))
		print_line(to, "network", "nothing else: no route, no names");
	else if (!strcmp(mode, "open"))
		print_line(to, "network", "any public address");
	else
		print_line(to, "network",
			   count(allow) ? "these hosts alone" : "no host: none is listed");
	for (size_t i = 0; i < count(allow); i++) {
		struct json_object *h = json_object_array_get_idx(allow, i);

		struct json_object *ports = report_at(h, "ports");

		fprintf(to, "  %-13s %s, %s", "", report_get(h, "host"), report_get(h, "protocol"));
		for (size_t k = 0; k < count(ports); k++)
			fprintf(to, " %s",
				json_object_get_string(json_object_array_get_idx(ports, k)));
		fputc('\n', to);
	}
	if (strcmp(mode, "none") != 0 && (count(allow) || !strcmp(mode, "open"))) {
		print_line(to, "how", "by nsbox-egress, and lookups of these names");
		print_line(to, "never",
			   "private, loopback, link-local, metadata and other special addresses");
	}
	print_list(to, "opened", report_at(n, "openNetworks"));
	print_list(to, "banned", report_at(n, "bannedNetworks"));
	print_list(to, "banned names", report_at(n, "bannedNames"));
	print_list(to, "denied", report_at(n, "denyCidrs"));
	print_line(to, "listen", is_true(p, "listen") ? "may wait for connections, inside" : "no");
	if (is_true(p, "netlink"))
		print_line(to, "netlink", "socket and device information of its own namespace");
}

static void use(struct json_object *o, FILE *to)
{
	struct json_object *l = report_at(o, "limits"), *sizes;
	char a[32], b[32];

	fprintf(to, "\nMay use\n");
	fprintf(to, "  %-13s %s, of that %s for files\n", "memory",
		report_bytes(number(l, "memory"), a, sizeof(a)),
		report_bytes(number(l, "disk"), b, sizeof(b)));
	sizes = report_at(report_at(o, "files"), "sizes");
	if (sizes) {
		json_object_object_foreach (sizes, path, size) {
			fprintf(to, "  %-13s %s on %s\n", "",
				report_bytes(json_object_get_uint64(size), a, sizeof(a)), path);
		}
	}
	fprintf(to, "  %-13s %s\n", "cpu", report_milli(number(l, "cpuMilli"), a, sizeof(a)));
	fprintf(to, "  %-13s %" PRIu64 " processes and threads, %" PRIu64 " open files each\n",
		"pids", number(l, "pids"), number(l, "openFiles"));
	fprintf(to, "  %-13s %s, then %s to end", "time",
		report_ms(number(l, "wallMs"), a, sizeof(a)),
		report_ms(number(l, "graceMs"), b, sizeof(b)));
	if (number(l, "cpuMs"))
		fprintf(to, "; %s of cpu", report_ms(number(l, "cpuMs"), a, sizeof(a)));
	fprintf(to, "\n  %-13s %s", "output", report_bytes(number(l, "stdout"), a, sizeof(a)));
	fprintf(to, " and %s kept\n", report_bytes(number(l, "stderr"), b, sizeof(b)));
	print_list(to, "environment", report_at(o, "env"));
	print_list(to, "passed on", report_at(o, "envPass"));
}

static void hidden(struct json_object *o, FILE *to)
{
	struct json_object *f = report_at(o, "files");

	fprintf(to, "\nHidden\n");
	print_line(to, "of the host",
		   "its files but the image's, its processes, its network, its users");
	fprintf(to, "  %-13s %zu entries that tell of the host\n", "of /proc",
		count(report_at(f, "maskedProc")));
	print_list(to, "masked", report_at(f, "masked"));
}

static void grants(struct json_object *o, FILE *to, const char *key, const char *title,
		   const char *text)
{
	struct json_object *a = report_at(o, key);

	if (!count(a))
		return;
	fprintf(to, "\n%s\n", title);
	for (size_t i = 0; i < count(a); i++) {
		struct json_object *g = json_object_array_get_idx(a, i);

		fprintf(to, "  %s: %s\n", report_get(g, "pointer"), report_get(g, text));
	}
}

static void layers(struct json_object *o, FILE *to)
{
	struct json_object *a = report_at(o, "layers"), *lost = report_at(o, "landlockLost");

	fprintf(to, "\nHeld by (kernel %s, Landlock ABI %" PRIu64 ")\n", report_get(o, "kernel"),
		number(o, "landlockAbi"));
	for (size_t i = 0; i < count(a); i++) {
		struct json_object *l = json_object_array_get_idx(a, i);
		bool off = !strcmp(report_get(l, "requirement"), "off");

		if (off)
			continue;
		fprintf(to, "  %-8s %-16s %s\n", is_true(l, "available") ? "yes" : "MISSING",
			report_get(l, "layer"), report_get(l, "holds"));
		if (report_at(l, "remedy"))
			fprintf(to, "  %-8s %-16s %s\n", "", "", report_get(l, "remedy"));
	}
	if (count(lost)) {
		fprintf(to, "\nLost with this kernel's Landlock\n");
		print_list(to, "rights", lost);
	}
}

void explain_print(struct json_object *o, FILE *to)
{
	head(o, to);
	files(o, to);
	run(o, to);
	reach(o, to);
	use(o, to);
	hidden(o, to);
	grants(o, to, "refused", "Refused", "why");
	grants(o, to, "unsupported", "Not in this version (no run is possible)", "why");
	layers(o, to);
}
