/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tier a run is to have, and what the tier "process" (nsbox/process_tier.h) cannot hold: that is
 * refused by the name of the field that asks for it, never left out.
 */
#include <string.h>

#include "nsbox/util.h"
#include "policy/resolve.h"

/*
 * The weakest tier that is accepted: the operator's word, and the manifest's, which can only raise it. Where
 * neither says "process" a host without namespaces is an error; where one does and the host reaches more,
 * more it is, unless the operator wants exactly that.
 */
int resolve_tier(struct resolve *rs)
{
	const uint32_t forced = rs->opt->tier, floor = rs->ceiling->min_tier;
	uint32_t least = forced ? forced : floor ? floor : NSBOX_TIER_NAMESPACE;
	uint32_t asked = rs->m->min_tier == UNSET ? least : rs->m->min_tier;

	if (forced && asked > forced) {
		json_enter(&rs->r, "minTier");
		return json_fail(&rs->r,
				 "\"%s\" is more than the tier \"%s\" that the run is to have",
				 nsbox_tier_name((int)asked), nsbox_tier_name((int)forced));
	}
	rs->p->tier = MAX(asked, least);
	if (rs->p->tier == NSBOX_TIER_PROCESS && !forced &&
	    nsbox_host_tier(rs->opt->host) > NSBOX_TIER_PROCESS)
		rs->p->tier = NSBOX_TIER_NAMESPACE;
	return 0;
}

static int refuse(struct resolve *rs, const char *object, const char *key, const char *why)
{
	json_enter(&rs->r, object);
	if (key)
		json_enter(&rs->r, key);
	return json_fail(&rs->r, "%s; " TIER_REMEDY, why);
}

int resolve_process_tier(struct resolve *rs)
{
	const struct nsbox_manifest *m = rs->m;
	const struct nsbox_policy *p = rs->p;
	const struct {
		bool asked;
		const char *object, *key, *why;
	} rows[] = {
		{ p->uid != POLICY_UID && m->process.user == UNSET, "profile", NULL,
		  "the tier \"process\" has no user 0 inside" },
		{ p->uid != POLICY_UID, "process", "user",
		  "the tier \"process\" has no user 0 inside" },
		{ p->image && strcmp(p->image, "host") != 0, "runtime", "rootfs",
		  "the tier \"process\" has no root of its own: it runs from the image \"host\" "
		  "alone" },
		{ m->fs.workspace == WORKSPACE_RW, "filesystem", "workspace",
		  "the tier \"process\" shares no directory of the host" },
		{ m->fs.workspace_size, "filesystem", "workspace",
		  "the tier \"process\" has no file systems with a size of their own" },
		{ m->fs.tmp_size, "filesystem", "tmp",
		  "the tier \"process\" has no file systems with a size of their own" },
		{ m->res.disk, "resources", "disk",
		  "the tier \"process\" limits the size of each file (fileSize), not of all" },
		{ p->mask[0], "filesystem", "mask",
		  "the tier \"process\" has no mounts to hide paths with" },
		{ p->read_only[0], "filesystem", "readOnly",
		  "the tier \"process\" has no mounts to protect paths with" },
		{ p->syscalls[0], "syscalls", NULL,
		  "the tier \"process\" grants no system calls: they would be the host's" },
		{ p->netlink, "process", "netlink", "the tier \"process\" has no sockets" },
		{ m->process.listen == 1, "process", "listen",
		  "the tier \"process\" has no sockets" },
		{ m->determinism.hostname, "determinism", "hostname",
		  "the tier \"process\" has the host's name" },
	};

	for (size_t i = 0; policy_is_process(p) && i < ARRAY_SIZE(rows); i++)
		if (rows[i].asked)
			return refuse(rs, rows[i].object, rows[i].key, rows[i].why);
	return 0;
}
