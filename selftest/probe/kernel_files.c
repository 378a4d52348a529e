/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of /proc, /sys and /dev (C of the catalogue). */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "selftest/probe/probe.h"

/* Opened, never written to. */
static const char *first_writable(const char *const *paths, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int fd = open(paths[i], O_WRONLY | O_CLOEXEC);

		if (fd >= 0) {
			close(fd);
			return paths[i];
		}
	}
	return NULL;
}

void probe_C02_kernel_files(const struct probe *p)
{
	static const char *const write[] = {
		"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger",
		"/sys/kernel/uevent_helper",	 "/proc/sys/fs/binfmt_misc/register",
		"/proc/sys/kernel/modprobe",	 "/proc/sys/vm/overcommit_memory",
	};
	static const char *const read[] = {
		"/proc/kcore",
		"/proc/kallsyms",
		"/proc/keys",
		"/proc/timer_list",
		"/proc/config.gz",
		"/proc/modules",
		"/proc/interrupts",
		"/proc/slabinfo",
		"/proc/vmallocinfo",
		"/sys/kernel/uevent_seqnum",
		"/sys/kernel/profiling",
		"/sys/class/dmi/id/sys_vendor",
		"/sys/firmware/memmap/0/start",
		"/sys/module/kernel/parameters/panic",
	};
	const char *found = first_writable(write, ARRAY_SIZE(write));
	char byte[2];

	if (found)
		escaped("%s can be written", found);
	for (size_t i = 0; i < ARRAY_SIZE(read); i++)
		if (slurp(read[i], byte, sizeof(byte)) > 0)
			escaped("%s can be read", read[i]);
	held("proc", "%zu files to write, %zu to read: none", ARRAY_SIZE(write), ARRAY_SIZE(read));
}

void probe_C05_cgroup_files(const struct probe *p)
{
	static const char *const paths[] = { "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory",
					     "/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified",
					     "/sys/fs/cgroup/cgroup.controllers" };

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		if (access(paths[i], F_OK) == 0)
			escaped("%s is there", paths[i]);
	if (p->control)
		skip("this host shows no control groups");
	held("root", "no file of a control group is there");
}

static bool is_known_node(const char *name)
{
	static const char *const known[] = { "null", "zero", "full",  "random", "urandom",
					     "tty",  "fd",   "stdin", "stdout", "stderr",
					     "ptmx", "pts",  "shm" };

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (!strcmp(name, known[i]))
			return true;
	return *name == '.';
}

/* Where /dev is the host's, and cannot be listed. */
static void try_nodes(void)
{
	static const char *const nodes[] = { "/dev/mem",	  "/dev/kmsg", "/dev/kvm",
					     "/dev/fuse",	  "/dev/ptmx", "/dev/net/tun",
					     "/dev/loop-control", "/dev/vda",  "/dev/sda",
					     "/dev/nvme0n1" };

	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++)
		if (open(nodes[i], O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) >= 0)
			escaped("%s can be opened", nodes[i]);
	held("landlockFs", "/dev cannot be listed, and none of %zu nodes be opened",
	     ARRAY_SIZE(nodes));
}

void probe_C07_devices(const struct probe *p)
{
	DIR *dir = opendir("/dev");
	struct dirent *e;

	if (!dir && errno == EACCES)
		try_nodes();
	if (!dir)
		skip("/dev: %s", errname(errno));
	while ((e = readdir(dir)))
		if (!is_known_node(e->d_name))
			escaped("/dev/%s is there", e->d_name);
	closedir(dir);
	held("root", "no node but those of the list");
}

void probe_C07_terminals(const struct probe *p)
{
	struct stat st;
	char own[32];

	if (stat("/dev/pts", &st) < 0)
		skip("/dev/pts: %s", errname(errno));
	snprintf(own, sizeof(own), "%lu", (unsigned long)st.st_dev);
	if (!strcmp(own, fact(p, "devpts"))) {
		if (opendir("/dev/pts") || open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC) >= 0)
			escaped("/dev/pts is the host's");
		judge("landlockFs", "/dev/pts, /dev/ptmx", -1, (const int[]){ EACCES, 0 });
	}
	if (open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC) < 0)
		skip("/dev/ptmx: %s", errname(errno));
	held("root", "/dev/pts is another one");
}

void probe_C08_new_proc(const struct probe *p)
{
	mkdir(place("/tmp/.p"), 0755);
	if (syscall(SYS_fsopen, "proc", 0) >= 0)
		escaped("fsopen: done");
	if (errno != EPERM && errno != ENOSYS)
		escaped("fsopen: %s", errname(errno));
	JUDGE("seccomp", "mount of proc", mount("proc", place("/tmp/.p"), "proc", 0, NULL), EPERM,
	      ENOSYS);
}

void probe_C09_own_proc(const struct probe *p)
{
	static const char *const paths[] = {
		"/proc/self/uid_map",	      "/proc/self/gid_map", "/proc/self/setgroups",
		"/proc/self/oom_score_adj",   "/proc/self/mem",	    "/proc/self/attr/current",
		"/proc/self/coredump_filter", "/proc/self/comm",    "/proc/self/clear_refs",
	};
	const char *found = first_writable(paths, ARRAY_SIZE(paths));

	if (access("/proc/self", F_OK) < 0)
		skip("there is no /proc");
	if (found)
		escaped("%s can be written", found);
	held("proc", "none of %zu files can be written", ARRAY_SIZE(paths));
}

/* Of other users: processes that are neither we nor below our init. */
void probe_C10_neighbours(const struct probe *p)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;
	int n = 0;

	while (dir && (e = readdir(dir)))
		n += isdigit((unsigned char)*e->d_name) &&
		     strtol(e->d_name, NULL, 10) != getpid() && strtol(e->d_name, NULL, 10) != 1;
	if (dir)
		closedir(dir);
	if (n)
		escaped("%d processes of others are seen", n);
	held("proc", "no process but init and this one is seen");
}

/* What is behind them, seen or not. */
void probe_C10_links(const struct probe *p)
{
	static const char *const names[] = { "mem", "environ", "fd/0", "root/.", "cwd/.", "exe" };
	char path[64];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "/proc/%ld/%s", fact_number(p, "decoy"), names[i]);
		if (open(path, O_RDONLY | O_CLOEXEC) >= 0)
			escaped("%s can be opened", path);
		if (errno != ENOENT && errno != EACCES && errno != EPERM)
			escaped("%s: %s", path, errname(errno));
	}
	held(errno == ENOENT ? "pid" : "landlockFs", "%zu files of a process of the host: %s",
	     ARRAY_SIZE(names), errname(errno));
}

void probe_C11_sysctl(const struct probe *p)
{
	static const char *const paths[] = {
		"/proc/sys/net/ipv4/ip_unprivileged_port_start",
		"/proc/sys/net/ipv4/conf/lo/forwarding",
		"/proc/sys/user/max_user_namespaces",
		"/proc/sys/kernel/msgmax",
	};
	const char *found = first_writable(paths, ARRAY_SIZE(paths));

	if (access("/proc/sys/user", F_OK) < 0)
		skip("there is no /proc/sys");
	if (found)
		escaped("%s can be written", found);
	held("proc", "none of %zu files can be written", ARRAY_SIZE(paths));
}
