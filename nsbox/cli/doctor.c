/* SPDX-License-Identifier: Apache-2.0 */
/* `nsbox doctor`: the host probe for people and for programs. */
#include <fcntl.h>
#include <json-c/json.h>
#include <nsbox/gap.h>
#include <nsbox/host.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/cli/cli.h"
#include "nsbox/util.h"

struct doctor_options {
	bool json;
	int require;
};

static int set_json(void *ctx, const char *v)
{
	((struct doctor_options *)ctx)->json = true;
	return 0;
}

static int set_require(void *ctx, const char *v)
{
	for (int t = NSBOX_TIER_PROCESS; t <= NSBOX_TIER_CGROUP; t++)
		if (!strcmp(v, nsbox_tier_name(t))) {
			((struct doctor_options *)ctx)->require = t;
			return 0;
		}
	return cli_usage("--require takes process, namespace or cgroup, not '%s'", v);
}

static const struct option_row rows[] = {
	{ "json", 'j', NULL, "print JSON", set_json },
	{ "require", 'r', "TIER", "exit 1 where the host does not reach this tier", set_require },
	{ NULL, 0, NULL, NULL, NULL },
};

#define REMEDY_MAX 600

/* ------------------------------------------------------------------ advice */

/* The layers that runs of this host's tier could have: ids of their own outside namespaces are of no
 * use to those that have a user namespace. */
static uint32_t concerned(const struct nsbox_host *h)
{
	uint32_t all = NSBOX_LAYER_BIT(NSBOX_LAYER_MAX) - 1;

	return nsbox_host_tier(h) < NSBOX_TIER_NAMESPACE
		       ? all
		       : all & ~NSBOX_LAYER_BIT(NSBOX_LAYER_OWN_ID);
}

/* What a run is not stopped from where there is no more than the tier "process". */
static uint32_t gaps(const struct nsbox_host *h)
{
	return nsbox_host_tier(h) == NSBOX_TIER_PROCESS ? nsbox_gaps(nsbox_host_layers(h)) : 0;
}

/* The layers that a tier takes and this host lacks. */
static uint32_t lacking(const struct nsbox_host *h, int tier)
{
	uint32_t have = nsbox_host_layers(h), need = 0;

	for (int i = 0; i < NSBOX_LAYER_MAX; i++)
		if (nsbox_layer_default(i) == NSBOX_REQUIRE)
			need |= NSBOX_LAYER_BIT(i);
	if (tier == NSBOX_TIER_CGROUP)
		need |= NSBOX_LAYER_BIT(NSBOX_LAYER_CGROUP);
	return need & ~have;
}

/* Remedies of layers, each once; returns how many are in list. */
static int remedies(const struct nsbox_host *h, uint32_t layers, char list[][REMEDY_MAX])
{
	int n = 0;

	for (int i = 0; i < NSBOX_LAYER_MAX; i++) {
		char buf[REMEDY_MAX];
		const char *remedy = layers & NSBOX_LAYER_BIT(i)
					     ? nsbox_host_remedy(h, i, buf, sizeof(buf))
					     : NULL;
		bool known = !remedy;

		for (int k = 0; k < n && !known; k++)
			known = !strcmp(list[k], remedy);
		if (!known)
			snprintf(list[n++], REMEDY_MAX, "%s", remedy);
	}
	return n;
}

static const struct {
	int abi;
	const char *linux_version, *adds;
} newer[] = {
	{ 1, "5.13", "Landlock: a second wall for files" },
	{ 2, "5.19", "files may be moved between directories under Landlock" },
	{ 3, "6.2", "Landlock refuses truncation as well" },
	{ 4, "6.7", "Landlock can rule TCP ports" },
	{ 5, "6.10", "Landlock refuses device requests as well" },
	{ 6, "6.12", "Landlock bounds signals and abstract sockets (landlockScopes)" },
	{ 7, "6.15", "refusals of Landlock can be logged" },
};

/* Where the kernel lets only named programs make user namespaces: ours, wherever they are. */
static const char *apparmor_profile(char *buf, int size)
{
	char self[1024], spawn[1024];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[n > 0 ? n : 0] = '\0';
	nsbox_format(buf, size,
		     "abi <abi/4.0>,\n"
		     "include <tunables/global>\n"
		     "profile nsbox %s flags=(unconfined) {\n"
		     "  userns,\n"
		     "}\n"
		     "profile nsbox-spawn %s flags=(unconfined) {\n"
		     "  userns,\n"
		     "}\n",
		     self, cli_libexec("nsbox-spawn", spawn, sizeof(spawn)));
	return buf;
}

static bool apparmor_restricts(void)
{
	char v[16];

	return read_small_file(AT_FDCWD, "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
			       v, sizeof(v)) > 0 &&
	       v[0] == '1';
}

static const char single_id[] = "for a range of ids per sandbox: CAP_SETUID and CAP_SETGID, as "
				"nsboxd has them when it is started "
				"by root; lines in /etc/subuid are not used";

static const char plain_tmpfs[] = "a tmpfs keeps no user.* attributes (Linux 6.6 does): over an "
				  "imported image the upper layer goes "
				  "to disk, which takes root, loop devices and mke2fs; without, "
				  "directories of the image cannot be "
				  "removed or made anew";

/* ------------------------------------------------------------------ JSON */

static struct json_object *layers_json(const struct nsbox_host *h)
{
	struct json_object *layers = json_object_new_array();
	uint32_t have = nsbox_host_layers(h);

	for (int i = 0; i < NSBOX_LAYER_MAX; i++) {
		char buf[REMEDY_MAX];
		const char *remedy = nsbox_host_remedy(h, i, buf, sizeof(buf));
		struct json_object *row;

		if (!(concerned(h) & NSBOX_LAYER_BIT(i)))
			continue;
		row = json_object_new_object();
		json_object_object_add(row, "layer", json_object_new_string(nsbox_layer_name(i)));
		json_object_object_add(row, "available",
				       json_object_new_boolean(have & NSBOX_LAYER_BIT(i)));
		json_object_object_add(row, "remedy",
				       remedy ? json_object_new_string(remedy) : NULL);
		json_object_array_add(layers, row);
	}
	return layers;
}

static struct json_object *gaps_json(const struct nsbox_host *h)
{
	struct json_object *list = json_object_new_array();

	for (int i = 0; i < NSBOX_GAP_MAX; i++) {
		struct json_object *row;

		if (!(gaps(h) & NSBOX_GAP_BIT(i)))
			continue;
		row = json_object_new_object();
		json_object_object_add(row, "name", json_object_new_string(nsbox_gap_name(i)));
		json_object_object_add(row, "text", json_object_new_string(nsbox_gap_text(i)));
		json_object_array_add(list, row);
	}
	return list;
}

/* null on a host that has the highest tier. */
static struct json_object *next_json(const struct nsbox_host *h)
{
	int next = nsbox_host_tier(h) < NSBOX_TIER_NAMESPACE ? NSBOX_TIER_NAMESPACE
							     : NSBOX_TIER_CGROUP;
	uint32_t missing = lacking(h, next);
	struct json_object *o, *names = json_object_new_array(), *fixes = json_object_new_array();
	char list[NSBOX_LAYER_MAX][REMEDY_MAX];
	int n = remedies(h, missing, list);

	for (int i = 0; i < NSBOX_LAYER_MAX; i++)
		if (missing & NSBOX_LAYER_BIT(i))
			json_object_array_add(names, json_object_new_string(nsbox_layer_name(i)));
	for (int i = 0; i < n; i++)
		json_object_array_add(fixes, json_object_new_string(list[i]));
	o = missing ? json_object_new_object() : NULL;
	if (!o) {
		json_object_put(names);
		json_object_put(fixes);
		return NULL;
	}
	json_object_object_add(o, "tier", json_object_new_string(nsbox_tier_name(next)));
	json_object_object_add(o, "missing", names);
	json_object_object_add(o, "fixes", fixes);
	return o;
}

static struct json_object *newer_json(const struct nsbox_host *h)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < ARRAY_SIZE(newer); i++) {
		struct json_object *o;

		if (newer[i].abi <= h->landlock_abi)
			continue;
		o = json_object_new_object();
		json_object_object_add(o, "linux", json_object_new_string(newer[i].linux_version));
		json_object_object_add(o, "adds", json_object_new_string(newer[i].adds));
		json_object_array_add(list, o);
	}
	return list;
}

static void print_json(const struct nsbox_host *h)
{
	bool single = h->ids_kind != NSBOX_IDS_PRIVILEGED;
	struct json_object *o = json_object_new_object();
	char profile[3000];

	json_object_object_add(o, "tier",
			       json_object_new_string(nsbox_tier_name(nsbox_host_tier(h))));
	json_object_object_add(o, "kernel", json_object_new_string(h->kernel));
	json_object_object_add(o, "machine", json_object_new_string(h->machine));
	json_object_object_add(o, "landlockAbi", json_object_new_int(h->landlock_abi));
	json_object_object_add(o, "cgroupVersion", json_object_new_int((int)h->cgroup_kind));
	json_object_object_add(o, "idMap", json_object_new_string(single ? "single" : "range"));
	json_object_object_add(o, "idMapRemedy", single ? json_object_new_string(single_id) : NULL);
	json_object_object_add(o, "tmpfsNote",
			       h->plain_tmpfs ? json_object_new_string(plain_tmpfs) : NULL);
	json_object_object_add(o, "cpus", json_object_new_int(h->cpus));
	json_object_object_add(o, "layers", layers_json(h));
	json_object_object_add(o, "notStopped", gaps_json(h));
	json_object_object_add(o, "next", next_json(h));
	json_object_object_add(o, "newerKernels", newer_json(h));
	json_object_object_add(o, "apparmorProfile",
			       apparmor_restricts() ? json_object_new_string(apparmor_profile(
							      profile, sizeof(profile)))
						    : NULL);
	printf("%s\n", json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
								 JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
}

/* ------------------------------------------------------------------ text */

static void print_layers(const struct nsbox_host *h)
{
	uint32_t have = nsbox_host_layers(h);

	for (int i = 0; i < NSBOX_LAYER_MAX; i++)
		if (concerned(h) & NSBOX_LAYER_BIT(i))
			printf("%-8s  %-16s %s\n", have & NSBOX_LAYER_BIT(i) ? "yes" : "MISSING",
			       nsbox_layer_name(i), nsbox_layer_text(i));
}

static void print_gaps(const struct nsbox_host *h)
{
	if (gaps(h))
		printf("\nA run of this tier, where the operator accepts it, is not stopped "
		       "from\n");
	for (int i = 0; i < NSBOX_GAP_MAX; i++)
		if (gaps(h) & NSBOX_GAP_BIT(i))
			printf("  %-14s %s\n", nsbox_gap_name(i), nsbox_gap_text(i));
}

static void print_remedies(const struct nsbox_host *h, uint32_t layers, const char *title)
{
	char list[NSBOX_LAYER_MAX][REMEDY_MAX];
	int n = remedies(h, layers, list);

	if (n)
		printf("\n%s\n", title);
	for (int i = 0; i < n; i++) {
		const char *sep = "";

		printf("  ");
		for (int l = 0; l < NSBOX_LAYER_MAX; l++) {
			char buf[REMEDY_MAX];
			const char *r = layers & NSBOX_LAYER_BIT(l)
						? nsbox_host_remedy(h, l, buf, sizeof(buf))
						: NULL;

			if (!r || strcmp(r, list[i]) != 0)
				continue;
			printf("%s%s", sep, nsbox_layer_name(l));
			sep = ", ";
		}
		printf("\n      remedy: %s\n", list[i]);
	}
}

static void print_advice(const struct nsbox_host *h)
{
	int tier = nsbox_host_tier(h);
	int next = tier < NSBOX_TIER_NAMESPACE ? NSBOX_TIER_NAMESPACE : NSBOX_TIER_CGROUP;
	uint32_t need = lacking(h, next), all = concerned(h) & ~nsbox_host_layers(h);
	const char *title = "Kernels that would add something:";
	char line[80], profile[3000];

	snprintf(line, sizeof(line), "Missing for the tier %s:", nsbox_tier_name(next));
	print_remedies(h, need, line);
	print_remedies(h, all & ~need, "Missing besides; runs go on without, and say so:");
	for (size_t i = 0; i < ARRAY_SIZE(newer); i++) {
		if (newer[i].abi <= h->landlock_abi)
			continue;
		if (title)
			printf("\n%s\n", title);
		title = NULL;
		printf("  Linux %-6s %s\n", newer[i].linux_version, newer[i].adds);
	}
	if (apparmor_restricts())
		printf("\nA profile for /etc/apparmor.d/nsbox, loaded by apparmor_parser -r:\n%s",
		       apparmor_profile(profile, sizeof(profile)));
}

static void print_text(const struct nsbox_host *h)
{
	static const char *const cgroups[] = { "none writable", "v1", "v2" };
	bool single = h->ids_kind != NSBOX_IDS_PRIVILEGED;

	printf("tier      %s\n", nsbox_tier_name(nsbox_host_tier(h)));
	printf("kernel    %s %s, Landlock ABI %d, control groups %s\n", h->kernel, h->machine,
	       h->landlock_abi, cgroups[h->cgroup_kind % 3]);
	printf("ids       %s\n", single ? "a single id: runs share this user's id outside"
					: "a range per sandbox: runs are of different users");
	if (single)
		printf("          remedy: %s\n", single_id);
	if (h->plain_tmpfs)
		printf("tmpfs     %s\n", plain_tmpfs);
	putchar('\n');
	print_layers(h);
	print_gaps(h);
	print_advice(h);
}

int cmd_doctor(int argc, char **argv)
{
	struct doctor_options o = { 0 };
	struct nsbox_host host;
	struct nsbox_error err = { 0 };
	int r = cli_options(argc, argv, "nsbox doctor [--json] [--require TIER]", rows, &o);

	if (r >= 0)
		return r;
	if (argv[optind])
		return cli_usage("doctor takes no operand: '%s'", argv[optind]);
	if (nsbox_host_probe(&host, &err) < 0)
		return cli_error(&err);
	if (o.json)
		print_json(&host);
	else
		print_text(&host);
	return nsbox_host_tier(&host) < o.require ? 1 : 0;
}
