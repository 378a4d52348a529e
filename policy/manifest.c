/* SPDX-License-Identifier: Apache-2.0 */
/*
 * skill.json as written: read by the table in manifest_fields.c, freed by it, asked for its entry
 * points.
 */
#include <json-c/json.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/json_strict.h"

enum { STDIN_NONE };

static struct nsbox_manifest *manifest_new(void)
{
	struct nsbox_manifest *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->profile = PROFILE_STANDARD;
	m->fs.skill = m->fs.workspace = m->fs.tmp_exec = UNSET;
	m->network.mode = UNSET;
	m->process.subprocess = m->process.jit = m->process.threads = m->process.ptrace = UNSET;
	m->process.userns = m->process.netlink = m->process.listen = m->process.user = UNSET;
	m->determinism.seed = UINT64_MAX;
	m->min_tier = UNSET;
	for (int i = 0; i < NSBOX_LAYER_MAX; i++)
		m->require[i] = UNSET;
	return m;
}

int nsbox_manifest_default(struct nsbox_manifest **ret, struct nsbox_error *err)
{
	struct nsbox_manifest *m = manifest_new();

	if (!m)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "make a manifest");
	m->is_default = true;
	*ret = m;
	return 0;
}

int nsbox_manifest_parse(const char *json, size_t len, struct nsbox_manifest **ret,
			 struct nsbox_error *err)
{
	const struct json_limits limits = JSON_LIMITS_MANIFEST;
	struct json_object *root = NULL;
	struct nsbox_manifest *m;
	struct json_reader r;
	int rc = json_strict_parse(json, len, &limits, &root, err);

	if (rc < 0)
		return rc;
	json_reader_init(&r, NSBOX_E_MANIFEST, err);
	m = manifest_new();
	rc = m ? json_read_object(&r, root, manifest_table.fields, manifest_table.n, true, m)
	       : json_nomem(&r);
	json_object_put(root);
	if (rc == 0)
		rc = sha256_hex(json, len, m->sha256, err);
	if (rc < 0 || !m) {
		nsbox_manifest_free(m);
		return rc;
	}
	if (m->min_tier != UNSET)
		m->min_tier += NSBOX_TIER_PROCESS; /* where the table's choices begin */
	*ret = m;
	return 0;
}

void nsbox_manifest_free(struct nsbox_manifest *m)
{
	if (!m)
		return;
	json_free_fields(manifest_table.fields, manifest_table.n, m);
	free(m);
}

const char *nsbox_manifest_name(const struct nsbox_manifest *m)
{
	return m->name ? m->name : "";
}

/* ------------------------------------------------------------------ entry points */

static const struct manifest_entrypoint *find_entrypoint(const struct nsbox_manifest *m,
							 const char *id)
{
	if (!id && m->n_entrypoints == 1)
		return &m->entrypoints[0];
	for (size_t i = 0; i < m->n_entrypoints; i++)
		if (!strcmp(m->entrypoints[i].id, id ? id : "main"))
			return &m->entrypoints[i];
	return NULL;
}

static int no_entrypoint(const struct nsbox_manifest *m, const char *id, struct nsbox_error *err)
{
	char known[200] = "";
	int len = 0;

	if (!m->entrypoints || !m->n_entrypoints)
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "the manifest has no entrypoints");
	for (size_t i = 0; i < m->n_entrypoints; i++)
		len += nsbox_format(known + len, (int)sizeof(known) - len, "%s%s", i ? ", " : "",
				    m->entrypoints[i].id);
	return nsbox_fail(err, NSBOX_E_INVALID, 0, "no entrypoint '%s'; the manifest has: %s",
			  id ? id : "main", known);
}

int nsbox_manifest_entrypoint(const struct nsbox_manifest *m, const char *id,
			      struct nsbox_entrypoint *ret, struct nsbox_error *err)
{
	const struct manifest_entrypoint *e = find_entrypoint(m, id);

	if (!e)
		return no_entrypoint(m, id, err);
	*ret = (struct nsbox_entrypoint){
		.id = e->id,
		.command = (const char *const *)e->command,
		.cwd = e->cwd,
		.timeout_ms = e->timeout_ms,
		.no_stdin = e->stdin_mode == STDIN_NONE,
	};
	return 0;
}
