/* SPDX-License-Identifier: Apache-2.0 */
/*
 * skill.json as written. One table per object says which keys there are, how each is read and what
 * it means; nothing else in the program knows the format. Keys that later versions will have are in
 * the tables without a reader: asking for something that would not be enforced is an error.
 *
 * Whether a wish can be granted is not decided here but in resolve.c.
 */
#include <json-c/json.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/json_strict.h"

#define LATER	    "is not supported by this version"
#define ENTRIES_MAX 64
#define PATHS_MAX   256 /* of each list: a plan holds 4096 operations */
#define ID_MAX	    64

#define AT(member)  offsetof(struct nsbox_manifest, member)
#define LIST(table) table, ARRAY_SIZE(table)

/* ------------------------------------------------------------------ small readers */

/* A boolean that may be absent: 0 or 1 into a uint32_t that was UNSET. */
static int take_flag(struct json_reader *r, struct json_object *v, const struct json_field *f,
		     void *dst)
{
	struct json_field plain = { .name = f->name };
	bool flag = false;
	int ret = json_take_bool(r, v, &plain, &flag);

	if (ret == 0)
		*(uint32_t *)(void *)((char *)dst + f->offset) = flag;
	return ret;
}

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

/* Names become parts of paths: [a-z0-9] then [a-z0-9._-]. */
static bool is_name(const char *s)
{
	size_t len = strlen(s);

	if (!len || len > ID_MAX || !is_name_char(s[0]) || s[0] == '-' || s[0] == '.')
		return false;
	for (size_t i = 0; i < len; i++)
		if (!is_name_char(s[i]))
			return false;
	return true;
}

static int take_name(struct json_reader *r, struct json_object *v, const struct json_field *f,
		     void *dst)
{
	int ret = json_take_string(r, v, f, dst);

	if (ret == 0 && !is_name(*(char **)(void *)((char *)dst + f->offset)))
		return json_fail(r,
				 "must be lower-case letters, digits, '-', '_' and '.', at most "
				 "%d",
				 ID_MAX);
	return ret;
}

static int take_version_number(struct json_reader *r, struct json_object *v,
			       const struct json_field *f, void *dst)
{
	int ret = json_take_u32(r, v, f, dst);

	if (ret == 0 && *(uint32_t *)(void *)((char *)dst + f->offset) != 1)
		return json_fail(r, "this version reads manifestVersion 1 only");
	return ret;
}

/* ------------------------------------------------------------------ entrypoints */

static const char *const stdin_modes[] = { "none", "text", "stream", NULL };
enum { STDIN_NONE };

/* A path inside, resolved by whoever starts the program: here only that it stays below its base. */
static int take_path(struct json_reader *r, struct json_object *v, const struct json_field *f,
		     void *dst)
{
	int ret = json_take_string(r, v, f, dst);
	const char *p = ret == 0 ? *(char **)(void *)((char *)dst + f->offset) : "";

	for (; *p; p += strcspn(p, "/"), p += *p == '/')
		if (p[0] == '.' && p[1] == '.' && (!p[2] || p[2] == '/'))
			return json_fail(r, "must not contain \"..\"");
	return ret;
}

/* clang-format off */
static const struct json_field entrypoint_fields[] = {
	{ "command", json_take_strings, offsetof(struct manifest_entrypoint, command), .min = 1,
	  .required = true, .help = "argument vector; no shell" },
	{ "cwd", take_path, offsetof(struct manifest_entrypoint, cwd), .min = 1,
	  .help = "working directory, default the skill's directory" },
	{ "stdin", json_take_choice, offsetof(struct manifest_entrypoint, stdin_mode),
	  .choices = stdin_modes, .help = "what it reads on standard input" },
	{ "timeout", json_take_ms, offsetof(struct manifest_entrypoint, timeout_ms), .min = 1,
	  .help = "wall-clock limit of this entry point" },
	{ "description", json_take_string, offsetof(struct manifest_entrypoint, description),
	  .help = "for people" },
};
/* clang-format on */

static int take_entrypoints(struct json_reader *r, struct json_object *v,
			    const struct json_field *f, void *dst)
{
	struct nsbox_manifest *m = dst;

	if (!json_object_is_type(v, json_type_object))
		return json_fail(r, "expected an object, found %s", json_type_text(v));
	if (json_object_object_length(v) > ENTRIES_MAX)
		return json_fail(r, "has more than %d entries", ENTRIES_MAX);
	m->entrypoints = calloc((size_t)json_object_object_length(v) + 1, sizeof(*m->entrypoints));
	if (!m->entrypoints)
		return json_nomem(r);
	json_object_object_foreach (v, id, body) {
		struct manifest_entrypoint *e = &m->entrypoints[m->n_entrypoints];
		size_t mark = json_enter(r, id);
		int ret;

		if (!is_name(id))
			return json_fail(r, "is not a name: lower-case letters, digits, '-', '_'");
		e->id = strdup(id);
		if (!e->id)
			return json_nomem(r);
		e->stdin_mode = UNSET;
		m->n_entrypoints++;
		ret = json_read_object(r, body, LIST(entrypoint_fields), false, e);
		if (ret < 0)
			return ret;
		json_leave(r, mark);
	}
	return 0;
}

/* ------------------------------------------------------------------ files, filesystem */

static const struct json_field files_fields[] = {
	{ "executable", json_take_strings, AT(executable), .max = PATHS_MAX,
	  .help = "files that get the execute bit" },
	{ "digests", .absent = LATER },
};

static int take_files(struct json_reader *r, struct json_object *v, const struct json_field *f,
		      void *dst)
{
	return json_read_object(r, v, LIST(files_fields), false, dst);
}

static const char *const skill_modes[] = { "ro", "overlay", NULL };
static const char *const workspace_modes[] = { "overlay", "none", "rw", NULL };

static const struct json_field workspace_fields[] = {
	{ "mode", json_take_choice, AT(fs.workspace), .choices = workspace_modes },
	{ "size", json_take_bytes, AT(fs.workspace_size), .min = 65536 },
};

/* "overlay", or {"mode": "overlay", "size": "64Mi"}. */
static int take_workspace(struct json_reader *r, struct json_object *v, const struct json_field *f,
			  void *dst)
{
	struct nsbox_manifest *m = dst;
	int ret;

	if (json_object_is_type(v, json_type_string))
		ret = json_take_choice(r, v, &workspace_fields[0], dst);
	else
		ret = json_read_object(r, v, LIST(workspace_fields), false, dst);
	if (ret == 0 && m->fs.workspace == WORKSPACE_RW)
		return json_fail(r, "\"rw\" " LATER);
	return ret;
}

static const struct json_field tmp_fields[] = {
	{ "size", json_take_bytes, AT(fs.tmp_size), .min = 65536 },
	{ "exec", take_flag, AT(fs.tmp_exec) },
};

/* "64Mi", or {"size": "64Mi", "exec": true}. */
static int take_tmp(struct json_reader *r, struct json_object *v, const struct json_field *f,
		    void *dst)
{
	if (json_object_is_type(v, json_type_object))
		return json_read_object(r, v, LIST(tmp_fields), false, dst);
	return json_take_bytes(r, v, &tmp_fields[0], dst);
}

/* clang-format off */
static const struct json_field filesystem_fields[] = {
	{ "read",      json_take_strings, AT(fs.read),      .max = PATHS_MAX, .help = "paths that can be read" },
	{ "write",     json_take_strings, AT(fs.write),     .max = PATHS_MAX, .help = "paths that can be changed" },
	{ "exec",      json_take_strings, AT(fs.exec),      .max = PATHS_MAX, .help = "paths programs are started from" },
	{ "mask",      json_take_strings, AT(fs.mask),      .max = PATHS_MAX, .help = "hidden even when a parent is granted" },
	{ "readOnly",  json_take_strings, AT(fs.read_only), .max = PATHS_MAX, .help = "read-only even below a writable directory" },
	{ "skill",     json_take_choice,  AT(fs.skill),     .choices = skill_modes },
	{ "workspace", take_workspace },
	{ "tmp",       take_tmp },
};
/* clang-format on */

static int take_filesystem(struct json_reader *r, struct json_object *v, const struct json_field *f,
			   void *dst)
{
	return json_read_object(r, v, LIST(filesystem_fields), false, dst);
}

/* ------------------------------------------------------------------ outputs */

/* clang-format off */
static const struct json_field output_fields[] = {
	{ "glob", json_take_string, offsetof(struct manifest_output, glob), .min = 1, .max = 255,
	  .required = true, .help = "relative to the working directory" },
	{ "maxBytes", json_take_bytes, offsetof(struct manifest_output, max_bytes), .min = 1,
	  .max = UINT64_C(1) << 30, .help = "of each file" },
	{ "maxFiles", json_take_u32, offsetof(struct manifest_output, max_files), .min = 1,
	  .max = 10000 },
	{ "mediaType", json_take_string, offsetof(struct manifest_output, media_type), .max = 128 },
};
/* clang-format on */

static int take_outputs(struct json_reader *r, struct json_object *v, const struct json_field *f,
			void *dst)
{
	struct nsbox_manifest *m = dst;
	size_t n;

	if (!json_object_is_type(v, json_type_array))
		return json_fail(r, "expected an array, found %s", json_type_text(v));
	n = json_object_array_length(v);
	if (n > ENTRIES_MAX)
		return json_fail(r, "has more than %d entries", ENTRIES_MAX);
	m->outputs = calloc(n + 1, sizeof(*m->outputs));
	if (!m->outputs)
		return json_nomem(r);
	for (size_t i = 0; i < n; i++) {
		size_t mark = json_enter_index(r, i);
		int ret;

		m->n_outputs++;
		ret = json_read_object(r, json_object_array_get_idx(v, i), LIST(output_fields),
				       false, &m->outputs[i]);
		if (ret < 0)
			return ret;
		json_leave(r, mark);
	}
	return 0;
}

/* ------------------------------------------------------------------ network */

#define NO_EGRESS "egress is not available in this version; only network.mode \"none\" is"

static const char *const network_modes[] = { "none", "allowlist", "open", NULL };

static int take_network_mode(struct json_reader *r, struct json_object *v,
			     const struct json_field *f, void *dst)
{
	int ret = json_take_choice(r, v, f, dst);

	if (ret == 0 && ((struct nsbox_manifest *)dst)->network != 0)
		return json_fail(r, "network.mode \"%s\": " NO_EGRESS, json_object_get_string(v));
	return ret;
}

static const struct json_field network_fields[] = {
	{ "mode", take_network_mode, AT(network), .choices = network_modes },
	{ "allow", .absent = NO_EGRESS },
	{ "denyCidrs", .absent = NO_EGRESS },
	{ "dns", .absent = NO_EGRESS },
};

static int take_network(struct json_reader *r, struct json_object *v, const struct json_field *f,
			void *dst)
{
	return json_read_object(r, v, LIST(network_fields), false, dst);
}

/* ------------------------------------------------------------------ env */

static bool is_variable(const char *s)
{
	size_t len = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");

	return len && !s[len] && len <= 64 && (s[0] < '0' || s[0] > '9');
}

static int take_env_set(struct json_reader *r, struct json_object *v, const struct json_field *f,
			void *dst)
{
	const struct json_field value = { .offset = offsetof(struct manifest_var, value),
					  .max = 32768 };
	struct nsbox_manifest *m = dst;

	if (!json_object_is_type(v, json_type_object))
		return json_fail(r, "expected an object, found %s", json_type_text(v));
	if (json_object_object_length(v) > 256)
		return json_fail(r, "has more than 256 variables");
	m->env_set = calloc((size_t)json_object_object_length(v) + 1, sizeof(*m->env_set));
	if (!m->env_set)
		return json_nomem(r);
	json_object_object_foreach (v, name, text) {
		struct manifest_var *var = &m->env_set[m->n_env_set++];
		size_t mark = json_enter(r, name);
		int ret;

		if (!is_variable(name))
			return json_fail(r,
					 "is not the name of a variable: letters, digits and '_'");
		var->name = strdup(name);
		if (!var->name)
			return json_nomem(r);
		ret = json_take_string(r, text, &value, var);
		if (ret < 0)
			return ret;
		json_leave(r, mark);
	}
	return 0;
}

static int take_env_pass(struct json_reader *r, struct json_object *v, const struct json_field *f,
			 void *dst)
{
	struct nsbox_manifest *m = dst;
	int ret = json_take_strings(r, v, f, dst);

	for (size_t i = 0; ret == 0 && m->env_pass[i]; i++)
		if (!is_variable(m->env_pass[i])) {
			json_enter_index(r, i);
			return json_fail(r, "is not the name of a variable");
		}
	return ret;
}

static const struct json_field env_fields[] = {
	{ "pass", take_env_pass, AT(env_pass), .max = 256,
	  .help = "variables of the caller of the command line tool" },
	{ "set", take_env_set, .help = "name to value" },
};

static int take_env(struct json_reader *r, struct json_object *v, const struct json_field *f,
		    void *dst)
{
	return json_read_object(r, v, LIST(env_fields), false, dst);
}

/* ------------------------------------------------------------------ process, syscalls */

static const char *const subprocess_modes[] = { "none", "skill", "any", NULL };
static const char *const users[] = { "nobody", "root", NULL };

/* The flags that only exist so that `false` can be written. */
static int take_never(struct json_reader *r, struct json_object *v, const struct json_field *f,
		      void *dst)
{
	bool flag = false;
	int ret = json_take_bool(r, v, &(struct json_field){ .name = f->name }, &flag);

	return ret == 0 && flag ? json_fail(r, "true %s", f->absent) : ret;
}

static int take_user(struct json_reader *r, struct json_object *v, const struct json_field *f,
		     void *dst)
{
	int ret = json_take_choice(r, v, f, dst);

	if (ret == 0 && ((struct nsbox_manifest *)dst)->process.user != 0)
		return json_fail(r, "\"root\" " LATER);
	return ret;
}

/* clang-format off */
static const struct json_field process_fields[] = {
	{ "subprocess", json_take_choice, AT(process.subprocess), .choices = subprocess_modes },
	{ "jit",     take_flag,  AT(process.jit),     .help = "memory both writable and executable" },
	{ "threads", take_flag,  AT(process.threads), .help = "more than one thread" },
	{ "ptrace",  take_flag,  AT(process.ptrace),  .help = "tracing of own children" },
	{ "userns",  take_never, .absent = "is never granted" },
	{ "netlink", take_never, .absent = LATER "; interfaces can be listed anyway" },
	{ "user",    take_user,  AT(process.user), .choices = users },
};
/* clang-format on */

static int take_process(struct json_reader *r, struct json_object *v, const struct json_field *f,
			void *dst)
{
	return json_read_object(r, v, LIST(process_fields), false, dst);
}

static const struct json_field syscalls_fields[] = {
	{ "allow", json_take_strings, AT(syscalls), .max = 128,
	  .help = "system calls allowed on top; operators only" },
	{ "groups", .absent = LATER },
};

static int take_syscalls(struct json_reader *r, struct json_object *v, const struct json_field *f,
			 void *dst)
{
	return json_read_object(r, v, LIST(syscalls_fields), false, dst);
}

/* ------------------------------------------------------------------ resources, timeouts */

/* clang-format off */
static const struct json_field resources_fields[] = {
	{ "cpu",       json_take_cpu,   AT(res.cpu_milli),  .min = 10 },
	{ "memory",    json_take_bytes, AT(res.memory),     .min = 16u << 20 },
	{ "pids",      json_take_u32,   AT(res.pids),       .min = 2 },
	{ "disk",      json_take_bytes, AT(res.disk),       .min = 1u << 20 },
	{ "openFiles", json_take_u32,   AT(res.open_files), .min = 32 },
	{ "fileSize",  json_take_bytes, AT(res.file_size),  .min = 65536 },
	{ "stdout",    json_take_bytes, AT(res.stdout_max), .min = 1, .max = 256u << 20 },
	{ "stderr",    json_take_bytes, AT(res.stderr_max), .min = 1, .max = 256u << 20 },
	{ "result",    json_take_bytes, AT(res.result_max), .min = 1, .max = 256u << 20 },
	{ "swap",      .absent = LATER "; there is no swap in a run" },
};

static const struct json_field timeouts_fields[] = {
	{ "wall",  json_take_ms, AT(timeouts.wall_ms),  .min = 1 },
	{ "cpu",   json_take_ms, AT(timeouts.cpu_ms),   .min = 1000 },
	{ "grace", json_take_ms, AT(timeouts.grace_ms), .min = 1, .max = 60000 },
};
/* clang-format on */

static int take_resources(struct json_reader *r, struct json_object *v, const struct json_field *f,
			  void *dst)
{
	return json_read_object(r, v, LIST(resources_fields), false, dst);
}

static int take_timeouts(struct json_reader *r, struct json_object *v, const struct json_field *f,
			 void *dst)
{
	return json_read_object(r, v, LIST(timeouts_fields), false, dst);
}

/* ------------------------------------------------------------------ require */

static const char *const requirements[] = {
	[NSBOX_OFF] = "off", [NSBOX_PREFER] = "prefer", [NSBOX_REQUIRE] = "require", NULL
};
static const char *const tiers[] = { "process", "namespace", "cgroup", NULL };

static const char *next_layer(void *ctx, size_t i)
{
	return nsbox_layer_name((int)i);
}

static int take_require(struct json_reader *r, struct json_object *v, const struct json_field *f,
			void *dst)
{
	struct nsbox_manifest *m = dst;

	if (!json_object_is_type(v, json_type_object))
		return json_fail(r, "expected an object, found %s", json_type_text(v));
	json_object_object_foreach (v, name, word) {
		struct json_field one = { .choices = requirements };
		int layer = nsbox_layer_by_name(name), ret;
		size_t mark = json_enter(r, name);
		const char *near;

		if (layer < 0) {
			near = json_did_you_mean(name, next_layer, NULL);
			return near ? json_fail(r, "unknown layer, did you mean \"%s\"?", near)
				    : json_fail(r, "unknown layer");
		}
		ret = json_take_choice(r, word, &one, &m->require[layer]);
		if (ret < 0)
			return ret;
		json_leave(r, mark);
	}
	return 0;
}

static int take_min_tier(struct json_reader *r, struct json_object *v, const struct json_field *f,
			 void *dst)
{
	struct nsbox_manifest *m = dst;
	int ret = json_take_choice(r, v, f, dst);

	if (ret == 0)
		m->min_tier += NSBOX_TIER_PROCESS; /* the table begins there */
	return ret;
}

/* ------------------------------------------------------------------ the whole */

static const char *const profiles[] = { [PROFILE_STANDARD] = "standard",
					[PROFILE_STRICT] = "strict",
					[PROFILE_NETWORK] = "network",
					[PROFILE_BUILD] = "build",
					NULL };

/* clang-format off */
static const struct json_field manifest_fields[] = {
	{ "$schema",         json_take_string, AT(schema), .max = 512 },
	{ "manifestVersion", take_version_number, AT(version_number), .required = true },
	{ "name",            take_name,        AT(name), .min = 1, .max = ID_MAX },
	{ "version",         json_take_string, AT(version), .min = 1, .max = 64 },
	{ "description",     json_take_string, AT(description) },
	{ "license",         json_take_string, AT(license), .max = 256 },
	{ "authors",         json_take_strings, AT(authors) },
	{ "profile",         json_take_choice, AT(profile), .choices = profiles },
	{ "entrypoints",     take_entrypoints },
	{ "runtime",         .absent = LATER },
	{ "platforms",       json_take_strings, AT(platforms), .min = 1 },
	{ "compatibility",   .absent = LATER },
	{ "files",           take_files },
	{ "filesystem",      take_filesystem },
	{ "outputs",         take_outputs },
	{ "network",         take_network },
	{ "secrets",         .absent = LATER },
	{ "env",             take_env },
	{ "userConfig",      .absent = LATER },
	{ "process",         take_process },
	{ "syscalls",        take_syscalls },
	{ "resources",       take_resources },
	{ "timeouts",        take_timeouts },
	{ "session",         .absent = LATER },
	{ "determinism",     .absent = LATER },
	{ "require",         take_require },
	{ "minTier",         take_min_tier, AT(min_tier), .choices = tiers },
	{ "audit",           .absent = LATER },
	{ "mcp",             .absent = LATER },
	{ "tests",           manifest_take_tests },
};
/* clang-format on */

static struct nsbox_manifest *manifest_new(void)
{
	struct nsbox_manifest *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->profile = PROFILE_STANDARD;
	m->fs.skill = m->fs.workspace = m->fs.tmp_exec = UNSET;
	m->process.subprocess = m->process.jit = m->process.threads = m->process.ptrace = UNSET;
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
	rc = m ? json_read_object(&r, root, LIST(manifest_fields), true, m) : json_nomem(&r);
	json_object_put(root);
	if (rc == 0)
		rc = sha256_hex(json, len, m->sha256, err);
	if (rc < 0) {
		nsbox_manifest_free(m);
		return rc;
	}
	*ret = m;
	return 0;
}

static void free_lists(struct nsbox_manifest *m)
{
	char **const lists[] = {
		m->authors, m->executable,   m->fs.read,  m->fs.write, m->fs.exec,
		m->fs.mask, m->fs.read_only, m->env_pass, m->syscalls, m->platforms
	};

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		json_strings_free(lists[i]);
}

void nsbox_manifest_free(struct nsbox_manifest *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->n_entrypoints; i++) {
		free(m->entrypoints[i].id);
		free(m->entrypoints[i].cwd);
		free(m->entrypoints[i].description);
		json_strings_free(m->entrypoints[i].command);
	}
	for (size_t i = 0; i < m->n_outputs; i++) {
		free(m->outputs[i].glob);
		free(m->outputs[i].media_type);
	}
	for (size_t i = 0; i < m->n_env_set; i++) {
		free(m->env_set[i].name);
		free(m->env_set[i].value);
	}
	free_lists(m);
	manifest_free_tests(m);
	free(m->entrypoints);
	free(m->outputs);
	free(m->env_set);
	free(m->schema);
	free(m->name);
	free(m->version);
	free(m->description);
	free(m->license);
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
