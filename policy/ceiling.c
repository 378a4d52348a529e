/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's ceiling as JSON: a table like that of the manifest, read by the same reader. */
#include <json-c/json.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/json_strict.h"
#include "policy/manifest_check.h"
#include "policy/names.h"
#include "policy/syscalls.h"

#define AT(member) offsetof(struct reading, member)
#define DAYS_7	   (UINT64_C(7) * 86400 * 1000)

struct reading {
	uint64_t memory, disk, wall_ms, cpu_milli, transfer, transfer_rate, idle_ms, open_ms;
	uint32_t pids, open_files, network, listen, jit, root, shared, connections;
	char **hosts, **groups, **opened, *banned, *certificates;
	uint32_t *tls_ports;
};

static const char *const reaches[] = { "none", "allowlist", "open", NULL };

/* clang-format off */
static const struct json_field fields[] = {
	{ "memory",        json_take_bytes,   AT(memory), .min = 16u << 20, .help = "of a run" },
	{ "cpu",           json_take_cpu,     AT(cpu_milli), .min = 10, .max = 1000000, .help = "processors of a run" },
	{ "pids",          json_take_u32,     AT(pids), .min = 2, .help = "processes and threads of a run" },
	{ "disk",          json_take_bytes,   AT(disk), .min = 1u << 20, .help = "written by a run" },
	{ "openFiles",     json_take_u32,     AT(open_files), .min = 32, .help = "descriptors of a process" },
	{ "wall",          json_take_ms,      AT(wall_ms), .min = 1, .help = "time of a run" },
	{ "network",       json_take_choice,  AT(network), .choices = reaches, .help = "greatest network.mode" },
	{ "hosts",         json_take_strings, AT(hosts), .max = 64, .check = check_host, .help = "that network.allow may name" },
	{ "openNetworks",  json_take_strings, AT(opened), .max = 32, .help = "networks that may be reached though they are private or special" },
	{ "bannedHosts",   json_take_string,  AT(banned), .max = 2047, .help = "addresses, networks and patterns of names that are never reached, with commas" },
	{ "tlsPorts",      json_take_u32s,    AT(tls_ports), .min = 1, .max = 65535, .help = "at which names are reached with TLS for the name alone" },
	{ "caCertificates", json_take_string, AT(certificates), .max = 16383, .help = "PEM: authorities that runs with a network trust beside the image's" },
	{ "connections",   json_take_u32,     AT(connections), .min = 1, .max = 65536, .help = "of a run to the outside, at the same time" },
	{ "transfer",      json_take_bytes,   AT(transfer), .min = 1, .help = "bytes of a run, to and from outside" },
	{ "transferRate",  json_take_bytes,   AT(transfer_rate), .min = 1024, .help = "bytes of a run in a second, to and from outside" },
	{ "connectionIdle", json_take_ms,     AT(idle_ms), .min = 1000, .max = DAYS_7, .help = "of a connection without a byte (1h)" },
	{ "connectionTime", json_take_ms,     AT(open_ms), .min = 1000, .max = DAYS_7, .help = "of a connection in all (1d)" },
	{ "listen",        json_take_flag,    AT(listen), .help = "process.listen" },
	{ "jit",           json_take_flag,    AT(jit), .help = "process.jit" },
	{ "sharedWorkspace", json_take_flag,  AT(shared), .help = "filesystem.workspace \"rw\": a directory of the host that is the operator's to name" },
	{ "root",          json_take_flag,    AT(root), .help = "user 0 inside" },
	{ "syscallGroups", json_take_strings, AT(groups), .max = 32, .check = check_group, .help = "that syscalls.groups may name" },
};
/* clang-format on */

static uint32_t allowance(uint32_t flag)
{
	return flag == UNSET ? NSBOX_ALLOWANCE_UNSET
	       : flag	     ? NSBOX_ALLOWANCE_YES
			     : NSBOX_ALLOWANCE_NO;
}

static int put_hosts(struct json_reader *r, char *const *hosts, struct nsbox_ceiling *c)
{
	size_t at = 0;

	c->hosts_listed = hosts != NULL;
	for (; hosts && *hosts; hosts++) {
		char name[HOST_MAX + 1];
		size_t len;

		host_normalise(*hosts, name, sizeof(name));
		len = strlen(name) + 1;
		if (at + len > sizeof(c->hosts)) {
			json_enter(r, "hosts");
			return json_fail(r, "are longer than %zu bytes together", sizeof(c->hosts));
		}
		memcpy(c->hosts + at, name, len);
		at += len;
		c->n_hosts++;
	}
	return 0;
}

static int put_egress(struct json_reader *r, const struct reading *from, struct nsbox_ceiling *c)
{
	struct nsbox_error why = { 0 };

	c->connections = from->connections;
	c->transfer = from->transfer;
	c->transfer_rate = from->transfer_rate;
	c->connection_idle_ms = from->idle_ms;
	c->connection_ms = from->open_ms;
	for (char *const *net = from->opened; net && *net; net++)
		if (nsbox_ceiling_open(c, *net, &why) < 0) {
			json_enter(r, "openNetworks");
			return json_fail(r, "%s", why.msg);
		}
	for (size_t i = 0; from->tls_ports && from->tls_ports[i]; i++) {
		if (i + 1 >= ARRAY_SIZE(c->tls_ports)) {
			json_enter(r, "tlsPorts");
			return json_fail(r, "has more than %zu entries", i);
		}
		c->tls_ports[i] = (uint16_t)from->tls_ports[i];
	}
	if (from->certificates && nsbox_ceiling_trust(c, from->certificates, &why) < 0) {
		json_enter(r, "caCertificates");
		return json_fail(r, "%s", why.msg);
	}
	if (from->banned && nsbox_ceiling_ban(c, from->banned, NULL, &why) < 0) {
		json_enter(r, "bannedHosts");
		return json_fail(r, "%s", why.msg);
	}
	return 0;
}

static int put_ceiling(struct json_reader *r, const struct reading *from, struct nsbox_ceiling *c)
{
	memset(c, 0, sizeof(*c)); /* it is compared byte by byte */
	c->memory = from->memory;
	c->disk = from->disk;
	c->wall_ms = from->wall_ms;
	c->pids = from->pids;
	c->cpu_milli = (uint32_t)from->cpu_milli;
	c->open_files = from->open_files;
	c->network = from->network == UNSET ? NSBOX_REACH_UNSET : from->network + NSBOX_REACH_NONE;
	c->listen = allowance(from->listen);
	c->jit = allowance(from->jit);
	c->root = allowance(from->root);
	c->shared = allowance(from->shared);
	for (char *const *g = from->groups; g && *g; g++)
		for (size_t i = 0; syscall_raw_group(i); i++)
			if (!strcmp(*g, syscall_raw_group(i)))
				c->syscall_groups |= 1u << i;
	return put_hosts(r, from->hosts, c) < 0 ? -EINVAL : put_egress(r, from, c);
}

int nsbox_ceiling_parse(const char *json, size_t len, struct nsbox_ceiling *ret,
			struct nsbox_error *err)
{
	const struct json_limits limits = { .max_size = 256u << 10,
					    .max_depth = 16,
					    .code = NSBOX_E_INVALID };
	struct reading from = {
		.network = UNSET, .listen = UNSET, .jit = UNSET, .root = UNSET, .shared = UNSET
	};
	struct json_object *root = NULL;
	struct json_reader r;
	int rc = json_strict_parse(json, len, &limits, &root, err);

	if (rc < 0)
		return rc;
	json_reader_init(&r, NSBOX_E_INVALID, err);
	rc = json_read_object(&r, root, fields, ARRAY_SIZE(fields), true, &from);
	json_object_put(root);
	if (rc == 0)
		rc = put_ceiling(&r, &from, ret);
	json_free_fields(fields, ARRAY_SIZE(fields), &from);
	return rc;
}
