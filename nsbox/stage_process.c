/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stages of the tier "process" (process_tier.h), where they differ from those of namespaces.
 *
 *   ids        leave the owner's user, groups and supplementary groups for init's
 *   directory  let the payload's user make the run's places in its directory
 *   exec bits  the same for what the manifest calls executable
 *   trees      Landlock rules of what the image shows of the host, of /proc and of devices
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "nsbox/child.h"
#include "nsbox/process_tier.h"
#include "nsbox/stage.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"
#include "nsbox/weaken.h"

#define FS(x)	LANDLOCK_ACCESS_FS_##x
#define READ	(FS(READ_FILE) | FS(READ_DIR))
#define ON_FILE (FS(EXECUTE) | FS(WRITE_FILE) | FS(READ_FILE) | FS(TRUNCATE) | FS(IOCTL_DEV))

/* ------------------------------------------------------------------ ids */

/* Leaving user 0 takes the effective capabilities, and init needs some: those that are permitted. */
static int keep_permitted(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	if (syscall(SYS_capget, &head, data) < 0)
		return -errno;
	for (int i = 0; i < 2; i++) {
		data[i].effective = data[i].permitted;
		data[i].inheritable = 0;
	}
	return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

int process_take_ids(struct child *c, struct nsbox_error *err)
{
	const struct process_box *b = c->process;

	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_IDS, NSBOX_E_SETUP, errno,
				     "ask for the orphans of programs");
	if (!b->own_ids)
		return 0;
	if (syscall(SYS_setgroups, 0, NULL) < 0 ||
	    syscall(SYS_setresgid, b->init, b->init, b->init) < 0 ||
	    prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 ||
	    syscall(SYS_setresuid, b->init, b->init, b->init) < 0 || keep_permitted() < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_IDS, NSBOX_E_SETUP, errno,
				     "take the user %u for init", b->init);
	c->enforced |= c->want & NSBOX_LAYER_BIT(NSBOX_LAYER_OWN_ID);
	return 0;
}

/* ------------------------------------------------------------------ files */

static int fill(struct child *c, void *arg, struct nsbox_error *err)
{
	umask(0);
	return stage_fill(c, c->plan, c->new_root, err);
}

int stage_process_dir(struct child *c, struct nsbox_error *err)
{
	const struct helper_job job = { .run = fill, .keep = { -1, -1 } };

	return child_helper(c, &job, err);
}

static int make_exec(struct child *c, void *arg, struct nsbox_error *err)
{
	return stage_make_exec(c, err);
}

int stage_process_exec(struct child *c, struct nsbox_error *err)
{
	const struct helper_job job = { .run = make_exec, .keep = { -1, -1 } };
	size_t n;
	const struct mount_op *ops = blob_get(c->plan, SEC_OPS, sizeof(*ops), &n);

	for (size_t i = 0; i < n; i++)
		if (ops[i].kind == OP_MAKE_EXEC)
			return child_helper(c, &job, err);
	return 0;
}

/* ------------------------------------------------------------------ Landlock */

/* A path of the host that may be missing; `link`: through one at its end. */
static int add_path(const struct child *c, int ruleset, int dir, const char *path, uint64_t access,
		    bool link, struct nsbox_error *err)
{
	struct landlock_path_beneath_attr attr = { 0 };
	auto_close int fd = openat(dir, path, O_PATH | O_CLOEXEC | (link ? 0 : O_NOFOLLOW));
	struct stat st;

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == EACCES
			       ? 0
			       : nsbox_fail(err, NSBOX_E_SETUP, errno,
					    "open '%s' for a Landlock rule", path);
	if (fstat(fd, &st) < 0 || S_ISLNK(st.st_mode))
		return 0;
	attr.parent_fd = fd;
	attr.allowed_access = access & child_fixed(c)->landlock_fs;
	if (!S_ISDIR(st.st_mode))
		attr.allowed_access &= ON_FILE;
	if (sys_landlock_add_rule(ruleset, LANDLOCK_RULE_PATH_BENEATH, &attr) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "add a Landlock rule for '%s'", path);
	return 0;
}

/* What the host's image binds, it shows: /usr, certificates, what the operator has listed. */
static int add_binds(const struct child *c, int ruleset, struct nsbox_error *err)
{
	size_t n;
	const struct mount_op *ops = blob_get(c->root, SEC_OPS, sizeof(*ops), &n);
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		if (ops[i].kind == OP_BIND)
			r = add_path(c, ruleset, AT_FDCWD, blob_get_str(c->root, ops[i].src),
				     READ | (ops[i].flags & OPF_NOEXEC ? 0 : FS(EXECUTE)), true,
				     err);
	return r;
}

/* In the skeleton these are the sandbox's own texts, and here they would be the host's. */
static bool is_hosts_own(const char *name)
{
	static const char *const own[] = {
		".",	       "..",	   "passwd",  "group",	     "nsswitch.conf", "hosts",
		"resolv.conf", "hostname", "profile", "bash.bashrc", "mtab"
	};

	for (unsigned i = 0; i < ARRAY_SIZE(own); i++)
		if (!strcmp(name, own[i]))
			return true;
	return false;
}

/* What the skeleton has a copy of is read where it was copied from. */
static int add_copies(const struct child *c, int ruleset, const char *skeleton,
		      struct nsbox_error *err)
{
	_Alignas(8) char dents[4096];
	auto_close int etc = open("/etc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	auto_close int dir = openat(AT_FDCWD, skeleton, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = 0;
	long n = 0;

	if (etc < 0 || dir < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "look at '%s' and /etc", skeleton);
	while (r == 0 && (n = syscall(SYS_getdents64, dir, dents, sizeof(dents))) > 0) {
		const struct dirent64_raw *d;

		for (long at = 0; r == 0 && at < n; at += d->reclen) {
			d = (const struct dirent64_raw *)(dents + at);
			if (!is_hosts_own(d->name) && strcmp(d->name, "alternatives") != 0 &&
			    strcmp(d->name, "ssl") != 0 && strcmp(d->name, "pki") != 0)
				r = add_path(c, ruleset, etc, d->name, READ, false, err);
		}
	}
	return r < 0 || n == 0 ? r : nsbox_fail(err, NSBOX_E_SETUP, (int)-n, "list '%s'", skeleton);
}

static const struct {
	const char *path;
	uint64_t access;
} machine[] = {
	{ "/etc/ssl/openssl.cnf", READ },
	{ "/etc/localtime", READ },
	{ "/proc", READ },
	{ "/dev/null", FS(READ_FILE) | FS(WRITE_FILE) | FS(TRUNCATE) },
	{ "/dev/zero", FS(READ_FILE) | FS(WRITE_FILE) | FS(TRUNCATE) },
	{ "/dev/full", FS(READ_FILE) | FS(WRITE_FILE) | FS(TRUNCATE) },
	{ "/dev/random", FS(READ_FILE) },
	{ "/dev/urandom", FS(READ_FILE) },
};

/* Locks between processes are files there. Of one's own id they are other programs' of the caller. */
#define SHM (READ | FS(WRITE_FILE) | FS(MAKE_REG) | FS(REMOVE_FILE) | FS(TRUNCATE) | FS(REFER))

int process_add_trees(struct child *c, int ruleset, struct nsbox_error *err)
{
	char path[4096];
	int r;

	if (left_out(LANDLOCK_FS))
		return 0;
	r = add_binds(c, ruleset, err);
	for (unsigned i = 0; r == 0 && i < ARRAY_SIZE(machine); i++)
		r = add_path(c, ruleset, AT_FDCWD, machine[i].path, machine[i].access, true, err);
	if (r == 0 && c->process->own_ids)
		r = add_path(c, ruleset, AT_FDCWD, "/dev/shm", SHM, false, err);
	if (r < 0 || !process_view(c, "/opt/nsbox", path, sizeof(path)))
		return r;
	r = add_path(c, ruleset, AT_FDCWD, path, READ, false, err);
	strcpy(path + strlen(path) - strlen("opt/nsbox"), "etc");
	return r == 0 ? add_copies(c, ruleset, path, err) : r;
}

int process_payload_bind(const struct child *c, struct nsbox_error *err)
{
	/* Moving between directories is refused by a domain that does not say that it may be. */
	const struct nsbox_landlock_ruleset_attr attr = { .handled_access_fs = FS(REFER),
							  .scoped = LANDLOCK_SCOPE_SIGNAL };
	struct landlock_path_beneath_attr own = { .allowed_access = FS(REFER) };
	auto_close int ruleset = -1, dir = -1;

	/* Before the question: a parent that ends after it is heard of. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != c->parent_pid)
		return nsbox_fail_at(err, NSBOX_STAGE_CREDENTIALS, NSBOX_E_SETUP, ESRCH,
				     "end with init");
	if (c->process->own_ids || left_out(LANDLOCK_SCOPES) ||
	    !(c->enforced & NSBOX_LAYER_BIT(NSBOX_LAYER_LANDLOCK_SCOPES)))
		return 0;
	ruleset = sys_landlock_create_ruleset(&attr, sizeof(attr), 0);
	dir = open(c->process->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	own.parent_fd = dir;
	if (ruleset < 0 || dir < 0 ||
	    sys_landlock_add_rule(ruleset, LANDLOCK_RULE_PATH_BENEATH, &own) < 0 ||
	    sys_landlock_restrict_self(ruleset) < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_LANDLOCK, NSBOX_E_SETUP, errno,
				     "keep the program from signalling init");
	return 0;
}
