/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stages after the pivot: files, masks, network, sysctls, name, and locking init down.
 */
#include "nsbox/child.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <net/if.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "nsbox/files_child.h"
#include "nsbox/files_walk.h"
#include "nsbox/nft.h"
#include "nsbox/stage.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"
#include "nsbox/weaken.h"

/* ------------------------------------------------------------------ files */

static int unpack(struct child *c, void *arg, struct nsbox_error *err)
{
	const struct plan_limits *l = &child_fixed(c)->limits;
	struct nsbox_files_limits lim = { l->disk, (uint32_t)MIN(l->disk_inodes, UINT32_MAX) };

	umask(0);
	return files_child_unpack(c->files_fd, c->new_root, &lim,
				  blob_get_str(c->plan, child_fixed(c)->workdir), err);
}

int stage_files(struct child *c, struct nsbox_error *err)
{
	const struct helper_job job = { .run = unpack, .keep = { c->files_fd, -1 } };
	int r;

	if (c->files_fd < 0)
		return 0;
	r = child_helper(c, &job, err);
	close_fd(&c->files_fd);
	return r;
}

/* ------------------------------------------------------------------ masks */

/* The first mask of either kind, of which all others are clones: a tmpfs of its own for each would be
 * most of what masks cost, and what their end costs, too. */
struct masks {
	int dir, file;
};

static int new_mask(bool is_dir)
{
	static const char *const opts[] = { "size", "4k", "nr_inodes", "2", "mode", "0555", NULL };
	const uint64_t attr = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;
	auto_close int fd = -1;
	int r;

	if (is_dir)
		return new_mount("tmpfs", opts, attr | MOUNT_ATTR_NODEV);
	/* our own /dev/null, whose device number stage_dev checked */
	fd = sys_open_tree(AT_FDCWD, "/dev/null", OPEN_TREE_CLONE);
	if (fd < 0)
		return -errno;
	r = set_mount_attr(fd, attr, false);
	return r < 0 ? r : take_fd(&fd);
}

static int mask(struct masks *m, int target, bool is_dir)
{
	int *first = is_dir ? &m->dir : &m->file;
	auto_close int again = -1;

	if (*first >= 0) {
		again = sys_open_tree(*first, "", OPEN_TREE_CLONE | AT_EMPTY_PATH);
		return again < 0 ? -errno : attach_mount(again, target);
	}
	again = new_mask(is_dir);
	if (again < 0)
		return again;
	*first = take_fd(&again);
	return attach_mount(*first, target);
}

/* Execute where there is read. By path: nothing but us runs yet, and dst holds no link. */
static int make_exec(const struct child *c, const char *dst, const struct stat *st)
{
	const mode_t mode = (st->st_mode & 07777) | ((st->st_mode & 0444) >> 2);

	if (!S_ISREG(st->st_mode))
		return -EINVAL;
	return fchmodat(c->new_root, dst + 1, mode, 0) < 0 ? -errno : 0;
}

struct exec_pattern {
	const char *glob;
	unsigned matched;
};

static int pattern_dir(struct files_walk *w, int dir_fd, const char *name, const struct stat *st,
		       struct nsbox_error *err)
{
	const struct exec_pattern *p = w->ctx;

	return files_glob_may_contain(p->glob, w->path);
}

static int pattern_file(struct files_walk *w, int dir_fd, const char *name, const struct stat *st,
			struct nsbox_error *err)
{
	struct exec_pattern *p = w->ctx;

	if (!S_ISREG(st->st_mode) || !files_glob_match(p->glob, w->path))
		return 0;
	p->matched++;
	if (fchmodat(dir_fd, name, (st->st_mode & 07777) | ((st->st_mode & 0444) >> 2), 0) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "make '%s' executable", w->path);
	return 0;
}

static int pattern_note(struct files_walk *w, const char *why, struct nsbox_error *err)
{
	return nsbox_fail(err, NSBOX_E_SETUP, 0, "look for programs: '%s': %s", w->path, why);
}

/* Nothing but us runs yet: what the walk sees stays as it is. */
static int make_exec_below(struct child *c, const char *dst, const char *glob,
			   struct nsbox_error *err)
{
	struct exec_pattern p = { .glob = glob };
	struct files_walk w;
	int fd = files_open(c->new_root, dst + 1, O_RDONLY | O_DIRECTORY, 0,
			    RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
	int r;

	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, -fd, "look for programs below '%s'", dst);
	w.dir = pattern_dir;
	w.other = pattern_file;
	w.note = pattern_note;
	w.ctx = &p;
	r = files_walk(&w, fd, err);
	if (r == 0 && !p.matched)
		r = nsbox_fail(err, NSBOX_E_SETUP, ENOENT,
			       "no file matches '%s/%s' (files.executable)", dst, glob);
	return r;
}

static int mask_op(struct child *c, const struct mount_op *op, struct masks *masks,
		   struct nsbox_error *err)
{
	const char *dst = blob_get_str(c->plan, op->dst), *src = blob_get_str(c->plan, op->src);
	auto_close int target = open_target(c->new_root, dst);
	struct stat st;
	int r;

	if (target < 0 && (errno == ENOENT || errno == ENOTDIR) && (op->flags & OPF_OPTIONAL))
		return 0;
	if (target < 0 || fstat(target, &st) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "open '%s' to restrict it", dst);
	if (op->kind == OP_MAKE_EXEC && *src)
		return make_exec_below(c, dst, src, err);
	if (op->kind == OP_MASK)
		r = mask(masks, target, S_ISDIR(st.st_mode));
	else if (op->kind == OP_READONLY)
		r = clone_tree(target, "", true, MOUNT_ATTR_RDONLY, target);
	else
		r = make_exec(c, dst, &st);
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, r, "restrict '%s'", dst);
	return 0;
}

static int mask_ops(struct child *c, uint16_t kind, struct masks *masks, struct nsbox_error *err)
{
	size_t n;
	const struct mount_op *ops = blob_get(c->plan, SEC_OPS, sizeof(*ops), &n);
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		if (ops[i].kind == kind)
			r = mask_op(c, &ops[i], masks, err);
	return r;
}

int stage_make_exec(struct child *c, struct nsbox_error *err)
{
	return mask_ops(c, OP_MAKE_EXEC, NULL, err); /* nothing is mounted */
}

int stage_mask(struct child *c, struct nsbox_error *err)
{
	/* Execute bits first (a read-only file cannot get them), hiding last. */
	static const uint16_t order[] = { OP_MAKE_EXEC, OP_READONLY, OP_MASK };
	struct masks masks = { -1, -1 };
	size_t n;
	const struct mount_op *ops = blob_get(c->plan, SEC_OPS, sizeof(*ops), &n);
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		if (ops[i].kind == OP_TRUST)
			r = trust_op(c, &ops[i], err);
	for (unsigned k = 0; r == 0 && k < ARRAY_SIZE(order); k++)
		r = mask_ops(c, order[k], &masks, err);
	close_fd(&masks.dir);
	close_fd(&masks.file);
	return r;
}

/* ------------------------------------------------------------------ network */

int stage_loopback(struct child *c, struct nsbox_error *err)
{
	struct ifreq req = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (left_out(NET))
		return 0;
	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &req) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "bring the loopback interface up");
	return 0;
}

int stage_nftables(struct child *c, struct nsbox_error *err)
{
	size_t size;
	const unsigned char *batch = blob_get(c->plan, SEC_NFT, 1, &size);
	int r;

	if (!size || child_fixed(c)->layer[NSBOX_LAYER_NFTABLES] == NSBOX_OFF)
		return 0;
	if (left_out(NFTABLES) || (left_out(NET) && !left_out(USER)))
		return 0;
	r = nft_send(batch, size);
	if (r < 0)
		return layer_missing(c, NSBOX_LAYER_NFTABLES, NSBOX_STAGE_NFTABLES, r,
				     "load the packet filter (needs CONFIG_NF_TABLES and its inet "
				     "family: modprobe nf_tables nf_tables_inet)",
				     err);
	c->enforced |= c->want & NSBOX_LAYER_BIT(NSBOX_LAYER_NFTABLES);
	return 0;
}

/* ------------------------------------------------------------------ sysctls and name */

static const struct {
	const char *path, *value;
} sysctls[] = {
	/* A second wall behind the filter: no user namespace can be made below this one. */
	{ "sys/user/max_user_namespaces", "0" },
	/* These count against whoever made the namespace: one run must not use up the host's. */
	{ "sys/user/max_inotify_instances", "16" },
	{ "sys/user/max_inotify_watches", "8192" },
	/* ping without privilege, to the sandbox's own addresses: the payload's group. */
	{ "sys/net/ipv4/ping_group_range", NULL },
	/* Ports below 1024 are as private as the rest here. */
	{ "sys/net/ipv4/ip_unprivileged_port_start", "0" },
};

int stage_sysctl(struct child *c, struct nsbox_error *err)
{
	char group[32];
	int r;

	nsbox_format(group, sizeof(group), "%u %u", child_fixed(c)->gid, child_fixed(c)->gid);
	if (c->proc_mount < 0)
		return 0; /* no /proc of our own to write to, or to make read-only */
	for (unsigned i = 0; i < ARRAY_SIZE(sysctls); i++) {
		r = write_small_file(c->proc_mount, sysctls[i].path,
				     sysctls[i].value ? sysctls[i].value : group);
		if (r < 0 && (i == 0 || r != -ENOENT) && !left_out(NET))
			return nsbox_fail(err, NSBOX_E_SETUP, r, "write /proc/%s", sysctls[i].path);
	}
	r = set_mount_attr(c->proc_mount, MOUNT_ATTR_RDONLY, false);
	close_fd(&c->proc_mount);
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, r, "make /proc read-only");
	return 0;
}

int stage_hostname(struct child *c, struct nsbox_error *err)
{
	const char *name = blob_get_str(c->plan, child_fixed(c)->hostname);

	if (!(c->want & NSBOX_LAYER_BIT(NSBOX_LAYER_UTS)) || left_out(UTS))
		return 0; /* the name in force is the host's, and not ours to change */
	if (*name && sethostname(name, strlen(name)) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "set the host name '%s'", name);
	return 0;
}

/* ------------------------------------------------------------------ privilege */

/* Capabilities init keeps, in its own user namespace: */
static const unsigned kept[] = {
	CAP_SETUID, CAP_SETGID, /* each payload and helper takes the payload's id */
	CAP_KILL,		/* ends payloads of that id */
};

static int drop_bounding_set(void)
{
	/* Until the kernel knows no more: a newer kernel's capabilities go as well. */
	for (int cap = 0; cap < 64; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return errno == EINVAL && cap > CAP_CHECKPOINT_RESTORE ? 0 : -errno;
	return 0;
}

static int keep_capabilities(bool any)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	for (unsigned i = 0; any && i < ARRAY_SIZE(kept); i++)
		data[kept[i] / 32].effective |= 1U << (kept[i] % 32);
	data[0].permitted = data[0].effective;
	data[1].permitted = data[1].effective;
	return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

int stage_capabilities(struct child *c, struct nsbox_error *err)
{
	const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
				   SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
				   SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
	/* Who is nobody special has nothing to bound: no_new_privs keeps it that way. */
	bool privileged = !c->process || c->process->own_ids;
	int r;

	/* A keyring of our own: the owner's session keys are not for the payload. Kernels without
	 * keyrings answer ENOSYS, and have none to leak; containers refuse the call to all in them. */
	if (syscall(SYS_keyctl, 1 /* JOIN_SESSION_KEYRING */, NULL) < 0 && errno != ENOSYS &&
	    !(c->process && errno == EPERM))
		return nsbox_fail(err, NSBOX_E_SETUP, errno,
				  "join a new session keyring (in a container, its seccomp profile "
				  "has to allow keyctl)");
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "make init undumpable");
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "clear the ambient set");
	r = left_out(CAPABILITIES) || !privileged ? 0 : drop_bounding_set();
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, r, "drop the bounding set%s",
				  c->process ? " (CAP_SETPCAP is needed)" : "");
	if (privileged && !left_out(CAPABILITIES) && prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "lock the secure bits");
	r = left_out(CAPABILITIES) ? 0 : keep_capabilities(privileged);
	if (r < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, r, "drop capabilities");
	if (!left_out(NO_NEW_PRIVS) && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "set no_new_privs");
	c->enforced |= c->want & (NSBOX_LAYER_BIT(NSBOX_LAYER_NO_NEW_PRIVS) |
				  NSBOX_LAYER_BIT(NSBOX_LAYER_CAPABILITIES));
	return 0;
}
