/* SPDX-License-Identifier: Apache-2.0 */
/* `nsbox doctor`: the host probe for people and for programs. */
#include <json-c/json.h>
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

static void print_json(const struct nsbox_host *h)
{
	struct json_object *o = json_object_new_object(), *layers = json_object_new_array();
	uint32_t have = nsbox_host_layers(h);

	json_object_object_add(o, "tier",
			       json_object_new_string(nsbox_tier_name(nsbox_host_tier(h))));
	json_object_object_add(o, "kernel", json_object_new_string(h->kernel));
	json_object_object_add(o, "machine", json_object_new_string(h->machine));
	json_object_object_add(o, "landlockAbi", json_object_new_int(h->landlock_abi));
	json_object_object_add(o, "cgroupVersion", json_object_new_int((int)h->cgroup_kind));
	json_object_object_add(
		o, "idMap",
		json_object_new_string(h->ids_kind == NSBOX_IDS_PRIVILEGED ? "range" : "single"));
	json_object_object_add(o, "cpus", json_object_new_int(h->cpus));
	for (int i = 0; i < NSBOX_LAYER_MAX; i++) {
		char buf[400];
		const char *remedy = nsbox_host_remedy(h, i, buf, sizeof(buf));
		struct json_object *row = json_object_new_object();

		json_object_object_add(row, "layer", json_object_new_string(nsbox_layer_name(i)));
		json_object_object_add(row, "available",
				       json_object_new_boolean(have & NSBOX_LAYER_BIT(i)));
		json_object_object_add(row, "remedy",
				       remedy ? json_object_new_string(remedy) : NULL);
		json_object_array_add(layers, row);
	}
	json_object_object_add(o, "layers", layers);
	printf("%s\n", json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
								 JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
}

static void print_text(const struct nsbox_host *h)
{
	static const char *const cgroups[] = { "none writable", "v1", "v2" };
	uint32_t have = nsbox_host_layers(h);

	printf("tier      %s\n", nsbox_tier_name(nsbox_host_tier(h)));
	printf("kernel    %s %s, Landlock ABI %d, control groups %s\n", h->kernel, h->machine,
	       h->landlock_abi, cgroups[h->cgroup_kind % 3]);
	printf("ids       %s\n\n", h->ids_kind == NSBOX_IDS_PRIVILEGED
					   ? "a range per sandbox: runs are of different users"
					   : "a single id: runs share this user's id outside");
	for (int i = 0; i < NSBOX_LAYER_MAX; i++) {
		char buf[400];
		const char *remedy = nsbox_host_remedy(h, i, buf, sizeof(buf));

		printf("%-8s  %-16s %s\n", have & NSBOX_LAYER_BIT(i) ? "yes" : "MISSING",
		       nsbox_layer_name(i), nsbox_layer_text(i));
		if (remedy)
			printf("%-8s  %-16s remedy: %s\n", "", "", remedy);
	}
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
