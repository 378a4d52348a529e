/* SPDX-License-Identifier: Apache-2.0 */
/* See calls.h. */
#include "policy/calls.h"

#include <linux/audit.h>
#include <linux/fs.h>
#include <linux/netlink.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "nsbox/util.h"
#include "policy/syscalls.h"

static const struct {
	uint32_t token, audit;
	const char *name;
} archs[] = {
	[SECCOMP_ARCH_X86_64] = { SCMP_ARCH_X86_64, AUDIT_ARCH_X86_64, "x86_64" },
	[SECCOMP_ARCH_ARM64] = { SCMP_ARCH_AARCH64, AUDIT_ARCH_AARCH64, "arm64" },
};

uint32_t call_audit_arch(enum seccomp_arch arch)
{
	return archs[arch].audit;
}

const char *call_arch_name(uint32_t audit_arch, char *buf, int size)
{
	for (size_t i = 0; i < ARRAY_SIZE(archs); i++)
		if (archs[i].audit == audit_arch)
			return archs[i].name;
	if (audit_arch == AUDIT_ARCH_I386)
		return "i386";
	if (audit_arch == AUDIT_ARCH_ARM)
		return "arm";
	nsbox_format(buf, size, "0x%x", audit_arch);
	return buf;
}

int call_number(const char *name, enum seccomp_arch arch)
{
	for (size_t i = 0; i < syscall_n_newer; i++)
		if (!strcmp(syscall_newer[i].name, name))
			return (int)syscall_newer[i].nr;
	return seccomp_syscall_resolve_name_arch(archs[arch].token, name);
}

const char *call_name(uint32_t nr, enum seccomp_arch arch, char *buf, int size)
{
	char *name;

	for (size_t i = 0; i < syscall_n_newer; i++)
		if (syscall_newer[i].nr == nr)
			return syscall_newer[i].name;
	if (nr > 0x7fffffffu)
		return NULL;
	name = seccomp_syscall_resolve_num_arch(archs[arch].token, (int)nr);
	if (!name)
		return NULL;
	nsbox_format(buf, size, "%s", name);
	free(name);
	return buf;
}

/* ------------------------------------------------------------------ constants */

/* clang-format off */
#define C(x) { #x, (uint64_t)(x) }
static const struct {
	const char *name;
	uint64_t value;
} constants[] = {
	C(SIGCHLD), C(SIGKILL), C(SIGTERM),
	C(CLONE_VM), C(CLONE_VFORK), C(CLONE_FS), C(CLONE_FILES), C(CLONE_SIGHAND), C(CLONE_THREAD),
	C(CLONE_SYSVSEM), C(CLONE_SETTLS), C(CLONE_NEWUSER), C(CLONE_NEWNS), C(CLONE_NEWPID),
	C(CLONE_NEWNET), C(CLONE_NEWIPC), C(CLONE_NEWUTS), C(CLONE_NEWCGROUP), C(CLONE_NEWTIME),
	C(AF_UNSPEC), C(AF_UNIX), C(AF_INET), C(AF_INET6), C(AF_NETLINK), C(AF_PACKET), C(AF_ALG),
	C(AF_VSOCK), C(AF_KEY), C(AF_RXRPC), C(AF_XDP), C(AF_BLUETOOTH), C(AF_CAN), C(AF_TIPC),
	C(SOCK_STREAM), C(SOCK_DGRAM), C(SOCK_RAW), C(SOCK_SEQPACKET), C(SOCK_CLOEXEC),
	C(SOCK_NONBLOCK), C(SOCK_PACKET),
	C(IPPROTO_TCP), C(IPPROTO_UDP), C(IPPROTO_ICMP), C(IPPROTO_ICMPV6), C(IPPROTO_SCTP),
	C(IPPROTO_MPTCP), C(IPPROTO_RAW),
	C(NETLINK_ROUTE), C(NETLINK_NETFILTER), C(NETLINK_XFRM), C(NETLINK_CRYPTO), C(NETLINK_AUDIT),
	C(NETLINK_KOBJECT_UEVENT), C(NETLINK_SOCK_DIAG), C(NETLINK_GENERIC),
	C(MSG_OOB), C(MSG_FASTOPEN), C(MSG_NOSIGNAL), C(MSG_DONTWAIT),
	C(TIOCSTI), C(TIOCLINUX), C(TIOCSETD), C(TIOCCONS), C(TIOCSCTTY), C(TIOCGWINSZ), C(TCGETS),
	C(FIONREAD), C(SIOCATMARK), C(FIFREEZE), C(FITHAW), C(FS_IOC_SETFLAGS),
	C(PR_SET_NAME), C(PR_SET_DUMPABLE), C(PR_SET_PDEATHSIG), C(PR_SET_NO_NEW_PRIVS),
	C(PR_SET_SECCOMP), C(PR_SET_MM), C(PR_SET_SECUREBITS), C(PR_SET_KEEPCAPS),
	C(PR_CAP_AMBIENT), C(PR_CAP_AMBIENT_RAISE), C(PR_SCHED_CORE), C(PR_CAPBSET_DROP),
	C(SECCOMP_SET_MODE_STRICT), C(SECCOMP_SET_MODE_FILTER), C(SECCOMP_FILTER_FLAG_TSYNC),
	C(SECCOMP_FILTER_FLAG_NEW_LISTENER),
	C(PROT_NONE), C(PROT_READ), C(PROT_WRITE), C(PROT_EXEC),
	C(MAP_SHARED), C(MAP_PRIVATE), C(MAP_ANONYMOUS), C(MAP_GROWSDOWN), C(MAP_FIXED),
	C(MFD_CLOEXEC), C(MFD_ALLOW_SEALING), { "MFD_NOEXEC_SEAL", 8 }, { "MFD_EXEC", 16 },
	C(S_IFIFO), C(S_IFREG), C(S_IFCHR), C(S_IFBLK), C(S_IFSOCK),
	{ "PTRACE_TRACEME", 0 }, { "PTRACE_ATTACH", 16 }, { "PTRACE_SEIZE", 0x4206 },
};
/* clang-format on */

static bool one_argument(const char *text, size_t len, uint64_t *ret)
{
	char word[64], *end;

	if (!len || len >= sizeof(word))
		return false;
	memcpy(word, text, len);
	word[len] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(constants); i++)
		if (!strcmp(constants[i].name, word)) {
			*ret = constants[i].value;
			return true;
		}
	errno = 0;
	*ret = *word == '-' ? (uint64_t)strtoll(word, &end, 0) : strtoull(word, &end, 0);
	return end != word && !*end && !errno;
}

bool call_argument(const char *text, uint64_t *ret)
{
	uint64_t one;

	*ret = 0;
	for (;;) {
		size_t len = strcspn(text, "|");

		if (!one_argument(text, len, &one))
			return false;
		*ret |= one;
		if (!text[len])
			return true;
		text += len + 1;
	}
}

/* ------------------------------------------------------------------ verdicts */

const char *call_errno_name(int errnum, char *buf, int size)
{
	const char *name = strerrorname_np(errnum);

	if (name)
		return name;
	nsbox_format(buf, size, "errno %d", errnum);
	return buf;
}

const char *call_action_text(uint32_t action, char *buf, int size)
{
	uint32_t data = action & SECCOMP_RET_DATA;

	switch (action & SECCOMP_RET_ACTION_FULL) {
	case SECCOMP_RET_ALLOW: return "allowed";
	case SECCOMP_RET_KILL_PROCESS: return "killed";
	case SECCOMP_RET_KILL_THREAD: return "thread killed";
	case SECCOMP_RET_ERRNO: return data ? call_errno_name((int)data, buf, size) : "not done";
	default: nsbox_format(buf, size, "action 0x%x", action); return buf;
	}
}
