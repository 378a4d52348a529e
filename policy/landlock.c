/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Landlock: the second wall for files, and for TCP where that is asked for. One domain per sandbox, entered by
 * its init.
 *
 * Handled is everything the host's ABI knows, so that what has no rule is refused. Reading of files
 * is granted tree by tree, never on "/": a tree that nobody thought of stays closed, and the
 * witness can prove that with a file of its own in /.nsbox. Directories may be listed anywhere,
 * since `ls /` is no secret in a root that was made for the run.
 */
#include <string.h>

#include "nsbox/sys.h"
#include "nsbox/util.h"
#include "policy/internal.h"

#define FS(x) LANDLOCK_ACCESS_FS_##x

#define READ (FS(READ_FILE) | FS(READ_DIR))
#define EXEC FS(EXECUTE)
#define WRITE                                                                                      \
	(FS(WRITE_FILE) | FS(REMOVE_DIR) | FS(REMOVE_FILE) | FS(MAKE_DIR) | FS(MAKE_REG) |         \
	 FS(MAKE_SOCK) | FS(MAKE_FIFO) | FS(MAKE_SYM) | FS(REFER) | FS(TRUNCATE))

/* Files take these alone; a directory right on a file is an error of the kernel's. */
#define RIGHTS_ABI_1 ((FS(MAKE_SYM) << 1) - 1)

uint64_t landlock_fs_rights(uint32_t abi)
{
	uint64_t rights = abi ? RIGHTS_ABI_1 : 0;

	if (abi >= 2)
		rights |= FS(REFER);
	if (abi >= 3)
		rights |= FS(TRUNCATE);
	if (abi >= 5)
		rights |= FS(IOCTL_DEV);
	return rights;
}

struct tree {
	const char *path;
	uint64_t access;
};

/* The image: what it may hold of these depends on it, hence all optional. */
static const struct tree image_trees[] = {
	{ "/usr", READ | EXEC },    { "/bin", READ | EXEC },
	{ "/sbin", READ | EXEC },   { "/lib", READ | EXEC },
	{ "/lib32", READ | EXEC },  { "/lib64", READ | EXEC },
	{ "/libx32", READ | EXEC }, { "/etc", READ | EXEC },
	{ "/opt", READ | EXEC },    { "/sys", READ },
	{ "/proc", READ },	    { "/dev", READ | WRITE | FS(IOCTL_DEV) },
};

/* Where a run may write as far as Landlock goes (modes narrow it); EXEC is added by policy. */
static const char *const writable_trees[] = {
	"/tmp", "/var", "/run", "/srv", "/mnt", "/media", "/home", POLICY_WORKSPACE, "/skills",
};

static void add(struct blob_builder *b, const struct plan_fixed *f, const char *path,
		uint64_t access, bool optional)
{
	access &= f->landlock_fs;
	if (access)
		blob_landlock(b, path, access, optional);
}

static bool may_be_missing(const struct nsbox_policy *p, const char *path)
{
	for (char *const *o = p->optional; o && *o; o++)
		if (!strcmp(*o, path))
			return true;
	return false;
}

/* `own`: the trees above give this anyway to what the payload owns, which may not be there yet. */
static void add_list(const struct nsbox_policy *p, struct blob_builder *b,
		     const struct plan_fixed *f, char *const *paths, uint64_t access, bool own)
{
	for (; *paths; paths++)
		if (!own || !policy_owns(*paths))
			add(b, f, *paths, access, may_be_missing(p, *paths));
}

static void add_port(struct blob_builder *b, uint8_t *seen, uint32_t port)
{
	if (!(seen[port / 8] & (1u << port % 8)))
		blob_landlock_port(b, (uint16_t)port, LANDLOCK_ACCESS_NET_CONNECT_TCP);
	seen[port / 8] |= (uint8_t)(1u << port % 8);
}

/* TCP to the ports of what is granted and to name servers, wherever they are: which they may be is for
 * others to say. No port is bound. */
static void add_ports(const struct nsbox_policy *p, struct blob_builder *b)
{
	uint8_t seen[8192] = { 0 };

	if (!policy_has_egress(p))
		return;
	add_port(b, seen, 53);
	for (size_t i = 0; i < p->network.n_allow; i++)
		for (const uint32_t *port = p->network.allow[i].ports; *port; port++)
			if (p->network.allow[i].protocol == PROTOCOL_TCP)
				add_port(b, seen, *port);
}

/* Those of connections are not among them where all ports may be connected to. */
static uint64_t net_rights(const struct nsbox_policy *p)
{
	uint64_t rights = LANDLOCK_ACCESS_NET_BIND_TCP;

	if (p->landlock_abi < 4 || p->layer[NSBOX_LAYER_LANDLOCK_TCP] == NSBOX_OFF)
		return 0;
	return p->network.mode == NETWORK_OPEN ? rights : rights | LANDLOCK_ACCESS_NET_CONNECT_TCP;
}

/* Tier "process": the run's own places, in its directory; what it sees of the host is added there. */
static void add_places(const struct nsbox_policy *p, struct blob_builder *b,
		       const struct plan_fixed *f, uint64_t run)
{
	static const char *const places[] = { "/tmp", "/var/tmp", POLICY_HOME, "/run",
					      POLICY_WORKSPACE };

	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		add(b, f, places[i], run, true);
	if (p->skill_dir)
		add(b, f, p->skill_dir, p->skill_readonly ? READ | EXEC : run | EXEC, true);
	else
		add(b, f, "/skills", run, true);
	add_list(p, b, f, p->exec, READ | EXEC, false);
}

static bool is_below(const char *path, const char *tree)
{
	size_t n = strlen(tree);

	return !strncmp(path, tree, n) && (path[n] == '/' || !path[n]);
}

/*
 * A tree as a whole is where modes and mounts narrow things; they do not for a single program. Where one
 * loses something in a tree it gets of that only what every run has, and what the lists name.
 */
static void add_writable_tree(const struct nsbox_policy *p, struct blob_builder *b,
			      const struct plan_fixed *f, const char *tree, uint64_t run)
{
	static const char *const own[] = { "/var/tmp", POLICY_HOME };
	bool whole = true;

	for (size_t i = 0; i < p->n_taken; i++)
		whole &= !is_below(p->taken[i].path, tree);
	if (whole) {
		add(b, f, tree, run, true);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		if (is_below(own[i], tree))
			add(b, f, own[i], run, true);
}

/* What is named here an image's own trees do not give back (add_image_trees() of nsbox/). */
static void add_taken(const struct nsbox_policy *p, struct blob_builder *b,
		      const struct plan_fixed *f)
{
	for (size_t i = 0; i < p->n_taken; i++)
		add(b, f, p->taken[i].path, FS(READ_DIR), true);
}

int landlock_taken(const struct nsbox_policy *p, const char **ret_path, struct nsbox_error *err)
{
	struct plan_fixed f = { 0 };
	struct blob_builder *b = blob_new(PLAN_MAGIC);
	auto_free void *bytes = NULL;
	const struct landlock_rule *rules;
	struct blob got;
	size_t n;
	int r;

	if (!b)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "compare policies");
	compile_landlock(p, b, &f);
	r = blob_bytes(b, &bytes, &got.size, err);
	blob_free(b);
	if (r < 0)
		return r;
	got.base = bytes;
	rules = blob_get(&got, SEC_LANDLOCK, sizeof(*rules), &n);
	*ret_path = NULL;
	for (size_t k = 0; k < p->n_taken && !*ret_path; k++) {
		if (!f.landlock_fs)
			*ret_path = p->taken[k].path;
		for (size_t i = 0; i < n; i++)
			if ((rules[i].access & p->taken[k].right) &&
			    is_below(p->taken[k].path, blob_get_str(&got, rules[i].path)))
				*ret_path = p->taken[k].path;
	}
	return 0;
}

void compile_landlock(const struct nsbox_policy *p, struct blob_builder *b, struct plan_fixed *f)
{
	/* "skill": programs come from the image and the skill, not from what the run wrote. */
	bool any = p->subprocess == SUBPROCESS_ANY;
	uint64_t run = READ | WRITE | (any ? EXEC : 0);

	f->landlock_abi = p->landlock_abi;
	f->landlock_fs = landlock_fs_rights(p->landlock_abi);
	f->landlock_net = net_rights(p);
	if (p->landlock_abi >= 6 && p->layer[NSBOX_LAYER_LANDLOCK_SCOPES] != NSBOX_OFF)
		f->landlock_scoped = LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL;
	if (!f->landlock_fs)
		return;
	if (policy_is_process(p)) {
		add_places(p, b, f, run);
		return;
	}
	add(b, f, "/", FS(READ_DIR), false);
	for (size_t i = 0; i < ARRAY_SIZE(image_trees); i++)
		add(b, f, image_trees[i].path, image_trees[i].access, true);
	for (size_t i = 0; i < ARRAY_SIZE(writable_trees); i++)
		add_writable_tree(p, b, f, writable_trees[i], run);
	if (p->skill_dir)
		add(b, f, p->skill_dir, READ | EXEC, true);
	add_list(p, b, f, p->read, READ, true);
	add_list(p, b, f, p->write, READ | WRITE, true);
	add_list(p, b, f, p->exec, READ | EXEC, any);
	add_taken(p, b, f);
	if (f->landlock_net & LANDLOCK_ACCESS_NET_CONNECT_TCP)
		add_ports(p, b);
}

/* What each ABI brought, and what a policy does without on an older kernel. */
static const struct {
	uint32_t abi;
	int layer;
	const char *name;
} brought[] = {
	{ 1, NSBOX_LAYER_LANDLOCK_FS, "fs" },	    { 2, NSBOX_LAYER_LANDLOCK_FS, "refer" },
	{ 3, NSBOX_LAYER_LANDLOCK_FS, "truncate" }, { 4, NSBOX_LAYER_LANDLOCK_TCP, "tcp" },
	{ 5, NSBOX_LAYER_LANDLOCK_FS, "ioctlDev" }, { 6, NSBOX_LAYER_LANDLOCK_SCOPES, "scopes" },
};

const char *landlock_lost(const struct nsbox_policy *p, size_t i)
{
	for (size_t k = 0; k < ARRAY_SIZE(brought); k++)
		if (brought[k].abi > p->landlock_abi && p->layer[brought[k].layer] != NSBOX_OFF &&
		    i-- == 0)
			return brought[k].name;
	return NULL;
}
