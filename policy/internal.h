/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two halves of policy/: a manifest as it was written, and a policy with every value decided.
 * Only policy/ includes this.
 */
#ifndef POLICY_INTERNAL_H
#define POLICY_INTERNAL_H

#include <linux/filter.h>
#include <nsbox/policy.h>
#include <stdbool.h>

#include "nsbox/plan_build.h"
#include "nsbox/plan_format.h"
#include "policy/json_strict.h"

/* ------------------------------------------------------------------ manifest */

/* "Not written": choices hold an index otherwise, amounts are never 0 where written. */
#define UNSET UINT32_MAX

enum profile_id { PROFILE_STANDARD, PROFILE_STRICT, PROFILE_NETWORK, PROFILE_BUILD };
enum skill_mode { SKILL_RO, SKILL_OVERLAY };
enum workspace_mode { WORKSPACE_OVERLAY, WORKSPACE_NONE, WORKSPACE_RW };

enum network_mode { NETWORK_NONE, NETWORK_ALLOWLIST, NETWORK_OPEN };
enum network_protocol { PROTOCOL_TCP, PROTOCOL_UDP };
enum session_mode { SESSION_ONESHOT, SESSION_SESSION };
enum secret_inject { INJECT_ENV, INJECT_FILE, INJECT_HEADER };
enum config_type { CONFIG_STRING, CONFIG_INTEGER, CONFIG_NUMBER, CONFIG_BOOLEAN };

struct manifest_entrypoint {
	char *id, *cwd, *description;
	char **command;
	uint64_t timeout_ms;
	uint32_t stdin_mode; /* none, text, stream: what a caller may offer */
};

struct manifest_output {
	char *glob, *media_type;
	uint64_t max_bytes;
	uint32_t max_files;
};

struct manifest_test {
	char *name, *entrypoint, *input;
	char **args;
	uint32_t exit;
	char *stdout_matches, *stderr_matches; /* NULL: not looked at */
	char **outputs;
};

struct manifest_resources {
	uint64_t cpu_milli, memory, swap, disk, file_size, stdout_max, stderr_max, result_max;
	uint32_t pids, open_files;
};

struct manifest_var {
	char *name, *value;
};

/* A path that is granted. */
struct manifest_path {
	char *path, *description;
	bool optional; /* not there, or not to be had: the run goes on without it */
};

struct manifest_paths {
	struct manifest_path *v;
	size_t n;
};

struct manifest_host {
	char *host, *description;
	uint32_t *ports;   /* ends with 0 */
	uint32_t protocol; /* tcp, udp */
	bool optional;
};

struct manifest_secret {
	char *name, *source, *description;
	char **hosts;
	uint32_t inject; /* enum secret_inject */
	bool sensitive, optional;
};

struct manifest_config {
	char *id, *title, *description;
	uint32_t type;					  /* enum config_type */
	struct json_object *preset, *choices, *min, *max; /* NULL: not written */
	bool required, sensitive;
};

struct manifest_tool {
	char *entrypoint, *name, *description;
	struct json_object *input;
};

struct nsbox_manifest {
	bool is_default; /* no file was given */
	char sha256[65]; /* of its bytes, "" where is_default */
	uint32_t version_number;
	char *schema, *name, *version, *description, *license;
	char **authors;
	uint32_t profile;
	struct manifest_entrypoint *entrypoints;
	size_t n_entrypoints;
	struct {
		char *rootfs, *interpreter, *interpreter_version, *lockfile, *lockfile_sha256;
	} runtime;
	struct {
		char *kernel; /* ">=5.13" */
		uint32_t landlock_abi;
		char **features;
	} compatibility;
	char **executable;
	struct manifest_var *digests; /* path, SHA-256 */
	size_t n_digests;
	struct {
		struct manifest_paths read, write, exec;
		char **mask, **read_only;
		uint32_t skill, workspace, tmp_exec;
		uint64_t workspace_size, tmp_size;
	} fs;
	struct manifest_output *outputs;
	size_t n_outputs;
	struct {
		uint32_t mode; /* enum network_mode, UNSET */
		struct manifest_host *allow;
		size_t n_allow;
		char **deny_cidrs;
		uint32_t dns;
	} network;
	struct manifest_secret *secrets;
	size_t n_secrets;
	char **env_pass;
	struct manifest_var *env_set;
	size_t n_env_set;
	struct manifest_config *config;
	size_t n_config;
	struct {
		uint32_t subprocess, jit, threads, ptrace, userns, netlink, listen, user;
	} process;
	char **syscalls, **syscall_groups;
	struct manifest_resources res;
	struct {
		uint64_t wall_ms, cpu_ms, grace_ms;
	} timeouts;
	struct {
		uint32_t mode; /* enum session_mode */
		uint64_t idle_ms, ttl_ms;
		uint32_t max_commands;
		bool warm;
	} session;
	struct {
		char *time, *hostname;
		uint64_t seed; /* UINT64_MAX: not written */
	} determinism;
	uint32_t require[NSBOX_LAYER_MAX];
	uint32_t min_tier; /* enum nsbox_tier, UNSET */
	struct {
		uint32_t level;
		uint64_t retain_ms;
	} audit;
	struct {
		struct manifest_tool *tools;
		size_t n_tools;
		uint32_t transport;
	} mcp;
	char **platforms;
	struct manifest_test *tests;
	size_t n_tests;
};

/* manifest_fields.c: the one description of skill.json; see fields.h for what is made of it. */
extern const struct json_table manifest_table;

/* ------------------------------------------------------------------ profiles */

/* What a profile decides where a manifest says nothing: the columns of MANIFEST's table. */
struct profile {
	const char *name;
	const char *summary;
	uint32_t subprocess; /* enum plan_subprocess */
	bool jit, ptrace;
	bool root_rdonly;   /* overlay root read-only; /tmp, HOME, workspace on tmpfs */
	bool exec_writable; /* programs may be started from /tmp, HOME and workspace */
	bool uid_root;	    /* user 0 inside */
	uint32_t network;   /* enum network_mode */
	uint64_t memory, wall_ms;
	uint32_t pids, cpu_milli;
};

const struct profile *profile_get(uint32_t id); /* enum profile_id */

/* ------------------------------------------------------------------ policy */

struct policy_tmpfs {
	const char *path;
	uint64_t size;
	unsigned mode;
	bool exec, used;
	bool shared; /* a directory of the host, which the owner of sandboxes names */
};
enum {
	TMPFS_TMP,
	TMPFS_VAR_TMP,
	TMPFS_HOME,
	TMPFS_WORKSPACE,
	TMPFS_SKILL,
	TMPFS_SECRETS,
	TMPFS_MAX
};

/* What a manifest asked for beyond its profile: granted, or refused where it was optional. */
struct policy_grant {
	char *pointer; /* JSON pointer into the manifest */
	char *value;   /* as it was resolved, for people */
	char *refused; /* why not, NULL: granted */
};

/* Something that this version has no enforcement for: such a policy compiles to no plan. */
struct policy_gap {
	char *pointer, *why;
};

struct policy_host {
	char *host;	 /* lower case, no trailing dot; "*.example.com" for names below it */
	uint32_t *ports; /* sorted, ends with 0 */
	uint32_t protocol;
	char *pointer; /* where the manifest asks for it */
};

struct policy_taken {
	char *path;
	uint64_t right; /* LANDLOCK_ACCESS_FS_* that stands for it */
};

struct nsbox_policy {
	const struct profile *profile;
	char manifest_sha256[65];
	char *name;    /* of the manifest, "" */
	uint32_t tier; /* enum nsbox_tier: what holds it at least; PROCESS: no more */
	uint8_t layer[NSBOX_LAYER_MAX]; /* enum nsbox_requirement */
	uint32_t landlock_abi;		/* to compile for; 0: no Landlock */
	uint32_t subprocess;
	bool jit, threads, ptrace, netlink, listen;
	uint32_t uid;	 /* POLICY_UID, or 0 */
	bool memfd_exec; /* a program in memory may be executed */
	bool skill_readonly, workspace;
	char *skill_dir, *workdir;
	char **read, **write, **exec, **mask, **read_only, **make_exec; /* absolute, sorted */
	char **optional; /* those of read, write and exec that may be missing */
	struct policy_tmpfs tmpfs[TMPFS_MAX];
	struct manifest_output *outputs; /* media types are not part of it */
	size_t n_outputs;
	char **env;	 /* "NAME=value", sorted */
	char **env_pass; /* names, sorted */
	char **syscalls; /* extra calls, sorted: by name and by group */
	struct {
		uint32_t mode;		   /* enum network_mode */
		struct policy_host *allow; /* sorted by host */
		size_t n_allow;
		char **deny_cidrs; /* sorted; added to those that are always denied */
		/* The operator's, sorted: networks opened and banned, patterns of banned names. */
		char **opened, **banned_nets, **banned_names;
		char *certificates; /* PEM, NULL: none beside the image's */
		char **tls_ports;   /* of TLS for the name alone, NULL: none */
		uint32_t connections;
		uint64_t transfer, transfer_rate;
		uint64_t idle_ms, open_ms; /* of a connection; 0: built-in */
	} network;
	char *hostname;
	char *image; /* that it names, NULL: none */
	struct {
		bool kept;
		uint64_t idle_ms, ttl_ms; /* 0: no limit of its own, as with max_commands */
		uint32_t max_commands;
	} session;
	struct policy_grant *grants; /* in the order of asking */
	size_t n_grants;
	struct policy_gap *gaps;
	size_t n_gaps;
	struct plan_limits limits;
	struct sock_filter noexec[16];
	size_t n_noexec; /* instructions */
	/* For one program of a sandbox that has more (nsbox_policy_narrower()): what it loses of that. */
	struct policy_taken *taken;
	size_t n_taken;
};

static inline bool policy_is_process(const struct nsbox_policy *p)
{
	return p->tier == NSBOX_TIER_PROCESS;
}

/* The operator's part of network (resolve_network.c). */
int policy_take_egress(struct nsbox_policy *p, const struct nsbox_ceiling *c);

#define POLICY_TRUST	 "/etc/nsbox"
#define POLICY_HOME	 "/home/sandbox"
#define POLICY_WORKSPACE "/workspace"
/* How much of a path is the directory that its pattern is matched below; all of one without. */
size_t policy_pattern_base(const char *path);
#define POLICY_UID 1000

/* Is this a place that the payload owns in every run, so that a grant adds nothing to it? */
bool policy_owns(const char *path);

/* ------------------------------------------------------------------ seccomp */

enum seccomp_arch { SECCOMP_ARCH_X86_64, SECCOMP_ARCH_ARM64 };
#ifdef __aarch64__
#define SECCOMP_ARCH_NATIVE SECCOMP_ARCH_ARM64
#else
#define SECCOMP_ARCH_NATIVE SECCOMP_ARCH_X86_64
#endif

/* What a filter depends on; SC_* traits of rules and groups are in syscalls.h. */
struct seccomp_spec {
	enum seccomp_arch arch;
	unsigned traits;
	char *const *extra; /* names that are allowed on top, or NULL */
};

struct seccomp_program {
	struct sock_filter *insn; /* malloc'd */
	size_t n;
};

/* n filters that differ in their traits alone (spec's own are not looked at). */
int seccomp_compile(const struct seccomp_spec *spec, const unsigned *traits, size_t n,
		    struct seccomp_program *ret, struct nsbox_error *err);
unsigned seccomp_traits(const struct nsbox_policy *p);
unsigned seccomp_noexec(struct sock_filter *ret, unsigned max); /* instructions written */
bool seccomp_name_known(const char *name);
const char *seccomp_name_near(const char *name); /* did you mean; NULL */

/* ------------------------------------------------------------------ parts of the plan */

uint64_t landlock_fs_rights(uint32_t abi);
/* What this policy would have had from a newer Landlock: "refer", ...; NULL past the last. */
const char *landlock_lost(const struct nsbox_policy *p, size_t i);
void compile_landlock(const struct nsbox_policy *p, struct blob_builder *b, struct plan_fixed *f);
/* Of what a program loses, one path that the rules would give it all the same; NULL: none. */
int landlock_taken(const struct nsbox_policy *p, const char **ret_path, struct nsbox_error *err);
void compile_mounts(const struct nsbox_policy *p, struct blob_builder *b);
void compile_places(const struct nsbox_policy *p, struct blob_builder *b); /* tier "process" */
int compile_nftables(const struct nsbox_policy *p, struct blob_builder *b, struct nsbox_error *err);
/* Is anything to be reached outside? Only then is there egress. */
bool policy_has_egress(const struct nsbox_policy *p);
int compile_egress(const struct nsbox_policy *p, struct blob_builder *b, struct nsbox_error *err);

/* bans.c: one token of a list of bans, sorted into what it is. */
bool ban_is_network(const char *token, char *buf, size_t size);
bool ban_matches(const char *pattern, const char *name);

int sha256_hex(const void *data, size_t len, char ret[65], struct nsbox_error *err);

#endif
