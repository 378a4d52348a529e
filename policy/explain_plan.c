/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as it is: every section by name, filters disassembled. What a reviewer compares. */
#include <inttypes.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <string.h>

#include "nsbox/sys.h"
#include "nsbox/util.h"
#include "policy/calls.h"
#include "policy/report.h"

/* ------------------------------------------------------------------ sections */

static struct json_object *flag_names(uint32_t flags)
{
	static const char *const names[] = { "rdonly",	  "noexec",   "nodev",	 "nosuid",
					     "recursive", "optional", "payload", "mkdst" };
	struct json_object *a = json_object_new_array();

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (flags & (1u << i))
			report_add_str(a, names[i]);
	return a;
}

static struct json_object *show_ops(const struct blob *b)
{
	static const char *const kinds[OP_KIND_MAX] = {
		[OP_DIR] = "dir",	    [OP_FILE] = "file",		 [OP_SYMLINK] = "symlink",
		[OP_LOWER] = "lower",	    [OP_BIND] = "bind",		 [OP_TMPFS] = "tmpfs",
		[OP_DEV] = "dev",	    [OP_PROC] = "proc",		 [OP_MASK] = "mask",
		[OP_READONLY] = "readonly", [OP_MAKE_EXEC] = "makeExec", [OP_TRUST] = "trust",
		[OP_SHARED] = "shared",
	};
	struct json_object *a = json_object_new_array();
	size_t n = 0;
	const struct mount_op *ops = blob_get(b, SEC_OPS, sizeof(*ops), &n);

	for (size_t i = 0; i < n; i++) {
		struct json_object *o = report_add_to(a, json_object_new_object());
		char mode[8];

		report_str(o, "op", kinds[ops[i].kind]);
		report_str(o, "path", blob_get_str(b, ops[i].dst));
		if (*blob_get_str(b, ops[i].src))
			report_str(o, "source", blob_get_str(b, ops[i].src));
		nsbox_format(mode, sizeof(mode), "0%o", ops[i].mode);
		if (ops[i].mode)
			report_str(o, "mode", mode);
		if (ops[i].size)
			report_u64(o, "size", ops[i].size);
		report_put(o, "flags", flag_names(ops[i].flags));
	}
	return a;
}

static const char *const fs_rights[] = {
	"execute",  "writeFile", "readFile", "readDir",	 "removeDir", "removeFile",
	"makeChar", "makeDir",	 "makeReg",  "makeSock", "makeFifo",  "makeBlock",
	"makeSym",  "refer",	 "truncate", "ioctlDev",
};

static struct json_object *right_names(uint64_t access)
{
	struct json_object *a = json_object_new_array();

	for (size_t i = 0; i < ARRAY_SIZE(fs_rights); i++)
		if (access & (UINT64_C(1) << i))
			report_add_str(a, fs_rights[i]);
	return a;
}

static struct json_object *show_landlock(const struct blob *b)
{
	struct json_object *a = json_object_new_array();
	size_t n = 0;
	const struct landlock_rule *r = blob_get(b, SEC_LANDLOCK, sizeof(*r), &n);

	for (size_t i = 0; i < n; i++) {
		struct json_object *o = report_add_to(a, json_object_new_object());

		if (r[i].port)
			report_u64(o, "port", r[i].port);
		else
			report_str(o, "path", blob_get_str(b, r[i].path));
		report_put(o, "rights",
			   r[i].port ? json_object_new_uint64(r[i].access)
				     : right_names(r[i].access));
		report_bool(o, "optional", r[i].optional);
	}
	return a;
}

static struct json_object *show_limits(const struct plan_limits *l)
{
	struct json_object *o = json_object_new_object();
	const struct {
		const char *name;
		uint64_t value;
	} rows[] = {
		{ "memory", l->memory },
		{ "disk", l->disk },
		{ "diskInodes", l->disk_inodes },
		{ "fileSize", l->file_size },
		{ "pids", l->pids },
		{ "cpuMilli", l->cpu_milli },
		{ "openFiles", l->open_files },
		{ "wallMs", l->wall_ms },
		{ "cpuMs", l->cpu_ms },
		{ "graceMs", l->grace_ms },
		{ "stdout", l->stdout_max },
		{ "stderr", l->stderr_max },
		{ "result", l->result_max },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		report_u64(o, rows[i].name, rows[i].value);
	return o;
}

static struct json_object *show_layers(const struct plan_fixed *f)
{
	static const char *const words[] = { "off", "prefer", "require" };
	struct json_object *o = json_object_new_object();

	for (int i = 0; i < NSBOX_LAYER_MAX; i++)
		report_str(o, nsbox_layer_name(i), words[f->layer[i]]);
	return o;
}

static struct json_object *show_env(const struct blob *b)
{
	struct json_object *a = json_object_new_array();
	size_t n = 0;
	const str_off *off = blob_get(b, SEC_ENV, sizeof(*off), &n);

	/* Names alone: a value may be somebody's. */
	for (size_t i = 0; i < n; i++) {
		const char *v = blob_get_str(b, off[i]);

		report_add_to(a, json_object_new_string_len(v, (int)strcspn(v, "=")));
	}
	return a;
}

static uint64_t count_messages(const struct blob *b)
{
	size_t size = 0;
	const unsigned char *p = blob_get(b, SEC_NFT, 1, &size);
	uint64_t n = 0;

	for (size_t at = 0; at + sizeof(struct nlmsghdr) <= size; n++) {
		struct nlmsghdr h;

		memcpy(&h, p + at, sizeof(h));
		if (h.nlmsg_len < sizeof(h))
			break;
		at += NLMSG_ALIGN(h.nlmsg_len);
	}
	return n;
}

/* ------------------------------------------------------------------ filters */

static const char *word_name(uint32_t offset, char *buf, int size)
{
	if (offset == offsetof(struct seccomp_data, nr))
		return "nr";
	if (offset == offsetof(struct seccomp_data, arch))
		return "arch";
	if (offset < offsetof(struct seccomp_data, args))
		nsbox_format(buf, size, "ip%s", offset % 8 ? ".high" : "");
	else
		nsbox_format(buf, size, "arg%u%s",
			     (unsigned)((offset - offsetof(struct seccomp_data, args)) / 8),
			     offset % 8 ? ".high" : "");
	return buf;
}

/* *is_number: does the accumulator hold the number (so that constants are names of calls)? */
static void disassemble(const struct sock_filter *f, size_t at, bool *is_number, char *ret,
			int size)
{
	static const char *const ops[] = { [BPF_JEQ >> 4] = "==",
					   [BPF_JGT >> 4] = ">",
					   [BPF_JGE >> 4] = ">=",
					   [BPF_JSET >> 4] = "&" };
	const char *name = NULL;
	char buf[64];

	switch (BPF_CLASS(f->code)) {
	case BPF_LD:
		*is_number = f->k == offsetof(struct seccomp_data, nr);
		nsbox_format(ret, size, "load %s", word_name(f->k, buf, sizeof(buf)));
		return;
	case BPF_ALU: nsbox_format(ret, size, "and 0x%x", f->k); return;
	case BPF_RET:
		nsbox_format(ret, size, "return %s", call_action_text(f->k, buf, sizeof(buf)));
		return;
	default: break;
	}
	if (f->code == (BPF_JMP | BPF_JA)) {
		nsbox_format(ret, size, "goto %zu", at + 1 + f->k);
		return;
	}
	if (*is_number && BPF_OP(f->code) == BPF_JEQ)
		name = call_name(f->k, SECCOMP_ARCH_NATIVE, buf, sizeof(buf));
	if (name)
		nsbox_format(ret, size, "if == %s goto %zu else %zu", name, at + 1 + f->jt,
			     at + 1 + f->jf);
	else
		nsbox_format(ret, size, "if %s 0x%x goto %zu else %zu", ops[BPF_OP(f->code) >> 4],
			     f->k, at + 1 + f->jt, at + 1 + f->jf);
}

static struct json_object *show_filter(const struct blob *b, enum blob_section sec)
{
	struct json_object *a = json_object_new_array();
	size_t n = 0;
	const struct sock_filter *f = blob_get(b, sec, sizeof(*f), &n);
	bool is_number = false;

	for (size_t i = 0; i < n; i++) {
		char line[128];

		/* Behind a return or a jump is what a branch leads to: the next rule, which loads
		 * its argument first, or the next call, with the number in A. */
		disassemble(&f[i], i, &is_number, line, sizeof(line));
		report_add_str(a, line);
		if (BPF_CLASS(f[i].code) == BPF_RET || f[i].code == (BPF_JMP | BPF_JA))
			is_number = true;
	}
	return a;
}

/* ------------------------------------------------------------------ the whole */

static struct json_object *show(const struct blob *b, const char *digest)
{
	const struct plan_fixed *f = blob_fixed(b, struct plan_fixed);
	static const char *const subprocess[] = { "none", "skill", "any" };
	struct json_object *o = json_object_new_object(), *landlock = json_object_new_object();
	const char *sha = blob_get_str(b, f->manifest_sha256);

	report_str(o, "digest", digest);
	report_u64(o, "bytes", b->size);
	report_str(o, "profile", blob_get_str(b, f->profile));
	report_str(o, "manifest", *sha ? sha : "default");
	report_u64(o, "uid", f->uid);
	report_u64(o, "gid", f->gid);
	report_str(o, "hostname", blob_get_str(b, f->hostname));
	report_str(o, "workdir", blob_get_str(b, f->workdir));
	report_str(o, "home", blob_get_str(b, f->home));
	report_str(o, "subprocess", subprocess[f->subprocess]);
	report_bool(o, "rootReadOnly", f->flags & PLAN_ROOT_RDONLY);
	report_put(o, "limits", show_limits(&f->limits));
	report_put(o, "layers", show_layers(f));
	report_put(o, "ops", show_ops(b));
	report_u64(landlock, "abi", f->landlock_abi);
	report_put(landlock, "handled", right_names(f->landlock_fs));
	report_u64(landlock, "scoped", f->landlock_scoped);
	report_put(landlock, "rules", show_landlock(b));
	report_put(o, "landlock", landlock);
	report_put(o, "env", show_env(b));
	report_u64(o, "nftMessages", count_messages(b));
	report_put(o, "filter", show_filter(b, SEC_BPF));
	report_put(o, "initFilter", show_filter(b, SEC_BPF_INIT));
	return o;
}

static void print_filter(struct json_object *o, const char *key, const char *title, FILE *to)
{
	struct json_object *a = report_at(o, key);

	fprintf(to, "\n%s: %zu instructions\n", title, json_object_array_length(a));
	for (size_t i = 0; i < json_object_array_length(a); i++)
		fprintf(to, "  %4zu  %s\n", i,
			json_object_get_string(json_object_array_get_idx(a, i)));
}

static void print_words(struct json_object *a, FILE *to)
{
	for (size_t i = 0; i < json_object_array_length(a); i++)
		fprintf(to, " %s", json_object_get_string(json_object_array_get_idx(a, i)));
	fputc('\n', to);
}

static void print_members(struct json_object *o, const char *title, FILE *to)
{
	fprintf(to, "\n%s\n", title);
	json_object_object_foreach (o, key, value) {
		fprintf(to, "  %-16s %s\n", key, json_object_get_string(value));
	}
}

static void print_plan(struct json_object *o, FILE *to)
{
	static const char *const heads[] = {
		"digest",   "bytes",   "profile", "manifest",	"uid",		"gid",
		"hostname", "workdir", "home",	  "subprocess", "rootReadOnly", "nftMessages"
	};
	struct json_object *ops = report_at(o, "ops"), *landlock = report_at(o, "landlock");
	struct json_object *rules = report_at(landlock, "rules");

	for (size_t i = 0; i < ARRAY_SIZE(heads); i++)
		fprintf(to, "%-13s %s\n", heads[i], report_get(o, heads[i]));
	print_members(report_at(o, "limits"), "Limits", to);
	print_members(report_at(o, "layers"), "Layers", to);
	fprintf(to, "\nOperations, in order\n");
	for (size_t i = 0; i < json_object_array_length(ops); i++) {
		struct json_object *p = json_object_array_get_idx(ops, i);

		fprintf(to, "  %-9s %-32s %5s %12s", report_get(p, "op"), report_get(p, "path"),
			report_get(p, "mode"), report_get(p, "size"));
		print_words(report_at(p, "flags"), to);
	}
	fprintf(to, "\nLandlock, ABI %s\n", report_get(landlock, "abi"));
	for (size_t i = 0; i < json_object_array_length(rules); i++) {
		struct json_object *r = json_object_array_get_idx(rules, i);

		fprintf(to, "  %-20s", report_get(r, "path"));
		print_words(report_at(r, "rights"), to);
	}
	fprintf(to, "\nEnvironment\n ");
	print_words(report_at(o, "env"), to);
	print_filter(o, "filter", "Filter of the payload", to);
	print_filter(o, "initFilter", "Filter of init", to);
}

int nsbox_plan_show(const struct nsbox_plan *plan, enum nsbox_report form, char **ret,
		    struct nsbox_error *err)
{
	const struct blob *b = plan_blob(plan);
	char digest[65];
	int r = sha256_hex(b->base, b->size, digest, err);

	return r < 0 ? r : report_finish(show(b, digest), form, print_plan, ret, err);
}
