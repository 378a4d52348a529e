/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this host can do. Every feature is tried, not guessed from version numbers: a namespace
 * counts as available if a child could be created in it just now.
 */
#ifndef NSBOX_HOST_H
#define NSBOX_HOST_H

#include <nsbox/error.h>
#include <nsbox/layer.h>
#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(default)

enum nsbox_cgroup_kind { NSBOX_CGROUP_NONE, NSBOX_CGROUP_V1, NSBOX_CGROUP_V2 };
enum nsbox_ids_kind {
	NSBOX_IDS_SINGLE,     /* no privilege: the payload is the caller's own id */
	NSBOX_IDS_PRIVILEGED, /* CAP_SETUID and CAP_SETGID: image block + an id per sandbox */
};
/* What forbids user namespaces here; NSBOX_USERNS_OPEN: nothing that is known. */
enum nsbox_userns_setting {
	NSBOX_USERNS_OPEN,
	NSBOX_USERNS_APPARMOR, /* kernel.apparmor_restrict_unprivileged_userns */
	NSBOX_USERNS_CLONE,    /* kernel.unprivileged_userns_clone */
	NSBOX_USERNS_FILTERED, /* whoever probed is under a system call filter: a container's */
};
enum nsbox_tier { NSBOX_TIER_NONE, NSBOX_TIER_PROCESS, NSBOX_TIER_NAMESPACE, NSBOX_TIER_CGROUP };

struct nsbox_host {
	char kernel[65];	 /* uname release */
	char machine[65];	 /* uname machine */
	int32_t landlock_abi;	 /* 0: not there */
	int32_t landlock_errno;	 /* why not: ENOSYS (not built), EOPNOTSUPP (off at boot) */
	uint32_t namespaces;	 /* NSBOX_LAYER_BIT of USER .. CGROUP_NS that could be created */
	int32_t userns_errno;	 /* why no user namespace could be created, or 0 */
	uint32_t userns_setting; /* enum nsbox_userns_setting, read where there is an errno */
	bool overlay_userns; /* overlay with userxattr on a tmpfs upper mounts in a user namespace */
	int32_t overlay_errno;
	bool plain_tmpfs; /* a tmpfs keeps no user.* attributes (before Linux 6.6), which overlayfs needs */
	bool proc_mountable; /* a fresh procfs mounts in a user + pid namespace */
	int32_t proc_errno;
	bool nftables; /* a table can be made in a fresh network namespace */
	int32_t nftables_errno;
	bool seccomp_filter;  /* SECCOMP_SET_MODE_FILTER with KILL_PROCESS and ERRNO */
	uint32_t cgroup_kind; /* enum nsbox_cgroup_kind, only where writable */
	bool cgroup_memory, cgroup_pids, cgroup_cpu;
	char cgroup_note[160]; /* why there are none, for people */
	uint32_t ids_kind;     /* enum nsbox_ids_kind */
	int32_t cpus;	       /* CPUs this process may run on */
	uint64_t cap_effective;
};

/*
 * Probe once, at start; takes some milliseconds (it forks children into namespaces) and needs a
 * process without threads. Fails only where it could not be carried out at all.
 */
int nsbox_host_probe(struct nsbox_host *ret, struct nsbox_error *err);

/* Layers this host can give (bit set), of all in layer.h. */
uint32_t nsbox_host_layers(const struct nsbox_host *host);
/* Highest tier all of whose required layers the host can give. */
int nsbox_host_tier(const struct nsbox_host *host);
const char *nsbox_tier_name(int tier); /* "process", ... */
/* Why a layer is missing and what gives it: static or in buf; NULL if the layer is there. */
const char *nsbox_host_remedy(const struct nsbox_host *host, int layer, char *buf, int size);

#pragma GCC visibility pop

#endif
