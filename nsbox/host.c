/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host probe: each feature is tried in a child that does what a sandbox would do, and the errno
 * of the attempt is kept for the doctor. Nothing is inferred from version numbers.
 */
#include <nsbox/host.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/capability.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "nsbox/cgroup.h"
#include "nsbox/host_private.h"
#include "nsbox/ids.h"
#include "nsbox/layer_stream.h"
#include "nsbox/stage.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"

/* ------------------------------------------------------------------ trying in a child */

/*
 * Run fn in new namespaces, mapped as a sandbox would be; 0 or the errno of what failed (of clone
 * itself, too). ENOTRECOVERABLE: the child died.
 */
static int try_in(uint64_t flags, int kind, int (*fn)(void))
{
	struct clone_args args = { .flags = flags, .exit_signal = SIGCHLD };
	int go[2], status = 0;
	pid_t pid;
	char byte;

	if (pipe2(go, O_CLOEXEC) < 0)
		return errno;
	pid = sys_clone3(&args, sizeof(args));
	if (pid == 0) {
		close(go[1]);
		if (read(go[0], &byte, 1) < 0)
			_exit(errno);
		if ((flags & CLONE_NEWUSER) && kind == NSBOX_IDS_PRIVILEGED &&
		    (syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0))
			_exit(errno);
		_exit(fn ? fn() : 0);
	}
	close(go[0]);
	if (pid < 0) {
		int saved = errno;

		close(go[1]);
		return saved;
	}
	if (flags & CLONE_NEWUSER)
		status = -ids_write_maps(pid, kind, ids_of_slot(IDS_SLOTS), IDS_INSIDE, NULL);
	close(go[1]);
	if (status) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		return status;
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : ENOTRECOVERABLE;
}

static int try_overlay(void)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", "/tmp", "tmpfs", 0, NULL) < 0 || chdir("/tmp") < 0)
		return errno;
	if (mkdir("l", 0755) < 0 || mkdir("u", 0755) < 0 || mkdir("w", 0755) < 0 ||
	    mkdir("m", 0755) < 0)
		return errno;
	if (mount("overlay", "m", "overlay", 0, "lowerdir=l,upperdir=u,workdir=w,userxattr") < 0)
		return errno;
	return 0;
}

/* Exit status of a child for which all went well, but that. No errno. */
#define PLAIN_TMPFS 200

/* In what try_overlay() has made. Without it an overlay mounts, and cannot do all that it should. */
static int try_attributes(void)
{
	return setxattr("u", OVL_PREFIX "probe", "y", 1, 0) == 0 ? 0 : PLAIN_TMPFS;
}

static int try_whole_overlay(void)
{
	int r = try_overlay();

	return r ? r : try_attributes();
}

static int try_proc(void)
{
	static const char *const opts[] = { "hidepid", "2", NULL };
	int fd = new_mount("proc", opts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);

	return fd < 0 ? -fd : 0;
}

static int put_nf(char *buf, uint16_t type, uint16_t flags, uint32_t seq, uint8_t family)
{
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct nfgenmsg *g;

	h->nlmsg_type = type;
	h->nlmsg_flags = NLM_F_REQUEST | flags;
	h->nlmsg_seq = seq;
	g = mnl_nlmsg_put_extra_header(h, sizeof(*g));
	g->nfgen_family = family;
	g->version = NFNETLINK_V0;
	g->res_id = type < NLMSG_MIN_TYPE + 2 ? htons(NFNL_SUBSYS_NFTABLES) : 0;
	if (type == ((NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_NEWTABLE))
		mnl_attr_put_strz(h, NFTA_TABLE_NAME, "nsbox");
	return (int)h->nlmsg_len;
}

static int try_nftables(void)
{
	char buf[512] __attribute__((aligned(8))) = { 0 };
	struct mnl_socket *nl = mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC);
	const struct nlmsghdr *h = (const struct nlmsghdr *)buf;
	int len;
	ssize_t n;

	if (!nl)
		return errno;
	len = put_nf(buf, NFNL_MSG_BATCH_BEGIN, 0, 1, AF_UNSPEC);
	len += put_nf(buf + len, (NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_NEWTABLE,
		      NLM_F_CREATE | NLM_F_ACK, 2, NFPROTO_INET);
	len += put_nf(buf + len, NFNL_MSG_BATCH_END, 0, 3, AF_UNSPEC);
	if (mnl_socket_sendto(nl, buf, (size_t)len) < 0)
		return errno;
	n = mnl_socket_recvfrom(nl, buf, sizeof(buf));
	if (n < 0)
		return errno;
	if (!mnl_nlmsg_ok(h, (int)n) || h->nlmsg_type != NLMSG_ERROR)
		return EBADMSG;
	return -((const struct nlmsgerr *)mnl_nlmsg_get_payload(h))->error;
}

/* All of it in one child, as a sandbox has it. */
static int try_whole(void)
{
	int r = try_overlay();

	if (r == 0)
		r = try_proc();
	if (r == 0)
		r = try_nftables();
	return r ? r : try_attributes();
}

/* 0 or an errno, and a note of what is no error. */
static int take_plain(struct nsbox_host *h, int r)
{
	h->plain_tmpfs |= r == PLAIN_TMPFS;
	return r == PLAIN_TMPFS ? 0 : r;
}

static bool try_seccomp(void)
{
	uint32_t kill = SECCOMP_RET_KILL_PROCESS, errnum = SECCOMP_RET_ERRNO;

	return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &kill) == 0 &&
	       syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &errnum) == 0;
}

/* ------------------------------------------------------------------ the probe */

static const struct {
	int layer;
	uint64_t flag;
} namespaces[] = {
	{ NSBOX_LAYER_USER, CLONE_NEWUSER },	    { NSBOX_LAYER_MOUNT, CLONE_NEWNS },
	{ NSBOX_LAYER_PID, CLONE_NEWPID },	    { NSBOX_LAYER_NET, CLONE_NEWNET },
	{ NSBOX_LAYER_IPC, CLONE_NEWIPC },	    { NSBOX_LAYER_UTS, CLONE_NEWUTS },
	{ NSBOX_LAYER_CGROUP_NS, CLONE_NEWCGROUP },
};

uint64_t host_namespace_flags(uint32_t layers)
{
	uint64_t flags = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(namespaces); i++)
		if (layers & NSBOX_LAYER_BIT(namespaces[i].layer))
			flags |= namespaces[i].flag;
	return flags;
}

static uint64_t effective_caps(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	if (syscall(SYS_capget, &head, data) < 0)
		return 0;
	return (uint64_t)data[1].effective << 32 | data[0].effective;
}

int host_ids_kind(void)
{
	const uint64_t need = 1ULL << CAP_SETUID | 1ULL << CAP_SETGID;

	return (effective_caps() & need) == need ? NSBOX_IDS_PRIVILEGED : NSBOX_IDS_SINGLE;
}

static void probe_landlock(struct nsbox_host *h)
{
	int abi = sys_landlock_create_ruleset(NULL, 0, 1 /* LANDLOCK_CREATE_RULESET_VERSION */);

	h->landlock_abi = abi > 0 ? abi : 0;
	h->landlock_errno = abi > 0 ? 0 : errno;
}

/* Now, because who asks for the remedy may be a worker that can open nothing, and is filtered itself. */
static uint32_t userns_setting(void)
{
	static const struct {
		const char *path;
		char forbids;
		uint32_t setting;
	} settings[] = {
		{ "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", '1',
		  NSBOX_USERNS_APPARMOR },
		{ "/proc/sys/kernel/unprivileged_userns_clone", '0', NSBOX_USERNS_CLONE },
	};
	char v[16];

	for (unsigned i = 0; i < ARRAY_SIZE(settings); i++)
		if (read_small_file(AT_FDCWD, settings[i].path, v, sizeof(v)) > 0 &&
		    v[0] == settings[i].forbids)
			return settings[i].setting;
	return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 2 ? NSBOX_USERNS_FILTERED : NSBOX_USERNS_OPEN;
}

/* What there is, one after the other: which of them is missing, and why. */
static void probe_each(struct nsbox_host *h)
{
	h->userns_errno = try_in(CLONE_NEWUSER, (int)h->ids_kind, NULL);
	if (h->userns_errno) {
		h->userns_setting = userns_setting();
		return;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(namespaces); i++)
		if (try_in(CLONE_NEWUSER | namespaces[i].flag, (int)h->ids_kind, NULL) == 0)
			h->namespaces |= NSBOX_LAYER_BIT(namespaces[i].layer);
	h->overlay_errno = take_plain(
		h, try_in(CLONE_NEWUSER | CLONE_NEWNS, (int)h->ids_kind, try_whole_overlay));
	h->proc_errno =
		try_in(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID, (int)h->ids_kind, try_proc);
	h->nftables_errno = try_in(CLONE_NEWUSER | CLONE_NEWNET, (int)h->ids_kind, try_nftables);
}

/*
 * Nearly always everything is there, and every command asks: one child tries it all, where each
 * feature by itself takes eleven. Only where that one fails does each get its own.
 */
static void probe_namespaces(struct nsbox_host *h)
{
	uint32_t all = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(namespaces); i++)
		all |= NSBOX_LAYER_BIT(namespaces[i].layer);
	if (take_plain(h, try_in(host_namespace_flags(all), (int)h->ids_kind, try_whole)) == 0)
		h->namespaces = all;
	else
		probe_each(h);
	if (h->userns_errno)
		return;
	h->overlay_userns = h->overlay_errno == 0;
	h->proc_mountable = h->proc_errno == 0;
	h->nftables = h->nftables_errno == 0;
}

int nsbox_host_probe(struct nsbox_host *ret, struct nsbox_error *err)
{
	struct nsbox_host h = { 0 };
	struct utsname uts;
	cpu_set_t cpus;

	if (uname(&uts) < 0 || sched_getaffinity(0, sizeof(cpus), &cpus) < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_PROBE, NSBOX_E_IO, errno, "probe the host");
	nsbox_format(h.kernel, sizeof(h.kernel), "%s", uts.release);
	nsbox_format(h.machine, sizeof(h.machine), "%s", uts.machine);
	h.cpus = CPU_COUNT(&cpus);
	h.cap_effective = effective_caps();
	h.ids_kind = (uint32_t)host_ids_kind();
	h.seccomp_filter = try_seccomp();
	probe_landlock(&h);
	probe_namespaces(&h);
	cgroup_probe(&h);
	*ret = h;
	return 0;
}

/* ------------------------------------------------------------------ judgement */

uint32_t nsbox_host_layers(const struct nsbox_host *h)
{
	uint32_t layers = h->namespaces | NSBOX_LAYER_BIT(NSBOX_LAYER_NO_NEW_PRIVS) |
			  NSBOX_LAYER_BIT(NSBOX_LAYER_CAPABILITIES);
	const struct {
		bool there;
		int layer;
	} rest[] = {
		{ h->namespaces & NSBOX_LAYER_BIT(NSBOX_LAYER_MOUNT), NSBOX_LAYER_ROOT },
		{ h->overlay_userns, NSBOX_LAYER_OVERLAY },
		{ h->proc_mountable, NSBOX_LAYER_PROC },
		{ h->seccomp_filter, NSBOX_LAYER_SECCOMP },
		{ h->seccomp_filter, NSBOX_LAYER_WITNESS },
		{ h->landlock_abi >= 1, NSBOX_LAYER_LANDLOCK_FS },
		{ h->landlock_abi >= 4, NSBOX_LAYER_LANDLOCK_TCP },
		{ h->landlock_abi >= 6, NSBOX_LAYER_LANDLOCK_SCOPES },
		{ h->nftables, NSBOX_LAYER_NFTABLES },
		{ h->cgroup_memory && h->cgroup_pids && h->cgroup_cpu, NSBOX_LAYER_CGROUP },
		{ h->ids_kind == NSBOX_IDS_PRIVILEGED, NSBOX_LAYER_OWN_ID },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(rest); i++)
		if (rest[i].there)
			layers |= NSBOX_LAYER_BIT(rest[i].layer);
	return layers;
}

int nsbox_host_tier(const struct nsbox_host *h)
{
	uint32_t have = nsbox_host_layers(h);

	for (int i = 0; i < NSBOX_LAYER_MAX; i++)
		if (nsbox_layer_default(i) == NSBOX_REQUIRE && !(have & NSBOX_LAYER_BIT(i)))
			return h->seccomp_filter && h->landlock_abi >= 1 ? NSBOX_TIER_PROCESS
									 : NSBOX_TIER_NONE;
	return have & NSBOX_LAYER_BIT(NSBOX_LAYER_CGROUP) ? NSBOX_TIER_CGROUP
							  : NSBOX_TIER_NAMESPACE;
}

static const char *const tiers[] = {
	[NSBOX_TIER_NONE] = "none",
	[NSBOX_TIER_PROCESS] = "process",
	[NSBOX_TIER_NAMESPACE] = "namespace",
	[NSBOX_TIER_CGROUP] = "cgroup",
};

const char *nsbox_tier_name(int tier)
{
	return tier >= 0 && tier <= NSBOX_TIER_CGROUP ? tiers[tier] : "unknown";
}

/* ------------------------------------------------------------------ remedies */

/* A filter that we did not load is a container's: its refusals look like those of an old kernel. */
static const char *userns_remedy(const struct nsbox_host *h, char *buf, int size)
{
	const char *why = strerrordesc_np(h->userns_errno);

	if (h->ids_kind == NSBOX_IDS_SINGLE && (geteuid() == 0 || getegid() == 0))
		nsbox_format(
			buf, size,
			"root needs CAP_SETUID and CAP_SETGID, or run as an ordinary user (%s)",
			why);
	else if (h->userns_errno == ENOSPC)
		nsbox_format(buf, size,
			     "raise the limit: sysctl -w user.max_user_namespaces=15000 (%s)", why);
	else if (h->userns_setting == NSBOX_USERNS_APPARMOR)
		nsbox_format(
			buf, size,
			"AppArmor restricts user namespaces: sysctl -w "
			"kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile "
			"for nsbox with `userns,` (%s)",
			why);
	else if (h->userns_setting == NSBOX_USERNS_CLONE)
		nsbox_format(buf, size, "sysctl -w kernel.unprivileged_userns_clone=1 (%s)", why);
	else if (h->userns_setting == NSBOX_USERNS_FILTERED)
		nsbox_format(buf, size,
			     "the container's seccomp profile refuses namespaces: docker run "
			     "--security-opt seccomp=PROFILE, one that allows clone3, clone and "
			     "unshare with CLONE_NEW*, mount, umount2, pivot_root and the mount "
			     "calls since fsopen, or seccomp=unconfined; where the host has "
			     "AppArmor, --security-opt apparmor=unconfined as well (%s)",
			     why);
	else if (h->userns_errno == ENOSYS)
		nsbox_format(buf, size, "clone3 is missing: needs Linux 5.9 (%s)", why);
	else
		nsbox_format(
			buf, size,
			"in a container: --security-opt seccomp=PROFILE with namespaces allowed "
			"and --security-opt apparmor=unconfined; else CONFIG_USER_NS (%s)",
			why);
	return buf;
}

static const char *landlock_remedy(const struct nsbox_host *h, int layer, char *buf, int size)
{
	if (h->landlock_errno == EOPNOTSUPP)
		nsbox_format(buf, size,
			     "Landlock is built in and off: add landlock to lsm= on the kernel "
			     "command line");
	else if (h->landlock_errno == EPERM)
		nsbox_format(
			buf, size,
			"the kernel has Landlock, a filter around us does not: in a container, "
			"--security-opt seccomp=PROFILE that allows landlock_create_ruleset, "
			"landlock_add_rule and landlock_restrict_self");
	else if (h->landlock_errno)
		nsbox_format(buf, size, "needs Linux 5.13 with CONFIG_SECURITY_LANDLOCK (%s)",
			     strerrordesc_np(h->landlock_errno));
	else
		nsbox_format(buf, size, "needs Landlock ABI %d (Linux %s); this kernel has %d",
			     layer == NSBOX_LAYER_LANDLOCK_TCP ? 4 : 6,
			     layer == NSBOX_LAYER_LANDLOCK_TCP ? "6.7" : "6.12", h->landlock_abi);
	return buf;
}

/* Layers that are made inside the user namespace. */
static const uint32_t in_userns =
	NSBOX_LAYER_BIT(NSBOX_LAYER_USER) | NSBOX_LAYER_BIT(NSBOX_LAYER_MOUNT) |
	NSBOX_LAYER_BIT(NSBOX_LAYER_PID) | NSBOX_LAYER_BIT(NSBOX_LAYER_NET) |
	NSBOX_LAYER_BIT(NSBOX_LAYER_IPC) | NSBOX_LAYER_BIT(NSBOX_LAYER_UTS) |
	NSBOX_LAYER_BIT(NSBOX_LAYER_CGROUP_NS) | NSBOX_LAYER_BIT(NSBOX_LAYER_ROOT) |
	NSBOX_LAYER_BIT(NSBOX_LAYER_OVERLAY) | NSBOX_LAYER_BIT(NSBOX_LAYER_PROC) |
	NSBOX_LAYER_BIT(NSBOX_LAYER_NFTABLES);

const char *nsbox_host_remedy(const struct nsbox_host *h, int layer, char *buf, int size)
{
	if (layer < 0 || layer >= NSBOX_LAYER_MAX ||
	    (nsbox_host_layers(h) & NSBOX_LAYER_BIT(layer)))
		return NULL;
	/* What was not even tried for want of a user namespace needs that first. */
	if (h->userns_errno && (NSBOX_LAYER_BIT(layer) & in_userns))
		return userns_remedy(h, buf, size);
	switch ((enum nsbox_layer)layer) {
	case NSBOX_LAYER_USER:
	case NSBOX_LAYER_MOUNT:
	case NSBOX_LAYER_PID:
	case NSBOX_LAYER_NET:
	case NSBOX_LAYER_IPC:
	case NSBOX_LAYER_UTS:
	case NSBOX_LAYER_CGROUP_NS:
	case NSBOX_LAYER_ROOT:
		nsbox_format(buf, size, "the kernel lacks this namespace (CONFIG_NAMESPACES)");
		return buf;
	case NSBOX_LAYER_OVERLAY:
		nsbox_format(buf, size,
			     "needs CONFIG_OVERLAY_FS (modprobe overlay), Linux 5.11 for user "
			     "namespaces and 6.6 for an upper layer on tmpfs (%s)",
			     strerrordesc_np(h->overlay_errno));
		return buf;
	case NSBOX_LAYER_PROC:
		if (h->userns_errno)
			return userns_remedy(h, buf, size);
		nsbox_format(
			buf, size,
			"paths of the host's /proc are covered; in a container: --security-opt "
			"systempaths=unconfined (%s)",
			strerrordesc_np(h->proc_errno));
		return buf;
	case NSBOX_LAYER_LANDLOCK_FS:
	case NSBOX_LAYER_LANDLOCK_TCP:
	case NSBOX_LAYER_LANDLOCK_SCOPES: return landlock_remedy(h, layer, buf, size);
	case NSBOX_LAYER_NFTABLES:
		if (h->userns_errno)
			return userns_remedy(h, buf, size);
		nsbox_format(buf, size,
			     "needs CONFIG_NF_TABLES and NF_TABLES_INET: modprobe "
			     "nf_tables (%s)",
			     strerrordesc_np(h->nftables_errno));
		return buf;
	case NSBOX_LAYER_CGROUP:
		nsbox_format(buf, size,
			     "%s; run as root, or as a systemd service with Delegate=yes, or mount "
			     "the control groups writable",
			     h->cgroup_note);
		return buf;
	case NSBOX_LAYER_SECCOMP:
	case NSBOX_LAYER_WITNESS: return "needs CONFIG_SECCOMP_FILTER";
	case NSBOX_LAYER_OWN_ID:
		return "needs CAP_SETUID and CAP_SETGID, as nsboxd has them when it is started by "
		       "root";
	case NSBOX_LAYER_NO_NEW_PRIVS:
	case NSBOX_LAYER_CAPABILITIES:
	case NSBOX_LAYER_MAX: break;
	}
	return "not available";
}
