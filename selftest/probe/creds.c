/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of credentials, keys and what is inherited (F, I, L, M of the catalogue). */
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/securebits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "selftest/probe/probe.h"

void probe_E07_keyring(const struct probe *p)
{
	static const struct raw_call calls[] = {
		{ "keyctl", SYS_keyctl, { KEYCTL_GET_KEYRING_ID, -3 /* session */, 0 } },
		{ "add_key", SYS_add_key, { 1, 1, 0, 0, 0 } },
		{ "request_key", SYS_request_key, { 1, 1, 0, 0 } },
	};

	judge_calls("seccomp", calls, ARRAY_SIZE(calls), (const int[]){ EPERM, 0 });
}

void probe_F02_no_new_privs(const struct probe *p)
{
	int on = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);

	if (p->control && on)
		skip("the caller has no_new_privs itself");
	if (!on)
		escaped("a set-user-id program would gain its privilege");
	held("noNewPrivileges", "no_new_privs is set");
}

void probe_F03_capabilities(const struct probe *p)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	if (syscall(SYS_capget, &head, data) < 0)
		skip("capget: %s", errname(errno));
	for (int i = 0; i < 2; i++)
		if (data[i].effective | data[i].permitted | data[i].inheritable)
			escaped("capabilities %08x are held",
				data[i].permitted | data[i].inheritable);
	/* Who is nobody special may not empty it where it has no namespace, and nothing is gained by it. */
	for (int cap = 0;
	     cap < 64 && !(in_process_tier(p) && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
	     cap++)
		if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1)
			escaped("capability %d is in the bounding set", cap);
	for (int cap = 0; cap < 64; cap++)
		if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, cap, 0, 0) == 1)
			escaped("capability %d is ambient", cap);
	if (geteuid() != 0 && (setresuid(0, 0, 0) == 0 || setgroups(0, NULL) == 0))
		escaped("ids can be changed");
	held("capabilities", "all sets are empty");
}

void probe_F07_groups(const struct probe *p)
{
	char word[16] = "";
	gid_t list[64] = { 65534 };
	int n = getgroups(64, list);

	if (p->control && !n && setgroups(1, list) == 0)
		n = 1;
	if (slurp("/proc/self/setgroups", word, sizeof(word)) > 0 && !strncmp(word, "deny", 4))
		held("user", "setgroups is denied");
	if (p->control && n <= 0)
		skip("the caller has no supplementary groups");
	if (n)
		escaped("%d groups are held, and setgroups is not denied", n);
	held("user", "no groups are held");
}

/* ------------------------------------------------------------------ terminal, descriptors, state */

static void take_terminal(void)
{
	int unlock = 0, master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC), slave;

	setsid();
	if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) < 0)
		skip("no terminal can be made: %s", errname(errno));
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0 || ioctl(slave, TIOCSCTTY, 0) < 0)
		skip("no terminal can be had: %s", errname(errno));
}

void probe_I03_terminal(const struct probe *p)
{
	char byte;

	if (p->control)
		take_terminal();
	if (open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC) >= 0)
		escaped("there is a terminal to control");
	if (read(0, &byte, 1) != 0)
		escaped("standard input has no end");
	held("setup", "no terminal, and the end of input at once");
}

void probe_L05_forged_result(const struct probe *p)
{
	if (p->control)
		fcntl(1, F_DUPFD, 7);
	printf("{\"code\": 200, \"data\": \"forged\"}\n");
	for (int fd = 3; fd < 32; fd++)
		if (write(fd, "", 0) == 0)
			escaped("descriptor %d can be written", fd);
	held("setup", "none but standard output and error can be written");
}

static unsigned long status_mask(const char *name)
{
	static char text[8192];
	char *at;

	if (slurp("/proc/self/status", text, sizeof(text)) <= 0)
		return 0;
	at = strstr(text, name);
	return at ? strtoul(at + strlen(name), NULL, 16) : 0;
}

/* The owner, and so the control, ignores SIGPIPE and has another umask. */
void probe_M05_inherited(const struct probe *p)
{
	struct itimerval timer = { 0 };
	struct sigaction sa = { 0 };
	mode_t mask = umask(022);

	for (int sig = 1; sig < 65; sig++)
		if (sigaction(sig, NULL, &sa) == 0 && sa.sa_handler == SIG_IGN)
			escaped("signal %d is ignored", sig);
	if (status_mask("SigBlk:\t"))
		escaped("signals are blocked");
	if (mask != 022)
		escaped("umask %03o", mask);
	getitimer(ITIMER_REAL, &timer);
	if (timer.it_value.tv_sec || timer.it_interval.tv_sec)
		escaped("a timer runs");
	held("setup", "signals, masks and timers are the default");
}

void probe_W01_witness(const struct probe *p)
{
	if (p->control)
		escaped("nothing was tried");
	held("witness", "the result tells");
}
