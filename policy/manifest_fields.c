/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The description of skill.json: one row per field, from which come the reader, the schema
 * (policy/skill.schema.json), the reference in skill.json(5) and `nsbox policy fields`. Nothing
 * else in the program knows the format.
 *
 * Whether a wish can be granted is not decided here but in resolve.c. JSON_LATER marks what is read,
 * resolved and explained, and has no enforcement in this version: a policy that needs it is not
 * compiled to a plan.
 */
#include <json-c/json.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/json_strict.h"
#include "policy/manifest_check.h"

#define PATHS_MAX   256 /* of each list: a plan holds 4096 operations */
#define STREAM_MAX  (256u << 20)
#define SEED_MAX    ((UINT64_C(1) << 53) - 1)
#define PATTERN_MAX 1024
#define INPUT_MAX   65536

#define COUNT(member) .count = offsetof(struct nsbox_manifest, member)

/* clang-format off */

/* ------------------------------------------------------------------ entry points */

#define AT(member) offsetof(struct manifest_entrypoint, member)
static const char *const stdin_modes[] = { "none", "text", "stream", NULL };

static const struct json_field entrypoint_fields[] = {
	{ "command", json_take_strings, AT(command), .min = 1, .required = true,
	  .help = "program and arguments; there is no shell" },
	{ "cwd", json_take_string, AT(cwd), .min = 1, .check = check_below,
	  .preset = "the skill's directory", .help = "working directory" },
	{ "stdin", json_take_choice, AT(stdin_mode), .choices = stdin_modes,
	  .help = "what a caller may offer on standard input" },
	{ "timeout", json_take_ms, AT(timeout_ms), .min = 1, .preset = "timeouts.wall",
	  .help = "wall-clock limit of this entry point" },
	{ "description", json_take_string, AT(description), .marks = JSON_DECLARATIVE,
	  .help = "for people" },
};
#undef AT

static void entrypoint_init(void *entry)
{
	((struct manifest_entrypoint *)entry)->stdin_mode = UNSET;
}

static const struct json_table entrypoint_table = {
	entrypoint_fields, ARRAY_SIZE(entrypoint_fields), .size = sizeof(struct manifest_entrypoint),
	COUNT(n_entrypoints), .key = offsetof(struct manifest_entrypoint, id), .key_name = "ID",
	.check_key = check_entrypoint_id, .init = entrypoint_init,
};

/* ------------------------------------------------------------------ runtime, compatibility */

#define AT(member)    offsetof(struct nsbox_manifest, member)
#define MEMBERS(list) { list, ARRAY_SIZE(list) }
#define EITHER(list)  { list, ARRAY_SIZE(list), .form = JSON_FORM_EITHER }

static const struct json_field interpreter_fields[] = {
	{ "name", json_take_string, AT(runtime.interpreter), .required = true, .check = check_name,
	  .marks = JSON_DECLARATIVE, .help = "program that runs the skill's scripts, like \"python3\"" },
	{ "version", json_take_string, AT(runtime.interpreter_version), .check = check_interpreter,
	  .marks = JSON_DECLARATIVE, .help = "versions that will do, like \">=3.11,<3.13\"" },
};
static const struct json_table interpreter_table = MEMBERS(interpreter_fields);

static const struct json_field packages_fields[] = {
	{ "lockfile", json_take_string, AT(runtime.lockfile), .required = true,
	  .check = check_skill_file, .marks = JSON_LATER, .help = "list of packages with their versions" },
	{ "sha256", json_take_string, AT(runtime.lockfile_sha256), .required = true,
	  .check = check_sha256, .marks = JSON_LATER, .help = "of the lock file" },
};
static const struct json_table packages_table = MEMBERS(packages_fields);

static const struct json_field runtime_fields[] = {
	{ "rootfs", json_take_string, AT(runtime.rootfs), .min = 1, .max = 127, .preset = "\"host\"",
	  .check = check_image, .help = "image from the operator's catalogue, by name, or by the first digits of its id or digest; "
		  "one that the caller names goes first" },
	{ "interpreter", json_take_members, .table = &interpreter_table, .marks = JSON_DECLARATIVE,
	  .help = "checked by `nsbox skill check`" },
	{ "packages", json_take_members, .table = &packages_table, .marks = JSON_LATER,
	  .help = "a layer that was built before; nothing is installed at the start of a run" },
};
static const struct json_table runtime_table = MEMBERS(runtime_fields);

static const struct json_field compatibility_fields[] = {
	{ "kernel", json_take_string, AT(compatibility.kernel), .check = check_kernel,
	  .help = "least kernel, like \">=5.13\"" },
	{ "landlockAbi", json_take_u32, AT(compatibility.landlock_abi), .min = 1, .max = 1000,
	  .help = "least Landlock ABI" },
	{ "features", json_take_strings, AT(compatibility.features), .max = 64, .check = check_layer,
	  .help = "layers that the host has to have, see require" },
};
static const struct json_table compatibility_table = MEMBERS(compatibility_fields);

/* ------------------------------------------------------------------ files, filesystem */

static const struct json_field digest_fields[] = {
	{ "value", json_take_string, offsetof(struct manifest_var, value), .check = check_sha256,
	  .help = "SHA-256" },
};
static const struct json_table digest_table = {
	digest_fields, 1, JSON_FORM_VALUE, sizeof(struct manifest_var), COUNT(n_digests),
	.key = offsetof(struct manifest_var, name), .key_name = "FILE", .check_key = check_skill_file,
};

static const struct json_field files_fields[] = {
	{ "executable", json_take_strings, AT(executable), .max = PATHS_MAX,
	  .help = "files, by name or pattern, that get the execute bit, which archives often lose" },
	{ "digests", json_take_map, AT(digests), .max = 128, .table = &digest_table,
	  .help = "SHA-256 of files of the skill; where one is missing or another nothing runs" },
};
static const struct json_table files_table = MEMBERS(files_fields);

static const struct json_field path_fields[] = {
	{ "path", json_take_string, offsetof(struct manifest_path, path), .min = 1, .required = true,
	  .check = check_below, .help = "a path inside" },
	{ "optional", json_take_bool, offsetof(struct manifest_path, optional), .preset = "false",
	  .help = "the run goes on where it is missing or refused" },
	{ "description", json_take_string, offsetof(struct manifest_path, description),
	  .marks = JSON_DECLARATIVE, .help = "for people" },
};
#define PATHS_TABLE(list)                                                                          \
	{ path_fields, ARRAY_SIZE(path_fields), JSON_FORM_EITHER, sizeof(struct manifest_path),    \
	  COUNT(fs.list.n) }
static const struct json_table read_table = PATHS_TABLE(read);
static const struct json_table write_table = PATHS_TABLE(write);
static const struct json_table exec_table = PATHS_TABLE(exec);

static const char *const skill_modes[] = { "ro", "overlay", NULL };
static const char *const workspace_modes[] = { "overlay", "none", "rw", NULL };

static const struct json_field workspace_fields[] = {
	{ "mode", json_take_choice, AT(fs.workspace), .choices = workspace_modes, .preset = "\"overlay\"",
	  .help = "a directory of the run's own, none, or one of the host that the operator shares "
		  "(\"rw\")" },
	{ "size", json_take_bytes, AT(fs.workspace_size), .min = 65536, .preset = "resources.disk",
	  .help = "at most" },
};
static const struct json_table workspace_table = EITHER(workspace_fields);

static const struct json_field tmp_fields[] = {
	{ "size", json_take_bytes, AT(fs.tmp_size), .min = 65536, .preset = "resources.disk", .help = "at most" },
	{ "exec", json_take_flag, AT(fs.tmp_exec), .preset = "by profile", .help = "programs may be started from it" },
};
static const struct json_table tmp_table = EITHER(tmp_fields);

static const struct json_field filesystem_fields[] = {
	{ "read", json_take_list, AT(fs.read.v), .max = PATHS_MAX, .table = &read_table,
	  .help = "can be read, beyond what the profile gives" },
	{ "write", json_take_list, AT(fs.write.v), .max = PATHS_MAX, .table = &write_table,
	  .help = "can be changed" },
	{ "exec", json_take_list, AT(fs.exec.v), .max = PATHS_MAX, .table = &exec_table,
	  .help = "programs may be started from it" },
	{ "mask", json_take_strings, AT(fs.mask), .max = PATHS_MAX, .check = check_below,
	  .help = "hidden, even where a parent is granted" },
	{ "readOnly", json_take_strings, AT(fs.read_only), .max = PATHS_MAX, .check = check_below,
	  .help = "not to be changed, even below a writable directory" },
	{ "skill", json_take_choice, AT(fs.skill), .choices = skill_modes, .preset = "\"ro\"",
	  .help = "whether a run may change its copy of the skill" },
	{ "workspace", json_take_members, .table = &workspace_table, .help = "the working directory" },
	{ "tmp", json_take_members, .table = &tmp_table, .help = "/tmp" },
};
static const struct json_table filesystem_table = MEMBERS(filesystem_fields);

/* ------------------------------------------------------------------ outputs */

static const struct json_field output_fields[] = {
	{ "glob", json_take_string, offsetof(struct manifest_output, glob), .min = 1, .max = 255,
	  .required = true, .help = "relative to the working directory; ** crosses directories" },
	{ "maxBytes", json_take_bytes, offsetof(struct manifest_output, max_bytes), .min = 1,
	  .max = UINT64_C(1) << 30, .preset = "\"20Mi\"", .help = "of each file" },
	{ "maxFiles", json_take_u32, offsetof(struct manifest_output, max_files), .min = 1,
	  .max = 10000, .preset = "100", .help = "files that may match" },
	{ "mediaType", json_take_string, offsetof(struct manifest_output, media_type), .max = 128,
	  .marks = JSON_DECLARATIVE, .help = "like \"application/pdf\"" },
};
static const struct json_table output_table = {
	output_fields, ARRAY_SIZE(output_fields), .size = sizeof(struct manifest_output), COUNT(n_outputs),
};

/* ------------------------------------------------------------------ network, secrets */

static const char *const network_modes[] = { "none", "allowlist", "open", NULL };
static const char *const protocols[] = { "tcp", "udp", NULL };
static const char *const dns_modes[] = { "broker", NULL };

#define HOST(member) offsetof(struct manifest_host, member)
static const struct json_field host_fields[] = {
	{ "host", json_take_string, HOST(host), .required = true, .check = check_host,
	  .help = "a name, an address, a network, or \"*.example.com\" for all names below example.com" },
	{ "ports", json_take_u32s, HOST(ports), .min = 1, .max = 65535, .required = true,
	  .help = "numbers" },
	{ "protocol", json_take_choice, HOST(protocol), .choices = protocols, .preset = "\"tcp\"",
	  .help = "connections, or datagrams" },
	{ "description", json_take_string, HOST(description), .min = 1, .required = true,
	  .marks = JSON_DECLARATIVE, .help = "what for; shown to who reviews the skill" },
	{ "optional", json_take_bool, HOST(optional), .preset = "false",
	  .help = "the run goes on where it is refused" },
};
static const struct json_table host_table = {
	host_fields, ARRAY_SIZE(host_fields), .size = sizeof(struct manifest_host), COUNT(network.n_allow),
};

static const struct json_field network_fields[] = {
	{ "mode", json_take_choice, AT(network.mode), .choices = network_modes, .preset = "by profile",
	  .marks = JSON_LIVE, .help = "nothing, the hosts listed, or all but what is always denied" },
	{ "allow", json_take_list, AT(network.allow), .max = 64, .table = &host_table,
	  .marks = JSON_LIVE, .help = "hosts that may be reached" },
	{ "denyCidrs", json_take_strings, AT(network.deny_cidrs), .max = 64, .check = check_cidr,
	  .help = "networks not to be reached, besides those that never are" },
	{ "dns", json_take_choice, AT(network.dns), .choices = dns_modes, .preset = "\"broker\"",
	  .help = "who resolves names" },
};
static const struct json_table network_table = MEMBERS(network_fields);

static const char *const injections[] = { "env", "file", "header", NULL };

#define SECRET(member) offsetof(struct manifest_secret, member)
static const struct json_field secret_fields[] = {
	{ "name", json_take_string, SECRET(name), .required = true, .check = check_variable,
	  .help = "name of the variable or file" },
	{ "source", json_take_string, SECRET(source), .required = true, .check = check_reference,
	  .help = "where the operator keeps it; never the value, which comes with the request, or from there" },
	{ "hosts", json_take_strings, SECRET(hosts), .max = 64, .check = check_host,
	  .help = "whom it may be sent to: the run may reach no others" },
	{ "inject", json_take_choice, SECRET(inject), .choices = injections, .preset = "\"env\"",
	  .help = "how it gets to the program: variable NAME; /run/secrets/NAME, and its path in NAME_FILE; "
		  "header, into requests, cannot be had: what passes to the outside is not opened" },
	{ "sensitive", json_take_bool, SECRET(sensitive), .preset = "false", .marks = JSON_DECLARATIVE,
	  .help = "never shown, not even to who set it" },
	{ "description", json_take_string, SECRET(description), .min = 1, .required = true,
	  .marks = JSON_DECLARATIVE, .help = "what for; shown to who reviews the skill" },
	{ "optional", json_take_bool, SECRET(optional), .preset = "false",
	  .help = "the run goes on without it" },
};
static const struct json_table secret_table = {
	secret_fields, ARRAY_SIZE(secret_fields), .size = sizeof(struct manifest_secret), COUNT(n_secrets),
};

/* ------------------------------------------------------------------ env, userConfig */

static const struct json_field set_fields[] = {
	{ "value", json_take_string, offsetof(struct manifest_var, value), .max = 32768, .help = "its value" },
};
static const struct json_table set_table = {
	set_fields, 1, JSON_FORM_VALUE, sizeof(struct manifest_var), COUNT(n_env_set),
	.key = offsetof(struct manifest_var, name), .key_name = "NAME", .check_key = check_variable,
};

static const struct json_field env_fields[] = {
	{ "pass", json_take_strings, AT(env_pass), .max = 256, .check = check_variable,
	  .help = "variables taken from the caller of the command line tool" },
	{ "set", json_take_map, AT(env_set), .max = 256, .table = &set_table,
	  .help = "variables and their values" },
};
static const struct json_table env_table = MEMBERS(env_fields);

static const char *const config_types[] = { "string", "integer", "number", "boolean", NULL };

#define CONFIG(member) offsetof(struct manifest_config, member)
static const struct json_field config_fields[] = {
	{ "type", json_take_choice, CONFIG(type), .choices = config_types, .required = true,
	  .help = "of its value" },
	{ "title", json_take_string, CONFIG(title), .max = 256, .marks = JSON_DECLARATIVE, .help = "for a form" },
	{ "description", json_take_string, CONFIG(description), .marks = JSON_DECLARATIVE, .help = "for a form" },
	{ "default", json_take_any, CONFIG(preset), .min = 1, .help = "value where none is given" },
	{ "required", json_take_bool, CONFIG(required), .preset = "false",
	  .help = "no run without a value" },
	{ "sensitive", json_take_bool, CONFIG(sensitive), .preset = "false", 
	  .help = "not shown, and given with the secrets; has no default" },
	{ "min", json_take_any, CONFIG(min), .min = 1, .help = "least number" },
	{ "max", json_take_any, CONFIG(max), .min = 1, .help = "greatest number" },
	{ "enum", json_take_any, CONFIG(choices), .min = 1, .help = "list of the values there are" },
};

static bool is_of_type(struct json_object *v, uint32_t type)
{
	enum json_type t = json_object_get_type(v);

	switch ((enum config_type)type) {
	case CONFIG_STRING:
		return t == json_type_string;
	case CONFIG_INTEGER:
		return t == json_type_int;
	case CONFIG_NUMBER:
		return t == json_type_int || t == json_type_double;
	case CONFIG_BOOLEAN:
		return t == json_type_boolean;
	}
	return false;
}

static int config_type_error(struct json_reader *r, const char *key, const struct manifest_config *c)
{
	json_enter(r, key);
	return json_fail(r, "is not of the type \"%s\"", config_types[c->type]);
}

static int config_enum(struct json_reader *r, const struct manifest_config *c)
{
	bool found = !c->preset;
	size_t n;

	if (!json_object_is_type(c->choices, json_type_array) ||
	    !(n = json_object_array_length(c->choices)) || n > 256) {
		json_enter(r, "enum");
		return json_fail(r, "is not a list of 1 to 256 values");
	}
	for (size_t i = 0; i < n; i++) {
		struct json_object *one = json_object_array_get_idx(c->choices, i);

		if (!is_of_type(one, c->type))
			return config_type_error(r, "enum", c);
		found |= json_object_equal(one, c->preset);
	}
	if (found)
		return 0;
	json_enter(r, "default");
	return json_fail(r, "is not one of the values of enum");
}

static int config_finish(struct json_reader *r, void *entry)
{
	const struct manifest_config *c = entry;
	bool number = c->type == CONFIG_INTEGER || c->type == CONFIG_NUMBER;
	const struct {
		const char *key;
		struct json_object *v;
	} bounds[] = { { "min", c->min }, { "max", c->max } };

	for (size_t i = 0; i < ARRAY_SIZE(bounds); i++)
		if (bounds[i].v && (!number || !is_of_type(bounds[i].v, c->type)))
			return config_type_error(r, bounds[i].key, c);
	if (c->preset && !is_of_type(c->preset, c->type))
		return config_type_error(r, "default", c);
	if (c->preset && c->sensitive) {
		json_enter(r, "default");
		return json_fail(r, "would put a sensitive value into the file");
	}
	if ((c->min && c->max && json_object_get_double(c->min) > json_object_get_double(c->max)) ||
	    (c->min && c->preset && json_object_get_double(c->preset) < json_object_get_double(c->min)) ||
	    (c->max && c->preset && json_object_get_double(c->preset) > json_object_get_double(c->max)))
		return json_fail(r, "min, max and default contradict each other");
	return c->choices ? config_enum(r, c) : 0;
}

static const struct json_table config_table = {
	config_fields, ARRAY_SIZE(config_fields), .size = sizeof(struct manifest_config), COUNT(n_config),
	.key = CONFIG(id), .key_name = "ID", .check_key = check_config_id, .finish = config_finish,
};

/* ------------------------------------------------------------------ process, syscalls */

static const char *const subprocess_modes[] = { "none", "skill", "any", NULL };
static const char *const users[] = { "nobody", "root", NULL };

static const struct json_field process_fields[] = {
	{ "subprocess", json_take_choice, AT(process.subprocess), .choices = subprocess_modes, .preset = "by profile",
	  .help = "what may be executed: nothing (Python functions alone), files of the skill and the "
		  "image and nothing that the run wrote, or anything" },
	{ "jit", json_take_flag, AT(process.jit), .preset = "by profile",
	  .help = "memory that is writable and executable" },
	{ "threads", json_take_flag, AT(process.threads), .preset = "true", .help = "more than one thread" },
	{ "ptrace", json_take_flag, AT(process.ptrace), .preset = "by profile", .help = "tracing of own processes" },
	{ "userns", json_take_flag, AT(process.userns), .preset = "false",
	  .help = "user namespaces; true is never granted" },
	{ "netlink", json_take_flag, AT(process.netlink), .preset = "false",
	  .help = "lists of sockets and device events; interfaces can be listed anyway" },
	{ "listen", json_take_flag, AT(process.listen), .preset = "true",
	  .help = "bind, listen and accept, within the run; without them interfaces cannot be listed" },
	{ "user", json_take_choice, AT(process.user), .choices = users, .preset = "by profile",
	  .help = "user 1000, or user 0 of the run's own user namespace" },
};
static const struct json_table process_table = MEMBERS(process_fields);

static const struct json_field syscalls_fields[] = {
	{ "allow", json_take_strings, AT(syscalls), .max = 128, .marks = JSON_OPERATOR,
	  .help = "system calls on top of the default" },
	{ "groups", json_take_strings, AT(syscall_groups), .max = 32, .check = check_group,
	  .marks = JSON_OPERATOR, .help = "the same by group: @clock, @hardware, @ipc, @kernel, @keys, @mount, @ptrace" },
};
static const struct json_table syscalls_table = MEMBERS(syscalls_fields);

/* ------------------------------------------------------------------ resources, timeouts */

static const struct json_field resources_fields[] = {
	{ "cpu",       json_take_cpu,   AT(res.cpu_milli),  .min = 10, .preset = "by profile",
	  .help = "processors" },
	{ "memory",    json_take_bytes, AT(res.memory),     .min = 16u << 20, .preset = "by profile",
	  .help = "of the whole run" },
	{ "swap",      json_take_bytes, AT(res.swap),       .preset = "0", .marks = JSON_LATER,
	  .help = "beyond memory; 0 in this version" },
	{ "pids",      json_take_u32,   AT(res.pids),       .min = 2, .preset = "by profile",
	  .help = "processes and threads" },
	{ "disk",      json_take_bytes, AT(res.disk),       .min = 1u << 20, .preset = "half of memory",
	  .help = "all that is written, which counts as memory, or, where this is more than memory, a file system on disk "
		  "(root of the host alone can give one); beyond it writes fail, and a program that fails and leaves it full has "
		  "`disk` for a cause" },
	{ "openFiles", json_take_u32,   AT(res.open_files), .min = 32, .preset = "1024", .help = "descriptors of a process" },
	{ "fileSize",  json_take_bytes, AT(res.file_size),  .min = 65536, .preset = "memory or disk, the larger",
	  .help = "of one file" },
	{ "stdout",    json_take_bytes, AT(res.stdout_max), .min = 1, .max = STREAM_MAX, .preset = "\"1Mi\"", .help = "kept of it" },
	{ "stderr",    json_take_bytes, AT(res.stderr_max), .min = 1, .max = STREAM_MAX, .preset = "\"1Mi\"", .help = "kept of it" },
	{ "result",    json_take_bytes, AT(res.result_max), .min = 1, .max = STREAM_MAX, .preset = "\"64Mi\"",
	  .help = "of a function's result" },
};
static const struct json_table resources_table = MEMBERS(resources_fields);

static const struct json_field timeouts_fields[] = {
	{ "wall",  json_take_ms, AT(timeouts.wall_ms),  .min = 1, .preset = "by profile", .marks = JSON_LIVE, .help = "of a run; a command of a session may have less" },
	{ "cpu",   json_take_ms, AT(timeouts.cpu_ms),   .min = 1000, .preset = "no limit", .help = "of the processors used, each process" },
	{ "grace", json_take_ms, AT(timeouts.grace_ms), .min = 1, .max = 60000, .preset = "\"1s\"",
	  .help = "between the request to end and the kill" },
};
static const struct json_table timeouts_table = MEMBERS(timeouts_fields);

/* ------------------------------------------------------------------ session, determinism */

static const char *const session_modes[] = { "oneshot", "session", NULL };

static const struct json_field session_fields[] = {
	{ "mode", json_take_choice, AT(session.mode), .choices = session_modes, .preset = "\"oneshot\"",
	  .help = "a sandbox for each run, or one that is kept between commands" },
	{ "idleTimeout", json_take_ms, AT(session.idle_ms), .min = 1000,
	  .help = "a session ends after so long without a command" },
	{ "ttl", json_take_ms, AT(session.ttl_ms), .min = 1000, .help = "a session ends after so long" },
	{ "maxCommands", json_take_u32, AT(session.max_commands), .min = 1,
	  .help = "commands of a session" },
	{ "warm", json_take_bool, AT(session.warm), .preset = "false", .marks = JSON_LATER, .help = "keep one ready" },
};
static const struct json_table session_table = MEMBERS(session_fields);

static const struct json_field determinism_fields[] = {
	{ "time", json_take_string, AT(determinism.time), .check = check_time, .marks = JSON_LATER,
	  .help = "when the clocks begin, like \"2026-01-31T12:00:00Z\"" },
	{ "seed", json_take_u64, AT(determinism.seed), .max = SEED_MAX, .marks = JSON_LATER, .help = "of random numbers" },
	{ "hostname", json_take_string, AT(determinism.hostname), .min = 1, .check = check_hostname, .preset = "\"sandbox\"",
	  .help = "name of the host inside" },
};
static const struct json_table determinism_table = MEMBERS(determinism_fields);

/* ------------------------------------------------------------------ require, audit, mcp */

static const char *const requirements[] = {
	[NSBOX_OFF] = "off", [NSBOX_PREFER] = "prefer", [NSBOX_REQUIRE] = "require", NULL
};
static const char *const tiers[] = { "process", "namespace", "cgroup", NULL };

#define PRESET_OFF     "\"off\""
#define PRESET_PREFER  "\"prefer\""
#define PRESET_REQUIRE "\"require\""
#define X(sym, json, def, text)                                                                    \
	{ json, json_take_choice, AT(require) + NSBOX_LAYER_##sym * sizeof(uint32_t),              \
	  .choices = requirements, .preset = PRESET_##def, .help = text },
static const struct json_field require_fields[] = { NSBOX_LAYERS(X) };
#undef X
static const struct json_table require_table = MEMBERS(require_fields);

static const char *const audit_levels[] = { "decisions", "denials", "full", NULL };

static const struct json_field audit_fields[] = {
	{ "level", json_take_choice, AT(audit.level), .choices = audit_levels, .preset = "\"decisions\"",
	  .marks = JSON_DECLARATIVE, .help = "what the author would like to have recorded" },
	{ "retain", json_take_ms, AT(audit.retain_ms), .min = 1000, .marks = JSON_LATER, .help = "how long records are kept" },
};
static const struct json_table audit_table = MEMBERS(audit_fields);

static const struct json_field tool_fields[] = {
	{ "entrypoint", json_take_string, offsetof(struct manifest_tool, entrypoint), .required = true,
	  .check = check_entrypoint_id, .marks = JSON_DECLARATIVE, .help = "what the tool runs" },
	{ "name", json_take_string, offsetof(struct manifest_tool, name), .check = check_name,
	  .preset = "the entry point's", .marks = JSON_DECLARATIVE, .help = "what clients call it" },
	{ "description", json_take_string, offsetof(struct manifest_tool, description),
	  .marks = JSON_DECLARATIVE, .help = "for the model" },
	{ "inputSchema", json_take_object, offsetof(struct manifest_tool, input),
	  .marks = JSON_DECLARATIVE, .help = "JSON Schema of its arguments" },
};
static const struct json_table tool_table = {
	tool_fields, ARRAY_SIZE(tool_fields), JSON_FORM_EITHER, sizeof(struct manifest_tool), COUNT(mcp.n_tools),
};

static const char *const transports[] = { "stdio", NULL };
static const struct json_field mcp_fields[] = {
	{ "tools", json_take_list, AT(mcp.tools), .max = 64, .table = &tool_table, .marks = JSON_DECLARATIVE,
	  .help = "entry points that clients of the Model Context Protocol may call" },
	{ "transport", json_take_choice, AT(mcp.transport), .choices = transports, .preset = "\"stdio\"",
	  .marks = JSON_DECLARATIVE, .help = "how they are reached" },
};
static const struct json_table mcp_table = MEMBERS(mcp_fields);

/* ------------------------------------------------------------------ tests */

#define TEST(member) offsetof(struct manifest_test, member)
static const struct json_field expect_fields[] = {
	{ "exit", json_take_u32, TEST(exit), .max = 255, .preset = "0", .marks = JSON_DECLARATIVE, .help = "exit status" },
	{ "stdoutMatches", json_take_string, TEST(stdout_matches), .min = 1, .max = PATTERN_MAX, .marks = JSON_DECLARATIVE,
	  .help = "POSIX extended regular expression that matches some part of it; ^ and $ are the ends of a line" },
	{ "stderrMatches", json_take_string, TEST(stderr_matches), .min = 1, .max = PATTERN_MAX, .marks = JSON_DECLARATIVE,
	  .help = "the same for standard error" },
	{ "outputs", json_take_strings, TEST(outputs), .max = 64, .marks = JSON_DECLARATIVE,
	  .help = "patterns, each of which has to name a file that the run hands back" },
};
static const struct json_table expect_table = MEMBERS(expect_fields);

static const struct json_field test_fields[] = {
	{ "name", json_take_string, TEST(name), .min = 1, .max = 128, .marks = JSON_DECLARATIVE, .help = "for people" },
	{ "entrypoint", json_take_string, TEST(entrypoint), .min = 1, .max = 64, .preset = "main, or the only one",
	  .marks = JSON_DECLARATIVE, .help = "which one" },
	{ "args", json_take_strings, TEST(args), .marks = JSON_DECLARATIVE, .help = "arguments after the command's own" },
	{ "stdin", json_take_string, TEST(input), .max = INPUT_MAX, .marks = JSON_DECLARATIVE, .help = "what it finds on standard input" },
	{ "expect", json_take_members, .table = &expect_table, .required = true, .marks = JSON_DECLARATIVE,
	  .help = "what has to come of it" },
};
static const struct json_table test_table = {
	test_fields, ARRAY_SIZE(test_fields), .size = sizeof(struct manifest_test), COUNT(n_tests),
};

/* ------------------------------------------------------------------ the whole */

static const char *const profiles[] = {
	[PROFILE_STANDARD] = "standard", [PROFILE_STRICT] = "strict", [PROFILE_NETWORK] = "network",
	[PROFILE_BUILD] = "build", NULL
};

static const struct json_field manifest_fields[] = {
	{ "$schema",         json_take_string, AT(schema), .max = 512, .marks = JSON_DECLARATIVE,
	  .help = "address of the schema, for editors" },
	{ "manifestVersion", json_take_u32, AT(version_number), .min = 1, .max = 1, .required = true,
	  .help = "version of the format" },
	{ "name",            json_take_string, AT(name), .min = 1, .max = 64, .check = check_name,
	  .help = "of the skill, as in SKILL.md; its directory is /skills/NAME" },
	{ "version",         json_take_string, AT(version), .min = 1, .max = 64, .marks = JSON_DECLARATIVE, .help = "of the skill" },
	{ "description",     json_take_string, AT(description), .marks = JSON_DECLARATIVE, .help = "as in SKILL.md" },
	{ "license",         json_take_string, AT(license), .max = 256, .marks = JSON_DECLARATIVE, .help = "as in SKILL.md" },
	{ "authors",         json_take_strings, AT(authors), .marks = JSON_DECLARATIVE, .help = "who wrote it" },
	{ "profile",         json_take_choice, AT(profile), .choices = profiles, .preset = "\"standard\"",
	  .help = "what holds where nothing else is said" },
	{ "entrypoints",     json_take_map, AT(entrypoints), .max = 64, .table = &entrypoint_table,
	  .help = "what can be run, by name" },
	{ "runtime",         json_take_members, .table = &runtime_table, .help = "what it runs on" },
	{ "platforms",       json_take_strings, AT(platforms), .min = 1, .max = 16, .check = check_platform,
	  .help = "systems it is made for, like \"linux/amd64\"; others refuse it" },
	{ "compatibility",   json_take_members, .table = &compatibility_table, .help = "least host; others refuse it" },
	{ "files",           json_take_members, .table = &files_table, .help = "of the skill" },
	{ "filesystem",      json_take_members, .table = &filesystem_table, .help = "paths, all of them inside the sandbox" },
	{ "outputs",         json_take_list, AT(outputs), .max = 64, .table = &output_table, .help = "files that are handed back" },
	{ "network",         json_take_members, .table = &network_table, .help = "what may be reached outside" },
	{ "secrets",         json_take_list, AT(secrets), .max = 32, .table = &secret_table, .help = "values that are no part of the file" },
	{ "env",             json_take_members, .table = &env_table, .help = "variables; nothing else is inherited" },
	{ "userConfig",      json_take_map, AT(config), .max = 64, .table = &config_table, .help = "parameters that who installs the skill may set" },
	{ "process",         json_take_members, .table = &process_table, .help = "what processes may do" },
	{ "syscalls",        json_take_members, .table = &syscalls_table, .marks = JSON_OPERATOR, .help = "raw system calls" },
	{ "resources",       json_take_members, .table = &resources_table, .help = "limits of a run" },
	{ "timeouts",        json_take_members, .table = &timeouts_table, .help = "limits in time" },
	{ "session",         json_take_members, .table = &session_table, .help = "life of a sandbox" },
	{ "determinism",     json_take_members, .table = &determinism_table, .help = "what would differ between runs" },
	{ "require",         json_take_members, .table = &require_table,
	  .help = "layers of the sandbox; a default can be raised, not lowered" },
	{ "minTier",         json_take_choice, AT(min_tier), .choices = tiers, .preset = "\"namespace\"",
	  .help = "refuse hosts that reach less; \"process\" is taken only where the operator accepts it" },
	{ "audit",           json_take_members, .table = &audit_table, .help = "records" },
	{ "mcp",             json_take_members, .table = &mcp_table, .marks = JSON_DECLARATIVE, .help = "as a tool server" },
	{ "tests",           json_take_list, AT(tests), .max = 256, .table = &test_table, .marks = JSON_DECLARATIVE,
	  .help = "what entry points have to do, for `nsbox skill test`" },
};
/* clang-format on */

const struct json_table manifest_table = MEMBERS(manifest_fields);
