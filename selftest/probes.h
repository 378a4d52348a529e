/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probes: one row per attack that a payload can try. The row is the whole description; the deed
 * is a function of the same name in selftest/probe/, in the program nsbox-probe.
 *
 * A probe says HELD, ESCAPED or SKIP. Each is tried twice: in a sandbox, where it has to say HELD,
 * and where the act is allowed, its control, where it has to say ESCAPED. A probe that does not is
 * broken: it would say HELD of anything.
 *
 * Columns: name; id, which begins with that of docs/THREAT-MODEL.md's catalogue; what is tried; the
 * layers that refuse it, each of them enough (0: not one of the table, see `by`); where its control
 * runs; how it is run; what has to be seen.
 */
#ifndef SELFTEST_PROBES_H
#define SELFTEST_PROBES_H

#include <nsbox/layer.h>

/* Where the control runs: as the caller, doing nothing but looking; or in a stand-in for a host,
 * namespaces and file systems of its own that are thrown away. */
enum probe_control { AS_CALLER, IN_STANDIN };

enum probe_flags {
	PF_TWICE = 1 << 0,	/* the second of two runs is judged: what does the first leave? */
	PF_DECOY = 1 << 1,	/* escaped, too, where the decoy process does not outlive it */
	PF_SMALL = 1 << 2,	/* with small limits, which it tries to pass */
	PF_MEMORY = 1 << 3,	/* ended by the memory limit: held */
	PF_WALL_TIME = 1 << 4,	/* ended by the time limit: held */
	PF_CGROUP = 1 << 5,	/* only where control groups carry the limits */
	PF_NO_PTRACE = 1 << 6,	/* only where the policy leaves no debugging */
	PF_NO_MEMFD = 1 << 7,	/* only where the policy leaves no programs in memory */
	PF_NO_NETWORK = 1 << 8, /* only where the policy leaves no network */
	PF_RESULT = 1 << 9,	/* judged by the run's result alone, nothing is tried inside */
	PF_RANGE = 1 << 10,	/* only where ids are a range: with one id, runs share it */
	PF_NEIGHBOUR = 1 << 11, /* while a second run of the same probe does its worst */
	PF_PIDS = 1 << 12,	/* ended by the limit of processes: held */
};

#define LB(x) NSBOX_LAYER_BIT(NSBOX_LAYER_##x)

/* clang-format off */
#define SELFTEST_PROBES(X) \
	X(A02_id_map, "A02", "ids inside are ids of the host", LB(USER), AS_CALLER, 0, \
	  "uid_map and gid_map lead to no id of root or, with a range, of the owner") \
	X(A03_shared_account, "A03", "use up what the kernel counts per user, for a neighbour", LB(USER), IN_STANDIN, \
	  PF_RANGE | PF_NEIGHBOUR, "a pipe of full size while the neighbour holds all that its id may") \
	X(A04_user_namespace, "A04", "make a user namespace, to be root in it", LB(SECCOMP) | LB(USER), IN_STANDIN, 0, \
	  "EPERM from the filter; ENOSPC from the namespace's own maximum behind it") \
	X(A06_ns_user, "A06-user", "share the host's user namespace", LB(USER), AS_CALLER, 0, "another namespace") \
	X(A06_ns_mnt, "A06-mount", "share the host's mount namespace", LB(MOUNT), AS_CALLER, 0, "another namespace") \
	X(A06_ns_pid, "A06-pid", "share the host's pid namespace", LB(PID), AS_CALLER, 0, "another namespace") \
	X(A06_ns_net, "A06-net", "share the host's network namespace", LB(NET), AS_CALLER, 0, "another namespace") \
	X(A06_ns_ipc, "A06-ipc", "share the host's message queues", LB(IPC), AS_CALLER, 0, "another namespace") \
	X(A06_ns_uts, "A06-uts", "share the host's name", LB(UTS), AS_CALLER, 0, "another namespace") \
	X(A06_ns_cgroup, "A06-cgroup", "share the host's view of the control groups", LB(CGROUP_NS), AS_CALLER, 0, \
	  "another namespace") \
	X(A06_setns, "A06-setns", "enter a namespace", LB(SECCOMP) | LB(CAPABILITIES), IN_STANDIN, 0, "EPERM, ENOSYS") \
	X(A09_kill_all, "A09", "kill init and everything there is", LB(PID) | LB(LANDLOCK_SCOPES), IN_STANDIN, PF_DECOY, \
	  "a process of the host lives on, and the run's end is reported") \
	X(A10_sigio, "A10", "have the kernel signal a process of the host (F_SETOWN)", \
	  LB(PID) | LB(LANDLOCK_SCOPES), IN_STANDIN, PF_DECOY, "a process of the host lives on") \
	X(A13_zombies, "A13", "leave dead children to nobody", LB(PID), IN_STANDIN, 0, "init reaps them") \
	X(A15_init, "A15", "read init's memory, environment, descriptors, root", \
	  LB(USER) | LB(CAPABILITIES), IN_STANDIN, 0, "EACCES, EPERM, ENOENT") \
	X(B02_descriptors, "B02", "use a descriptor of the owner's", 0, AS_CALLER, 0, "0, 1, 2 and no other") \
	X(B04_host_file, "B04", "read a file of the host by its path", LB(ROOT), AS_CALLER, 0, "ENOENT") \
	X(B07_chroot, "B07", "leave the root by chroot and fchdir", LB(SECCOMP) | LB(CAPABILITIES), IN_STANDIN, 0, "EPERM") \
	X(B11_write_usr, "B11-write", "write into the image", LB(ROOT) | LB(LANDLOCK_FS), IN_STANDIN, 0, "EROFS, EACCES") \
	X(B11_remount, "B11-remount", "make the image writable again", \
	  LB(SECCOMP) | LB(CAPABILITIES) | LB(LANDLOCK_FS), IN_STANDIN, 0, "EPERM, ENOSYS") \
	X(B13_setuid_file, "B13", "leave a set-user-id program", LB(ROOT), IN_STANDIN, 0, \
	  "every place that can be written is nosuid") \
	X(B21_init_exe, "B21", "open the program of init", LB(USER) | LB(CAPABILITIES), IN_STANDIN, 0, "EACCES, ENOENT") \
	X(B22_whiteout, "B22", "make nodes and attributes that mean something to overlayfs", \
	  LB(SECCOMP) | LB(CAPABILITIES), IN_STANDIN, 0, "EPERM") \
	X(B23_overlay, "B23", "mount an overlay; open /dev/fuse", \
	  LB(SECCOMP) | LB(CAPABILITIES) | LB(LANDLOCK_FS), IN_STANDIN, 0, "EPERM; ENOENT") \
	X(B24_immutable, "B24", "make a file that nobody can remove", LB(SECCOMP), IN_STANDIN, 0, "EPERM") \
	X(B25_leftovers, "B25-files", "find what an earlier run left", LB(OVERLAY), IN_STANDIN, PF_TWICE, \
	  "nothing in any place that can be written") \
	X(B25_mount_table, "B25-paths", "read paths of the host in the mount table", LB(ROOT) | LB(PROC), IN_STANDIN, 0, \
	  "no directory of the owner's") \
	X(C02_kernel_files, "C02", "read or write what the kernel tells in /proc and /sys", \
	  LB(PROC) | LB(ROOT), AS_CALLER, 0, "EROFS, EACCES, ENOENT, or empty") \
	X(C05_cgroup_files, "C05", "leave the control group", LB(ROOT), AS_CALLER, 0, "ENOENT") \
	X(C07_devices, "C07-nodes", "open devices", LB(ROOT), AS_CALLER, 0, "the nodes of the list and no other") \
	X(C07_terminals, "C07-ptmx", "reach the host's terminals", LB(ROOT), AS_CALLER, 0, "a devpts of its own") \
	X(C08_new_proc, "C08", "mount another /proc", \
	  LB(SECCOMP) | LB(CAPABILITIES) | LB(LANDLOCK_FS), IN_STANDIN, 0, "EPERM, ENOSYS") \
	X(C09_own_proc, "C09", "write own id maps, attributes, memory in /proc", LB(PROC), AS_CALLER, 0, "EROFS") \
	X(C10_neighbours, "C10", "see processes of others in /proc", LB(PROC) | LB(PID), AS_CALLER, 0, "none") \
	X(C10_links, "C10-links", "read memory, variables, descriptors of a process of the host", \
	  LB(PID) | LB(PROC) | LB(LANDLOCK_FS), AS_CALLER, 0, "ENOENT, EACCES") \
	X(C11_sysctl, "C11", "set what the own namespaces are like", LB(PROC), IN_STANDIN, 0, "EROFS") \
	X(D01_new_calls, "D01", "make calls the filter does not know", LB(SECCOMP), AS_CALLER, 0, \
	  "ENOSYS for each, so that programs fall back") \
	X(D04_foreign_arch, "D04", "make calls of another architecture", LB(SECCOMP), AS_CALLER, 0, "SIGSYS") \
	X(D06_terminal_ioctl, "D06", "type into a terminal", LB(SECCOMP), AS_CALLER, 0, "EPERM") \
	X(D09_io_uring, "D09", "make an io_uring", LB(SECCOMP), AS_CALLER, 0, "ENOSYS") \
	X(D10_helpers, "D10", "userfaultfd, bpf, perf events, fanotify", LB(SECCOMP), AS_CALLER, 0, "EPERM, ENOSYS") \
	X(D11_trace, "D11", "trace or read another process", LB(SECCOMP), AS_CALLER, PF_NO_PTRACE, "EPERM") \
	X(D13_mount_family, "D13", "the mount calls, old and new", LB(SECCOMP) | LB(CAPABILITIES), IN_STANDIN, 0, \
	  "EPERM, ENOSYS") \
	X(D15_kernel_calls, "D15", "calls that change or read the kernel", LB(SECCOMP), AS_CALLER, 0, "EPERM, ENOSYS") \
	X(D17_families, "D17", "sockets of rare families", LB(SECCOMP), IN_STANDIN, 0, "EAFNOSUPPORT, EPERM") \
	X(D19_page_cache, "D19", "vmsplice, splice, tee", LB(SECCOMP), AS_CALLER, 0, "EPERM, ENOSYS") \
	X(D20_flags, "D20", "MAP_GROWSDOWN, MSG_OOB, SIOCATMARK", LB(SECCOMP), AS_CALLER, 0, "EPERM") \
	X(D21_memfd_exec, "D21", "run a program that is in memory only", LB(SECCOMP), AS_CALLER, PF_NO_MEMFD, "EACCES, EPERM") \
	X(D23_raw_call, "D23", "make a call without the C library", LB(SECCOMP), IN_STANDIN, 0, "EPERM, as with it") \
	X(D24_threads, "D24", "run a thread without a filter", LB(SECCOMP), AS_CALLER, 0, "filtered in each") \
	X(E01_unlisted, "E01", "read a file outside the Landlock rules", LB(LANDLOCK_FS), AS_CALLER, 0, "EACCES") \
	X(E03_beyond_tcp, "E03", "MPTCP, TCP Fast Open", LB(SECCOMP), IN_STANDIN, 0, "EPROTONOSUPPORT, EPERM") \
	X(E04_abstract, "E04-abstract", "connect to an abstract socket of the host", \
	  LB(NET) | LB(LANDLOCK_SCOPES), AS_CALLER, 0, "EPERM, ECONNREFUSED") \
	X(E04_pathname, "E04-path", "connect to a socket of the host by its path", LB(ROOT), AS_CALLER, 0, "ENOENT") \
	X(E05_attributes, "E05", "what Landlock does not see: modes, times, attributes", LB(ROOT), IN_STANDIN, 0, "EROFS") \
	X(E06_signal, "E06", "signal a process of the host", LB(PID) | LB(LANDLOCK_SCOPES), IN_STANDIN, PF_DECOY, \
	  "ESRCH, EPERM") \
	X(E07_keyring, "E07", "use the kernel's keyrings", LB(SECCOMP), AS_CALLER, 0, "EPERM") \
	X(F02_no_new_privs, "F02", "gain privilege by execve", LB(NO_NEW_PRIVS), AS_CALLER, 0, "no_new_privs is set") \
	X(F03_capabilities, "F03", "hold or raise a capability", LB(CAPABILITIES), IN_STANDIN, 0, "all five sets are empty") \
	X(F06_network_setup, "F06", "change the network", LB(CAPABILITIES), IN_STANDIN, 0, "EPERM") \
	X(F07_groups, "F07", "gain by dropping a group", LB(USER), AS_CALLER, 0, "setgroups is denied, or there are none") \
	X(G01_interfaces, "G01-interfaces", "find a network", LB(NET), AS_CALLER, 0, "lo alone") \
	X(G01_loopback, "G01-loopback", "connect to a service on the host's loopback", LB(NET), AS_CALLER, 0, "ECONNREFUSED") \
	X(G04_special, "G04", "reach metadata services and private networks", \
	  LB(NET) | LB(NFTABLES), AS_CALLER, PF_NO_NETWORK, "refused at once") \
	X(G06_ipv6, "G06", "reach the same by IPv6", LB(NET) | LB(NFTABLES), AS_CALLER, PF_NO_NETWORK, "refused at once") \
	X(G14_options, "G14", "socket options that change routes or sources", LB(CAPABILITIES), IN_STANDIN, 0, "EPERM") \
	X(G17_daemon, "G17", "submit jobs to the daemon from inside", LB(ROOT), AS_CALLER, 0, "ENOENT") \
	X(H02_fork_bomb, "H02", "start processes until nothing else runs", 0, IN_STANDIN, PF_SMALL | PF_PIDS, \
	  "EAGAIN at the limit; or ended, cause pids") \
	X(H03_memory, "H03-heap", "take memory beyond the limit", 0, IN_STANDIN, PF_SMALL | PF_MEMORY, "ended, cause memory") \
	X(H05_memfd, "H05", "take memory where nobody counts: memfd", 0, IN_STANDIN, PF_SMALL | PF_MEMORY, \
	  "ended, cause memory, and the result is told") \
	X(H03_pipes, "H03-pipes", "take memory where nobody counts: pipes", LB(CGROUP), IN_STANDIN, \
	  PF_SMALL | PF_MEMORY | PF_CGROUP, "ended, cause memory") \
	X(H06_disk, "H06", "fill the disk", 0, IN_STANDIN, PF_SMALL, "ENOSPC, EFBIG at the limit") \
	X(H08_processor, "H08", "take processor time beyond the limit", LB(CGROUP), IN_STANDIN, PF_SMALL | PF_CGROUP, \
	  "a fifth of one for sixteen processes that want all") \
	X(H09_time, "H09", "outlast the time limit", 0, IN_STANDIN, PF_SMALL | PF_WALL_TIME, "ended, cause wallTime") \
	X(H11_descriptors, "H11-descriptors", "open descriptors without end", 0, IN_STANDIN, 0, "EMFILE at the limit") \
	X(H11_inotify, "H11-inotify", "use up the host's inotify instances", LB(PROC), AS_CALLER, 0, "EMFILE at 16") \
	X(I03_terminal, "I03", "take the caller's input or terminal", 0, AS_CALLER, 0, "end of input at once; ENXIO") \
	X(L05_forged_result, "L05", "write to descriptors that carry results", 0, AS_CALLER, 0, "EBADF") \
	X(M05_inherited, "M05", "inherit signals, masks, timers of the owner", 0, AS_CALLER, 0, "defaults") \
	X(W01_witness, "W01", "run without having been tried", LB(WITNESS), AS_CALLER, PF_RESULT, \
	  "the result lists the forbidden acts, all refused")
/* clang-format on */

#endif
