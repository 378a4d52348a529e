/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading blobs, and judging them.
 *
 * The sender of a plan is a process that parsed a hostile manifest, so the receiver believes
 * nothing: blob_check() walks every element of every section once. After it, the child may follow
 * each offset blindly. Nothing here allocates or changes anything. Many offsets may name one long
 * string, so no string is read further than what is allowed of it: the check is over in
 * milliseconds, whatever it is given.
 */
#include <nsbox/files.h>
#include <nsbox/plan.h>

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "nsbox/egress_format.h"
#include "nsbox/plan_build.h"
#include "nsbox/process_tier.h"
#include "nsbox/util.h"

#define BPF_MAX_INSNS  4096 /* BPF_MAXINSNS of the kernel */
#define NFT_MAX	       (256u << 10)
#define OPS_MAX	       4096
#define RULES_MAX      4096
#define OUTPUTS_MAX    64
#define ARGS_MAX       131072
#define ENV_STRING_MAX 131072 /* MAX_ARG_STRLEN of the kernel, with 4 KiB pages */
#define PATH_SIZE      4096

static int bad(struct nsbox_error *err, const char *what)
{
	return nsbox_fail_at(err, NSBOX_STAGE_PLAN, NSBOX_E_PROTOCOL, 0, "malformed plan: %s",
			     what);
}

const char *blob_get_str(const struct blob *b, str_off off)
{
	const struct blob_header *h = (const struct blob_header *)b->base;

	return (const char *)b->base + h->section[SEC_STRINGS].offset + off;
}

const void *blob_get(const struct blob *b, enum blob_section sec, size_t elem, size_t *ret_count)
{
	const struct blob_header *h = (const struct blob_header *)b->base;

	if (ret_count)
		*ret_count = h->section[sec].size / elem;
	return b->base + h->section[sec].offset;
}

/* ------------------------------------------------------------------ pieces of the check */

static bool str_ok(const struct blob *b, str_off off)
{
	const struct blob_header *h = (const struct blob_header *)b->base;

	/* The section ends with a NUL (checked first), so any offset inside it is a string. */
	return off < h->section[SEC_STRINGS].size;
}

/* Absolute, not "/", no empty, "." or ".." component, shorter than PATH_MAX. */
static bool path_ok(const char *p)
{
	size_t total = strnlen(p, PATH_SIZE);

	if (*p != '/' || total < 2 || total >= PATH_SIZE)
		return false;
	while (*p == '/') {
		size_t len = strcspn(++p, "/");

		if (len == 0 || len > 255 || (len == 1 && p[0] == '.') ||
		    (len == 2 && p[0] == '.' && p[1] == '.'))
			return false;
		p += len;
	}
	return *p == '\0';
}

static bool glob_ok(const char *g)
{
	size_t total = strnlen(g, 256);

	if (!total || total >= 256 || *g == '/')
		return false;
	for (const char *p = g;; p++) {
		size_t len = strcspn(p, "/");

		if (len == 0 || (len == 1 && p[0] == '.') ||
		    (len == 2 && p[0] == '.' && p[1] == '.'))
			return false;
		p += len;
		if (!*p)
			return true;
	}
}

/* Which operations may appear where: only the owner of a host names host paths. */
static bool kind_ok(uint32_t magic, unsigned kind)
{
	switch ((enum mount_op_kind)kind) {
	case OP_LOWER:
	case OP_BIND: return magic == ROOT_MAGIC;
	case OP_DIR:
	case OP_FILE:
	case OP_SYMLINK: return true;
	case OP_TMPFS:
	case OP_DEV:
	case OP_PROC:
	case OP_MASK:
	case OP_READONLY:
	case OP_SHARED:
	case OP_MAKE_EXEC:
	case OP_TRUST: return magic == PLAN_MAGIC;
	case OP_KIND_MAX: break;
	}
	return false;
}

/* What symlink(2) takes. */
static bool target_ok(const char *target)
{
	return *target && strnlen(target, PATH_SIZE) < PATH_SIZE;
}

static const char *check_op(const struct blob *b, uint32_t magic, const struct mount_op *op)
{
	const struct blob_header *h = (const struct blob_header *)b->base;
	uint32_t data = h->section[SEC_DATA].size;

	if (!kind_ok(magic, op->kind))
		return "operation kind";
	if ((op->flags & ~OPF_ALL) || (op->mode & ~07777u))
		return "operation flags or mode";
	if (!str_ok(b, op->src) || !str_ok(b, op->dst))
		return "operation string";
	if (op->kind == OP_LOWER || op->kind == OP_BIND) {
		if (!path_ok(blob_get_str(b, op->src)))
			return "source path of an operation";
	}
	if (op->kind != OP_LOWER && !path_ok(blob_get_str(b, op->dst)))
		return "target path of an operation";
	if (op->kind == OP_SHARED && (strcmp(blob_get_str(b, op->dst), "/workspace") ||
				      !(op->flags & OPF_NOSUID) || !(op->flags & OPF_NODEV)))
		return "shared directory";
	if (op->kind == OP_SYMLINK && !target_ok(blob_get_str(b, op->src)))
		return "link target";
	if (op->kind == OP_MAKE_EXEC && *blob_get_str(b, op->src) &&
	    !glob_ok(blob_get_str(b, op->src)))
		return "pattern of an operation";
	if ((op->kind == OP_FILE || op->kind == OP_TRUST) &&
	    (op->size > data || op->data > data - op->size))
		return "file content";
	/* To a tmpfs, 0 bytes are no limit at all. */
	if ((op->kind == OP_TMPFS || op->kind == OP_DEV) &&
	    (op->size < 4096 || op->size > INT64_MAX))
		return "tmpfs size";
	return NULL;
}

static const char *check_ops(const struct blob *b, uint32_t magic)
{
	size_t n;
	const struct mount_op *ops = blob_get(b, SEC_OPS, sizeof(*ops), &n);
	const char *why = NULL;

	for (size_t i = 0; i < n && !why; i++)
		why = check_op(b, magic, &ops[i]);
	return why;
}

static const char *check_landlock(const struct blob *b)
{
	size_t n;
	const struct landlock_rule *r = blob_get(b, SEC_LANDLOCK, sizeof(*r), &n);

	for (size_t i = 0; i < n; i++) {
		const char *path;

		if (!str_ok(b, r[i].path) || r[i].optional > 1)
			return "Landlock rule";
		path = blob_get_str(b, r[i].path);
		if (r[i].port ? *path : strcmp(path, "/") && !path_ok(path))
			return "path of a Landlock rule";
	}
	return NULL;
}

static const char *check_argv(const struct blob *b)
{
	size_t n;
	const str_off *off = blob_get(b, SEC_ARGV, sizeof(*off), &n);

	for (size_t i = 0; i < n; i++)
		if (!str_ok(b, off[i]))
			return "argument";
	return NULL;
}

static const char *check_env(const struct blob *b)
{
	size_t n;
	const str_off *off = blob_get(b, SEC_ENV, sizeof(*off), &n);

	for (size_t i = 0; i < n; i++) {
		const char *v;
		size_t len;

		if (!str_ok(b, off[i]))
			return "environment variable";
		v = blob_get_str(b, off[i]);
		len = strnlen(v, ENV_STRING_MAX);
		if (len == ENV_STRING_MAX)
			return "length of an environment variable";
		if (*v == '=' || !memchr(v, '=', len))
			return "environment variable without a name or without '='";
	}
	return NULL;
}

static const char *check_outputs(const struct blob *b)
{
	size_t n;
	const struct output_rule *r = blob_get(b, SEC_OUTPUTS, sizeof(*r), &n);

	for (size_t i = 0; i < n; i++)
		if (!str_ok(b, r[i].glob) || !glob_ok(blob_get_str(b, r[i].glob)))
			return "glob of an output";
	return NULL;
}

static const char *check_limits(const struct plan_limits *l)
{
	if (l->memory < (1u << 20) || l->memory > INT64_MAX / 2)
		return "memory limit";
	if (l->disk < 65536 || l->disk > INT64_MAX / 2 || !l->disk_inodes)
		return "disk limit";
	if (l->pids < 2 || l->pids > (1u << 22))
		return "process limit";
	if (!l->cpu_milli || l->cpu_milli > 1000000)
		return "cpu limit";
	if (l->open_files < 16 || l->open_files > (1u << 20))
		return "open file limit";
	if (l->grace_ms > 600000 || l->wall_ms > (UINT64_C(1) << 40))
		return "time limit";
	return NULL;
}

/* The payload's ids: fixed, so that a plan cannot ask for another's files. 0 is inside-root. */
static bool id_ok(uint32_t id)
{
	return id == 1000 || id == 0;
}

static const char *check_plan_fixed(const struct blob *b)
{
	const struct plan_fixed *f = blob_fixed(b, struct plan_fixed);

	if (f->flags & ~(uint32_t)PLAN_FLAGS_ALL)
		return "flags";
	for (int i = 0; i < 32; i++)
		if (f->layer[i] > (i < NSBOX_LAYER_MAX ? NSBOX_REQUIRE : 0))
			return "layer requirement";
	if (!id_ok(f->uid) || !id_ok(f->gid))
		return "user or group";
	if (!str_ok(b, f->hostname) || !str_ok(b, f->profile) || !str_ok(b, f->manifest_sha256) ||
	    !str_ok(b, f->workdir) || !str_ok(b, f->home))
		return "string of the fixed part";
	if (strnlen(blob_get_str(b, f->hostname), 65) > 64)
		return "host name";
	if (!path_ok(blob_get_str(b, f->workdir)) || !path_ok(blob_get_str(b, f->home)))
		return "working directory or home";
	if (f->subprocess >= SUBPROCESS_MAX)
		return "subprocess policy";
	return check_limits(&f->limits);
}

/* Rules of its own come whole or not at all: a part of them would look like more than it holds. */
static const char *check_exec_narrow(const struct blob *b, const struct exec_fixed *f)
{
	static const struct exec_narrow none;
	bool narrow = f->flags & EXECF_NARROW;
	size_t insns, rules;

	blob_get(b, SEC_BPF, sizeof(struct sock_filter), &insns);
	blob_get(b, SEC_LANDLOCK, sizeof(struct landlock_rule), &rules);
	if (narrow != (insns > 0))
		return "filter of an exec request";
	if (!narrow && (rules || memcmp(&f->narrow, &none, sizeof(none)) != 0))
		return "rules of an exec request that has none";
	if (rules && !f->narrow.landlock_fs && !f->narrow.landlock_net)
		return "Landlock rules that nothing would hold";
	if (narrow && f->narrow.open_files && f->narrow.open_files < 16)
		return "open file limit";
	return NULL;
}

static const char *check_exec_fixed(const struct blob *b)
{
	const struct exec_fixed *f = blob_fixed(b, struct exec_fixed);
	size_t argc;
	const char *cwd;

	blob_get(b, SEC_ARGV, sizeof(str_off), &argc);
	if (!argc)
		return "empty argument vector";
	if ((f->flags & ~(uint32_t)EXECF_ALL) || f->wall_ms > (UINT64_C(1) << 40))
		return "flags or time limit";
	if (!str_ok(b, f->cwd))
		return "working directory";
	cwd = blob_get_str(b, f->cwd);
	if (*cwd && strcmp(cwd, "/") && !path_ok(cwd))
		return "working directory";
	return check_exec_narrow(b, f);
}

/* A path of a request: what the caller says, and not long. Where it leads is the helper's. */
static bool verb_str_ok(const struct blob *b, str_off off, bool wanted)
{
	size_t len;

	if (!str_ok(b, off))
		return false;
	len = strnlen(blob_get_str(b, off), PATH_SIZE);
	return len < PATH_SIZE && (wanted ? len > 0 : len == 0);
}

static const struct {
	uint32_t flags;
	bool target, pattern;
} verbs[NSBOX_FILE_VERB_MAX] = {
	[NSBOX_FILE_STAT] = { NSBOX_FILE_FOLLOW, 0, 0 },
	[NSBOX_FILE_LIST] = { NSBOX_FILE_RECURSIVE, 0, 0 },
	[NSBOX_FILE_GET] = { 0, 0, 0 },
	[NSBOX_FILE_PUT] = { NSBOX_FILE_PARENTS | NSBOX_FILE_EXCLUSIVE, 0, 0 },
	[NSBOX_FILE_MKDIR] = { NSBOX_FILE_PARENTS, 0, 0 },
	[NSBOX_FILE_REMOVE] = { NSBOX_FILE_RECURSIVE, 0, 0 },
	[NSBOX_FILE_MOVE] = { NSBOX_FILE_PARENTS | NSBOX_FILE_EXCLUSIVE, 1, 0 },
	[NSBOX_FILE_UPLOAD] = { 0, 0, 0 },
	[NSBOX_FILE_DOWNLOAD] = { 0, 0, 0 },
	[NSBOX_FILE_GLOB] = { 0, 0, 1 },
	[NSBOX_FILE_GREP] = { NSBOX_FILE_IGNORE_CASE, 0, 1 },
};

static const char *check_verb_fixed(const struct blob *b)
{
	const struct verb_fixed *f = blob_fixed(b, struct verb_fixed);
	const char *glob;

	if (!f->verb || f->verb >= NSBOX_FILE_VERB_MAX || f->reserved)
		return "verb";
	if (f->flags & ~verbs[f->verb].flags)
		return "flags of a verb";
	if (f->mode > 0777 && f->mode != NSBOX_FILE_MODE_DEFAULT)
		return "mode";
	if (!f->deadline_ms || f->deadline_ms > 24u * 3600 * 1000)
		return "deadline";
	if (f->offset > INT64_MAX || !f->files || f->total_bytes > INT64_MAX)
		return "offset or limit";
	if (!verb_str_ok(b, f->path, true) || !verb_str_ok(b, f->target, verbs[f->verb].target) ||
	    !verb_str_ok(b, f->text, f->verb == NSBOX_FILE_GREP))
		return "path, target or text";
	if (!str_ok(b, f->pattern))
		return "pattern";
	glob = blob_get_str(b, f->pattern);
	if (*glob && (!verbs[f->verb].pattern || !glob_ok(glob)))
		return "pattern";
	return f->verb == NSBOX_FILE_GLOB && !*glob ? "pattern" : NULL;
}

#define PLAN 1
#define EXEC 2
#define ROOT 4
#define VERB 8

/* Of each section: element size, how many elements at most, which blobs may have it at all. */
static const struct {
	uint32_t elem, max, where;
} shape[SEC_MAX] = {
	[SEC_STRINGS] = { 1, NSBOX_PLAN_MAX, PLAN | EXEC | ROOT | VERB },
	[SEC_FIXED] = { 1, 4096, PLAN | EXEC | VERB },
	[SEC_OPS] = { sizeof(struct mount_op), OPS_MAX, PLAN | ROOT },
	[SEC_LANDLOCK] = { sizeof(struct landlock_rule), RULES_MAX, PLAN | EXEC | ROOT },
	[SEC_BPF] = { sizeof(struct sock_filter), BPF_MAX_INSNS, PLAN | EXEC },
	[SEC_BPF_INIT] = { sizeof(struct sock_filter), BPF_MAX_INSNS, PLAN },
	[SEC_NFT] = { 1, NFT_MAX, PLAN },
	[SEC_ENV] = { sizeof(str_off), BLOB_ENV_MAX, PLAN | EXEC | ROOT },
	[SEC_ARGV] = { sizeof(str_off), ARGS_MAX, EXEC },
	[SEC_OUTPUTS] = { sizeof(struct output_rule), OUTPUTS_MAX, PLAN },
	[SEC_DATA] = { 1, NSBOX_PLAN_MAX, PLAN | ROOT },
	[SEC_EGRESS] = { 1, EGRESS_MAX, PLAN },
};

static const char *check_sections(const struct blob *b)
{
	const struct blob_header *h = (const struct blob_header *)b->base;
	uint32_t self = h->magic == PLAN_MAGIC	 ? PLAN
			: h->magic == EXEC_MAGIC ? EXEC
			: h->magic == VERB_MAGIC ? VERB
						 : ROOT;

	for (int i = 0; i < SEC_MAX; i++) {
		const struct blob_range *r = &h->section[i];

		if (r->offset < sizeof(*h) || r->offset % 8 || r->offset > b->size ||
		    r->size > b->size - r->offset)
			return "section out of bounds";
		if (r->size % shape[i].elem || r->size / shape[i].elem > shape[i].max)
			return "section size";
		if (r->size && !(shape[i].where & self))
			return "section of another kind of blob";
	}
	if (!h->section[SEC_STRINGS].size || b->base[h->section[SEC_STRINGS].offset] ||
	    b->base[h->section[SEC_STRINGS].offset + h->section[SEC_STRINGS].size - 1])
		return "strings without their ends";
	return NULL;
}

static const char *check_by_magic(const struct blob *b, uint32_t magic)
{
	const struct blob_header *h = (const struct blob_header *)b->base;
	uint32_t fixed = h->section[SEC_FIXED].size;
	const char *why = NULL;

	switch (magic) {
	case PLAN_MAGIC:
		if (fixed != sizeof(struct plan_fixed))
			return "fixed part";
		if (!h->section[SEC_BPF].size || !h->section[SEC_BPF_INIT].size)
			return "no system call filter";
		why = check_plan_fixed(b);
		break;
	case EXEC_MAGIC:
		if (fixed != sizeof(struct exec_fixed))
			return "fixed part";
		why = check_exec_fixed(b);
		break;
	case VERB_MAGIC:
		if (fixed != sizeof(struct verb_fixed))
			return "fixed part";
		why = check_verb_fixed(b);
		break;
	case ROOT_MAGIC: break; /* a list of operations, no more */
	default: return "unknown kind";
	}
	return why;
}

/*
 * Rules without a packet filter that is demanded would be no rules: all that is not redirected has
 * to be refused by something.
 */
static const char *check_egress(const struct blob *b)
{
	size_t size, nft;
	const void *rules = blob_get(b, SEC_EGRESS, 1, &size);

	if (!size)
		return NULL;
	blob_get(b, SEC_NFT, 1, &nft);
	if (!nft || blob_fixed(b, struct plan_fixed)->layer[NSBOX_LAYER_NFTABLES] != NSBOX_REQUIRE)
		return "egress without a packet filter";
	return egress_check(rules, size, NULL, NULL) < 0 ? "rules of egress" : NULL;
}

/* No mounts, no filter of packets, no layers that namespaces make, and all that is left in force. */
static const char *check_process(const struct blob *b)
{
	const struct plan_fixed *f = blob_fixed(b, struct plan_fixed);
	size_t n, nft;
	const struct mount_op *ops = blob_get(b, SEC_OPS, sizeof(*ops), &n);

	if (!(f->flags & PLAN_PROCESS))
		return NULL;
	blob_get(b, SEC_NFT, 1, &nft);
	if (nft || !f->uid || !f->landlock_fs || f->flags != PLAN_PROCESS)
		return "tier 'process' with what it does not have";
	for (int i = 0; i < NSBOX_LAYER_MAX; i++)
		if ((PROCESS_ABSENT & NSBOX_LAYER_BIT(i))	? f->layer[i] == NSBOX_REQUIRE
		    : (PROCESS_FOUNDATION & NSBOX_LAYER_BIT(i)) ? f->layer[i] != NSBOX_REQUIRE
								: false)
			return "layers of the tier 'process'";
	for (size_t i = 0; i < n; i++)
		if (ops[i].kind != OP_DIR && ops[i].kind != OP_FILE && ops[i].kind != OP_SYMLINK &&
		    ops[i].kind != OP_MAKE_EXEC)
			return "mount of the tier 'process'";
	return NULL;
}

int blob_check(const void *base, size_t size, uint32_t magic, struct nsbox_error *err)
{
	struct blob b = { base, size };
	const struct blob_header *h = base;
	const char *why;

	if (size < sizeof(*h) || size > NSBOX_PLAN_MAX || (uintptr_t)base % 8)
		return bad(err, "size");
	if (h->magic != magic)
		return bad(err, "not a blob of the expected kind");
	if (h->version != BLOB_VERSION || h->sections != SEC_MAX || h->size != size || h->reserved)
		return bad(err, "version or size");
	why = check_sections(&b);
	if (!why)
		why = check_by_magic(&b, magic);
	if (!why)
		why = check_ops(&b, magic);
	if (!why)
		why = check_landlock(&b);
	if (!why)
		why = check_env(&b);
	if (!why)
		why = check_argv(&b);
	if (!why)
		why = check_outputs(&b);
	if (!why)
		why = check_egress(&b);
	if (!why && magic == PLAN_MAGIC)
		why = check_process(&b);
	return why ? bad(err, why) : 0;
}

int nsbox_plan_check(const void *blob, size_t len, struct nsbox_error *err)
{
	return blob_check(blob, len, PLAN_MAGIC, err);
}

/* ------------------------------------------------------------------ mapping */

int blob_map(int fd, uint32_t magic, struct blob *ret, struct nsbox_error *err)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	struct stat st;
	void *p;
	int r;

	r = fcntl(fd, F_GET_SEALS);
	if (r < 0 || (r & seals) != seals)
		return bad(err, "its memory is not sealed");
	if (fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > NSBOX_PLAN_MAX)
		return bad(err, "size");
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return nsbox_fail_at(err, NSBOX_STAGE_PLAN, NSBOX_E_NOMEM, errno, "map a plan");
	r = blob_check(p, (size_t)st.st_size, magic, err);
	if (r < 0) {
		munmap(p, (size_t)st.st_size);
		return r;
	}
	ret->base = p;
	ret->size = (size_t)st.st_size;
	return 0;
}

void blob_unmap(struct blob *b)
{
	if (b->base)
		munmap((void *)b->base, b->size);
	b->base = NULL;
	b->size = 0;
}

struct nsbox_plan {
	struct blob blob;
};

int nsbox_plan_open(int plan_fd, struct nsbox_plan **ret, struct nsbox_error *err)
{
	struct nsbox_plan *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return nsbox_fail_at(err, NSBOX_STAGE_PLAN, NSBOX_E_NOMEM, ENOMEM, "open a plan");
	r = blob_map(plan_fd, PLAN_MAGIC, &p->blob, err);
	if (r < 0) {
		free(p);
		return r;
	}
	/* A plan may hold an operator's secrets: it is not copied into children that are not its
	 * own (sandbox.c lifts this for the one clone that needs it). */
	madvise((void *)p->blob.base, p->blob.size, MADV_DONTFORK);
	*ret = p;
	return 0;
}

void nsbox_plan_close(struct nsbox_plan *plan)
{
	if (!plan)
		return;
	blob_unmap(&plan->blob);
	free(plan);
}

const void *nsbox_plan_egress(const struct nsbox_plan *plan, size_t *ret_len)
{
	const void *rules = blob_get(&plan->blob, SEC_EGRESS, 1, ret_len);

	return *ret_len ? rules : NULL;
}

const struct blob *plan_blob(const struct nsbox_plan *plan)
{
	return &plan->blob;
}
