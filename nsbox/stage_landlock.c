/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Landlock: the one domain of a sandbox, which init enters and all its programs inherit; and below it
 * that of a single program with rules of its own (struct exec_narrow).
 *
 * The first is made by init while nothing of the run is there. The second is made by the program's own
 * process, with the program's rights, in a root where other programs have been at work: what they have
 * removed or closed grants nothing, and links that they could have made lead nowhere.
 */
#include "nsbox/child.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "nsbox/sys.h"
#include "nsbox/util.h"
#include "nsbox/weaken.h"

static int add_port(int ruleset, const struct landlock_rule *rule, struct nsbox_error *err)
{
	struct nsbox_landlock_net_port_attr net = { rule->access, rule->port };

	if (sys_landlock_add_rule(ruleset, NSBOX_LANDLOCK_RULE_NET_PORT, &net) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "add a Landlock rule for port %u",
				  rule->port);
	return 0;
}

static int add_path(int ruleset, int fd, const char *path, uint64_t access, struct nsbox_error *err)
{
	const struct landlock_path_beneath_attr attr = { .allowed_access = access,
							 .parent_fd = fd };

	if (!access)
		return 0;
	if (sys_landlock_add_rule(ruleset, LANDLOCK_RULE_PATH_BENEATH, &attr) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "add a Landlock rule for '%s'", path);
	return 0;
}

static int add_rule(struct child *c, const struct blob *b, int ruleset,
		    const struct landlock_rule *rule, struct nsbox_error *err)
{
	const char *path = blob_get_str(b, rule->path);
	auto_close int fd = -1;

	if (rule->port)
		return add_port(ruleset, rule, err);
	fd = sys_openat2(c->new_root, path[1] ? path + 1 : ".", O_PATH, 0, RESOLVE_IN_ROOT);
	if (fd < 0 && errno == ENOENT && rule->optional)
		return 0;
	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "open '%s' for a Landlock rule", path);
	return add_path(ruleset, fd, path, rule->access, err);
}

/* Is the tree one that the plan has a rule for, or has it rules within? Then they are the word. */
static bool plan_has(const struct blob *b, const char *tree)
{
	size_t n, len = strlen(tree);
	const struct landlock_rule *rules = blob_get(b, SEC_LANDLOCK, sizeof(*rules), &n);

	for (size_t i = 0; i < n; i++) {
		const char *path = blob_get_str(b, rules[i].path);

		if (!strncmp(path, tree, len) && (path[len] == '/' || !path[len]))
			return true;
	}
	return false;
}

/* What the image has at its top besides; inside-root (profile build) may change all of it. */
static int add_image_trees(struct child *c, const struct blob *b, uint64_t handled, int ruleset,
			   struct nsbox_error *err)
{
	const struct plan_fixed *f = child_fixed(c);
	size_t n;
	const struct landlock_rule *rules = blob_get(c->root, SEC_LANDLOCK, sizeof(*rules), &n);
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++) {
		struct landlock_rule rule = rules[i];

		if (f->uid && plan_has(b, blob_get_str(c->root, rule.path)))
			continue;
		rule.access &= handled & (f->uid ? ROOT_TREE_READ : ~UINT64_C(0));
		r = rule.access ? add_rule(c, c->root, ruleset, &rule, err) : 0;
	}
	return r;
}

/* For the helper that reads it: nothing else inside has a way to it. */
static int add_upper(const struct child *c, int ruleset, struct nsbox_error *err)
{
	const struct landlock_path_beneath_attr attr = {
		.allowed_access = child_fixed(c)->landlock_fs &
				  (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR),
		.parent_fd = c->upper,
	};

	if (sys_landlock_add_rule(ruleset, LANDLOCK_RULE_PATH_BENEATH, &attr) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno,
				  "add a Landlock rule for the upper layer");
	return 0;
}

static uint32_t landlock_layers(const struct plan_fixed *f)
{
	return (f->landlock_fs ? NSBOX_LAYER_BIT(NSBOX_LAYER_LANDLOCK_FS) : 0) |
	       (f->landlock_net ? NSBOX_LAYER_BIT(NSBOX_LAYER_LANDLOCK_TCP) : 0) |
	       (f->landlock_scoped ? NSBOX_LAYER_BIT(NSBOX_LAYER_LANDLOCK_SCOPES) : 0);
}

/* A root without the file that the domain hides could not show that it does. Looked up here once
 * for all programs of the sandbox, it costs each of their witnesses a tenth. */
static int find_witness_file(const struct child *c, struct nsbox_error *err)
{
	if (faccessat(c->new_root, WITNESS_FILE + 1, F_OK, 0) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno,
				  "find '%s' in the root, which the witness tries to read",
				  WITNESS_FILE);
	return 0;
}

/* The shortest form that holds what is set: older kernels refuse a longer one unless its tail is
 * zero, and then it may be left out as well. */
static int make_ruleset(const struct child *c, const struct nsbox_landlock_ruleset_attr *attr,
			struct nsbox_error *err)
{
	size_t size = attr->scoped ? sizeof(*attr) : attr->handled_access_net ? 16 : 8;
	int fd = sys_landlock_create_ruleset(attr, size, 0);

	return fd < 0 ? nsbox_fail(err, NSBOX_E_UNSUPPORTED, errno,
				   "make a Landlock ruleset for ABI %u",
				   child_fixed(c)->landlock_abi)
		      : fd;
}

int stage_landlock(struct child *c, struct nsbox_error *err)
{
	const struct plan_fixed *f = child_fixed(c);
	struct nsbox_landlock_ruleset_attr attr = { f->landlock_fs, f->landlock_net,
						    f->landlock_scoped };
	size_t n;
	const struct landlock_rule *rules = blob_get(c->plan, SEC_LANDLOCK, sizeof(*rules), &n);
	auto_close int ruleset = -1;
	int r;

	if (left_out(LANDLOCK_FS))
		attr.handled_access_fs = n = 0;
	if (left_out(LANDLOCK_SCOPES))
		attr.scoped = 0;
	c->enforced |= c->want & landlock_layers(f) & weakened();
	if (!attr.handled_access_fs && !attr.handled_access_net && !attr.scoped)
		return 0;
	ruleset = make_ruleset(c, &attr, err);
	if (ruleset < 0)
		return ruleset;
	for (size_t i = 0; i < n; i++) {
		r = add_rule(c, c->plan, ruleset, &rules[i], err);
		if (r < 0)
			return r;
	}
	r = c->process	     ? process_add_trees(c, ruleset, err)
	    : f->landlock_fs ? add_image_trees(c, c->plan, f->landlock_fs, ruleset, err)
			     : 0;
	if (r == 0 && f->landlock_fs)
		r = find_witness_file(c, err);
	if (r == 0 && f->landlock_fs && c->upper >= 0)
		r = add_upper(c, ruleset, err);
	if (r < 0)
		return r;
	if (sys_landlock_restrict_self(ruleset) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "enter the Landlock domain");
	c->enforced |= c->want & landlock_layers(f);
	return 0;
}

/* ------------------------------------------------------------------ one program's */

#define OF_FILES (ROOT_FILE_RIGHTS | LANDLOCK_ACCESS_FS_IOCTL_DEV)

/* What is at the top of the root only the image has put there, links included. */
static int add_own_rule(struct child *c, const struct blob *own, int ruleset,
			const struct landlock_rule *rule, struct nsbox_error *err)
{
	const char *path = blob_get_str(own, rule->path);
	bool top = !strchr(path + 1, '/');
	auto_close int fd = -1;
	struct stat st;

	if (rule->port)
		return add_port(ruleset, rule, err);
	fd = sys_openat2(c->new_root, path[1] ? path + 1 : ".", O_PATH, 0,
			 RESOLVE_IN_ROOT | (top ? 0 : RESOLVE_NO_SYMLINKS));
	if (fd >= 0 && fstat(fd, &st) < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_LANDLOCK, NSBOX_E_SETUP, errno,
				     "look at '%s'", path);
	if (fd >= 0) /* another program may have made a file of a directory */
		return add_path(ruleset, fd, path,
				rule->access & (S_ISDIR(st.st_mode) ? ~UINT64_C(0) : OF_FILES),
				err);
	if (errno == ENOENT || errno == ENOTDIR || errno == EACCES)
		return 0;
	return nsbox_fail_at(err, NSBOX_STAGE_LANDLOCK, NSBOX_E_SETUP, errno,
			     "open '%s' for a Landlock rule of one program, where no link may lead",
			     path);
}

/* Programs of a sandbox may signal each other: that the outer domain settles for all. */
int payload_landlock(struct child *c, const struct blob *own, struct nsbox_error *err)
{
	const struct exec_narrow *x = &blob_fixed(own, struct exec_fixed)->narrow;
	struct nsbox_landlock_ruleset_attr attr = { x->landlock_fs, x->landlock_net, 0 };
	size_t n;
	const struct landlock_rule *rules = blob_get(own, SEC_LANDLOCK, sizeof(*rules), &n);
	auto_close int ruleset = -1, root = -1;
	int r = 0;

	if (!attr.handled_access_fs && !attr.handled_access_net)
		return 0;
	ruleset = make_ruleset(c, &attr, err);
	if (ruleset < 0)
		return ruleset;
	root = open("/", O_PATH | O_CLOEXEC);
	if (root < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_LANDLOCK, NSBOX_E_SETUP, errno,
				     "open the root");
	c->new_root = root;
	for (size_t i = 0; r == 0 && i < n; i++)
		r = add_own_rule(c, own, ruleset, &rules[i], err);
	if (r == 0 && attr.handled_access_fs)
		r = add_image_trees(c, own, attr.handled_access_fs, ruleset, err);
	if (r == 0 && sys_landlock_restrict_self(ruleset) < 0)
		r = nsbox_fail_at(err, NSBOX_STAGE_LANDLOCK, NSBOX_E_SETUP, errno,
				  "enter the Landlock domain of one program");
	c->new_root = -1;
	return r;
}
