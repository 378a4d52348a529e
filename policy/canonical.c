/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The canonical form of a policy: JSON with sorted keys, whole numbers, sorted lists, no white
 * space. Two policies that would make the same plan on the same host have the same text, and its
 * SHA-256 stands for them in receipts and caches.
 */
#include <json-c/json.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/internal.h"

int sha256_hex(const void *data, size_t len, char ret[65], struct nsbox_error *err)
{
	unsigned char md[32];
	unsigned n = 0;

	if (!EVP_Digest(data, len, md, &n, EVP_sha256(), NULL) || n != sizeof(md))
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "compute a SHA-256");
	for (unsigned i = 0; i < n; i++)
		snprintf(ret + (size_t)2 * i, 3, "%02x", md[i]);
	return 0;
}

/* Members are added in the order of their names. A failed allocation shows as NULL at the end. */
struct object {
	struct json_object *o;
	bool failed;
};

static struct object object_new(void)
{
	struct json_object *o = json_object_new_object();

	return (struct object){ o, !o };
}

static void put(struct object *o, const char *key, struct json_object *v)
{
	if (!v || json_object_object_add(o->o, key, v) < 0) {
		json_object_put(v);
		o->failed = true;
	}
}

static void put_object(struct object *o, const char *key, struct object v)
{
	o->failed |= v.failed;
	put(o, key, v.o);
}

static void put_u64(struct object *o, const char *key, uint64_t v)
{
	put(o, key, json_object_new_uint64(v));
}

static void put_str(struct object *o, const char *key, const char *v)
{
	put(o, key, json_object_new_string(v ? v : ""));
}

static void put_bool(struct object *o, const char *key, bool v)
{
	put(o, key, json_object_new_boolean(v));
}

static void put_digest(struct object *o, const char *key, const char *v)
{
	char digest[65];

	if (sha256_hex(v, strlen(v), digest, NULL) < 0)
		o->failed = true;
	else
		put_str(o, key, digest);
}

static void put_list(struct object *o, const char *key, char *const *list)
{
	struct json_object *a = json_object_new_array();

	for (; a && list && *list; list++) {
		struct json_object *s = json_object_new_string(*list);

		if (!s || json_object_array_add(a, s) < 0)
			o->failed = true;
	}
	put(o, key, a);
}

static struct object filesystem(const struct nsbox_policy *p)
{
	struct object o = object_new(), tmpfs = object_new();

	/* By path, in order; sizes and exec decide the mount. */
	static const int order[] = { TMPFS_HOME, TMPFS_SECRETS, TMPFS_SKILL,
				     TMPFS_TMP,	 TMPFS_VAR_TMP, TMPFS_WORKSPACE };

	put_list(&o, "exec", p->exec);
	put_list(&o, "executable", p->make_exec);
	put_list(&o, "mask", p->mask);
	put_list(&o, "optional", p->optional);
	put_list(&o, "read", p->read);
	put_list(&o, "readOnly", p->read_only);
	put_bool(&o, "rootReadOnly", p->profile->root_rdonly);
	put_str(&o, "skill", p->skill_dir);
	put_bool(&o, "skillReadOnly", p->skill_readonly);
	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		const struct policy_tmpfs *t = &p->tmpfs[order[i]];
		struct object one;

		if (!t->used)
			continue;
		one = object_new();
		put_bool(&one, "exec", t->exec);
		put_u64(&one, "size", t->size);
		put_object(&tmpfs, t->path, one);
	}
	put_object(&o, "tmpfs", tmpfs);
	put_str(&o, "workdir", p->workdir);
	put_bool(&o, "workspace", p->workspace);
	put_bool(&o, "workspaceShared", p->tmpfs[TMPFS_WORKSPACE].shared);
	put_list(&o, "write", p->write);
	return o;
}

static struct object limits(const struct plan_limits *l)
{
	struct object o = object_new();

	put_u64(&o, "cpuMilli", l->cpu_milli);
	put_u64(&o, "cpuMs", l->cpu_ms);
	put_u64(&o, "disk", l->disk);
	put_u64(&o, "diskInodes", l->disk_inodes);
	put_u64(&o, "fileSize", l->file_size);
	put_u64(&o, "graceMs", l->grace_ms);
	put_u64(&o, "memory", l->memory);
	put_u64(&o, "openFiles", l->open_files);
	put_u64(&o, "pids", l->pids);
	put_u64(&o, "result", l->result_max);
	put_u64(&o, "stderr", l->stderr_max);
	put_u64(&o, "stdout", l->stdout_max);
	put_u64(&o, "wallMs", l->wall_ms);
	return o;
}

static int compare_layers(const void *a, const void *b)
{
	return strcmp(nsbox_layer_name(*(const int *)a), nsbox_layer_name(*(const int *)b));
}

static struct object layers(const struct nsbox_policy *p)
{
	static const char *const words[] = { "off", "prefer", "require" };
	struct object o = object_new();
	int order[NSBOX_LAYER_MAX];

	for (int i = 0; i < NSBOX_LAYER_MAX; i++)
		order[i] = i;
	qsort(order, NSBOX_LAYER_MAX, sizeof(order[0]), compare_layers);
	for (int i = 0; i < NSBOX_LAYER_MAX; i++)
		put_str(&o, nsbox_layer_name(order[i]), words[p->layer[order[i]]]);
	return o;
}

static void put_outputs(struct object *o, const struct nsbox_policy *p)
{
	struct json_object *a = json_object_new_array();

	for (size_t i = 0; a && i < p->n_outputs; i++) {
		struct object one = object_new();

		put_str(&one, "glob", p->outputs[i].glob);
		put_u64(&one, "maxBytes", p->outputs[i].max_bytes);
		put_u64(&one, "maxFiles", p->outputs[i].max_files);
		if (one.failed || json_object_array_add(a, one.o) < 0)
			o->failed = true;
	}
	put(o, "outputs", a);
}

static struct object process(const struct nsbox_policy *p)
{
	static const char *const words[] = { "none", "skill", "any" };
	struct object o = object_new();

	put_bool(&o, "jit", p->jit);
	put_bool(&o, "listen", p->listen);
	put_bool(&o, "netlink", p->netlink);
	put_bool(&o, "ptrace", p->ptrace);
	put_str(&o, "subprocess", words[p->subprocess]);
	put_bool(&o, "threads", p->threads);
	put_u64(&o, "uid", p->uid);
	return o;
}

/* ------------------------------------------------------------------ lists of objects */

static void add_object(struct object *o, struct json_object *a, struct object one)
{
	if (one.failed || json_object_array_add(a, one.o) < 0) {
		json_object_put(one.o);
		o->failed = true;
	}
}

static struct object network(const struct nsbox_policy *p)
{
	static const char *const modes[] = { "none", "allowlist", "open" };
	static const char *const protocols[] = { "tcp", "udp" };
	struct object o = object_new();
	struct json_object *a = json_object_new_array();

	for (size_t i = 0; a && i < p->network.n_allow; i++) {
		const struct policy_host *h = &p->network.allow[i];
		struct json_object *ports = json_object_new_array();
		struct object one = object_new();

		put_str(&one, "host", h->host);
		for (const uint32_t *n = h->ports; ports && *n; n++)
			json_object_array_add(ports, json_object_new_uint64(*n));
		put(&one, "ports", ports);
		put_str(&one, "protocol", protocols[h->protocol]);
		add_object(&o, a, one);
	}
	put(&o, "allow", a);
	if (policy_has_egress(p)) {
		put_list(&o, "bannedNames", p->network.banned_names);
		put_list(&o, "bannedNetworks", p->network.banned_nets);
		if (p->network.certificates)
			put_digest(&o, "certificates", p->network.certificates);
		put_u64(&o, "connections", p->network.connections);
	}
	put_list(&o, "denyCidrs", p->network.deny_cidrs);
	put_str(&o, "mode", modes[p->network.mode]);
	if (policy_has_egress(p)) {
		if (p->network.idle_ms)
			put_u64(&o, "connectionIdle", p->network.idle_ms);
		if (p->network.open_ms)
			put_u64(&o, "connectionTime", p->network.open_ms);
		put_list(&o, "openNetworks", p->network.opened);
		if (p->network.tls_ports)
			put_list(&o, "tlsPorts", p->network.tls_ports);
		put_u64(&o, "transfer", p->network.transfer);
		put_u64(&o, "transferRate", p->network.transfer_rate);
	}
	return o;
}

/* What was asked for beyond the profile, in the order of asking, split by what came of it. */
static void put_grants(struct object *o, const char *key, const struct nsbox_policy *p,
		       bool granted, bool refused)
{
	struct json_object *a = json_object_new_array();

	for (size_t i = 0; a && i < p->n_grants; i++) {
		const struct policy_grant *g = &p->grants[i];
		struct object one;

		if (g->refused ? !refused : !granted)
			continue;
		one = object_new();
		put_str(&one, "pointer", g->pointer);
		put_str(&one, "value", g->value);
		if (!granted)
			put_str(&one, "why", g->refused);
		add_object(o, a, one);
	}
	put(o, key, a);
}

static void put_gaps(struct object *o, const struct nsbox_policy *p)
{
	struct json_object *a = json_object_new_array();

	for (size_t i = 0; a && i < p->n_gaps; i++) {
		struct object one = object_new();

		put_str(&one, "pointer", p->gaps[i].pointer);
		put_str(&one, "why", p->gaps[i].why);
		add_object(o, a, one);
	}
	put(o, "unsupported", a);
}

static void put_lost(struct object *o, const struct nsbox_policy *p)
{
	struct json_object *a = json_object_new_array();
	const char *name;

	for (size_t i = 0; a && (name = landlock_lost(p, i)); i++)
		json_object_array_add(a, json_object_new_string(name));
	put(o, "landlockLost", a);
}

static struct object session(const struct nsbox_policy *p)
{
	struct object o = object_new();

	put_u64(&o, "idleTimeoutMs", p->session.idle_ms);
	put_u64(&o, "maxCommands", p->session.max_commands);
	put_u64(&o, "ttlMs", p->session.ttl_ms);
	return o;
}

static struct object whole(const struct nsbox_policy *p)
{
	struct object o = object_new(), env = object_new(), landlock = object_new(),
		      syscalls = object_new();

	put_grants(&o, "asked", p, true, true);
	put_list(&env, "pass", p->env_pass);
	put_list(&env, "set", p->env);
	put_object(&o, "env", env);
	put_object(&o, "filesystem", filesystem(p));
	put_grants(&o, "granted", p, true, false);
	put_str(&o, "hostname", p->hostname);
	put_u64(&landlock, "abi", p->landlock_abi);
	if (p->image)
		put_str(&o, "image", p->image);
	put_object(&o, "landlock", landlock);
	put_lost(&o, p);
	put_object(&o, "layers", layers(p));
	put_object(&o, "limits", limits(&p->limits));
	put_str(&o, "manifest", *p->manifest_sha256 ? p->manifest_sha256 : "default");
	put_str(&o, "minTier", nsbox_tier_name((int)p->tier));
	put_str(&o, "name", p->name);
	put_object(&o, "network", network(p));
	put_outputs(&o, p);
	put_object(&o, "process", process(p));
	put_str(&o, "profile", p->profile->name);
	put_grants(&o, "refused", p, false, true);
	if (p->session.kept)
		put_object(&o, "session", session(p));
	put_list(&syscalls, "allow", p->syscalls);
	put_object(&o, "syscalls", syscalls);
	put_gaps(&o, p);
	return o;
}

int nsbox_policy_json(const struct nsbox_policy *p, char **ret, struct nsbox_error *err)
{
	struct object o = whole(p);
	const char *text =
		o.failed ? NULL
			 : json_object_to_json_string_ext(
				   o.o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);

	*ret = text ? strdup(text) : NULL;
	json_object_put(o.o);
	return *ret ? 0 : nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "write a policy");
}

int nsbox_policy_digest(const struct nsbox_policy *p, char ret_hex[65], struct nsbox_error *err)
{
	auto_free char *text = NULL;
	int r = nsbox_policy_json(p, &text, err);

	return r < 0 ? r : sha256_hex(text, strlen(text), ret_hex, err);
}
