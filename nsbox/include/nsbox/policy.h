/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From skill.json to a plan: parse, resolve, compile. Pure functions of their arguments; none of
 * them touches the file system, the network or a privilege. Implemented by policy/.
 */
#ifndef NSBOX_POLICY_H
#define NSBOX_POLICY_H

#include <nsbox/error.h>
#include <nsbox/host.h>
#include <nsbox/plan.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

struct nsbox_manifest; /* as written */
struct nsbox_policy;   /* resolved: profile, ceiling and manifest joined, in canonical form */

/*
 * Strict reader: UTF-8, no NUL, no duplicate or unknown keys, depth <= 16, at most 256 KiB; errors
 * are NSBOX_E_MANIFEST and name the place as a JSON pointer ("/resources/memory: ..."), with a
 * "did you mean" where a key is close to a known one. json need not be NUL-terminated.
 */
int nsbox_manifest_parse(const char *json, size_t len, struct nsbox_manifest **ret,
			 struct nsbox_error *err);
/* The manifest of a run that has none: profile "standard", everything default. */
int nsbox_manifest_default(struct nsbox_manifest **ret, struct nsbox_error *err);
void nsbox_manifest_free(struct nsbox_manifest *m);
const char *nsbox_manifest_name(const struct nsbox_manifest *m); /* "" if none */

/* An entry point of a skill; strings belong to the manifest. */
struct nsbox_entrypoint {
	const char *id;
	const char *const *command; /* NULL-terminated */
	const char *cwd;	    /* NULL: the skill directory */
	uint64_t timeout_ms;	    /* 0: the policy's */
	bool no_stdin;		    /* stdin "none": it gets /dev/null, whatever the caller has */
};
/* id NULL: "main", or the only one. NSBOX_E_INVALID names those there are. */
int nsbox_manifest_entrypoint(const struct nsbox_manifest *m, const char *id,
			      struct nsbox_entrypoint *ret, struct nsbox_error *err);

/*
 * Which secrets and parameters (userConfig) a run of this manifest takes, as JSON: {"secrets":
 * [{name, source, inject, optional}], "userConfig": {ID: {type, required, sensitive, default, enum,
 * min, max}}}. Values are the caller's business: a policy and its plan hold none. Of a secret with
 * inject "file" the run expects /run/secrets/NAME. *ret is malloc'd.
 */
int nsbox_manifest_inputs(const struct nsbox_manifest *m, char **ret, struct nsbox_error *err);

enum nsbox_allowance { NSBOX_ALLOWANCE_UNSET, NSBOX_ALLOWANCE_NO, NSBOX_ALLOWANCE_YES };
enum nsbox_reach { NSBOX_REACH_UNSET, NSBOX_REACH_NONE, NSBOX_REACH_ALLOWLIST, NSBOX_REACH_OPEN };

/*
 * What the operator allows at most; zero values mean the built-in ceiling. Holds no pointer, so
 * that it can be sent from one process to another and compared byte by byte.
 */
struct nsbox_ceiling {
	uint64_t memory, disk, wall_ms;
	uint32_t pids, cpu_milli, open_files;
	uint32_t network; /* enum nsbox_reach */
	/* enum nsbox_allowance; root and shared (workspaces): to operators unless set */
	uint32_t listen, jit, root, shared;
	uint32_t syscall_groups; /* raw groups anyone may ask for, a bit each */
	uint32_t min_tier;	 /* enum nsbox_tier: the weakest that is accepted; 0: namespace */
	uint32_t n_hosts;	 /* 0 with hosts_listed: no host at all */
	uint32_t hosts_listed;	 /* 0: any host */
	char hosts[2048];	 /* n_hosts patterns, each with its NUL */
	/* Egress, for every run: networks that may be reached though they are denied by default
	 * (each with its NUL), and a list of what is banned. */
	uint32_t n_opened, connections;	  /* connections 0: built-in */
	uint64_t transfer, transfer_rate; /* bytes, bytes in a second; 0: no limit */
	/* Of one connection: without a byte, and in all; 0: built-in. At most 7 days. */
	uint64_t connection_idle_ms, connection_ms;
	uint16_t tls_ports[16]; /* ends with 0: where names take TLS for themselves alone */
	char certificates
		[16384]; /* of authorities that runs trust beside the image's, PEM; "" for none */
	char opened[1024];
	char banned[2048]; /* "10.0.0.0/8,192.0.2.1,.*\\.example\\.com", "" for none */
};

/*
 * Add networks ("10.0.0.0/8", or an address) to those of the ceiling that are opened, or set its
 * list of bans: tokens with commas between them, each an address, a network or else an extended
 * regular expression on whole names in any case. own_name (may be NULL): tokens that are this
 * host's own name are left out. NSBOX_E_INVALID names the token.
 */
int nsbox_ceiling_open(struct nsbox_ceiling *c, const char *network, struct nsbox_error *err);
int nsbox_ceiling_ban(struct nsbox_ceiling *c, const char *list, const char *own_name,
		      struct nsbox_error *err);

/* Certificates as they are in a file: PEM, certificates alone. */
int nsbox_ceiling_trust(struct nsbox_ceiling *c, const char *pem, struct nsbox_error *err);

/*
 * The same as JSON, read as strictly as a manifest: {"memory": "2Gi", "cpu": "4", "pids": 512,
 * "disk": "1Gi", "openFiles": 4096, "wall": "10m", "network": "allowlist", "hosts":
 * ["*.example.com"], "listen": true, "jit": true, "root": false, "sharedWorkspace": false,
 * "syscallGroups": ["@ipc"]}.
 * Errors are NSBOX_E_INVALID with a JSON pointer.
 */
int nsbox_ceiling_parse(const char *json, size_t len, struct nsbox_ceiling *ret,
			struct nsbox_error *err);

struct nsbox_resolve_options {
	const struct nsbox_host *host;	     /* needed: tier, layers, Landlock ABI, CPUs */
	const struct nsbox_ceiling *ceiling; /* NULL: built-in */
	const char *skill_dir; /* inside path of the skill ("/skills/NAME"), NULL: none */
	bool python_function;  /* subprocess none is exact for it (stacked filter) */
	bool as_operator;      /* raw syscall names are accepted (the CLI's own user) */
	/* Enum nsbox_tier: hold it by this tier, whatever more the host reaches; 0: by what the host
	 * reaches, and no less than ceiling and manifest say. The operator's word. */
	uint32_t tier;
};

int nsbox_policy_resolve(const struct nsbox_manifest *m, const struct nsbox_resolve_options *opt,
			 struct nsbox_policy **ret, struct nsbox_error *err);
void nsbox_policy_free(struct nsbox_policy *p);

/* Canonical JSON of the resolved policy (malloc'd, caller frees), and its SHA-256 in hex. */
int nsbox_policy_json(const struct nsbox_policy *p, char **ret, struct nsbox_error *err);
int nsbox_policy_digest(const struct nsbox_policy *p, char ret_hex[65], struct nsbox_error *err);

/* Names that env.pass asks for, NULL-terminated, borrowed: a caller with an environment of its own
 * to share (the command line tool) adds those it has to the exec request; the daemon has none. */
const char *const *nsbox_policy_env_pass(const struct nsbox_policy *p);

/*
 * A sealed memfd for nsbox_plan_open(). A policy can be resolved and explained that asks for what
 * this version has no enforcement for (see "later" in skill.json(5)); it has no plan:
 * NSBOX_E_UNSUPPORTED, with the JSON pointer of the first such wish.
 */
int nsbox_policy_compile(const struct nsbox_policy *p, int *ret_plan_fd, struct nsbox_error *err);

/* ------------------------------------------------------------------ reports */

/* All reports are malloc'd text that the caller frees: for people, or JSON. */
enum nsbox_report { NSBOX_REPORT_TEXT, NSBOX_REPORT_JSON };
struct nsbox_root;

/*
 * What a policy allows, from its compiled plan: reading, writing, running, reaching, amounts, what
 * is hidden, which layers hold it on this host and what this host's kernel lacks.
 */
int nsbox_policy_explain(const struct nsbox_policy *p, const struct nsbox_host *host,
			 enum nsbox_report form, char **ret, struct nsbox_error *err);
/*
 * Would one act succeed, which layer decides, what does the program see, and which change of the
 * manifest would allow it? "open /etc/shadow", "write /usr/x", "exec /tmp/x", "connect db:5432",
 * "syscall socket AF_PACKET". json NULL: the default manifest. root NULL: not looked into.
 */
int nsbox_manifest_why(const char *json, size_t len, const struct nsbox_resolve_options *opt,
		       const struct nsbox_root *root, const char *question, enum nsbox_report form,
		       char **ret, bool *ret_allowed, struct nsbox_error *err);
/* What b allows that a does not (widened), the reverse (narrowed), and what is just different. */
int nsbox_policy_diff(const struct nsbox_policy *a, const struct nsbox_policy *b,
		      enum nsbox_report form, char **ret, unsigned *ret_widened,
		      struct nsbox_error *err);
/*
 * May a program of a sandbox that was made with `now` run under `then` (nsbox_exec.narrower)? 0, and the
 * plan of `then` is for that program alone, with Landlock rules that take what it loses; or
 * -EEXIST with a message that begins with a pointer: NSBOX_E_MANIFEST where it is wider there,
 * NSBOX_E_UNSUPPORTED where it is otherwise in what no single program can have. What may be reached
 * outside, by /network/mode and /network/allow, is not compared: it is one for all programs.
 */
int nsbox_policy_narrower(const struct nsbox_policy *now, struct nsbox_policy *then,
			  struct nsbox_error *err);
/*
 * Walk every way through the filters of a policy, for each architecture, and hold them against
 * rules that are written apart from the filters' tables. A violation comes with a call that shows
 * it; an error means that it could not be decided.
 */
int nsbox_policy_prove(const struct nsbox_policy *p, enum nsbox_report form, char **ret,
		       unsigned *ret_violations, struct nsbox_error *err);
/* What a lint looks at; all borrowed. */
struct nsbox_lint {
	const char *name; /* of the file, for messages */
	const char *json; /* of skill.json, NULL: there is none */
	size_t len;
	const char *document; /* of SKILL.md, NULL: there is none, or it is not to be looked at */
	size_t document_len;
	const struct nsbox_resolve_options *resolve;
	const struct nsbox_root *root; /* image in which paths are looked for, or NULL */
	int skill_fd;		       /* directory of the skill, or -1 */
};
/* Errors that a run would meet and warnings, with JSON pointer, line and column. */
int nsbox_manifest_lint(const struct nsbox_lint *in, enum nsbox_report form, char **ret,
			unsigned *ret_errors, struct nsbox_error *err);
/*
 * A seccomp profile of Docker or of an OCI runtime (also inside its config.json) as a manifest with
 * syscalls.allow, and what could not be taken over. Never wider than the profile.
 */
int nsbox_seccomp_import(const char *json, size_t len, enum nsbox_report form, char **ret,
			 struct nsbox_error *err);
/* Everything in a plan, by name. */
int nsbox_plan_show(const struct nsbox_plan *plan, enum nsbox_report form, char **ret,
		    struct nsbox_error *err);

/* What a manifest asked for beyond its profile; strings belong to the policy. */
struct nsbox_grant {
	const char *pointer; /* JSON pointer into the manifest */
	const char *value;   /* as it was resolved */
	const char *refused; /* why not; NULL: granted. Only what is optional is refused. */
};
/* The i-th, in the order of asking; false past the last. For receipts. */
bool nsbox_policy_grant(const struct nsbox_policy *p, size_t i, struct nsbox_grant *ret);

/* Limits a caller has to know before and after a run. */
struct nsbox_policy_limits {
	uint64_t memory, disk, wall_ms, grace_ms, stdout_max, stderr_max, result_max;
	uint32_t pids, cpu_milli;
	/* Of a sandbox that is kept, for whoever keeps it; 0: no limit of the manifest's. */
	uint32_t session_commands;
	uint64_t session_idle_ms, session_ttl_ms;
};
/* The image that it names (runtime.rootfs), for nsbox_root_prepare(); NULL: none. */
const char *nsbox_policy_image(const struct nsbox_policy *p);
void nsbox_policy_limits(const struct nsbox_policy *p, struct nsbox_policy_limits *ret);
/*
 * The inside path (malloc'd, caller frees) that a path of the manifest means in this run: relative
 * ones are below the working directory, ${skill} ${work} ${out} ${tmp} may begin one.
 */
int nsbox_policy_path(const struct nsbox_policy *p, const char *path, char **ret,
		      struct nsbox_error *err);
/* Filter bytes (struct sock_filter[]) that refuse execve and execveat, for process.subprocess
 * "none" of a Python function; *ret_len 0 where the policy allows subprocesses. Borrowed. */
const void *nsbox_policy_noexec_filter(const struct nsbox_policy *p, size_t *ret_len);

#pragma GCC visibility pop

#endif
